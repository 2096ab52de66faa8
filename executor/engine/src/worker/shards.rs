//! All PS shards as one: each step goes to every shard at the same time, each over its own connection and into its own part of
//! the arena; and the worker's side of a change of the view.

use super::link::{Begun, Link, Patience, Reply, Told};
use crate::assign::{Piece, assign, reassign, split_mut};
use crate::checkpoint::Contents;
use crate::compress::{Codecs, Feedback, PlanError};
use crate::model::Block;
use crate::squeeze::{Salt, Squeeze};
use crate::wire::WireError;
use crate::wire::hello::{Guest, Hello, PushHead, StepStats};
use crate::wire::view::{Change, Departed, Holder, View};
use muster_model::id::TaskId;
use std::sync::Mutex;
use std::thread;

/// What the shards held when the chief asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// Of each shard; training can continue from here only when they are all the same.
    pub versions: Vec<u64>,
    /// The fewest updates that any shard has made; all the same under BSP.
    pub updates: u64,
    pub contents: Contents,
}

/// A shard of the job, where it is reached.
pub type Address = (TaskId, String);

/// The index of a shard, and what went wrong with it.
pub type ShardFailure = (usize, WireError);

/// How a move of pieces went, over all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Checksums of everything that the shards held before and hold now.
    pub before: u64,
    pub after: u64,
    /// Numbers that went from one shard to another.
    pub numbers: u64,
    /// Of the shard that took longest, from the end of the step before to the last piece in its place.
    pub took_us: u64,
}

/// What a worker encodes with.
#[derive(Debug)]
struct Compression {
    codecs: Codecs,
    blocks: Vec<Block>,
    feedback: Feedback,
    /// Of the job; each rank's randomness is its own.
    seed: u64,
}

/// Connections to every shard of the job.
#[derive(Debug)]
pub struct Shards {
    hello: Hello,
    /// The view that is worked by; `None` before the first.
    view: Option<View>,
    /// In the order of the view's shards, once there is one.
    links: Vec<Link>,
    /// Newest that was heard of and is not worked by yet.
    next: Option<View>,
    /// Which links still owe the answer of a push that somebody's departure holds up.
    owing: Vec<bool>,
    departed: Vec<Departed>,
    /// Chief: shards that will be in the next view.
    prospects: Vec<Link>,
    /// Chief: shards that are not in the view any more, until all they held has been handed over.
    retiring: Vec<Link>,
    compression: Option<Compression>,
    /// The newest layout whose move was looked at.
    audited: u64,
    parameters: usize,
}

impl Shards {
    /// Greets every shard; `parameters` are the whole network's.
    ///
    /// # Errors
    /// The index of the shard that could not be joined, and why.
    pub fn join(
        addresses: &[Address],
        parameters: usize,
        hello: &Hello,
    ) -> Result<Self, ShardFailure> {
        let mut links = Vec::with_capacity(addresses.len());
        for (index, (shard, address)) in addresses.iter().enumerate() {
            links.push(Link::join(*shard, address, hello).map_err(|error| (index, error))?);
        }
        Ok(Self {
            hello: hello.clone(),
            view: None,
            owing: vec![false; links.len()],
            links,
            next: None,
            departed: Vec::new(),
            prospects: Vec::new(),
            retiring: Vec::new(),
            audited: 1,
            compression: None,
            parameters,
        })
    }

    /// Pushes are encoded from now on, and under BSP the answers.
    ///
    /// # Errors
    /// When a codec's settings lie outside their range.
    pub fn compress(
        &mut self,
        codecs: Codecs,
        blocks: &[Block],
        seed: u64,
    ) -> Result<(), PlanError> {
        self.compression = Some(Compression {
            feedback: Squeeze::feedback(&codecs, blocks)?,
            codecs,
            blocks: blocks.to_vec(),
            seed,
        });
        Ok(())
    }

    /// Takes over how another set of connections encoded.
    pub(super) fn compress_like(&mut self, before: Self) {
        self.compression = before.compression;
    }

    /// What this worker has not sent yet, by the names that checkpoints know it by.
    #[must_use]
    pub fn feedback(&self) -> Option<&Feedback> {
        self.compression
            .as_ref()
            .map(|compression| &compression.feedback)
    }

