//! The exchange without parameter servers: every worker holds parameters and optimizer state, gradients are summed over all workers,
//! and all make the same update.
//!
//! The chief keeps the list of members in its [`office`]; a step's sum carries in its [`head`] what all must agree on. Between two
//! steps a new task set takes effect: who has come gets everyone else's state, who is not wanted any more leaves, and batches are cut
//! anew. A worker that dies in mid-step costs the step its examples, and nothing else.

mod averaging;
mod buckets;
mod coded;
mod council;
mod head;
mod office;
mod replica;
mod round;
mod seat;
mod unsaid;

use super::error::WorkerError;
use super::exchange::{Answer, Exchange, Trouble};
use super::model::Model;
use super::noise::{self, Noise};
use super::progress::StepTimes;
use super::resume::Start;
use super::shards::Snapshot;
use super::train::{Ending, Surroundings};
use crate::checkpoint::{Contents, Layout};
use crate::clock;
use crate::collective::{Algorithm, Choice, Group};
use crate::document;
use crate::fabric::{Coordinator, Credentials, FabricError, Options, Port};
use crate::log;
use crate::model::Network;
use crate::wire::hello::StepStats;
use averaging::Averaging;
use buckets::{Cut, Step, Sums, Way, buckets};
use coded::Coded;
use head::{HEAD, Head, count_from_floats, count_to_floats};
use muster_model::assignment::{TaskLaunch, TaskReport};
use muster_model::id::TaskId;
use muster_model::spec;
use replica::Replica;
use seat::{Seat, attend, preside};
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// A worker whose process runs but which takes no part for so long is held for lost: longer than an evaluation or a checkpoint ever
/// takes. One whose process stands still is found by its missing pulse long before.
const STALL: Duration = Duration::from_secs(900);

/// Of the averages' centre, in checkpoints.
const VELOCITY: &str = "averaging.velocity";

/// A socket's path has to fit into the kernel's 108 bytes, the socket's own name included.
const LONGEST_FOLDER: usize = 80;

/// A worker among workers.
pub(super) struct AllReduce<'a> {
    around: &'a Surroundings<'a>,
    group: Group,
    seat: Seat,
    replica: Replica,
    buckets: Vec<Range<usize>>,
    /// Only where gradients travel in several buckets.
    gradients: Vec<f32>,
    sums: Vec<f32>,
    /// Where gradients go as codecs' bytes.
    coded: Option<Coded>,
    cut: Cut,
    noise: Noise,
    me: TaskId,
    /// That comes next.
    step: u64,
    /// Where parameters are averaged in place of gradients' being summed.
    averaging: Option<Averaging>,
    /// This worker's own counts since the last average.
    round: StepStats,
    /// Chief: the step at whose beginning a checkpoint will be asked for.
    noticed: Option<u64>,
    /// Chief: what workers had not said at the beginning of that step, for the checkpoint.
    unsaid: Vec<(String, Vec<f32>)>,
    /// Chief: what a checkpoint has for the first workers to begin with, by rank.
    dealt: Option<Vec<Vec<f32>>>,
    /// The turn to name with the next sum; 0: none.
    hold: u64,
    /// The turn that the last sum named, for newcomers to stand still in; 0: none.
    held: u64,
}

