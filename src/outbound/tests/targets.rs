//! URLs: all the ways to write an address that one should not call, and what stays of a good one.

use proptest::prelude::*;

use super::super::connect::Place;
use super::*;

/// What becomes of a spelling.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    /// It does not parse.
    NoUrl,
    /// It is a literal address, and that is refused.
    Refused,
}

use Fate::{NoUrl, Refused};

const SPELLINGS: &[(&str, Fate)] = &[
    // Loopback in every base and length.
    ("http://127.0.0.1/", Refused),
    ("http://127.1/", Refused),
    ("http://127.0.1/", Refused),
    ("http://2130706433/", Refused),
    ("http://0x7f000001/", Refused),
    ("http://0x7f.0.0.1/", Refused),
    ("http://0x7f.1/", Refused),
    ("http://017700000001/", Refused),
    ("http://0177.0.0.1/", Refused),
    ("http://00000177.00.0x0.1/", Refused),
    ("http://127.0.0.1./", Refused),
    ("http://127.255.255.254/", Refused),
    ("http://%31%32%37.0.0.1/", Refused),
    ("http://①②⑦.0.0.1/", Refused),
    ("http://127。0。0。1/", Refused),
    ("http://127.0.0.1/", Refused),
    ("http://0/", Refused),
    ("http://0.0.0.0/", Refused),
    ("http://0x0/", Refused),
    ("HTTP://127.0.0.1/", Refused),
    ("https://127.0.0.1:8443/x", Refused),
    // Private, shared, link-local, multicast, broadcast.
    ("http://10.0.0.1/", Refused),
    ("http://172.16.0.1/", Refused),
    ("http://192.168.0.1/", Refused),
    ("http://3232235521/", Refused),
    ("http://100.64.0.1/", Refused),
    ("http://169.254.1.1/", Refused),
    ("http://198.18.0.1/", Refused),
    ("http://192.0.2.1/", Refused),
    ("http://224.0.0.1/", Refused),
    ("http://255.255.255.255/", Refused),
    ("http://4294967295/", Refused),
    // Metadata.
    ("http://169.254.169.254/latest/meta-data/", Refused),
    ("http://2852039166/", Refused),
    ("http://0xa9fea9fe/", Refused),
    ("http://0251.0376.0251.0376/", Refused),
    ("http://169.254.43518/", Refused),
    ("http://[::ffff:169.254.169.254]/", Refused),
    ("http://[fd00:ec2::254]/", Refused),
    ("http://[fd20:ce::254]/", Refused),
    ("http://100.100.100.200/", Refused),
    ("http://168.63.129.16/", Refused),
    ("http://192.0.0.192/", Refused),
    // IPv6, and IPv4 inside of it.
    ("http://[::]/", Refused),
    ("http://[::1]/", Refused),
    ("http://[0:0:0:0:0:0:0:1]/", Refused),
    ("http://[::ffff:127.0.0.1]/", Refused),
    ("http://[::ffff:7f00:1]/", Refused),
    ("http://[0:0:0:0:0:ffff:127.0.0.1]/", Refused),
    ("http://[::127.0.0.1]/", Refused),
    ("http://[::ffff:0:127.0.0.1]/", Refused),
    ("http://[64:ff9b::127.0.0.1]/", Refused),
    ("http://[64:ff9b:1::127.0.0.1]/", Refused),
    ("http://[2002:7f00:1::]/", Refused),
    ("http://[2001::7f00:1]/", Refused),
    ("http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/", Refused),
    ("http://[2606:4700::5efe:7f00:1]/", Refused),
    ("http://[2606:4700::200:5efe:127.0.0.1]/", Refused),
    ("http://[fe80::1]/", Refused),
    ("http://[fec0::1]/", Refused),
    ("http://[fc00::1]/", Refused),
    ("http://[fd12:3456::1]/", Refused),
    ("http://[ff02::1]/", Refused),
    ("http://[100::1]/", Refused),
    ("http://[5f00::1]/", Refused),
    ("http://[2001:db8::1]/", Refused),
    ("http://[3fff::1]/", Refused),
    // Zones, numbers that are none, ports that are none.
    ("http://[fe80::1%25lo]/", NoUrl),
    ("http://[::1%lo]/", NoUrl),
    ("http://[::1/", NoUrl),
    ("http://::1/", NoUrl),
    ("http://999.1.1.1/", NoUrl),
    ("http://1.2.3.4.5/", NoUrl),
    ("http://256/0/", Refused),
    ("http://4294967296/", NoUrl),
    ("http://127.0.0.0x/", Refused),
    ("http://1.1.1.1:99999/", NoUrl),
    ("http://1.1.1.1:-80/", NoUrl),
    // Userinfo, and what looks like it.
    ("http://user@hooks.test/", NoUrl),
    ("http://user:password@hooks.test/", NoUrl),
    ("http://@hooks.test/", NoUrl),
    ("http://:@hooks.test/", NoUrl),
    ("http://hooks.test@127.0.0.1/", NoUrl),
    ("http://127.0.0.1%2f@hooks.test/", NoUrl),
    ("http://hooks.test%40127.0.0.1/", NoUrl),
    // Characters on which parsers disagree.
    ("http://hooks.test\\@127.0.0.1/", NoUrl),
    ("http:\\\\127.0.0.1/", NoUrl),
    ("http://127.0.0.1\\.hooks.test/", NoUrl),
    ("http://127.0\t.0.1/", NoUrl),
    ("http://ho\noks.test/", NoUrl),
    ("ht\ntp://127.0.0.1/", NoUrl),
    ("http://hooks.test/a\r\nHost: other.test", NoUrl),
    (" http://127.0.0.1/", NoUrl),
    ("http://127.0.0.1 /", NoUrl),
    ("http://127.0.0.1\0/", NoUrl),
    ("http://127.0.0.1%00.hooks.test/", NoUrl),
    ("http://127.0.0.1%09/", NoUrl),
    ("http://hooks.test#@127.0.0.1/\u{7f}", NoUrl),
    // Other schemes, and http without what belongs to it.
    ("ftp://hooks.test/", NoUrl),
    ("file:///etc/passwd", NoUrl),
    ("gopher://127.0.0.1:6379/_INFO", NoUrl),
    ("dict://127.0.0.1:11211/", NoUrl),
    ("data:text/plain,x", NoUrl),
    ("javascript:alert(1)", NoUrl),
    ("//127.0.0.1/", NoUrl),
    ("127.0.0.1", NoUrl),
    ("http:127.0.0.1", NoUrl),
    ("http:/127.0.0.1/", NoUrl),
    ("http:///127.0.0.1/", NoUrl),
    ("http://", NoUrl),
    ("http://?x", NoUrl),
    ("http://:80/", NoUrl),
    ("https+unix://x/", NoUrl),
    ("", NoUrl),
    // Names that are none.
    ("http://.test/", NoUrl),
    ("http://hooks..test/", NoUrl),
    ("http://hooks.test../", NoUrl),
    ("http://./", NoUrl),
    ("http://hooks'.test/", NoUrl),
    ("http://hooks\".test/", NoUrl),
    ("http://hooks{}.test/", NoUrl),
    ("http://*.test/", NoUrl),
    ("http://hooks.test:80:80/", NoUrl),
];

