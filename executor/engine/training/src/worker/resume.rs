//! Start of the coordinator's training: the newest valid checkpoint. If none was ever written, the
//! checkpoint of the job from which this job starts, or fresh parameters.

use super::error::WorkerError;
use super::exchange::ExchangeStart;
use super::model::WorkerModel;
use super::origin;
use crate::checkpoint::{CheckpointSearch, CheckpointStore, Contents, LossProgress, Manifest};
use crate::document;
use crate::worker::Reporter;
use muster_comm::log;
use muster_compute::model::Network;
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::error_chain::chain;

/// Claims the job's checkpoints for this revision and finds the start. A damaged checkpoint is
/// moved aside with a note and the one before it is used; the steps between are repeated. The
/// second store belongs to the job from which this job starts, if any.
///
/// # Errors
/// [`WorkerError::NothingToResume`] when the store knows of a checkpoint and none is valid. A start
/// from fresh parameters would silently discard the job's work.
pub fn start(
    launch: &TaskLaunch,
    (store, origin): (&CheckpointStore, Option<CheckpointStore>),
    model: &WorkerModel,
    reporter: &dyn Reporter,
) -> Result<ExchangeStart, WorkerError> {
    let state_planes = document::state_planes(&launch.spec.engine().optimizer).len();
    store.claim()?;
    let CheckpointSearch { newest, damaged } = store.newest_sound()?;
    for (step, damage) in &damaged {
        let message = format!(
            "the checkpoint of step {step} was put aside: {}",
            chain(damage)
        );
        log::line(&message);
        reporter.report(&TaskReport::Note { message })?;
    }
    for (step, _) in &damaged {
        reporter.report(&TaskReport::CheckpointPruned { step: *step })?;
    }
    let Some(found) = newest else {
        if let Some(step) = launch.resume_step {
            return Err(WorkerError::NothingToResume { step });
        }
        return match origin {
            Some(origin) => origin::start(launch, &origin, model, reporter),
            None => Ok(fresh(launch, &model.network, state_planes)),
        };
    };
    agree(launch, model, state_planes, &found.manifest)?;
    let step = found.manifest.step;
    match launch.resume_step {
        Some(known) if known > step => {
            let message = format!(
                "training continues from step {step}: no sound checkpoint of step {known} was found"
            );
            log::line(&message);
            reporter.report(&TaskReport::Note { message })?;
        }
        Some(known) if known == step => {}
        // The report of this checkpoint was lost with its writer.
        _ => reporter.report(&TaskReport::CheckpointWritten {
            checkpoint: found.written.clone(),
        })?,
    }
    Ok(ExchangeStart {
        step,
        updates: found.manifest.optimizer_updates,
        contents: found.contents,
        curve: found.manifest.curve,
        on_disk: true,
        is_copy: false,
    })
}

fn fresh(launch: &TaskLaunch, network: &Network, state_planes: usize) -> ExchangeStart {
    let parameters = network.init(launch.spec.engine().seed);
    let state = vec![vec![0.0; parameters.len()]; state_planes];
    ExchangeStart {
        step: 0,
        updates: 0,
        contents: Contents {
            parameters,
            state,
            extras: Vec::new(),
        }
        .into(),
        curve: LossProgress::default(),
        on_disk: false,
        is_copy: false,
    }
}

/// Checks that the checkpoint belongs to this job's network and optimizer. A restart does not
/// repair a mismatch.
fn agree(
    launch: &TaskLaunch,
    model: &WorkerModel,
    state_planes: usize,
    manifest: &Manifest,
) -> Result<(), WorkerError> {
    if manifest.job_id == launch.job_id
        && model.has_blocks(&manifest.blocks)
        && manifest.state_planes.len() == state_planes
        && manifest.engine == *launch.spec.engine()
    {
        return Ok(());
    }
    Err(WorkerError::OtherJob {
        step: manifest.step,
    })
}
