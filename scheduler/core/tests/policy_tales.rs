//! Characteristic behaviour of each policy, on small problems.

use crate::dense::{carried_out, cluster, job, node, power, runs, sizes, tenant, violations};
use muster_core::policies::name::{PolicyName, UnknownPolicy};
use muster_core::policies::tiresias::DEMOTED_GPU_S;
use muster_core::problem::{
    FittedLoss, KindSpeedCurve, NodeAllocation, ProblemJob, ProblemTenant, SchedulingProblem,
};

/// Returns the GPUs of every job after the policy's decision, which must be valid.
fn decide(name: PolicyName, problem: &SchedulingProblem) -> Vec<u32> {
    let decision = name.policy().allocate(problem);
    assert_eq!(violations(problem, &decision), Vec::<String>::new());
    sizes(problem, &decision)
}

fn with(mut problem: SchedulingProblem, jobs: Vec<ProblemJob>) -> SchedulingProblem {
    problem.jobs = jobs;
    problem
}

/// Returns an elastic job of 1 to 8 GPUs.
fn elastic(exponent: f64, work_left: f64) -> ProblemJob {
    let mut job = job(1, work_left);
    job.max_gpus = 8;
    job.outlook.curves = vec![power(1.0, exponent)].into();
    job
}

/// Returns a job of one GPU that needs CPU and memory.
fn demanding(cpus: u64, memory_bytes: u64) -> ProblemJob {
    let mut job = job(1, 100.0);
    job.unit.cpu_milli = cpus * 1_000;
    job.unit.memory_bytes = memory_bytes;
    job
}

fn of_tenant(tenant: u32, job: ProblemJob) -> ProblemJob {
    ProblemJob { tenant, ..job }
}

#[test]
fn policy_names_parse_and_unknown_ones_fail() {
    for &name in PolicyName::ALL {
        assert_eq!(name.as_str().parse(), Ok(name));
        assert_eq!(serde_json::to_value(name).unwrap(), name.as_str());
    }
    let wrong = "nemo".parse::<PolicyName>().unwrap_err();
    assert_eq!(
        wrong,
        UnknownPolicy {
            given: "nemo".to_owned()
        }
    );
    let told = wrong.to_string();
    assert!(told.starts_with("no policy is named \"nemo\": there are muster, fifo, "));
}

#[test]
fn fifo_backfills_only_without_delay_of_the_first_job() {
    let running = runs(job(3, 100.0), &[(0, 3)], 3_500.0);
    // The wide job gets its place in 100 s. A job that ends before may start first, a longer one
    // may not.
    for (left_s, starts) in [(90.0, 1), (110.0, 0)] {
        let jobs = vec![running.clone(), job(4, 50.0), job(1, left_s)];
        let problem = with(cluster(1, 4), jobs);
        assert_eq!(decide(PolicyName::Fifo, &problem), [3, 0, starts]);
    }
    // Beside the place of the wide job a job of any length fits.
    let beside = vec![running.clone(), job(4, 50.0), job(1, 9e9)];
    assert_eq!(
        decide(PolicyName::Fifo, &with(cluster(2, 4), beside)),
        [3, 4, 1]
    );
    let mut kept_apart = vec![running, runs(job(3, 1e6), &[(1, 3)], 3_500.0), job(4, 50.0)];
    kept_apart[2].outlook.curves = vec![KindSpeedCurve {
        spread: vec![0.0; 64],
        ..power(1.0, 1.0)
    }]
    .into();
    kept_apart.push(job(2, 9e9));
    kept_apart.push(job(1, 9e9));
    // The wide job waits for node 0, because it cannot be spread. One GPU of node 1 is free and not
    // reserved.
    assert_eq!(
        decide(PolicyName::Fifo, &with(cluster(2, 4), kept_apart)),
        [3, 3, 0, 0, 1]
    );
}

#[test]
fn fifo_displaces_jobs_only_for_higher_priority() {
    let mut late = job(4, 1.0);
    let running = runs(job(4, 1e6), &[(0, 4)], 0.0);
    let problem = with(cluster(1, 4), vec![running.clone(), late.clone()]);
    assert_eq!(decide(PolicyName::Fifo, &problem), [4, 0]);

    late.priority = 1;
    let problem = with(cluster(1, 4), vec![running, late]);
    assert_eq!(decide(PolicyName::Fifo, &problem), [0, 4]);
}

