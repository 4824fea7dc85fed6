//! `steadfast promote`: moves everything from a SQLite file to PostgreSQL (ADR 23).
//!
//! Only the command: arguments, progress, and what is said at the end. The work is `store/promotion`.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::cli::table::Table;
use super::exit::{Exit, ExitError};
use super::logging;
use super::settings::{Inputs, Resolved, Settings, sqlite_path};
use super::stdio::{print_line, replace_line};
use crate::store::postgres::PostgresSettings;
use crate::store::promotion::{self, Options, Outcome, PAGE_ROWS, Plan, Step, TargetTables};

/// 200 ms between two states of the progress line: more cannot be read.
const DRAW_INTERVAL: Duration = Duration::from_millis(200);

const AFTER_HELP: &str = "Stop the server of the file first, and start one on PostgreSQL afterwards. A run that was \
interrupted goes on where it was: run the same command again. A URL with a password is given as DATABASE_URL or \
DATABASE_URL_FILE instead of --to.";

/// The command.
pub(super) fn command() -> Command {
    let text = |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
    let switch = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
    let rows = text("page-rows", "ROWS").value_parser(clap::value_parser!(u32).range(1..=100_000));
    Command::new("promote")
        .about(
            "Move all jobs, history and settings from a SQLite file to PostgreSQL, and check that all of it is there",
        )
        .after_help(AFTER_HELP)
        .arg(text("from", "URL").required(true).help("The file: sqlite://FILE"))
        .arg(text("to", "URL").help("The empty database: postgres://… [default: DATABASE_URL]"))
        .arg(text("schema", "NAME").help("The schema there [STEADFAST_DATABASE_SCHEMA, default public]"))
        .arg(switch("dry-run").help("Show what would be moved and whether the target is fit; change nothing"))
        .arg(switch("start-over").help("Delete what an earlier run that was not completed has moved, and begin again"))
        .arg(switch("unmark").help("Move nothing; let servers open a file again that was promoted"))
        .arg(rows.help(format!("How many rows are moved in one transaction [default: {PAGE_ROWS}]")))
}

pub(super) fn run(matches: &ArgMatches) -> Result<()> {
    let from = file(matches)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    if matches.get_flag("unmark") {
        match runtime.block_on(promotion::unmark(&from))? {
            Some(target) => print_line(&format!(
                "{} can be used again. Jobs that are also in {target} run twice if servers use both",
                from.display()
            )),
            None => print_line(&format!("{} was not promoted: nothing to do", from.display())),
        }
        return Ok(());
    }
    let settings = settings(matches)?;
    let _logging = logging::start(&settings).context("cannot start threads")?;
    let mut to = PostgresSettings::new(&settings.database_url).schema(&settings.database_schema);
    to.allow_unsafe_server_settings = settings.allow_unsafe_server_settings;
    let page_rows = matches.get_one::<u32>("page-rows").map_or(PAGE_ROWS, |rows| *rows as usize);
    let options = Options { from, to, start_over: matches.get_flag("start-over"), page_rows };
    if matches.get_flag("dry-run") {
        let plan = runtime.block_on(promotion::plan(&options))?;
        show_plan(&options, &plan);
        return Ok(());
    }
    let mut progress = ProgressLine::new();
    let outcome = runtime.block_on(promotion::promote(&options, &mut |step| progress.show(step)));
    progress.clear();
    show_outcome(&options, &outcome?);
    Ok(())
}

fn usage(message: &str) -> anyhow::Error {
    ExitError::new(Exit::Usage, message).into()
}

fn file(matches: &ArgMatches) -> Result<PathBuf> {
    let from = matches.get_one::<String>("from").map(String::as_str).unwrap_or_default();
    let path = sqlite_path(from).filter(|path| !path.as_os_str().is_empty());
    path.map(PathBuf::from).ok_or_else(|| usage("--from: name the file as sqlite://FILE"))
}

