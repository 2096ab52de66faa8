//! Reasons why an image is not available.

use rustix::io::Errno;
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
    #[error("the helper that pulls images cannot limit its memory, or start")]
    Helper(#[source] io::Error),
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
            Self::Entry { source, .. } | Self::Layer(source) if !is_of_content(source) => {
                Fault::Passing
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
            | Self::Helper(_)
            | Self::Credentials { .. } => Fault::Passing,
        }
    }
}

/// Whether the content of a layer causes the error, and not the machine. Decoders report content
/// that they cannot read without a code of the kernel.
fn is_of_content(error: &io::Error) -> bool {
    let is_of_path = matches!(
        Errno::from_io_error(error),
        Some(Errno::LOOP | Errno::NAMETOOLONG | Errno::MLINK)
    );
    is_of_path
        || matches!(
            error.kind(),
            io::ErrorKind::InvalidData
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::UnexpectedEof
                | io::ErrorKind::Other
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::IsADirectory
                | io::ErrorKind::NotFound
                | io::ErrorKind::AlreadyExists
        )
}

fn is_of_space(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_content_of_a_layer_is_a_fault_of_the_image() {
        let fault = |source| ImageError::Layer(source).fault();
        let corrupt = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert_eq!(fault(corrupt), Fault::OfImage);
        assert_eq!(fault(io::Error::other("no header")), Fault::OfImage);
        assert_eq!(fault(Errno::LOOP.into()), Fault::OfImage);
        assert_eq!(fault(Errno::NOSPC.into()), Fault::NoSpace);
        for passing in [Errno::IO, Errno::MFILE, Errno::NOMEM, Errno::ACCESS] {
            assert_eq!(fault(passing.into()), Fault::Passing, "{passing}");
        }
    }
}
