//! The workers of a view that run on this worker's node, and how they come to share memory.
//!
//! Each leaves a card in the folder where the job's tasks on a node meet, before it greets any shard: how it is reached. Under BSP all workers
//! of a view have come once its first step is over, so in the second all that find their cards in one folder find the same
//! ones, and meet. Whatever goes wrong leaves this worker apart until the next view: it is then one that pushes by itself, which needs nobody's consent.

use crate::collective::{Algorithm, Choice, Group};
use crate::fabric::{self, Coordinator, Credentials, FabricError, Member, Options, Port, Report};
use crate::log;
use crate::wire::view::View;
use crate::worker::head::HEAD;
use crate::worker::train::{STALL, Surroundings};
use muster_model::assignment::TaskLaunch;
use muster_model::id::TaskId;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// This worker, and whom it adds gradients up with.
pub(super) struct Neighbours {
    port: Arc<Port>,
    folder: PathBuf,
    parameters: usize,
    options: Options,
    /// The newest view, and the step in which this worker began to work by it.
    since: Option<(u64, u64)>,
    standing: Standing,
}

enum Standing {
    /// It is not known yet who is there.
    Unmet,
    Together(Box<Circle>),
    Apart,
}

/// Workers of one node that share memory.
pub(super) struct Circle {
    /// Of rank 0 here is who speaks for all; in the arena the head comes first, then the gradients.
    pub group: Group,
    /// Those for whom it speaks, in the order of their ranks.
    pub others: Vec<TaskId>,
}

/// There is one view of a circle; with whoever dies it is over.
struct Once(Mutex<Option<fabric::View>>);

impl Coordinator for Once {
    fn next_view(&self, _: Report) -> Result<fabric::View, String> {
        let mut view = self.0.lock().expect("nobody panics with it");
        view.take()
            .ok_or_else(|| "each worker of the node goes on by itself".to_owned())
    }
}

impl Neighbours {
    /// Listens, and leaves this worker's card. `None` where that cannot be: this worker then goes by itself for ever.
    pub fn open(launch: &TaskLaunch, parameters: usize, around: &Surroundings<'_>) -> Option<Self> {
        match Self::listen(launch, parameters, around) {
            Ok(neighbours) => Some(neighbours),
            Err(error) => {
                log::line(format_args!(
                    "gradients are not added up with others of this node: {}",
                    log::chain(&error)
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

    /// With whom this worker adds up the gradients of `step`, by the view that it works by; `None` where it goes by itself.
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

    /// Those with whom it has met, until they part.
    pub fn circle(&mut self) -> Option<&mut Circle> {
        match &mut self.standing {
            Standing::Together(circle) => Some(circle),
            Standing::Unmet | Standing::Apart => None,
        }
    }

    /// From here on this worker goes by itself, until the next view; whoever waits for it in the circle hears of it.
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
                    log::chain(&error)
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

/// `None` of a worker on another node. One whose card is damaged is left out, and the log says so.
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
