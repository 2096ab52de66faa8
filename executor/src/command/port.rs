//! Reserved port of each process of a command, free until the program listens on it seconds later.
//!
//! A program receives its port and listens itself, so its socket cannot be opened in advance.
//! Reserved numbers are below the range from which the kernel assigns ports. A reservation is an
//! abstract Unix socket named after the number. It is unique in a network namespace, also among
//! several executors, and ends with the last process that holds it.

use crate::clock;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

const LOWEST: u16 = 10_000;
/// Start of the kernel's range, if the kernel does not report it.
const USUAL_LIMIT: u16 = 32_768;

/// A reserved port.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    number: u16,
    hold: UnixListener,
}

impl ReservedPort {
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Passes the reservation to the program that this process becomes.
    pub(crate) fn hand_on(&self) -> io::Result<()> {
        let flags = fcntl_getfd(&self.hold)?;
        Ok(fcntl_setfd(&self.hold, flags - FdFlags::CLOEXEC)?)
    }
}

/// Reserves a port on which no process listens.
pub(crate) fn reserve() -> io::Result<ReservedPort> {
    let range = range(fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok());
    let count = range.end - range.start;
    // Starts at a random number, so that two nodes rarely try the same one.
    let first = u16::try_from(clock::random() % u64::from(count)).expect("below a port");
    for step in 0..count {
        let number = range.start + (first + step) % count;
        if let Some(hold) = hold(number)? {
            return Ok(ReservedPort { number, hold });
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("all of the ports {range:?} are taken"),
    ))
}

/// Reserves a port and listens on it at once.
pub(crate) fn listen(host: IpAddr) -> io::Result<TcpListener> {
    let port = reserve()?;
    TcpListener::bind((host, port.number()))
}

fn range(kernels: Option<String>) -> Range<u16> {
    let lowest = kernels.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
    let limit: u16 = lowest.unwrap_or(USUAL_LIMIT).min(USUAL_LIMIT);
    // If the kernel's range begins too low, the default range is used although the two overlap.
    if limit > LOWEST + 1_000 {
        LOWEST..limit
    } else {
        LOWEST..USUAL_LIMIT
    }
}

fn hold(number: u16) -> io::Result<Option<UnixListener>> {
    let name = SocketAddr::from_abstract_name(format!("muster-port-{number}"))?;
    let Ok(hold) = UnixListener::bind_addr(&name) else {
        return Ok(None);
    };
    let is_free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, number)).is_ok();
    Ok(is_free.then_some(hold))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_reserved_once_until_its_release() {
        let port = reserve().expect("a port");
        let number = port.number();
        assert!(hold(number).expect("asked").is_none());
        // The program itself may listen there.
        let listener = TcpListener::bind(("127.0.0.1", number)).expect("free for the program");
        drop(port);
        assert!(hold(number).expect("asked").is_none(), "in use");
        drop(listener);
        assert!(hold(number).expect("asked").is_some());
    }

    #[test]
    fn ports_are_below_the_kernels_range() {
        assert_eq!(range(Some("32768\t60999\n".to_owned())), 10_000..32_768);
        assert_eq!(range(Some("20000 60999".to_owned())), 10_000..20_000);
        assert_eq!(range(Some("1024 65535".to_owned())), 10_000..32_768);
        assert_eq!(range(None), 10_000..32_768);
    }
}
