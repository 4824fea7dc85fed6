//! Which addresses may be called on behalf of somebody who is not the operator.
//!
//! Judges addresses, never names, and asks nobody: the same address gets the same verdict. Order: never (our own
//! listeners, the database), denied, metadata, allowed, then the tables of `ranges.rs` and the ports.
//!
//! Next: `connect.rs`, which calls only what is allowed here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;

use super::entries::{Entry, Everything, NotAPolicy, entries, nat64_prefixes, ports};
use super::ranges::{Cidr, IPV4_SPECIAL, IPV6_GLOBAL, IPV6_SPECIAL, METADATA, is_isatap};
use super::target::Target;

/// Whether an address may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It may.
    Allowed,
    /// It may not; the reason is for operators, and goes into no job.
    Refused(&'static str),
}

/// What may be called: by default the public internet, on the ports of the web and those that nobody reserves.
#[derive(Debug, Clone)]
pub struct Policy {
    allow: Vec<Entry>,
    deny: Vec<Entry>,
    ports: Vec<RangeInclusive<u16>>,
    nat64: Vec<Cidr>,
    never: Vec<SocketAddr>,
}

impl Default for Policy {
    /// Public addresses; ports 80, 443 and from 1024 on: below are mail, shells and databases' ancestors.
    fn default() -> Self {
        Self {
            allow: vec![],
            deny: vec![],
            ports: vec![80..=80, 443..=443, 1024..=65535],
            nat64: vec![],
            never: vec![],
        }
    }
}

impl Policy {
    /// Opens what is closed by default: `10.1.2.0/24, 10.1.2.3:8080, [fd00::/8]:443, private, loopback`. An entry with a
    /// port opens that port, too. A metadata service is opened only by an entry that names its one address.
    pub fn allow(mut self, list: &str) -> Result<Self, NotAPolicy> {
        self.allow.extend(entries(list, Everything::Refused)?);
        Ok(self)
    }

    /// Closes what would be open, also what is allowed. Written like [`allow`](Self::allow).
    pub fn deny(mut self, list: &str) -> Result<Self, NotAPolicy> {
        self.deny.extend(entries(list, Everything::Taken)?);
        Ok(self)
    }

    /// Sets the ports: `80,443,1024-65535`.
    pub fn ports(mut self, list: &str) -> Result<Self, NotAPolicy> {
        self.ports = ports(list)?;
        Ok(self)
    }

    /// NAT64 prefixes of 96 bits: an address under one is judged by the IPv4 address in it.
    pub fn nat64(mut self, list: &str) -> Result<Self, NotAPolicy> {
        self.nat64.extend(nat64_prefixes(list)?);
        Ok(self)
    }

    /// Places that are never called, whatever is allowed: our own listeners, and the database. A listener on `0.0.0.0`
    /// or `::` is on every address of this machine.
    pub fn never(mut self, places: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.never.extend(places);
        self
    }

    /// May this address be called?
    pub fn verdict(&self, address: SocketAddr) -> Verdict {
        if self.is_never(address) {
            return Verdict::Refused("a listener of this process, or its database");
        }
        if self.deny.iter().any(|entry| entry.covers(address)) {
            return Verdict::Refused("denied by the operator");
        }
        if let Some(behind) = self.behind_nat64(address.ip()) {
            return self.verdict(SocketAddr::new(behind.into(), address.port()));
        }
        let is_metadata = METADATA.contains(&address.ip());
        let allows = |entry: &&Entry| if is_metadata { entry.names(address) } else { entry.covers(address) };
        let allowed = self.allow.iter().filter(allows).max_by_key(|entry| entry.has_port());
        match allowed {
            Some(entry) if entry.has_port() => return Verdict::Allowed,
            None if is_metadata => return Verdict::Refused("a metadata service"),
            None => {
                if let Some(why) = special(address.ip()) {
                    return Verdict::Refused(why);
                }
            }
            Some(_) => {}
        }
        if self.has_port(address.port()) { Verdict::Allowed } else { Verdict::Refused("not one of the ports") }
    }

    /// What can be said of a URL before anything is looked up: a literal address is judged, and so is the port.
    pub fn check_target(&self, target: &Target) -> Result<(), String> {
        match target.ip() {
            Some(ip) => match self.verdict(SocketAddr::new(ip, target.port())) {
                Verdict::Allowed => Ok(()),
                Verdict::Refused(_) if self.is_closed_port(target.port()) => Err(self.closed_port(target.port())),
                Verdict::Refused(_) => Err(not_public_literal()),
            },
            None if self.is_closed_port(target.port()) => Err(self.closed_port(target.port())),
            None => Ok(()),
        }
    }

    /// The allow list, to be printed at start; `None` if nothing is open beyond the public internet.
    pub fn describe(&self) -> Option<String> {
        let allowed: Vec<_> = self.allow.iter().map(Entry::to_string).collect();
        (!allowed.is_empty()).then(|| allowed.join(", "))
    }

    /// A port that no address can be called on.
    pub(super) fn is_closed_port(&self, port: u16) -> bool {
        !self.has_port(port) && !self.allow.iter().any(|entry| entry.opens_port(port))
    }

    pub(super) fn closed_port(&self, port: u16) -> String {
        let ports: Vec<_> = self.ports.iter().map(shown).collect();
        format!(
            "port {port} is not among those that may be called ({}); an operator can change them with outbound_ports",
            ports.join(", ")
        )
    }

    /// Whether this process listens on that port on every address that it has.
    pub(super) fn listens_everywhere_on(&self, port: u16) -> bool {
        self.never.iter().any(|never| never.ip().is_unspecified() && never.port() == port)
    }

    fn has_port(&self, port: u16) -> bool {
        self.ports.iter().any(|ports| ports.contains(&port))
    }

    fn is_never(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.never.iter().filter(|never| never.port() == address.port()).any(|never| {
            let never = never.ip().to_canonical();
            never == ip || (never.is_unspecified() && (ip.is_loopback() || ip.is_unspecified()))
        })
    }

    fn behind_nat64(&self, address: IpAddr) -> Option<Ipv4Addr> {
        let IpAddr::V6(v6) = address else { return None };
        let is_translated = self.nat64.iter().any(|prefix| prefix.contains(address));
        let [.., a, b, c, d] = v6.octets();
        is_translated.then(|| Ipv4Addr::new(a, b, c, d))
    }
}

/// For a URL whose host is an address.
pub(super) fn not_public_literal() -> String {
    "the address in the url is not a public one; an operator can allow it with outbound_allow".to_owned()
}

/// Why an address is not on the public internet, if it is not.
fn special(address: IpAddr) -> Option<&'static str> {
    let why_in =
        |table: &[(Cidr, &'static str)]| table.iter().find(|(range, _)| range.contains(address)).map(|(_, why)| *why);
    match address {
        IpAddr::V4(_) => why_in(IPV4_SPECIAL),
        IpAddr::V6(_) if !IPV6_GLOBAL.contains(address) => Some("outside of 2000::/3"),
        IpAddr::V6(v6) if is_isatap(v6) => Some("ISATAP (RFC 5214)"),
        IpAddr::V6(_) => why_in(IPV6_SPECIAL),
    }
}

fn shown(ports: &RangeInclusive<u16>) -> String {
    if ports.start() == ports.end() { ports.start().to_string() } else { format!("{}-{}", ports.start(), ports.end()) }
}
