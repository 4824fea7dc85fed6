//! What ships beside the programs names only what the programs know.

use std::path::{Path, PathBuf};

use crate::world::{World, ended};

/// A file of the repository.
pub(crate) fn shipped(name: impl AsRef<Path>) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below a directory of the repository.
fn shipped_below(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(directory)).unwrap();
    let paths = entries.map(|entry| entry.unwrap()).map(|entry| (entry.file_type().unwrap(), entry.file_name()));
    let paths = paths.map(|(entry, name)| (entry, directory.join(name)));
    paths.flat_map(|(entry, path)| if entry.is_dir() { shipped_below(&path) } else { vec![path] }).collect()
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
        let given_to_commands = ["STEADFAST_JOB_ID", "STEADFAST_JOB_KIND", "STEADFAST_JOB_ATTEMPT"];
        table.contains(&format!("`{name}`")) || client.contains(&name) || given_to_commands.contains(&name)
    };
    let documents = ["README.md", "docs/kinds.md", "docs/operations.md"];
    let mut files = shipped_below(Path::new("packaging"));
    assert!(files.len() > 15, "{files:?}");
    files.extend(["Dockerfile", "compose.yaml", ".env.example"].into_iter().chain(documents).map(PathBuf::from));
    for file in files {
        for variable in variables(&shipped(&file)) {
            assert!(known(variable), "{} names {variable}, which is no setting", file.display());
        }
    }
}

#[test]
fn every_default_in_the_example_environment_is_allowed() {
    let world = World::new();
    let example = shipped(".env.example");
    let settings = example.lines().filter_map(|line| line.strip_prefix('#')?.split_once('='));
    let settings: Vec<_> = settings.filter(|(name, value)| !name.contains(' ') && !value.is_empty()).collect();
    assert!(settings.len() > 5, "{settings:?}");
    let done = ended(world.steadfast().arg("config").envs(settings));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
}

/// `NAME=value` lines of the example, also those that are commented out.
fn example_settings(example: &str) -> Vec<(&str, &str)> {
    let lines = example.lines().map(|line| line.strip_prefix('#').unwrap_or(line));
    lines.filter_map(|line| line.split_once('=')).filter(|(name, _)| !name.contains(' ')).collect()
}

/// What compose.yaml sets for the roles, by name; a file with a secret as the secret. Without what commands take.
fn set_by_compose(compose: &str) -> Vec<(&str, &str)> {
    let pairs = compose.lines().filter_map(|line| line.trim().split_once(": "));
    let pairs = pairs.filter(|(name, _)| variables(name).next() == Some(*name));
    let pairs = pairs.map(|(name, value)| (name.strip_suffix("_FILE").unwrap_or(name), value));
    pairs.filter(|(name, _)| !["STEADFAST_URL", "STEADFAST_TOKEN"].contains(name)).collect()
}

#[test]
fn the_example_environment_compose_and_the_table_of_settings_agree() {
    let (example, compose) = (shipped(".env.example"), shipped("compose.yaml"));
    let table = World::new().run(&["config", "--markdown"]).stdout;
    assert!(compose.contains("env_file: [.env]"), "what is set in .env does not reach the programs");
    for secret in ["database_url", "admin_token"] {
        assert!(!compose.contains(&format!("{}: ${{", secret.to_uppercase())), "{secret} is in the environment");
        assert!(compose.contains(&format!("{secret}: {{ file: secrets/{secret} }}")), "{secret} is no file");
    }

    // What compose takes from .env is in the example, and what must be set there is left empty.
    for wanted in compose.split("${").skip(1).map(|rest| rest.split('}').next().unwrap()) {
        let name = wanted.split([':', '-', '?']).next().unwrap();
        let found = example_settings(&example).into_iter().find(|(known, _)| *known == name);
        let (_, value) = found.unwrap_or_else(|| panic!("compose.yaml takes {name}, which is not in .env.example"));
        assert_eq!(value.is_empty(), wanted.contains(":?"), "{name}={value}");
        assert_eq!(value.is_empty(), example.lines().any(|line| line == format!("{name}=")), "{name}={value}");
    }

    // What compose fixes is said to be fixed: it stands in the last part of the example.
    let (free, fixed) = example.split_once("# Without compose.yaml only").unwrap();
    for (name, value) in set_by_compose(&compose) {
        let own = !value.contains("${");
        assert_eq!(example_settings(fixed).iter().any(|(known, _)| *known == name), own, "{name}: {value}");
        assert_eq!(example_settings(free).iter().any(|(known, _)| *known == name), !own, "{name}: {value}");
    }

    // What is shown as a default is the default, here or in compose.
    for (name, value) in example_settings(&example).into_iter().filter(|(_, value)| !value.is_empty()) {
        let row = table.lines().find(|row| row.contains(&format!("| `{name}` |"))).unwrap_or_else(|| panic!("{name}"));
        let default = row.split(" | ").nth(3).unwrap();
        let default = default.trim_end_matches(" ms").trim_matches('`');
        let fine = default == value
            || ["unset", "4 × cores"].contains(&default)
            || compose.contains(&format!("${{{name}:-{value}}}"));
        assert!(fine, ".env.example says {name}={value}, the default is {default}");
    }
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

#[test]
fn the_secrets_for_compose_are_made_once_and_are_secrets_to_the_programs() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    std::fs::create_dir(world.path("packaging")).unwrap();
    for file in ["packaging/secrets", ".env.example"] {
        std::fs::write(world.path(file), shipped(file)).unwrap();
    }
    let make = || ended(world.program("bash").arg("packaging/secrets"));
    let read = |name: &str| std::fs::read_to_string(world.path(name)).unwrap();
    assert_eq!(make().code, Some(0), "{}", make().stderr);
    let (url, token, environment) = (read("secrets/database_url"), read("secrets/admin_token"), read(".env"));
    assert!(url.contains(&format!(":{}@postgres:", read("secrets/postgres_password"))), "{url}");
    let group = environment.lines().find_map(|line| line.strip_prefix("SECRETS_GID=")).unwrap();
    assert!(group.parse::<u32>().is_ok(), "{environment}");
    for entry in std::fs::read_dir(world.path("secrets")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o440, "{:?}", entry.path());
    }
    // The programs take them.
    let mut config = world.steadfast();
    config.arg("config").env("DATABASE_URL_FILE", world.path("secrets/database_url"));
    let shown = ended(config.env("STEADFAST_ADMIN_TOKEN_FILE", world.path("secrets/admin_token")));
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    // Again changes nothing.
    assert_eq!(make().code, Some(0), "{}", make().stderr);
    assert_eq!((read("secrets/database_url"), read("secrets/admin_token"), read(".env")), (url, token, environment));
}

#[test]
fn every_unit_is_hardened_in_the_same_way() {
    let units = shipped_below(Path::new("packaging/systemd"));
    let hardening = |unit: &PathBuf| {
        let text = shipped(unit);
        let (_, lines) = text.split_once("# Hardening: ").unwrap();
        let lines = lines.lines().skip(1).take_while(|line| !line.starts_with('['));
        lines.filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(units.len(), 4, "{units:?}");
    for unit in &units {
        assert_eq!(hardening(unit), hardening(&units[0]), "{} and {}", unit.display(), units[0].display());
    }
}
