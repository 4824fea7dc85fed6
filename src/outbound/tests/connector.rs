//! One lookup, every address judged, only a judged one dialled.

use http::StatusCode;

use super::*;

#[tokio::test]
async fn s17_a_name_that_leads_to_an_internal_address_is_refused_and_never_dialled() {
    let internal = Server::ok().await;
    for address in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "fd00::1", "64:ff9b::7f00:1"]
    {
        let net = Net::new(
            Names::of("inside.test", &[ip(address)]),
            Loopback::leading(ip(address), Leads::To(internal.address)),
        );
        let error = net.guarded().send(get("http://inside.test/"), limits()).await.unwrap_err();
        assert_eq!(error.class(), Class::Refused, "{address}");
        assert!(error.is_permanent());
        assert_eq!(
            error.to_string(),
            "refused: inside.test leads to no public address; an operator can allow it with outbound_allow"
        );
        assert_eq!(net.dialler.dialled(), [], "{address}");
    }
    assert_eq!(internal.connections(), 0);
}

#[tokio::test]
async fn s18_a_name_that_leads_elsewhere_a_moment_later_is_looked_up_once_and_dialled_once() {
    let (public, internal) = (Server::ok().await, Server::ok().await);
    let net = Net::new(
        Names::default().and("rebinding.test", &[&[PUBLIC], &[LOCAL]]),
        Loopback::leading(PUBLIC, Leads::To(public.address)).and(LOCAL, Leads::To(internal.address)),
    );
    let outbound = net.guarded();
    let answer = outbound.send(get("http://rebinding.test/"), limits()).await.unwrap();
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(net.names.lookups(), [("rebinding.test".to_owned(), 80)]);
    assert_eq!(net.dialler.dialled(), [SocketAddr::new(PUBLIC, 80)]);

    // The connection is used again, or the new lookup is judged: the second answer is never called.
    let again = Net { names: net.names.clone(), dialler: net.dialler.clone() };
    let error = again.guarded().send(get("http://rebinding.test/"), limits()).await.unwrap_err();
    assert_eq!(error.class(), Class::Refused);
    assert_eq!((public.connections(), internal.connections()), (1, 0));
}

#[tokio::test]
async fn s35_of_a_name_with_good_and_bad_addresses_only_the_good_are_dialled() {
    let server = Server::ok().await;
    let bad = ["127.0.0.1", "::1", "10.0.0.1", "::ffff:93.184.215.14"].map(ip);
    let net = Net::new(
        Names::of("mixed.test", &[bad[0], bad[1], PUBLIC, bad[2], bad[3]]),
        Loopback::leading(PUBLIC, Leads::To(server.address)),
    );
    net.guarded().send(get("http://mixed.test/"), limits()).await.unwrap();
    assert_eq!(net.dialler.dialled(), [SocketAddr::new(PUBLIC, 80)]);
}

#[tokio::test]
async fn at_most_four_addresses_are_tried_and_the_families_take_turns() {
    let v6 = ["2606:4700::1", "2606:4700::2", "2606:4700::3", "2606:4700::4"].map(ip);
    let v4 = ["1.0.0.1", "1.0.0.2", "1.0.0.3"].map(ip);
    let all: Vec<_> = v6.into_iter().chain(v4).collect();
    let net = Net::new(Names::of("many.test", &all), Loopback::default());
    let error = net.guarded().send(get("http://many.test/"), limits()).await.unwrap_err();
    assert_eq!((error.class(), error.to_string().as_str()), (Class::Connect, "connect: refused by all 4 addresses"));
    let dialled: Vec<_> = net.dialler.dialled().iter().map(SocketAddr::ip).collect();
    assert_eq!(dialled, [v6[0], v4[0], v6[1], v4[1]]);
}

#[tokio::test]
async fn an_address_that_does_not_answer_is_passed_over() {
    let server = Server::ok().await;
    let (refusing, silent) = (ip("1.0.0.1"), ip("1.0.0.2"));
    let dialler = Loopback::leading(refusing, Leads::Nowhere)
        .and(silent, Leads::IntoTheVoid)
        .and(PUBLIC, Leads::To(server.address));
    let net = Net::new(Names::of("partly.test", &[refusing, silent, PUBLIC]), dialler);
    let outbound = net.with_timings(Timings { connect_each: SHORT, ..Timings::default() });
    outbound.send(get("http://partly.test/"), limits()).await.unwrap();
    assert_eq!(net.dialler.dialled().len(), 3);
}

