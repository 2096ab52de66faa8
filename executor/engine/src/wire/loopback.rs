//! Peers of one machine that speak TCP all the same, as tasks do that share no memory.

use socket2::SockRef;
use std::io;
use std::net::TcpStream;

/// Built into every kernel, and free to every process.
const UNPACED: &[u8] = b"reno";

/// Whether both ends of a connection are on this machine.
fn is_local(stream: &TcpStream) -> io::Result<bool> {
    let (here, there) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
    Ok(there.is_loopback() || here == there)
}

/// Takes the brakes off a connection within this machine, where nothing can be congested: BBR, which many servers have by default, spaces
/// what it sends by a rate that it measures, and moves half of what the machine can (ARCHITECTURE.md has the figures). A connection to
/// another machine keeps what its administrator has chosen.
pub(super) fn unbrake(stream: &TcpStream) {
    // Of a peer that is gone already there is no address, and nothing to be quick for.
    if is_local(stream).unwrap_or(false) {
        // Slower, and no worse, where it is refused.
        let _ = SockRef::from(stream).set_tcp_congestion(UNPACED);
    }
}
