//! Which addresses a webhook may be sent to: those of the public internet, and what `allow` opens.
//!
//! Refused is everything that leads into the relay's own network or nowhere. An IPv6 address that
//! carries an IPv4 address (mapped, NAT64) is judged by that; 6to4 and Teredo are refused whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use posthaste_core::options::ConfigError;

/// The ranges that `allow` opens besides the public internet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Guard {
    allowed: Vec<IpNet>,
}

/// An address that may not be connected to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{address} is refused ({kind}): webhooks go to public addresses only; \
     if this one is meant, allow: [\"{}\"] in the target or --allow-net {} opens it",
    IpNet::from(*address), IpNet::from(*address)
)]
pub struct Refused {
    /// The address.
    pub address: IpAddr,
    /// What kind of address it is.
    pub kind: &'static str,
}

impl Guard {
    /// Reads networks (`10.0.0.0/8`) and single addresses; a value may hold several, separated by
    /// commas.
    ///
    /// # Errors
    /// A text that is neither.
    pub fn parse(values: &[String]) -> Result<Guard, ConfigError> {
        let texts = values.iter().flat_map(|value| value.split(',')).map(str::trim);
        let allowed = texts.map(parse_net).collect::<Result<_, _>>()?;
        Ok(Guard { allowed })
    }

    /// Whether `address` may be connected to.
    ///
    /// # Errors
    /// It may not.
    pub fn check(&self, address: IpAddr) -> Result<(), Refused> {
        let carried = carried(address);
        let Some(kind) = refused_kind(carried) else { return Ok(()) };
        let opened = |ip: IpAddr| self.allowed.iter().any(|net| net.contains(&ip));
        if opened(address) || opened(carried) { Ok(()) } else { Err(Refused { address: carried, kind }) }
    }
}

fn parse_net(text: &str) -> Result<IpNet, ConfigError> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse::<IpNet>().or_else(|_| address()).map_err(|_| ConfigError::Option {
        name: "allow".to_owned(),
        detail: format!("{text:?} is no network; write 10.0.0.0/8 or fd00::/8"),
    })
}

/// The IPv4 address that an IPv6 address stands for; any other address itself.
fn carried(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    if let Some(v4) = v6.to_ipv4_mapped() {
        return v4.into();
    }
    let [.., a, b] = v6.segments();
    let nat64 = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);
    if nat64.contains(&v6) {
        return Ipv4Addr::from(u32::from(a) << 16 | u32::from(b)).into();
    }
    address
}

fn refused_kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) => REFUSED_V4.iter().find(|(net, _)| net.contains(&v4)).map(|(_, kind)| *kind),
        IpAddr::V6(v6) => REFUSED_V6
            .iter()
            .find(|(net, _)| net.contains(&v6))
            .map(|(_, kind)| *kind)
            .or_else(|| (!GLOBAL_V6.contains(&v6)).then_some("not a global unicast address")),
    }
}

const fn v4(a: u8, b: u8, c: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), prefix)
}

const fn v6(a: u16, b: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix)
}

const REFUSED_V4: [(Ipv4Net, &str); 16] = [
    (v4(0, 0, 0, 8), "unspecified"),
    (v4(10, 0, 0, 8), "private"),
    (v4(100, 64, 0, 10), "shared by a carrier's NAT"),
    (v4(127, 0, 0, 8), "loopback"),
    (v4(169, 254, 0, 16), "link-local"),
    (v4(172, 16, 0, 12), "private"),
    (v4(192, 0, 0, 24), "reserved for protocols"),
    (v4(192, 0, 2, 24), "documentation"),
    (v4(192, 88, 99, 24), "6to4 relay"),
    (v4(192, 168, 0, 16), "private"),
    (v4(198, 18, 0, 15), "benchmarking"),
    (v4(198, 51, 100, 24), "documentation"),
    (v4(203, 0, 113, 24), "documentation"),
    (v4(224, 0, 0, 4), "multicast"),
    (v4(255, 255, 255, 24), "broadcast"),
    (v4(240, 0, 0, 4), "reserved"),
];

const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 3);

