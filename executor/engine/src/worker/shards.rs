//! All PS shards as one: each step goes to every shard at the same time, each over its own connection and into its own part of
//! the arena.

use super::link::{Link, Patience, Reply};
use crate::assign::{Piece, load, split_mut};
use crate::checkpoint::Contents;
use crate::wire::WireError;
use crate::wire::hello::{Hello, StepStats};
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

/// Connections to every shard of the job.
#[derive(Debug)]
pub struct Shards {
    links: Vec<Link>,
    assignment: Vec<Vec<Piece>>,
    parameters: usize,
}

impl Shards {
    /// Joins every shard; `addresses` and `assignment` in the order of their index. `hello` is completed for each.
    ///
    /// # Errors
    /// The index of the shard that could not be joined, and why.
    pub fn join(
        addresses: &[String],
        assignment: Vec<Vec<Piece>>,
        hello: &Hello,
    ) -> Result<Self, (usize, WireError)> {
        let mut links = Vec::with_capacity(addresses.len());
        for (index, address) in addresses.iter().enumerate() {
            let hello = Hello {
                shard: index as u32,
                ps_shards: addresses.len() as u32,
                parameters: load(&assignment[index]) as u64,
                ..hello.clone()
            };
            links.push(Link::join(address, &hello).map_err(|error| (index, error))?);
        }
        let parameters = assignment.iter().map(|pieces| load(pieces)).sum();
        Ok(Self {
            links,
            assignment,
            parameters,
        })
    }

    /// Chief: fills every shard with its part of `contents`.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn init(
        &mut self,
        step: u64,
        updates: u64,
        contents: &Contents,
    ) -> Result<(), (usize, WireError)> {
        let assignment = &self.assignment;
        let links = self.links.iter_mut().enumerate();
        at_once(links.map(|(index, link)| {
            let pieces = &assignment[index];
            move || {
                let arenas = std::iter::once(&contents.parameters).chain(&contents.state);
                let parts: Vec<&[f32]> = arenas
                    .flat_map(|arena| pieces.iter().map(move |piece| &arena[piece.range()]))
                    .collect();
                link.init(step, updates, &parts)
            }
        }))?;
        Ok(())
    }

    /// Waits for the shards' parameters.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn pull(
        &mut self,
        parameters: &mut [f32],
        patience: Patience<'_>,
    ) -> Result<Reply, (usize, WireError)> {
        let parts = split_mut(parameters, &self.assignment);
        let links = self.links.iter_mut().zip(parts);
        let replies =
            at_once(links.map(|(link, mut part)| move || link.pull(&mut part, patience)))?;
        Ok(together(&replies))
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
    ) -> Result<Reply, (usize, WireError)> {
        let parts = split_mut(parameters, &self.assignment);
        let links = self
            .links
            .iter_mut()
            .zip(&self.assignment)
            .zip(parts)
            .enumerate();
        let replies = at_once(links.map(|(index, ((link, pieces), mut part))| {
            // Shard 0 alone counts for all, lest each example be counted once per shard.
            let stats = if index == 0 {
                stats
            } else {
                StepStats::default()
            };
            move || {
                let gradients: Vec<&[f32]> = pieces
                    .iter()
                    .map(|piece| &gradients[piece.range()])
                    .collect();
                link.push_pull(clock, stats, &gradients, &mut part, patience)
            }
        }))?;
        Ok(together(&replies))
    }

    /// Chief: reads everything that the shards hold.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn snapshot(&mut self) -> Result<Snapshot, (usize, WireError)> {
        let planes = self.links[0].state_per_parameter();
        let mut contents = Contents {
            parameters: vec![0.0; self.parameters],
            state: vec![vec![0.0; self.parameters]; planes],
        };
        let mut parts: Vec<Vec<&mut [f32]>> = self.assignment.iter().map(|_| Vec::new()).collect();
        let arenas = std::iter::once(&mut contents.parameters).chain(&mut contents.state);
        for arena in arenas {
            for (part, more) in parts.iter_mut().zip(split_mut(arena, &self.assignment)) {
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
        for link in &mut self.links {
            let _ = link.done();
        }
        self.goodbye();
    }

    /// Leaves every shard in order. A shard that is gone already needs no goodbye.
    pub fn goodbye(self) {
        for link in self.links {
            let _ = link.goodbye();
        }
    }
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
fn at_once<T, F>(jobs: impl Iterator<Item = F>) -> Result<Vec<T>, (usize, WireError)>
where
    T: Send,
    F: FnOnce() -> Result<T, WireError> + Send,
{
    let results: Vec<Result<T, WireError>> = thread::scope(|scope| {
        let mut jobs = jobs;
        let Some(first) = jobs.next() else {
            return Vec::new();
        };
        let others: Vec<_> = jobs.map(|job| scope.spawn(job)).collect();
        let mut results = vec![first()];
        results.extend(
            others
                .into_iter()
                .map(|other| other.join().expect("a link does not panic")),
        );
        results
    });
    results
        .into_iter()
        .enumerate()
        .map(|(index, result)| result.map_err(|error| (index, error)))
        .collect()
}

/// What the shards' replies mean together: the worst of them.
fn together(replies: &[Reply]) -> Reply {
    let rank = |reply: &Reply| match reply {
        Reply::Parameters { .. } => 0,
        Reply::Finished => 1,
        Reply::Interrupted { lost: false, .. } => 2,
        Reply::Interrupted { lost: true, .. } => 3,
        Reply::GaveUp => 4,
    };
    // The first of equals, so that the counts are those of shard 0.
    let mut worst = replies[0];
    for reply in &replies[1..] {
        if rank(reply) > rank(&worst) {
            worst = *reply;
        }
    }
    worst
}
