//! Environment of a `torchrun` agent whose rendezvous is the task set of its job
//! (`command.elastic: torchrun`), and the files by which `torchrun` finds that rendezvous.
//!
//! The agent takes rank and size from `peers.json` at each change, by the module `muster.torchrun`
//! of the Python package. So it receives no variable with a rank or a size.

use muster_model::assignment::{Peers, TaskLaunch};

/// Name of the rendezvous backend.
const BACKEND: &str = "muster";
/// Restarts of failed workers within one task set, at most. `retries` may be lower.
const MOST_RESTARTS: u32 = 3;
/// `--max-restarts` of the agent. It also counts workers that fail because others have left, so the
/// rendezvous has the limit that matters.
const AGENT_RESTARTS: &str = "100000";
/// Folder of a distribution beside the Python package. By its entry point `torchrun` finds the
/// backend without an installation.
pub(super) const DISTRIBUTION: &str =
    concat!("muster_task-", env!("CARGO_PKG_VERSION"), ".dist-info");
pub(super) const DISTRIBUTION_FILES: [(&str, &str); 2] = [
    (
        "METADATA",
        concat!(
            "Metadata-Version: 2.1\nName: muster-task\nVersion: ",
            env!("CARGO_PKG_VERSION"),
            "\n"
        ),
    ),
    (
        "entry_points.txt",
        "[torchrun.handlers]\nmuster = muster.torchrun:creator\n",
    ),
];

/// Adds the variables of the agent. Returns `None` if the task set does not contain this task with
/// an address.
pub(super) fn agent(
    launch: &TaskLaunch,
    peers: &Peers,
    add: &mut impl FnMut(&str, String),
) -> Option<()> {
    let mut workers = peers.workers.iter();
    let own = workers.find(|peer| peer.task_id == launch.task_id)?;
    let range = launch.spec.scale.workers;
    let restarts = launch.spec.retries.min(MOST_RESTARTS);
    let gpus = launch.spec.resources.worker.gpus.max(1);
    add("PET_NNODES", format!("{}:{}", range.min, range.max));
    add("PET_NPROC_PER_NODE", gpus.to_string());
    add("PET_RDZV_BACKEND", BACKEND.to_owned());
    add("PET_RDZV_CONF", format!("restarts={restarts}"));
    add("PET_RDZV_ENDPOINT", own.address.clone()?);
    add("PET_RDZV_ID", launch.job_id.to_string());
    add("PET_MAX_RESTARTS", AGENT_RESTARTS.to_owned());
    // Ranks follow from the rank of the agent. Otherwise agents exchange them, and would wait for
    // an agent that has left meanwhile.
    add("TORCH_ELASTIC_WORKER_IDENTICAL", "1".to_owned());
    Some(())
}
