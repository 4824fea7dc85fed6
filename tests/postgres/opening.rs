//! Opening what cannot be opened: each a clear error with the way out, and never the password.

use std::time::Duration;

use steadfast::store::OpenError;
use steadfast::store::postgres::{PostgresSettings, PostgresStore, migrate};

use crate::changed::changed;
use crate::support::postgres::{Cluster, PASSWORD};

async fn refused(settings: PostgresSettings) -> String {
    let error: OpenError = PostgresStore::open(settings).await.unwrap_err();
    let (shown, inside) = (error.to_string(), format!("{error:?}"));
    assert!(!shown.contains(PASSWORD) && !inside.contains(PASSWORD), "{inside}");
    shown
}

#[tokio::test]
async fn a_wrong_password_a_missing_database_and_a_bad_url_say_what_is_wrong() {
    let cluster = Cluster::shared().await;
    let url = cluster.url("postgres");
    let wrong = refused(PostgresSettings::new(url.replace(PASSWORD, "wrong-password"))).await;
    assert!(wrong.contains("the password is wrong") && wrong.contains("check the user and password"), "{wrong}");
    assert!(!wrong.contains("wrong-password"), "{wrong}");
    let none = refused(PostgresSettings::new(url.replace(&format!(":{PASSWORD}"), ""))).await;
    assert!(none.contains("asks for a password"), "{none}");
    let missing = refused(PostgresSettings::new(cluster.url("nowhere"))).await;
    assert!(missing.contains("no such database") && missing.contains("createdb"), "{missing}");
    let bad = refused(PostgresSettings::new(format!("postgres://me:{PASSWORD}@host:notaport/db"))).await;
    assert!(bad.contains("cannot be read") && bad.contains("postgres://user:password@host:5432/database"), "{bad}");
}

#[tokio::test]
async fn a_server_that_is_not_there_or_does_not_answer_says_so_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("postgres://me:{PASSWORD}@127.0.0.1:{port}/db");
    let silent = changed(PostgresSettings::new(&url), |settings| settings.connect_timeout = Duration::from_secs(1));
    let silent = refused(silent).await;
    assert!(silent.contains("does not answer") && silent.contains("firewall"), "{silent}");
    drop(listener);
    let nobody = refused(PostgresSettings::new(&url)).await;
    assert!(nobody.contains("cannot be reached") && nobody.contains("check the host and the port"), "{nobody}");
}

#[tokio::test]
async fn a_user_who_may_not_create_tables_is_told_what_to_grant() {
    let cluster = Cluster::shared().await;
    let database = cluster.empty_database().await;
    let admin = database.admin().await;
    let sql = format!("CREATE ROLE humble LOGIN PASSWORD '{PASSWORD}'; REVOKE CREATE ON SCHEMA public FROM PUBLIC;");
    admin.batch_execute(&sql).await.unwrap();
    let url = database.url.replace("//steadfast:", "//humble:");
    let error = migrate(&PostgresSettings::new(&url)).await.unwrap_err().to_string();
    assert!(error.contains("may not create tables") && error.contains("GRANT"), "{error}");
    migrate(&database.settings()).await.unwrap();
    let unreadable = refused(PostgresSettings::new(&url)).await;
    assert!(unreadable.contains("may not read the tables") && unreadable.contains("GRANT"), "{unreadable}");
    admin.batch_execute("DROP OWNED BY humble; DROP ROLE humble").await.unwrap();
}

#[tokio::test]
async fn a_schema_that_is_missing_older_or_newer_is_refused() {
    let cluster = Cluster::shared().await;
    let empty = cluster.empty_database().await;
    let error = refused(empty.settings()).await;
    assert!(error.contains("has no tables") && error.contains("run `steadfast migrate`"), "{error}");
    let database = cluster.database().await;
    let admin = database.admin().await;
    admin.batch_execute("INSERT INTO steadfast_migrations VALUES (99, now())").await.unwrap();
    let newer = refused(database.settings()).await;
    assert!(newer.contains("version 99") && newer.contains("as new as the tables"), "{newer}");
    let newer = migrate(&database.settings()).await.unwrap_err().to_string();
    assert!(newer.contains("version 99") && newer.contains("as new as the tables"), "an older migrate: {newer}");
    admin.batch_execute("DELETE FROM steadfast_migrations").await.unwrap();
    assert!(refused(database.settings()).await.contains("run `steadfast migrate`"));
}

#[tokio::test]
async fn a_server_that_can_lose_what_it_acknowledged_is_refused_unless_allowed() {
    let database = Cluster::shared().await.database().await;
    let admin = database.admin().await;
    admin.batch_execute(&format!("ALTER DATABASE {} SET synchronous_commit = off", database.name)).await.unwrap();
    let error = refused(database.settings()).await;
    assert!(error.contains("synchronous_commit = off") && error.contains("can lose jobs"), "{error}");
    let allowed = changed(database.settings(), |settings| settings.allow_unsafe_server_settings = true);
    PostgresStore::open(allowed).await.unwrap();

    let careless = Cluster::bare(&["fsync = off", "full_page_writes = off"]).await;
    let error = migrate(&PostgresSettings::new(careless.url("postgres"))).await.unwrap_err().to_string();
    assert!(error.contains("= off and can lose jobs"), "{error}");
}
