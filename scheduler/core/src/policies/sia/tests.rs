use super::choices::SiaConfigurations;
use super::{Sia, programme};
use crate::policies::SchedulingPolicy;
use crate::policies::allocation_state::AllocationState;
use crate::policies::scene::{Dice, after, cluster, holds, job, later, local, part, power, tenant};
use crate::problem::{KindSpeedCurve, SchedulingProblem, gpus_of, nodes_of};

fn random(seed: u64, kinds: &[(u32, u32)], jobs: u32) -> SchedulingProblem {
    let mut dice = Dice(seed);
    let mut problem = cluster(kinds);
    for _ in 0..jobs {
        let curves: Vec<KindSpeedCurve> = kinds
            .iter()
            .map(|_| power(0.2 + dice.part(), 0.2 + 0.8 * dice.part()))
            .collect();
        let mut job = job(curves);
        job.submitted_s = 3_000.0 * dice.part();
        job.since_s = job.submitted_s;
        problem.jobs.push(job);
    }
    problem
}

#[test]
fn sia_grows_only_jobs_that_scale() {
    let mut problem = cluster(&[(4, 4)]);
    problem.jobs = vec![job(vec![power(1.0, 0.95)]), job(vec![power(1.0, 0.0)])];
    let decision = Sia.allocate(&problem);
    let grown = holds(&problem, &decision, 0).expect("runs").1;
    assert!(grown >= 8, "{grown}");
    assert_eq!(holds(&problem, &decision, 1), Some((0, 1)));
    assert!(decision.worth[0].last_gain > 0.0);
}

#[test]
fn sia_grows_to_twice_the_largest_measured_size() {
    let mut problem = cluster(&[(4, 4)]);
    problem.jobs = vec![job(vec![power(1.0, 0.95)])];
    for (measured, gpus) in [(0, 1), (1, 2), (2, 4), (3, 4), (64, 16), (u32::MAX, 16)] {
        let mut unknown = problem.clone();
        unknown.jobs[0].outlook.largest_gpus = measured;
        let decision = Sia.allocate(&unknown);
        assert_eq!(holds(&unknown, &decision, 0), Some((0, gpus)), "{measured}");
    }
}

#[test]
fn sia_keeps_places_when_nothing_changed() {
    for seed in 0..20 {
        let mut problem = random(seed, &[(6, 4), (2, 8), (3, 8)], 25);
        let decision = Sia.allocate(&problem);
        for _ in 0..3 {
            problem = after(&problem, &Sia.allocate(&problem));
            let again = Sia.allocate(&problem);
            assert_eq!(again.parts, vec![None; 25], "seed {seed}");
            problem = later(problem, 60.0);
            assert_eq!(Sia.allocate(&problem).parts, vec![None; 25], "seed {seed}");
        }
        assert!(decision.parts.iter().flatten().count() > 0);
    }
}

#[test]
fn sia_keeps_jobs_without_gain_while_another_grows() {
    let mut problem = cluster(&[(2, 4), (2, 4)]);
    problem.jobs = vec![job(vec![power(1.0, 0.9), power(1.0, 0.9)]); 6];
    for (index, job) in (0..).zip(&mut problem.jobs) {
        // Only the tie-break keeps them in place, because a restart costs nothing.
        job.restart_s = 0.0;
        job.max_gpus = 1;
        job.present = vec![part(index % 4, 1)];
    }
    problem.jobs[5].max_gpus = 2;
    let decision = Sia.allocate(&problem);
    assert_eq!(decision.parts[..5], vec![None; 5]);
    assert_eq!(holds(&problem, &decision, 5).map(|(_, gpus)| gpus), Some(2));
}

/// With nodes of different sizes and units of three GPUs, the programme's solution cannot always be
/// placed.
#[test]
fn sia_settles_on_nodes_of_mixed_sizes() {
    let mut late = 0;
    for seed in 0..100 {
        let mut dice = Dice(seed);
        let mut problem = random(seed, &[(5, 8)], 7);
        for node in &mut problem.nodes {
            node.gpus = 1 + (dice.part() * 8.0) as u32;
        }
        for job in &mut problem.jobs {
            job.unit.gpus = [1, 1, 2, 3][(dice.part() * 4.0) as usize];
            job.min_gpus = 1 + (dice.part() * 4.0) as u32;
        }
        for round in 0..10 {
            let decision = Sia.allocate(&problem);
            let changes = decision.parts.iter().flatten().count();
            late += if round < 4 { 0 } else { changes };
            problem = later(after(&problem, &decision), 60.0);
        }
    }
    assert!(late <= 30, "{late} changes in 600 rounds");
}

#[test]
fn sia_gives_fast_kind_to_largest_speedup() {
    let mut problem = cluster(&[(1, 1), (1, 1)]);
    problem.jobs = [1.2, 4.0]
        .map(|fast| job(vec![power(1.0, 1.0), power(fast, 1.0)]))
        .to_vec();
    let decision = Sia.allocate(&problem);
    assert_eq!(holds(&problem, &decision, 0), Some((0, 1)));
    assert_eq!(holds(&problem, &decision, 1), Some((1, 1)));
}

