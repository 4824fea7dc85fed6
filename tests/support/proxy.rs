//! A wire between a store and its server that can be cut, or go dead without a sound.

#![allow(dead_code, reason = "each test program uses a part of this")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

#[derive(Default)]
struct State {
    /// Listening connections up to this one carry nothing any more.
    silenced_up_to: AtomicU64,
    opened: AtomicU64,
    /// The next connection to carry these bytes towards the server loses its answer and is closed.
    trap: Mutex<Option<Vec<u8>>>,
    sprung: AtomicBool,
    /// The next connection to carry these bytes towards the server keeps them back.
    dam: Mutex<Option<Vec<u8>>>,
    dammed: AtomicBool,
    flood: Notify,
    /// With the lost answer everything is cut.
    goes_down: AtomicBool,
    /// Nothing is carried, and nobody let in.
    is_down: AtomicBool,
}

/// Forwards to a server.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

impl Proxy {
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if shared.is_down.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { continue };
                let wire = Arc::new(Wire {
                    number: shared.opened.fetch_add(1, Ordering::SeqCst) + 1,
                    listens: AtomicBool::new(false),
                    trapped: AtomicBool::new(false),
                    state: shared.clone(),
                });
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(wire.clone().carry(from_client, to_server, true));
                tokio::spawn(wire.carry(from_server, to_client, false));
            }
        });
        Self { port, state }
    }

    /// Connections that LISTEN go dead without a sound; new ones work.
    pub(crate) fn silence_listeners(&self) {
        self.state.silenced_up_to.store(self.state.opened.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// The next connection that sends `bytes` is closed when the server answers, and the answer is lost.
    pub(crate) fn lose_the_answer_to(&self, bytes: &str) {
        *self.state.trap.lock().unwrap() = Some(bytes.into());
    }

    /// The next connection that sends `bytes` stalls: they reach the server only with [`let_through`](Self::let_through),
    /// even if the client has gone by then.
    pub(crate) fn hold_back(&self, bytes: &str) {
        *self.state.dam.lock().unwrap() = Some(bytes.into());
    }

    /// Whether something is held back.
    pub(crate) fn is_holding_back(&self) -> bool {
        self.state.dammed.load(Ordering::SeqCst)
    }

    pub(crate) fn let_through(&self) {
        self.state.flood.notify_one();
    }

    /// Together with the lost answer every connection is cut, and new ones too, until [`come_back`](Self::come_back).
    pub(crate) fn go_down_with_the_lost_answer(&self) {
        self.state.goes_down.store(true, Ordering::SeqCst);
    }

    pub(crate) fn come_back(&self) {
        self.state.is_down.store(false, Ordering::SeqCst);
    }

    /// Whether an answer has been lost.
    pub(crate) fn has_lost_an_answer(&self) -> bool {
        self.state.sprung.load(Ordering::SeqCst)
    }
}

struct Wire {
    number: u64,
    listens: AtomicBool,
    trapped: AtomicBool,
    state: Arc<State>,
}

impl Wire {
    async fn carry(self: Arc<Self>, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, towards_server: bool) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            let bytes = &buffer[..n];
            if self.state.is_down.load(Ordering::SeqCst) {
                return;
            }
            if towards_server && contains(bytes, b"LISTEN ") {
                self.listens.store(true, Ordering::SeqCst);
            }
            if self.listens.load(Ordering::SeqCst) && self.number <= self.state.silenced_up_to.load(Ordering::SeqCst) {
                // Both ends stay open and hear nothing.
                std::future::pending::<()>().await;
            }
            let is_dammed = {
                let mut dam = self.state.dam.lock().unwrap();
                let is_dammed = towards_server && dam.as_ref().is_some_and(|wanted| contains(bytes, wanted));
                if is_dammed {
                    *dam = None;
                }
                is_dammed
            };
            if is_dammed {
                self.state.dammed.store(true, Ordering::SeqCst);
                self.state.flood.notified().await;
            }
            if towards_server {
                let mut trap = self.state.trap.lock().unwrap();
                if trap.as_ref().is_some_and(|wanted| contains(bytes, wanted)) {
                    *trap = None;
                    self.trapped.store(true, Ordering::SeqCst);
                }
            } else if self.trapped.load(Ordering::SeqCst) {
                self.state.is_down.store(self.state.goes_down.load(Ordering::SeqCst), Ordering::SeqCst);
                self.state.sprung.store(true, Ordering::SeqCst);
                return;
            }
            if to.write_all(bytes).await.is_err() {
                return;
            }
        }
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
