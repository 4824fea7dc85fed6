//! The lists that an operator writes: blocks with or without a port, ports, NAT64 prefixes.
//!
//! No names: a name does not say where it leads.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use super::ranges::{Cidr, LOOPBACK, PRIVATE};

/// 1,000: each is compared with every address that is called.
const ENTRIES_MAX: usize = 1_000;

/// What is wrong with a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotAPolicy(String);

impl NotAPolicy {
    fn new(entry: &str, why: &str) -> Self {
        Self(format!("{entry:?} {why}"))
    }
}

/// One entry of an allow or a deny list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    blocks: Vec<Cidr>,
    port: Option<u16>,
    word: Option<&'static str>,
}

impl Entry {
    pub(super) fn covers(&self, address: SocketAddr) -> bool {
        self.port.is_none_or(|port| port == address.port()) && self.blocks.iter().any(|b| b.contains(address.ip()))
    }

    /// Whether it names exactly this address, and no other with it.
    pub(super) fn names(&self, address: SocketAddr) -> bool {
        self.covers(address) && self.blocks.iter().all(Cidr::is_single) && self.word.is_none()
    }

    /// Whether it opens this port, by naming it.
    pub(super) fn opens_port(&self, port: u16) -> bool {
        self.port == Some(port)
    }

    /// Whether it says which port.
    pub(super) fn has_port(&self) -> bool {
        self.port.is_some()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(word) = self.word {
            return f.write_str(word);
        }
        for block in &self.blocks {
            let network = block.network();
            let prefix = if block.is_single() { String::new() } else { format!("/{}", block.prefix()) };
            match self.port {
                Some(port) if network.is_ipv6() => write!(f, "[{network}{prefix}]:{port}")?,
                Some(port) => write!(f, "{network}{prefix}:{port}")?,
                None => write!(f, "{network}{prefix}")?,
            }
        }
        Ok(())
    }
}

/// Whether an entry may cover all there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Everything {
    /// "Allow everything" is how a guard is lost.
    Refused,
    Taken,
}

/// `10.1.2.0/24, 10.1.2.3:8080, [fd00::/8]:443, private, loopback`.
pub(super) fn entries(list: &str, everything: Everything) -> Result<Vec<Entry>, NotAPolicy> {
    items(list)?.into_iter().map(|text| entry(text, everything)).collect()
}

fn entry(text: &str, everything: Everything) -> Result<Entry, NotAPolicy> {
    let word = |word, blocks: &[Cidr]| Ok(Entry { blocks: blocks.to_vec(), port: None, word: Some(word) });
    match text {
        "private" => return word("private", PRIVATE),
        "loopback" => return word("loopback", LOOPBACK),
        _ => {}
    }
    let wrong = |why| NotAPolicy::new(text, why);
    let (block, port) = block_and_port(text).ok_or_else(|| wrong("has a port that cannot be read"))?;
    let (network, prefix) = block.split_once('/').map_or((block, None), |(network, prefix)| (network, Some(prefix)));
    let network: IpAddr = network.parse().map_err(|_| {
        wrong("is neither an address, nor a block like 10.1.2.0/24, nor private or loopback; names are not taken")
    })?;
    if let IpAddr::V6(v6) = network
        && v6.to_ipv4_mapped().is_some()
    {
        return Err(wrong("is an IPv4 address in IPv6: write it as IPv4"));
    }
    let block = match prefix {
        None => Cidr::single(network),
        Some(prefix) => prefix
            .parse()
            .ok()
            .and_then(|prefix| Cidr::new(network, prefix))
            .ok_or_else(|| wrong("has a prefix that does not fit its address"))?,
    };
    if block.prefix() == 0 && everything == Everything::Refused {
        return Err(wrong("names everything"));
    }
    Ok(Entry { blocks: vec![block], port, word: None })
}

/// The block, and the port behind it if there is one. `None`: there is something behind it that is none.
fn block_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (block, port) = rest.split_once(']')?;
        return match port.strip_prefix(':') {
            Some(port) => Some((block, Some(port_of(port)?))),
            None if port.is_empty() => Some((block, None)),
            None => None,
        };
    }
    match text.split_once(':') {
        // More than one colon: IPv6 without brackets, which has no port.
        Some((block, port)) if !port.contains(':') => Some((block, Some(port_of(port)?))),
        _ => Some((text, None)),
    }
}