impl<'a> AllReduce<'a> {
    /// Waits for the other workers. The ending when it is told to stop before, or the chief is lost.
    ///
    /// # Errors
    /// When it cannot listen, or is refused.
    pub fn join(
        launch: &TaskLaunch,
        rank: u32,
        network: &Network,
        around: &'a Surroundings<'a>,
    ) -> Result<Result<Self, Ending>, WorkerError> {
        let me = Credentials {
            job_id: launch.job_id,
            secret: launch.secret.clone(),
            id: launch.task_id,
            attempt: std::process::id(),
        };
        let folder = match around.folder.as_os_str().len() {
            ..=LONGEST_FOLDER => around.folder.to_owned(),
            _ => std::env::temp_dir(),
        };
        let port = Port::bind(around.listen_host, Some(Path::new(&folder)), me.clone())?;
        let silence = Duration::from_secs(launch.spec.exchange.hung_after_s.into());
        let seat = match rank {
            0 => preside(launch, me, around)?,
            _ => {
                let address = port.member().address.to_string();
                around.reporter.report(&TaskReport::Listening { address })?;
                attend(launch, &me, silence, around)?
            }
        };
        let seat = match seat {
            Ok(seat) => seat,
            Err(ending) => return Ok(Err(ending)),
        };
        let len = network.parameter_count();
        let averaging = launch.spec.exchange.averaging;
        let optimizer = document::optimizer(launch.spec.engine());
        let arenas = match averaging.is_some_and(Averaging::averages_state) {
            true => 1 + optimizer.state_len_per_param(),
            false => 1,
        };
        let options = Options {
            silence,
            stall: STALL,
            ..Options::default()
        };
        let group = Group::start(
            port,
            seat.coordinator(),
            HEAD + arenas * len,
            choice(launch.spec.exchange.algorithm),
            matches!(seat, Seat::Chief(_)),
            options,
        );
        let group = match group {
            Ok(group) => group,
            Err(FabricError::NoView(_)) => return Ok(Err(seat.ending(around))),
            Err(error) => return Err(error.into()),
        };
        let buckets = buckets(network.blocks());
        let codecs = launch.spec.exchange.compression.codecs();
        let seed = launch.spec.engine().seed;
        let coded = codecs.map(|codecs| Coded::new(codecs, network.blocks(), seed));
        let spare = match buckets.len() > 1 || averaging.is_some() {
            true => len,
            false => 0,
        };
        Ok(Ok(Self {
            around,
            group,
            seat,
            replica: Replica::new(optimizer, network.blocks(), around.threads)
                .clipping(launch.spec.engine().clip_norm),
            buckets,
            gradients: vec![0.0; spare],
            sums: vec![0.0; spare],
            coded: coded.transpose()?,
            cut: Cut {
                workers: Vec::new(),
                batch: launch.spec.engine().batch as usize,
                targets: launch.spec.engine().targets_per_example(),
            },
            noise: Noise::default(),
            me: launch.task_id,
            step: 0,
            averaging: averaging
                .map(|method| Averaging::new(method, launch.spec.engine().seed, len)),
            round: StepStats::default(),
            noticed: None,
            unsaid: Vec::new(),
            dealt: None,
            hold: 0,
            held: 0,
        }))
    }

    /// Gives newcomers, this worker perhaps, everything that training goes on from.
    fn welcome(&mut self, model: &mut Model) -> Result<(), FabricError> {
        let mut counts = [0.0; 13];
        counts[..4].copy_from_slice(&count_to_floats(self.step));
        counts[4..8].copy_from_slice(&count_to_floats(self.replica.updates));
        counts[8..12].copy_from_slice(&count_to_floats(self.held));
        counts[12] = f32::from(u8::from(self.dealt.is_some()));
        let mut values: Vec<&mut [f32]> = vec![&mut counts, &mut model.parameters];
        values.extend(self.replica.state.iter_mut().map(Vec::as_mut_slice));
        if let Some(averaging) = &mut self.averaging {
            values.extend([&mut averaging.centre[..], &mut averaging.velocity[..]]);
        }
        let all_there = self.group.welcome(&mut values)?;
        if let Some(averaging) = self.averaging.as_ref().filter(|a| a.keeps_centre()) {
            model.parameters.copy_from_slice(&averaging.centre);
        }
        let [a, b, c, d, e, f, g, h, i, j, k, l, deals] = counts;
        self.step = count_from_floats([a, b, c, d]);
        self.replica.updates = count_from_floats([e, f, g, h]);
        self.held = count_from_floats([i, j, k, l]);
        match deals > 0.0 {
            true if all_there => self.deal(),
            true => {
                log::line(
                    "a worker died before a checkpoint's residuals were dealt: they are lost",
                );
                self.dealt = None;
                Ok(())
            }
            false => Ok(()),
        }
    }

    /// Between two steps: lets a new task set take effect if that was agreed on.
    fn between(&mut self, model: &mut Model, regroup: bool) -> Result<(), FabricError> {
        self.note_the_dead();
        let began = clock::now();
        if regroup {
            if self.group.regroup()? {
                self.welcome(model)?;
            }
            if let Seat::Chief(_) = self.seat {
                self.report(&TaskReport::Resized {
                    step: self.step,
                    workers: self.group.view().members.len() as u32,
                    ps_shards: 0,
                    pause_ms: began.elapsed().as_millis() as u64,
                });
            }
        }
        Ok(())
    }

    /// Cuts batches by who is there now.
    fn recut(&mut self, model: &mut Model) -> Result<(), WorkerError> {
        self.group.forget_views();
        let members = &self.group.view().members;
        let workers: Vec<TaskId> = members.iter().map(|member| member.id).collect();
        if workers == self.cut.workers {
            return Ok(());
        }
        let rank = workers.iter().position(|id| *id == self.me);
        let rank = rank.expect("a worker is in its own view");
        model.recut(rank, workers.len())?;
        log::line(format_args!(
            "worker {rank} of {} from step {}, {} parameters {:016x}",
            workers.len(),
            self.step,
            model.parameters.len(),
            fingerprint(model, &self.replica)
        ));
        self.cut.workers = workers;
        Ok(())
    }

