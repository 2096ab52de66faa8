//! Images in which users' programs run on nodes whose tasks are processes.
//!
//! A helper process pulls an image and unpacks it into the node's cache (`fetch`). The shim then
//! shows the task a read-only view of it (`shim::image_view`). No container runtime is needed.

mod cdi;
mod credentials;
mod error;
mod fetch;
mod folders;
mod images;
mod registry;
mod slots;
mod tree;
mod unpack;

pub(crate) use cdi::{GpuAccess, gpu_access, obstacle as cdi_obstacle};
pub use error::{Fault, ImageError};
pub use fetch::{FetchArguments, run as fetch};
pub use folders::ImageInfo;
pub(crate) use folders::{FILES, INFO};
pub(crate) use images::{ImageStatus, Images};

use std::io;
use std::path::Path;

/// Creates mount points in the files of an image: folders, and empty files in place of `files`.
///
/// # Errors
/// If the image has a file or link on the way to a folder.
pub(crate) fn make_mount_points(
    image: &Path,
    folders: &[&Path],
    files: &[&Path],
) -> io::Result<()> {
    let tree = tree::ImageTree::open(image)?;
    for folder in folders {
        tree.mount_point(folder, false)?;
    }
    for file in files {
        tree.mount_point(file, true)?;
    }
    Ok(())
}

/// Checks that an image has the folders at which a job's document mounts volumes. They are not
/// created: the files of an image are those of all tenants.
///
/// # Errors
/// Names the folder that the image does not have.
pub(crate) fn check_folders<'p>(
    image: &Path,
    folders: impl IntoIterator<Item = &'p Path>,
) -> io::Result<()> {
    let tree = tree::ImageTree::open(image)?;
    for folder in folders {
        if !tree.has_folder(folder)? {
            return Err(io::Error::other(format!(
                "pod.volumes has {0}, and the image has no folder {0}: create it in the image, or \
                 mount the volume at a folder that the image has",
                folder.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
