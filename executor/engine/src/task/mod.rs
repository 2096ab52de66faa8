//! A task as a process: its folder, its events file, its peers, signals and exit codes.
//!
//! This is the only place of the engine that knows of the executor: everything passes through the task's folder, so that either
//! may restart without the other.

mod events;
mod folder;
mod run;

pub use events::EventsFile;
pub use folder::{FolderError, TaskFolder};
pub use run::{Options, main};
