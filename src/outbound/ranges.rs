//! Addresses that are not places on the public internet, each range with where that is written down.
//!
//! Two ideas. IPv4 is a table of what is refused. IPv6 is the other way round: only `2000::/3` is given out to anybody,
//! so everything outside it is refused unread (mapped, translated, NAT64, link-local, and what the next RFC brings), and
//! the table has only the holes in it.
//!
//! Next: `judge.rs`, which asks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A block of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cidr {
    network: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// `None` if the prefix is longer than the address, or the address has bits beyond it.
    pub(super) fn new(network: IpAddr, prefix: u8) -> Option<Self> {
        let cidr = Self { network, prefix };
        let bits = if network.is_ipv4() { 32 } else { 128 };
        (prefix <= bits && cidr.masked(network) == Some(number(network))).then_some(cidr)
    }

    /// One address.
    pub(super) fn single(address: IpAddr) -> Self {
        Self { network: address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }

    const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Self {
        Self { network: IpAddr::V4(Ipv4Addr::new(a, b, c, d)), prefix }
    }

    const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Self {
        Self { network: IpAddr::V6(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)), prefix }
    }

    pub(super) fn network(&self) -> IpAddr {
        self.network
    }

    pub(super) fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether it is one address only.
    pub(super) fn is_single(&self) -> bool {
        self.prefix == if self.network.is_ipv4() { 32 } else { 128 }
    }

    /// An IPv4 block holds no IPv6 address, however that is written.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        self.masked(address) == Some(number(self.network))
    }

    /// The address with the bits beyond the prefix off; `None` if it is of the other family.
    fn masked(&self, address: IpAddr) -> Option<u128> {
        if address.is_ipv4() != self.network.is_ipv4() {
            return None;
        }
        let bits: u32 = if address.is_ipv4() { 32 } else { 128 };
        let beyond = bits.saturating_sub(u32::from(self.prefix));
        Some(number(address).checked_shr(beyond).unwrap_or(0).checked_shl(beyond).unwrap_or(0))
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    }
}

/// IPv4 that is not global, after the registry of special-purpose addresses.
pub(super) const IPV4_SPECIAL: &[(Cidr, &str)] = &[
    (Cidr::v4(0, 0, 0, 0, 8), "this network (RFC 791)"),
    (Cidr::v4(10, 0, 0, 0, 8), "private (RFC 1918)"),
    (Cidr::v4(100, 64, 0, 0, 10), "shared by carriers (RFC 6598)"),
    (Cidr::v4(127, 0, 0, 0, 8), "loopback (RFC 1122)"),
    (Cidr::v4(169, 254, 0, 0, 16), "link-local (RFC 3927)"),
    (Cidr::v4(172, 16, 0, 0, 12), "private (RFC 1918)"),
    (Cidr::v4(192, 0, 0, 0, 24), "protocol assignments (RFC 6890)"),
    (Cidr::v4(192, 0, 2, 0, 24), "documentation (RFC 5737)"),
    (Cidr::v4(192, 31, 196, 0, 24), "AS112 (RFC 7535)"),
    (Cidr::v4(192, 52, 193, 0, 24), "multicast relays (RFC 7450)"),
    (Cidr::v4(192, 88, 99, 0, 24), "6to4 relays (RFC 7526)"),
    (Cidr::v4(192, 168, 0, 0, 16), "private (RFC 1918)"),
    (Cidr::v4(192, 175, 48, 0, 24), "AS112 (RFC 7534)"),
    (Cidr::v4(198, 18, 0, 0, 15), "benchmarks (RFC 2544)"),
    (Cidr::v4(198, 51, 100, 0, 24), "documentation (RFC 5737)"),
    (Cidr::v4(203, 0, 113, 0, 24), "documentation (RFC 5737)"),
    (Cidr::v4(224, 0, 0, 0, 3), "multicast, reserved, broadcast (RFC 5771, RFC 1112)"),
];

