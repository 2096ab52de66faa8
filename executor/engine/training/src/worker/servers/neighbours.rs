//! Local aggregation: the workers of a view on this worker's node, and how they come to share
//! memory.
//!
//! Before its first handshake with a shard, each worker writes an endpoint file (`card`) to the
//! folder that the job's tasks on a node share. Under BSP all workers of a view have joined when
//! its first step has ended. So in the second step all workers with endpoint files in one folder
//! find the same files, and form a group. After any failure this worker pushes alone until the next
//! view, which needs no agreement.

use crate::worker::head::HEAD;
use crate::worker::train::{STALL, Surroundings};
use muster_comm::collective::{Algorithm, Choice, Group};
use muster_comm::fabric::{
    self, Coordinator, Credentials, FabricError, Member, Options, Port, Report,
};
use muster_comm::log;
use muster_comm::wire::view::View;
use muster_model::assignment::TaskLaunch;
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// This worker and its group on the node.
pub(super) struct Neighbours {
    port: Arc<Port>,
    folder: PathBuf,
    parameters: usize,
    options: Options,
    /// The newest view, and the step in which this worker entered it.
    since: Option<(u64, u64)>,
    standing: Standing,
}

enum Standing {
    /// The members of the group are not known yet.
    Unmet,
    Together(Box<Circle>),
    Apart,
}

/// Workers of one node that share memory.
pub(super) struct Circle {
    /// Rank 0 of the group pushes for all. The arena contains the head, then the gradients.
    pub group: Group,
    /// The other workers of the group, in order of rank.
    pub others: Vec<TaskId>,
}

/// Gives a group its only view; a death ends the group.
struct Once(Mutex<Option<fabric::View>>);

impl Coordinator for Once {
    fn next_view(&self, _: Report) -> Result<fabric::View, String> {
        let mut view = self.0.lock().expect("not poisoned");
        view.take()
            .ok_or_else(|| "each worker of the node continues alone".to_owned())
    }
}

impl Neighbours {
    /// Listens, and writes this worker's endpoint file. `None` if that fails: this worker then
    /// always pushes alone.
    pub fn open(launch: &TaskLaunch, parameters: usize, around: &Surroundings<'_>) -> Option<Self> {
        match Self::listen(launch, parameters, around) {
            Ok(neighbours) => Some(neighbours),
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
        around: &Surroundings<'_>,
    ) -> Result<Self, FabricError> {
        let me = Credentials {
            job_id: launch.job_id,
            secret: launch.secret.clone(),
            id: launch.task_id,
            attempt: std::process::id(),
        };
        let port = Port::bind(around.listen_host, Some(around.sockets), me)?;
        leave_card(around.sockets, &port.member()).map_err(FabricError::io("leave a card"))?;
        Ok(Self {
            port: Arc::new(port),
            folder: around.sockets.to_owned(),
            parameters,
            options: Options {
                join_limit: STALL,
                stall: STALL,
                ..Options::default()
            },
            since: None,
            standing: Standing::Unmet,
        })
    }

    /// Returns the group that sums the gradients of `step` in the present view; `None` if this
    /// worker pushes alone.
    pub fn meet(&mut self, view: &View, step: u64) -> Option<&mut Circle> {
        match self.since {
            Some((number, first)) if number == view.number => {
                if step > first && matches!(self.standing, Standing::Unmet) {
                    self.standing = match self.join(view) {
                        Some(circle) => Standing::Together(Box::new(circle)),
                        None => Standing::Apart,
                    };
                }
            }
            _ => {
                self.since = Some((view.number, step));
                self.standing = Standing::Unmet;
            }
        }
        self.circle()
    }

    /// Returns the group, until this worker leaves it.
    pub fn circle(&mut self) -> Option<&mut Circle> {
        match &mut self.standing {
            Standing::Together(circle) => Some(circle),
            Standing::Unmet | Standing::Apart => None,
        }
    }

    /// Leaves the group until the next view; members that wait for this worker notice it.
    pub fn part(&mut self) {
        self.standing = Standing::Apart;
    }

    fn join(&self, view: &View) -> Option<Circle> {
        let me = self.port.member();
        let card = |task: &TaskId| read_card(&self.folder, *task);
        let is_near = |other: &Member| other.node == me.node && other.local.is_some();
        let members: Vec<Member> = view
            .workers
            .iter()
            .filter_map(card)
            .filter(is_near)
            .collect();
        let is_in = members.iter().any(|member| member.id == me.id);
        if members.len() < 2 || !is_in {
            return None;
        }
        let others = members[1..].iter().map(|member| member.id).collect();
        let met = Once(Mutex::new(Some(fabric::View {
            number: view.number,
            members,
        })));
        let group = Group::start(
            Arc::clone(&self.port),
            Arc::new(met),
            HEAD + self.parameters,
            Choice::Named(Algorithm::Ring),
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
                Some(Circle { group, others })
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

impl Drop for Neighbours {
    fn drop(&mut self) {
        let _ = fs::remove_file(card(&self.folder, self.port.member().id));
    }
}

fn card(folder: &Path, task: TaskId) -> PathBuf {
    folder.join(format!("{task}.card"))
}

fn leave_card(folder: &Path, member: &Member) -> io::Result<()> {
    let path = card(folder, member.id);
    let fresh = path.with_extension("card.new");
    fs::write(&fresh, serde_json::to_vec(member)?)?;
    fs::rename(fresh, path)
}

/// Returns `None` for a worker on another node. A worker with a damaged file is left out with a log
/// line.
fn read_card(folder: &Path, task: TaskId) -> Option<Member> {
    let path = card(folder, task);
    let text = fs::read(&path).ok()?;
    match serde_json::from_slice::<Member>(&text) {
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
