//! Redirects of a source: each is a URL of a caller like the first.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use steadfast::Status;
use steadfast::kinds::ResizeImage;
use steadfast::outbound::{Dial, Network, Outbound, Policy, Resolve, Roots};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::{Images, photograph};
use crate::receiver::{Receiver, Reply};
use crate::world::guarded;

/// A public address, for names below `.test`; `inside.test` is inside. Every connection ends at one place on the loopback,
/// and the addresses that were to be dialled are kept.
struct OneServer {
    server: SocketAddr,
    dialled: Mutex<Vec<SocketAddr>>,
}

const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 215, 14);
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);

#[async_trait]
impl Resolve for OneServer {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        assert!(host.ends_with(".test"), "{host}");
        Ok(vec![SocketAddr::from((if host == "inside.test" { INSIDE } else { PUBLIC }, port))])
    }
}

#[async_trait]
impl Dial for OneServer {
    async fn dial(&self, address: SocketAddr) -> io::Result<TcpStream> {
        self.dialled.lock().unwrap().push(address);
        TcpStream::connect(self.server).await
    }
}

impl OneServer {
    fn new(server: SocketAddr) -> Arc<Self> {
        Arc::new(Self { server, dialled: Mutex::default() })
    }

    /// A client whose policy allows nothing beyond the public internet.
    fn guarded(self: &Arc<Self>, roots: Roots) -> Outbound {
        Outbound::guarded(Policy::default(), Network::new(self.clone(), self.clone()), roots)
    }

    fn dialled(&self) -> Vec<SocketAddr> {
        self.dialled.lock().unwrap().clone()
    }
}

fn to(place: impl Into<String>) -> Reply {
    Reply::status(302).header("location", place)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s18_a_redirect_to_an_address_inside_is_judged_and_refused() {
    let receiver = Receiver::start(|seen| match seen.path.as_str() {
        "/loopback" => to("http://127.0.0.1/admin"),
        "/short" => to("http://127.1/admin"),
        "/mapped" => to("http://[::ffff:127.0.0.1]/admin"),
        "/metadata" => to("http://169.254.169.254/latest/meta-data/"),
        "/name" => to("http://inside.test/admin"),
        "/user" => to("http://a@public.test/"),
        "/port" => to("http://public.test:22/"),
        "/file" => to("file:///etc/passwd"),
        _ => panic!("{} was called", seen.path),
    })
    .await;
    let network = OneServer::new(receiver.address);
    let images = Images::with(network.guarded(Roots::none())).await;
    let cases = ["/loopback", "/short", "/mapped", "/metadata", "/name", "/user", "/port", "/file"];
    for path in cases {
        let error = images.refuses(ResizeImage::new(format!("http://public.test{path}"), 10, 10)).await;
        assert!(error.contains("redirect 1"), "{path}: {error}");
        assert!(!error.contains("10.1.2.3") && !error.contains("127.0.0.1"), "{path}: {error}");
    }
    let dialled = network.dialled();
    assert!(dialled.iter().all(|address| address.ip() == PUBLIC && address.port() == 80), "{dialled:?}");
    assert_eq!(receiver.seen().len(), cases.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s18_three_redirects_are_followed_and_a_fourth_is_not() {
    let source = photograph();
    let receiver = Receiver::start(move |seen| match seen.path.as_str() {
        "/a/1" => Reply::status(301).header("location", "../b/2?x=1"),
        "/b/2?x=1" => Reply::status(307).header("location", "3"),
        "/b/3" => Reply::status(308).header("location", "/image"),
        "/image" => Reply::status(200).body(source.clone()),
        "/4" => to("/a/1"),
        "/round" => to("/round"),
        "/nowhere" => Reply::status(302),
        _ => Reply::status(404),
    })
    .await;
    let images = Images::with(guarded()).await;
    let ended = images.run(ResizeImage::new(receiver.url("/a/1"), 10, 10)).await;
    assert_eq!((ended.status, receiver.seen().len()), (Status::Succeeded, 4), "{:?}", ended.last_error);

    let images = Images::with(guarded()).await;
    let error = images.refuses(ResizeImage::new(receiver.url("/4"), 10, 10)).await;
    assert!(error.contains("more than 3"), "{error}");
    assert_eq!(receiver.seen().last().unwrap().path, "/b/3", "the fourth was not asked");
    let error = images.refuses(ResizeImage::new(receiver.url("/round"), 10, 10)).await;
    assert!(error.contains("more than 3"), "{error}");
    let error = images.refuses(ResizeImage::new(receiver.url("/nowhere"), 10, 10)).await;
    assert!(error.contains("without a place"), "{error}");
}

/// Answers every request over TLS with this redirect.
async fn over_tls(location: &'static str) -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(vec!["public.test".into()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let settings = ServerConfig::builder().with_no_client_auth();
    let settings = settings.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(settings));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let answer = format!(
                    "HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
    });
    (address, made.cert.pem())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s18_a_redirect_from_https_to_http_is_not_followed() {
    let (server, certificate) = over_tls("http://public.test/image").await;
    let network = OneServer::new(server);
    let images = Images::with(network.guarded(Roots::of_pem(certificate.as_bytes()).unwrap())).await;
    let error = images.refuses(ResizeImage::new("https://public.test/image", 10, 10)).await;
    assert!(error.contains("from https to http"), "{error}");
    assert_eq!(network.dialled(), [SocketAddr::from((PUBLIC, 443))]);
}
