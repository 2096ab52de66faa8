//! The exchange by parameter servers: gradients go to the PS shards, which hold parameters and optimizer state.
//!
//! The chief looks at the task set between steps. Once a newer one has all its shards' addresses and its new workers wait at every
//! shard, it names the step from which on it holds; nobody waits for anybody's start. When a worker goes away without a word, the chief drops
//! it from the present step and from the view. What a lost worker had pushed to a shard that completed the step with it stays in
//! that shard's parameters: at most its part of one step is in some shards and not in others.

use super::error::WorkerError;
use super::exchange::{Answer, Exchange, Trouble};
use super::link::Reply;
use super::model::Model;
use super::progress::StepTimes;
use super::resume::Start;
use super::shards::{Address, Moved, Shards, Snapshot, first_view};
use super::train::{Ending, Surroundings};
use crate::assign::Piece;
use crate::checkpoint::{Contents, Layout};
use crate::clock;
use crate::log;
use crate::model::Network;
use crate::wire::WireError;
use crate::wire::hello::{Guest, Hello};
use crate::wire::view::View;
use muster_model::assignment::{Peers, TaskLaunch, TaskReport};
use muster_model::id::TaskId;
use std::thread;
use std::time::{Duration, Instant};

/// How often the addresses of the shards, and a newer task set, are looked for.
const PEERS_EVERY: Duration = Duration::from_millis(20);

/// How long a shard may refuse connections before it counts as lost.
const JOIN_PATIENCE: Duration = Duration::from_secs(5);

/// A worker among PS shards.
pub(super) struct Servers<'a> {
    shards: Shards,
    me: Hello,
    /// The task set that the worker joined, or the newest that the chief has followed.
    peers: Peers,
    bulk_synchronous: bool,
    /// Whether each shard has a copy with another one.
    copied: bool,
    around: &'a Surroundings<'a>,
    gradients: Vec<f32>,
    chief: Option<Duties>,
}

/// What the chief keeps of changes.
struct Duties {
    blocks: Vec<Piece>,
    looked_at: Instant,
    /// Workers that went away; a task set that still names them is older than that.
    lost: Vec<TaskId>,
    /// Since when the present step runs, and how long steps take.
    began: Instant,
    usual: Option<Duration>,
    /// The view that began at this step is new, and nothing was told of it yet.
    resized: Option<u64>,
}

/// What the chief makes of departures.
enum Decision {
    Stop,
    /// There is nothing to decide yet.
    WaitOn,
    /// Without them; another view begins with the next step.
    GoOn,
}

/// How the view stands after a look at what was heard.
enum Following {
    Same,
    Changed,
    Out,
}

impl<'a> Servers<'a> {
    /// Waits for the shards' addresses and joins them all. The ending when it is told to stop before, or a shard is lost.
    ///
    /// # Errors
    /// When a shard refuses this worker.
    pub fn join(
        launch: &TaskLaunch,
        rank: u32,
        network: &Network,
        around: &'a Surroundings<'a>,
    ) -> Result<Result<Self, Ending>, WorkerError> {
        let me = Hello {
            job_id: launch.job_id,
            secret: launch.secret.clone(),
            task_id: launch.task_id,
            guest: match rank {
                0 => Guest::Chief,
                _ => Guest::Worker,
            },
            to: None,
        };
        let copied = launch.spec.exchange.shard_replicas > 0;
        let (shards, peers) = match connect(&me, 0, network, copied, around) {
            Ok(Ok(joined)) => joined,
            Ok(Err(ending)) => return Ok(Err(ending)),
            Err(trouble) => return trouble.ending().map(Err),
        };
        let mut shards = shards;
        if let Some(codecs) = launch.spec.exchange.compression.codecs() {
            let seed = launch.spec.engine().seed;
            shards.compress(codecs.clone(), network.blocks(), seed)?;
        }
        let duties = || Duties {
            blocks: pieces(network),
            looked_at: clock::now(),
            lost: Vec::new(),
            began: clock::now(),
            usual: None,
            resized: None,
        };
        Ok(Ok(Self {
            shards,
            chief: (rank == 0).then(duties),
            me,
            peers,
            copied,
            bulk_synchronous: launch.spec.exchange.consistency.is_bulk_synchronous(),
            around,
            gradients: vec![0.0; network.parameter_count()],
        }))
    }

