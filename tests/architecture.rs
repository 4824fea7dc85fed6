//! Keeps the rooms of the house apart: which module may name which, and who may use which crate.

#![allow(clippy::unwrap_used, reason = "what a test relies on may fail it")]

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Each room and the rooms it may name. `job` names none.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("job", &[]),
    ("store", &["job"]),
    ("queue", &["job", "store"]),
    ("worker", &["job", "store", "queue"]),
    ("outbound", &[]),
    ("kinds", &["job", "queue", "worker", "outbound"]),
    ("api", &["job", "store", "queue", "kinds"]),
    ("server", &["job", "store", "queue", "worker", "kinds", "api", "outbound"]),
];

/// Crates that belong to one room.
const BELONGS_TO: &[(&str, &str)] = &[
    ("rusqlite", "src/store/sqlite/"),
    ("tokio_postgres", "src/store/postgres/"),
    ("deadpool_postgres", "src/store/postgres/"),
    ("axum", "src/api/"),
    ("socket2", "src/api/"),
    ("tokio_rustls", "src/outbound/"),
    ("hyper_util::client", "src/outbound/"),
    ("lettre", "src/kinds/mail/"),
    // Not by its bare name, which our own module has, too.
    ("use image", "src/kinds/image/"),
    ("fast_image_resize", "src/kinds/image/"),
    ("webp", "src/kinds/image/"),
    ("object_store", "src/kinds/image/"),
    ("clap", "src/server/"),
    ("anyhow", "src/server/"),
    ("ureq", "src/server/"),
    ("tracing_subscriber", "src/server/"),
];

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Lines of code: comments and doc links may name what they like.
fn code(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(str::trim).filter(|line| !line.starts_with("//")).map(str::to_owned).collect()
}

fn all_sources() -> Vec<PathBuf> {
    let found = sources(Path::new("src"));
    assert!(found.len() > 20, "the sources are where they are looked for");
    found
}

#[test]
fn rooms_name_only_the_rooms_below_them() {
    for path in all_sources() {
        let shown = path.display().to_string();
        let Some((room, allowed)) = MAY_NAME.iter().find(|(room, _)| shown.starts_with(&format!("src/{room}/"))) else {
            continue;
        };
        for (other, _) in MAY_NAME.iter().filter(|(other, _)| other != room && !allowed.contains(other)) {
            for line in code(&path) {
                assert!(!line.contains(&format!("crate::{other}::")), "{shown} names {other}: {line}");
            }
        }
    }
}

#[test]
fn the_rules_read_no_environment_and_hold_no_planted_bug() {
    for path in sources(Path::new("src/job")) {
        for line in code(&path) {
            assert!(!line.contains("planted") && !line.contains("env::"), "{}: {line}", path.display());
        }
    }
}

#[test]
fn crates_stay_in_their_room() {
    for path in all_sources() {
        let shown = path.display().to_string();
        for (name, room) in BELONGS_TO.iter().filter(|(_, room)| !shown.starts_with(room)) {
            for line in code(&path) {
                assert!(!line.contains(&format!("{name}::")), "{shown} uses {name}, which belongs to {room}: {line}");
            }
        }
    }
}

/// How a program reaches another one, or asks where it is.
const REACHES_OUT: [&str; 9] = [
    "TcpStream::connect",
    "TcpSocket::new",
    "UnixStream::connect",
    "UdpSocket",
    "lookup_host",
    "to_socket_addrs",
    "ToSocketAddrs",
    "hyper::client",
    "hyper_util::client",
];

/// Where else that may be: none of it goes where a URL or a payload leads.
const MAY_REACH_OUT: [(&str, &str); 5] = [
    ("src/outbound/", "judges every address first"),
    ("src/kinds/mail/", "the mail server is in the settings; no payload names it"),
    ("src/server/roles/crew/", "looks up where the database is, so that nothing is called there"),
    ("src/server/bench/server_process.rs", "the benchmark calls the server that it has started"),
    ("src/api/write_timeout.rs", "its test is the client of its own listener"),
];

#[test]
fn s34_only_the_outbound_room_opens_connections() {
    let mut seen = 0;
    for path in all_sources() {
        let shown = path.display().to_string();
        let may = MAY_REACH_OUT.iter().any(|(place, _)| shown.starts_with(place));
        for line in code(&path) {
            let Some(reach) = REACHES_OUT.iter().find(|reach| line.contains(**reach)) else { continue };
            seen += 1;
            assert!(may, "{shown} uses {reach}: what leaves the process goes through src/outbound: {line}");
        }
    }
    assert!(seen > 5, "the connector is not found");
}

#[test]
fn programs_are_a_few_lines() {
    for path in sources(Path::new("src/bin")) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 20, "{} has {lines} lines: programs only call src/server", path.display());
    }
}

