//! The addresses that may be connected to: public ones, and those that a server's entry allows
//! besides.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address (the registries of RFC 6890, as far as they matter here).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The Internet at large.
    Public,
    /// This host.
    Loopback,
    /// A site: RFC 1918, RFC 4193, and RFC 6598 (behind a carrier's translator, used by overlay
    /// networks too).
    Private,
    /// This link. Services that tell a host its identity and credentials use such addresses.
    LinkLocal,
    /// Documentation, benchmarks, protocols or later use. Only an entry with an explicit network
    /// allows it.
    Reserved,
    /// Unspecified, multicast, broadcast: never the address of a server. No entry allows it.
    None,
}

impl Class {
    /// The classes that an entry can allow by name.
    pub const NAMED: [(&'static str, Class); 3] = [
        ("loopback", Class::Loopback),
        ("private", Class::Private),
        ("link-local", Class::LinkLocal),
    ];

    /// The class of an address. An address with an IPv4 address inside (mapped, translated, 6to4)
    /// is of the inner address's class, since a packet may end there.
    pub fn of(address: IpAddr) -> Class {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => match embedded(address) {
                Some(inner) => of_v4(inner),
                None => of_v6(address),
            },
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Public => "a public address",
            Class::Loopback => "a loopback address",
            Class::Private => "a private address",
            Class::LinkLocal => "a link-local address",
            Class::Reserved => "a reserved address",
            Class::None => "no address of a server",
        })
    }
}