const REFUSED_V6: [(Ipv6Net, &str); 11] = [
    (Ipv6Net::new_assert(Ipv6Addr::UNSPECIFIED, 128), "unspecified"),
    (Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128), "loopback"),
    (v6(0x2001, 0, 32), "Teredo"),
    (v6(0x2001, 0, 23), "reserved for protocols"),
    (v6(0x2001, 0xdb8, 32), "documentation"),
    (v6(0x2002, 0, 16), "6to4"),
    (v6(0x3fff, 0, 20), "documentation"),
    (v6(0xfc00, 0, 7), "private"),
    (v6(0xfe80, 0, 10), "link-local"),
    (v6(0xfec0, 0, 10), "site-local"),
    (v6(0xff00, 0, 8), "multicast"),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind(address: &str) -> Option<&'static str> {
        Guard::default().check(address.parse().unwrap()).err().map(|refused| refused.kind)
    }

    #[test]
    fn lw_43_every_address_that_is_not_public_is_refused() {
        for (address, expected) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.0.0.1", "private"),
            ("100.64.0.1", "shared by a carrier's NAT"),
            ("100.127.255.255", "shared by a carrier's NAT"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("169.254.169.254", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.8", "reserved for protocols"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "6to4 relay"),
            ("192.168.1.1", "private"),
            ("198.19.0.1", "benchmarking"),
            ("198.51.100.1", "documentation"),
            ("203.0.113.1", "documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "broadcast"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::127.0.0.1", "not a global unicast address"),
            ("::8.8.8.8", "not a global unicast address"),
            ("::ffff:127.0.0.1", "loopback"),
            ("::ffff:a00:1", "private"),
            ("64:ff9b::127.0.0.1", "loopback"),
            ("64:ff9b::a9fe:a9fe", "link-local"),
            ("64:ff9b:1::8.8.8.8", "not a global unicast address"),
            ("100::1", "not a global unicast address"),
            ("2001::1", "Teredo"),
            ("2001:20::1", "reserved for protocols"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::", "6to4"),
            ("2002:808:808::", "6to4"),
            ("3fff::1", "documentation"),
            ("5f00::1", "not a global unicast address"),
            ("fc00::1", "private"),
            ("fd12:3456::1", "private"),
            ("fe80::1", "link-local"),
            ("fec0::1", "site-local"),
            ("ff02::1", "multicast"),
        ] {
            assert_eq!(kind(address), Some(expected), "{address}");
        }
    }

    #[test]
    fn public_addresses_pass_also_where_ipv6_carries_them() {
        for address in [
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001:81b::200e",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
        ] {
            assert_eq!(kind(address), None, "{address}");
        }
    }

    #[test]
    fn decision_35_allow_opens_what_it_names_and_nothing_else() {
        let guard = Guard::parse(&["127.0.0.0/8, fd00::/8".to_owned(), "10.1.2.3".to_owned()]).unwrap();
        for (address, opened) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("fd00::1", true),
            ("10.1.2.3", true),
            ("10.1.2.4", false),
            ("::1", false),
            ("64:ff9b::127.0.0.1", true),
        ] {
            assert_eq!(guard.check(address.parse().unwrap()).is_ok(), opened, "{address}");
        }
        let error = Guard::parse(&["127.0.0.1/33".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("allow") && error.contains("127.0.0.1/33") && error.contains("10.0.0.0/8"), "{error}");
    }

    #[test]
    fn decision_35_the_refusal_names_both_ways_to_allow_it() {
        let refused = Guard::default().check("127.0.0.1".parse().unwrap()).unwrap_err().to_string();
        assert!(refused.contains(r#"allow: ["127.0.0.1/32"]"#), "{refused}");
        assert!(refused.contains("--allow-net 127.0.0.1/32") && refused.contains("loopback"), "{refused}");
    }

    proptest! {
        #[test]
        fn an_ipv4_address_is_judged_alike_in_every_ipv6_form_that_reaches_it(bits in any::<u32>()) {
            let v4 = Ipv4Addr::from(bits);
            let [high, low] = [(bits >> 16) as u16, bits as u16];
            let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
            let expected = Guard::default().check(v4.into());
            prop_assert_eq!(Guard::default().check(v4.to_ipv6_mapped().into()), expected);
            prop_assert_eq!(Guard::default().check(nat64.into()), expected);
            // The standard library's own opinion, as far as it has one.
            if v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_documentation() {
                prop_assert!(expected.is_err());
            }
        }
    }
}
