//! Reasons why an image is not available.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("the image {image:?} is no name of an image: {why}")]
    Name { image: String, why: String },
    #[error("registry {registry} has no image {image}")]
    NotFound { registry: String, image: String },
    #[error(
        "registry {registry} does not let this node pull {image}: it does not exist, or image_auth_file has no credentials for it"
    )]
    NotAuthorised { registry: String, image: String },
    #[error("{image} is for {found}, and this node is {node}")]
    Platform {
        image: String,
        found: String,
        node: String,
    },
    #[error("registry {registry} cannot be reached since {waited_s} s: {why}")]
    Unreachable {
        registry: String,
        waited_s: u64,
        why: String,
    },
    #[error("registry {registry} refused the request: {why}")]
    Registry { registry: String, why: String },
    #[error("{image} is no image of a supported format: {why}")]
    Format { image: String, why: String },
    #[error("a layer of the image is no readable archive")]
    Layer(#[source] io::Error),
    #[error("{} of the image cannot be unpacked", path.display())]
    Entry {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("a layer of the image has the path {}, which leads out of its folder", .0.display())]
    Escape(PathBuf),
    #[error("the image has more than {0} bytes, the setting image_cache_bytes")]
    Large(u64),
    #[error("the image has more than {0} files")]
    ManyFiles(u64),
    #[error("{} of the image cache", path.display())]
    Cache {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the setting image_auth_file, {}: {why}", path.display())]
    Credentials { path: PathBuf, why: String },
}

/// What a failed pull means for the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// This node has too little space; another one may have it.
    NoSpace,
    /// A fault of the image, which each node would find.
    OfImage,
    /// Another attempt may succeed.
    Passing,
}

impl ImageError {
    pub(super) fn at(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Cache { path, source }
    }

    pub(super) fn entry(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Entry { path, source }
    }

    /// Returns what the error means for the task.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Entry { source, .. } | Self::Cache { source, .. } | Self::Layer(source)
                if is_of_space(source) =>
            {
                Fault::NoSpace
            }
            Self::Name { .. }
            | Self::NotFound { .. }
            | Self::Format { .. }
            | Self::Layer(_)
            | Self::Entry { .. }
            | Self::Escape(_)
            | Self::ManyFiles(_) => Fault::OfImage,
            Self::NotAuthorised { .. }
            | Self::Platform { .. }
            | Self::Unreachable { .. }
            | Self::Registry { .. }
            | Self::Large(_)
            | Self::Cache { .. }
            | Self::Credentials { .. } => Fault::Passing,
        }
    }
}

fn is_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
    )
}
