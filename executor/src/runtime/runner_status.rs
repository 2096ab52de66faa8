//! Report of a runtime about a task.

use muster_model::task::Outcome;

/// State of the process or pod that runs a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerStatus {
    /// It exists or is being started. Only the task's folder can report an end.
    Alive,
    /// It exists and holds the task's resources: an end in the folder counts only after it has
    /// released them.
    Holding,
    /// It does not exist, and no process of the task is left. This outcome applies if the folder
    /// contains no end.
    Gone(Option<Outcome>),
    /// As `Gone`, and the shim did not write an end: an end in the folder was written by the task.
    Killed(Outcome),
}
