//! Addresses: every range to its edges, and the lists of the operator.

use std::net::Ipv6Addr;

use proptest::prelude::*;

use super::*;

fn judged(policy: &Policy, address: &str) -> bool {
    let address = address.parse().unwrap_or_else(|_| SocketAddr::new(address.parse().unwrap(), 443));
    policy.verdict(address) == Verdict::Allowed
}

fn is_public(address: IpAddr) -> bool {
    Policy::default().verdict(SocketAddr::new(address, 443)) == Verdict::Allowed
}

/// One further, or one back.
fn neighbour(address: IpAddr, step: i8) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => u32::from(v4).checked_add_signed(step.into()).map(|n| Ipv4Addr::from(n).into()),
        IpAddr::V6(v6) => u128::from(v6).checked_add_signed(step.into()).map(|n| Ipv6Addr::from(n).into()),
    }
}

/// First and last, and whether the addresses before and after it are public. Written out, not computed from the tables
/// that are tested.
const RANGES: &[(&str, &str, bool, bool)] = &[
    ("0.0.0.0", "0.255.255.255", false, true),
    ("10.0.0.0", "10.255.255.255", true, true),
    ("100.64.0.0", "100.127.255.255", true, true),
    ("127.0.0.0", "127.255.255.255", true, true),
    ("169.254.0.0", "169.254.255.255", true, true),
    ("172.16.0.0", "172.31.255.255", true, true),
    ("192.0.0.0", "192.0.0.255", true, true),
    ("192.0.2.0", "192.0.2.255", true, true),
    ("192.31.196.0", "192.31.196.255", true, true),
    ("192.52.193.0", "192.52.193.255", true, true),
    ("192.88.99.0", "192.88.99.255", true, true),
    ("192.168.0.0", "192.168.255.255", true, true),
    ("192.175.48.0", "192.175.48.255", true, true),
    ("198.18.0.0", "198.19.255.255", true, true),
    ("198.51.100.0", "198.51.100.255", true, true),
    ("203.0.113.0", "203.0.113.255", true, true),
    ("224.0.0.0", "255.255.255.255", true, false),
    ("168.63.129.16", "168.63.129.16", true, true),
    ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, true),
    ("::ffff:0:0", "::ffff:ffff:ffff", false, false),
    ("64:ff9b::", "64:ff9b::ffff:ffff", false, false),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", false, false),
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", true, true),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", true, true),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true, true),
    ("2606:4700::5efe:0:0", "2606:4700::5efe:ffff:ffff", true, true),
    ("2606:4700::200:5efe:0:0", "2606:4700::200:5efe:ffff:ffff", true, true),
    ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff", true, true),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", true, true),
    ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true, false),
    ("5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, false),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, false),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, false),
    ("fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, false),
];

#[test]
fn s35_every_range_is_refused_from_its_first_to_its_last_address_and_no_further() {
    for (first, last, public_before, public_after) in RANGES {
        let (first, last) = (ip(first), ip(last));
        assert!(!is_public(first), "{first}, the first of its range");
        assert!(!is_public(last), "{last}, the last of its range");
        assert_eq!(neighbour(first, -1).is_some_and(is_public), *public_before, "one before {first}");
        assert_eq!(neighbour(last, 1).is_some_and(is_public), *public_after, "one after {last}");
    }
    for public in ["1.1.1.1", "8.8.8.8", "93.184.215.14", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888"] {
        assert!(is_public(ip(public)), "{public}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn s35_what_is_allowed_of_ipv6_is_in_2000_3(number in any::<u128>(), small in any::<u64>(), top in any::<u16>()) {
        // Numbers at random are rarely special: also such as begin or end like those that are.
        for number in [number, u128::from(small), (u128::from(top) << 112) | u128::from(small), number >> 80] {
            let address = Ipv6Addr::from(number);
            prop_assert!(!is_public(address.into()) || number >> 125 == 1, "{}", address);
        }
    }

    #[test]
    fn s17_no_ipv4_address_is_reached_through_an_ipv6_form_of_it(number in any::<u32>()) {
        let v4 = Ipv4Addr::from(number);
        let [a, b, c, d] = v4.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        for form in [
            v4.to_ipv6_mapped(),
            v4.to_ipv6_compatible(),
            Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0, high, low, 0, 0, !high, !low),
            Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0x5efe, high, low),
        ] {
            prop_assert!(!is_public(form.into()), "{}", form);
        }
    }
}

