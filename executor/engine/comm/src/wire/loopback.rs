//! TCP connections between tasks of one machine that do not share memory.

use socket2::SockRef;
use std::io;
use std::net::TcpStream;

/// Congestion control that every kernel contains and every process may select.
const UNPACED: &[u8] = b"reno";

/// Whether both ends of a connection are on this machine.
fn is_local(stream: &TcpStream) -> io::Result<bool> {
    let (here, there) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
    Ok(there.is_loopback() || here == there)
}

/// Turns off pacing for a connection within this machine, where there is no congestion. BBR, the
/// default of many servers, paces by a measured rate and reduces the throughput of loopback
/// (docs/benchmarks/compute.md). A connection to another machine keeps the setting of its
/// administrator.
pub(super) fn unbrake(stream: &TcpStream) {
    // A peer that has already closed has no address; the connection is then of no use.
    if is_local(stream).unwrap_or(false) {
        // If the kernel refuses, the connection is only slower.
        let _ = SockRef::from(stream).set_tcp_congestion(UNPACED);
    }
}