    /// The chief tells of those who went without a word.
    fn note_the_dead(&self) {
        if let Seat::Chief(chair) = &self.seat {
            for task_id in chair.take_dead() {
                log::line(format_args!("lost task {task_id} at step {}", self.step));
                let step = self.step;
                self.report(&TaskReport::PeerGone { task_id, step });
            }
        }
    }

    /// These reports are news for people; training does not end where one cannot be kept.
    fn report(&self, report: &TaskReport) {
        if let Err(error) = self.around.reporter.report(report) {
            log::line(format_args!("could not keep a report: {error}"));
        }
    }

    /// What the end of all views means to this worker.
    fn parted(&self, error: FabricError) -> Result<Answer, Trouble> {
        match error {
            FabricError::NoView(_) => Ok(Answer::Interrupted {
                lost: self.seat.ending(self.around) == Ending::PeerLost,
            }),
            error => Err(WorkerError::Peers(error).into()),
        }
    }

    fn all_reduce(
        &mut self,
        model: &mut Model,
        step: u64,
    ) -> (Result<Sums, FabricError>, StepTimes) {
        let regroup = match &self.seat {
            Seat::Chief(chair) => chair.someone_waits(),
            Seat::Member(_) => false,
        };
        self.unsaid.clear();
        let head = Head {
            regroup,
            keep: self.noticed == Some(step + 1),
            stats: StepStats {
                hold: self.hold,
                ..StepStats::default()
            },
            ..Head::default()
        };
        // Of what codecs make of gradients, feedback among it, the norms say nothing.
        let measures =
            self.cut.workers.len() > 1 && self.coded.is_none() && step.is_multiple_of(noise::EVERY);
        let step = Step {
            number: step,
            cut: &self.cut,
            head,
            measured_by: measures.then_some(&self.replica),
        };
        let began = clock::now();
        let mut way = self.coded.as_mut().map_or(Way::Plain, Way::Coded);
        let ours = (&mut self.group, &mut way);
        let (sums, mut times) = if self.buckets.len() > 1 && self.cut.workers.len() > 1 {
            buckets::overlapped(
                ours,
                model,
                &step,
                &self.buckets,
                (&mut self.gradients, &mut self.sums),
            )
        } else {
            buckets::in_one(ours, model, &step)
        };
        times.exchange = began.elapsed().saturating_sub(times.data + times.compute);
        (sums, times)
    }
}

