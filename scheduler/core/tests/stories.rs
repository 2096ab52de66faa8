//! Behaviour that a user of a small cluster sees.

use crate::scene::{Scene, gone, stops, tenant};
use muster_core::Action;
use muster_core::snapshot::{FailedReport, Finished, SnapshotTask, SpeedPoint};
use muster_model::job::{Intent, JobPhase, JobState};
use muster_model::task::Outcome;
use muster_model::wait::{Change, Short, Wait};

#[test]
fn lone_job_takes_its_maximum_and_keeps_it() {
    let mut scene = Scene::cluster(2, 2);
    scene.job("a").workers(1, 4);
    scene.settle();
    assert_eq!(scene.workers("a"), 4);
    for speed in [10.0, 9.0, 12.0, 3.0] {
        scene.measured("a", 4, speed);
        scene.later(120_000);
        assert_eq!(stops(&scene.round()), 0);
    }
}

#[test]
fn first_job_shrinks_for_second_and_regrows() {
    let mut scene = Scene::cluster(2, 2);
    scene.job("a").workers(1, 4);
    scene.settle();
    scene.measured("a", 4, 20.0);
    scene.job("b").workers(1, 2);
    let plan = scene.round();
    assert_eq!(
        stops(&plan),
        1,
        "a makes room in the first round: {plan:#?}"
    );
    let waiting = scene
        .find("b")
        .waiting
        .clone()
        .expect("b waits for a's tasks");
    let a = scene.find("a").id;
    assert_eq!(
        waiting.why,
        Wait::WaitingForPreemptedWorkloads { jobs: vec![a] }
    );
    scene.settle();
    assert!(scene.workers("b") >= 1);
    assert_eq!(scene.workers("a") + scene.workers("b"), 4);

    let workers = scene.workers("a");
    scene.measured("a", workers, 5.5 * f64::from(workers));
    scene.find("b").finished = Some(Finished {
        step: 1,
        reason: "done".to_owned(),
    });
    scene.later(60_000);
    scene.settle();
    scene.snapshot.jobs.retain(|job| job.name == "a");
    scene.later(60_000);
    scene.settle();
    assert_eq!(scene.workers("a"), 4);
}

#[test]
fn job_without_shards_gets_workers_and_measured_speed() {
    let mut scene = Scene::cluster(2, 2);
    scene.job("a").workers(1, 4).ps_shards(0, 0);
    scene.settle();
    let tasks = &scene.find("a").tasks;
    assert_eq!(tasks.len(), 4);
    assert!(tasks.iter().all(SnapshotTask::is_worker));
    for workers in [4, 2] {
        scene.find("a").speeds.push(SpeedPoint {
            workers,
            ps_shards: 0,
            steps_per_s: 20.0,
            samples: 1_000,
        });
    }
    let (_, report) = muster_core::plan(&scene.snapshot, &scene.policy);
    let speed = &report.jobs[0].speed;
    assert_eq!(speed.points, 2);
    assert!((speed.steps_per_s - 20.0).abs() < 2.0, "{speed:?}");
}

#[test]
fn sizes_settle_when_more_workers_gain_nothing() {
    let mut scene = Scene::cluster(2, 2);
    scene.job("a").workers(1, 4).steps(1_000_000);
    scene.job("b").workers(1, 2).steps(1_000_000);
    let mut resizes = 0;
    for round in 0..60 {
        scene.later(60_000);
        for name in ["a", "b"] {
            let workers = scene.workers(name);
            if workers > 0 {
                // Two cores: no speed-up beyond two workers. Exploration must end.
                let true_speed = 10.0 * f64::from(workers.min(2));
                let noise = 1.0 + 0.03 * f64::from(round % 3);
                scene.measured(name, workers, true_speed * noise);
            }
        }
        let plan = scene.round();
        scene.obey();
        resizes += stops(&plan);
        assert!(
            round < 30 || stops(&plan) == 0,
            "still resizing in round {round}"
        );
        scene.settle();
    }
    assert!(resizes <= 6, "{resizes} resizes of two steady jobs");
}

#[test]
fn job_about_to_end_is_not_resized() {
    let mut scene = Scene::cluster(1, 4);
    scene.job("a").workers(1, 4);
    scene.job("b").workers(2, 2);
    scene.settle();
    scene.measured("a", 2, 10.0);
    scene.find("a").progress.step = 19_950;
    scene.find("b").finished = Some(Finished {
        step: 1,
        reason: "done".to_owned(),
    });
    scene.later(60_000);
    scene.settle();
    assert_eq!(
        scene.workers("a"),
        2,
        "five seconds of work are not worth a restart"
    );
}

