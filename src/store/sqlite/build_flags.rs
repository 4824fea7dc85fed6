//! How SQLite was built, and what a build without our flags costs: speed, never safety.
//!
//! The flags come from `LIBSQLITE3_FLAGS` in this repository's `.cargo/config.toml`. Cargo does not hand that on to a
//! program that depends on this crate, so such a program is told at open what to write into its own.

use rusqlite::Connection;

/// What to set `LIBSQLITE3_FLAGS` to.
const WANTED: &str = "-DHAVE_FDATASYNC=1 -DSQLITE_DEFAULT_MEMSTATUS=0 -USQLITE_ENABLE_MEMORY_MANAGEMENT";

/// SQLite does not list this one among its compile options. Cargo compiles both crates with the same environment, so this
/// is what SQLite was built with.
const SET: Option<&str> = option_env!("LIBSQLITE3_FLAGS");

/// One line in the log, if there is something to be gained.
pub(super) fn log_missing(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("PRAGMA compile_options")?;
    let options: Vec<String> = statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let missing = missing(SET.unwrap_or_default(), &options);
    if !missing.is_empty() {
        tracing::info!(
            missing = missing.join("; "),
            "SQLite is slower than it could be: set LIBSQLITE3_FLAGS = \"{WANTED}\" under [env] in the .cargo/config.toml \
             of the program, then build it again"
        );
    }
    Ok(())
}

/// What is missing, with what that costs.
fn missing(flags: &str, compile_options: &[String]) -> Vec<&'static str> {
    let is_flag = |flag: &str| flags.split_whitespace().any(|set| set == flag);
    let is_option = |option: &str| compile_options.iter().any(|compiled| compiled == option);
    let mut missing = Vec::new();
    if !is_flag("-DHAVE_FDATASYNC=1") && !is_flag("-DHAVE_FDATASYNC") {
        missing.push("HAVE_FDATASYNC (every commit pays an fsync, which writes the times of the file, too)");
    }
    if !is_option("DEFAULT_MEMSTATUS=0") {
        missing.push("DEFAULT_MEMSTATUS=0 (every allocation takes a global lock)");
    }
    if is_option("ENABLE_MEMORY_MANAGEMENT") {
        missing.push("no ENABLE_MEMORY_MANAGEMENT (every page takes a global lock)");
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_builds_sqlite_with_every_flag_it_wants() {
        assert_eq!(SET, Some(WANTED));
        let connection = Connection::open_in_memory().unwrap();
        let mut statement = connection.prepare("PRAGMA compile_options").unwrap();
        let options: Vec<String> =
            statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(missing(WANTED, &options), [""; 0]);
    }

    #[test]
    fn a_build_without_them_is_told_each_one() {
        let named = missing("", &["ENABLE_MEMORY_MANAGEMENT".into(), "THREADSAFE=1".into()]).join("\n");
        let first_words: Vec<_> = named.lines().map(|line| line.split(" (").next().unwrap()).collect();
        assert_eq!(first_words, ["HAVE_FDATASYNC", "DEFAULT_MEMSTATUS=0", "no ENABLE_MEMORY_MANAGEMENT"]);
    }
}
