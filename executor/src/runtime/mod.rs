//! What carries a task: how its shim is started, told to stop, and known to be gone. The rest, from the task's events to its end, goes
//! through the files of its folder, whatever carries it.

mod pod;
mod process;
mod shims;
mod sockets;

pub use pod::{PathTaken, Pods, TemplateError};
pub use process::Processes;

use crate::error::ExecutorError;
use crate::ledger::{Entry, Ledger};
use muster_model::task::Outcome;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;

/// A way to run shims. Called by the node's own loop only, so nothing here may wait for another machine.
pub trait Runtime: Debug + Send {
    /// Starts the shim of a prepared task, or begins to: that it never came about is then said by [`Runtime::carrier`].
    ///
    /// # Errors
    /// If it cannot be started at all. The task has ended with that.
    fn start(&mut self, entry: &mut Entry, start: Start) -> Result<(), ExecutorError>;

    /// SIGTERM to the shim, which passes it on; the grace and SIGKILL are its own affair. `false` if there is nobody yet to be told.
    fn stop(&mut self, entry: &Entry) -> bool;

    /// The task's peers were written anew. The built-in engine looks by itself; a user's program has its shim look.
    fn wake(&mut self, entry: &Entry);

    /// What has become of whoever carries the task. Looked at before the files of the folder: a shim writes the end before it goes.
    fn carrier(&mut self, entry: &Entry) -> Carrier;

    /// Whether the node's loop is woken when a running task's carrier goes; else that is found by looking.
    fn tells_of_ends(&self) -> bool;

    /// After each look at all tasks: whatever is carried that nobody needs is let go.
    fn tidy(&mut self, ledger: &Ledger);

    /// The address that the task listens on, as its arguments say it.
    fn listen_host(&self) -> &str;

    /// Whether a task has this variable of the daemon's own environment, being one of those that are passed on.
    fn passes(&self, variable: &str) -> bool;
}

/// What a shim is started with.
#[derive(Debug)]
pub struct Start {
    /// Of this program, the subcommand first.
    pub arguments: Vec<OsString>,
    /// The task's whole environment. Secrets are among it.
    pub environment: BTreeMap<String, String>,
}

/// Whoever carries a task, at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    /// It is there, or on the way. That the task has ended is said by its folder alone.
    Alive,
    /// It is there and holds what the node gave it: an end that the folder tells counts when it has given that back.
    Holding,
    /// It is not there (any more), and neither is any process of the task: if the folder tells of no end, this was it.
    Gone(Option<Outcome>),
    /// The same, and its shim did not come to write an end: what the folder tells of one, the task has put there.
    Killed(Outcome),
}
