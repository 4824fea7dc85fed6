//! `steadfast webhooks secret`: keys for signing webhooks. They are printed and kept nowhere.

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};

pub(super) fn command() -> Command {
    let ed25519 = Arg::new("ed25519").long("ed25519").action(ArgAction::SetTrue);
    let secret = Command::new("secret")
        .about("Print a new secret to sign webhooks with; it is stored nowhere")
        .arg(ed25519.help("A pair of keys instead: a private one to sign with, a public one for the receivers"));
    Command::new("webhooks").about("Make secrets for webhooks").subcommand_required(true).subcommand(secret)
}

#[cfg(feature = "kinds-http")]
pub(super) fn run(matches: &ArgMatches) -> Result<()> {
    use super::stdio::print_line;
    use crate::kinds::webhook::signature::{generate_ed25519, generate_secret};
    let asymmetric = matches.subcommand_matches("secret").is_some_and(|secret| secret.get_flag("ed25519"));
    if asymmetric {
        let keys = generate_ed25519()?;
        print_line(&keys.private);
        print_line(&keys.public);
    } else {
        print_line(&generate_secret()?);
    }
    Ok(())
}

#[cfg(not(feature = "kinds-http"))]
pub(super) fn run(_: &ArgMatches) -> Result<()> {
    anyhow::bail!("this program was built without kinds-http")
}
