//! Connection to the API server that a test can cut.

use crate::cluster::free_port;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// Forwards connections to the API server until they are cut.
#[derive(Debug)]
pub struct ApiServerProxy {
    pub port: u16,
    cut: Arc<Notify>,
}

impl ApiServerProxy {
    /// Starts to forward.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn to(server: u16) -> Self {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .expect("a free port");
        let cut = Arc::new(Notify::new());
        tokio::spawn(carry(listener, server, Arc::clone(&cut)));
        Self { port, cut }
    }

    /// Closes all open connections.
    pub fn cut(&self) {
        self.cut.notify_waiters();
    }
}

async fn carry(listener: TcpListener, server: u16, cut: Arc<Notify>) {
    while let Ok((mut near, _)) = listener.accept().await {
        let cut = Arc::clone(&cut);
        tokio::spawn(async move {
            let Ok(mut far) = TcpStream::connect(("127.0.0.1", server)).await else {
                return;
            };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                () = cut.notified() => {}
            }
        });
    }
}
