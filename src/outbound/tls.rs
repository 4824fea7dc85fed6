//! Whom we believe, and what a failed handshake means.
//!
//! TLS 1.2 and 1.3, by rustls with ring. There is no switch that turns verification off: a CA file is the way.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use super::error::{Class, OutboundError};

/// Why there is nobody to believe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoRoots {
    /// The system has no certificates.
    #[error("no CA certificates are found on this system: install ca-certificates or set SSL_CERT_FILE")]
    System,
    /// The file of the operator cannot be read.
    #[error("the CA file cannot be read: {0}")]
    Unreadable(#[source] io::Error),
    /// The file of the operator holds none.
    #[error("there is no CA certificate in PEM form in it")]
    Empty,
}

/// The authorities whose certificates are believed.
#[derive(Clone)]
pub struct Roots {
    config: Arc<ClientConfig>,
}

impl Roots {
    /// Those of the system (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured), and those in a PEM file of the operator.
    pub fn native(extra_ca_file: Option<&Path>) -> Result<Self, NoRoots> {
        let mut store = RootCertStore::empty();
        // A certificate that cannot be used is passed over, as everywhere; none at all is an error.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(file) = extra_ca_file {
            let pem = std::fs::read(file).map_err(NoRoots::Unreadable)?;
            add_pem(&mut store, &pem)?;
        }
        if store.is_empty() { Err(NoRoots::System) } else { Ok(Self::of(store)) }
    }

    /// Those in a text in PEM form, and no others.
    pub fn of_pem(pem: &[u8]) -> Result<Self, NoRoots> {
        let mut store = RootCertStore::empty();
        add_pem(&mut store, pem)?;
        Ok(Self::of(store))
    }

    /// Nobody: every handshake fails.
    pub fn none() -> Self {
        Self::of(RootCertStore::empty())
    }

    fn of(store: RootCertStore) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("ring has cipher suites for TLS 1.2 and 1.3")
            .with_root_certificates(store)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { config: Arc::new(config) }
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Roots")
    }
}

fn add_pem(store: &mut RootCertStore, pem: &[u8]) -> Result<(), NoRoots> {
    let certificates =
        CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(|_| NoRoots::Empty)?;
    let (added, _) = store.add_parsable_certificates(certificates);
    if added == 0 { Err(NoRoots::Empty) } else { Ok(()) }
}

/// What a failed handshake means to whoever owns the receiver. Nothing that the other side has written is quoted.
pub(super) fn handshake_error(error: &io::Error) -> OutboundError {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let text = match cause {
        Some(rustls::Error::InvalidCertificate(certificate)) => certificate_text(certificate),
        Some(
            rustls::Error::PeerIncompatible(_)
            | rustls::Error::AlertReceived(
                AlertDescription::HandshakeFailure
                | AlertDescription::ProtocolVersion
                | AlertDescription::InsufficientSecurity,
            ),
        ) => "nothing in common (we speak TLS 1.2 and 1.3 with AEAD ciphers)",
        Some(rustls::Error::AlertReceived(AlertDescription::UnrecognisedName)) => "the server does not know this name",
        Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            "the server wants a certificate of ours"
        }
        Some(
            rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)
            | rustls::Error::NoApplicationProtocol,
        ) => "the server does not speak HTTP/1.1",
        Some(rustls::Error::InvalidMessage(_)) => "what came back is not TLS",
        None if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            "the server hung up during the handshake"
        }
        _ => "the handshake failed",
    };
    OutboundError::new(Class::Tls, format!("tls: {text}"))
}

fn certificate_text(certificate: &CertificateError) -> &'static str {
    match certificate {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "certificate has expired",
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => "certificate is not valid yet",
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "certificate is for another name"
        }
        CertificateError::UnknownIssuer => "certificate's issuer is not known here (outbound_ca_file can add one)",
        CertificateError::Revoked => "certificate was revoked",
        _ => "certificate cannot be verified",
    }
}
