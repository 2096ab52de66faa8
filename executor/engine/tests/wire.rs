//! The sockets of the data plane: what they ask of the system.

use muster_engine::wire::Connection;
use socket2::SockRef;
use std::net::{TcpListener, TcpStream};

/// Pacing halves what two tasks of one machine can tell each other.
#[test]
fn neither_end_of_a_connection_within_this_machine_is_paced() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (here, _) = listener.accept().unwrap();
    for end in [here, there] {
        let connection = Connection::new(end).unwrap();
        let control = SockRef::from(&connection).tcp_congestion().unwrap();
        assert!(control.starts_with(b"reno\0"), "{control:?}");
    }
}
