//! Encryption of node sessions: a connection uses TLS, or cleartext as long as that is allowed.
//!
//! Both use one port, so that encryption can be enabled while executors run. Each executor keeps
//! its address until it is replaced. A scheduler with TLS only would lose every node within a
//! lease. A second port was rejected: proxies, services and network policies would need it for a
//! few days only.

use crate::config::Tls;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig, crypto::ring};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

/// Time limit of a handshake. A connection that exceeds it is closed, because it has not presented
/// a token yet.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Delay after a failed accept, for example without free file descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of connections between handshake and service.
const READY: usize = 64;
/// First byte of a TLS handshake. Cleartext HTTP/2 begins with `PRI`.
const HANDSHAKE: u8 = 0x16;

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("take {path} for a certificate or key in PEM")]
    Pem {
        path: PathBuf,
        #[source]
        source: pem::Error,
    },
    #[error("take {} and {} for a certificate and its key", .files.certificate.display(), .files.key.display())]
    Unfit {
        files: Tls,
        #[source]
        source: rustls::Error,
    },
}

impl TlsError {
    fn pem(path: &Path, source: pem::Error) -> Self {
        Self::Pem {
            path: path.to_owned(),
            source,
        }
    }
}

/// Contents of the certificate and key files.
#[derive(PartialEq, Eq)]
struct CertificateKeyPair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Encryption of sessions. It follows its files, so renewing a certificate means only to write
/// them.
pub struct Encryption {
    files: Tls,
    read: CertificateKeyPair,
    acceptor: TlsAcceptor,
}

impl Encryption {
    /// Reads the certificate and the key.
    ///
    /// # Errors
    /// [`TlsError`] if a file cannot be read or is invalid.
    pub fn read(files: &Tls) -> Result<Self, TlsError> {
        let read = CertificateKeyPair::read(files)?;
        Ok(Self {
            acceptor: read.acceptor(files)?,
            files: files.clone(),
            read,
        })
    }

    /// Acceptor with the current files. They are read for each session: sessions begin only when a
    /// node or this process starts. Incomplete or invalid files are ignored and the previous
    /// certificate stays.
    fn acceptor(&mut self) -> TlsAcceptor {
        let renewed = CertificateKeyPair::read(&self.files).and_then(|pair| {
            if pair == self.read {
                Ok(None)
            } else {
                Ok(Some((pair.acceptor(&self.files)?, pair)))
            }
        });
        match renewed {
            Ok(None) => {}
            Ok(Some((acceptor, pair))) => {
                tracing::info!(path = %self.files.certificate.display(), "the certificate was renewed");
                (self.acceptor, self.read) = (acceptor, pair);
            }
            Err(error) => {
                let source = std::error::Error::source(&error).map(ToString::to_string);
                tracing::warn!(%error, source, "the previous certificate stays in use");
            }
        }
        self.acceptor.clone()
    }
}

impl CertificateKeyPair {
    fn read(files: &Tls) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
        })
    }

    fn acceptor(&self, files: &Tls) -> Result<TlsAcceptor, TlsError> {
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(|source| TlsError::pem(&files.certificate, source))?;
        if chain.is_empty() {
            let source = pem::Error::NoItemsFound;
            return Err(TlsError::pem(&files.certificate, source));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|source| TlsError::pem(&files.key, source))?;
        let mut config = server_config(chain, key).map_err(|source| TlsError::Unfit {
            files: files.clone(),
            source,
        })?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Accepted connections after their handshake, for which they have `patience`. A connection is
/// cleartext without encryption, or if the peer chooses it and TLS is not required.
#[must_use]
pub fn sessions(
    listener: TcpListener,
    encryption: Option<Encryption>,
    patience: Duration,
) -> ReceiverStream<io::Result<NodeConnection>> {
    let (ready, sessions) = mpsc::channel(READY);
    tokio::spawn(accept(listener, encryption, patience, ready));
    ReceiverStream::new(sessions)
}

/// Accepts until the receiver is dropped.
async fn accept(
    listener: TcpListener,
    mut encryption: Option<Encryption>,
    patience: Duration,
    ready: mpsc::Sender<io::Result<NodeConnection>>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ready.closed() => return,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let tls = encryption
            .as_mut()
            .map(|encryption| (encryption.acceptor(), encryption.files.required));
        let ready = ready.clone();
        tokio::spawn(async move {
            match tokio::time::timeout(patience, open(stream, tls)).await {
                // The receiver is gone only when the daemon ends.
                Ok(Ok(Some(connection))) => drop(ready.send(Ok(connection)).await),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => tracing::warn!(%peer, %error, "a node session did not begin"),
                Err(_) => {
                    tracing::warn!(%peer, "a node session did not begin: nothing was said for long")
                }
            }
        });
    }
}

/// `None` if the peer closed without sending, as probes do.
async fn open(
    stream: TcpStream,
    tls: Option<(TlsAcceptor, bool)>,
) -> io::Result<Option<NodeConnection>> {
    stream.set_nodelay(true)?;
    let Some((acceptor, required)) = tls else {
        return Ok(Some(NodeConnection(Box::new(stream))));
    };
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0] == HANDSHAKE {
        let encrypted = acceptor.accept(stream).await?;
        return Ok(Some(NodeConnection(Box::new(encrypted))));
    }
    if required {
        return Err(io::Error::other("it is in the clear, and TLS is required"));
    }
    Ok(Some(NodeConnection(Box::new(stream))))
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<Stream: AsyncRead + AsyncWrite + Send + Unpin> Duplex for Stream {}

/// Connection of a node session.
pub struct NodeConnection(Box<dyn Duplex>);

impl Connected for NodeConnection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for NodeConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for NodeConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}
