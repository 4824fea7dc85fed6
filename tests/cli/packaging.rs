//! What ships beside the programs names only what the programs know.

use std::path::Path;

use crate::world::World;

fn shipped(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Words in capitals that look like variables of ours.
fn variables(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| {
        ["STEADFAST_", "WORKER_", "API_", "DATABASE_", "RUST_"].iter().any(|ours| word.starts_with(ours))
    })
}

#[test]
fn every_variable_in_packaging_and_documentation_exists() {
    let table = World::new().run(&["config", "--markdown"]).stdout;
    let known = |name: &str| {
        let client = ["STEADFAST_URL", "STEADFAST_TOKEN", "STEADFAST_TOKEN_FILE"];
        table.contains(&format!("`{name}`")) || client.contains(&name)
    };
    for file in ["Dockerfile", "compose.yaml", ".env.example", "packaging/steadfast.service", "docs/operations.md"] {
        for variable in variables(&shipped(file)) {
            assert!(known(variable), "{file} names {variable}, which is no setting");
        }
    }
}

#[test]
fn every_default_in_the_example_environment_is_allowed() {
    let world = World::new();
    let example = shipped(".env.example");
    let settings = example.lines().filter_map(|line| line.strip_prefix('#')?.split_once('='));
    let settings: Vec<_> = settings.filter(|(name, _)| !name.contains(' ')).collect();
    assert!(settings.len() > 5, "{settings:?}");
    let done = crate::world::ended(world.steadfast().arg("config").envs(settings));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

#[test]
fn the_documented_exit_codes_are_those_of_the_help() {
    let help = World::new().run(&["--help"]).stdout;
    let documented = shipped("docs/operations.md");
    for (code, words) in [("3", "no server answered"), ("4", "not found"), ("6", "--timeout is over")] {
        assert!(help.split_whitespace().collect::<Vec<_>>().join(" ").contains(&format!("{code} {words}")), "{help}");
        assert!(documented.contains(&format!("| {code} |")), "{code} is not documented");
    }
}
