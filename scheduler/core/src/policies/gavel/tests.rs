use super::Gavel;
use crate::policies::SchedulingPolicy;
use crate::policies::scene::{after, cluster, holds, job, later, part, power, tenant};
use crate::problem::{ProblemJob, SchedulingProblem};

/// Returns a job with these speeds on a slow and a fast kind.
fn on_both(slow: f64, fast: f64) -> ProblemJob {
    job(vec![power(slow, 1.0), power(fast, 1.0)])
}

fn both() -> [Gavel; 2] {
    [Gavel::max_min(), Gavel::max_sum()]
}

/// Returns the seconds that each job was served on each kind in `rounds` rounds.
fn rounds(policy: Gavel, mut problem: SchedulingProblem, rounds: u32) -> Vec<Vec<f64>> {
    for _ in 0..rounds {
        let decision = policy.allocate(&problem);
        problem = later(after(&problem, &decision), 360.0);
    }
    problem.jobs.into_iter().map(|job| job.held_s).collect()
}

#[test]
fn max_sum_gives_fast_kind_to_largest_speedup() {
    let mut problem = cluster(&[(1, 1), (1, 1)]);
    problem.jobs = vec![on_both(1.0, 1.1), on_both(1.0, 5.0)];
    let decision = Gavel::max_sum().allocate(&problem);
    assert_eq!(holds(&problem, &decision, 0), Some((0, 1)));
    assert_eq!(holds(&problem, &decision, 1), Some((1, 1)));
}

#[test]
fn gavel_never_uses_kind_without_speed() {
    let mut problem = cluster(&[(1, 1), (1, 1)]);
    problem.jobs = vec![on_both(0.0, 1.0), on_both(0.0, 1.0)];
    for policy in both() {
        let decision = policy.allocate(&problem);
        let mut held = [0, 1].map(|job| holds(&problem, &decision, job));
        held.sort();
        assert_eq!(held, [None, Some((1, 1))]);
    }
}

#[test]
fn max_min_rotates_and_max_sum_serves_the_fastest() {
    let mut problem = cluster(&[(1, 1)]);
    problem.jobs = vec![job(vec![power(1.0, 1.0)]), job(vec![power(3.0, 1.0)])];
    let fair = rounds(Gavel::max_min(), problem.clone(), 10);
    assert_eq!((fair[0][0], fair[1][0]), (1_800.0, 1_800.0));
    let fast = rounds(Gavel::max_sum(), problem, 10);
    assert_eq!((fast[0][0], fast[1][0]), (0.0, 3_600.0));
}

#[test]
fn max_min_serves_tenants_by_weight() {
    let mut problem = cluster(&[(1, 1)]);
    problem.tenants = vec![tenant(), tenant()];
    problem.tenants[1].weight = 2.0;
    problem.jobs = vec![job(vec![power(1.0, 1.0)]); 3];
    // The part of the heavier tenant is divided between its two jobs: a third of the cluster each.
    problem.jobs[1].tenant = 1;
    problem.jobs[2].tenant = 1;
    let served = rounds(Gavel::max_min(), problem, 30);
    for of_job in served {
        assert!((of_job[0] - 3_600.0).abs() <= 720.0, "{of_job:?}");
    }
}

#[test]
fn max_min_gives_each_job_its_better_kind() {
    let mut problem = cluster(&[(1, 1), (1, 1)]);
    problem.jobs = vec![on_both(1.0, 1.1), on_both(1.0, 1.1), on_both(1.0, 8.0)];
    let served = rounds(Gavel::max_min(), problem, 100);
    // Computed by hand: the third job should have 0.434 of the fast kind's time and none of the
    // slow one's.
    assert!((served[2][1] / 36_000.0 - 0.434).abs() < 0.02, "{served:?}");
    assert!(served[2][0] <= 360.0, "{served:?}");
    let busy: f64 = served.iter().flatten().sum();
    assert_eq!(busy, 72_000.0, "no GPU idles");
}

#[test]
fn gavel_fills_free_gpus_without_displacing_within_round() {
    let mut problem = cluster(&[(1, 2)]);
    problem.now_s = 3_700.0;
    problem.jobs = vec![job(vec![power(1.0, 1.0)]); 3];
    problem.jobs[1].present = vec![part(0, 1)];
    problem.jobs[1].held_s[0] = 3_500.0;
    let decision = Gavel::max_min().allocate(&problem);
    assert_eq!(decision.parts[1], None);
    assert_eq!(holds(&problem, &decision, 0), Some((0, 1)));
    assert_eq!(holds(&problem, &decision, 2), None);
    // At the beginning of the next round the job with the most service stops.
    problem.now_s = 3_960.0;
    let decision = Gavel::max_min().allocate(&problem);
    assert_eq!(holds(&problem, &decision, 1), None);
    assert_eq!(holds(&problem, &decision, 2), Some((0, 1)));
}

