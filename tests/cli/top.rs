//! `steadfast top`: one picture in a pipe, on terminals of two widths, and live until `q`.

use std::io::{Read, Write};
use std::process::Stdio;

use serde_json::json;

use crate::terminal::{Terminal, bare};
use crate::world::{World, until};

const EXECUTOR: [(&str, &str); 1] = [("STEADFAST_EXECUTOR", "none")];

#[test]
fn top_shows_what_there_is_and_what_is_wrong_and_fits() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    let quiet = server.run(&world, &["top", "--once"]);
    assert_eq!(quiet.code, Some(0), "{}", quiet.stderr);
    assert!(quiet.stdout.contains("Everything keeps up. Nothing is due;"), "{}", quiet.stdout);
    let queue = "a_queue_with_a_rather_long_name";
    server.run(&world, &["enqueue", "summarize_text", r#"{"text":"t"}"#, "--queue", queue]);
    server.post("/queues/reports/pause", &json!({}));
    let problem = until("the problem is found", || {
        let shown = server.run(&world, &["top"]).stdout;
        shown.contains("1 problem.").then_some(shown)
    });
    assert!(problem.contains("✕ No live worker takes summarize_text"), "{problem}");
    assert!(!problem.contains('\x1b'), "in a pipe there are no colours: {problem:?}");
    let json = server.run(&world, &["top", "--json"]).json();
    assert_eq!(json["problems"][0]["code"], "no_worker");
    for columns in [60, 80] {
        let shown = bare(&Terminal { columns, input: "" }.run(&world, &server, "top --once"));
        assert!(shown.iter().all(|line| line.chars().count() <= columns.into()), "{shown:#?}");
        let text = shown.join("\n");
        for part in ["1 problem.", "No live worker", "QUEUE", "DUE", "DEAD", "a_queue", "reports", "live"] {
            assert!(text.contains(part), "{columns} without {part}: {text}");
        }
    }
    server.stop();
}

/// Runs `top` on a terminal; the key is typed once it draws.
fn typed_once_it_is_there(world: &World, url: &str, key: &str) -> String {
    let command = format!("stty cols 80 rows 50; {} top; echo and back", env!("CARGO_BIN_EXE_steadfast"));
    let mut script = world.program("script");
    script.args(["-qec", &command, "/dev/null"]).env("STEADFAST_URL", url);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keyboard, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut chunk, mut is_typed) = (Vec::new(), vec![0; 4096], false);
    loop {
        let n = screen.read(&mut chunk).unwrap();
        if n == 0 {
            break;
        }
        shown.extend_from_slice(&chunk[..n]);
        if !is_typed && String::from_utf8_lossy(&shown).contains("q: quit") {
            keyboard.write_all(key.as_bytes()).unwrap();
            keyboard.flush().unwrap();
            is_typed = true;
        }
    }
    child.wait().unwrap();
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn top_is_live_until_q_and_leaves_the_terminal_as_it_was() {
    let world = World::new();
    let server = world.serve(&EXECUTOR);
    for key in ["q", "\u{3}"] {
        let shown = typed_once_it_is_there(&world, &server.url, key);
        let (began, ended) = (shown.find("\x1b[?1049h").unwrap(), shown.find("\x1b[?1049l").unwrap());
        assert!(began < ended && shown[began..ended].contains("Everything keeps up."), "{shown:?}");
        assert!(shown[ended..].contains("and back") && shown.contains("\x1b[?25h"), "{shown:?}");
    }
    server.stop();
}