#[tokio::test]
async fn s17_no_spelling_of_an_internal_address_is_called_at_the_door_or_by_the_connector() {
    let policy = Policy::default();
    for (text, fate) in SPELLINGS {
        let target = match Target::parse(text) {
            Ok(target) => target,
            Err(error) => {
                assert_eq!(*fate, NoUrl, "{text:?}: {error}");
                continue;
            }
        };
        assert_eq!(*fate, Refused, "{text:?} parses: {target}");
        assert!(target.ip().is_some(), "{text:?} is not seen to be an address: {target}");
        let said = policy.check_target(&target).unwrap_err();
        assert!(said.contains("not a public one") && !said.contains(target.host()), "{text:?}: {said}");

        let net = Net::new(Names::default(), Loopback::default());
        let error = net.guarded().send(Request::new(Method::GET, target), limits()).await.unwrap_err();
        assert_eq!(error.class(), Class::Refused, "{text:?}: {error}");
        assert_eq!(net.dialler.dialled(), [], "{text:?}");
        assert_eq!(net.names.lookups(), [], "{text:?}");
    }
}

#[test]
fn one_name_has_one_spelling() {
    for (text, host) in [
        ("http://HOOKS.test/", "hooks.test"),
        ("http://hooks.test./", "hooks.test"),
        ("http://bücher.test/", "xn--bcher-kva.test"),
        ("http://BÜCHER.test/", "xn--bcher-kva.test"),
        ("http://h%6foks.test/", "hooks.test"),
        ("http://hooks。test/", "hooks.test"),
        ("http://my_hooks.test/", "my_hooks.test"),
        ("http://[2606:4700:0:0::1111]/", "2606:4700::1111"),
    ] {
        assert_eq!(Target::parse(text).unwrap().host(), host, "{text}");
    }
}

