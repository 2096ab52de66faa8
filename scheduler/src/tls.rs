//! Encrypted node sessions: what comes in on the port is TLS, or in the clear as long as that may be.
//!
//! Both on one port, so that encryption can be switched on under executors that run: each of them keeps its address until it is replaced,
//! and a scheduler that took TLS only would lose every node within a lease. A second port was rejected, since proxies, services and network
//! policies would all have to know it for those few days.

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

/// Whoever has said nothing, or has not ended its handshake by then, is let go: it has shown no token yet.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Until the next attempt where connections cannot be accepted, as when there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections that are ready and not yet served.
const READY: usize = 64;
/// The first byte of a TLS handshake. HTTP/2 in the clear begins with `PRI`.
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

/// A certificate and its key, as they stand in their files.
#[derive(PartialEq, Eq)]
struct Pair {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// What sessions are encrypted with. It follows its files: whoever renews a certificate writes them and does nothing else.
pub struct Encryption {
    files: Tls,
    read: Pair,
    acceptor: TlsAcceptor,
}

impl Encryption {
    /// # Errors
    /// When a file cannot be read, or is not what it should be.
    pub fn read(files: &Tls) -> Result<Self, TlsError> {
        let read = Pair::read(files)?;
        Ok(Self {
            acceptor: read.acceptor(files)?,
            files: files.clone(),
            read,
        })
    }

    /// With what stands in the files now. They are read for each session: a node begins one when it or we have started, so there are few.
    /// What is half written or wrong is left alone, as sessions are better had with the certificate of before.
    fn acceptor(&mut self) -> TlsAcceptor {
        let renewed = Pair::read(&self.files).and_then(|pair| {
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
                tracing::warn!(%error, source, "goes on with the certificate of before");
            }
        }
        self.acceptor.clone()
    }
}

impl Pair {
    fn read(files: &Tls) -> Result<Self, TlsError> {
        Ok(Self {
            certificate: read(&files.certificate)?,
            key: read(&files.key)?,
        })
    }

    fn acceptor(&self, files: &Tls) -> Result<TlsAcceptor, TlsError> {
        let pem = |path: &Path| {
            let path = path.to_owned();
            move |source| TlsError::Pem { path, source }
        };
        let unfit = |source| TlsError::Unfit {
            files: files.clone(),
            source,
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .map_err(pem(&files.certificate))?;
        if chain.is_empty() {
            return Err(pem(&files.certificate)(pem::Error::NoItemsFound));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(pem(&files.key))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config = builder
            .with_safe_default_protocol_versions()
            .map_err(unfit)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unfit)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}

/// Connections as they come in, each past its handshake, for which it has so long; in the clear where there is no encryption, or it is not
/// required.
#[must_use]
pub fn sessions(
    listener: TcpListener,
    encryption: Option<Encryption>,
    patience: Duration,
) -> ReceiverStream<io::Result<Connection>> {
    let (ready, sessions) = mpsc::channel(READY);
    tokio::spawn(accept(listener, encryption, patience, ready));
    ReceiverStream::new(sessions)
}

/// Until nobody takes them any more.
async fn accept(
    listener: TcpListener,
    mut encryption: Option<Encryption>,
    patience: Duration,
    ready: mpsc::Sender<io::Result<Connection>>,
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
                // Nobody takes it only where the daemon ends.
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

/// `None` where the peer has gone without a word, as probes do.
async fn open(
    stream: TcpStream,
    tls: Option<(TlsAcceptor, bool)>,
) -> io::Result<Option<Connection>> {
    stream.set_nodelay(true)?;
    let Some((acceptor, required)) = tls else {
        return Ok(Some(Connection(Box::new(stream))));
    };
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    if first[0] == HANDSHAKE {
        let encrypted = acceptor.accept(stream).await?;
        return Ok(Some(Connection(Box::new(encrypted))));
    }
    if required {
        return Err(io::Error::other("it is in the clear, and TLS is required"));
    }
    Ok(Some(Connection(Box::new(stream))))
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<Stream: AsyncRead + AsyncWrite + Send + Unpin> Duplex for Stream {}

/// One that node sessions are served on.
pub struct Connection(Box<dyn Duplex>);

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
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
