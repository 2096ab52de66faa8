//! Artifacts and checkpoints: files of users' programs, which the daemon keeps in the checkpoint
//! store.
//!
//! A program writes them to its output folder (`MUSTER_OUTPUT_DIR`) or sends them to the tracking
//! server. In both cases the daemon writes the content and the scheduler records it. So a program
//! needs no rights in the store, and limits are checked in one place. Checkpoints that a program
//! declares are kept in the same way; in a shared folder their files are not copied.

mod checkpoint_client;
mod checkpoint_store;
mod checkpoint_upload;
mod client;
mod declared;
mod error;
mod in_flight;
mod notes;
mod object;
mod output;
mod store;
mod upload;
pub(crate) mod walk;

pub use client::ArtifactClient;
pub(crate) use error::ArtifactError;
pub use output::{OutputQueue, OutputUploads};
pub use store::ArtifactStore;
pub(crate) use store::{Announced, ListedArtifact, OpenArtifact};
