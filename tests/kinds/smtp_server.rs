//! Starts `smtp_server.py`, an SMTP server on the loopback that behaves as it is told, and reads what it tells.

use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::world::{eventually, python_tool};

/// The server, until it is dropped.
pub(crate) struct SmtpServer {
    pub(crate) port: u16,
    told: Arc<Mutex<Vec<Value>>>,
    input: tokio::sync::Mutex<ChildStdin>,
    _process: Child,
}

impl SmtpServer {
    /// With the settings that `smtp_server.py` explains.
    pub(crate) async fn start(settings: Value) -> Self {
        let python = tokio::task::spawn_blocking(|| python_tool("python")).await.unwrap();
        let mut process = Command::new(python)
            .args(["tests/kinds/smtp_server.py", &settings.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let telling = told.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let event = serde_json::from_str(&line).unwrap_or_else(|_| json!({ "event": "text", "text": line }));
                lock(&telling).push(event);
            }
        });
        let input = tokio::sync::Mutex::new(process.stdin.take().unwrap());
        let mut server = Self { port: 0, told, input, _process: process };
        let listening = eventually("the SMTP server", async || server.told_about("listening").pop()).await;
        server.port = listening["port"].as_u64().unwrap().try_into().unwrap();
        server
    }

    fn told_about(&self, name: &str) -> Vec<Value> {
        lock(&self.told).iter().filter(|event| event["event"] == name).cloned().collect()
    }

    /// What it has told about one thing until now, in order.
    pub(crate) async fn events(&self, name: &str) -> Vec<Value> {
        let nonce = uuid::Uuid::now_v7().to_string();
        let mut input = self.input.lock().await;
        input.write_all(format!("{nonce}\n").as_bytes()).await.unwrap();
        input.flush().await.unwrap();
        eventually("the SMTP server to read", async || {
            self.told_about("read").iter().any(|event| event["line"] == nonce.as_str()).then_some(())
        })
        .await;
        self.told_about(name)
    }

    /// The mails it stored.
    pub(crate) async fn mails(&self) -> Vec<Value> {
        self.events("mail").await
    }

    /// How often a command was given.
    pub(crate) async fn count(&self, stage: &str) -> usize {
        self.events("stage").await.iter().filter(|event| event["stage"] == stage).count()
    }

    /// Waits until a command was given.
    pub(crate) async fn was_told(&self, stage: &str) {
        eventually(stage, async || (self.count(stage).await > 0).then_some(())).await;
    }

    /// How many connections there were.
    pub(crate) async fn connections(&self) -> usize {
        self.events("connected").await.len()
    }

    pub(crate) fn plain_url(&self) -> String {
        format!("smtp://127.0.0.1:{}", self.port)
    }
}

fn lock(told: &Mutex<Vec<Value>>) -> MutexGuard<'_, Vec<Value>> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A certificate of 127.0.0.1, in files for the server, and the authority that signed it.
pub(crate) struct Certificates {
    pub(crate) authority_pem: String,
    directory: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let authority_key = rcgen::KeyPair::generate().unwrap();
        let mut authority = rcgen::CertificateParams::new(vec![]).unwrap();
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority_pem = authority.self_signed(&authority_key).unwrap().pem();
        let issuer = rcgen::Issuer::new(authority, authority_key);
        let key = rcgen::KeyPair::generate().unwrap();
        let server = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = server.signed_by(&key, &issuer).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("certificate.pem"), certificate.pem()).unwrap();
        std::fs::write(directory.path().join("key.pem"), key.serialize_pem()).unwrap();
        Self { authority_pem, directory }
    }

    /// The setting `tls` of the server.
    pub(crate) fn setting(&self, more: &Value) -> Value {
        let mut setting = more.clone();
        setting["certificate"] = json!(self.directory.path().join("certificate.pem"));
        setting["key"] = json!(self.directory.path().join("key.pem"));
        setting
    }
}
