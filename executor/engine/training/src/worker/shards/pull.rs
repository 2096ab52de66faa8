//! How a worker enters a view: it asks all shards for parameters and waits for them.
//!
//! A worker without a view waits at the shards of its task set. They may differ from those of the
//! present view. The worker may be late, while the coordinator waits for it and checks no newer
//! task set.

use super::super::link::{PullStart, Reply, ShardReply, WaitCondition};
use super::failover::{LinkFailover, steadily};
use super::parallel::{in_parallel, in_parallel_by_index};
use super::{ShardFailure, Shards};
use muster_comm::assign::{ParameterPiece, load, split_mut};
use muster_comm::log;
use muster_comm::wire::WireError;
use muster_comm::wire::view::TaskSetView;
use muster_model::error_chain::chain;
use muster_model::id::TaskId;
use std::sync::OnceLock;

impl Shards {
    /// Waits for parameters under the newest known view. A worker without a view waits for its
    /// admission, and only while it `stays`, until a shard has named a view. Returns
    /// [`Reply::Moved`] if a view is named and not all of its shards have answered under it: the
    /// worker did not wait there long enough, or a shard answered before it knew that view. The
    /// worker must then enter that view and pull again.
    ///
    /// # Errors
    /// As [`Self::join`].
    pub fn pull(
        &mut self,
        parameters: &mut [f32],
        patience: WaitCondition<'_>,
        stays: WaitCondition<'_>,
    ) -> Result<Reply, ShardFailure> {
        let is_guest = self.view.is_none();
        let mut named: Vec<Option<TaskSetView>> = vec![None; self.links.len()];
        let mut others: Vec<(usize, ShardReply)> = Vec::new();
        for (index, begun) in self.ask_all(patience, stays)?.into_iter().enumerate() {
            match begun {
                PullStart::View(view) => {
                    self.heard(view.clone());
                    named[index] = Some(view);
                }
                PullStart::Other(answer) => others.push((index, answer)),
            }
        }
        let Some(newest) = self.next.as_ref().or(self.view.as_ref()) else {
            return Ok(self.together(others.into_iter().map(|(_, answer)| answer).collect()));
        };
        let mut by_shard: Vec<Vec<ParameterPiece>> = Vec::with_capacity(self.links.len());
        for (index, (link, named)) in self.links.iter().zip(&named).enumerate() {
            if named
                .as_ref()
                .is_some_and(|view| !view.has_shard(link.shard))
            {
                return Err((index, WireError::Malformed("view without itself")));
            }
            by_shard.push(newest.pieces(link.shard).to_vec());
        }
        let all_were_asked = newest
            .shards
            .iter()
            .all(|held| self.links.iter().any(|link| link.shard == held.task_id));
        // A shard that answered before it knew of the newest view waits until this worker pulls
        // under that view.
        let all_named_it = named
            .iter()
            .flatten()
            .all(|view| view.number == newest.number);
        if is_guest {
            others.retain(|(index, _)| newest.has_shard(self.links[*index].shard));
        }
        let parts = split_mut(parameters, &by_shard);
        let links = self.links.iter_mut().zip(parts).zip(&named).enumerate();
        let ended =
            in_parallel_by_index(links.filter_map(|(index, ((link, mut part), named))| {
                let named = named.as_ref()?;
                // Parameters in transfer must be read in any case. Those of an earlier layout have
                // other pieces, and are pulled again.
                let earlier =
                    (named.layout != newest.layout).then(|| load(named.pieces(link.shard)));
                Some((index, move || match earlier {
                    None => link.end_pull(&mut part),
                    Some(values) => link.end_pull(&mut [&mut vec![0.0; values]]),
                }))
            }))?;
        others.extend(ended);
        let reply = self.together(others.into_iter().map(|(_, answer)| answer).collect());
        Ok(match reply {
            Reply::Parameters { .. } if !all_were_asked || !all_named_it => Reply::Moved,
            // The worker stopped waiting at one shard, and another shard has admitted it.
            Reply::GaveUp if is_guest && patience() => Reply::Moved,
            reply => reply,
        })
    }

    /// Sends a pull to every shard, and waits until each has begun its answer or is no longer
    /// needed. A joining worker waits only at shards of the view that one of them has named. The
    /// loss of a shard that is not needed is no failure.
    fn ask_all(
        &mut self,
        patience: WaitCondition<'_>,
        stays: WaitCondition<'_>,
    ) -> Result<Vec<PullStart>, ShardFailure> {
        let known = self.view.as_ref().map_or(0, |view| view.number);
        let (view, announced) = (self.view.as_ref(), self.announced.as_ref());
        let failover = LinkFailover::of(self.copied, &self.hello, view, self.next_step, announced);
        // The first view that a shard names; those of other shards are the same, or have the same
        // shards.
        let named: OnceLock<TaskSetView> = OnceLock::new();
        in_parallel(self.links.iter_mut().map(|link| {
            let (named, shard) = (&named, link.shard);
            move || {
                let patience = || patience() && waits_at(shard, known, named.get(), stays);
                let begun = steadily(link, failover, &patience, |link| {
                    link.begin_pull(known, &patience)
                });
                match begun {
                    Ok(PullStart::View(view)) => {
                        let _ = named.set(view.clone());
                        Ok(PullStart::View(view))
                    }
                    Err(error) if !waits_at(shard, known, named.get(), stays) => {
                        log::line(format_args!(
                            "lost PS shard {shard}, at which it does not wait any more: {}",
                            chain(&error)
                        ));
                        Ok(PullStart::Other(Reply::GaveUp.into()))
                    }
                    begun => begun,
                }
            }
        }))
    }

    /// Whether a shard of the view has not answered the pull that this worker sent before its
    /// admission. The worker must [pull](Self::pull) before it can push.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.links.iter().any(|link| link.is_asked)
    }
}

/// Whether a worker that knows the view `known` waits at `shard`. A joining worker knows view 0.
/// Once a shard has `named` a view, it waits only at the shards of that view.
fn waits_at(
    shard: TaskId,
    known: u64,
    named: Option<&TaskSetView>,
    stays: WaitCondition<'_>,
) -> bool {
    known > 0 || named.map_or_else(stays, |view| view.has_shard(shard))
}