#[test]
fn gavel_keeps_quotas_priorities_and_immovable_jobs() {
    let mut problem = cluster(&[(2, 4)]);
    problem.tenants = vec![tenant(), tenant()];
    problem.tenants[0].gpu_quota = Some(3);
    problem.jobs = vec![job(vec![power(1.0, 1.0)]); 5];
    for job in &mut problem.jobs {
        job.request_gpus = 2;
    }
    problem.jobs[0].preemptible = false;
    problem.jobs[0].present = vec![part(1, 2)];
    problem.jobs[2].tenant = 1;
    problem.jobs[3].tenant = 1;
    problem.jobs[4].tenant = 1;
    problem.jobs[4].priority = 1;
    problem.jobs[4].request_gpus = 4;
    for policy in both() {
        let decision = policy.allocate(&problem);
        assert_eq!(decision.parts[0], None, "keeps what it holds");
        assert_eq!(holds(&problem, &decision, 1), None, "its tenant has 1 left");
        assert_eq!(holds(&problem, &decision, 4), Some((0, 4)), "comes first");
        let lower = [2, 3].map(|job| holds(&problem, &decision, job).is_some());
        assert_eq!(lower.iter().filter(|&&runs| runs).count(), 1);
    }
}

#[test]
fn gavel_places_whole_units_and_keeps_their_nodes() {
    let mut problem = cluster(&[(2, 4)]);
    problem.jobs = vec![job(vec![power(1.0, 1.0)]); 3];
    for job in &mut problem.jobs {
        job.unit.gpus = 3;
        job.min_gpus = 3;
        job.request_gpus = 3;
    }
    for policy in both() {
        let decision = policy.allocate(&problem);
        let seated: Vec<u32> = (0..3)
            .map(|job| {
                decision
                    .holds(&problem, job)
                    .iter()
                    .map(|part| part.gpus)
                    .sum()
            })
            .collect();
        assert_eq!(
            seated.iter().filter(|&&gpus| gpus == 3).count(),
            2,
            "{seated:?}"
        );
        let again = after(&problem, &decision);
        assert_eq!(
            policy.allocate(&again).parts,
            vec![None; 3],
            "planning twice changes nothing"
        );
    }
}

#[test]
fn strict_gavel_leaves_free_gpus_idle_within_round() {
    let mut problem = cluster(&[(1, 2)]);
    problem.now_s = 3_700.0;
    problem.jobs = vec![job(vec![power(1.0, 1.0)]); 2];
    problem.jobs[1].present = vec![part(0, 1)];
    let strict = Gavel::strict_max_sum().allocate(&problem);
    assert_eq!(strict.parts, [None, None]);
    problem.now_s = 3_960.0;
    let strict = Gavel::strict_max_sum().allocate(&problem);
    assert_eq!(holds(&problem, &strict, 0), Some((0, 1)));
}

#[test]
fn strict_gavel_gives_equal_jobs_equal_time() {
    let mut problem = cluster(&[(1, 1), (1, 1)]);
    problem.jobs = vec![on_both(1.0, 5.0), on_both(1.0, 5.0)];
    let equal = rounds(Gavel::strict_max_sum(), problem.clone(), 10);
    assert_eq!(equal, [[1_800.0, 1_800.0], [1_800.0, 1_800.0]]);
    let vertex = rounds(Gavel::max_sum(), problem, 10);
    assert!(vertex[0].contains(&3_600.0), "{vertex:?}");
}

#[test]
fn strict_gavel_takes_gpus_in_order_of_nodes() {
    let mut problem = cluster(&[(2, 4)]);
    problem.jobs = vec![job(vec![power(1.0, 1.0)]); 3];
    for job in &mut problem.jobs {
        job.request_gpus = 3;
        job.max_gpus = 3;
    }
    problem.jobs[2].request_gpus = 2;
    let decision = Gavel::strict_max_sum().allocate(&problem);
    assert_eq!(decision.holds(&problem, 0), [part(0, 3)]);
    assert_eq!(decision.holds(&problem, 1), [part(0, 1), part(1, 2)]);
    assert_eq!(decision.holds(&problem, 2), [part(1, 2)]);
}
