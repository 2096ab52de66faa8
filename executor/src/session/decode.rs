//! The scheduler's assignment as the model's types.

use crate::node::{Assigned, AssignedTask};
use muster_model::assignment::{Peers, TaskLaunch};
use muster_proto::session::Assignment;

/// An assignment that this version cannot read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the {part} of task {place} in the assignment of generation {generation}")]
pub struct Unreadable {
    generation: u64,
    place: usize,
    part: &'static str,
    #[source]
    source: serde_json::Error,
}

/// Reads all of it or none: a task left out would be stopped.
///
/// # Errors
/// The first part that is not what this version knows.
pub fn assignment(message: &Assignment) -> Result<Assigned, Unreadable> {
    let generation = message.generation;
    let tasks = message.tasks.iter().enumerate().map(|(place, task)| {
        let unreadable = |part| {
            move |source| Unreadable {
                generation,
                place,
                part,
                source,
            }
        };
        let launch: TaskLaunch =
            serde_json::from_str(&task.launch_json).map_err(unreadable("launch"))?;
        let peers: Peers = serde_json::from_str(&task.peers_json).map_err(unreadable("peers"))?;
        Ok(AssignedTask {
            launch,
            peers,
            stop: task.stop,
        })
    });
    Ok(Assigned {
        generation,
        tasks: tasks.collect::<Result<_, _>>()?,
    })
}
