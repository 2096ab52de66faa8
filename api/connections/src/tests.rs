//! Tests with a server on a real socket.

use super::{ConnectionLimits, serve_until};
use axum::Router;
use axum::routing::get;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(20);

async fn server(bounds: ConnectionLimits) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().route("/", get(async || "served"));
    let server = serve_until(listener, router, bounds, (), CancellationToken::new());
    (address, tokio::spawn(server))
}

/// Returns what the server sends until it closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut text));
    read.await.expect("the connection is closed").expect("text");
    text
}

async fn asks(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    // The server may have refused the connection before the request.
    let _ = stream.write_all(request).await;
    rest(&mut stream).await
}

#[tokio::test]
async fn silent_connections_are_limited_and_time_out() {
    let (address, _server) = server(ConnectionLimits {
        connections: 3,
        header_timeout: Duration::from_millis(500),
        ..ConnectionLimits::OF_A_DAEMON
    })
    .await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(address).await.expect("connected"));
    }
    let refused = asks(address).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    for stream in &mut silent {
        assert_eq!(rest(stream).await, "", "nothing was asked");
    }
    let served = asks(address).await;
    assert!(served.ends_with("served"), "{served}");
}

#[tokio::test]
async fn connections_end_when_their_server_is_dropped() {
    let (address, server) = server(ConnectionLimits::OF_A_DAEMON).await;
    let mut stream = TcpStream::connect(address).await.expect("connected");
    let request = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";
    stream.write_all(request).await.expect("sent");
    let mut answer = [0; 1024];
    let count = stream.read(&mut answer).await.expect("an answer");
    assert!(count > 0);
    server.abort();
    assert_eq!(rest(&mut stream).await, "");
}
