//! Change of a connection from HTTP/1.1 to another protocol.

use axum::http::Extensions;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

/// Connection after the change: bytes in both directions.
pub type UpgradedStream = TokioIo<Upgraded>;

/// A connection that changes its protocol after the answer 101.
#[derive(Debug)]
pub struct PendingUpgrade(OnUpgrade);

impl PendingUpgrade {
    /// Takes the connection of a request. Returns `None` if it was taken, or if the client uses
    /// another version of HTTP.
    pub fn take(extensions: &mut Extensions) -> Option<Self> {
        extensions.remove::<OnUpgrade>().map(Self)
    }

    /// Returns the connection once the answer 101 was sent.
    ///
    /// # Errors
    /// If another answer was sent, or if the client has left.
    pub async fn stream(self) -> Result<UpgradedStream, hyper::Error> {
        self.0.await.map(TokioIo::new)
    }
}
