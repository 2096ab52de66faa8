//! A port for each process of a command, free when the program comes to listen on it seconds later.
//!
//! Programs are told their ports and listen by themselves, so we cannot hold the port's own socket. Reserved are numbers below the range
//! from which the kernel gives ports to whoever asks for any; among tasks, also of several executors on one machine, a reservation is an
//! abstract Unix socket named after the number: it exists once in a network namespace, as ports do, and goes with the last process that
//! holds it, however that ends.

use crate::clock;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

const LOWEST: u16 = 10_000;
/// Where the kernel's own range begins when it does not say.
const USUAL_LIMIT: u16 = 32_768;

/// A reserved port.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    hold: UnixListener,
}

impl Port {
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// Leaves the reservation to the program that this process becomes.
    pub(crate) fn hand_on(&self) -> io::Result<()> {
        let flags = fcntl_getfd(&self.hold)?;
        Ok(fcntl_setfd(&self.hold, flags - FdFlags::CLOEXEC)?)
    }
}

/// Reserves a port on which nobody listens.
pub(crate) fn reserve() -> io::Result<Port> {
    let range = range(fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok());
    let count = range.end - range.start;
    // Somewhere in the range, so that two nodes rarely try the same.
    let first = u16::try_from(clock::random() % u64::from(count)).expect("below a port");
    for step in 0..count {
        let number = range.start + (first + step) % count;
        if let Some(hold) = hold(number)? {
            return Ok(Port { number, hold });
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("all of the ports {range:?} are taken"),
    ))
}

/// Listens on such a port of the loopback at once.
pub(crate) fn listen(host: IpAddr) -> io::Result<TcpListener> {
    let port = reserve()?;
    TcpListener::bind((host, port.number()))
}

fn range(kernels: Option<String>) -> Range<u16> {
    let lowest = kernels.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok());
    let limit: u16 = lowest.unwrap_or(USUAL_LIMIT).min(USUAL_LIMIT);
    // A machine that gives away nearly all of them leaves us no quiet place.
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
    fn a_port_is_reserved_once_until_it_is_let_go() {
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
    fn ports_lie_below_those_that_the_kernel_gives_away() {
        assert_eq!(range(Some("32768\t60999\n".to_owned())), 10_000..32_768);
        assert_eq!(range(Some("20000 60999".to_owned())), 10_000..20_000);
        assert_eq!(range(Some("1024 65535".to_owned())), 10_000..32_768);
        assert_eq!(range(None), 10_000..32_768);
    }
}
