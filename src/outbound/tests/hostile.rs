//! Servers that answer too much, or something else, or with the way to somewhere else.

use http::StatusCode;

use super::*;

#[tokio::test]
async fn s18_a_redirect_is_an_answer_and_is_not_followed() {
    let internal = Server::ok().await;
    let place = format!("http://127.0.0.1:{}/", internal.address.port());
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let server =
            Server::answering(format!("HTTP/1.1 {status}\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n")).await;
        let net = Net::hooks(&server);
        for outbound in [net.guarded(), net.trusted()] {
            let answer = outbound.send(get("http://hooks.test/"), limits()).await.unwrap();
            assert!(status.starts_with(answer.status.as_str()));
            assert_eq!(answer.headers["location"], place.as_str());
        }
        assert_eq!(net.dialler.dialled().len(), 2, "one connection per client");
    }
    assert_eq!(internal.connections(), 0);
}

/// Sends `piece` for as long as anybody reads.
async fn endless(head: &'static str, piece: &'static [u8]) -> Server {
    Server::playing(move |mut stream, _| async move {
        if request(&mut stream).await.is_some() && stream.write_all(head.as_bytes()).await.is_ok() {
            while stream.write_all(piece).await.is_ok() {}
        }
    })
    .await
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn s20_a_body_without_end_is_read_up_to_the_cap() {
    for (head, piece) in [
        (CHUNKED, &b"10\r\n0123456789abcdef\r\n"[..]),
        ("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", &b"0123456789abcdef"[..]),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n", &b"0123456789abcdef"[..]),
    ] {
        let server = endless(head, piece).await;
        let outbound = Net::hooks(&server).guarded();
        let error = outbound.send(get("http://hooks.test/"), limits().body_max(1_000)).await.unwrap_err();
        assert_eq!((error.class(), error.is_permanent()), (Class::TooLarge, true), "{head}");
        assert_eq!(error.to_string(), "too large: the answer is longer than 1000 bytes");

        let excerpt = limits().body_max(1_000).keep(Keep::Excerpt);
        let answer = outbound.send(get("http://hooks.test/"), excerpt).await.unwrap();
        assert_eq!((answer.body.len(), answer.truncated), (1_000, true), "{head}");
        assert!(answer.body.starts_with(b"0123456789abcdef01"));
    }
}

#[tokio::test]
async fn a_body_of_exactly_the_cap_is_whole() {
    let server = Server::answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabcde").await;
    let outbound = Net::hooks(&server).guarded();
    for keep in [Keep::Whole, Keep::Excerpt] {
        let answer = outbound.send(get("http://hooks.test/"), limits().body_max(5).keep(keep)).await.unwrap();
        assert_eq!((answer.body.as_slice(), answer.truncated), (&b"abcde"[..], false));
    }
    let answer = outbound.send(get("http://hooks.test/"), limits().body_max(0).keep(Keep::Excerpt)).await.unwrap();
    assert_eq!((answer.body.len(), answer.truncated), (0, true), "nothing is kept of it if nothing is wanted");
}

#[tokio::test]
async fn a_body_of_one_byte_more_is_not() {
    // Without a length, so that only reading it tells.
    let server = Server::answering(format!("{CHUNKED}6\r\nabcdef\r\n0\r\n\r\n")).await;
    let outbound = Net::hooks(&server).guarded();
    let error = outbound.send(get("http://hooks.test/"), limits().body_max(5)).await.unwrap_err();
    assert_eq!(error.class(), Class::TooLarge);
    let answer = outbound.send(get("http://hooks.test/"), limits().body_max(5).keep(Keep::Excerpt)).await.unwrap();
    assert_eq!((answer.body.as_slice(), answer.truncated), (&b"abcde"[..], true));
}

#[tokio::test]
async fn s40_a_compressed_answer_stays_unread() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 812\r\n\r\n\x1f";
    let server = Server::answering(answer).await;
    let outbound = Net::hooks(&server).guarded();
    let error = outbound.send(get("http://hooks.test/"), limits()).await.unwrap_err();
    assert_eq!(error.class(), Class::Protocol);
    assert_eq!(error.to_string(), "protocol: the answer is encoded (gzip) although identity was asked for");
    let excerpt = limits().keep(Keep::Excerpt);
    let answer = outbound.send(get("http://hooks.test/"), excerpt).await.unwrap();
    assert_eq!((String::from_utf8(answer.body).unwrap().as_str(), answer.truncated), ("(gzip, 812 bytes)", true));

    let head = "HTTP/1.1 500 No\r\ncontent-encoding: br, x<y>\"\r\ncontent-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n";
    let server = Server::answering(head).await;
    let answer = Net::hooks(&server).guarded().send(get("http://hooks.test/"), excerpt).await.unwrap();
    assert_eq!(answer.body, b"(br,xy,gzip)", "without a length, and without what is not a name");

    let server =
        Server::answering("HTTP/1.1 200 OK\r\ncontent-encoding: Identity\r\ncontent-length: 2\r\n\r\nok").await;
    let answer = Net::hooks(&server).guarded().send(get("http://hooks.test/"), limits()).await.unwrap();
    assert_eq!(answer.body, b"ok");
    let server = Server::answering("HTTP/1.1 204 No Content\r\ncontent-encoding: gzip\r\n\r\n").await;
    let answer = Net::hooks(&server).guarded().send(get("http://hooks.test/"), limits()).await.unwrap();
    assert_eq!(answer.status, StatusCode::NO_CONTENT, "nothing is encoded if there is nothing");
}

