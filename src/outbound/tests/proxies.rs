//! Proxies that the environment names are not asked. In a process of its own: an environment belongs to all threads.

use std::process::Command;

use super::*;

#[tokio::test]
async fn one_call_reaches_the_server_that_it_is_for() {
    let server = Server::ok().await;
    let net = Net::hooks(&server);
    for outbound in [net.guarded(), net.trusted()] {
        outbound.send(get("http://hooks.test/x"), limits()).await.unwrap();
    }
    assert_eq!(net.dialler.dialled(), [SocketAddr::new(PUBLIC, 80); 2]);
    assert!(server.requests().iter().all(|request| request.starts_with("GET /x HTTP/1.1")), "not in a proxy's form");
}

#[tokio::test(flavor = "multi_thread")]
async fn s18_a_proxy_in_the_environment_hears_nothing() {
    let proxy = Server::ok().await;
    let url = format!("http://{}", proxy.address);
    let test = format!("{}::one_call_reaches_the_server_that_it_is_for", module_path!().split_once("::").unwrap().1);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &test]).env_remove("NO_PROXY").env_remove("no_proxy");
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
        child.env(name, &url).env(name.to_lowercase(), &url);
    }
    let output = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(proxy.connections(), 0);
}
