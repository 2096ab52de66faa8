//! Connection to a server that a test can cut as a vanished host or router does: both ends stay
//! open, and no data passes.

use crate::TestDb;
use std::net::SocketAddr;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards TCP connections to the server until this is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    cuts: watch::Sender<u64>,
    accepts: JoinHandle<()>,
}

impl Relay {
    /// Starts to forward; needs a tokio runtime.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn before(database: &TestDb) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (cuts, _) = watch::channel(0);
        let socket = database.socket();
        let accepts = tokio::spawn({
            let cuts = cuts.clone();
            async move {
                while let Ok((client, _)) = listener.accept().await {
                    let server = UnixStream::connect(&socket).await;
                    let server = server.expect("the server listens");
                    tokio::spawn(forward(client, server, cuts.subscribe()));
                }
            }
        });
        Self {
            address,
            cuts,
            accepts,
        }
    }

    /// Address of a database through the relay.
    ///
    /// # Panics
    /// If `url` is not of a [`TestDb`].
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let (direct, _) = url.split_once('?').expect("a socket");
        direct.replace("@localhost/", &format!("@{}/", self.address))
    }

    /// Cuts all open connections. Later ones are forwarded.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

async fn forward(mut client: TcpStream, mut server: UnixStream, mut cuts: watch::Receiver<u64>) {
    tokio::select! {
        biased;
        // Both ends stay open until the test has ended.
        _ = cuts.changed() => std::future::pending().await,
        _ = copy_bidirectional(&mut client, &mut server) => {}
    }
}
