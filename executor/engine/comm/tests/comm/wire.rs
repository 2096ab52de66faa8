//! Socket options of the parameter exchange.

use muster_comm::wire::Connection;
use socket2::SockRef;
use std::net::{TcpListener, TcpStream};

/// Pacing would reduce the throughput between two tasks of one machine.
#[test]
fn local_connection_is_not_paced_at_either_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (here, _) = listener.accept().unwrap();
    for end in [here, there] {
        let connection = Connection::new(end).unwrap();
        let control = SockRef::from(&connection).tcp_congestion().unwrap();
        assert!(control.starts_with(b"reno\0"), "{control:?}");
    }
}