#[test]
fn srtf_displaces_long_job_for_short_one() {
    let long = runs(job(4, 1_000.0), &[(0, 4)], 0.0);
    let problem = with(cluster(1, 4), vec![long.clone(), job(2, 900.0)]);
    assert_eq!(decide(PolicyName::Srtf, &problem), [0, 2]);
    let problem = with(cluster(1, 4), vec![long, job(2, 1_100.0)]);
    assert_eq!(decide(PolicyName::Srtf, &problem), [4, 0]);
}

#[test]
fn drf_equalizes_dominant_shares_as_in_the_paper() {
    // The paper's example: 9 CPUs and 18 GB; tasks of <1 CPU, 4 GB> and <3 CPU, 1 GB>. The result
    // is three and two tasks.
    let mut problem = cluster(1, 100);
    problem.nodes[0].cpu_milli = 9_000;
    problem.nodes[0].memory_bytes = 18;
    problem.tenants = vec![tenant(), tenant()];
    problem.jobs = vec![of_tenant(0, demanding(1, 4)); 6];
    problem.jobs.extend(vec![of_tenant(1, demanding(3, 1)); 6]);
    let gpus = decide(PolicyName::Drf, &problem);
    assert_eq!(gpus[..6].iter().sum::<u32>(), 3);
    assert_eq!(gpus[6..].iter().sum::<u32>(), 2);
}

#[test]
fn drf_divides_by_weight_organisations_first_then_teams() {
    // One organisation of weight 1 with two teams of weights 1 and 2, and one of weight 2 with one
    // team.
    let mut problem = cluster(3, 6);
    let tenants = [
        (None, 1.0),
        (None, 2.0),
        (Some(0), 1.0),
        (Some(0), 2.0),
        (Some(1), 1.0),
    ];
    problem.tenants = tenants
        .map(|(parent, weight)| ProblemTenant {
            parent,
            weight,
            ..tenant()
        })
        .to_vec();
    problem.jobs = [2, 3, 4]
        .into_iter()
        .flat_map(|team| vec![of_tenant(team, job(1, 100.0)); 18])
        .collect();
    let gpus = decide(PolicyName::Drf, &problem);
    let held: Vec<u32> = gpus.chunks(18).map(|team| team.iter().sum()).collect();
    assert_eq!(held, [2, 4, 12]);
}

#[test]
fn tetris_prefers_demand_aligned_with_free_resources() {
    let mut problem = cluster(1, 2);
    problem.nodes[0].cpu_milli = 10_000;
    problem.nodes[0].memory_bytes = 10;

    // Most memory is taken and most CPU is free, so the job that needs CPU goes first although it
    // came last.
    let mut held = runs(demanding(1, 7), &[(0, 1)], 0.0);
    held.fixed = true;
    problem.jobs = vec![held, demanding(1, 3), demanding(5, 1)];
    assert_eq!(decide(PolicyName::Tetris, &problem), [1, 0, 1]);
    // A much longer job would not go first.
    problem.jobs[2].outlook.work_left *= 100.0;
    assert_eq!(decide(PolicyName::Tetris, &problem), [1, 1, 0]);
}

#[test]
fn tiresias_demotes_job_after_sixteen_gpu_hours() {
    let running = runs(job(4, 1e6), &[(0, 4)], 0.0);
    let mut problem = with(cluster(1, 4), vec![running, job(4, 1.0)]);
    problem.jobs[0].attained_gpu_s = DEMOTED_GPU_S - 1.0;
    assert_eq!(decide(PolicyName::Tiresias, &problem), [4, 0]);
    problem.jobs[0].attained_gpu_s = DEMOTED_GPU_S;
    assert_eq!(decide(PolicyName::Tiresias, &problem), [0, 4]);

    // In the lower queue the job that was demoted first comes first, not the one that was submitted
    // first.
    let both = [2_000.0, 1_000.0].map(|at_s| ProblemJob {
        attained_gpu_s: DEMOTED_GPU_S,
        demoted_s: Some(at_s),
        ..job(4, 1.0)
    });
    let both = with(cluster(1, 4), both.into());
    assert_eq!(decide(PolicyName::Tiresias, &both), [0, 4]);
}

#[test]
fn gittins_orders_old_jobs_by_history() {
    let old = ProblemJob {
        attained_gpu_s: 3_600.0,
        ..job(4, 1.0)
    };
    let mut problem = with(cluster(1, 4), vec![job(4, 1.0), old]);
    problem.history_gpu_s = vec![4_000.0; 100];
    assert_eq!(decide(PolicyName::TiresiasGittins, &problem), [0, 4]);
    problem.history_gpu_s = [vec![100.0; 90], vec![1e6; 10]].concat();
    assert_eq!(decide(PolicyName::TiresiasGittins, &problem), [4, 0]);
    // Without history, the job of the least service comes first.
    problem.history_gpu_s.clear();
    assert_eq!(decide(PolicyName::TiresiasGittins, &problem), [4, 0]);
}