    /// Works by the newest view that was heard of.
    fn follow(&mut self, model: &mut Model) -> Result<Following, Trouble> {
        Ok(match self.shards.follow()? {
            None => Following::Same,
            Some(false) => Following::Out,
            Some(true) => {
                let view = self.shards.view().expect("it was just followed");
                let (number, workers, ps_shards) =
                    (view.number, view.workers.len(), view.shards.len());
                let rank = self.shards.rank().expect("this worker is in it");
                model.recut(rank, workers)?;
                log::line(format_args!(
                    "view {number}: worker {rank} of {workers}, {ps_shards} PS shards"
                ));
                Following::Changed
            }
        })
    }

    /// Chief: announces the next view if the task set has changed and everyone who comes is there. `from` is its first step.
    fn look(&mut self, from: u64) -> Result<bool, Trouble> {
        let Some(duties) = self.chief.as_mut() else {
            return Ok(false);
        };
        if duties.looked_at.elapsed() < PEERS_EVERY {
            return Ok(false);
        }
        duties.looked_at = clock::now();
        let Some(peers) = (self.around.peers)() else {
            return Ok(false);
        };
        if peers.revision <= self.peers.revision {
            return Ok(false);
        }
        let Some(addresses) = addresses(&peers) else {
            return Ok(false);
        };
        let workers: Vec<TaskId> = ids(&peers)
            .into_iter()
            .filter(|worker| !duties.lost.contains(worker))
            .collect();
        if workers.first() != Some(&self.me.task_id) || addresses.is_empty() {
            // Not one that can be followed in place; whoever made it so stops this task.
            return Ok(false);
        }
        match self.shards.approach(&addresses) {
            // It listens later than it says, or is gone again before it was of any use.
            Err((_, WireError::Io { .. } | WireError::Closed)) => return Ok(false),
            other => other?,
        }
        let view = self.shards.view().expect("the chief has begun");
        let new: Vec<TaskId> = workers
            .iter()
            .copied()
            .filter(|worker| view.rank(*worker).is_none())
            .collect();
        if !self.shards.are_waiting(&new, &addresses)? {
            return Ok(false);
        }
        self.shards
            .change(peers.revision, workers, &addresses, from, Vec::new())?;
        duties.resized = Some(from);
        self.peers = peers;
        Ok(true)
    }

    /// Chief: workers went away in step `step`, or have not come.
    fn decide(&mut self, step: u64) -> Result<Decision, Trouble> {
        let duties = self.chief.as_mut().expect("only the chief is told");
        let newest = (self.around.peers)();
        // Whoever has not come does not while its task set has it.
        let is_told_of = |task: TaskId| {
            let newest = newest.as_ref();
            newest.is_none_or(|peers| ids(peers).contains(&task))
        };
        let mut departed = self.shards.departed().to_vec();
        departed.retain(|departed| !departed.never_came || !is_told_of(departed.task_id));
        if departed.is_empty() {
            return Ok(Decision::WaitOn);
        }
        // Whoever said goodbye was told to stop, as everyone is when the job stops; unless the job goes on without it.
        let goes_on = departed
            .iter()
            .all(|departed| !departed.in_order || !is_told_of(departed.task_id));
        if !goes_on {
            return Ok(Decision::Stop);
        }
        let gone: Vec<TaskId> = departed.iter().map(|departed| departed.task_id).collect();
        for departed in departed {
            log::line(format_args!(
                "worker {} went away in step {step}; training goes on without it",
                departed.task_id
            ));
            if !departed.in_order {
                self.around.reporter.report(&TaskReport::PeerGone {
                    task_id: departed.task_id,
                    step,
                })?;
            }
        }
        duties.lost.extend(&gone);
        let view = self.shards.newest().expect("the chief has begun");
        let workers: Vec<TaskId> = view
            .workers
            .iter()
            .copied()
            .filter(|worker| !gone.contains(worker))
            .collect();
        let shards: Vec<Address> = view
            .shards
            .iter()
            .map(|holder| (holder.task_id, holder.address.clone()))
            .collect();
        let revision = view.revision;
        self.shards
            .change(revision, workers, &shards, step + 1, gone)?;
        duties.resized = Some(step + 1);
        Ok(Decision::GoOn)
    }