#[test]
fn no_file_grows_past_five_hundred_lines() {
    for path in all_sources() {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 500, "{} has {lines} lines: look for the missing noun", path.display());
    }
}

/// What stands for a public type's members: nobody outside can name them all, so there can be more.
const GROWS: &str = "#[non_exhaustive]";

/// Whether one of the attributes that stand directly above this line is [`GROWS`].
fn can_grow(lines: &[String], at: usize) -> bool {
    let above = lines[..at].iter().rev();
    above.take_while(|above| above.starts_with("#[") || above.ends_with(")]")).any(|attribute| attribute == GROWS)
}

/// `Name {`, as it stands in an enum.
fn is_variant_with_fields(line: &str) -> bool {
    line.strip_suffix(" {").is_some_and(|name| {
        name.starts_with(|first: char| first.is_ascii_uppercase()) && name.chars().all(char::is_alphanumeric)
    })
}

#[test]
fn public_types_can_gain_members() {
    let mut seen = 0;
    for path in all_sources() {
        let shown = path.display().to_string();
        if ["src/server/", "src/api/wire/"].iter().any(|private| shown.starts_with(private)) {
            continue;
        }
        let lines = code(&path);
        for (at, line) in lines.iter().enumerate() {
            let Some(rest) = line.strip_prefix("pub enum ").or_else(|| line.strip_prefix("pub struct ")) else {
                continue;
            };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let members = || (at + 1..lines.len()).take_while(|member| lines[*member] != "}");
            let is_enum = line.starts_with("pub enum ");
            let has_public_members =
                line.ends_with('{') && (is_enum || members().any(|member| lines[member].starts_with("pub ")));
            seen += 1;
            assert!(
                !has_public_members || can_grow(&lines, at),
                "{shown}: {name} cannot gain a member without breaking its users: {GROWS}"
            );
            let is_variant = |member: &usize| is_enum && is_variant_with_fields(&lines[*member]);
            for variant in members().filter(is_variant) {
                assert!(can_grow(&lines, variant), "{shown}: {name}: {} cannot gain a field: {GROWS}", lines[variant]);
            }
        }
    }
    assert!(seen > 50, "only {seen} public types: they are not found");
}

#[test]
fn only_the_facade_asks_the_store() {
    for path in all_sources() {
        let shown = path.display().to_string();
        if ["src/api/", "src/worker/", "src/server/", "src/kinds/"].iter().any(|room| shown.starts_with(room)) {
            for line in code(&path) {
                assert!(!line.contains(".store()"), "{shown} goes around Queue: {line}");
            }
        }
    }
}

/// The table in `ARCHITECTURE.md` with the files that a job visits.
fn way_of_a_job() -> Vec<Vec<String>> {
    let text = fs::read_to_string("ARCHITECTURE.md").unwrap();
    let way = text.split("## The way of a job").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = way.lines().filter(|line| line.starts_with("| ") && line.chars().nth(2).unwrap().is_ascii_digit());
    rows.map(|row| row.split('|').skip(3).map(str::to_owned).collect()).collect()
}

fn files_in(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs"))
}

/// 20: whoever adds a file to the way of a job takes one out.
const FILES_VISITED_MAX: usize = 20;

#[test]
fn the_way_of_a_job_is_documented_and_short() {
    let rows = way_of_a_job();
    assert_eq!(rows.len(), 8, "the table is not found");
    for (store, column) in [("SQLite", 1), ("PostgreSQL", 2)] {
        let mut visited = 0;
        for row in &rows {
            for file in [&row[0], &row[column]].into_iter().flat_map(|cell| files_in(cell)) {
                assert!(Path::new("src").join(file).is_file(), "ARCHITECTURE.md: there is no src/{file}");
                visited += 1;
            }
        }
        assert!(visited <= FILES_VISITED_MAX, "a job visits {visited} files on {store}");
        println!("{store}: {visited}");
    }
}

/// Databases were made with these. What is to change comes with a migration of its own.
const FROZEN: &[(&str, &str)] = &[
    ("postgres/migrations/0001_jobs.sql", "43c1608d6d0b359b5733afe4e21e7ab89063a4d890971ff031fd848ccf06bda6"),
    ("postgres/migrations/0002_tokens.sql", "de6478174902f10533e360341070bed88ce3c851860158ea99c4d339de9c5fac"),
    ("sqlite/migrations/0001_jobs.sql", "12c69680f535ec2c28706d408908298b0a51109cb4a7ce1569ea56230b799b48"),
    ("sqlite/migrations/0002_tokens.sql", "58ea423921336b85f821e7ddb9bfd928e1a68690d38cb1ec575cbb51df6b08a4"),
];

#[test]
fn migrations_stay_as_they_were_published() {
    for (name, published) in FROZEN {
        let digest = Sha256::digest(fs::read(Path::new("src/store").join(name)).unwrap());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, *published, "src/store/{name} has changed: put the change into a new migration");
    }
}