#[test]
fn s19_what_is_allowed_is_the_entry_and_nothing_beside_it() {
    let policy = Policy::default().allow("10.1.2.0/24, 10.9.9.9:8080, [fd00:1::/32]:8443, 192.168.0.7").unwrap();
    for (address, allowed) in [
        ("10.1.2.0:80", true),
        ("10.1.2.255:8080", true),
        ("10.1.3.0:80", false),
        ("10.1.1.255:80", false),
        ("10.9.9.9:8080", true),
        ("10.9.9.9:8081", false),
        ("10.9.9.8:8080", false),
        ("[fd00:1::5]:8443", true),
        ("[fd00:1::5]:443", false),
        ("[fd00:2::5]:8443", false),
        ("192.168.0.7:443", true),
        ("192.168.0.7:22", false),
        ("[::ffff:10.1.2.3]:80", false),
        ("127.0.0.1:80", false),
        ("1.1.1.1:443", true),
    ] {
        assert_eq!(judged(&policy, address), allowed, "{address}");
    }
    assert_eq!(policy.describe().as_deref(), Some("10.1.2.0/24, 10.9.9.9:8080, [fd00:1::/32]:8443, 192.168.0.7"));
    assert_eq!(Policy::default().describe(), None, "nothing is open by default");
}

#[test]
fn s19_words_open_what_they_say() {
    let private = Policy::default().allow("private").unwrap();
    for (address, allowed) in [
        ("10.0.0.1", true),
        ("172.31.255.255", true),
        ("192.168.1.1", true),
        ("fd00::1", true),
        ("127.0.0.1", false),
        ("169.254.1.1", false),
        ("100.64.0.1", false),
        ("fe80::1", false),
    ] {
        assert_eq!(judged(&private, address), allowed, "{address}");
    }
    let loopback = Policy::default().allow("loopback").unwrap();
    for (address, allowed) in [
        ("127.0.0.1", true),
        ("127.9.9.9", true),
        ("::1", true),
        ("::ffff:127.0.0.1", false),
        ("10.0.0.1", false),
        ("0.0.0.0", false),
    ] {
        assert_eq!(judged(&loopback, address), allowed, "{address}");
    }
}

#[test]
fn s17_a_metadata_service_is_opened_by_its_own_address_only() {
    let all = [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
    ];
    let wide = "private,loopback,169.254.0.0/16,169.254.169.254/31,100.64.0.0/10,168.63.0.0/16,192.0.0.0/24,\
                fd00::/8,fd00:ec2::/64,128.0.0.0/1";
    let wide = Policy::default().allow(wide).unwrap();
    assert!(judged(&wide, "169.254.1.1"), "the lists are read");
    for address in all {
        assert!(!judged(&wide, address), "{address}");
        assert!(judged(&Policy::default().allow(address).unwrap(), address), "{address}, by name");
    }
    let with_port = Policy::default().allow("169.254.169.254:80").unwrap();
    assert!(judged(&with_port, "169.254.169.254:80"));
    assert!(!judged(&with_port, "169.254.169.254:443"));
}

#[test]
fn what_is_denied_is_denied_whatever_is_allowed() {
    let policy = Policy::default().allow("private").unwrap().deny("10.1.0.0/16, 1.1.1.1:443, [2a00::/16]:80").unwrap();
    for (address, allowed) in [
        ("10.1.2.3:80", false),
        ("10.2.2.3:80", true),
        ("1.1.1.1:443", false),
        ("1.1.1.1:80", true),
        ("[2a00::1]:80", false),
        ("[2a00::1]:443", true),
    ] {
        assert_eq!(judged(&policy, address), allowed, "{address}");
    }
    let nothing = Policy::default().deny("0.0.0.0/0, ::/0").unwrap();
    assert!(!judged(&nothing, "1.1.1.1") && !judged(&nothing, "2606:4700::1111"));
}