    /// Makes what links encode with, for the view.
    fn squeeze(&mut self) {
        let (Some(compression), Some(view)) = (&self.compression, &self.view) else {
            return;
        };
        for link in &mut self.links {
            let pieces = view.pieces(link.shard);
            let squeeze = Squeeze::new(&compression.codecs, &compression.blocks, pieces);
            link.squeeze = Some(squeeze.expect("the codecs were tried"));
        }
    }

    /// The view that is worked by.
    #[must_use]
    pub fn view(&self) -> Option<&View> {
        self.view.as_ref()
    }

    /// The newest view that was heard of.
    #[must_use]
    pub fn newest(&self) -> Option<&View> {
        self.next.as_ref().or(self.view.as_ref())
    }

    /// This worker's rank in the one that is worked by.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.view.as_ref()?.rank(self.hello.task_id)
    }

    /// Chief: who went away, after [`Reply::Gone`].
    #[must_use]
    pub fn departed(&self) -> &[Departed] {
        &self.departed
    }

    /// Chief: the first view, of these workers and all joined shards, and what they begin with.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn begin(
        &mut self,
        view: View,
        step: u64,
        updates: u64,
        contents: &Contents,
    ) -> Result<(), ShardFailure> {
        let change = Change {
            view,
            gone: Vec::new(),
        };
        let holders = &change.view.shards;
        let links = self.links.iter_mut().zip(holders);
        at_once(links.map(|(link, holder)| {
            let (change, pieces) = (&change, &holder.pieces);
            move || {
                link.change(step, change)?;
                let arenas = std::iter::once(&contents.parameters).chain(&contents.state);
                let parts: Vec<&[f32]> = arenas
                    .flat_map(|arena| pieces.iter().map(move |piece| &arena[piece.range()]))
                    .collect();
                link.init(step, updates, &parts)
            }
        }))?;
        self.audited = change.view.layout;
        self.view = Some(change.view);
        self.squeeze();
        Ok(())
    }

    /// Waits for parameters under the newest view that was heard of; whoever knows none waits until it is taken in.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn pull(
        &mut self,
        parameters: &mut [f32],
        patience: Patience<'_>,
    ) -> Result<Reply, ShardFailure> {
        let known = self.view.as_ref().map_or(0, |view| view.number);
        let begun = at_once(
            self.links
                .iter_mut()
                .map(|link| move || link.begin_pull(known, patience)),
        )?;
        let mut begun_by = vec![false; self.links.len()];
        let mut others: Vec<Told> = Vec::new();
        for (index, begun) in begun.into_iter().enumerate() {
            match begun {
                Begun::View(view) => {
                    begun_by[index] = true;
                    self.heard(view);
                }
                Begun::Other(told) => others.push(told),
            }
        }
        // What is on its way must be read, whatever else was said; a later view of the same layout has the same pieces.
        let Some(view) = self.next.as_ref().or(self.view.as_ref()) else {
            return Ok(self.together(others));
        };
        let mut by_shard: Vec<Vec<Piece>> = Vec::with_capacity(self.links.len());
        for (index, link) in self.links.iter().enumerate() {
            if begun_by[index] && !view.has_shard(link.shard) {
                return Err((index, WireError::Malformed("view without itself")));
            }
            by_shard.push(view.pieces(link.shard).to_vec());
        }
        let parts = split_mut(parameters, &by_shard);
        let links = self.links.iter_mut().zip(parts).enumerate();
        let ended = at_once_of(
            links
                .filter(|(index, _)| begun_by[*index])
                .map(|(index, (link, mut part))| (index, move || link.end_pull(&mut part))),
        )?;
        others.extend(ended.into_iter().map(|(_, told)| told));
        Ok(self.together(others))
    }

    /// Gives the gradients of step `clock` and receives the parameters after it.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn push_pull(
        &mut self,
        clock: u64,
        stats: StepStats,
        gradients: &[f32],
        parameters: &mut [f32],
        patience: Patience<'_>,
    ) -> Result<Reply, ShardFailure> {
        let view = self.view.as_ref().expect("a worker pushes under a view");
        let assignment: Vec<Vec<Piece>> = view
            .shards
            .iter()
            .map(|holder| holder.pieces.clone())
            .collect();
        let number = view.number;
        let rank = view.rank(self.hello.task_id).unwrap_or_default();
        let mut compression = self.compression.as_mut();
        let encoding = compression.as_mut().map(|compression| {
            let salt = Salt {
                seed: compression.seed ^ (rank as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15),
                step: clock,
            };
            (salt, Mutex::new(&mut compression.feedback))
        });
        let parts = split_mut(parameters, &assignment);
        let links = self.links.iter_mut().zip(&assignment).zip(parts);
        let told = at_once(
            links
                .enumerate()
                .map(|(index, ((link, pieces), mut part))| {
                    let head = PushHead {
                        view: number,
                        // Shard 0 alone counts for all, lest each example be counted once per shard.
                        stats: if index == 0 {
                            stats
                        } else {
                            StepStats::default()
                        },
                    };
                    let encoding = &encoding;
                    move || {
                        if let Some((salt, feedback)) = encoding {
                            let gradients = (*salt, gradients, feedback);
                            return link
                                .squeezed_push_pull(clock, head, gradients, &mut part, patience);
                        }
                        let gradients: Vec<&[f32]> = pieces
                            .iter()
                            .map(|piece| &gradients[piece.range()])
                            .collect();
                        link.push_pull(clock, head, &gradients, &mut part, patience)
                    }
                }),
        )?;
        self.owing = told.iter().map(|told| told.reply == Reply::Gone).collect();
        Ok(self.together(told))
    }

    /// Chief, BSP: the answers that are still owed once it has decided on who went away.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn resume(
        &mut self,
        parameters: &mut [f32],
        patience: Patience<'_>,
    ) -> Result<Reply, ShardFailure> {
        let view = self.view.as_ref().expect("a worker pushes under a view");
        let assignment: Vec<Vec<Piece>> = view
            .shards
            .iter()
            .map(|holder| holder.pieces.clone())
            .collect();
        let parts = split_mut(parameters, &assignment);
        let links = self.links.iter_mut().zip(parts).enumerate();
        let owing = &self.owing;
        let told =
            at_once_of(links.filter(|(index, _)| owing[*index]).map(
                |(index, (link, mut part))| (index, move || link.reply(&mut part, patience)),
            ))?;
        self.owing = vec![false; self.links.len()];
        for (index, told) in &told {
            self.owing[*index] = told.reply == Reply::Gone;
        }
        Ok(self.together(told.into_iter().map(|(_, told)| told).collect()))
    }

    /// Works by the newest view that was heard of, if there is one. `None` when there is none; otherwise whether this worker is in
    /// it. If not, it has said goodbye to all.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn follow(&mut self) -> Result<Option<bool>, ShardFailure> {
        let Some(view) = self.next.take() else {
            return Ok(None);
        };
        if view.rank(self.hello.task_id).is_none() {
            for link in self.links.drain(..) {
                let _ = link.goodbye();
            }
            self.view = Some(view);
            return Ok(Some(false));
        }
        let mut links = Vec::with_capacity(view.shards.len());
        for (index, holder) in view.shards.iter().enumerate() {
            let known = take(&mut self.links, holder.task_id)
                .or_else(|| take(&mut self.prospects, holder.task_id));
            links.push(match known {
                Some(link) => link,
                None => Link::join(holder.task_id, &holder.address, &self.hello)
                    .map_err(|error| (index, error))?,
            });
        }
        for (index, mut link) in self.links.drain(..).enumerate() {
            if self.hello.guest == Guest::Chief {
                link.ask_tally().map_err(|error| (index, error))?;
                self.retiring.push(link);
            } else {
                // A shard that is gone already needs no goodbye.
                let _ = link.goodbye();
            }
        }
        self.links = links;
        self.owing = vec![false; self.links.len()];
        self.view = Some(view);
        self.squeeze();
        Ok(Some(true))
    }

    /// Chief: joins shards that will be in the next view, and forgets others that were to be.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn approach(&mut self, addresses: &[Address]) -> Result<(), ShardFailure> {
        for link in std::mem::take(&mut self.prospects) {
            if addresses.iter().any(|(shard, _)| *shard == link.shard) {
                self.prospects.push(link);
            } else {
                let _ = link.goodbye();
            }
        }
        for (index, (shard, address)) in addresses.iter().enumerate() {
            let mut known = self.links.iter().chain(&self.prospects);
            if known.all(|link| link.shard != *shard) {
                let link =
                    Link::join(*shard, address, &self.hello).map_err(|error| (index, error))?;
                self.prospects.push(link);
            }
        }
        Ok(())
    }

    /// Chief: whether all of `workers` wait at each of `shards` to be taken in.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn are_waiting(
        &mut self,
        workers: &[TaskId],
        shards: &[Address],
    ) -> Result<bool, ShardFailure> {
        if workers.is_empty() {
            return Ok(true);
        }
        let links = self.links.iter_mut().chain(&mut self.prospects);
        for (index, link) in links.enumerate() {
            if shards.iter().all(|(shard, _)| *shard != link.shard) {
                continue;
            }
            let guests = link.guests().map_err(|error| (index, error))?;
            if !workers.iter().all(|worker| guests.contains(worker)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Chief: tells all shards of both views that a view of these workers and shards begins with step `from`, and that the step
    /// before is completed without `gone`. Pieces move only when the shards are others.
    ///
    /// # Errors
    /// As [`Self::join`].
    ///
    /// # Panics
    /// Before there is a first view.
    pub fn change(
        &mut self,
        revision: u64,
        workers: Vec<TaskId>,
        shards: &[Address],
        from: u64,
        gone: Vec<TaskId>,
    ) -> Result<(), ShardFailure> {
        let newest = self.next.as_ref().or(self.view.as_ref());
        let view = succeeding(
            newest.expect("there is a view"),
            revision,
            workers,
            shards,
            self.parameters,
        );
        let change = Change { view, gone };
        let links = self.links.iter_mut().chain(&mut self.prospects);
        at_once(links.map(|link| {
            let change = &change;
            move || link.change(from, change)
        }))?;
        self.heard(change.view);
        Ok(())
    }

    /// Chief: how the move to the present layout went; `None` when it was looked at already. Waits until it is over.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn audit(&mut self) -> Result<Option<Moved>, ShardFailure> {
        let layout = self.view.as_ref().map_or(0, |view| view.layout);
        if layout == self.audited {
            return Ok(None);
        }
        self.audited = layout;
        let mut tallies = at_once(self.links.iter_mut().map(|link| {
            move || {
                link.ask_tally()?;
                link.tally()
            }
        }))?;
        let retiring = std::mem::take(&mut self.retiring);
        tallies.extend(at_once(retiring.into_iter().map(|mut link| {
            move || {
                let tally = link.tally()?;
                let _ = link.goodbye();
                Ok(tally)
            }
        }))?);
        let mut moved = Moved::default();
        for tally in tallies {
            moved.before = moved.before.wrapping_add(tally.before);
            moved.after = moved.after.wrapping_add(tally.after);
            moved.numbers += tally.received;
            moved.took_us = moved.took_us.max(tally.took_us);
        }
        Ok(Some(moved))
    }

    /// Chief: reads everything that the shards hold into the memory of `contents`.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn snapshot(&mut self, mut contents: Contents) -> Result<Snapshot, ShardFailure> {
        let view = self.view.as_ref().expect("the chief has begun");
        contents.fit(self.parameters, self.links[0].state_per_parameter());
        let assignment: Vec<Vec<Piece>> = self
            .links
            .iter()
            .map(|link| view.pieces(link.shard).to_vec())
            .collect();
        let mut parts: Vec<Vec<&mut [f32]>> = assignment.iter().map(|_| Vec::new()).collect();
        let arenas = std::iter::once(&mut contents.parameters).chain(&mut contents.state);
        for arena in arenas {
            for (part, more) in parts.iter_mut().zip(split_mut(arena, &assignment)) {
                part.extend(more);
            }
        }
        let links = self.links.iter_mut().zip(parts);
        let read = at_once(links.map(|(link, mut part)| move || link.snapshot(&mut part)))?;
        Ok(Snapshot {
            versions: read.iter().map(|&(version, _)| version).collect(),
            updates: read.iter().map(|&(_, updates)| updates).min().unwrap_or(0),
            contents,
        })
    }

    /// Chief: tells every shard that training is over, then leaves. Failures are ignored: the model is written already.
    pub fn done(mut self) {
        let all = self.links.iter_mut().chain(&mut self.prospects);
        for link in all.chain(&mut self.retiring) {
            let _ = link.done();
        }
        self.goodbye();
    }

    /// Leaves every shard in order. A shard that is gone already needs no goodbye.
    pub fn goodbye(self) {
        let others = self.prospects.into_iter().chain(self.retiring);
        for link in self.links.into_iter().chain(others) {
            let _ = link.goodbye();
        }
    }

    fn heard(&mut self, view: View) {
        let known = self.next.as_ref().or(self.view.as_ref());
        if known.is_none_or(|known| view.number > known.number) {
            self.next = Some(view);
        }
    }

    /// What the shards' replies mean together: the worst of them.
    fn together(&mut self, all: Vec<Told>) -> Reply {
        let rank = |reply: &Reply| match reply {
            Reply::Parameters { .. } => 0,
            Reply::Moved => 1,
            Reply::Finished => 2,
            Reply::Interrupted { lost: false, .. } => 3,
            Reply::Interrupted { lost: true, .. } => 4,
            Reply::Gone => 5,
            Reply::GaveUp => 6,
        };
        self.departed.clear();
        let mut worst: Option<Reply> = None;
        for told in all {
            if let Some(view) = told.view {
                self.heard(view);
            }
            for departed in told.departed {
                if !self.departed.contains(&departed) {
                    self.departed.push(departed);
                }
            }
            // The first of equals, so that the counts are those of shard 0.
            if worst.is_none_or(|worst| rank(&told.reply) > rank(&worst)) {
                worst = Some(told.reply);
            }
        }
        worst.expect("a job has a shard")
    }
}

