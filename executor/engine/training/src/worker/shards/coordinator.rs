//! Requests of the coordinator to the shards: initial content, admission of workers, view changes.

use super::failover::{LinkFailover, steadily};
use super::parallel::in_parallel;
use super::snapshot::known;
use super::view_sequence::succeeding;
use super::{ShardAddress, ShardFailure, Shards};
use crate::checkpoint::Contents;
use crate::worker::link::{ShardLink, ShardRoute};
use muster_comm::log;
use muster_comm::wire::WireError;
use muster_comm::wire::view::{ReshardingReport, TaskSetView, ViewChange};
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use std::ops::Deref;

/// Result of a move of pieces, over all shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReshardingResult {
    /// Checksums of the content of all shards before and after the move.
    pub before: u64,
    pub after: u64,
    /// Number of values that moved between shards.
    pub numbers: u64,
    /// Duration on the slowest shard, from the end of the previous step to the arrival of its last
    /// piece.
    pub took_us: u64,
}

impl ReshardingResult {
    fn over(tallies: &[ReshardingReport]) -> Self {
        let mut moved = Self::default();
        for tally in tallies {
            moved.before = moved.before.wrapping_add(tally.before);
            moved.after = moved.after.wrapping_add(tally.after);
            moved.numbers += tally.received;
            moved.took_us = moved.took_us.max(tally.took_us);
        }
        moved
    }
}

