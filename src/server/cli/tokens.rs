//! `steadfast tokens`.

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::args;
use super::format::{age, text};
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
            Command::Create { name, scope } => {
                let made = client.post("/tokens", Some(&json!({"name": name, "scopes": scope})))?.json;
                if as_json {
                    print_json(&made);
                } else {
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
    let mut table = Table::new(&["ID", "NAME", "SCOPES", "AGE"], &[1, 2]);
    for token in tokens.as_array().into_iter().flatten() {
        let scopes = token.get("scopes").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let scopes = escaped(&scopes.collect::<Vec<_>>().join(", "));
        table.row([text(token, "id"), text(token, "name"), scopes, age(token, "created_at")]);
    }
    table.print();
}
