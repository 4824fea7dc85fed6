//! Whoever stalls is given up, and the error says at which stage.

use super::*;

/// Reads the request, then sends the pieces with a pause after each.
async fn slow_server(pieces: &'static [&'static str], pause: Duration) -> Server {
    Server::playing(move |mut stream, _| async move {
        if request(&mut stream).await.is_none() {
            return;
        }
        for piece in pieces {
            if stream.write_all(piece.as_bytes()).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    })
    .await
}

#[tokio::test]
async fn s41_a_lookup_that_stalls_is_given_up_and_named() {
    let net = Net::new(Names::hanging(), Loopback::default());
    let outbound = net.with_timings(Timings { dns: SHORT, ..Timings::default() });
    let error = outbound.send(get("http://hooks.test/"), limits()).await.unwrap_err();
    assert_eq!(error.class(), Class::Timeout(Stage::Dns));
    assert_eq!(error.to_string(), "timeout: no answer to the name's lookup within 0.1 s");
}

#[tokio::test]
async fn s41_a_connection_that_stalls_is_given_up_and_named() {
    let silent = ["1.0.0.1", "1.0.0.2", "1.0.0.3"].map(ip);
    let dialler = silent.iter().fold(Loopback::default(), |dialler, ip| dialler.and(*ip, Leads::IntoTheVoid));
    let net = Net::new(Names::of("silent.test", &silent), dialler);
    let outbound = net.with_timings(Timings { connect_each: SHORT, ..Timings::default() });
    let error = outbound.send(get("http://silent.test/"), limits()).await.unwrap_err();
    assert_eq!(error.class(), Class::Timeout(Stage::Connect));
    assert_eq!(error.to_string(), "timeout: no connection within 0.1 s");
    assert_eq!(net.dialler.dialled().len(), 3, "each has had its time");

    let outbound = net.with_timings(Timings { connect_all: SHORT, ..Timings::default() });
    let error = outbound.send(get("http://silent.test/"), limits()).await.unwrap_err();
    assert_eq!(error.class(), Class::Timeout(Stage::Connect));
    assert_eq!(net.dialler.dialled().len(), 4, "the time of all is up with the first");
}

#[tokio::test]
async fn s41_a_handshake_that_stalls_is_given_up_and_named() {
    let server = Server::playing(|stream, _| async move {
        // Holds the connection and says nothing.
        let _held = stream;
        std::future::pending::<()>().await;
    })
    .await;
    let net = Net::hooks(&server);
    let outbound = net.with_timings(Timings { tls: SHORT, ..Timings::default() });
    let error = outbound.send(get("https://hooks.test/"), limits()).await.unwrap_err();
    assert_eq!(error.class(), Class::Timeout(Stage::Tls));
    assert_eq!(error.to_string(), "timeout: no end of the tls handshake within 0.1 s");
}

#[tokio::test]
async fn s41_an_answer_that_does_not_begin_is_given_up_and_named() {
    let server = slow_server(&[""], GENEROUS).await;
    let net = Net::hooks(&server);
    let error = net.guarded().send(get("http://hooks.test/"), limits().first_byte(SHORT)).await.unwrap_err();
    assert_eq!(error.class(), Class::Timeout(Stage::FirstByte));
    assert_eq!(error.to_string(), "timeout: no first byte within 0.1 s");
}

#[tokio::test]
async fn s41_headers_that_never_end_are_given_up() {
    let server = slow_server(&["HTTP/1.1 200 OK\r\n", "x: y\r\n", "x: y\r\n"], GENEROUS).await;
    let net = Net::hooks(&server);
    let error = net.guarded().send(get("http://hooks.test/"), limits().first_byte(SHORT)).await.unwrap_err();
    assert_eq!(error.class(), Class::Timeout(Stage::FirstByte));
}

#[tokio::test]
async fn s41_a_flood_of_100_continue_is_no_answer() {
    let server = Server::playing(|mut stream, _| async move {
        if request(&mut stream).await.is_some() {
            while stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
    let net = Net::hooks(&server);
    let error = net.guarded().send(get("http://hooks.test/"), limits().first_byte(SHORT)).await.unwrap_err();
    assert_eq!(error.class(), Class::Timeout(Stage::FirstByte));
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";

#[tokio::test]
async fn s41_a_body_that_stalls_is_given_up_and_named() {
    let server = slow_server(&[HEAD, "ab"], GENEROUS).await;
    let net = Net::hooks(&server);
    let outbound = net.with_timings(Timings { between_frames: SHORT, ..Timings::default() });
    let error = outbound.send(get("http://hooks.test/"), limits()).await.unwrap_err();
    assert_eq!(error.class(), Class::Timeout(Stage::Body));
    assert_eq!(error.to_string(), "timeout: no further byte of the body within 0.1 s");
}

#[tokio::test]
async fn s41_a_body_of_a_byte_now_and_then_ends_with_the_time_of_the_call() {
    let server = slow_server(&[HEAD, "a", "b", "c", "d", "e"], Duration::from_millis(150)).await;
    let net = Net::hooks(&server);
    let limits = Limits::new(Duration::from_millis(400));
    let error = net.guarded().send(get("http://hooks.test/"), limits).await.unwrap_err();
    assert_eq!(error.class(), Class::Timeout(Stage::Body));
    assert_eq!(error.to_string(), "timeout: no end of the body within 0.4 s in all");
}

#[tokio::test]
async fn an_excerpt_of_a_body_that_stalls_is_what_has_come() {
    let server = slow_server(&["HTTP/1.1 204 No Content\r\n\r\n"], GENEROUS).await;
    let answer = Net::hooks(&server).guarded().send(get("http://hooks.test/"), limits()).await.unwrap();
    assert_eq!((answer.body.as_slice(), answer.truncated), (&b""[..], false), "no body to wait for");

    // The status has said that the request was taken: a retry would deliver it twice.
    let server = slow_server(&["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab"], GENEROUS).await;
    let net = Net::hooks(&server);
    let outbound = net.with_timings(Timings { between_frames: SHORT, ..Timings::default() });
    let answer = outbound.send(get("http://hooks.test/"), limits().keep(Keep::Excerpt)).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.body.as_slice(), answer.truncated), (200, &b"ab"[..], true));
}

#[tokio::test]
async fn the_time_of_the_call_ends_every_stage_and_names_it() {
    let call = Limits::new(SHORT);
    let stage_of = async |net: &Net, url: &str| {
        let error = net.guarded().send(get(url), call).await.unwrap_err();
        assert!(error.to_string().ends_with("within 0.1 s in all"), "{error}");
        error.class()
    };
    let net = Net::new(Names::hanging(), Loopback::default());
    assert_eq!(stage_of(&net, "http://hooks.test/").await, Class::Timeout(Stage::Dns));
    let net = Net::new(Names::default(), Loopback::leading(PUBLIC, Leads::IntoTheVoid));
    assert_eq!(stage_of(&net, "http://93.184.215.14/").await, Class::Timeout(Stage::Connect));
    let silent = slow_server(&[], GENEROUS).await;
    let net = Net::hooks(&silent);
    assert_eq!(stage_of(&net, "https://hooks.test/").await, Class::Timeout(Stage::Tls));
    let silent = slow_server(&[""], GENEROUS).await;
    let net = Net::hooks(&silent);
    assert_eq!(stage_of(&net, "http://hooks.test/").await, Class::Timeout(Stage::FirstByte));
    assert_eq!(stage_of(&net, "http://hooks.test/").await, Class::Timeout(Stage::FirstByte));
}

#[tokio::test]
async fn a_call_that_is_given_up_closes_its_connection() {
    let (closed, mut is_closed) = tokio::sync::mpsc::channel(1);
    let server = Server::playing(move |mut stream, seen| {
        let closed = closed.clone();
        async move {
            let asked = request(&mut stream).await;
            seen.lock().unwrap().requests.extend(asked);
            let end = stream.read(&mut [0; 16]).await;
            let _ = closed.send(end.unwrap_or(0)).await;
        }
    })
    .await;
    let outbound = Net::hooks(&server).guarded();
    let call = tokio::spawn(async move { outbound.send(get("http://hooks.test/"), limits()).await });
    tokio::time::timeout(GENEROUS, async {
        while server.requests().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    call.abort();
    let read = tokio::time::timeout(GENEROUS, is_closed.recv()).await.unwrap();
    assert_eq!(read, Some(0), "the end of the stream");
}