impl Exchange for AllReduce<'_> {
    fn begin(&mut self, model: &mut Model, start: &Start) -> Result<(), Trouble> {
        model.parameters.copy_from_slice(&start.contents.parameters);
        self.replica.fill(start.updates, &start.contents);
        if let Some(averaging) = &mut self.averaging {
            averaging.begin(&start.contents.parameters);
            let kept = start.contents.extras.iter();
            for (_, velocity) in kept.filter(|(name, _)| name == VELOCITY) {
                if velocity.len() == averaging.velocity.len() {
                    averaging.velocity.copy_from_slice(velocity);
                }
            }
        }
        self.step = start.step;
        let size = self.group.view().members.len();
        let coded = self.coded.as_ref();
        self.dealt = coded.and_then(|coded| coded.dealt(&start.contents, size));
        if self.group.has_newcomers() {
            self.welcome(model).map_err(WorkerError::Peers)?;
        } else if self.dealt.is_some() {
            self.deal().map_err(WorkerError::Peers)?;
        }
        self.recut(model)?;
        Ok(())
    }

    fn receive(&mut self, model: &mut Model) -> Result<Answer, Trouble> {
        match self.welcome(model) {
            Ok(()) => {}
            Err(error) => return self.parted(error),
        }
        self.recut(model)?;
        Ok(Answer::Parameters {
            step: self.step,
            // Whoever comes in before a step at which all stand still stands still too.
            stats: StepStats {
                hold: self.held,
                ..StepStats::default()
            },
        })
    }

    fn step(&mut self, model: &mut Model, step: u64) -> Result<(Answer, StepTimes), Trouble> {
        if self.averaging.is_some() {
            return self.averaged_step(model, step);
        }
        let (sums, times) = self.all_reduce(model, step);
        let Sums { head, parts } = match sums {
            Ok(sums) => sums,
            Err(error) => return Ok((self.parted(error)?, times)),
        };
        if head.finish {
            if let Seat::Member(remote) = &self.seat {
                remote.wait_for_the_end();
            }
            return Ok((Answer::Finished, times));
        }
        let sums = match parts.len() {
            1 => &self.group.sums()[HEAD..],
            _ => &self.sums,
        };
        let whole = self.cut.whole();
        if head.parts.workers > 1.0 && parts.iter().all(|part| part.scale == whole) {
            let square = self.replica.square_norm(sums, &parts);
            self.noise.observe(head.parts, square, self.cut.batch);
        }
        self.replica.update(&mut model.parameters, sums, &parts);
        self.step = step + 1;
        self.held = head.stats.hold;
        let kept = match head.keep && self.group.is_unbroken() {
            true => self.gather(),
            false => Ok(()),
        };
        if let Err(error) = kept.and_then(|()| self.between(model, head.regroup)) {
            return Ok((self.parted(error)?, times));
        }
        self.recut(model)?;
        let answer = Answer::Parameters {
            step: self.step,
            stats: head.stats,
        };
        Ok((answer, times))
    }

    fn snapshot(&mut self, model: &Model, mut into: Contents) -> Result<Snapshot, Trouble> {
        self.replica.copy(&model.parameters, &mut into);
        if let Some(averaging) = &self.averaging {
            if averaging.keeps_centre() {
                into.parameters.copy_from_slice(&averaging.centre);
            }
            if !averaging.velocity.is_empty() {
                let velocity = averaging.velocity.clone();
                into.extras.push((VELOCITY.to_owned(), velocity));
            }
        }
        into.extras.extend(self.unsaid.iter().cloned());
        Ok(Snapshot {
            versions: vec![self.step],
            updates: self.replica.updates,
            counted: StepStats::default(),
            contents: into,
        })
    }

    fn needs_notice(&self) -> bool {
        self.coded.is_some()
    }

    fn notice(&mut self, step: u64) {
        self.noticed = Some(step);
    }

    fn hold(&mut self, turn: u64) {
        self.hold = turn;
    }

    fn noise_scale(&self) -> Option<f64> {
        self.noise.scale()
    }

    fn layout(&self) -> Layout {
        Layout {
            workers: self.group.view().members.len() as u32,
            ps_shards: 0,
        }
    }

    fn conclude(&mut self, model: &mut Model) -> Result<(), Trouble> {
        let concluded = match &self.averaging {
            // All stand where the chief does; the others hear of the end when they next ask.
            Some(averaging) if averaging.is_due(self.step) => return Ok(()),
            // The round ends early for the chief, and the others' work of it counts.
            Some(_) => self.end_round(model, true).map(drop),
            None => {
                let mut way = self.coded.as_mut().map_or(Way::Plain, Way::Coded);
                buckets::finish((&mut self.group, &mut way), self.step, &self.buckets)
            }
        };
        match concluded {
            // Told to stop: the others hear of the end by the office's closing.
            Ok(()) | Err(FabricError::NoView(_)) => Ok(()),
            Err(error) => Err(WorkerError::Peers(error).into()),
        }
    }

    fn done(self: Box<Self>) {
        self.goodbye();
    }

    fn goodbye(self: Box<Self>) {
        let Self { group, seat, .. } = *self;
        match seat {
            Seat::Chief(chair) => {
                // They must not form a view of their own when they find the chief gone.
                chair.end();
                // Before it waits, so that those in the middle of a sum come and ask.
                drop(group);
                chair.close();
            }
            Seat::Member(remote) => {
                remote.goodbye();
                drop(group);
            }
        }
    }
}

/// Of everything that must be the same bits on every worker, for people to compare.
fn fingerprint(model: &Model, replica: &Replica) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let planes = std::iter::once(&model.parameters).chain(&replica.state);
    for value in planes.flatten() {
        hash = (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

/// Within a node sums are read straight out of each other's memory whatever is chosen, so that the hierarchical one is what any
/// choice is there; its ring between nodes is what its name then means.
fn choice(algorithm: spec::Algorithm) -> Choice {
    Choice::Named(match algorithm {
        spec::Algorithm::Auto => return Choice::Fastest,
        spec::Algorithm::Ring | spec::Algorithm::Hierarchical => Algorithm::Ring,
        spec::Algorithm::Tree => Algorithm::Tree,
        spec::Algorithm::HalvingDoubling => Algorithm::HalvingDoubling,
        spec::Algorithm::Butterfly => Algorithm::Butterfly,
    })
}