/// All that is given out of IPv6 (RFC 4291 §2.4 and the registry of allocations).
pub(super) const IPV6_GLOBAL: Cidr = Cidr::v6(0x2000, 0, 0, 3);

/// What in [`IPV6_GLOBAL`] is not global, or carries an IPv4 address that would have to be judged.
pub(super) const IPV6_SPECIAL: &[(Cidr, &str)] = &[
    (Cidr::v6(0x2001, 0, 0, 23), "protocol assignments, Teredo among them (RFC 2928, RFC 4380)"),
    (Cidr::v6(0x2001, 0x0db8, 0, 32), "documentation (RFC 3849)"),
    (Cidr::v6(0x2002, 0, 0, 16), "6to4 (RFC 3056)"),
    (Cidr::v6(0x2620, 0x004f, 0x8000, 48), "AS112 (RFC 7534)"),
    (Cidr::v6(0x3fff, 0, 0, 20), "documentation (RFC 9637)"),
];

/// Whether the interface part wraps an IPv4 address (RFC 5214 §6.1): such an address is routed to that.
pub(super) fn is_isatap(address: Ipv6Addr) -> bool {
    let [.., a, b, _, _] = address.segments();
    matches!((a, b), (0x0000 | 0x0200, 0x5efe))
}

/// Where clouds give credentials to whoever asks. Some look like any public address: they are here by name.
pub(super) const METADATA: &[IpAddr] = &[
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    // Containers of AWS, and their pod identities.
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x23)),
    // Google.
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x254)),
    // Alibaba.
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    // Azure: globally routable by every table.
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    // Oracle.
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

/// What `private` means in an allow list.
pub(super) const PRIVATE: &[Cidr] =
    &[Cidr::v4(10, 0, 0, 0, 8), Cidr::v4(172, 16, 0, 0, 12), Cidr::v4(192, 168, 0, 0, 16), Cidr::v6(0xfc00, 0, 0, 7)];

/// What `loopback` means in an allow list.
pub(super) const LOOPBACK: &[Cidr] =
    &[Cidr::v4(127, 0, 0, 0, 8), Cidr { network: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 }];

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(network: &str, prefix: u8) -> Option<Cidr> {
        Cidr::new(network.parse().unwrap(), prefix)
    }

    #[test]
    fn a_block_holds_its_first_and_last_address_and_not_their_neighbours() {
        let block = cidr("10.1.2.0", 23).unwrap();
        for (address, is_in) in [
            ("10.1.1.255", false),
            ("10.1.2.0", true),
            ("10.1.3.255", true),
            ("10.1.4.0", false),
            ("::10.1.2.0", false),
        ] {
            assert_eq!(block.contains(address.parse().unwrap()), is_in, "{address}");
        }
        let everything = cidr("::", 0).unwrap();
        assert!(everything.contains("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap()));
        assert!(!everything.contains("1.2.3.4".parse().unwrap()));
    }

    #[test]
    fn a_block_has_no_bits_beyond_its_prefix_and_no_prefix_beyond_its_bits() {
        assert_eq!(cidr("10.1.2.3", 24), None);
        assert_eq!(cidr("10.1.2.0", 33), None);
        assert_eq!(cidr("fd00::1", 64), None);
        assert_eq!(cidr("fd00::", 129), None);
        assert!(cidr("10.1.2.3", 32).unwrap().is_single());
        assert!(!cidr("10.1.2.0", 31).unwrap().is_single());
    }

    #[test]
    fn every_range_of_the_tables_is_a_block() {
        let tables = IPV4_SPECIAL.iter().chain(IPV6_SPECIAL).map(|(cidr, _)| cidr);
        for range in tables.chain(PRIVATE).chain(LOOPBACK).chain([&IPV6_GLOBAL]) {
            assert_eq!(Cidr::new(range.network(), range.prefix()).as_ref(), Some(range));
        }
    }
}
