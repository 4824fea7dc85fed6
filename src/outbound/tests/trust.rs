//! TLS: whom we believe, for which name.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::*;

/// An authority of our own.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        Self::named("authority.test")
    }

    fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    fn roots(&self) -> Roots {
        Roots::of_pem(self.pem.as_bytes()).unwrap()
    }

    fn certificate(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Certificate { der: certificate.der().clone(), key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
    }
}

struct Certificate {
    der: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// Answers over TLS; what it saw of a connection is `name alpn`.
async fn encrypted(certificate: Certificate) -> Server {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der], certificate.key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Server::playing(move |stream, seen| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let session = stream.get_ref().1;
            let alpn = String::from_utf8_lossy(session.alpn_protocol().unwrap_or(b"none")).into_owned();
            let line = format!("{} {alpn}", session.server_name().unwrap_or("none"));
            let Some(request) = request(&mut stream).await else { return };
            seen.lock().unwrap().requests.extend([line, request]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            let _ = stream.shutdown().await;
        }
    })
    .await
}

async fn call(server: &Server, roots: Roots, url: &str) -> Result<Answer, OutboundError> {
    let net = Net::hooks(server);
    Outbound::guarded(Policy::default(), net.network(), roots).send(get(url), limits()).await
}

#[tokio::test]
async fn s36_the_name_of_the_url_is_asked_for_and_http_1_only() {
    let authority = Authority::new();
    let server = encrypted(authority.certificate("hooks.test", |_| {})).await;
    let answer = call(&server, authority.roots(), "https://HOOKS.test/").await.unwrap();
    assert_eq!(answer.body, b"ok");
    let seen = server.requests();
    assert_eq!(seen[0], "hooks.test http/1.1");
    assert!(seen[1].contains("\r\nhost: hooks.test\r\n"), "{}", seen[1]);
}

#[tokio::test]
async fn an_address_is_believed_by_a_certificate_for_it() {
    let authority = Authority::new();
    let server = encrypted(authority.certificate("93.184.215.14", |_| {})).await;
    call(&server, authority.roots(), "https://93.184.215.14/").await.unwrap();
    let error = call(&server, authority.roots(), "https://hooks.test/").await.unwrap_err();
    assert_eq!(error.to_string(), "tls: certificate is for another name");
}

#[tokio::test]
async fn a_certificate_that_cannot_be_believed_is_refused_with_the_reason() {
    let authority = Authority::new();
    let expired = authority.certificate("hooks.test", |params| {
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    });
    let early = authority.certificate("hooks.test", |params| params.not_before = rcgen::date_time_ymd(2090, 1, 1));
    let foreign = Authority::named("foreign.test").certificate("hooks.test", |_| {});
    let forged = Authority::new().certificate("hooks.test", |_| {});
    for (certificate, reason) in [
        (expired, "tls: certificate has expired"),
        (early, "tls: certificate is not valid yet"),
        (authority.certificate("other.test", |_| {}), "tls: certificate is for another name"),
        (foreign, "tls: certificate's issuer is not known here (outbound_ca_file can add one)"),
        (forged, "tls: certificate cannot be verified"),
    ] {
        let server = encrypted(certificate).await;
        let error = call(&server, authority.roots(), "https://hooks.test/").await.unwrap_err();
        assert_eq!((error.class(), error.to_string().as_str()), (Class::Tls, reason));
        assert!(!error.is_permanent(), "certificates are renewed");
        assert_eq!(server.requests(), [] as [&str; 0], "nothing was sent");
    }
    let server = encrypted(authority.certificate("hooks.test", |_| {})).await;
    let error = call(&server, Roots::none(), "https://hooks.test/").await.unwrap_err();
    assert_eq!(error.class(), Class::Tls, "who believes nobody is told nothing");
}

#[tokio::test]
async fn what_is_not_tls_is_said() {
    let authority = Authority::new();
    let plain = Server::playing(|mut stream, _| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read(&mut [0; 1024]).await;
    })
    .await;
    let error = call(&plain, authority.roots(), "https://hooks.test/").await.unwrap_err();
    assert_eq!((error.class(), error.to_string().as_str()), (Class::Tls, "tls: what came back is not TLS"));

    let closing = Server::playing(|mut stream, _| async move {
        let _ = stream.read(&mut [0; 1024]).await;
    })
    .await;
    let error = call(&closing, authority.roots(), "https://hooks.test/").await.unwrap_err();
    assert_eq!(
        (error.class(), error.to_string().as_str()),
        (Class::Tls, "tls: the server hung up during the handshake")
    );

    // A fatal alert: handshake_failure.
    let strict = Server::playing(|mut stream, _| async move {
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(&[0x15, 3, 3, 0, 2, 2, 40]).await;
    })
    .await;
    let error = call(&strict, authority.roots(), "https://hooks.test/").await.unwrap_err();
    assert_eq!(error.to_string(), "tls: nothing in common (we speak TLS 1.2 and 1.3 with AEAD ciphers)");
}

#[test]
fn roots_without_a_certificate_are_refused() {
    assert!(matches!(Roots::of_pem(b""), Err(NoRoots::Empty)));
    assert!(matches!(Roots::of_pem(b"not a certificate"), Err(NoRoots::Empty)));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(Roots::of_pem(broken.as_bytes()), Err(NoRoots::Empty)));
    let missing = std::path::Path::new("no-such-file.pem");
    assert!(matches!(Roots::native(Some(missing)), Err(NoRoots::Unreadable(_))));
    let text = NoRoots::System.to_string();
    assert!(text.contains("ca-certificates") && text.contains("SSL_CERT_FILE"), "{text}");
}

#[tokio::test]
async fn a_ca_file_of_the_operator_is_believed_beside_the_system() {
    let authority = Authority::new();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &authority.pem).unwrap();
    let server = encrypted(authority.certificate("hooks.test", |_| {})).await;
    call(&server, Roots::native(Some(file.path())).unwrap(), "https://hooks.test/").await.unwrap();
}
