//! A turn of a job: its workers are told to stand still, or get their GPUs back and are told to go on.

use super::Refusal;
use super::commit::Failure;
use super::draft::{Draft, Turned};
use super::start::{admit, hold};
use crate::task::{self, Locked, Transitions};
use muster_model::id::{NodeId, TaskId};
use muster_model::task::{Role, TaskEvent};
use sqlx::PgConnection;
use time::OffsetDateTime;

/// All workers or none: a gang turns together. PS shards hold no GPU, and stand still when the workers do.
pub(super) async fn write(
    conn: &mut PgConnection,
    draft: &Draft,
    turned: Turned,
    now: OffsetDateTime,
) -> Result<Transitions, Failure> {
    let is_worker = |held: &&Locked| matches!(held.task.role, Role::Worker { .. });
    let workers = || draft.held.iter().filter(is_worker);
    let event = match turned {
        Turned::StandStill => TaskEvent::Suspend,
        Turned::GoOn => {
            let nodes: Vec<NodeId> = workers().map(|held| held.task.node_id).collect();
            admit(conn, &nodes).await?;
            TaskEvent::Continue
        }
    };
    let steps = workers().map(|held| (held.clone(), event.clone()));
    let done = task::transition(conn, steps.collect(), now).await?;
    let changed: Vec<TaskId> = done.changed.iter().map(|task| task.id).collect();
    let out_of_turn: Vec<TaskId> = workers()
        .map(|held| held.task.id)
        .filter(|id| !changed.contains(id))
        .collect();
    if !out_of_turn.is_empty() || changed.is_empty() {
        let tasks = out_of_turn;
        return Err(Refusal::NotInTurn { tasks }.into());
    }
    if turned == Turned::GoOn {
        let held =
            workers().map(|held| (held.task.id, held.task.node_id, held.task.gpus.as_slice()));
        hold(conn, draft, held, now).await?;
    }
    Ok(done)
}
