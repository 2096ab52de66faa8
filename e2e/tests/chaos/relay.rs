//! Common address of the schedulers on a node, like a Kubernetes service: connections go to the
//! schedulers in rotation.

use crate::stand::NODES_PORT;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::Duration;

const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// Listens in the node's namespace; ends with this process.
pub fn start(namespace: &Path, schedulers: Vec<String>) {
    let space = std::fs::File::open(namespace).expect("a namespace");
    let (listens, listening) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // Affects this thread and the threads that it starts.
        move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("root may enter it");
        let listener = TcpListener::bind(("127.0.0.1", NODES_PORT)).expect("a port of our own");
        listens.send(()).expect("the caller waits");
        for (number, client) in listener.incoming().flatten().enumerate() {
            let scheduler = format!("{}:{NODES_PORT}", schedulers[number % schedulers.len()]);
            std::thread::spawn(move || forward(&client, &scheduler));
        }
    });
    listening.recv().expect("it listens");
}

fn forward(client: &TcpStream, scheduler: &str) {
    let address: SocketAddr = scheduler.parse().expect("an address");
    let Ok(server) = TcpStream::connect_timeout(&address, CONNECT_WITHIN) else {
        return;
    };
    std::thread::scope(|scope| {
        scope.spawn(|| copy(client, &server));
        copy(&server, client);
    });
}

fn copy(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
