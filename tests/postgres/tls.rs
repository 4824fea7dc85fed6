//! Encrypted connections, checked as far as `sslmode` asks for.

use steadfast::store::Store;
use steadfast::store::postgres::{PostgresSettings, PostgresStore};

use crate::support::postgres::Cluster;

/// A certificate authority and a server certificate for `localhost`.
fn certificates() -> (String, String, String) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(vec![]).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let server = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = server.signed_by(&key, &issuer).unwrap();
    (authority_certificate.pem(), certificate.pem(), key.serialize_pem())
}

#[tokio::test]
async fn verify_full_checks_chain_and_name_and_every_weaker_mode_less() {
    let cluster = Cluster::start(&[]).await;
    let (authority, certificate, key) = certificates();
    cluster.use_certificate(&certificate, &key).await;
    let dir = tempfile::tempdir().unwrap();
    let (right, wrong) = (dir.path().join("right.pem"), dir.path().join("wrong.pem"));
    std::fs::write(&right, authority).unwrap();
    std::fs::write(&wrong, certificates().0).unwrap();
    let database = cluster.database().await;
    let by_name = database.url.replace("127.0.0.1", "localhost");
    let open = async |url: &str, query: &str| {
        let store = PostgresStore::open(PostgresSettings::new(format!("{url}?{query}"))).await?;
        store.ping().await.unwrap();
        Ok::<_, steadfast::store::OpenError>(())
    };
    let with = |mode: &str, root: &std::path::Path| format!("sslmode={mode}&sslrootcert={}", root.display());

    open(&by_name, &with("verify-full", &right)).await.unwrap();
    open(&database.url, &with("verify-ca", &right)).await.unwrap();
    open(&database.url, "sslmode=require").await.unwrap();
    open(&database.url, "sslmode=prefer").await.unwrap();
    for (url, query) in [
        (&database.url, with("verify-full", &right)),
        (&by_name, with("verify-full", &wrong)),
        (&by_name, with("verify-ca", &wrong)),
        (&by_name, with("require", &wrong)),
    ] {
        let error = open(url, &query).await.unwrap_err().to_string();
        assert!(error.contains("encrypted connection failed") && error.contains("sslrootcert"), "{query}: {error}");
    }
    let admin = database.admin().await;
    let encrypted = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
                     WHERE s.ssl AND a.application_name = 'steadfast'";
    let store = PostgresStore::open(PostgresSettings::new(format!("{}?sslmode=require", database.url))).await.unwrap();
    store.ping().await.unwrap();
    assert!(admin.query_one(encrypted, &[]).await.unwrap().get::<_, i64>(0) > 0);

    let missing = open(&by_name, &with("verify-full", &dir.path().join("none.pem"))).await.unwrap_err().to_string();
    assert!(missing.contains("sslrootcert") && missing.contains("none.pem"), "{missing}");
}
