//! `steadfast tokens`.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args;
use super::format::{age, moment, text};
use super::table::Table;
use super::{Client, Target};
use crate::server::exit::Exit;
use crate::server::stdio::{escaped, print_json, print_line, print_stderr};
use crate::store::Scope;

/// Make, list and revoke API tokens
#[derive(Debug, Args)]
pub(in crate::server) struct Tokens {
    #[command(flatten)]
    pub(super) target: Target,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a token; its secret is printed once, on stdout, and kept nowhere
    Create {
        /// What a person calls it
        name: String,
        /// What it may do; give it several times for several
        #[arg(long, required = true, value_parser = Scope::ALL.map(Scope::as_str))]
        scope: Vec<String>,
        /// How long it works, like 90d or 12h; for ever unless said
        #[arg(long, value_name = "TIME", value_parser = args::duration)]
        expires: Option<Duration>,
    },
    /// Show all tokens, without their secrets
    List,
    /// Revoke a token; it stops working within a second
    Revoke {
        /// The part before the dot
        #[arg(value_parser = args::token_id)]
        id: String,
    },
}

impl Tokens {
    pub(super) fn run(self) -> Result<Exit> {
        let client = Client::new(&self.target)?;
        let as_json = self.target.json;
        match self.command {
            Command::Create { name, scope, expires } => {
                let mut wish = json!({"name": name, "scopes": scope});
                if let Some(expires) = expires {
                    wish["expires_in_ms"] = json!(expires.as_millis() as u64);
                }
                let made = client.post("/tokens", Some(&wish))?.json;
                if as_json {
                    print_json(&made);
                } else {
                    if expires.is_some() {
                        print_stderr(&format!("It works until {}.", moment(&made, "expires_at")));
                    }
                    print_stderr("This is the only time the token is shown:");
                    print_line(&text(&made, "token"));
                }
            }
            Command::List => list(&client.get("/tokens")?.json, as_json),
            Command::Revoke { id } => {
                client.delete(&format!("/tokens/{id}"))?;
                if !as_json {
                    print_line(&format!("token {id} is revoked"));
                }
            }
        }
        Ok(Exit::Ok)
    }
}

fn list(tokens: &Value, as_json: bool) {
    if as_json {
        print_json(tokens);
        return;
    }
    let mut table = Table::new(&["ID", "NAME", "SCOPES", "AGE", "EXPIRES", "LAST USED"], &[1, 2]).dropping(&[3]);
    for token in tokens.as_array().into_iter().flatten() {
        let scopes = token.get("scopes").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let scopes = escaped(&scopes.collect::<Vec<_>>().join(", "));
        let expires = match token.get("expires_at").and_then(Value::as_str) {
            None => "never".to_owned(),
            Some(_) if token.get("expired") == Some(&Value::Bool(true)) => "expired".to_owned(),
            Some(_) => age(token, "expires_at"),
        };
        let used = match token.get("last_used_at").and_then(Value::as_str) {
            None => "never".to_owned(),
            Some(_) => format!("{} ago", age(token, "last_used_at")),
        };
        table.row([text(token, "id"), text(token, "name"), scopes, age(token, "created_at"), expires, used]);
    }
    table.print();
}