#[test]
fn a_target_has_the_parts_of_its_url() {
    let target = Target::parse("https://hooks.test:8443/a%20b/ü?key=1&x#part").unwrap();
    assert_eq!((target.host(), target.port(), target.is_https()), ("hooks.test", 8443, true));
    assert_eq!(target.authority(), "hooks.test:8443");
    assert_eq!(target.uri().to_string(), "https://hooks.test:8443/a%20b/%C3%BC?key=1&x");
    assert_eq!(target.to_string(), "https://hooks.test:8443/a%20b/%C3%BC", "keys are in queries");
    assert_eq!(format!("{target:?}"), "Target(https://hooks.test:8443/a%20b/%C3%BC)");

    let v6 = Target::parse("http://[2606:4700::1111]:80").unwrap();
    assert_eq!((v6.host(), v6.port(), v6.authority().as_str()), ("2606:4700::1111", 80, "[2606:4700::1111]"));
    assert_eq!(v6.uri().to_string(), "http://[2606:4700::1111]/");
    assert_eq!(Target::parse("https://hooks.test:443/").unwrap().authority(), "hooks.test");
    assert_eq!(Target::parse("http://hooks.test:443/").unwrap().authority(), "hooks.test:443");
}

#[test]
fn long_urls_names_and_labels_are_refused_just_over_their_limits() {
    let url = |length: usize| format!("http://hooks.test/{}", "a".repeat(length - 18));
    assert!(Target::parse(&url(2048)).is_ok());
    assert!(Target::parse(&url(2049)).is_err());
    let label = |length: usize| format!("http://{}.test/", "a".repeat(length));
    assert!(Target::parse(&label(63)).is_ok());
    assert!(Target::parse(&label(64)).is_err());
    let name = |last: usize| format!("http://{}{}.test/", format!("{}.", "a".repeat(59)).repeat(4), "a".repeat(last));
    assert!(Target::parse(&name(8)).is_ok(), "253 in all");
    assert!(Target::parse(&name(9)).is_err());
}

#[test]
fn a_path_is_joined_behind_the_endpoints_own_and_cannot_leave_it() {
    let base = Target::parse("https://api.test:8443/v1/?key=1").unwrap();
    let joined = |path: &str| base.with_path(path).map(|target| target.uri().to_string()).ok();
    assert_eq!(joined("/orders/7").as_deref(), Some("https://api.test:8443/v1/orders/7?key=1"));
    assert_eq!(joined("/orders?full=1").as_deref(), Some("https://api.test:8443/v1/orders?key=1&full=1"));
    assert_eq!(joined("/").as_deref(), Some("https://api.test:8443/v1/?key=1"));
    assert_eq!(joined("//other.test/x").as_deref(), Some("https://api.test:8443/v1//other.test/x?key=1"));
    assert_eq!(joined("/@other.test/x").as_deref(), Some("https://api.test:8443/v1/@other.test/x?key=1"));
    for wrong in [
        "orders",
        "",
        "@other.test/",
        ".other.test/",
        ":80/",
        "/../admin",
        "/..",
        "/a/../../admin",
        "/%2e%2e/admin",
        "/%2E./admin",
        "/./x",
        "/a#b",
        "/a b",
        "/a\\..\\b",
        "/a\nb",
        "https://other.test/",
    ] {
        assert_eq!(joined(wrong), None, "{wrong:?}");
    }
    let bare = Target::parse("http://[2606:4700::1111]").unwrap();
    assert_eq!(bare.with_path("/x").unwrap().uri().to_string(), "http://[2606:4700::1111]/x");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s17_the_host_that_the_connector_sees_is_the_one_that_was_judged(
        text in prop_oneof![
            "https?://[a-zA-Z0-9.%@:/?#\\[\\]_-]{1,40}",
            "https?://[0-9a-fxX.]{1,20}(:[0-9]{0,5})?(/.*)?",
            "https?://\\[[0-9a-f:.]{2,30}\\](:[0-9]{1,5})?/?",
            "https?://\\PC{1,30}",
            ".{0,40}",
        ]
    ) {
        if let Ok(target) = Target::parse(&text) {
            let place = Place::of(target.uri()).unwrap();
            prop_assert_eq!(&place.host, target.host());
            prop_assert_eq!(place.ip, target.ip());
            prop_assert_eq!(place.port, target.port());
            prop_assert_eq!(place.https, target.is_https());
            // Written out and read again it is the same place.
            let again = Target::parse(&target.uri().to_string()).unwrap();
            prop_assert_eq!(again.uri(), target.uri());
        }
    }
}