fn of_v4(address: Ipv4Addr) -> Class {
    let octets = address.octets();
    match octets {
        [127, ..] => Class::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Class::Private,
        [169, 254, ..] => Class::LinkLocal,
        [0, 0, 0, 0] | [224..=239, ..] | [255, 255, 255, 255] => Class::None,
        [0, ..]
        | [240..=255, ..]
        | [192, 0, 0 | 2, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => Class::Reserved,
        [192, 88, 99, _] => Class::Reserved,
        _ => Class::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> Class {
    let parts = address.segments();
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0] => Class::None,
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Loopback,
        [0xff00..=0xffff, ..] => Class::None,
        [0xfe80..=0xfebf, ..] => Class::LinkLocal,
        // Unique local, and the older site-local addresses. Also the prefix that a site's own
        // translator uses (RFC 8215): only the site knows the place of the IPv4 address in it.
        [0xfc00..=0xfdff, ..] | [0xfec0..=0xfeff, ..] | [0x64, 0xff9b, 1, ..] => Class::Private,
        // Protocol assignments (Teredo and ORCHID among them), documentation.
        [0x2001, 0x0000..=0x01ff, ..] | [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => {
            Class::Reserved
        }
        [0x2000..=0x3fff, ..] => Class::Public,
        _ => Class::Reserved,
    }
}

/// The IPv4 address that an IPv6 address stands for.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let parts = address.segments();
    let of = |high: u16, low: u16| Some(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    match parts {
        // Mapped, compatible (`::` and `::1` are none), translated (RFC 6052), 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] => of(high, low),
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => of(high, low),
        [0, 0, 0, 0, 0xffff, 0, high, low] => of(high, low),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => of(high, low),
        [0x2002, high, low, ..] => of(high, low),
        _ => None,
    }
}

/// An exception of an entry: addresses that it allows besides public ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedTarget {
    /// All addresses of a class.
    Class(Class),
    /// The addresses of a network.
    Network {
        /// Any address of the network.
        address: IpAddr,
        /// The length of the prefix in bits.
        bits: u8,
    },
}

impl AllowedTarget {
    /// Reads `loopback`, `private`, `link-local`, an address, or a network in CIDR notation. `None`
    /// for any other text.
    pub fn parse(text: &str) -> Option<AllowedTarget> {
        if let Some((_, class)) = Class::NAMED.iter().find(|(name, _)| *name == text) {
            return Some(AllowedTarget::Class(*class));
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|digit| digit.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
            None => most,
        };
        (bits <= most).then_some(AllowedTarget::Network { address, bits })
    }

    fn allows(&self, address: IpAddr) -> bool {
        match self {
            AllowedTarget::Class(class) => Class::of(address) == *class,
            AllowedTarget::Network { address: of, bits } => {
                let same = |one: u128, other: u128, width: u32| {
                    let rest = width - u32::from(*bits);
                    rest == width || one >> rest == other >> rest
                };
                // An IPv4 address, and the same address inside an IPv6 one, match each other.
                let plain = |address: IpAddr| match address {
                    IpAddr::V6(inner) => embedded(inner).map_or(address, IpAddr::V4),
                    address => address,
                };
                match (of, address, plain(address)) {
                    (IpAddr::V4(of), _, IpAddr::V4(address)) => {
                        same(u128::from(of.to_bits()), u128::from(address.to_bits()), 32)
                    }
                    (IpAddr::V6(of), IpAddr::V6(address), _) => {
                        same(of.to_bits(), address.to_bits(), 128)
                    }
                    _ => false,
                }
            }
        }
    }
}

/// True if the address may be connected to.
pub(crate) fn may_connect(address: IpAddr, allowed: &[AllowedTarget]) -> bool {
    match Class::of(address) {
        Class::Public => true,
        Class::None => false,
        _ => allowed.iter().any(|allowed| allowed.allows(address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Class {
        Class::of(text.parse().unwrap())
    }

    #[test]
    fn every_kind_of_address_has_its_class() {
        for (class_of, addresses) in [
            (
                Class::Public,
                "1.1.1.1 9.9.9.9 100.63.0.1 172.32.0.1 2606:4700::1111 2a00::1 64:ff9b::101:101",
            ),
            (
                Class::Loopback,
                "127.0.0.1 127.9.9.9 ::1 ::ffff:127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::",
            ),
            (Class::Loopback, "::127.0.0.1 ::ffff:0:127.0.0.1"),
            (
                Class::Private,
                "10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 100.64.0.1 fd00::1 fec0::1",
            ),
            (Class::Private, "::ffff:10.0.0.1 2002:a00:1::1"),
            // 127.0.0.1 as RFC 6052 §2.2 writes it behind 48 bits, with a public address at the
            // end.
            (
                Class::Private,
                "64:ff9b:1:7f00:0:100:101:101 64:ff9b:1::101:101",
            ),
            (
                Class::LinkLocal,
                "169.254.169.254 fe80::1 ::ffff:169.254.169.254",
            ),
            (
                Class::None,
                "0.0.0.0 224.0.0.1 255.255.255.255 :: ff02::1 ::ffff:0.0.0.0",
            ),
            (
                Class::Reserved,
                "0.1.2.3 192.0.2.1 198.18.0.1 198.51.100.1 203.0.113.9 240.0.0.1 192.0.0.8",
            ),
            (
                Class::Reserved,
                "2001:db8::1 2001::1 100::1 3fff::1 4000::1",
            ),
        ] {
            for address in addresses.split(' ') {
                assert_eq!(class(address), class_of, "{address}");
            }
        }
    }

    #[test]
    fn an_entry_allows_classes_and_networks() {
        let may = |address: &str, allowed: &[&str]| {
            let allowed: Vec<_> = allowed
                .iter()
                .map(|text| AllowedTarget::parse(text).unwrap())
                .collect();
            may_connect(address.parse().unwrap(), &allowed)
        };
        assert!(may("1.1.1.1", &[]) && !may("127.0.0.1", &[]));
        assert!(may("127.0.0.1", &["loopback"]) && may("::ffff:127.0.0.1", &["loopback"]));
        assert!(!may("10.0.0.1", &["loopback", "link-local"]) && may("10.0.0.1", &["private"]));
        assert!(may("10.1.2.3", &["10.1.0.0/16"]) && !may("10.2.2.3", &["10.1.0.0/16"]));
        assert!(may("::ffff:10.1.2.3", &["10.1.0.0/16"]));
        assert!(may("192.0.2.7", &["192.0.2.7"]) && !may("192.0.2.8", &["192.0.2.7"]));
        assert!(may("fd00:1::5", &["fd00:1::/32"]) && !may("fd00:2::5", &["fd00:1::/32"]));
        assert!(may("10.0.0.1", &["0.0.0.0/0"]) && may("fd00::1", &["::/0"]));
        // No entry allows an address that no server can have.
        assert!(!may("0.0.0.0", &["0.0.0.0/0"]) && !may("224.0.0.1", &["224.0.0.1"]));
        for wrong in [
            "",
            "local",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "::/129",
            "10.0.0",
            "Private",
        ] {
            assert_eq!(AllowedTarget::parse(wrong), None, "{wrong}");
        }
    }
}
