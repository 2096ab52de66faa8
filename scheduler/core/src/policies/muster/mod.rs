//! Our own policy: elastic sizes that make the sum over jobs of a value largest, a value that is high for who ends soon, uses its
//! GPUs well or has been here long.
//!
//! The value of a size is `(time left + cost)^-p * efficiency^t * (1 + age)^a`. Its first factor lies between the shortest remaining
//! time first (large `p`) and plain throughput (small `p`); the second keeps large sizes, whose GPUs would be half idle, for times
//! in which nobody else needs them; the third grows without bound, so that nobody waits for ever. An age is long or short beside what
//! the job would take by itself, as in Themis' finish-time ratio (NSDI 2020): an hour is much to a job of minutes and nothing to one of
//! days, and old jobs of days so do not outweigh every newcomer. The cost of a restart is part of the time left of every size but
//! the present one: a change must pay for itself, and planning twice changes nothing. Jobs grow at most to twice the size at which
//! their family was measured: exploration is bounded.
//!
//! Strict on top of that: jobs of a higher priority are served first, then the oldest few whose age is beyond all measure, so that
//! waiting is bounded even where more work comes than can be done, then those of a tenant that holds less than its share while it has
//! jobs waiting. When there are more jobs than GPUs, who runs takes turns: age and the time left decide anew in
//! every round, and what was just started has the restart's cost on its side. Two jobs never share a GPU: nothing in a problem
//! says yet what that would cost them.

mod choose;
mod climb;
mod exact;
mod floor;
mod menu;
mod prices;
mod seat;
mod shares;
mod standing;

use super::{Promises, Share};
use crate::problem::{Decision, Problem, gpus_of};
pub use standing::{Change, Standing};

/// The policy with its numbers. They were found on published workloads of 160 to 320 jobs on 64 GPUs, at two loads and with one and
/// three GPU kinds; nearby numbers do nearly as well.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Muster {
    /// The power `p` of the time left.
    pub power: f64,
    /// The power `t` of the speed per GPU, beside the best that the job could have.
    pub thrift: f64,
    /// The power `a` of the age.
    pub ageing: f64,
    /// Ages count in this many restarts of the job ...
    pub patience_restarts: f64,
    /// ... and so many times what it takes in all, done and to come, at the fastest size that it may have.
    pub patience_lengths: f64,
    /// From this age on, counted so, the value grows with the square root of the age only: what waits for ever still comes first at
    /// last, but what waits since yesterday does not keep a newcomer of seconds waiting.
    pub elder: f64,
    /// A job is overdue, and served before all others of its priority, from an age of so many restarts ...
    pub overdue_restarts: f64,
    /// ... and so many times what it takes in all at its fastest size.
    pub overdue_lengths: f64,
    /// Added to every time left, in restarts: who is about to end does not outweigh all others.
    pub offset_restarts: f64,
    /// Times that a restart counts: estimates err, and what is moved now may move again.
    pub caution: f64,
    /// Least speed that each further GPU must add, as a share of the best speed per GPU: below that it idles rather than pretends.
    pub floor: f64,
    /// By how much a job may outgrow the largest measured size.
    pub explore_factor: u32,
    /// How much shorter than expected a job may be whose estimate is but a guess: a new job gets its first turn soon.
    pub optimism: f64,
}

impl Muster {
    /// The numbers that we stand by.
    pub const STANDARD: Self = Self {
        power: 0.8,
        thrift: 0.45,
        ageing: 2.0,
        patience_restarts: 240.0,
        patience_lengths: 0.25,
        elder: 5.0,
        overdue_restarts: 1_200.0,
        overdue_lengths: 100.0,
        offset_restarts: 6.5,
        caution: 5.0,
        floor: 0.2,
        explore_factor: 2,
        optimism: 1.0,
    };
}

impl Muster {
    /// What this policy makes as large as it can: the sum of what the jobs' sizes are worth. Who keeps a size or place that this
    /// policy would not give counts nothing.
    #[must_use]
    pub fn objective(&self, problem: &Problem, decision: &Decision) -> f64 {
        let board = menu::Board::of(problem, self);
        let menus = board.menus().into_iter().enumerate();
        let worth = |(job, menu): (usize, menu::Menu<'_>)| {
            let parts = decision.holds(problem, job);
            let kind = problem.nodes[parts.first()?.node as usize].kind;
            let size = (kind, gpus_of(parts));
            let held = |dish: &&menu::Dish| (dish.kind, dish.gpus) == size;
            Some(menu.dishes.iter().find(held)?.value)
        };
        menus.filter_map(worth).sum()
    }
}

impl Share for Muster {
    fn share(&self, problem: &Problem) -> Decision {
        let board = menu::Board::of(problem, self);
        let menus = board.menus();
        let classes = shares::priorities(problem, self, &menus);
        let mut chosen = choose::choose(problem, &menus, &classes);
        if let Some(owed) = shares::owed(problem, &menus, &classes, &chosen) {
            chosen = choose::choose(problem, &menus, &owed);
        }
        let anew = seat::seat(problem, &menus, chosen);
        let Some(stays) = choose::stay(problem, &menus) else {
            return seat::decision(problem, &menus, anew);
        };
        let stays = seat::seat(problem, &menus, stays);
        let better = choose::is_better(&menus, &classes, &anew.held, &stays.held);
        seat::decision(problem, &menus, if better { anew } else { stays })
    }

    fn promises(&self) -> Promises {
        Promises {
            restarts_pay: true,
            bounded_waiting: true,
            takes_turns: true,
            gathers: false,
        }
    }
}