#[test]
fn often_moved_job_stays_when_gain_is_small() {
    let mut problem = cluster(&[(1, 1), (1, 1)]);
    problem.jobs = vec![job(vec![power(1.0, 1.0), power(1.5, 1.0)])];
    problem.jobs[0].present = vec![part(0, 1)];
    problem.jobs[0].since_s = 600.0;
    let decision = Sia.allocate(&problem);
    assert_eq!(holds(&problem, &decision, 0), Some((1, 1)), "3,600 s old");
    problem.jobs[0].restarts = 60;
    assert_eq!(Sia.allocate(&problem).parts, vec![None]);
}

fn gain(choices: &[SiaConfigurations], taken: &[Option<usize>]) -> f64 {
    let taken = choices.iter().zip(taken);
    let gains = taken.filter_map(|(of_job, index)| index.map(|index| of_job.all[index].gain));
    gains.sum()
}

/// Whether the choices fit into 4 GPUs of each of two kinds, and into the 3 GPUs of tenant 1.
fn fits(
    problem: &SchedulingProblem,
    choices: &[SiaConfigurations],
    taken: &[Option<usize>],
) -> bool {
    let mut used = [0, 0, 0];
    for (of_job, index) in choices.iter().zip(taken) {
        let Some(index) = *index else { continue };
        let wish = of_job.all[index].wish;
        used[usize::from(wish.kind)] += wish.gpus;
        used[2] += wish.gpus * problem.jobs[wish.job].tenant;
    }
    used[0] <= 4 && used[1] <= 4 && used[2] <= 3
}

#[test]
fn sia_programme_finds_the_optimum() {
    for seed in 0..60 {
        let mut problem = random(seed, &[(2, 2), (1, 4)], 4);
        problem.tenants.push(tenant());
        problem.tenants[1].gpu_quota = Some(3);
        problem.jobs[1].tenant = 1;
        problem.jobs[2].tenant = 1;
        problem.jobs[3].outlook.largest_gpus = 2;
        let state = AllocationState::beside_fixed(&problem);
        let choices: Vec<SiaConfigurations> = (0..4)
            .map(|job| SiaConfigurations::of_job(&state, job))
            .collect();

        let sizes: Vec<usize> = choices.iter().map(|of_job| of_job.all.len() + 1).collect();
        let all = (0..sizes.iter().product::<usize>()).map(|mut number| {
            sizes
                .iter()
                .map(|&size| {
                    let digit = number % size;
                    number /= size;
                    digit.checked_sub(1)
                })
                .collect::<Vec<_>>()
        });
        let best = all
            .filter(|taken| fits(&problem, &choices, taken))
            .map(|taken| gain(&choices, &taken))
            .fold(0.0, f64::max);
        let solved = programme::solve(&state, &choices);
        assert!(fits(&problem, &choices, &solved), "seed {seed}");
        let found = gain(&choices, &solved);
        assert!((found - best).abs() < 1e-9, "seed {seed}: {best}");
    }
}

#[test]
fn sia_moves_small_job_to_join_fragments() {
    let mut problem = cluster(&[(2, 2)]);
    problem.jobs = vec![job(vec![local(1.0, 0.0, 0.5)]); 3];
    problem.jobs[0].present = vec![part(0, 1)];
    problem.jobs[1].present = vec![part(1, 1)];
    problem.jobs[2].min_gpus = 2;
    problem.jobs[2].max_gpus = 2;
    let decision = Sia.allocate(&problem);
    let pair = decision.holds(&problem, 2);
    assert_eq!((gpus_of(pair), nodes_of(pair)), (2, 1));
    assert!(holds(&problem, &decision, 0).is_some() && holds(&problem, &decision, 1).is_some());
    let moved = [0, 1].map(|job| decision.parts[job].is_some());
    assert_ne!(moved[0], moved[1], "one makes room, the other stays");
}

#[test]
fn sia_keeps_quotas_priorities_units_and_immovable_jobs() {
    let mut problem = cluster(&[(2, 4), (1, 0)]);
    problem.tenants = vec![tenant(), tenant()];
    problem.tenants[0].gpu_quota = Some(3);
    problem.jobs = vec![job(vec![power(1.0, 1.0), power(9.0, 1.0)]); 4];
    problem.jobs[0].fixed = true;
    problem.jobs[0].present = vec![part(1, 1)];
    problem.jobs[2].tenant = 1;
    problem.jobs[3].tenant = 1;
    problem.jobs[3].priority = 1;
    problem.jobs[3].unit.gpus = 3;
    problem.jobs[3].max_gpus = 4;
    let decision = Sia.allocate(&problem);
    assert_eq!(decision.parts[0], None, "keeps what it holds");
    assert_eq!(
        holds(&problem, &decision, 1),
        Some((0, 2)),
        "its tenant has 2 left"
    );
    assert_eq!(holds(&problem, &decision, 3), Some((0, 3)), "comes first");
    assert!(holds(&problem, &decision, 2).is_some());
}
