//! Opening: is this a server and a schema that this program knows and can trust?

use std::time::Duration;

use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::error::Cause;
use super::migrate::{SUPPORTED, SchemaVersions, VERSIONS_TABLE};
use super::pool::{Connector, quoted};
use super::settings::PostgresSettings;
use crate::store::OpenError;

/// 13: older ones get no security fixes any more.
const SERVER_MIN: i32 = 130_000;

/// 2 s: as long as a pooler may take to make another connection.
const POOLER_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings with which a server forgets what it has acknowledged.
const UNSAFE: [(&str, &str); 3] = [("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off")];

/// A first connection, with every way it can fail put in words.
pub(super) async fn connect(connector: &Connector, settings: &PostgresSettings) -> Result<Client, OpenError> {
    // Name resolution and TLS are not covered by the driver's own limit.
    let limit = settings.connect_timeout + Duration::from_secs(1);
    let connected = timeout(limit, connector.connect()).await;
    let fail = |problem: &str, way_out: &str| OpenError::new(&connector.shown, problem, way_out);
    let error = match connected {
        Ok(Ok((client, _))) => return Ok(client),
        Ok(Err(error)) => error,
        Err(_) => return Err(fail("the server does not answer", "check the host, the port and the firewall")),
    };
    let (problem, way_out) = match error.code().map(SqlState::code) {
        Some("28P01") => ("the password is wrong, or there is no such user", "check the user and password in the URL"),
        Some("28000") => {
            ("the server does not let this user in", "check the user in the URL and the server's pg_hba.conf")
        }
        Some("3D000") => ("there is no such database", "create it with createdb, or correct the name in the URL"),
        Some("42501") => ("this user may not connect to the database", "GRANT CONNECT ON DATABASE … to it"),
        Some("53300") => ("the server has no connection left", "raise max_connections, or use a smaller pool"),
        Some("57P03") => ("the server is starting up or shutting down", "try again in a moment"),
        Some(_) => ("the server refused the connection", "see the server's message"),
        None if chain(&error).contains("password") => (
            "the server asks for a password and the URL has none",
            "write it as postgres://user:password@host/database",
        ),
        None if chain(&error).contains("TLS") => {
            ("the encrypted connection failed", "check sslmode, sslrootcert and the server's certificate")
        }
        None => ("the server cannot be reached", "check the host and the port, and that PostgreSQL is running there"),
    };
    Err(fail(problem, way_out).caused_by(Cause::from(&error)))
}

/// An error and what caused it, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// A prepared statement is there when it is executed. A pooler in transaction mode runs every transaction on any of its
/// connections, and the statement was prepared on one of them. Such a pooler hands out the connection first that was used
/// last, so while somebody else has that one in a transaction, the statement is executed on another.
pub(super) async fn check_prepared_statements(
    client: &Client,
    connector: &Connector,
    settings: &PostgresSettings,
) -> Result<(), OpenError> {
    let other = connect(connector, settings).await?;
    let tried = async {
        let statement = client.prepare("SELECT 1").await?;
        other.batch_execute("BEGIN").await?;
        let executed = timeout(POOLER_TIMEOUT, client.query(&statement, &[])).await;
        other.batch_execute("ROLLBACK").await?;
        // A pooler with one connection lets the statement wait, and loses none.
        executed.unwrap_or(Ok(Vec::new()))
    };
    let Err(error) = tried.await else { return Ok(()) };
    let (problem, way_out) = match error.code().map(SqlState::code) {
        Some("26000" | "42P05") => (
            "a pooler in front of the server loses prepared statements",
            "use its session mode, let it keep them (max_prepared_statements of pgbouncer 1.21 or newer), or connect to \
             the server itself",
        ),
        _ => ("the server does not answer as PostgreSQL does", "check what the URL points to"),
    };
    Err(OpenError::new(&connector.shown, problem, way_out).caused_by(Cause::from(&error)))
}

/// The server is new enough and set up to keep what it acknowledges.
pub(super) async fn check_server(
    client: &Client,
    connector: &Connector,
    settings: &PostgresSettings,
) -> Result<(), OpenError> {
    let unasked = |error: tokio_postgres::Error| {
        OpenError::new(
            &connector.shown,
            "the server does not answer as PostgreSQL does",
            "check what the URL points to",
        )
        .caused_by(Cause::from(&error))
    };
    let version: i32 = client
        .query_one("SELECT pg_catalog.current_setting('server_version_num')::integer", &[])
        .await
        .and_then(|row| row.try_get(0))
        .map_err(unasked)?;
    check_version(version, &connector.shown)?;
    let names: Vec<&str> = UNSAFE.iter().map(|(name, _)| *name).collect();
    // What the server would do by itself; on these connections synchronous_commit has been set already.
    let sql = "SELECT name, reset_val FROM pg_catalog.pg_settings WHERE name = ANY($1)";
    for row in client.query(sql, &[&names]).await.map_err(unasked)? {
        let (name, value): (String, String) =
            row.try_get(0).and_then(|name| Ok((name, row.try_get(1)?))).map_err(unasked)?;
        if !UNSAFE.contains(&(name.as_str(), value.as_str())) {
            continue;
        }
        if !settings.allow_unsafe_server_settings {
            return Err(OpenError::new(
                &connector.shown,
                format!("the server runs with {name} = {value} and can lose jobs it has acknowledged"),
                format!("set {name} = on, or allow unsafe server settings if the data may be lost"),
            ));
        }
        tracing::warn!(server = %connector.shown, "the server runs with {name} = {value}: acknowledged jobs can be lost");
    }
    Ok(())
}

