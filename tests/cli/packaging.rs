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
        let given_to_commands = ["STEADFAST_JOB_ID", "STEADFAST_JOB_KIND", "STEADFAST_JOB_ATTEMPT"];
        table.contains(&format!("`{name}`")) || client.contains(&name) || given_to_commands.contains(&name)
    };
    let documents = ["README.md", "docs/kinds.md", "docs/operations.md"];
    for file in
        ["Dockerfile", "compose.yaml", ".env.example", "packaging/steadfast.service"].into_iter().chain(documents)
    {
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

/// `NAME=value` lines of the example, also those that are commented out.
fn example_settings(example: &str) -> Vec<(&str, &str)> {
    let lines = example.lines().map(|line| line.strip_prefix('#').unwrap_or(line));
    lines.filter_map(|line| line.split_once('=')).filter(|(name, _)| !name.contains(' ')).collect()
}

/// What compose.yaml sets for the programs, by name.
fn set_by_compose(compose: &str) -> Vec<(&str, &str)> {
    let pairs = compose.lines().filter_map(|line| line.trim().split_once(": "));
    pairs.filter(|(name, _)| variables(name).next() == Some(*name)).collect()
}

#[test]
fn the_example_environment_compose_and_the_table_of_settings_agree() {
    let (example, compose) = (shipped(".env.example"), shipped("compose.yaml"));
    let table = World::new().run(&["config", "--markdown"]).stdout;
    assert!(compose.contains("env_file: [.env]"), "what is set in .env does not reach the programs");

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
    let interpolated = |value: &str| value.contains("${") && !value.contains("://");
    for (name, value) in set_by_compose(&compose) {
        let own = !interpolated(value);
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