#[test]
fn s37_ports_below_1024_are_closed_but_those_of_the_web() {
    let policy = Policy::default();
    for (port, allowed) in [
        (0, false),
        (22, false),
        (25, false),
        (79, false),
        (80, true),
        (81, false),
        (442, false),
        (443, true),
        (444, false),
        (1023, false),
        (1024, true),
        (8080, true),
        (65535, true),
    ] {
        assert_eq!(judged(&policy, &format!("1.1.1.1:{port}")), allowed, "{port}");
        let target = Target::parse(&format!("http://hooks.test:{port}/")).unwrap();
        assert_eq!(policy.check_target(&target).is_ok(), allowed, "{port}");
    }
    let strict = Policy::default().ports("443").unwrap();
    assert!(judged(&strict, "1.1.1.1:443") && !judged(&strict, "1.1.1.1:80"));
    let error = strict.check_target(&Target::parse("http://hooks.test/").unwrap()).unwrap_err();
    assert!(error.contains("port 80") && error.contains("(443)") && error.contains("outbound_ports"), "{error}");
    let opened = Policy::default().allow("10.0.0.1:25").unwrap();
    assert!(judged(&opened, "10.0.0.1:25") && !judged(&opened, "1.1.1.1:25"));
    assert!(opened.check_target(&Target::parse("http://mail.test:25/").unwrap()).is_ok(), "it may lead to the one");
}

#[test]
fn s37_our_own_listeners_and_the_database_are_never_called() {
    let own = ["127.0.0.1:8080", "10.0.0.5:5432", "[::1]:9090"].map(|own| own.parse().unwrap());
    let policy = Policy::default().allow("loopback,private,127.0.0.1:8080,10.0.0.5:5432").unwrap().never(own);
    for (address, allowed) in [
        ("127.0.0.1:8080", false),
        ("127.0.0.1:8081", true),
        ("127.0.0.2:8080", true),
        ("10.0.0.5:5432", false),
        ("10.0.0.5:5433", true),
        ("[::1]:9090", false),
        ("[::1]:9091", true),
    ] {
        assert_eq!(judged(&policy, address), allowed, "{address}");
    }
    let everywhere = Policy::default().allow("loopback").unwrap().never(["0.0.0.0:8080".parse().unwrap()]);
    for (address, allowed) in
        [("127.0.0.1:8080", false), ("127.3.3.3:8080", false), ("[::1]:8080", false), ("127.0.0.1:8081", true)]
    {
        assert_eq!(judged(&everywhere, address), allowed, "{address}");
    }
}

#[test]
fn behind_nat64_the_ipv4_address_is_judged() {
    let policy = Policy::default().nat64("64:ff9b::/96").unwrap();
    for (address, allowed) in [
        ("64:ff9b::1.1.1.1", true),
        ("64:ff9b::127.0.0.1", false),
        ("64:ff9b::10.0.0.1", false),
        ("64:ff9b::169.254.169.254", false),
        ("64:ff9b::168.63.129.16", false),
        ("64:ff9b:1::1.1.1.1", false),
        ("64:ff9b:0:1::1.1.1.1", false),
        ("::ffff:1.1.1.1", false),
    ] {
        assert_eq!(judged(&policy, address), allowed, "{address}");
    }
    assert!(!judged(&policy, "[64:ff9b::1.1.1.1]:25"), "its port is judged, too");
    let own = Policy::default().nat64("2a00:1:2:3::/96").unwrap().never(["1.2.3.4:443".parse().unwrap()]);
    assert!(!judged(&own, "2a00:1:2:3::10.0.0.1") && judged(&own, "2a00:1:2:3::1.1.1.1"));
    assert!(!judged(&own, "2a00:1:2:3::1.2.3.4"));
    let denied = Policy::default().nat64("64:ff9b::/96").unwrap().deny("1.1.1.0/24").unwrap();
    assert!(!judged(&denied, "64:ff9b::1.1.1.1"));
}
