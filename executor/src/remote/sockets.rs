//! Listening TCP sockets of the machine, and the processes that have them.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::ffi::OsStrExt as _;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// A listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listener {
    pub address: IpAddr,
    pub port: u16,
    pub inode: u64,
}

impl Listener {
    /// Whether a connection to this loopback address can reach it.
    pub fn serves(&self, target: IpAddr) -> bool {
        match (self.address, target) {
            // A socket of `::` usually takes connections of IPv4, too.
            (IpAddr::V6(own), IpAddr::V4(target)) => {
                own.is_unspecified()
                    || own
                        .to_ipv4_mapped()
                        .is_some_and(|own| own.is_unspecified() || own == target)
            }
            (own, target) => {
                own == target || (own.is_unspecified() && own.is_ipv4() == target.is_ipv4())
            }
        }
    }
}

/// Returns the sockets that listen on this port.
pub fn listeners(port: u16) -> Vec<Listener> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = tables.map(|path| fs::read_to_string(path).unwrap_or_default());
    let lines = texts.iter().flat_map(|text| text.lines());
    lines
        .filter_map(parse)
        .filter(|listener| listener.port == port)
        .collect()
}

/// Returns the sockets of these processes, by their inodes.
pub fn sockets_of(processes: impl IntoIterator<Item = i32>) -> BTreeSet<u64> {
    let mut inodes = BTreeSet::new();
    for pid in processes {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for descriptor in descriptors.flatten() {
            let Ok(link) = fs::read_link(descriptor.path()) else {
                continue;
            };
            let name = String::from_utf8_lossy(link.as_os_str().as_bytes()).into_owned();
            let inode: Option<u64> = name
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']')?.parse().ok());
            inodes.extend(inode);
        }
    }
    inodes
}

/// Parses a line of `/proc/net/tcp` or `tcp6`; `None` unless it is a listening socket.
fn parse(line: &str) -> Option<Listener> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if *fields.get(3)? != LISTEN {
        return None;
    }
    let (address, port) = fields.get(1)?.split_once(':')?;
    Some(Listener {
        address: parse_address(address)?,
        port: u16::from_str_radix(port, 16).ok()?,
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// Words of 32 bits in the byte order of the machine.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let words = hex.as_bytes().chunks(8).map(|word| {
        let word = u32::from_str_radix(str::from_utf8(word).ok()?, 16).ok()?;
        Some(word.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<_>>>()?.concat();
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

    #[test]
    fn own_listener_is_found_with_its_process() {
        let socket = TcpListener::bind((V4, 0)).expect("a port");
        let port = socket.local_addr().expect("an address").port();
        let found = listeners(port);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].address, V4);
        let own = i32::try_from(std::process::id()).expect("small");
        assert!(sockets_of([own]).contains(&found[0].inode));
        assert!(!sockets_of([1]).contains(&found[0].inode));
        drop(socket);
        assert_eq!(listeners(port), []);
    }

    #[test]
    fn listener_serves_loopback_addresses() {
        let cases = [
            ("127.0.0.1", true, false),
            ("0.0.0.0", true, false),
            ("::", true, true),
            ("::1", false, true),
            ("::ffff:127.0.0.1", true, false),
            ("192.0.2.1", false, false),
        ];
        for (address, v4, v6) in cases {
            let listener = Listener {
                address: address.parse().expect("an address"),
                port: 1,
                inode: 1,
            };
            let found = (listener.serves(V4), listener.serves(V6));
            assert_eq!(found, (v4, v6), "{address}");
        }
    }
}