#[test]
fn optimus_gives_gpus_by_saved_time() {
    let scales = elastic(1.0, 1_000.0);
    let hardly = elastic(0.2, 1_000.0);
    // Seconds saved by the next GPU: 129, 68, 45 of the first job; 500, 167, 83, 50, 33 of the
    // second.
    let problem = with(cluster(2, 4), vec![hardly, scales.clone()]);
    assert_eq!(decide(PolicyName::Optimus, &problem), [3, 5]);
    // A hundredth: the first step saves 5 s, less than the 18 s of the long job's last step.
    let short = elastic(1.0, 10.0);
    let problem = with(cluster(2, 4), vec![short, scales]);
    assert_eq!(decide(PolicyName::Optimus, &problem), [1, 7]);
}

#[test]
fn optimus_gives_minimum_to_all_jobs_by_priority() {
    let mut low = elastic(1.0, 1e6);
    low.min_gpus = 4;
    let mut high = elastic(1.0, 10.0);
    high.priority = 1;
    // The job of higher priority grows only into what the minimum of the other one leaves.
    let problem = with(cluster(2, 4), vec![low.clone(), high.clone()]);
    assert_eq!(decide(PolicyName::Optimus, &problem), [4, 4]);
    high.min_gpus = 5;
    let problem = with(cluster(2, 4), vec![low, high]);
    assert_eq!(decide(PolicyName::Optimus, &problem), [0, 8]);
}

#[test]
fn slaq_gives_gpus_to_jobs_with_falling_loss() {
    let trained = [1e6, 0.0].map(|work_done| {
        let mut job = elastic(1.0, 1e6);
        job.outlook.work_done = work_done;
        job.outlook.loss = Some(FittedLoss {
            b0: 0.01,
            b1: 0.1,
            b2: 0.5,
            first: 10.5,
        });
        job
    });
    let problem = with(cluster(1, 8), trained.into());
    assert_eq!(decide(PolicyName::Slaq, &problem), [1, 7]);
    // Optimus uses the time left, which is equal.
    assert_eq!(decide(PolicyName::Optimus, &problem), [4, 4]);
}

#[test]
fn themis_serves_worst_off_job_and_keeps_leases() {
    let mut problem = cluster(1, 4);
    // Both are an hour old. For the short job that is far more than its time alone in half of the
    // cluster.
    let jobs = vec![runs(job(4, 1e5), &[(0, 4)], 3_000.0), job(4, 600.0)];
    problem.jobs = jobs;
    assert_eq!(decide(PolicyName::Themis, &problem), [0, 4]);
    // In the round of its allocation a job keeps its GPUs.
    problem.jobs[0].since_s = problem.now_s - 30.0;
    assert_eq!(decide(PolicyName::Themis, &problem), [4, 0]);
    // SRTF has no leases.
    assert_eq!(decide(PolicyName::Srtf, &problem), [0, 4]);
}

#[test]
fn gandiva_rotates_jobs_after_a_quantum() {
    let waiting = ProblemJob {
        since_s: 3_590.0,
        ..job(4, 1e6)
    };
    let running = runs(job(4, 1e6), &[(0, 4)], 3_550.0);
    let mut problem = with(cluster(1, 4), vec![running, waiting]);
    assert_eq!(
        decide(PolicyName::Gandiva, &problem),
        [4, 0],
        "in its first quantum"
    );
    problem.now_s = 3_610.0;
    let decision = PolicyName::Gandiva.policy().allocate(&problem);
    assert_eq!(sizes(&problem, &decision), [0, 4], "its turn is over");
    let mut after = carried_out(&problem, &decision);
    after.now_s += 59.0;
    assert_eq!(decide(PolicyName::Gandiva, &after), [0, 4]);
    after.now_s += 1.0;
    assert_eq!(
        decide(PolicyName::Gandiva, &after),
        [4, 0],
        "and back again"
    );
}

#[test]
fn gandiva_grows_into_idle_gpus_and_releases_them() {
    let mut growing = runs(elastic(0.9, 1e5), &[(0, 2)], 0.0);
    growing.request_gpus = 2;
    let problem = with(cluster(1, 4), vec![growing]);
    let decision = PolicyName::Gandiva.policy().allocate(&problem);
    assert_eq!(sizes(&problem, &decision), [4]);
    let mut after = carried_out(&problem, &decision);
    after.jobs.push(job(1, 100.0));
    assert_eq!(decide(PolicyName::Gandiva, &after), [3, 1]);
}

