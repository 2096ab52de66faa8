//! Encrypted node sessions.

use crate::config::TlsFiles;
use std::path::{Path, PathBuf};
use tonic::transport::{Identity, Server, ServerTlsConfig};

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("take {} and {} for a certificate and its key", .files.certificate.display(), .files.key.display())]
    Unfit {
        files: TlsFiles,
        #[source]
        source: tonic::transport::Error,
    },
}

/// The server, encrypted if there is something to do it with. What is renewed in the files counts from the next start: a daemon that leads
/// is replaced by the other for that without anybody noticing.
///
/// # Errors
/// When a file cannot be read, or is not what it should be.
pub fn encrypted(server: Server, files: Option<&TlsFiles>) -> Result<Server, TlsError> {
    let Some(files) = files else {
        return Ok(server);
    };
    let identity = Identity::from_pem(read(&files.certificate)?, read(&files.key)?);
    let config = ServerTlsConfig::new().identity(identity);
    server.tls_config(config).map_err(|source| TlsError::Unfit {
        files: files.clone(),
        source,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Read {
        path: path.to_owned(),
        source,
    })
}
