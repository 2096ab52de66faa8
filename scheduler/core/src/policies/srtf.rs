//! Shortest remaining time first: the job that would end soonest runs first, at the size that its owner asked for.
//!
//! It lowers the mean completion time of rigid gangs as far as an order can when the estimates are right, and pays with the long
//! jobs, which may wait for ever under an endless stream of short ones. The time is that on the kind on which the job is fastest.
//!
//! Left out: the weight of the gang's size (shortest remaining GPU-time first would serve small gangs before wide ones).

use super::order::{self, request};
use super::room::{Room, Style};
use super::{Share, gang};
use crate::problem::{Decision, Problem};

/// The shortest remaining time first.
#[derive(Debug, Clone, Copy)]
pub struct Srtf;

impl Share for Srtf {
    fn share(&self, problem: &Problem) -> Decision {
        let order = order::by_key(problem, &times_left_s(problem));
        gang::in_order(problem, Style::Packed, &order)
    }
}

/// Seconds that every job still needs at the size asked for; infinite where it cannot run so.
pub fn times_left_s(problem: &Problem) -> Vec<f64> {
    let room = Room::beside_fixed(problem);
    let time_left_s = |job: usize| {
        let of = &problem.jobs[job];
        let speed = room.best_speed(job, request(of));
        of.outlook.work_left / speed
    };
    (0..problem.jobs.len()).map(time_left_s).collect()
}