#[test]
fn gandiva_migrates_small_job_to_gather_gang() {
    let mut gang = runs(job(3, 1e5), &[(0, 1), (1, 2)], 0.0);
    let mut slow_across = power(1.0, 1.0);
    slow_across
        .spread
        .iter_mut()
        .for_each(|speed| *speed *= 0.5);
    gang.outlook.curves = vec![slow_across].into();
    let small = runs(job(1, 1e5), &[(1, 1)], 0.0);
    let mut held = runs(job(1, 1e5), &[(0, 1)], 0.0);
    held.fixed = true;
    // Two nodes of two and three GPUs. The gang has one GPU of the first. The small job is beside
    // the rest of the gang on the second.
    let mut problem = cluster(1, 2);
    problem.nodes.push(node(0, 3));
    problem.jobs = vec![gang, small, held];
    let decision = PolicyName::Gandiva.policy().allocate(&problem);
    assert_eq!(
        decision.holds(&problem, 0),
        [NodeAllocation { node: 1, gpus: 3 }]
    );
    assert_eq!(
        decision.holds(&problem, 1),
        [NodeAllocation { node: 0, gpus: 1 }]
    );

    // No migration if its cost exceeds its gain.
    problem.jobs[1].restart_s = 1e6;
    let decision = PolicyName::Gandiva.policy().allocate(&problem);
    assert_eq!(decision.parts, vec![None; 3]);
}

#[test]
fn gandiva_places_jobs_of_equal_size_together() {
    let mut problem = cluster(3, 4);
    problem.jobs = vec![
        runs(job(1, 1e5), &[(0, 1)], 0.0),
        runs(job(2, 1e5), &[(1, 2)], 0.0),
        job(2, 1e5),
        job(1, 1e5),
        job(4, 1e5),
    ];
    let decision = PolicyName::Gandiva.policy().allocate(&problem);
    let places: Vec<u32> = (2..5)
        .map(|job| decision.holds(&problem, job)[0].node)
        .collect();
    assert_eq!(places, [1, 0, 2]);
}

#[test]
fn muster_runs_short_job_first_and_grows_scalable_job() {
    // One GPU: the short job runs, the long one waits.
    let problem = with(cluster(1, 1), vec![job(1, 1e5), job(1, 600.0)]);
    assert_eq!(decide(PolicyName::Muster, &problem), [0, 1]);
    // Idle GPUs go to the job that gets faster by them.
    let problem = with(
        cluster(1, 8),
        vec![elastic(0.05, 5_000.0), elastic(0.95, 5_000.0)],
    );
    let mut problem = problem;
    problem
        .jobs
        .iter_mut()
        .for_each(|job| job.outlook.largest_gpus = 8);
    let sizes = decide(PolicyName::Muster, &problem);
    assert!(sizes[0] <= 2 && sizes[1] >= 6, "{sizes:?}");
}

#[test]
fn muster_explores_to_twice_the_largest_measured_size() {
    let mut problem = with(cluster(1, 8), vec![elastic(0.95, 5_000.0)]);
    problem.jobs[0].outlook.largest_gpus = 2;
    assert_eq!(decide(PolicyName::Muster, &problem), [4]);
}

#[test]
fn muster_starts_job_after_long_wait() {
    for (age_s, sizes) in [(0.0, [0, 1]), (100_000.0, [1, 0])] {
        let mut old = job(1, 20_000.0);
        old.restart_s = 30.0;
        old.submitted_s = 3_600.0 - age_s;
        let mut new = job(1, 2_000.0);
        new.restart_s = 30.0;
        new.submitted_s = 3_600.0;
        let problem = with(cluster(1, 1), vec![old, new]);
        assert_eq!(decide(PolicyName::Muster, &problem), sizes, "{age_s}");
    }
}

#[test]
fn muster_keeps_running_jobs_in_place_without_gain() {
    let mut problem = with(
        cluster(2, 4),
        vec![
            runs(elastic(0.6, 5_000.0), &[(0, 4)], 3_000.0),
            runs(elastic(0.6, 5_000.0), &[(1, 4)], 3_000.0),
        ],
    );
    for job in &mut problem.jobs {
        job.outlook.largest_gpus = 8;
        job.restart_s = 60.0;
    }
    let decision = PolicyName::Muster.policy().allocate(&problem);
    assert_eq!(decision.parts, [None, None]);
}

