//! Client address for which a request counts.

use axum::extract::{ConnectInfo, Request};
use axum::http::HeaderMap;
use ipnet::IpNet;
use serde::Deserialize;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Addresses of proxies whose header `X-Forwarded-For` is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Networks(Vec<IpNet>);

/// Text that is neither an address nor a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("trusted_proxies has {text:?}; expected an IP address or a network such as 10.0.0.0/8")]
pub struct NetworksError {
    text: String,
}

/// Client for which a request counts before its token is known: an IPv4 address, or the first 64
/// bits of an IPv6 address. One host has all addresses below these bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientAddress(pub IpAddr);

impl Networks {
    /// Parses a list of addresses and networks.
    ///
    /// # Errors
    /// If an entry is neither an address nor a network.
    pub fn read<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, NetworksError> {
        let entries = entries.into_iter().map(str::trim);
        let entries = entries.filter(|entry| !entry.is_empty());
        Ok(Self(entries.map(network).collect::<Result<_, _>>()?))
    }

    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

fn network(text: &str) -> Result<IpNet, NetworksError> {
    let address = IpAddr::from_str(text).map(IpNet::from);
    address
        .or_else(|_| IpNet::from_str(text))
        .map_err(|_| NetworksError {
            text: text.to_owned(),
        })
}

impl TryFrom<Vec<String>> for Networks {
    type Error = NetworksError;

    fn try_from(entries: Vec<String>) -> Result<Self, NetworksError> {
        Self::read(entries.iter().map(String::as_str))
    }
}

impl FromStr for Networks {
    type Err = NetworksError;

    /// Parses entries that are separated by commas.
    fn from_str(text: &str) -> Result<Self, NetworksError> {
        Self::read(text.split(','))
    }
}

impl ClientAddress {
    /// Returns `None` if the request has no connection, as in tests of the router.
    #[must_use]
    pub fn of(request: &Request, proxies: &Networks) -> Option<Self> {
        let ConnectInfo(peer) = request.extensions().get::<ConnectInfo<SocketAddr>>()?;
        Some(Self::behind(
            peer.ip().to_canonical(),
            request.headers(),
            proxies,
        ))
    }

    /// Returns the last address that is no trusted proxy. Each proxy appends the address of its own
    /// client; clients may send any text before that.
    fn behind(peer: IpAddr, headers: &HeaderMap, proxies: &Networks) -> Self {
        let mut found = peer;
        let values = headers.get_all("x-forwarded-for").iter().rev();
        let mut hops = values.flat_map(|value| value.to_str().unwrap_or_default().rsplit(','));
        while proxies.contains(found) {
            let Some(Ok(hop)) = hops.next().map(|hop| IpAddr::from_str(hop.trim())) else {
                break;
            };
            found = hop.to_canonical();
        }
        Self::counted(found)
    }

    fn counted(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self(address),
            IpAddr::V6(address) => Self(Ipv6Addr::from_bits(address.to_bits() & (!0 << 64)).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: &[&str], proxies: &str) -> String {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", value.parse().expect("a header"));
        }
        let peer = peer.parse().expect("an address");
        let proxies = proxies.parse().expect("networks");
        ClientAddress::behind(peer, &headers, &proxies)
            .0
            .to_string()
    }

    #[test]
    fn header_of_unknown_peer_is_ignored() {
        assert_eq!(client("192.0.2.7", &["10.0.0.1"], ""), "192.0.2.7");
        assert_eq!(
            client("192.0.2.7", &["10.0.0.1"], "10.0.0.0/8"),
            "192.0.2.7"
        );
    }

    #[test]
    fn last_address_before_trusted_proxies_is_the_client() {
        let proxies = "10.0.0.0/8, 192.0.2.1";
        assert_eq!(
            client("10.0.0.1", &["198.51.100.4"], proxies),
            "198.51.100.4"
        );
        let forged = ["203.0.113.9, 198.51.100.4", "192.0.2.1"];
        assert_eq!(client("10.0.0.1", &forged, proxies), "198.51.100.4");
    }

    #[test]
    fn proxy_without_readable_header_is_the_client() {
        assert_eq!(client("10.0.0.1", &["unknown"], "10.0.0.0/8"), "10.0.0.1");
        assert_eq!(client("10.0.0.1", &[], "10.0.0.0/8"), "10.0.0.1");
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        assert_eq!(client("2001:db8:1:2:3:4:5:6", &[], ""), "2001:db8:1:2::");
    }

    #[test]
    fn invalid_network_is_refused_by_name() {
        let refused = Networks::from_str("10.0.0.0/8,proxy").expect_err("no network");
        assert!(refused.to_string().contains("\"proxy\""), "{refused}");
    }
}
