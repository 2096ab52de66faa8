//! A task as a process: its folder, event file, task set, signals and exit codes.
//!
//! Only this module of the engine knows the executor. All communication passes through the task's
//! folder, so that either process can restart without the other.

mod events;
mod folder;
mod run;

pub use events::EventsFile;
pub use folder::{FolderError, TaskFolder};
pub use run::{TaskArgs, main};