/// The first view of a job's task set.
#[must_use]
pub fn first_view(
    revision: u64,
    workers: Vec<TaskId>,
    shards: &[Address],
    blocks: &[Piece],
) -> View {
    let assignment = assign(blocks, shards.len());
    View {
        number: 1,
        revision,
        layout: 1,
        workers,
        shards: holders(shards, assignment),
        before: Vec::new(),
    }
}

/// The view after `newest`. As long as the shards are the same, nothing moves; the layout before is then still the one that the
/// present one was made from, for shards that have not come that far.
fn succeeding(
    newest: &View,
    revision: u64,
    workers: Vec<TaskId>,
    shards: &[Address],
    parameters: usize,
) -> View {
    let mut view = View {
        number: newest.number + 1,
        revision,
        workers,
        ..newest.clone()
    };
    let same = shards.len() == newest.shards.len()
        && shards.iter().all(|(shard, _)| newest.has_shard(*shard));
    if !same {
        let held: Vec<Vec<Piece>> = shards
            .iter()
            .map(|(shard, _)| newest.pieces(*shard).to_vec())
            .collect();
        view.layout += 1;
        view.before = newest.shards.clone();
        view.shards = holders(shards, reassign(parameters, &held));
    }
    view
}

fn holders(shards: &[Address], assignment: Vec<Vec<Piece>>) -> Vec<Holder> {
    let holder = |((task_id, address), pieces): (&Address, Vec<Piece>)| Holder {
        task_id: *task_id,
        address: address.clone(),
        pieces,
    };
    shards.iter().zip(assignment).map(holder).collect()
}

