//! Node sessions in TLS: whoever trusts the authority gets through, and nobody in the clear.

use muster_scheduler::config::TlsFiles;
use muster_scheduler::tls::{TlsError, encrypted};
use std::path::Path;
use std::process::Command;
use tokio::net::TcpListener;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Server};

/// A certificate for `localhost` that is its own authority.
fn certificate(folder: &Path) -> TlsFiles {
    let files = TlsFiles {
        certificate: folder.join("tls.crt"),
        key: folder.join("tls.key"),
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

#[tokio::test]
async fn sessions_are_for_those_who_trust_the_authority() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = certificate(folder.path());
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let mut server = encrypted(Server::builder(), Some(&files)).expect("right");
    let incoming = TcpIncoming::from(listener);
    tokio::spawn(async move {
        server
            .add_routes(Routes::default())
            .serve_with_incoming(incoming)
            .await
    });
    let dial = |scheme: &str| {
        Endpoint::from_shared(format!("{scheme}://localhost:{port}")).expect("an address")
    };
    let pem = std::fs::read(&files.certificate).expect("it was made");
    let trusting = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
    let endpoint = dial("https").tls_config(trusting).expect("right");
    endpoint.connect().await.expect("a session");

    let other = tempfile::tempdir().expect("a folder");
    let pem = std::fs::read(certificate(other.path()).certificate).expect("it was made");
    let wary = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
    let endpoint = dial("https").tls_config(wary).expect("right");
    endpoint.connect().await.expect_err("another authority");
}

#[test]
fn files_that_are_not_there_or_no_certificates_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("nothing");
    let files = TlsFiles {
        certificate: path.clone(),
        key: path.clone(),
    };
    let missing = encrypted(Server::builder(), Some(&files)).expect_err("nothing is there");
    assert!(matches!(missing, TlsError::Read { .. }), "{missing}");
    std::fs::write(&path, "no PEM").expect("our own folder");
    let unfit = encrypted(Server::builder(), Some(&files)).expect_err("that is no certificate");
    assert!(matches!(unfit, TlsError::Unfit { .. }), "{unfit}");
}