#[tokio::test]
async fn s20_headers_without_end_and_ten_thousand_of_them_are_refused() {
    const TOO_MANY: &str = "protocol: the answer's headers are more than 100 or longer than 64 KiB";
    let one_long = endless("HTTP/1.1 200 OK\r\nx: ", b"aaaaaaaaaaaaaaaa").await;
    let many_long = endless("HTTP/1.1 200 OK\r\n", b"x-header: aaaaaaaaaaaaaaaa\r\n").await;
    let many = Server::answering(format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(10_000))).await;
    let one_more = Server::answering(format!("HTTP/1.1 200 OK\r\n{}\r\n", "x: y\r\n".repeat(101))).await;
    for server in [one_long, many_long, many, one_more] {
        let error = Net::hooks(&server).guarded().send(get("http://hooks.test/"), limits()).await.unwrap_err();
        assert_eq!((error.class(), error.to_string().as_str()), (Class::Protocol, TOO_MANY));
    }
    let hundred = "x: y\r\n".repeat(99);
    let server = Server::answering(format!("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n{hundred}\r\n")).await;
    let answer = Net::hooks(&server).guarded().send(get("http://hooks.test/"), limits()).await.unwrap();
    assert_eq!(answer.headers.len(), 100);
}

#[tokio::test]
async fn s42_what_is_not_http_is_named_and_not_quoted() {
    for (answer, text) in [
        ("SSH-2.0-OpenSSH_9.9\r\n", "protocol: what came back is not HTTP/1.1"),
        ("HTTP/1.1 200 OK\r\nbad header\r\n\r\n", "protocol: what came back is not HTTP/1.1"),
        ("HTTP/1.1 OK\r\n\r\n", "protocol: what came back is not HTTP/1.1"),
        ("HTTP/2.0 200 OK\r\n\r\n", "protocol: what came back is not HTTP/1.1"),
        (
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
            "protocol: the server switched to another protocol unasked",
        ),
    ] {
        let server = Server::answering(answer).await;
        let error = Net::hooks(&server).guarded().send(get("http://hooks.test/"), limits()).await.unwrap_err();
        assert_eq!((error.class(), error.to_string().as_str()), (Class::Protocol, text), "{answer:?}");
        assert!(!error.is_permanent());
    }
}

#[tokio::test]
async fn s42_a_server_that_hangs_up_is_named() {
    let before = Server::playing(|mut stream, _| async move {
        let _ = request(&mut stream).await;
    })
    .await;
    let error = Net::hooks(&before).guarded().send(get("http://hooks.test/"), limits()).await.unwrap_err();
    assert_eq!(error.to_string(), "protocol: the server hung up before an answer");

    let within = Server::playing(|mut stream, _| async move {
        let _ = request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab").await;
    })
    .await;
    let outbound = Net::hooks(&within).guarded();
    let error = outbound.send(get("http://hooks.test/"), limits()).await.unwrap_err();
    assert_eq!(error.to_string(), "protocol: the answer broke off in its body");
    let answer = outbound.send(get("http://hooks.test/"), limits().keep(Keep::Excerpt)).await.unwrap();
    assert_eq!((answer.body.as_slice(), answer.truncated), (&b"ab"[..], true));
}

#[tokio::test]
async fn a_method_that_opens_tunnels_is_not_sent() {
    let net = Net::new(Names::default(), Loopback::default());
    let tunnel = Request::new(Method::CONNECT, Target::parse("http://hooks.test/").unwrap());
    let error = net.trusted().send(tunnel, limits()).await.unwrap_err();
    assert_eq!(error.class(), Class::NotATarget);
    assert_eq!(net.dialler.dialled(), []);
}