fn check_version(version: i32, shown: &str) -> Result<(), OpenError> {
    if version >= SERVER_MIN {
        return Ok(());
    }
    let (major, least) = (version / 10_000, SERVER_MIN / 10_000);
    let problem = format!("the server is PostgreSQL {major}, too old for this program");
    Err(OpenError::new(shown, problem, format!("use PostgreSQL {least} or newer")))
}

/// The tables are of a version that this program works on.
pub(super) async fn check_schema(
    client: &Client,
    connector: &Connector,
    settings: &PostgresSettings,
) -> Result<(), OpenError> {
    let table = format!("{}.{VERSIONS_TABLE}", quoted(&settings.schema));
    let found = match client.query_one(&format!("SELECT coalesce(max(version), 0) FROM {table}"), &[]).await {
        Ok(row) => row.try_get::<_, i32>(0).unwrap_or(0),
        Err(error) => match error.code().map(SqlState::code) {
            Some("42P01" | "3F000") => 0,
            Some("42501") => {
                let problem = format!("this user may not read the tables in schema {:?}", settings.schema);
                let way_out = "GRANT it USAGE on the schema and ALL on its tables, or connect as their owner";
                return Err(OpenError::new(&connector.shown, problem, way_out).caused_by(Cause::from(&error)));
            }
            _ => {
                let problem = "the version of its tables cannot be read";
                return Err(OpenError::new(&connector.shown, problem, "see the server's message")
                    .caused_by(Cause::from(&error)));
            }
        },
    };
    check_schema_version(found, &SUPPORTED, connector, settings)?;
    match is_promoting(client, &settings.schema).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            let problem = "a promotion from a SQLite file into it is not complete";
            let way_out = "run the same `steadfast promote` again, which goes on where it was";
            Err(OpenError::new(&connector.shown, problem, way_out))
        }
        Err(error) => {
            let problem = "its tables cannot be listed";
            Err(OpenError::new(&connector.shown, problem, "see the server's message").caused_by(Cause::from(&error)))
        }
    }
}

/// How far a promotion has come (`promotion.rs`). It is there only while one is under way, and nobody else uses the tables then.
pub(super) const PROGRESS: &str = "steadfast_promotion";

/// Whether a promotion into these tables is under way, or was given up.
pub(super) async fn is_promoting(client: &Client, schema: &str) -> Result<bool, tokio_postgres::Error> {
    has_table(client, schema, PROGRESS).await
}

pub(super) async fn has_table(client: &Client, schema: &str, name: &str) -> Result<bool, tokio_postgres::Error> {
    let sql = "SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = $1 AND c.relname = $2";
    Ok(client.query_opt(sql, &[&schema, &name]).await?.is_some())
}

fn check_schema_version(
    found: i32,
    supported: &SchemaVersions,
    connector: &Connector,
    settings: &PostgresSettings,
) -> Result<(), OpenError> {
    let SchemaVersions { min, max } = *supported;
    let schema = &settings.schema;
    let fail = |problem: String, way_out: &str| Err(OpenError::new(&connector.shown, problem, way_out));
    match found {
        0 => fail(format!("schema {schema:?} has no tables of this program"), "run `steadfast migrate`"),
        older if older < min => fail(
            format!("schema {schema:?} is at version {older}, this program needs {min} or newer"),
            "run `steadfast migrate`",
        ),
        newer if newer > max => Err(newer_than_known(newer, max, connector, settings)),
        _ => Ok(()),
    }
}

/// The tables were made by a later version of this program.
pub(super) fn newer_than_known(found: i32, max: i32, connector: &Connector, settings: &PostgresSettings) -> OpenError {
    let schema = &settings.schema;
    let problem = format!("schema {schema:?} is at version {found}, this program knows only up to {max}");
    let way_out = "use the program that is as new as the tables: run `steadfast migrate` only with that one";
    OpenError::new(&connector.shown, problem, way_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_before_13_is_refused_with_the_way_out() {
        assert!(check_version(130_000, "db").is_ok() && check_version(180_001, "db").is_ok());
        let error = check_version(120_022, "db").unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot open db: the server is PostgreSQL 12, too old for this program; use PostgreSQL 13 or newer"
        );
    }

    #[test]
    fn every_schema_version_from_the_oldest_to_the_newest_known_is_accepted_and_no_other() {
        let settings = PostgresSettings::new("postgres://me@db.example/jobs");
        let connector = Connector::new(&settings).unwrap();
        let check = |found| check_schema_version(found, &SchemaVersions { min: 3, max: 5 }, &connector, &settings);
        assert!((3..=5).all(|found| check(found).is_ok()));
        for (found, way_out) in [
            (0, "has no tables of this program; run `steadfast migrate`"),
            (2, "is at version 2, this program needs 3 or newer; run `steadfast migrate`"),
            (6, "is at version 6, this program knows only up to 5; use the program that is as new as the tables"),
        ] {
            let error = check(found).unwrap_err().to_string();
            assert!(error.contains(way_out), "{error}");
        }
    }
}
