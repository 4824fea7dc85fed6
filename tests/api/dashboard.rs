//! The dashboard's pages: what the server says about them, who may have them, and where they may be. What they do in a browser
//! is tested in one.

use crate::access::closed_server;
use crate::client::Reply;
use crate::world::{Server, World};

const CSP: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                   connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                   require-trusted-types-for 'script'; trusted-types steadfast";

async fn page(server: &Server, path: &str) -> Reply {
    let reply = server.call("GET", path).header("accept", "text/html").send().await;
    assert_eq!(reply.status, 200, "{path}: {reply:?}");
    reply
}

/// The links of a page, as they are written.
fn links(page: &str) -> Vec<String> {
    let of = |part: &str| part.split_once('"').map(|(link, _)| link.to_owned());
    page.split("href=\"")
        .chain(page.split("src=\""))
        .skip(1)
        .filter_map(of)
        .filter(|link| link.contains("_/"))
        .collect()
}

/// Where a relative link of a page leads.
fn resolve(page: &str, link: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[tokio::test(flavor = "multi_thread")]
async fn s54_pages_and_files_say_how_they_may_be_used() {
    let world = World::sqlite().await;
    let server = world.server().await;
    let shell = page(&server, "/ui/").await;
    let script =
        server.get(&resolve("/ui/", links(&shell.body).iter().find(|link| link.ends_with("app.js")).unwrap())).await;
    for reply in [&shell, &script] {
        for (name, value) in [
            ("content-security-policy", CSP),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{name}");
        }
    }
    assert_eq!(shell.header("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(shell.header("cache-control"), Some("no-cache"));
    assert_eq!(script.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(script.header("cache-control"), Some("public, max-age=31536000, immutable"));
    for inline in ["<style", "<script>", "style=", "onload=", "onclick=", "http://", "https://"] {
        assert!(!shell.body.contains(inline), "{inline} in {}", shell.body);
    }
    let docs = page(&server, "/docs").await;
    assert_eq!(docs.header("cross-origin-opener-policy"), Some("same-origin"));
    assert_eq!(docs.header("referrer-policy"), Some("no-referrer"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_link_of_a_page_works_however_deep_it_is() {
    let world = World::sqlite().await;
    let server = world.server().await;
    for path in
        ["/ui/", "/ui/jobs", "/ui/jobs/0192f3a4-1111-7000-8000-00000000a41c", "/ui/queues/a%2Fb", "/ui/queues/a/b/c"]
    {
        let shell = page(&server, path).await;
        let links = links(&shell.body);
        assert!(links.len() > 10, "{links:?}");
        for link in links {
            assert!(link.starts_with("_/") || link.starts_with("../"), "relative: {link}");
            let reply = server.get(&resolve(path, &link)).await;
            assert_eq!(reply.status, 200, "{link} of {path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_prefix_of_a_proxy_needs_no_setting() {
    let world = World::sqlite().await;
    let server = world.server().await;
    // The proxy strips its prefix; the browser resolves links against what it sees.
    let shell = page(&server, "/ui/jobs/1").await;
    for link in links(&shell.body) {
        let seen = resolve("/tools/queue/ui/jobs/1", &link);
        let asked = seen.strip_prefix("/tools/queue").unwrap_or_else(|| panic!("{seen} is outside of the prefix"));
        assert_eq!(server.get(asked).await.status, 200, "{seen}");
    }
    for path in ["/", "/ui"] {
        let reply = server.call("GET", path).header("accept", "text/html").send().await;
        assert_eq!(reply.header("location"), Some("ui/"), "relative as well");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_root_leads_browsers_to_the_pages_and_programs_nowhere() {
    let world = World::sqlite().await;
    let server = world.server().await;
    let browser = server.call("GET", "/").header("accept", "text/html,application/xhtml+xml,*/*;q=0.8").send().await;
    assert_eq!((browser.status, browser.header("location")), (303, Some("ui/")));
    for accept in ["*/*", "application/json"] {
        server.call("GET", "/").header("accept", accept).send().await.problem(404, "no_such_route");
    }
    server.get("/").await.problem(404, "no_such_route");
    assert_eq!(server.get("/ui").await.status, 308);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_of_a_file_is_not_served_under_its_hash() {
    let world = World::sqlite().await;
    let server = world.server().await;
    let shell = page(&server, "/ui/").await;
    let link = links(&shell.body).into_iter().find(|link| link.ends_with("/app.js")).unwrap();
    let hash = link.split('/').nth(1).unwrap();
    assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{link}");
    server.get("/ui/_/0123456789abcdef/app.js").await.problem(404, "not_found");
    for file in [
        "nope.js",
        "package.json",
        "openapi.d.ts",
        "index.html",
        "../Cargo.toml",
        "..%2fCargo.toml",
        "tests/words.test.js",
    ] {
        let reply = server.get(&format!("/ui/_/{hash}/{file}")).await;
        assert!(reply.status == 404 || reply.body.contains("<!doctype html>"), "{file}: {reply:?}");
        assert!(!reply.body.contains("[package]"), "{file}");
    }
    assert_eq!(server.get(&format!("/ui/_/{hash}/package.json")).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_compressed_for_who_takes_it() {
    let world = World::sqlite().await;
    let server = world.server().await;
    let shell = page(&server, "/ui/").await;
    let path = resolve("/ui/", links(&shell.body).iter().find(|link| link.ends_with("core/html.js")).unwrap());
    let length = |reply: &Reply| reply.header("content-length").unwrap().parse::<usize>().unwrap();
    let plain = server.get(&path).await;
    assert_eq!(plain.header("content-encoding"), None);
    let small = server.call("GET", &path).header("accept-encoding", "br, gzip;q=0.9").send().await;
    assert_eq!(small.header("content-encoding"), Some("gzip"));
    assert!(length(&small) * 2 < length(&plain), "{} of {}", length(&small), length(&plain));
    for reply in [&plain, &small] {
        assert_eq!(reply.header("vary"), Some("accept-encoding"));
    }
    let head = server.call("HEAD", &path).send().await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

/// S2: the pages hold no data, and nothing else became public with them.
#[tokio::test(flavor = "multi_thread")]
async fn s2_pages_are_public_to_look_at_and_nothing_more() {
    let world = World::sqlite().await;
    let server = closed_server(&world).await;
    let shell = page(&server, "/ui/tokens").await;
    assert!(!shell.body.contains("token\":"), "no data");
    page(&server, &resolve("/ui/tokens", &links(&shell.body)[0])).await;
    assert_eq!(server.call("GET", "/").header("accept", "text/html").send().await.status, 303);
    for (method, path) in [("POST", "/ui/"), ("DELETE", "/ui/jobs"), ("PUT", "/"), ("POST", "/")] {
        server.call(method, path).send().await.problem(401, "unauthorized");
    }
    for path in ["/uix", "/u", "/ui_", "/jobs/ui/", "/docs", "/session"] {
        server.get(path).await.problem(401, "unauthorized");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_dashboard_there_are_no_pages() {
    let world = World::sqlite().await;
    let server = world.server_with(|settings| settings.dashboard(false)).await;
    for path in ["/", "/ui", "/ui/", "/ui/jobs", "/ui/_/0123456789abcdef/app.js"] {
        server.call("GET", path).header("accept", "text/html").send().await.problem(404, "no_such_route");
    }
    server.get("/stats").await.expect(200);
}

/// Only how a page notices a new version: that it does is tested in a browser.
#[tokio::test(flavor = "multi_thread")]
async fn the_pulse_names_the_files_of_the_newest_page() {
    let world = World::sqlite().await;
    let server = world.server().await;
    let shell = page(&server, "/ui/").await;
    let pulse = server.get("/pulse").await.expect(200);
    assert!(shell.body.contains(&format!("_/{}/app.js", pulse["assets"].as_str().unwrap())), "{pulse}");
}
