//! Node sessions with TLS: executors that trust the authority are accepted, cleartext executors
//! until TLS is required.

use muster_proto::session::node_sessions_client::NodeSessionsClient;
use muster_scheduler::config::Tls;
use muster_scheduler::tls::{Encryption, PATIENCE, TlsError, sessions};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tonic::service::Routes;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Server};

/// Self-signed certificate for `localhost`.
fn certificate(folder: &Path) -> Tls {
    let files = Tls {
        certificate: folder.join("tls.crt"),
        key: folder.join("tls.key"),
        required: false,
    };
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ])
        .arg("-keyout")
        .arg(&files.key)
        .arg("-out")
        .arg(&files.certificate)
        .output()
        .expect("openssl runs");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    files
}

/// Starts a server and returns its port.
async fn serve(tls: &Tls, patience: Duration) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let incoming = sessions(
        listener,
        Some(Encryption::read(tls).expect("right")),
        patience,
    );
    tokio::spawn(async move {
        Server::builder()
            .add_routes(Routes::default())
            .serve_with_incoming(incoming)
            .await
    });
    port
}

/// Whether a call gets any answer: a cleartext connection is established before the server reads
/// its first byte.
async fn answers(channel: Result<Channel, tonic::transport::Error>) -> bool {
    let Ok(channel) = channel else { return false };
    let mut client = NodeSessionsClient::new(channel);
    let answer = client.session(tokio_stream::empty()).await;
    // The server of this test has no service.
    answer.is_err_and(|status| status.code() == tonic::Code::Unimplemented)
}

async fn in_the_clear(port: u16) -> bool {
    let endpoint = Endpoint::from_shared(format!("http://localhost:{port}")).expect("an address");
    answers(endpoint.connect().await).await
}

async fn trusting(port: u16, authority: &[u8]) -> bool {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
    let endpoint = Endpoint::from_shared(format!("https://localhost:{port}")).expect("an address");
    answers(endpoint.tls_config(tls).expect("right").connect().await).await
}

fn pem(tls: &Tls) -> Vec<u8> {
    std::fs::read(&tls.certificate).expect("it was made")
}

#[tokio::test]
async fn tls_sessions_need_trust_and_cleartext_ends_when_required() {
    let (folder, other) = (tempfile::tempdir(), tempfile::tempdir());
    let (folder, other) = (folder.expect("a folder"), other.expect("a folder"));
    let (tls, stranger) = (certificate(folder.path()), certificate(other.path()));
    for required in [false, true] {
        let tls = Tls {
            required,
            ..tls.clone()
        };
        let port = serve(&tls, PATIENCE).await;
        assert!(trusting(port, &pem(&tls)).await);
        assert!(!trusting(port, &pem(&stranger)).await, "another authority");
        assert_eq!(in_the_clear(port).await, !required, "{required}");
    }
}

#[tokio::test]
async fn renewed_certificate_is_used_and_incomplete_one_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let tls = certificate(folder.path());
    let (before, port) = (pem(&tls), serve(&tls, PATIENCE).await);
    assert!(trusting(port, &before).await);
    std::fs::write(&tls.certificate, &before[..before.len() / 2]).expect("our own folder");
    assert!(trusting(port, &before).await, "half of one");
    certificate(folder.path());
    assert!(trusting(port, &pem(&tls)).await, "the new one");
    assert!(!trusting(port, &before).await, "the old one");
}

#[tokio::test]
async fn silent_tls_connection_is_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let port = serve(&certificate(folder.path()), Duration::from_millis(50)).await;
    let mut silent = TcpStream::connect(("127.0.0.1", port)).await.expect("up");
    let left = silent.read(&mut [0; 1]).await.expect("an end");
    assert_eq!(left, 0);
}

#[test]
fn missing_and_invalid_certificate_files_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("nothing");
    let tls = Tls {
        certificate: path.clone(),
        key: path.clone(),
        required: true,
    };
    let missing = Encryption::read(&tls).err().expect("nothing is there");
    assert!(matches!(missing, TlsError::Read { .. }), "{missing}");
    std::fs::write(&path, "no PEM").expect("our own folder");
    let unfit = Encryption::read(&tls)
        .err()
        .expect("that is no certificate");
    assert!(matches!(unfit, TlsError::Pem { .. }), "{unfit}");
    let mut mixed = certificate(folder.path());
    let other = tempfile::tempdir().expect("a folder");
    mixed.key = certificate(other.path()).key;
    let unfit = Encryption::read(&mixed).err().expect("another's key");
    assert!(matches!(unfit, TlsError::Unfit { .. }), "{unfit}");
}
