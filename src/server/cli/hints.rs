//! The server's way out names routes; a person at the command line is told the command for it.

/// `declare it with PUT /kinds/welcome` → `declare it with steadfast kinds put welcome`.
pub(super) fn in_commands(detail: &str) -> String {
    let mut words = detail.split(' ').peekable();
    let mut said = Vec::new();
    while let Some(word) = words.next() {
        match words.peek().and_then(|path| command(word, path)) {
            Some(command) => {
                said.push(command);
                words.next();
            }
            None => said.push(word.to_owned()),
        }
    }
    said.join(" ")
}

/// The command for a method and a path; what follows the path, like a comma, stays.
fn command(method: &str, path: &str) -> Option<String> {
    let route = path.trim_end_matches([',', ';', ')', '.', ':']);
    let rest = &path[route.len()..];
    let parts: Vec<&str> = route.strip_prefix('/')?.split('/').collect();
    let command = match (method, &parts[..]) {
        ("PUT", ["kinds", kind]) => format!("kinds put {kind}"),
        ("DELETE", ["kinds", kind]) => format!("kinds delete {kind}"),
        ("GET", ["jobs", id]) => format!("jobs show {id}"),
        ("DELETE", ["jobs", id]) => format!("jobs delete {id}"),
        ("POST", ["jobs", id, verb @ ("cancel" | "redrive")]) => format!("jobs {verb} {id}"),
        ("POST", ["queues", queue, verb @ ("pause" | "resume")]) => format!("queues {verb} {queue}"),
        ("POST", ["tokens"]) => "tokens create".to_owned(),
        ("DELETE", ["tokens", id]) => format!("tokens revoke {id}"),
        ("GET", [what @ ("kinds" | "queues" | "stats")]) => (*what).to_owned(),
        _ => return None,
    };
    Some(format!("steadfast {command}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::in_commands;

    #[test]
    fn a_hint_names_the_command_and_leaves_everything_else() {
        assert_eq!(
            in_commands("kind \"a\" is not declared; declare it with PUT /kinds/a, or by registering its handler"),
            "kind \"a\" is not declared; declare it with steadfast kinds put a, or by registering its handler"
        );
        assert_eq!(in_commands("see POST /jobs/1/redrive."), "see steadfast jobs redrive 1.");
        for as_it_is in ["", "GET", "PUT it down", "POST /leases", "a  b /x"] {
            assert_eq!(in_commands(as_it_is), as_it_is);
        }
    }
}