#[test]
fn only_strictly_higher_priority_preempts() {
    let mut scene = Scene::cluster(1, 2);
    scene.job("low").workers(2, 2);
    scene.settle();
    scene.job("equal").workers(2, 2);
    assert_eq!(stops(&scene.round()), 0);
    assert_eq!(scene.phase("equal"), JobPhase::Queued);
    scene.job("high").workers(2, 2).priority(1);
    assert_eq!(stops(&scene.round()), 1);
    scene.settle();
    assert_eq!(scene.phase("high"), JobPhase::Running);
    assert_eq!(scene.phase("low"), JobPhase::Queued);
}

#[test]
fn promised_gpus_are_kept_while_tasks_stop() {
    let mut scene = Scene::cluster(1, 4);
    scene.job("a").workers(2, 4);
    scene.settle();
    scene.job("b").workers(2, 2);
    scene.round();
    assert!(matches!(scene.find("a").state, JobState::Stopping { .. }));
    scene.job("thief").workers(2, 2);
    for _ in 0..4 {
        let halfway = scene
            .find("a")
            .tasks
            .iter()
            .position(|task| !task.state.is_released());
        if let Some(next) = halfway {
            scene.find("a").tasks[next].state = gone(Outcome::exited(0));
        }
        scene.round();
    }
    scene.settle();
    assert_eq!(scene.workers("a"), 2);
    assert_eq!(scene.workers("b"), 2);
    assert_eq!(scene.phase("thief"), JobPhase::Queued);
}

#[test]
fn drained_node_is_vacated_without_another_node() {
    let mut scene = Scene::cluster(2, 2);
    scene.job("a").workers(2, 2);
    scene.job("b").workers(2, 2);
    scene.settle();
    scene.snapshot.nodes[0].drained = true;
    scene.settle();
    let open = scene.snapshot.nodes[1].id;
    let held: Vec<_> = scene
        .snapshot
        .jobs
        .iter()
        .flat_map(|job| job.held_tasks())
        .collect();
    assert!(held.iter().all(|task| task.node == open), "{held:?}");
    let waits = scene
        .snapshot
        .jobs
        .iter()
        .find(|job| job.state == JobState::Queued);
    let change = waits
        .and_then(|job| job.waiting.clone())
        .and_then(|one| one.smallest_change);
    assert_eq!(
        change,
        Some(Change::UncordonNode {
            name: "node-00".to_owned()
        })
    );
}

#[test]
fn request_above_largest_memory_gets_permanent_reason() {
    let mut scene = Scene::cluster(2, 4);
    scene.snapshot.nodes[0].memory_bytes = 16 << 30;
    scene.snapshot.nodes[1].memory_bytes = 24 << 30;
    scene.job("huge").0.worker.memory_bytes = 400 << 30;
    scene.round();
    let waiting = scene.find("huge").waiting.clone().expect("it waits");
    let short = Short::Memory {
        needed_bytes: 400 << 30,
        largest_node_bytes: 24 << 30,
    };
    assert_eq!(
        waiting.why,
        Wait::TopologyPlacementFailed {
            needed_gpus: 1,
            free_gpus: 8,
            short: Some(short)
        }
    );
    assert!(waiting.why.is_for_good());
    assert_eq!(
        waiting.why.to_string(),
        "each worker asks for 400.0 GiB of memory (resources.worker.memory_bytes); the largest node has 24.0"
    );
    assert_eq!(waiting.smallest_change, None, "no more of such nodes help");
}

#[test]
fn quota_counts_held_gpus_and_names_the_missing_ones() {
    let mut scene = Scene::cluster(2, 4);
    scene.snapshot.tenants[0].gpu_quota = Some(3);
    scene.job("a").workers(2, 4);
    scene.job("b").workers(2, 2);
    scene.settle();
    assert_eq!(scene.workers("a"), 3);
    let waiting = scene.find("b").waiting.clone().expect("b waits");
    assert_eq!(
        waiting.why,
        Wait::WaitingForQuota {
            needed_gpus: 2,
            used_gpus: 3,
            quota_gpus: 3
        }
    );
    assert_eq!(
        waiting.smallest_change,
        Some(Change::RaiseQuota { by_gpus: 2 })
    );
    scene.job("huge").workers(5, 5);
    scene.round();
    let waiting = scene.find("huge").waiting.clone().expect("huge waits");
    assert_eq!(
        waiting.why,
        Wait::ExceedsMaxQuota {
            needed_gpus: 5,
            quota_gpus: 3
        }
    );
    // The GPUs of other jobs do not count. Its maximum under the quota counts.
    assert_eq!(
        waiting.smallest_change,
        Some(Change::LowerMinWorkers { to: 3 })
    );
}