    /// Chief: `step` is done; tells of a change that it was the first step of.
    fn tell(&mut self, step: u64) -> Result<(), Trouble> {
        let Some(duties) = self.chief.as_mut() else {
            return Ok(());
        };
        let took = duties.began.elapsed();
        duties.began = clock::now();
        let usual = duties.usual;
        if duties.resized != Some(step) {
            duties.usual = Some(usual.map_or(took, |usual| (usual * 7 + took) / 8));
            return Ok(());
        }
        duties.resized = None;
        duties.usual = None;
        let pause = took.saturating_sub(usual.unwrap_or_default());
        let moved = self.shards.audit()?;
        let Layout { workers, ps_shards } = self.layout();
        log::line(format_args!(
            "resized at step {step}: {workers} workers, {ps_shards} PS shards; its first step took {:.1} ms, a usual one {:.1} ms",
            took.as_secs_f64() * 1e3,
            usual.unwrap_or_default().as_secs_f64() * 1e3,
        ));
        if let Some(moved) = moved {
            audited(moved, step)?;
        }
        Ok(self.around.reporter.report(&TaskReport::Resized {
            step,
            workers,
            ps_shards,
            pause_ms: pause.as_millis() as u64,
        })?)
    }

    /// Waits for parameters under the view that the worker has heard of.
    fn enter(&mut self, model: &mut Model) -> Result<Reply, Trouble> {
        loop {
            let (stop, around, revision) = (&self.around.stop, self.around, self.peers.revision);
            let (is_guest, copied) = (self.shards.view().is_none(), self.copied);
            // Whoever is not in yet may have to come in elsewhere.
            let patience = || {
                let newest = || (around.peers)().map_or(0, |peers| peers.revision);
                let is_elsewhere = is_guest && newest() > revision;
                !stop.is_set() && !is_elsewhere
            };
            let reply = self.shards.pull(&mut model.parameters, &patience)?;
            match (reply, self.follow(model)?) {
                (_, Following::Out) => return Ok(Reply::Moved),
                (Reply::Moved, _) => {}
                (Reply::GaveUp, _) if is_guest && !stop.is_set() => {
                    match connect(&self.me, revision, &model.network, copied, around)? {
                        Ok((shards, peers)) => {
                            let before = std::mem::replace(&mut self.shards, shards);
                            self.shards.compress_like(before);
                            self.peers = peers;
                        }
                        Err(Ending::PeerLost) => {
                            return Ok(Reply::Interrupted {
                                version: 0,
                                lost: true,
                            });
                        }
                        Err(_) => return Ok(Reply::Moved),
                    }
                }
                (reply, _) => return Ok(reply),
            }
        }
    }
}

impl Exchange for Servers<'_> {
    fn begin(&mut self, model: &mut Model, start: &Start) -> Result<(), Trouble> {
        let duties = self.chief.as_mut().expect("only the chief begins");
        let addresses = addresses(&self.peers).expect("it has joined them");
        let workers = ids(&self.peers);
        let view = first_view(self.peers.revision, workers, &addresses, &duties.blocks);
        self.shards
            .begin(view, start.step, start.updates, &start.contents)?;
        duties.began = clock::now();
        model.recut(0, self.peers.workers.len())?;
        model.parameters.copy_from_slice(&start.contents.parameters);
        Ok(())
    }

    fn receive(&mut self, model: &mut Model) -> Result<Answer, Trouble> {
        Ok(self.enter(model)?.into())
    }

    fn step(&mut self, model: &mut Model, step: u64) -> Result<(Answer, StepTimes), Trouble> {
        if self.bulk_synchronous {
            self.look(step + 1)?;
        } else if self.look(step)? {
            self.follow(model)?;
            self.enter(model)?;
        }
        let (stats, mut times) = model.gradient(step, &mut self.gradients, &mut |_, _| {});
        let began = clock::now();
        let stop = &self.around.stop;
        let patience = || !stop.must_hurry();
        let mut reply = self.shards.push_pull(
            step,
            stats,
            &self.gradients,
            &mut model.parameters,
            &patience,
        )?;
        loop {
            reply = match reply {
                Reply::Gone => {
                    let decision = self.decide(step)?;
                    let parameters = &mut model.parameters;
                    match decision {
                        Decision::Stop => {
                            return Ok((Answer::Interrupted { lost: false }, times));
                        }
                        Decision::WaitOn if !patience() => Reply::GaveUp,
                        Decision::WaitOn => self.shards.wait_on(parameters, &patience)?,
                        Decision::GoOn if self.bulk_synchronous => {
                            self.shards.resume(parameters, &patience)?
                        }
                        Decision::GoOn => {
                            self.follow(model)?;
                            self.enter(model)?
                        }
                    }
                }
                Reply::Moved => match self.follow(model)? {
                    Following::Changed => self.enter(model)?,
                    Following::Same | Following::Out => {
                        return Ok((Answer::Interrupted { lost: false }, times));
                    }
                },
                _ => break,
            };
        }
        if let Following::Out = self.follow(model)? {
            log::line(format_args!("not in the view after step {step}: leaves"));
            return Ok((Answer::Interrupted { lost: false }, times));
        }
        times.exchange = began.elapsed();
        self.tell(step)?;
        Ok((reply.into(), times))
    }

    fn snapshot(&mut self, _: &Model, into: Contents) -> Result<Snapshot, Trouble> {
        Ok(self.shards.snapshot(into)?)
    }

    fn layout(&self) -> Layout {
        let count =
            |of: fn(&View) -> usize, before: usize| self.shards.view().map_or(before, of) as u32;
        Layout {
            workers: count(|view| view.workers.len(), self.peers.workers.len()),
            ps_shards: count(|view| view.shards.len(), self.peers.ps_shards.len()),
        }
    }

    fn done(self: Box<Self>) {
        self.shards.done();
    }

    fn goodbye(self: Box<Self>) {
        self.shards.goodbye();
    }
}