#[tokio::test]
async fn s36_a_literal_ipv6_address_is_called_as_it_is_written() {
    let server = Server::ok().await;
    let address = ip("2606:4700::1111");
    let net = Net::new(Names::default(), Loopback::leading(address, Leads::To(server.address)));
    net.guarded().send(get("http://[2606:4700:0::1111]:8080/x"), limits()).await.unwrap();
    assert_eq!(net.dialler.dialled(), [SocketAddr::new(address, 8080)]);
    assert_eq!(net.names.lookups(), []);
    assert!(server.requests()[0].contains("\r\nhost: [2606:4700::1111]:8080\r\n"), "{:?}", server.requests());
}

#[tokio::test]
async fn s36_the_name_stays_in_the_header_and_the_judged_address_is_dialled() {
    let server = Server::ok().await;
    let net = Net::hooks(&server);
    let mut request = get("http://HOOKS.test:8080/a%0d%0ab?x=%0a");
    request.headers.insert("host", "127.0.0.1".parse().unwrap());
    request.headers.insert("content-length", "7".parse().unwrap());
    request.headers.insert("transfer-encoding", "chunked".parse().unwrap());
    request.headers.insert("connection", "upgrade".parse().unwrap());
    request.headers.insert("accept-encoding", "gzip".parse().unwrap());
    request.headers.insert("x-shop", "7".parse().unwrap());
    net.guarded().send(request, limits()).await.unwrap();
    assert_eq!(net.dialler.dialled(), [SocketAddr::new(PUBLIC, 8080)]);
    let mut lines: Vec<_> = server.requests()[0].trim_end().lines().map(str::to_owned).collect();
    lines[1..].sort();
    let user_agent =
        concat!("user-agent: Steadfast/", env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
    assert_eq!(
        lines,
        ["GET /a%0d%0ab?x=%0a HTTP/1.1", "accept-encoding: identity", "host: hooks.test:8080", user_agent, "x-shop: 7"]
    );
}

#[tokio::test]
async fn the_body_arrives_as_it_was_given_and_an_empty_post_says_so() {
    let server = Server::ok().await;
    let net = Net::hooks(&server);
    let target = Target::parse("http://hooks.test/").unwrap();
    let outbound = net.guarded();
    let post = Request::new(Method::POST, target).kind("webhook_delivery");
    outbound.send(post.clone().body("{\"b\":1, \"a\":1e2}"), limits()).await.unwrap();
    outbound.send(post, limits()).await.unwrap();
    let requests = server.requests();
    assert!(requests[0].contains("content-length: 16\r\n") && requests[0].ends_with("\r\n\r\n{\"b\":1, \"a\":1e2}"));
    assert!(requests[1].contains("content-length: 0\r\n"), "{}", requests[1]);
}

#[tokio::test]
async fn s37_a_closed_port_is_not_even_looked_up() {
    let net = Net::new(Names::of("hooks.test", &[PUBLIC]), Loopback::default());
    let error = net.guarded().send(get("http://hooks.test:25/"), limits()).await.unwrap_err();
    assert_eq!(error.class(), Class::Refused);
    assert!(error.to_string().contains("port 25"), "{error}");
    assert_eq!((net.names.lookups(), net.dialler.dialled()), (vec![], vec![]));
}

#[tokio::test]
async fn s37_our_own_listener_is_not_called_by_any_address_of_this_machine() {
    let own = Server::ok().await;
    let port = own.address.port();
    // As if this machine had the public address: what is dialled leads to ourselves, by an address no table knows.
    let net = Net::hooks(&own);
    let everywhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    let policy = Policy::default().allow("loopback").unwrap().never([everywhere]);
    let outbound = net.with_policy(policy);
    for url in
        [format!("http://hooks.test:{port}/"), format!("http://127.0.0.1:{port}/"), format!("http://[::1]:{port}/")]
    {
        let error = outbound.send(get(&url), limits()).await.unwrap_err();
        assert_eq!(error.class(), Class::Refused, "{url}: {error}");
    }
    assert_eq!(own.requests(), [] as [&str; 0]);
    // Another port of this machine is not ours.
    let other = Server::ok().await;
    outbound.send(get(&format!("http://127.0.0.1:{}/", other.address.port())), limits()).await.unwrap();
}

#[tokio::test]
async fn s19_an_allowed_internal_address_is_called() {
    let server = Server::ok().await;
    let net = Net::new(Names::of("inside.test", &[LOCAL]), Loopback::default());
    let url = format!("http://inside.test:{}/", server.address.port());
    let allowed = Policy::default().allow("loopback").unwrap();
    net.with_policy(allowed).send(get(&url), limits()).await.unwrap();
    let one_port = Policy::default().allow("127.0.0.1:1").unwrap();
    let error = net.with_policy(one_port).send(get(&url), limits()).await.unwrap_err();
    assert_eq!(error.class(), Class::Refused, "the entry is for another port");
}

#[tokio::test]
async fn the_operators_own_urls_may_lead_inside_and_are_looked_up_once_too() {
    let server = Server::ok().await;
    let net = Net::new(Names::of("inside.test", &[LOCAL]), Loopback::default());
    let trusted = net.trusted();
    assert!(trusted.policy().is_none() && net.guarded().policy().is_some());
    trusted.send(get(&format!("http://inside.test:{}/", server.address.port())), limits()).await.unwrap();
    assert_eq!((net.names.lookups().len(), net.dialler.dialled().len()), (1, 1));
}

#[tokio::test]
async fn a_connection_is_used_again_and_an_old_client_is_replaced() {
    let server = Server::ok().await;
    let net = Net::hooks(&server);
    let outbound = net.guarded();
    for _ in 0..3 {
        outbound.send(get("http://hooks.test/"), limits()).await.unwrap();
    }
    assert_eq!((server.connections(), net.names.lookups().len()), (1, 1));

    let restless = net.with_timings(Timings { client_age: Duration::ZERO, ..Timings::default() });
    for _ in 0..3 {
        restless.send(get("http://hooks.test/"), limits()).await.unwrap();
    }
    assert_eq!((server.connections(), net.names.lookups().len()), (4, 4), "each looks where the name leads now");
}

#[tokio::test]
async fn s42_a_name_nobody_knows_and_one_without_an_address_are_dns_errors() {
    let net = Net::new(Names::of("empty.test", &[]), Loopback::default());
    let outbound = net.guarded();
    let unknown = outbound.send(get("http://unknown.test/"), limits()).await.unwrap_err();
    assert_eq!((unknown.class(), unknown.is_permanent()), (Class::Dns, false));
    assert_eq!(unknown.to_string(), "dns: no such name, or no name server answers");
    let empty = outbound.send(get("http://empty.test/"), limits()).await.unwrap_err();
    assert_eq!((empty.class(), empty.to_string().as_str()), (Class::Dns, "dns: the name has no address"));
}

/// The counters of one call each, on this thread only.
#[cfg(feature = "api")]
#[test]
fn calls_are_counted_by_kind_and_outcome_and_begin_at_zero() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    ::metrics::with_local_recorder(&recorder, || {
        expect_kind("webhook_delivery");
        let fresh = handle.render();
        for outcome in ["ok", "refused", "timeout", "http_3xx"] {
            let line = format!("outbound_requests_total{{kind=\"webhook_delivery\",outcome=\"{outcome}\"}} 0\n");
            assert!(fresh.contains(&line), "{line}{fresh}");
        }
        assert!(fresh.contains("outbound_hosts_tripped 0\n") && fresh.contains("outbound_addresses_refused_total 0\n"));
        runtime.block_on(async {
            let server = Server::ok().await;
            let net = Net::hooks(&server);
            let outbound = net.guarded();
            outbound.send(get("http://hooks.test/").kind("webhook_delivery"), limits()).await.unwrap();
            outbound.send(get("http://127.0.0.1/").kind("webhook_delivery"), limits()).await.unwrap_err();
            outbound.send(get("http://unknown.test/").kind("webhook_delivery"), limits()).await.unwrap_err();
        });
    });
    let counted = handle.render();
    for line in [
        "outbound_requests_total{kind=\"webhook_delivery\",outcome=\"ok\"} 1\n",
        "outbound_requests_total{kind=\"webhook_delivery\",outcome=\"refused\"} 1\n",
        "outbound_requests_total{kind=\"webhook_delivery\",outcome=\"dns\"} 1\n",
        "outbound_addresses_refused_total 1\n",
    ] {
        assert!(counted.contains(line), "{line}{counted}");
    }
    assert!(!counted.contains(".test"), "a host is no label");
}
