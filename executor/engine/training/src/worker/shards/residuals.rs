//! Residuals of workers: transfer to shards for checkpoints, and back.

use super::super::link::ShardLink;
use super::parallel::in_parallel;
use super::{ShardFailure, Shards};
use crate::checkpoint::Contents;
use muster_comm::assign::load;
use muster_comm::compress::Feedback;
use muster_comm::log;
use muster_comm::wire::WireError;
use muster_comm::wire::view::TaskSetView;
use muster_model::id::TaskId;
use std::ops::Deref;
use std::time::Duration;

/// Time for which a snapshot waits for residuals unless another limit is set.
pub(super) const HEARD_WITHIN: Duration = Duration::from_secs(60);

impl Shards {
    /// Coordinator: announces that all workers send their residuals before step `clock`. It must
    /// precede the push of the previous step. Under SSP and ASP the next snapshot waits until all
    /// have arrived.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn keep(&mut self, clock: u64) -> Result<(), ShardFailure> {
        // Also to the shards of the next view, whose first step this may be.
        let links = self.links.iter_mut().chain(&mut self.prospects);
        in_parallel(links.map(|link| move || link.keep(clock)))?;
        let view = self.view.as_ref().expect("the chief has begun");
        self.keepers.clone_from(&view.workers);
        Ok(())
    }

    /// Coordinator: sets how long a snapshot waits for residuals under SSP and ASP.
    pub fn hear_within(&mut self, limit: Duration) {
        self.hears_within = limit;
    }

    /// Whether this worker must send its residual; resets the flag.
    pub fn take_told_to_keep(&mut self) -> bool {
        std::mem::take(&mut self.told_to_keep)
    }

    /// Sends this worker's residual to the shards.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn hand_over(&mut self) -> Result<(), ShardFailure> {
        let me = self.hello.task_id;
        let Some(compression) = &self.compression else {
            return Ok(());
        };
        let planes: Vec<&[f32]> = compression.feedback.planes().map(|(_, p)| p).collect();
        let view = self.view.as_ref().expect("there is one by now");
        hold(&mut self.links, view, me, &planes)
    }

    /// Reads the residual of worker `of` from all shards into `feedback`. Parts that a shard lacks
    /// stay unchanged. Returns whether all shards had theirs.
    fn fetch(&mut self, of: TaskId, feedback: &mut Feedback) -> Result<bool, ShardFailure> {
        let view = self.view.as_ref().expect("there is one by now");
        let planes = feedback.planes().count();
        let numbers = in_parallel(self.links.iter_mut().map(|link| {
            let most = planes * load(view.pieces(link.shard));
            move || link.fetch(of, most)
        }))?;
        let mut is_whole = true;
        for (index, (link, values)) in self.links.iter().zip(&numbers).enumerate() {
            let pieces = view.pieces(link.shard);
            let expected = planes * load(pieces);
            if values.is_empty() && expected > 0 {
                // The parts of the other shards are valid for their parameters all the same.
                is_whole = false;
                continue;
            }
            if values.len() != expected {
                return Err((index, WireError::Malformed("what a worker holds back")));
            }
            let mut rest = values.as_slice();
            for plane in feedback.planes_mut() {
                for piece in pieces {
                    let (here, tail) = rest.split_at(piece.len);
                    plane[piece.range()].copy_from_slice(here);
                    rest = tail;
                }
            }
        }
        Ok(is_whole)
    }

    /// Starts with this worker's residual from a checkpoint, if it has one.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn fetch_own(&mut self) -> Result<(), ShardFailure> {
        let Some(compression) = &self.compression else {
            return Ok(());
        };
        let mut feedback = compression.feedback.clone();
        self.fetch(self.hello.task_id, &mut feedback)?;
        if let Some(compression) = &mut self.compression {
            compression.feedback = feedback;
        }
        Ok(())
    }

    /// Coordinator: returns the residuals of all workers for a checkpoint, after its snapshot.
    /// Workers that have left have none. A log line names a worker whose residual a shard lacks.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn held_back(&mut self) -> Result<Vec<(String, Vec<f32>)>, ShardFailure> {
        let (Some(compression), Some(view)) = (&self.compression, &self.view) else {
            return Ok(Vec::new());
        };
        let mut empty = compression.feedback.clone();
        empty.planes_mut().for_each(|plane| plane.fill(0.0));
        let mut all = compression.feedback.extras(0);
        for (rank, worker) in view.workers.clone().into_iter().enumerate().skip(1) {
            let mut feedback = empty.clone();
            // A new worker did not receive the announcement and has no residual yet.
            if self.keepers.contains(&worker) && !self.fetch(worker, &mut feedback)? {
                log::line(format_args!(
                    "the checkpoint is without all or a part of what worker {rank} holds back: a shard has not heard it"
                ));
            }
            all.extend(feedback.extras(rank));
        }
        Ok(all)
    }

    /// Coordinator: returns each worker's residual in a checkpoint, as [`Self::held_back`] returned
    /// them.
    #[must_use]
    pub(super) fn saved(&self, contents: &Contents<impl Deref<Target = [f32]>>) -> Vec<Feedback> {
        self.compression
            .as_ref()
            .map_or_else(Vec::new, |compression| {
                let feedback = &compression.feedback;
                feedback.saved(|name| contents.extra(name).map(<[f32]>::to_vec))
            })
    }

    /// Coordinator: sends the residuals of a checkpoint to the workers of the first view, to each
    /// its own. If there are fewer workers now, the remaining residuals are added to theirs.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub(super) fn deal_held_back(&mut self, saved: &[Feedback]) -> Result<(), ShardFailure> {
        let Some(view) = &self.view else {
            return Ok(());
        };
        let dealt = Feedback::dealt(saved, view.workers.len());
        for (feedback, &worker) in dealt.iter().zip(&view.workers) {
            if worker == self.hello.task_id {
                if let Some(compression) = &mut self.compression {
                    compression.feedback = feedback.clone();
                }
                continue;
            }
            let planes: Vec<&[f32]> = feedback.planes().map(|(_, plane)| plane).collect();
            hold(&mut self.links, view, worker, &planes)?;
        }
        Ok(())
    }
}

/// Sends every shard its part of the residual of worker `of`.
fn hold(
    links: &mut [ShardLink],
    view: &TaskSetView,
    of: TaskId,
    planes: &[&[f32]],
) -> Result<(), ShardFailure> {
    in_parallel(links.iter_mut().map(|link| {
        let pieces = view.pieces(link.shard);
        let parts: Vec<&[f32]> = planes
            .iter()
            .flat_map(|plane| pieces.iter().map(|piece| &plane[piece.range()]))
            .collect();
        move || link.hold(of, &parts)
    }))?;
    Ok(())
}
