use super::Pollux;
use super::genome::SearchEnvironment;
use super::speedup::by_node;
use crate::policies::SchedulingPolicy;
use crate::policies::allocation_state::AllocationState;
use crate::policies::scene::{Dice, after, cluster, holds, job, later, local, part, power, tenant};
use crate::problem::{NodeAllocation, PolicyDecision, SchedulingProblem, gpus_of, nodes_of};

fn random(seed: u64, jobs: u32) -> SchedulingProblem {
    let mut dice = Dice(seed);
    let mut problem = cluster(&[(4, 4)]);
    for _ in 0..jobs {
        let curve = local(0.1 + dice.part(), 0.3 + 0.7 * dice.part(), 0.8);
        let mut job = job(vec![curve]);
        job.submitted_s = 3_000.0 * dice.part();
        job.since_s = job.submitted_s;
        problem.jobs.push(job);
    }
    problem
}

/// Returns the value that the search minimises.
fn cost(problem: &SchedulingProblem, decision: &PolicyDecision) -> f64 {
    let state = AllocationState::beside_fixed(problem);
    let jobs: Vec<usize> = (0..problem.jobs.len()).collect();
    let rows = jobs
        .iter()
        .map(|&job| by_node(decision.holds(problem, job)))
        .collect();
    SearchEnvironment::new(&state, &jobs).repaired(rows, 0).cost
}

#[test]
fn pollux_prefers_more_goodput() {
    let mut problem = cluster(&[(2, 4)]);
    problem.jobs = vec![job(vec![power(1.0, 0.95)]), job(vec![power(1.0, 0.1)])];
    // A job whose speeds are all known has no largest measured size.
    problem.jobs[0].outlook.largest_gpus = u32::MAX;
    let decision = Pollux.allocate(&problem);
    let gpus = [0, 1].map(|job| holds(&problem, &decision, job).expect("runs").1);
    assert_eq!(gpus[0] + gpus[1], 8, "no GPU idles");
    assert!(gpus[0] >= 5, "{gpus:?}");
}

#[test]
fn pollux_does_not_split_job_when_split_is_slow() {
    let mut problem = cluster(&[(4, 4)]);
    problem.jobs = vec![job(vec![local(1.0, 0.9, 0.3)]); 4];
    let decision = Pollux.allocate(&problem);
    for job in 0..4 {
        let parts = decision.holds(&problem, job);
        assert_eq!((gpus_of(parts), nodes_of(parts)), (4, 1), "{parts:?}");
    }
}

#[test]
fn pollux_serves_all_jobs_when_gpus_suffice() {
    for seed in 0..10 {
        let problem = random(seed, 12);
        let decision = Pollux.allocate(&problem);
        let waiting = (0..12).filter(|&job| decision.holds(&problem, job).is_empty());
        assert_eq!(waiting.count(), 0, "seed {seed}");
    }
}

/// Returns the parts of a job on two nodes in one of the 729 allocations of three jobs.
fn enumerated(allocation: u32, job: u32) -> Vec<NodeAllocation> {
    let digits = [2 * job, 2 * job + 1].map(|index| allocation / 3_u32.pow(index) % 3);
    vec![part(0, digits[0]), part(1, digits[1])]
}

/// Two nodes of two GPUs: all allocations can be enumerated.
#[test]
fn pollux_finds_optimum_of_small_problem() {
    for seed in 0..20 {
        let mut problem = random(seed, 3);
        problem.nodes.truncate(2);
        problem.nodes.iter_mut().for_each(|node| node.gpus = 2);
        let state = AllocationState::beside_fixed(&problem);
        let ground = SearchEnvironment::new(&state, &[0, 1, 2]);
        let best = (0..3_u32.pow(6)).map(|number| {
            let rows = (0..3).map(|job| enumerated(number, job));
            ground.repaired(rows.collect(), 0).cost
        });
        let best = best.fold(f64::INFINITY, f64::min);
        let found = cost(&problem, &Pollux.allocate(&problem));
        assert!(found <= best * (1.0 + 1e-9), "seed {seed}: {found} {best}");
    }
}

#[test]
fn pollux_repeated_at_same_instant_changes_nothing() {
    for seed in 0..10 {
        let mut problem = random(seed, 9);
        for _ in 0..3 {
            let decision = Pollux.allocate(&problem);
            assert_eq!(
                decision,
                Pollux.allocate(&problem),
                "the same problem, seed {seed}"
            );
            let worse = cost(&problem, &decision) > cost(&problem, &PolicyDecision::keep(&problem));
            assert!(!worse, "seed {seed}");
            problem = after(&problem, &decision);
            let again = Pollux.allocate(&problem);
            assert_eq!(again.parts, vec![None; 9], "seed {seed}");
            problem = later(problem, 60.0);
        }
    }
}

#[test]
fn often_moved_job_stays_when_gain_is_small() {
    let mut problem = cluster(&[(1, 4)]);
    problem.jobs = vec![job(vec![power(1.0, 0.3)])];
    problem.jobs[0].present = vec![part(0, 2)];
    problem.jobs[0].since_s = 600.0;
    let decision = Pollux.allocate(&problem);
    assert_eq!(holds(&problem, &decision, 0), Some((0, 4)), "3,600 s old");
    problem.jobs[0].restarts = 60;
    assert_eq!(Pollux.allocate(&problem).parts, vec![None]);
}

#[test]
fn repair_bounds_growth_and_spread_jobs_per_node() {
    let mut problem = cluster(&[(3, 4)]);
    problem.jobs = vec![job(vec![power(1.0, 1.0)]); 3];
    problem.jobs[0].outlook.largest_gpus = 2;
    let state = AllocationState::beside_fixed(&problem);
    let ground = SearchEnvironment::new(&state, &[0, 1, 2]);
    let spread = vec![part(0, 2), part(1, 3)];
    let rows = vec![spread.clone(), spread.clone(), vec![part(0, 9)]];
    let genome = ground.repaired(rows.clone(), 0);
    let expected = [vec![part(0, 2), part(1, 2)], vec![], vec![part(0, 2)]];
    assert_eq!(genome.rows, expected);
    // The row that is repaired first takes what it wants.
    let genome = ground.repaired(rows, 1);
    let expected = [vec![], spread, vec![part(0, 2)]];
    assert_eq!(genome.rows, expected);
}

#[test]
fn pollux_keeps_quotas_priorities_and_immovable_jobs() {
    let mut problem = cluster(&[(2, 4), (1, 0), (1, 2)]);
    problem.tenants = vec![tenant(), tenant()];
    problem.tenants[0].gpu_quota = Some(2);
    let curves = vec![power(1.0, 1.0), power(9.0, 1.0), power(0.0, 1.0)];
    problem.jobs = vec![job(curves); 4];
    problem.jobs[0].fixed = true;
    problem.jobs[0].present = vec![part(1, 1)];
    problem.jobs[2].tenant = 1;
    problem.jobs[3].tenant = 1;
    problem.jobs[3].priority = 1;
    problem.jobs[3].unit.gpus = 3;
    problem.jobs[3].max_gpus = 4;
    let decision = Pollux.allocate(&problem);
    assert_eq!(decision.parts[0], None, "keeps what it holds");
    assert_eq!(holds(&problem, &decision, 3), Some((0, 3)), "comes first");
    assert_eq!(
        holds(&problem, &decision, 1),
        Some((0, 1)),
        "its tenant has 1 left"
    );
    assert_eq!(holds(&problem, &decision, 2), Some((0, 3)), "the rest");
}
