//! Errors of the executor, named by the attempted operation.

use crate::image::{Fault, ImageError};
use crate::task_user::NoTaskUser;
use muster_model::error_chain::chain;
use muster_model::task::Outcome;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("another executor uses the data folder {}", path.display())]
    DataFolderInUse { path: PathBuf },
    #[error("cannot read the configuration {}", path.display())]
    Config {
        path: PathBuf,
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error("the setting {name} {problem}")]
    Setting { name: &'static str, problem: String },
    #[error("cannot start the shim {}", path.display())]
    Shim {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the pod template {}", path.display())]
    PodTemplate {
        path: PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The job's `pod` conflicts with the pod template.
    #[error("{0}")]
    PodPath(String),
    #[error("the API server of Kubernetes: cannot {tried}")]
    Kubernetes {
        tried: &'static str,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("cannot wait for signals")]
    Signals(#[source] io::Error),
    #[error("cannot listen for the reports of users' programs")]
    Tracking(#[source] io::Error),
    #[error("cannot listen at {listen}, the setting metrics_listen")]
    Metrics {
        listen: std::net::SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("cannot separate the task from those of other tenants")]
    Isolation(#[source] io::Error),
    #[error("cannot show the task its image")]
    ImageView(#[source] io::Error),
    #[error("the image of the task is not available")]
    Image(#[source] ImageError),
    #[error("the node cannot run tasks in images: {0}")]
    NoImages(String),
    #[error("the task has no Unix user")]
    NoTaskUser(#[from] NoTaskUser),
}

impl ExecutorError {
    /// Returns the outcome of a task that this error kept from starting. Without disk space the
    /// outcome is a refusal, because another node may have space.
    pub(crate) fn outcome(&self) -> Outcome {
        let source = match self {
            Self::Read { source, .. } | Self::Write { source, .. } | Self::Shim { source, .. } => {
                Some(source)
            }
            _ => None,
        };
        let message = chain(self);
        let is_of_disk = source.is_some_and(|source| {
            let kinds = [
                io::ErrorKind::StorageFull,
                io::ErrorKind::QuotaExceeded,
                io::ErrorKind::ReadOnlyFilesystem,
            ];
            kinds.contains(&source.kind())
        });
        let is_of_cache = matches!(self, Self::Image(error) if error.fault() == Fault::NoSpace);
        if is_of_disk || is_of_cache {
            Outcome::refused(message)
        } else {
            Outcome::LaunchFailed { message }
        }
    }

    pub(crate) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Read { path, source }
    }

    pub(crate) fn shim(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Shim { path, source }
    }

    pub(crate) fn kubernetes(tried: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kubernetes {
            tried,
            source: Box::new(source),
        }
    }

    pub(crate) fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }
}
