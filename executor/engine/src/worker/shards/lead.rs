//! What only the chief asks of the shards: their first content, who comes next.

use super::at_once::at_once;
use super::rescue::{Rescue, steadily};
use super::snapshot::known;
use super::succession::succeeding;
use super::{Address, ShardFailure, Shards};
use crate::checkpoint::Contents;
use crate::log;
use crate::wire::WireError;
use crate::wire::view::{Change, Tally, View};
use crate::worker::link::{Link, Way};
use muster_model::id::TaskId;
use std::ops::Deref;

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

impl Moved {
    fn over(tallies: &[Tally]) -> Self {
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
    /// Chief: the first view, of these workers and all joined shards, and what they begin with.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn begin(
        &mut self,
        view: View,
        step: u64,
        updates: u64,
        contents: &Contents<impl Deref<Target = [f32]> + Sync>,
    ) -> Result<(), ShardFailure> {
        let change = Change {
            view,
            gone: Vec::new(),
        };
        let holders = &change.view.shards;
        let links = self.links.iter_mut().zip(holders);
        at_once(links.map(|(link, _)| {
            let change = &change;
            move || link.change(step, change)
        }))?;
        self.view = Some(change.view.clone());
        self.squeeze();
        // Before anybody may go on.
        let held_back = self.saved(contents);
        self.deal_held_back(&held_back)?;
        let links = self.links.iter_mut().zip(holders);
        at_once(links.map(|(link, holder)| {
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
                let way = Way {
                    address,
                    hosts: vec![*shard],
                    sockets: self.sockets.as_deref(),
                };
                let link = Link::join(*shard, &way, &self.hello).map_err(|error| (index, error))?;
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
        let (view, announced) = (self.view.as_ref(), self.announced.as_ref());
        let rescue = Rescue::of(self.copied, &self.hello, view, self.next_step, announced);
        let links = self.links.iter_mut().chain(&mut self.prospects);
        let mut lost = None;
        for (index, link) in links.enumerate() {
            if shards.iter().all(|(shard, _)| *shard != link.shard) {
                continue;
            }
            match steadily(link, rescue, &|| true, Link::guests) {
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
        // One that is lost is reached where it lives now, whatever the task set still says.
        let links = || self.links.iter().chain(&self.prospects);
        let present = |(shard, address): &Address| {
            let link = links().find(|link| link.shard == *shard);
            (*shard, link.map_or(address, |link| &link.address).clone())
        };
        let shards: Vec<Address> = shards.iter().map(present).collect();
        let newest = self.next.as_ref().or(self.view.as_ref());
        let view = succeeding(
            newest.expect("there is a view"),
            revision,
            workers,
            &shards,
            self.parameters,
        );
        let change = Change { view, gone };
        let (view, announced) = (self.view.as_ref(), self.announced.as_ref());
        let rescue = Rescue::of(self.copied, &self.hello, view, self.next_step, announced);
        let links = self.links.iter_mut().chain(&mut self.prospects);
        at_once(links.map(|link| {
            let change = &change;
            move || steadily(link, rescue, &|| true, |link| link.change(from, change))
        }))?;
        self.heard(change.view.clone());
        self.announced = Some((from, change));
        Ok(())
    }

    /// Chief: how the move to the present layout went; `None` when it was looked at already, or when a shard is lost that has a copy:
    /// what it would have said went with it. Waits until it is over.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn audit(&mut self) -> Result<Option<Moved>, ShardFailure> {
        let layout = self.view.as_ref().map_or(0, |view| view.layout);
        if layout == self.audited {
            return Ok(None);
        }
        self.audited = layout;
        match self.tallies() {
            Err((index, error @ (WireError::Closed | WireError::Io { .. }))) if self.copied => {
                log::line(format_args!(
                    "how pieces moved is not known, as PS shard {index} is lost: {}",
                    log::chain(&error)
                ));
                Ok(None)
            }
            tallies => Ok(Some(Moved::over(&tallies?))),
        }
    }

    fn tallies(&mut self) -> Result<Vec<Tally>, ShardFailure> {
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
        Ok(tallies)
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
}
