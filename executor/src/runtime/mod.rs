//! Runtime of tasks: how a shim is started, asked to stop, and known to be gone. Events, log and
//! end are files of the task's folder for every runtime.

mod pod;
mod process;
pub mod runner_status;
mod shims;
mod sockets;

pub use pod::{PathTaken, PodRuntime, TemplateError};
pub use process::ProcessRuntime;
pub use runner_status::RunnerStatus;
pub use shims::started_shim;

use crate::error::ExecutorError;
use crate::ledger::{Ledger, LedgerEntry};
use crate::limits::TaskLimits;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Debug;

/// Starts and observes shims. Only the node loop calls it, so no method may wait for another
/// machine.
pub trait Runtime: Debug + Send {
    /// Starts the shim of a prepared task, or requests its start. A later failure appears in
    /// [`Runtime::runner_status`].
    ///
    /// # Errors
    /// If it cannot be started. The task then ends with this error.
    fn start(&mut self, entry: &mut LedgerEntry, start: ShimCommand) -> Result<(), ExecutorError>;

    /// Sends SIGTERM to the shim, which forwards it and enforces the grace. Returns `false` if
    /// there is no shim to stop yet.
    fn stop(&mut self, entry: &LedgerEntry) -> bool;

    /// Notifies a task of new peers. The built-in engine polls them; for a user's program the shim
    /// reads them.
    fn wake(&mut self, entry: &LedgerEntry);

    /// Returns the state of the process or pod that runs the task. Call it before reading the
    /// folder: a shim writes the end before it exits.
    fn runner_status(&mut self, entry: &LedgerEntry) -> RunnerStatus;

    /// Whether the node loop is woken when the runner of a running task exits; otherwise polls
    /// find it.
    fn notifies_of_ends(&self) -> bool;

    /// Removes processes, pods and files that no task needs; called after each poll of all tasks.
    fn tidy(&mut self, ledger: &Ledger);

    /// Returns the address at which tasks listen, as passed in their arguments.
    fn listen_host(&self) -> &str;

    /// Whether tasks receive this variable of the daemon's environment, if it is configured to be
    /// passed.
    fn passes(&self, variable: &str) -> bool;
}

/// Arguments and environment of a shim.
#[derive(Debug)]
pub struct ShimCommand {
    /// Arguments of this program, beginning with the subcommand.
    pub arguments: Vec<OsString>,
    /// The complete environment of the task; contains secrets.
    pub environment: BTreeMap<String, String>,
    pub limits: TaskLimits,
}