/// The smallest change of a job that never fits is the same on a full cluster as on an empty one.
#[test]
fn change_for_job_that_never_fits_ignores_current_use() {
    // Nodes, GPUs per node, workers, GPUs per worker, quota, and the expected change.
    for (nodes, gpus, workers, each, quota, helps) in [
        (1, 4, 8, 1, None, Change::LowerMinWorkers { to: 4 }),
        (2, 4, 9, 1, None, Change::LowerMinWorkers { to: 8 }),
        // The three GPUs of a node hold one worker of two GPUs.
        (2, 3, 3, 2, None, Change::LowerMinWorkers { to: 2 }),
        (2, 4, 1, 8, None, Change::LowerGpusPerWorker { to: 4 }),
        (2, 4, 3, 8, None, Change::AddGpus { gpus: 24 }),
        (1, 4, 8, 1, Some(2), Change::LowerMinWorkers { to: 2 }),
        (1, 4, 1, 4, Some(2), Change::LowerGpusPerWorker { to: 2 }),
        (1, 1, 1, 1, Some(0), Change::RaiseQuota { by_gpus: 1 }),
        (0, 0, 1, 1, None, Change::AddGpus { gpus: 1 }),
    ] {
        for is_busy in [false, true] {
            let mut scene = Scene::cluster(nodes, gpus);
            if is_busy && nodes > 0 && quota.is_none() {
                scene.job("holder").workers(nodes * gpus, nodes * gpus);
                scene.settle();
            }
            scene.snapshot.tenants[0].gpu_quota = quota;
            scene.job("huge").workers(workers, workers).gpus(each);
            scene.round();
            let waiting = scene.find("huge").waiting.clone().expect("it waits");
            let change = waiting.smallest_change.as_ref();
            assert_eq!(change, Some(&helps), "{is_busy} {waiting:?}");
        }
    }
}

#[test]
fn old_waiting_job_is_not_overtaken_without_bound() {
    let mut scene = Scene::cluster(1, 4);
    scene.job("small-0").workers(2, 2);
    scene.settle();
    scene.job("wide").workers(4, 4);
    scene.job("small-1").workers(2, 2);
    scene.settle();
    assert_eq!(
        scene.phase("small-1"),
        JobPhase::Running,
        "a young job may be overtaken"
    );
    scene.later(700_000);
    scene.find("small-0").finished = Some(Finished {
        step: 1,
        reason: "done".to_owned(),
    });
    scene.settle();
    scene.job("small-2").workers(2, 2);
    scene.settle();
    assert_eq!(
        scene.phase("small-2"),
        JobPhase::Queued,
        "an old one may not"
    );
    scene.find("small-1").finished = Some(Finished {
        step: 1,
        reason: "done".to_owned(),
    });
    scene.settle();
    assert_eq!(scene.phase("wide"), JobPhase::Running);
}

#[test]
fn failing_job_is_retried_with_back_off_then_fails() {
    let mut scene = Scene::cluster(1, 1);
    scene.job("a").retries(2);
    let mut starts = 0;
    for _ in 0..40 {
        let plan = scene.round();
        starts += plan
            .decisions
            .iter()
            .filter(|one| matches!(one.action, Action::Start { .. }))
            .count();
        if let JobState::Failed { reason } = &scene.find("a").state {
            assert!(reason.contains("2 retries"), "{reason}");
            assert_eq!(starts, 3);
            return;
        }
        scene.obey();
        if scene.phase("a") == JobPhase::Running {
            scene.find("a").tasks[0].state = gone(Outcome::exited(1));
        }
        scene.later(1_000);
    }
    panic!(
        "it neither failed nor ran out of retries: {:#?}",
        scene.snapshot.jobs
    );
}

#[test]
fn lost_node_is_not_charged_and_lost_peers_alone_are() {
    let mut scene = Scene::cluster(2, 1);
    scene.job("a").workers(2, 2);
    scene.settle();
    // Peers report the loss first. The node is known to be lost only after its lease.
    scene.find("a").tasks[1].state = gone(Outcome::exited(75));
    scene.round();
    assert_eq!(scene.find("a").failures, 0);
    for task in &mut scene.find("a").tasks {
        if !task.state.is_released() {
            task.state = gone(Outcome::NodeLost);
        }
    }
    scene.round();
    assert_eq!(scene.find("a").failures, 0, "the node was to blame");
    scene.settle();
    for task in &mut scene.find("a").tasks {
        task.state = gone(Outcome::exited(75));
    }
    scene.round();
    assert_eq!(scene.find("a").failures, 1, "no node was to blame");
}

