//! Local aggregation: the workers of a view on this worker's node, and how they come to share
//! memory.
//!
//! Before its first handshake with a shard, each worker writes an endpoint file (`endpoint_file`)
//! to the folder that the job's tasks on a node share. Under BSP all workers of a view have joined
//! when its first step has ended. So in the second step all workers with endpoint files in one
//! folder find the same files, and form a group. After any failure this worker pushes alone until
//! the next view, which needs no agreement.

use crate::worker::context::{STALL, WorkerContext};
use crate::worker::head::HEAD;
use muster_comm::collective::{AlgorithmChoice, AllReduceAlgorithm, CollectiveGroup};
use muster_comm::fabric::{
    self, Coordinator, Credentials, FabricError, FabricOptions, MemberReport, PeerPort, ViewMember,
};
use muster_comm::log;
use muster_comm::wire::view::TaskSetView;
use muster_model::assignment::TaskLaunch;
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// This worker and its group on the node.
pub(super) struct LocalAggregation {
    port: Arc<PeerPort>,
    folder: PathBuf,
    parameters: usize,
    options: FabricOptions,
    /// The newest view, and the step in which this worker entered it.
    since: Option<(u64, u64)>,
    standing: LocalGroupState,
}

enum LocalGroupState {
    /// The members of the group are not known yet.
    Unmet,
    Together(Box<LocalGroup>),
    Apart,
}

/// Workers of one node that share memory.
pub(super) struct LocalGroup {
    /// Rank 0 of the group pushes for all. The arena contains the head, then the gradients.
    pub group: CollectiveGroup,
    /// The other workers of the group, in order of rank.
    pub others: Vec<TaskId>,
}

/// Gives a group its only view; a death ends the group.
struct OneViewCoordinator(Mutex<Option<fabric::GroupView>>);

impl Coordinator for OneViewCoordinator {
    fn next_view(&self, _: MemberReport) -> Result<fabric::GroupView, String> {
        let mut view = self.0.lock().expect("not poisoned");
        view.take()
            .ok_or_else(|| "each worker of the node continues alone".to_owned())
    }
}

impl LocalAggregation {
    /// Listens, and writes this worker's endpoint file. `None` if that fails: this worker then
    /// always pushes alone.
    pub fn open(launch: &TaskLaunch, parameters: usize, ctx: &WorkerContext<'_>) -> Option<Self> {
        match Self::listen(launch, parameters, ctx) {
            Ok(aggregation) => Some(aggregation),
            Err(error) => {
                log::line(format_args!(
                    "gradients are not added up with others of this node: {}",
                    chain(&error)
                ));
                None
            }
        }
    }

    fn listen(
        launch: &TaskLaunch,
        parameters: usize,
        ctx: &WorkerContext<'_>,
    ) -> Result<Self, FabricError> {
        let me = Credentials {
            job_id: launch.job_id,
            secret: launch.secret.clone(),
            id: launch.task_id,
            attempt: std::process::id(),
        };
        let port = PeerPort::bind(ctx.listen_host, Some(ctx.sockets), me)?;
        write_endpoint_file(ctx.sockets, &port.member())
            .map_err(FabricError::io("leave a card"))?;
        Ok(Self {
            port: Arc::new(port),
            folder: ctx.sockets.to_owned(),
            parameters,
            options: FabricOptions {
                join_limit: STALL,
                stall: STALL,
                ..FabricOptions::default()
            },
            since: None,
            standing: LocalGroupState::Unmet,
        })
    }

    /// Returns the group that sums the gradients of `step` in the present view; `None` if this
    /// worker pushes alone.
    pub fn meet(&mut self, view: &TaskSetView, step: u64) -> Option<&mut LocalGroup> {
        match self.since {
            Some((number, first)) if number == view.number => {
                if step > first && matches!(self.standing, LocalGroupState::Unmet) {
                    self.standing = match self.join(view) {
                        Some(local_group) => LocalGroupState::Together(Box::new(local_group)),
                        None => LocalGroupState::Apart,
                    };
                }
            }
            _ => {
                self.since = Some((view.number, step));
                self.standing = LocalGroupState::Unmet;
            }
        }
        self.local_group()
    }

    /// Returns the group, until this worker leaves it.
    pub fn local_group(&mut self) -> Option<&mut LocalGroup> {
        match &mut self.standing {
            LocalGroupState::Together(local_group) => Some(local_group),
            LocalGroupState::Unmet | LocalGroupState::Apart => None,
        }
    }

    /// Leaves the group until the next view; members that wait for this worker notice it.
    pub fn part(&mut self) {
        self.standing = LocalGroupState::Apart;
    }

    fn join(&self, view: &TaskSetView) -> Option<LocalGroup> {
        let me = self.port.member();
        let members: Vec<ViewMember> = view
            .workers
            .iter()
            .filter_map(|task| read_endpoint_file(&self.folder, *task))
            .filter(|other| other.node == me.node && other.local.is_some())
            .collect();
        let is_in = members.iter().any(|member| member.id == me.id);
        if members.len() < 2 || !is_in {
            return None;
        }
        let others = members[1..].iter().map(|member| member.id).collect();
        let met = OneViewCoordinator(Mutex::new(Some(fabric::GroupView {
            number: view.number,
            members,
        })));
        let group = CollectiveGroup::start(
            Arc::clone(&self.port),
            Arc::new(met),
            HEAD + self.parameters,
            AlgorithmChoice::Named(AllReduceAlgorithm::Ring),
            false,
            self.options.clone(),
        );
        match group {
            Ok(group) if group.is_of_one_node() => {
                log::line(format_args!(
                    "view {}: gradients of {} workers of this node are added up before they are pushed",
                    view.number,
                    group.view().members.len()
                ));
                Some(LocalGroup { group, others })
            }
            Ok(_) => {
                log::line("workers of this node do not all share memory: each pushes by itself");
                None
            }
            Err(error) => {
                log::line(format_args!(
                    "workers of this node did not meet, each pushes by itself: {}",
                    chain(&error)
                ));
                None
            }
        }
    }
}

impl Drop for LocalAggregation {
    fn drop(&mut self) {
        let _ = fs::remove_file(endpoint_file(&self.folder, self.port.member().id));
    }
}

fn endpoint_file(folder: &Path, task: TaskId) -> PathBuf {
    folder.join(format!("{task}.card"))
}

fn write_endpoint_file(folder: &Path, member: &ViewMember) -> io::Result<()> {
    let path = endpoint_file(folder, member.id);
    let fresh = path.with_extension("card.new");
    fs::write(&fresh, serde_json::to_vec(member)?)?;
    fs::rename(fresh, path)
}

/// Returns `None` for a worker on another node. A worker with a damaged file is left out with a log
/// line.
fn read_endpoint_file(folder: &Path, task: TaskId) -> Option<ViewMember> {
    let path = endpoint_file(folder, task);
    let text = fs::read(&path).ok()?;
    match serde_json::from_slice::<ViewMember>(&text) {
        Ok(member) if member.id == task => Some(member),
        _ => {
            log::line(format_args!(
                "worker {task} is not added up with: {} is no card of its",
                path.display()
            ));
            None
        }
    }
}
