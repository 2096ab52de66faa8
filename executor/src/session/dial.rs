//! Connections to the scheduler.

use super::SessionError;
use crate::config::ExecutorConfig;
use std::path::PathBuf;
use std::time::Duration;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

/// Time limit of the connection.
const PATIENCE: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Address of the scheduler, and the authority that verifies it.
#[derive(Debug, Clone)]
pub struct Endpoints {
    url: String,
    ca_file: Option<PathBuf>,
}

impl Endpoints {
    #[must_use]
    pub fn new(config: &ExecutorConfig) -> Self {
        Self {
            url: config.scheduler_url.clone(),
            ca_file: config.scheduler_ca_file.clone(),
        }
    }

    /// Returns a new connection with receive windows of this size.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn dial(&self, window_bytes: u32) -> Result<Channel, SessionError> {
        let url = &self.url;
        let address = |source| SessionError::Address {
            url: url.clone(),
            source,
        };
        let mut endpoint = Endpoint::from_shared(url.clone())
            .map_err(address)?
            .connect_timeout(PATIENCE)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .initial_stream_window_size(window_bytes)
            .initial_connection_window_size(window_bytes);
        if let Some(path) = &self.ca_file {
            let pem = std::fs::read(path).map_err(|source| SessionError::Authority {
                path: path.clone(),
                source,
            })?;
            let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem));
            endpoint = endpoint.tls_config(tls).map_err(address)?;
        }
        endpoint
            .connect()
            .await
            .map_err(|source| SessionError::Dial {
                url: url.clone(),
                source,
            })
    }
}