/// The settings of the target: as for a server that will run on it.
fn settings(matches: &ArgMatches) -> Result<Settings> {
    let given = [("to", "database_url"), ("schema", "database_schema")];
    let flags: BTreeMap<_, _> =
        given.into_iter().filter_map(|(arg, key)| Some((key, matches.get_one::<String>(arg)?.clone()))).collect();
    let directory = std::env::current_dir().context("the start directory cannot be used")?;
    let settings =
        Settings::new(Resolved::new(&Inputs { flags, variables: std::env::vars_os().collect(), directory })?)?;
    match sqlite_path(&settings.database_url) {
        None => Ok(settings),
        Some(_) => Err(usage("name the PostgreSQL database to move to with --to postgres://… or with DATABASE_URL")),
    }
}

/// One line on a terminal, replaced again and again.
struct ProgressLine {
    is_terminal: bool,
    drawn: Option<Instant>,
}

impl ProgressLine {
    fn new() -> Self {
        Self { is_terminal: stderr().is_terminal(), drawn: None }
    }

    fn show(&mut self, step: Step<'_>) {
        let is_new = self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_INTERVAL);
        if !self.is_terminal || !(is_new || matches!(step, Step::Computing)) {
            return;
        }
        self.drawn = Some(Instant::now());
        replace_line(&match step {
            Step::Moving { table, rows, of } => format!("moving {table}: {rows} of {of} rows"),
            Step::Computing => "computing counts".to_owned(),
            Step::Comparing { table, rows, of } => format!("comparing {table}: {rows} of {of} rows"),
        });
    }

    fn clear(&self) {
        if self.drawn.is_some() {
            replace_line("");
        }
    }
}

fn show_plan(options: &Options, plan: &Plan) {
    let mut table = Table::new(&["TABLE", "ROWS"], &[]);
    for (name, rows) in &plan.tables {
        table.row([(*name).to_owned(), rows.map_or_else(|| "not there yet".to_owned(), |rows| rows.to_string())]);
    }
    table.print();
    let (from, target) = (options.from.display(), &plan.target);
    if plan.source_upgraded {
        print_line(&format!("{from} has the schema of an older version: it would be upgraded first"));
    }
    print_line(&match plan.target_tables {
        TargetTables::Made => format!("{target} is empty: the tables would be made first"),
        TargetTables::Upgraded => format!("{target} is empty: its tables would be upgraded first"),
        TargetTables::Ready => format!("{target} is fit"),
        TargetTables::GoOn => format!("{target} holds a part of it: the promotion would go on where it was"),
        TargetTables::StartedOver => format!("{target} holds a part of it, which would be deleted first"),
    });
    print_line(
        "Nothing was changed. Left out are sessions, and the list of workers, which tell the new server of themselves",
    );
}

fn show_outcome(options: &Options, outcome: &Outcome) {
    let from = options.from.display();
    match outcome {
        Outcome::Promoted { target, tables, resumed } => {
            let mut table = Table::new(&["TABLE", "ROWS", "MOVED IN S", "COMPARED IN S"], &[]);
            let seconds = |time: Duration| format!("{:.1}", time.as_secs_f64());
            for moved in tables {
                let times = [seconds(moved.moving), seconds(moved.comparing)];
                table.row([moved.table.to_owned(), moved.rows.to_string()].into_iter().chain(times));
            }
            table.print();
            if *resumed {
                print_line("An earlier run had moved a part of it; this one went on from there");
            }
            print_line(&format!("Every row of {from} is in {target}, and was compared. Point DATABASE_URL there"));
            print_line(&format!("No server opens {from} any more; keep it as a backup, or delete it"));
        }
        Outcome::Completed { target } => {
            print_line(&format!("Everything had been moved and compared; servers can use {target} from now on"));
        }
        Outcome::AlreadyPromoted { target, at } => {
            print_line(&format!("{from} was promoted to {target} at {at}: nothing to do"));
        }
    }
}
