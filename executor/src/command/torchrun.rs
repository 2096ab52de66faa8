//! Environment of a `torchrun` agent whose rendezvous is the task set of its job
//! (`command.elastic: torchrun`), and the files by which `torchrun` finds that rendezvous.
//!
//! The agent takes rank and size from `peers.json` at each change, by the module `muster.torchrun`
//! of the Python package. So it receives no variable with a rank or a size.

use super::address::split;
use super::error::CommandError;
use muster_model::assignment::{Peers, TaskLaunch};
use std::fs;
use std::path::Path;

/// Name of the rendezvous backend.
const BACKEND: &str = "muster";
/// Restarts of failed workers within one task set, at most. `retries` may be lower.
const MOST_RESTARTS: u32 = 3;
/// `--max-restarts` of the agent. It also counts workers that fail because others have left, so the
/// rendezvous has the limit that matters.
const AGENT_RESTARTS: &str = "100000";
/// Entry point by which `torchrun` finds the backend without an installation.
const ENTRY_POINTS: &str = "[torchrun.handlers]\nmuster = muster.torchrun:creator\n";

/// Adds the variables of the agent.
///
/// # Errors
/// [`CommandError::Peers`] if the task set does not contain this task with an address.
pub(super) fn agent(
    launch: &TaskLaunch,
    peers: &Peers,
    add: &mut impl FnMut(&str, String),
) -> Result<(), CommandError> {
    let mut workers = peers.workers.iter();
    let own = workers.find(|peer| peer.task_id == launch.task_id);
    let own = own.ok_or(CommandError::Peers)?;
    split(own)?;
    let address = own.address.clone().ok_or(CommandError::Peers)?;
    let range = launch.spec.scale.workers;
    let restarts = launch.spec.retries.min(MOST_RESTARTS);
    let gpus = launch.spec.resources.worker.gpus.max(1);
    add("PET_NNODES", format!("{}:{}", range.min, range.max));
    add("PET_NPROC_PER_NODE", gpus.to_string());
    add("PET_RDZV_BACKEND", BACKEND.to_owned());
    add("PET_RDZV_CONF", format!("restarts={restarts}"));
    add("PET_RDZV_ENDPOINT", address);
    add("PET_RDZV_ID", launch.job_id.to_string());
    add("PET_MAX_RESTARTS", AGENT_RESTARTS.to_owned());
    // Ranks follow from the rank of the agent. Otherwise agents exchange them, and would wait for
    // an agent that has left meanwhile.
    add("TORCH_ELASTIC_WORKER_IDENTICAL", "1".to_owned());
    Ok(())
}

/// Writes the description of a distribution beside the Python package, which names the entry point.
pub(super) fn write_entry_point(python: &Path) -> Result<(), CommandError> {
    let version = env!("CARGO_PKG_VERSION");
    let folder = python.join(format!("muster_task-{version}.dist-info"));
    fs::create_dir_all(&folder).map_err(CommandError::write(&folder))?;
    let metadata = format!("Metadata-Version: 2.1\nName: muster-task\nVersion: {version}\n");
    for (name, text) in [
        ("METADATA", metadata.as_str()),
        ("entry_points.txt", ENTRY_POINTS),
    ] {
        let path = folder.join(name);
        fs::write(&path, text).map_err(CommandError::write(&path))?;
    }
    Ok(())
}
