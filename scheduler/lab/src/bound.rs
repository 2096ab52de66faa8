//! Lower bounds on the mean completion time of any policy. They limit a result's distance from the
//! optimum.
//!
//! There are three bounds; none dominates the others.
//!
//! - `alone_s`: no job ends earlier than on the empty cluster.
//! - `srpt_s`: shortest remaining processing time first on one machine as fast as all GPUs
//!   together. Any schedule is feasible in that relaxation, and the rule is optimal there (Schrage
//!   1968).
//! - `busy_s`: mean busy times. Of that machine's preemptive schedules, shortest job first has the
//!   least mean busy time. No job ends before the middle of its work plus half its shortest run
//!   (Goemans et al., SIAM J. Discrete Mathematics 2002).

use crate::run::SimulationRun;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Lower bounds on the mean completion time, in seconds.
///
/// `JobRun::alone_s` includes the wait for the first decision and the start. The middle of the work
/// is later by the same time. Half of it in `busy_s` therefore keeps the bound valid while no start
/// takes more than twice the shortest start time. This assumption holds to within seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunBounds {
    /// Mean of the fastest possible runs.
    pub alone_s: f64,
    /// Mean flow time of the relaxation to one machine.
    pub srpt_s: f64,
    /// Mean busy time of shortest job first on that machine, plus half the fastest run.
    pub busy_s: f64,
}

/// Job of the relaxation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RelaxedJob {
    release_s: f64,
    /// GPU-seconds.
    size: f64,
}

impl RunBounds {
    /// Bounds for the run's jobs and nodes; the policy has no effect on them. All are zero if there
    /// is no job or no GPU.
    #[must_use]
    pub fn of(run: &SimulationRun) -> Self {
        let speed: f64 = run.nodes.iter().map(|node| f64::from(node.gpus)).sum();
        let count = run.jobs.len() as f64;
        if run.jobs.is_empty() || speed == 0.0 {
            return Self {
                alone_s: 0.0,
                srpt_s: 0.0,
                busy_s: 0.0,
            };
        }
        let pieces: Vec<RelaxedJob> = run
            .jobs
            .iter()
            .map(|job| RelaxedJob {
                release_s: job.submitted_s,
                size: job.least_gpu_s,
            })
            .collect();
        let released: f64 = pieces.iter().map(|piece| piece.release_s).sum();
        let alone: f64 = run.jobs.iter().map(|job| job.alone_s).sum();
        let flow = one_machine(&pieces, speed, |_, left| left).finished - released;
        let busy = one_machine(&pieces, speed, |size, _| size).busy - released;
        Self {
            alone_s: alone / count,
            srpt_s: flow / count,
            busy_s: (busy + alone / 2.0) / count,
        }
    }

    /// The largest bound.
    #[must_use]
    pub fn best_s(&self) -> f64 {
        self.alone_s.max(self.srpt_s).max(self.busy_s)
    }
}

/// Sums over all jobs of one machine's schedule.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct ScheduleSums {
    /// Sum of completion times.
    finished: f64,
    /// Sum of the mean times at which the machine works on each job.
    busy: f64,
}

/// Released job. The heap yields the smallest key first; the earlier job wins a tie.
#[derive(Debug, Clone, Copy, PartialEq)]
struct InHand {
    key: f64,
    index: usize,
    left: f64,
}

/// Always runs the released job with the smallest `key(size, left)`. The key of a running job must
/// not grow.
fn one_machine(pieces: &[RelaxedJob], speed: f64, key: impl Fn(f64, f64) -> f64) -> ScheduleSums {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by(|&a, &b| pieces[b].release_s.total_cmp(&pieces[a].release_s));
    let mut heap = BinaryHeap::new();
    let mut sums = ScheduleSums::default();
    let mut now_s = 0.0_f64;
    loop {
        if heap.is_empty() {
            let Some(&next) = order.last() else {
                return sums;
            };
            now_s = now_s.max(pieces[next].release_s);
        }
        while let Some(&next) = order.last()
            && pieces[next].release_s <= now_s
        {
            order.pop();
            let size = pieces[next].size;
            heap.push(Reverse(InHand {
                key: key(size, size),
                index: next,
                left: size,
            }));
        }
        let Some(Reverse(mut job)) = heap.pop() else {
            continue;
        };
        let size = pieces[job.index].size;
        let end_s = now_s + job.left / speed;
        let until_s = order
            .last()
            .map_or(end_s, |&next| pieces[next].release_s.min(end_s));
        let done = (until_s - now_s) * speed;
        // A job without work has its mean busy time at its start.
        sums.busy += if size > 0.0 {
            f64::midpoint(now_s, until_s) * done / size
        } else {
            now_s
        };
        now_s = until_s;
        if until_s >= end_s {
            sums.finished += end_s;
        } else {
            job.left -= done;
            job.key = key(size, job.left);
            heap.push(Reverse(job));
        }
    }
}

impl Eq for InHand {}

impl PartialOrd for InHand {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for InHand {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key
            .total_cmp(&other.key)
            .then(self.index.cmp(&other.index))
    }
}

#[cfg(test)]
mod tests {
    use super::RunBounds;
    use crate::testing::{job, run};

    /// Two GPUs; A has 20 GPU-s at 0, B has 4 at 2. Shortest remaining time first: A 0..2, B 2..4,
    /// A 4..12. The flow times are 12 and 2.
    #[test]
    fn srpt_runs_shortest_remaining_job_first() {
        let bounds = RunBounds::of(&run(2, vec![job(0.0, 11.0, 20.0), job(2.0, 3.0, 4.0)]));
        assert_eq!(bounds.srpt_s, 7.0);
        assert_eq!(bounds.alone_s, 7.0);
        // Middle of A: (1*4 + 8*16)/20 = 6.6; of B: 3. Flow 6.6 + 1 and half of the runs 11 + 3.
        assert!((bounds.busy_s - (6.6 + 1.0 + 7.0) / 2.0).abs() < 1e-12);
        assert!((bounds.best_s() - 7.3).abs() < 1e-12);
    }

    /// One GPU; A has 10 at 0, B has 6 at 6. At 6 A has 4 left: it continues by remaining time and
    /// yields by size.
    #[test]
    fn busy_time_uses_size_and_flow_time_uses_remaining_work() {
        let bounds = RunBounds::of(&run(1, vec![job(0.0, 0.0, 10.0), job(6.0, 0.0, 6.0)]));
        assert_eq!(bounds.srpt_s, (10.0 + 10.0) / 2.0);
        // A runs 0..6 and 12..16: (3*6 + 14*4)/10 = 7.4. B runs 6..12: 9, which is 3 after its
        // release.
        assert!((bounds.busy_s - (7.4 + 3.0) / 2.0).abs() < 1e-12);
    }

    /// The machine is idle before the first job and between the jobs.
    #[test]
    fn idle_time_does_not_raise_bounds() {
        let bounds = RunBounds::of(&run(1, vec![job(100.0, 0.0, 5.0), job(50.0, 0.0, 5.0)]));
        assert_eq!(bounds.srpt_s, 5.0);
        assert_eq!(bounds.busy_s, 2.5);
    }

    #[test]
    fn bound_of_run_without_jobs_is_zero() {
        assert_eq!(RunBounds::of(&run(1, Vec::new())).best_s(), 0.0);
    }
}