#[test]
fn orderly_stops_by_nodes_are_not_charged() {
    let mut scene = Scene::cluster(2, 1);
    scene.job("a").workers(2, 2);
    scene.settle();
    // As after a restart of all nodes: every task wrote its checkpoint and exited without an order.
    for task in &mut scene.find("a").tasks {
        task.state = gone(Outcome::exited(0));
    }
    scene.round();
    assert_eq!(scene.find("a").failures, 0);
    assert_eq!(
        scene.find("a").state,
        JobState::Starting,
        "it starts again at once"
    );
}

#[test]
fn permanent_failure_is_immediate_and_finish_wins() {
    let mut scene = Scene::cluster(1, 2);
    scene.job("bad");
    scene.job("good");
    scene.settle();
    scene.find("bad").failed = Some(FailedReport {
        message: "loss is not a number".to_owned(),
        retryable: false,
        lacks: None,
    });
    scene.find("good").intent = Intent::Cancel;
    scene.round();
    scene.find("good").finished = Some(Finished {
        step: 9,
        reason: "all epochs done".to_owned(),
    });
    scene.settle();
    assert_eq!(scene.phase("bad"), JobPhase::Failed);
    assert_eq!(scene.phase("good"), JobPhase::Succeeded);
}

#[test]
fn pause_releases_all_gpus_and_resume_restarts() {
    let mut scene = Scene::cluster(1, 1);
    scene.job("a");
    scene.settle();
    scene.find("a").intent = Intent::Pause;
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Paused);
    assert_eq!(
        scene.find("a").waiting.clone().map(|one| one.why),
        Some(Wait::Suspended)
    );
    scene.find("a").intent = Intent::Run;
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    assert_eq!(scene.find("a").revision, 2);
}

#[test]
fn gang_takes_fewest_nodes_with_shards_spread_evenly() {
    let mut scene = Scene::cluster(3, 4);
    scene.job("a").workers(6, 6).ps_shards(2, 2);
    scene.settle();
    let a = scene.find("a");
    let mut per_node = std::collections::BTreeMap::new();
    for task in &a.tasks {
        *per_node.entry((task.node, task.role.kind())).or_insert(0) += 1;
    }
    let counts: Vec<i32> = per_node.values().copied().collect();
    assert_eq!(counts, [1, 4, 1, 2], "{per_node:?}");
}

#[test]
fn quota_of_one_tenant_does_not_block_another() {
    let mut scene = Scene::cluster(1, 4);
    scene.snapshot.tenants[0].gpu_quota = Some(1);
    scene
        .snapshot
        .tenants
        .push(muster_core::snapshot::SnapshotTenant {
            id: tenant(1),
            name: "t1".to_owned(),
            gpu_quota: None,
            weight: 1.0,
        });
    scene.job("a");
    scene.job("b");
    scene.job("c").tenant(1).workers(1, 8);
    scene.later(1_000_000);
    scene.settle();
    assert_eq!(scene.phase("b"), JobPhase::Queued);
    assert_eq!(scene.workers("c"), 3);
}

#[test]
fn plan_and_report_hide_names_of_other_tenants() {
    use muster_core::policies::name::PolicyName;
    for &share in PolicyName::ALL {
        let mut scene = Scene::cluster(1, 4);
        scene.policy = muster_core::policy::Policy::named(share);
        let other = muster_core::snapshot::SnapshotTenant {
            id: tenant(1),
            name: "t1".to_owned(),
            gpu_quota: None,
            weight: 1.0,
        };
        scene.snapshot.tenants.push(other);
        scene.job("mine").workers(1, 4);
        scene.settle();
        scene
            .job("their-secret")
            .workers(2, 2)
            .priority(9)
            .tenant(1);
        scene.snapshot.sort();
        let mine = scene.find("mine").id;
        let (plan, report) = muster_core::plan(&scene.snapshot, &scene.policy);
        let own = plan.decisions.iter().filter(|one| one.job == mine);
        let told = own.map(|one| format!("{:?}", one.action));
        let said = report.jobs.iter().filter(|one| one.job == mine);
        let said = said.map(|one| format!("{one:?}"));
        for text in told.chain(said) {
            assert!(!text.contains("their-secret"), "{share}: {text}");
        }
    }
}

#[test]
fn gpus_used_outside_muster_are_not_reported_free() {
    let mut scene = Scene::cluster(2, 4);
    scene.snapshot.nodes[0].taken = vec![1, 2];
    let job = scene.job("one").0;
    job.ps_shards = muster_model::spec::Range::NONE;
    scene.settle();
    let (_, report) = muster_core::plan(&scene.snapshot, &scene.policy);
    let totals = report.totals;
    assert_eq!((totals.gpus, totals.held_gpus, totals.free_gpus), (8, 1, 5));
}