#[test]
fn muster_serves_tenant_below_its_share_first() {
    let mut problem = cluster(1, 4);
    problem.tenants = vec![tenant(), tenant()];
    // By value alone the four short jobs of the first tenant would get all GPUs.
    problem.jobs = vec![job(1, 600.0); 4];
    problem.jobs.extend(vec![of_tenant(1, job(1, 1e6)); 2]);
    let sizes = decide(PolicyName::Muster, &problem);
    assert_eq!(sizes[4] + sizes[5], 2, "{sizes:?}");
    assert_eq!(sizes.iter().sum::<u32>(), 4, "{sizes:?}");
}

#[test]
fn muster_assigns_gpu_kinds_by_total_value() {
    let mut problem = cluster(1, 1);
    problem.kinds = vec!["slow".to_owned(), "fast".to_owned()];
    problem.nodes = vec![node(0, 1), node(1, 1)];
    for factor in [1.1, 8.0] {
        let mut job = job(1, 5_000.0);
        job.outlook.curves = vec![power(1.0, 1.0), power(factor, 1.0)].into();
        job.held_s = vec![0.0, 0.0];
        problem.jobs.push(job);
    }
    let decision = PolicyName::Muster.policy().allocate(&problem);
    let nodes = [0, 1].map(|job| decision.holds(&problem, job)[0].node);
    assert_eq!(nodes, [0, 1]);
}

/// Jobs of three hours from a day ago fill the cluster when a job of ten seconds arrives.
#[test]
fn muster_starts_short_job_at_once_among_aged_long_jobs() {
    let mut problem = cluster(1, 4);
    problem.now_s = 86_400.0;
    for gpu in 0..5 {
        let mut job = match gpu {
            4 => job(1, 10.0),
            _ => runs(job(1, 10_800.0), &[(0, 1)], 80_000.0),
        };
        job.submitted_s = if gpu == 4 { problem.now_s } else { 0.0 };
        job.restart_s = 3.0;
        problem.jobs.push(job);
    }
    let sizes = decide(PolicyName::Muster, &problem);
    assert_eq!((sizes[4], sizes.iter().sum()), (1, 4), "{sizes:?}");
}

/// At every moment a new job needs the only GPU for a minute. A job of three hours still gets it
/// within a day.
#[test]
fn muster_bounds_wait_behind_endless_short_jobs() {
    for (age_s, sizes) in [(600.0, [0, 1]), (86_400.0, [1, 0])] {
        let mut old = job(1, 10_800.0);
        let mut new = job(1, 60.0);
        (old.restart_s, new.restart_s) = (3.0, 3.0);
        new.submitted_s = age_s;
        let mut problem = with(cluster(1, 1), vec![old, new]);
        problem.now_s = age_s;
        assert_eq!(decide(PolicyName::Muster, &problem), sizes, "{age_s}");
    }
}

/// Two nodes are half full of small jobs. Those of one node move to the other, so a gang gets a
/// whole node.
#[test]
fn muster_clears_node_of_small_jobs_for_gang() {
    let mut problem = cluster(2, 4);
    for node in [0, 0, 1, 1] {
        problem.jobs.push(runs(job(1, 20_000.0), &[(node, 1)], 0.0));
    }
    problem.jobs.push(job(4, 1_000.0));
    problem.jobs.iter_mut().for_each(|job| job.restart_s = 3.0);
    let decision = PolicyName::Muster.policy().allocate(&problem);
    assert_eq!(decide(PolicyName::Muster, &problem), [1, 1, 1, 1, 4]);
    assert_eq!(decision.holds(&problem, 4).len(), 1, "{decision:?}");
}

/// The other tenant's jobs of days never exceed its share. The gang that needs both shares runs
/// once its own share alone would have sufficed to end it.
#[test]
fn muster_serves_due_gang_wider_than_tenant_share() {
    for (age_s, gpus) in [(0.0, 0), (100_000.0, 4)] {
        let mut problem = cluster(1, 4);
        problem.now_s = age_s;
        problem.tenants = vec![tenant(), tenant()];
        let mut long = job(1, 500_000.0);
        long.outlook.work_done = 500_000.0;
        problem.jobs = vec![long.clone(), long, job(4, 20_000.0)];
        problem.jobs[2].tenant = 1;
        problem.jobs.iter_mut().for_each(|job| job.restart_s = 3.0);
        assert_eq!(decide(PolicyName::Muster, &problem)[2], gpus, "{age_s}");
    }
}
