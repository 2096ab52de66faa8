//! Connections: slow and idle ones are closed, active ones are not, and their number is limited.

use crate::world::{RED, World};
use axum::http::StatusCode;
use muster_api::config::ClientLimits;
use muster_api::connection;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Far above the time of any answer; a test that waits this long fails.
const PATIENCE: Duration = Duration::from_secs(30);

struct Served {
    world: World,
    address: SocketAddr,
    stopping: CancellationToken,
    server: JoinHandle<()>,
}

async fn serve(limits: ClientLimits) -> Served {
    let world = World::with(limits).await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let stopping = CancellationToken::new();
    let (router, app) = (world.router.clone(), world.app.clone());
    let server = tokio::spawn(connection::serve(listener, router, app, stopping.clone()));
    Served {
        world,
        address,
        stopping,
        server,
    }
}

impl Served {
    /// Also closes the connections to Postgres: one that is still being opened would delay the
    /// server's end by a minute.
    async fn end(self) {
        self.stopping.cancel();
        self.server.await.expect("no panic");
        self.world.app.pool.close().await;
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("connected")
    }
}

/// Reads until the server closes the connection, or resets it.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text)).await;
    let _ = read.expect("the server closes the connection");
    String::from_utf8(text).expect("text")
}

/// Reads until the text has arrived.
async fn until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let mut block = [0; 4096];
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut block)).await;
        let count = read.expect("in time").expect("read");
        assert!(count > 0, "closed after {text:?}, before {wanted:?}");
        text.push_str(std::str::from_utf8(&block[..count]).expect("text"));
    }
    text
}

async fn get(stream: &mut TcpStream, path: &str, token: &str) -> String {
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    until(stream, "\r\n\r\n").await
}

#[tokio::test]
async fn slow_header_ends_the_connection() {
    let served = serve(ClientLimits {
        header_timeout_ms: 300,
        ..ClientLimits::default()
    })
    .await;
    let mut stream = served.connect().await;
    let (mut reader, mut writer) = stream.split();
    let slowly = async {
        writer.write_all(b"GET /healthz HTTP/1.1\r\nx: ").await?;
        loop {
            writer.write_all(b"a").await?;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        #[expect(unreachable_code, reason = "names the type of the error")]
        Ok::<(), std::io::Error>(())
    };
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, async {
        tokio::select! {
            _ = slowly => {}
            _ = reader.read_to_end(&mut answer) => {}
        }
    });
    closed.await.expect("the server closes the connection");
    assert!(answer.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn silent_connection_is_closed() {
    let served = serve(ClientLimits {
        header_timeout_ms: 100,
        ..ClientLimits::default()
    })
    .await;
    assert_eq!(rest(&mut served.connect().await).await, "");
}

#[tokio::test]
async fn idle_connection_outlives_the_header_timeout() {
    let served = serve(ClientLimits {
        header_timeout_ms: 100,
        ..ClientLimits::default()
    })
    .await;
    let mut stream = served.connect().await;
    assert!(get(&mut stream, "/healthz", RED).await.contains("200 OK"));
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(get(&mut stream, "/healthz", RED).await.contains("200 OK"));
    // The next header is slow again.
    stream.write_all(b"GET /hea").await.expect("sent");
    rest(&mut stream).await;
}

#[tokio::test]
async fn idle_connection_is_closed_after_its_timeout() {
    let served = serve(ClientLimits {
        idle_timeout_ms: 200,
        ..ClientLimits::default()
    })
    .await;
    let mut stream = served.connect().await;
    assert!(get(&mut stream, "/healthz", RED).await.contains("200 OK"));
    rest(&mut stream).await;
}

#[tokio::test]
async fn event_stream_outlives_all_timeouts() {
    let served = serve(ClientLimits {
        header_timeout_ms: 100,
        idle_timeout_ms: 100,
        ..ClientLimits::default()
    })
    .await;
    let mut stream = served.connect().await;
    get(&mut stream, "/api/v1/stream", RED).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let job = served.world.submit("late").await;
    until(&mut stream, &job.to_string()).await;
}

#[tokio::test]
async fn connections_above_the_limit_are_refused_with_503() {
    let served = serve(ClientLimits {
        connections: 2,
        ..ClientLimits::default()
    })
    .await;
    let mut first = served.connect().await;
    let mut second = served.connect().await;
    assert!(get(&mut first, "/healthz", RED).await.contains("200 OK"));
    assert!(get(&mut second, "/healthz", RED).await.contains("200 OK"));
    let answer = rest(&mut served.connect().await).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("limits.connections"), "{answer}");
    let metrics = get_all(&served.world, "/metrics").await;
    assert!(
        metrics.contains("muster_api_connections_refused_total 1"),
        "{metrics}"
    );
    drop(first);
    // The place is free once the server has noticed.
    loop {
        let mut stream = served.connect().await;
        stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .await
            .expect("sent");
        if rest(&mut stream).await.contains("200 OK") {
            return;
        }
    }
}

#[tokio::test]
async fn connections_of_one_address_are_limited_unless_a_proxy() {
    for (proxies, is_refused) in [("", true), ("127.0.0.0/8", false)] {
        let served = serve(ClientLimits {
            connections_per_address: 1,
            trusted_proxies: proxies.parse().expect("networks"),
            ..ClientLimits::default()
        })
        .await;
        let mut first = served.connect().await;
        assert!(get(&mut first, "/healthz", RED).await.contains("200 OK"));
        let mut second = served.connect().await;
        let answer = get(&mut second, "/healthz", RED).await;
        assert_eq!(answer.contains(" 503 "), is_refused, "{answer}");
        drop((first, second));
        served.end().await;
    }
}

#[tokio::test]
async fn stop_ends_streams_and_idle_connections() {
    let served = serve(ClientLimits::default()).await;
    let mut stream = served.connect().await;
    get(&mut stream, "/api/v1/stream", RED).await;
    let mut idle = served.connect().await;
    get(&mut idle, "/healthz", RED).await;
    // The streams end with the app, the connections with the server.
    served.world.stop();
    served.stopping.cancel();
    let ended = tokio::time::timeout(PATIENCE, served.server).await;
    ended.expect("the server ends").expect("no panic");
    rest(&mut stream).await;
    rest(&mut idle).await;
}

async fn get_all(world: &World, path: &str) -> String {
    let answer = world.get(RED, path).await;
    assert_eq!(answer.status, StatusCode::OK);
    answer.text()
}
