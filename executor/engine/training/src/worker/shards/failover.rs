//! Failover: when a shard is lost, the worker continues with its replica.
//!
//! Only the coordinator orders the promotion. Other workers connect to the replica holder and wait
//! there. Requests without an answer are repeated; the replica knows which pushes it contains.

use super::super::link::{ShardLink, ShardRoute, WaitCondition};
use super::Shards;
use muster_comm::log;
use muster_comm::wire::WireError;
use muster_comm::wire::metadata::{ConnectionPurpose, Hello};
use muster_comm::wire::view::{TaskSetView, ViewChange};
use muster_compute::clock;
use muster_model::error_chain::chain;
use std::thread;
use std::time::Duration;

/// Interval between attempts of a worker that was not admitted. Many workers may connect at one
/// time, and the replica may be incomplete.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Time limit for these attempts.
const ASK_FOR: Duration = Duration::from_secs(60);

/// State for the failover of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinkFailover<'a> {
    pub hello: &'a Hello,
    pub view: &'a TaskSetView,
    /// Next step by this worker's newest answer.
    pub next_step: u64,
    /// Coordinator: a change announced to the lost shard, which its replica may lack.
    pub announced: Option<&'a (u64, ViewChange)>,
}

impl<'a> LinkFailover<'a> {
    /// Returns `None` where shards have no replicas.
    pub fn of(
        copied: bool,
        hello: &'a Hello,
        view: Option<&'a TaskSetView>,
        next_step: u64,
        announced: Option<&'a (u64, ViewChange)>,
    ) -> Option<Self> {
        let view = view.filter(|_| copied)?;
        Some(Self {
            hello,
            view,
            next_step,
            announced,
        })
    }
}

/// Makes the request `ask` over a link; repeats it with the promoted replica if the shard is lost.
pub(super) fn steadily<T>(
    link: &mut ShardLink,
    failover: Option<LinkFailover<'_>>,
    patience: WaitCondition<'_>,
    mut ask: impl FnMut(&mut ShardLink) -> Result<T, WireError>,
) -> Result<T, WireError> {
    let error = match ask(link) {
        Err(error @ (WireError::Closed | WireError::Io { .. })) => error,
        other => return other,
    };
    let Some(failover) = failover else {
        return Err(error);
    };
    log::line(format_args!(
        "lost PS shard {}: {}",
        link.shard,
        chain(&error)
    ));
    match failover.find(link, patience) {
        Some(promoted) => *link = promoted,
        None => return Err(error),
    }
    ask(link)
}

impl Shards {
    /// Coordinator: returns the lost shards that were replaced since the last call, and the hosts
    /// of their promoted replicas, as indices in the view. The host is `None` if it has left the
    /// view.
    pub fn take_promotions(&mut self) -> Vec<(usize, Option<usize>)> {
        let Some(view) = &self.view else {
            return Vec::new();
        };
        let mut new = Vec::new();
        for link in self.links.iter().filter(|link| link.host != link.shard) {
            let promoted = (link.shard, link.host);
            if let Some(lost) = view
                .shard_index(link.shard)
                .filter(|_| !self.told_of.contains(&promoted))
            {
                self.told_of.push(promoted);
                new.push((lost, view.shard_index(link.host)));
            }
        }
        new
    }
}

impl LinkFailover<'_> {
    /// Connects to the promoted replica of the lost shard.
    fn find(&self, lost: &ShardLink, patience: WaitCondition<'_>) -> Option<ShardLink> {
        let holder = self.view.replica_holder(lost.shard, lost.host)?;
        let began = clock::now();
        loop {
            let route = ShardRoute {
                address: &holder.address,
                hosts: vec![holder.task_id],
                sockets: lost.sockets.as_deref(),
            };
            match ShardLink::join(lost.shard, &route, self.hello) {
                Ok(mut link) => {
                    link.host = holder.task_id;
                    return match self.hello.guest {
                        ConnectionPurpose::Chief => self.appoint(link),
                        _ => Some(link),
                    };
                }
                Err(error)
                    if self.may_be_let_in(&error) && patience() && began.elapsed() < ASK_FOR =>
                {
                    thread::sleep(ASK_EVERY);
                }
                Err(error) => {
                    log::line(format_args!(
                        "no replica takes over PS shard {}: {}",
                        lost.shard,
                        chain(&error)
                    ));
                    return None;
                }
            }
        }
    }

    /// Whether another attempt may be admitted. The limit on handshakes closes connections without
    /// an answer. A refusal of the coordinator, which orders the promotion, means that there is no
    /// replica.
    fn may_be_let_in(&self, error: &WireError) -> bool {
        match error {
            WireError::Closed => true,
            WireError::Refused(_) => self.hello.guest != ConnectionPurpose::Chief,
            _ => false,
        }
    }

    fn appoint(&self, mut link: ShardLink) -> Option<ShardLink> {
        let appointed = link.adopt(self.view, self.next_step).and_then(|step| {
            log::line(format_args!(
                "PS shard {} continues from step {step} in the process of {}",
                link.shard, link.host
            ));
            match self.announced {
                Some((from, change)) if change.view.number > self.view.number => {
                    link.change(*from, change)
                }
                _ => Ok(()),
            }
        });
        match appointed {
            Ok(()) => Some(link),
            Err(error) => {
                let error = chain(&error);
                log::line(format_args!(
                    "cannot continue without PS shard {}: {error}",
                    link.shard
                ));
                None
            }
        }
    }
}