impl Shards {
    /// Coordinator: starts the first view, with its workers and all joined shards, and fills the
    /// shards.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn begin(
        &mut self,
        view: TaskSetView,
        step: u64,
        updates: u64,
        contents: &Contents<impl Deref<Target = [f32]> + Sync>,
    ) -> Result<(), ShardFailure> {
        let change = ViewChange {
            view,
            gone: Vec::new(),
        };
        let holders = &change.view.shards;
        let links = self.links.iter_mut().zip(holders);
        in_parallel(links.map(|(link, _)| {
            let change = &change;
            move || link.change(step, change)
        }))?;
        self.view = Some(change.view.clone());
        self.create_codecs();
        // Before any worker may continue.
        let held_back = self.saved(contents);
        self.deal_held_back(&held_back)?;
        let links = self.links.iter_mut().zip(holders);
        in_parallel(links.map(|(link, holder)| {
            let pieces = &holder.pieces;
            move || {
                let known = link.keeps_known().then(|| known(contents));
                let state = contents.state.iter().map(Deref::deref);
                let arenas = std::iter::once(&*contents.parameters)
                    .chain(state)
                    .chain(known);
                let parts: Vec<&[f32]> = arenas
                    .flat_map(|arena| pieces.iter().map(move |piece| &arena[piece.range()]))
                    .collect();
                link.init(step, updates, &parts)
            }
        }))?;
        self.audited = change.view.layout;
        self.next_step = step;
        Ok(())
    }

    /// Coordinator: joins shards of the next view, and leaves others that were joined for it.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn approach(&mut self, addresses: &[ShardAddress]) -> Result<(), ShardFailure> {
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
                let route = ShardRoute {
                    address,
                    hosts: vec![*shard],
                    sockets: self.sockets.as_deref(),
                };
                let link =
                    ShardLink::join(*shard, &route, &self.hello).map_err(|error| (index, error))?;
                self.prospects.push(link);
            }
        }
        Ok(())
    }

    /// Coordinator: whether all of `workers` wait for admission at each of `shards`.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn are_waiting(
        &mut self,
        workers: &[TaskId],
        shards: &[ShardAddress],
    ) -> Result<bool, ShardFailure> {
        if workers.is_empty() {
            return Ok(true);
        }
        let (view, announced) = (self.view.as_ref(), self.announced.as_ref());
        let failover = LinkFailover::of(self.copied, &self.hello, view, self.next_step, announced);
        let links = self.links.iter_mut().chain(&mut self.prospects);
        let mut lost = None;
        for (index, link) in links.enumerate() {
            if shards.iter().all(|(shard, _)| *shard != link.shard) {
                continue;
            }
            match steadily(link, failover, &|| true, ShardLink::guests) {
                Ok(guests) if workers.iter().all(|worker| guests.contains(worker)) => {}
                Ok(_) => return Ok(false),
                Err(error) => {
                    lost = Some((index, error));
                    break;
                }
            }
        }
        let Some((index, error)) = lost else {
            return Ok(true);
        };
        if let Some(prospect) = index.checked_sub(self.links.len()) {
            self.prospects.remove(prospect);
        }
        Err((index, error))
    }

    /// Coordinator: announces to the shards of both views that a view with these workers and shards
    /// begins with step `from`. The previous step is completed without `gone`. Pieces move only if
    /// the shards change.
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
        shards: &[ShardAddress],
        from: u64,
        gone: Vec<TaskId>,
    ) -> Result<(), ShardFailure> {
        // A promoted replica is reached at its own address, even if the task set names the lost
        // shard's.
        let shards: Vec<ShardAddress> = shards
            .iter()
            .map(|(shard, address)| {
                let mut links = self.links.iter().chain(&self.prospects);
                let link = links.find(|link| link.shard == *shard);
                (*shard, link.map_or(address, |link| &link.address).clone())
            })
            .collect();
        let newest = self.next.as_ref().or(self.view.as_ref());
        let view = succeeding(
            newest.expect("there is a view"),
            revision,
            workers,
            &shards,
            self.parameters,
        );
        let change = ViewChange { view, gone };
        let (view, announced) = (self.view.as_ref(), self.announced.as_ref());
        let failover = LinkFailover::of(self.copied, &self.hello, view, self.next_step, announced);
        let links = self.links.iter_mut().chain(&mut self.prospects);
        in_parallel(links.map(|link| {
            let change = &change;
            move || steadily(link, failover, &|| true, |link| link.change(from, change))
        }))?;
        self.heard(change.view.clone());
        self.announced = Some((from, change));
        Ok(())
    }

    /// Coordinator: waits for the end of the move to the present layout and returns its result.
    /// `None` if it was checked before, or if a shard with a replica is lost, whose checksums are
    /// lost too.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn audit(&mut self) -> Result<Option<ReshardingResult>, ShardFailure> {
        let layout = self.view.as_ref().map_or(0, |view| view.layout);
        if layout == self.audited {
            return Ok(None);
        }
        self.audited = layout;
        match self.tallies() {
            Err((index, error @ (WireError::Closed | WireError::Io { .. }))) if self.copied => {
                log::line(format_args!(
                    "how pieces moved is not known, as PS shard {index} is lost: {}",
                    chain(&error)
                ));
                Ok(None)
            }
            tallies => Ok(Some(ReshardingResult::over(&tallies?))),
        }
    }

    fn tallies(&mut self) -> Result<Vec<ReshardingReport>, ShardFailure> {
        let mut tallies = in_parallel(self.links.iter_mut().map(|link| {
            move || {
                link.ask_tally()?;
                link.tally()
            }
        }))?;
        let retiring = std::mem::take(&mut self.retiring);
        tallies.extend(in_parallel(retiring.into_iter().map(|mut link| {
            move || {
                let tally = link.tally()?;
                let _ = link.goodbye();
                Ok(tally)
            }
        }))?);
        Ok(tallies)
    }

    /// Coordinator: ends training at every shard, then leaves. Errors are ignored, because the
    /// model is stored already.
    pub fn done(mut self) {
        let all = self.links.iter_mut().chain(&mut self.prospects);
        for link in all.chain(&mut self.retiring) {
            let _ = link.done();
        }
        self.goodbye();
    }

    /// Leaves every shard in order. A shard that is gone needs no goodbye.
    pub fn goodbye(self) {
        let others = self.prospects.into_iter().chain(self.retiring);
        for link in self.links.into_iter().chain(others) {
            let _ = link.goodbye();
        }
    }
}