/// Waits for a task set newer than `revision` with all its shards' addresses, and joins them.
fn connect(
    me: &Hello,
    revision: u64,
    network: &Network,
    copied: bool,
    around: &Surroundings<'_>,
) -> Result<Result<(Shards, Peers), Ending>, Trouble> {
    let (parameters, targets) = (network.parameter_count(), network.targets() as u64);
    let mut began = clock::now();
    loop {
        if around.stop.is_set() {
            return Ok(Err(Ending::Interrupted));
        }
        let known = (around.peers)()
            .filter(|peers| peers.revision > revision || revision == 0)
            .and_then(|peers| Some((addresses(&peers)?, peers)));
        let Some((addresses, peers)) = known else {
            thread::sleep(PEERS_EVERY);
            began = clock::now();
            continue;
        };
        if !ids(&peers).contains(&me.task_id) {
            log::line("not in the job's task set any more: leaves");
            return Ok(Err(Ending::Interrupted));
        }
        match Shards::join(&addresses, parameters, me) {
            Ok(shards) => {
                return Ok(Ok((
                    shards.with_targets(targets).with_copies(copied),
                    peers,
                )));
            }
            Err(_) if around.stop.is_set() => return Ok(Err(Ending::Interrupted)),
            Err((_, WireError::Io { .. })) if began.elapsed() < JOIN_PATIENCE => {
                thread::sleep(PEERS_EVERY);
            }
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// Says how pieces moved; bits that came out differently are an error that a restart from the checkpoint repairs.
fn audited(moved: Moved, step: u64) -> Result<(), WorkerError> {
    if moved.before != moved.after {
        return Err(WorkerError::MovedBadly {
            step,
            before: moved.before,
            after: moved.after,
        });
    }
    log::line(format_args!(
        "{} numbers moved between PS shards in {:.1} ms; parameters and optimizer state are the same to the bit: {:016x}",
        moved.numbers,
        moved.took_us as f64 / 1e3,
        moved.after
    ));
    Ok(())
}

/// The shards' addresses, once all are known.
fn addresses(peers: &Peers) -> Option<Vec<Address>> {
    let address =
        |peer: &muster_model::assignment::Peer| Some((peer.task_id, peer.address.clone()?));
    let all: Vec<Address> = peers.ps_shards.iter().map(address).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}

fn ids(peers: &Peers) -> Vec<TaskId> {
    peers.workers.iter().map(|peer| peer.task_id).collect()
}

/// The network's blocks, to be assigned to shards.
fn pieces(network: &Network) -> Vec<Piece> {
    let piece = |block: &crate::model::Block| Piece {
        offset: block.offset,
        len: block.len,
    };
    network.blocks().iter().map(piece).collect()
}