fn take(links: &mut Vec<Link>, shard: TaskId) -> Option<Link> {
    let at = links.iter().position(|link| link.shard == shard)?;
    Some(links.remove(at))
}

impl Snapshot {
    /// The one version of all shards, if there is one.
    #[must_use]
    pub fn version(&self) -> Option<u64> {
        let first = *self.versions.first()?;
        self.versions
            .iter()
            .all(|&version| version == first)
            .then_some(first)
    }
}

/// Runs one job per shard at the same time, the first of them on this thread: a job with one shard starts no thread.
fn at_once<T, F>(jobs: impl Iterator<Item = F>) -> Result<Vec<T>, ShardFailure>
where
    T: Send,
    F: FnOnce() -> Result<T, WireError> + Send,
{
    let all = at_once_of(jobs.enumerate())?;
    Ok(all.into_iter().map(|(_, result)| result).collect())
}

/// The same for some of the shards, by their index.
fn at_once_of<T, F>(jobs: impl Iterator<Item = (usize, F)>) -> Result<Vec<(usize, T)>, ShardFailure>
where
    T: Send,
    F: FnOnce() -> Result<T, WireError> + Send,
{
    let results: Vec<(usize, Result<T, WireError>)> = thread::scope(|scope| {
        let mut jobs = jobs;
        let Some((index, first)) = jobs.next() else {
            return Vec::new();
        };
        let others: Vec<_> = jobs.map(|(index, job)| (index, scope.spawn(job))).collect();
        let mut results = vec![(index, first())];
        results.extend(
            others
                .into_iter()
                .map(|(index, other)| (index, other.join().expect("a link does not panic"))),
        );
        results
    });
    results
        .into_iter()
        .map(|(index, result)| match result {
            Ok(value) => Ok((index, value)),
            Err(error) => Err((index, error)),
        })
        .collect()
}