fn port_of(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0 && text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// `80,443,1024-65535`.
pub(super) fn ports(list: &str) -> Result<Vec<RangeInclusive<u16>>, NotAPolicy> {
    let ports: Vec<_> = items(list)?
        .into_iter()
        .map(|text| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            match (port_of(first.trim()), port_of(last.trim())) {
                (Some(first), Some(last)) if first <= last => Ok(first..=last),
                _ => Err(NotAPolicy::new(text, "is neither a port nor a range of ports like 1024-65535")),
            }
        })
        .collect::<Result<_, _>>()?;
    if ports.is_empty() { Err(NotAPolicy("there is no port in the list of ports".to_owned())) } else { Ok(ports) }
}

/// `64:ff9b::/96`: the address behind the prefix is the last 32 bits.
pub(super) fn nat64_prefixes(list: &str) -> Result<Vec<Cidr>, NotAPolicy> {
    items(list)?
        .into_iter()
        .map(|text| {
            let network = text.strip_suffix("/96").and_then(|network| network.parse().ok()).filter(IpAddr::is_ipv6);
            network
                .and_then(|network| Cidr::new(network, 96))
                .ok_or_else(|| NotAPolicy::new(text, "is not a NAT64 prefix of 96 bits like 64:ff9b::/96"))
        })
        .collect()
}

fn items(list: &str) -> Result<Vec<&str>, NotAPolicy> {
    let items: Vec<_> = list.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    if items.len() > ENTRIES_MAX {
        return Err(NotAPolicy(format!("the list has {} entries, more than {ENTRIES_MAX}", items.len())));
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(list: &str) -> Result<Vec<String>, String> {
        let entries = entries(list, Everything::Refused).map_err(|error| error.to_string())?;
        Ok(entries.iter().map(Entry::to_string).collect())
    }

    #[test]
    fn a_list_reads_as_it_was_written() {
        for written in [
            "10.1.2.0/24",
            "10.1.2.3",
            "10.1.2.3:8080",
            "10.1.2.0/24:8080",
            "fd00::1",
            "fd00::/8",
            "[fd00::/8]:443",
            "[fd00::1]:443",
            "private",
            "loopback",
        ] {
            assert_eq!(allowed(written).as_deref(), Ok(&[written.to_owned()][..]));
        }
        assert_eq!(allowed(" private ,, 10.0.0.1/32,"), Ok(vec!["private".to_owned(), "10.0.0.1".to_owned()]));
        assert_eq!(allowed(""), Ok(vec![]));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_reason() {
        for (written, reason) in [
            ("0.0.0.0/0", "names everything"),
            ("::/0", "names everything"),
            ("[::/0]:443", "names everything"),
            ("10.1.2.3/24", "does not fit"),
            ("10.1.2.0/33", "does not fit"),
            ("10.1.2.0/x", "does not fit"),
            ("hooks.example.org", "names are not taken"),
            ("*", "names are not taken"),
            ("Private", "names are not taken"),
            ("010.1.2.3", "names are not taken"),
            ("::ffff:10.1.2.3", "write it as IPv4"),
            ("10.1.2.3:0", "port"),
            ("10.1.2.3:70000", "port"),
            ("10.1.2.3:+80", "port"),
            ("[fd00::1]443", "port"),
            ("[fd00::1", "port"),
        ] {
            let error = allowed(written).unwrap_err();
            assert!(error.contains(reason), "{written}: {error}");
        }
        assert!(entries("0.0.0.0/0", Everything::Taken).is_ok(), "to deny everything is a way to switch it off");
        assert!(allowed(&"10.0.0.1,".repeat(1001)).unwrap_err().contains("more than 1000"));
    }

    #[test]
    fn ports_and_nat64_prefixes_are_read_strictly() {
        assert_eq!(ports("80, 443,1024-65535"), Ok(vec![80..=80, 443..=443, 1024..=65535]));
        for wrong in ["", "0", "80-", "-80", "443-80", "http", "65536"] {
            assert!(ports(wrong).is_err(), "{wrong}");
        }
        assert_eq!(nat64_prefixes("64:ff9b::/96").unwrap().len(), 1);
        for wrong in ["64:ff9b::", "64:ff9b::/64", "64:ff9b::1/96", "10.0.0.0/96", "x/96"] {
            assert!(nat64_prefixes(wrong).is_err(), "{wrong}");
        }
    }
}
