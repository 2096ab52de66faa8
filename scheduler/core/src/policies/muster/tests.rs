use super::Muster;
use crate::policies::SchedulingPolicy;
use crate::policies::scene::{cluster, holds, job, part, power};

#[test]
fn slow_kind_is_filled_beside_fast_kind() {
    let mut problem = cluster(&[(1, 4), (1, 4)]);
    problem.jobs = vec![job(vec![power(1.0, 1.0), power(6.0, 1.0)]); 2];
    let decision = Muster::STANDARD.allocate(&problem);
    let mut held = [0, 1].map(|job| holds(&problem, &decision, job));
    held.sort();
    assert_eq!(held, [Some((0, 4)), Some((1, 4))]);
}

#[test]
fn job_that_changed_often_keeps_its_kind() {
    let mut problem = cluster(&[(1, 2), (1, 2)]);
    problem.jobs = vec![job(vec![power(1.0, 0.9), power(2.0, 0.9)])];
    problem.jobs[0].present = vec![part(0, 2)];
    let decision = Muster::STANDARD.allocate(&problem);
    assert_eq!(holds(&problem, &decision, 0), Some((1, 2)));
    problem.jobs[0].restarts = 1_000;
    let decision = Muster::STANDARD.allocate(&problem);
    assert_eq!(holds(&problem, &decision, 0), Some((0, 2)));
}
