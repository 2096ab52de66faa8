//! Start from a checkpoint of another job. Parameters, optimizer state and counts are copied;
//! training continues with this job's document.
//!
//! Everything that the state does not depend on may differ: rates, schedule, seed, dropout, the
//! batch, the exchange. The optimizer's planes are matched by name, so an optimizer with momentum
//! can start from one without.

use super::error::WorkerError;
use super::exchange::ExchangeStart;
use super::model::WorkerModel;
use crate::checkpoint::{
    CheckpointArena, CheckpointStore, Contents, LossProgress, Manifest, SoundCheckpoint,
};
use crate::document;
use crate::worker::Reporter;
use muster_comm::log;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::id::JobId;
use muster_model::spec::same_place;

/// Returns the state at the document's `from`, as this job's start.
///
/// # Errors
/// When the checkpoint does not exist here or belongs to another network. A restart does not help.
pub fn start(
    launch: &TaskLaunch,
    origin: &CheckpointStore,
    model: &WorkerModel,
    reporter: &dyn Reporter,
) -> Result<ExchangeStart, WorkerError> {
    let from = launch.spec.from.expect("there is a job to begin from");
    let step = from.step.expect("filled in when the job was submitted");
    let SoundCheckpoint {
        manifest, contents, ..
    } = origin.of_step(step)?;
    let begins =
        first_step(&manifest, from.job, model).map_err(|what| WorkerError::OtherOrigin {
            job: from.job,
            step,
            what,
        })?;
    let has_same_epochs = manifest.position.steps_per_epoch == model.batches.steps_per_epoch();
    let message = format!("training begins from step {step} of job {}", from.job);
    log::line(&message);
    reporter.report(&TaskReport::Note { message })?;
    let same_rule = std::mem::discriminant(&manifest.engine.optimizer)
        == std::mem::discriminant(&launch.spec.engine().optimizer);
    Ok(ExchangeStart {
        step: begins,
        updates: if same_rule {
            manifest.optimizer_updates
        } else {
            0
        },
        curve: curve(&manifest, has_same_epochs),
        contents: taken_over(launch, &manifest, contents, same_rule),
        on_disk: false,
        is_copy: true,
    })
}

/// Returns this job's first step after a checkpoint of job `from`, or why it cannot start from it.
fn first_step(manifest: &Manifest, from: JobId, model: &WorkerModel) -> Result<u64, String> {
    if manifest.job_id != from {
        return Err(format!("it is of job {}", manifest.job_id));
    }
    if !model.has_blocks(&manifest.blocks) {
        return Err("its network has other parameters".to_owned());
    }
    let (others, own) = (
        manifest.position.steps_per_epoch,
        model.batches.steps_per_epoch(),
    );
    same_place(manifest.step, others, own).ok_or_else(|| {
        format!(
            "its epochs have {others} steps and this job's {own}, and it is not from the end of one"
        )
    })
}

/// Copies the planes of the optimizer that have the same name. Planes of another update rule have
/// another meaning, even with the same name; such an optimizer starts with zeros.
fn taken_over(
    launch: &TaskLaunch,
    manifest: &Manifest,
    mut contents: Contents<CheckpointArena>,
    same_rule: bool,
) -> Contents<CheckpointArena> {
    let wanted = document::state_planes(&launch.spec.engine().optimizer);
    let state = wanted.iter().map(|&name| {
        let mut known = manifest.state_planes.iter();
        let place = known.position(|plane| plane == name).filter(|_| same_rule);
        place.map_or_else(
            || vec![0.0; contents.parameters.len()].into(),
            |place| std::mem::take(&mut contents.state[place]),
        )
    });
    let state = state.collect();
    Contents { state, ..contents }
}

/// Returns the curve to continue. With epochs of another length no step of the present epoch is
/// done, so nothing of it is counted.
fn curve(manifest: &Manifest, same_epochs: bool) -> LossProgress {
    if same_epochs {
        manifest.curve.clone()
    } else {
        LossProgress {
            epoch_losses: manifest.curve.epoch_losses.clone(),
            ..LossProgress::default()
        }
    }
}
