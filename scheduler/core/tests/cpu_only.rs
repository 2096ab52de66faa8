//! Jobs whose workers use no GPUs: they take CPU and memory of any node, and no policy decides on
//! them.

use crate::scene::{JobIn, Scene, gone};
use muster_core::policies::name::PolicyName;
use muster_core::policy::{Policy, Slicing};
use muster_core::snapshot::FailedReport;
use muster_core::{Action, Violation, check, plan};
use muster_model::job::JobPhase;
use muster_model::node::GpuClass;
use muster_model::spec::{Ends, LabelOperator, NodeRequirement, Range};
use muster_model::task::Outcome;
use muster_model::wait::{Change, Short, Wait};

/// Returns all policies that decide in less than a second.
fn policies() -> impl Iterator<Item = Policy> {
    PolicyName::ALL.iter().map(|&name| Policy::named(name))
}

/// Makes a job a command of `workers` workers without GPUs.
fn cpu_only(job: JobIn<'_>, workers: u32, cpu_milli: u64) {
    let job = job.workers(workers, workers).ps_shards(0, 0).gpus(0).0;
    job.command = Some(Ends::AllWorkers);
    job.worker.cpu_milli = cpu_milli;
    job.constraints.no_gpus = true;
}

/// Makes a job an engine job of `workers` workers without GPUs and one PS shard.
fn cpu_only_engine(job: JobIn<'_>, workers: u32, cpu_milli: u64) {
    let job = job.workers(workers, workers).ps_shards(1, 1).gpus(0).0;
    job.in_place = true;
    job.worker.cpu_milli = cpu_milli;
    job.constraints.no_gpus = true;
}

/// A command that holds all GPUs of the cluster, with `cpu_milli` on each.
fn training(scene: &mut Scene, name: &str, workers: u32, cpu_milli: u64) {
    let job = scene.job(name).workers(workers, workers).ps_shards(0, 0).0;
    job.command = Some(Ends::AllWorkers);
    job.worker.cpu_milli = cpu_milli;
}

fn nodes_of(scene: &mut Scene, name: &str) -> Vec<String> {
    let held: Vec<_> = scene
        .find(name)
        .held_tasks()
        .map(|task| task.node)
        .collect();
    let nodes = &scene.snapshot.nodes;
    let names = held.iter().map(|id| {
        let node = nodes.iter().find(|node| node.id == *id);
        node.expect("a node of the cluster").name.clone()
    });
    names.collect()
}

fn why(scene: &mut Scene, name: &str) -> Wait {
    let waiting = scene.find(name).waiting.clone();
    waiting.expect("a wait reason").why
}

#[test]
fn job_without_gpus_starts_beside_held_gpus_under_every_policy() {
    for policy in policies() {
        let mut scene = Scene::cluster(2, 2);
        scene.policy = policy;
        training(&mut scene, "training", 4, 1_000);
        scene.settle();
        assert_eq!(scene.workers("training"), 4);
        scene.snapshot.tenants[0].gpu_quota = Some(4);
        cpu_only(scene.job("prepare"), 2, 4_000);
        scene.round();
        assert_eq!(
            scene.phase("prepare"),
            JobPhase::Starting,
            "in the first round"
        );
        scene.settle();
        let job = scene.find("prepare");
        assert_eq!((job.size().0, job.held_gpus()), (2, 0));
        assert_eq!(scene.workers("training"), 4);
    }
}

#[test]
fn lowered_gpu_quota_does_not_stop_job_without_gpus() {
    let mut scene = Scene::cluster(1, 2);
    cpu_only(scene.job("prepare"), 1, 4_000);
    training(&mut scene, "training", 2, 100);
    scene.settle();
    scene.snapshot.tenants[0].gpu_quota = Some(0);
    scene.settle();
    assert_eq!(scene.phase("training"), JobPhase::Queued);
    assert_eq!(scene.phase("prepare"), JobPhase::Running);
}

#[test]
fn job_without_gpus_waits_for_cpu_and_memory_by_name() {
    let mut scene = Scene::cluster(1, 2);
    training(&mut scene, "training", 2, 30_000);
    scene.settle();
    cpu_only(scene.job("prepare"), 1, 8_000);
    cpu_only(scene.job("huge"), 1, 65_000);
    cpu_only(scene.job("wide"), 3, 32_000);
    scene.settle();
    let expected = Wait::WaitingForCpuAndMemory {
        workers: 1,
        needed_milli: 8_000,
        needed_bytes: 1 << 30,
        largest_free_milli: 4_000,
        largest_free_bytes: (1 << 40) - (2 << 30),
        nodes: 1,
        exceeds_cluster: false,
    };
    assert_eq!(why(&mut scene, "prepare"), expected);
    assert!(!expected.to_string().contains("GPU"), "{expected}");
    let Wait::TopologyPlacementFailed { short, .. } = why(&mut scene, "huge") else {
        panic!("{:?}", scene.find("huge").waiting);
    };
    let needed = Short::Cpu {
        needed_milli: 65_000,
        largest_node_milli: 64_000,
    };
    assert_eq!(short, Some(needed));
    let wide = why(&mut scene, "wide");
    assert!(
        wide.is_for_good() && wide.to_string().contains("empty"),
        "{wide}"
    );
    scene.find("training").finished = Some(muster_core::snapshot::Finished {
        step: 1,
        reason: "done".to_owned(),
    });
    scene.settle();
    assert_eq!(scene.phase("prepare"), JobPhase::Running);
}

#[test]
fn job_without_gpus_is_not_stopped_for_gpus() {
    for policy in policies() {
        let mut scene = Scene::cluster(1, 2);
        scene.policy = Policy {
            slicing: Some(Slicing {
                quantum_ms: 20_000,
                suspended_per_gpu: 2,
            }),
            ..policy
        };
        cpu_only(scene.job("prepare"), 1, 4_000);
        training(&mut scene, "training", 2, 100);
        scene.settle();
        training(&mut scene, "urgent", 2, 100);
        scene.find("urgent").priority = 50;
        for _ in 0..6 {
            let plan = scene.round();
            let prepare = scene.find("prepare").id;
            let own = plan.decisions.iter().filter(|one| one.job == prepare);
            assert_eq!(own.count(), 0, "{plan:#?}");
            scene.obey();
            scene.later(30_000);
        }
        assert_eq!(scene.phase("prepare"), JobPhase::Running);
    }
}

#[test]
fn job_without_gpus_goes_where_fewest_gpus_are_free() {
    let mut scene = Scene::cluster(2, 2);
    scene.add_nodes(1, 0);
    scene.snapshot.nodes[2].cpu_milli = 60_000;
    scene.snapshot.nodes[2].gpu_model = String::new();
    assert_eq!(scene.snapshot.nodes[2].gpu_class(), None);
    training(&mut scene, "training", 2, 1_000);
    scene.settle();
    let busy = nodes_of(&mut scene, "training")[0].clone();
    cpu_only(scene.job("a"), 1, 8_000);
    cpu_only(scene.job("b"), 1, 8_000);
    scene.settle();
    let mut nodes = nodes_of(&mut scene, "a");
    nodes.extend(nodes_of(&mut scene, "b"));
    nodes.sort();
    let mut expected = vec![busy, "node-02".to_owned()];
    expected.sort();
    assert_eq!(nodes, expected);
}

#[test]
fn cpu_slots_beside_gpus_take_jobs_without_gpus() {
    let mut scene = Scene::cluster(1, 2);
    scene.add_nodes(1, 4);
    scene.snapshot.nodes[1].cpu_slots = true;
    scene.snapshot.nodes[1].gpu_model = "cpu".to_owned();
    assert_eq!(scene.snapshot.best_gpu_class(), GpuClass::Gpu);
    cpu_only(scene.job("prepare"), 1, 4_000);
    scene.settle();
    assert_eq!(nodes_of(&mut scene, "prepare"), ["node-01"]);
}

#[test]
fn selector_and_excluded_nodes_hold_without_gpus() {
    let mut scene = Scene::cluster(3, 1);
    let labels = &mut scene.snapshot.nodes[0].labels;
    labels.insert("site".to_owned(), "east".to_owned());
    cpu_only(scene.job("a"), 1, 1_000);
    scene.find("a").constraints.node_selector = vec![NodeRequirement {
        key: "site".to_owned(),
        operator: LabelOperator::NotExists,
        values: Vec::new(),
    }];
    scene.find("a").constraints.exclude_nodes = vec!["node-01".to_owned()];
    scene.settle();
    assert_eq!(nodes_of(&mut scene, "a"), ["node-02"]);
    scene.snapshot.nodes[2].drained = true;
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Queued);
    let why = why(&mut scene, "a");
    assert!(matches!(why, Wait::WaitingForCpuAndMemory { nodes: 0, .. }));
}

#[test]
fn drained_node_moves_job_without_gpus() {
    let mut scene = Scene::cluster(2, 1);
    cpu_only(scene.job("a"), 1, 1_000);
    scene.settle();
    let before = nodes_of(&mut scene, "a");
    let mut nodes = scene.snapshot.nodes.iter_mut();
    nodes
        .find(|node| node.name == before[0])
        .expect("is there")
        .drained = true;
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    assert_ne!(nodes_of(&mut scene, "a"), before);
}

#[test]
fn earlier_job_with_gpus_keeps_its_cpu() {
    let mut scene = Scene::cluster(1, 2);
    cpu_only(scene.job("blocker"), 1, 40_000);
    scene.settle();
    // It needs more CPU than is free beside the GPUs.
    training(&mut scene, "training", 2, 20_000);
    let overtake_ms = i64::try_from(scene.policy.overtake_ms).expect("small");
    scene.settle();
    scene.later(overtake_ms);
    cpu_only(scene.job("later"), 1, 24_000);
    cpu_only(scene.job("urgent"), 1, 4_000);
    scene.find("urgent").priority = 1;
    scene.settle();
    assert_eq!(scene.phase("later"), JobPhase::Queued, "CPU is kept");
    assert_eq!(scene.phase("urgent"), JobPhase::Running, "it precedes");
    scene.find("blocker").tasks[0].state = gone(Outcome::exited(0));
    scene.settle();
    assert_eq!(scene.phase("training"), JobPhase::Running);
    assert_eq!(scene.phase("later"), JobPhase::Queued);
}

#[test]
fn policy_places_gpus_beside_free_cpu() {
    for policy in policies() {
        let mut scene = Scene::cluster(2, 2);
        scene.policy = policy;
        cpu_only(scene.job("prepare"), 1, 60_000);
        scene.settle();
        let full = nodes_of(&mut scene, "prepare");
        training(&mut scene, "training", 2, 8_000);
        scene.settle();
        assert_eq!(scene.phase("training"), JobPhase::Running);
        assert!(!nodes_of(&mut scene, "training").contains(&full[0]));
    }
}

/// A policy that counted on the held CPU would give the elastic job all GPUs, which cannot start.
#[test]
fn elastic_job_gets_the_size_that_fits_beside_held_cpu() {
    for policy in policies() {
        let mut scene = Scene::cluster(2, 2);
        scene.policy = policy;
        cpu_only(scene.job("prepare"), 1, 60_000);
        scene.settle();
        scene
            .job("elastic")
            .workers(1, 4)
            .ps_shards(0, 0)
            .0
            .worker
            .cpu_milli = 8_000;
        scene.round();
        let elastic = scene.find("elastic");
        assert_eq!(elastic.state.phase(), JobPhase::Starting, "at once");
        assert!(elastic.size().0 <= 2);
    }
}

#[test]
fn failed_job_without_gpus_backs_off_and_starts_again() {
    let mut scene = Scene::cluster(1, 1);
    cpu_only(scene.job("a"), 1, 1_000);
    scene.settle();
    scene.find("a").tasks[0].state = gone(Outcome::exited(1));
    scene.settle();
    assert!(matches!(why(&mut scene, "a"), Wait::BackingOff { .. }));
    scene.later(600_000);
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    assert_eq!(scene.find("a").failures, 1);
}

#[test]
fn job_without_gpus_tries_other_nodes_for_a_missing_program() {
    let mut scene = Scene::cluster(1, 1);
    scene.add_nodes(1, 0);
    cpu_only(scene.job("a"), 1, 1_000);
    scene.settle();
    assert_eq!(nodes_of(&mut scene, "a"), ["node-01"]);
    let node = scene.snapshot.nodes[0].id;
    let first = scene.find("a").tasks[0].node;
    assert_ne!(first, node);
    for unfit in [first, node] {
        let job = scene.find("a");
        job.unfit.push(unfit);
        job.failed = Some(FailedReport {
            message: "no program".to_owned(),
            retryable: true,
            lacks: Some("mpirun".to_owned()),
        });
        let plan = scene.round();
        scene.obey();
        if unfit == first {
            scene.settle();
            assert_eq!(nodes_of(&mut scene, "a"), ["node-00"]);
        } else {
            let ends = plan.decisions.iter();
            assert!(
                ends.clone()
                    .any(|one| matches!(one.action, Action::Stop { .. }))
            );
        }
    }
    scene.settle();
    assert!(matches!(scene.phase("a"), JobPhase::Failed));
}

#[test]
fn resized_job_without_gpus_restarts_with_its_new_size() {
    let mut scene = Scene::cluster(1, 1);
    cpu_only(scene.job("a"), 2, 1_000);
    scene.settle();
    for workers in [3, 1] {
        scene.find("a").workers = Range {
            min: workers,
            max: workers,
        };
        scene.settle();
        assert_eq!(scene.workers("a"), workers);
    }
}

#[test]
fn resized_engine_job_without_gpus_reaches_its_new_size() {
    let mut scene = Scene::cluster(2, 1);
    cpu_only_engine(scene.job("a"), 2, 1_000);
    scene.settle();
    for (workers, ps_shards) in [(3, 1), (3, 2), (1, 2), (1, 1)] {
        let job = scene.find("a");
        job.workers = Range {
            min: workers,
            max: workers,
        };
        job.ps_shards = Range {
            min: ps_shards,
            max: ps_shards,
        };
        scene.settle();
        assert_eq!(scene.find("a").size(), (workers, ps_shards));
    }
}

#[test]
fn engine_job_without_gpus_survives_a_lost_node() {
    let mut scene = Scene::cluster(2, 1);
    cpu_only_engine(scene.job("a"), 2, 40_000);
    scene.settle();
    assert_eq!(nodes_of(&mut scene, "a").len(), 3);
    let lost = scene.find("a").tasks[1].node;
    scene.snapshot.nodes.iter_mut().for_each(|node| {
        if node.id == lost {
            node.up = false;
        } else {
            node.cpu_milli = 100_000;
        }
    });
    for task in &mut scene.find("a").tasks {
        if task.node == lost {
            task.state = gone(Outcome::NodeLost);
        }
    }
    scene.settle();
    assert_eq!(scene.find("a").size(), (2, 1));
    assert!(scene.find("a").held_tasks().all(|task| task.node != lost));
}

#[test]
fn checker_bounds_cpu_and_memory_of_workers_without_gpus() {
    let mut scene = Scene::cluster(1, 2);
    cpu_only(scene.job("a"), 2, 30_000);
    scene.snapshot.sort();
    let (whole, _) = plan(&scene.snapshot, &scene.policy);
    assert_eq!(check(&scene.snapshot, &whole), []);
    scene.snapshot.nodes[0].cpu_milli = 59_999;
    let broken = check(&scene.snapshot, &whole);
    assert!(
        matches!(broken[..], [Violation::CpuExceeded { .. }]),
        "{broken:?}"
    );
    scene.snapshot.nodes[0].cpu_milli = 60_000;
    scene.snapshot.nodes[0].memory_bytes = (2 << 30) - 1;
    let broken = check(&scene.snapshot, &whole);
    assert!(
        matches!(broken[..], [Violation::MemoryExceeded { .. }]),
        "{broken:?}"
    );
}

#[test]
fn checker_refuses_gpus_of_workers_without_gpus() {
    let mut scene = Scene::cluster(1, 2);
    cpu_only(scene.job("a"), 1, 1_000);
    scene.snapshot.sort();
    let (mut plan, _) = plan(&scene.snapshot, &scene.policy);
    for decision in &mut plan.decisions {
        if let Action::Start { tasks, .. } = &mut decision.action {
            tasks[0].gpus = vec![0];
        }
    }
    let broken = check(&scene.snapshot, &plan);
    assert!(
        matches!(broken[..], [Violation::WrongGpus { .. }]),
        "{broken:?}"
    );
}

#[test]
fn smallest_change_names_the_job_that_holds_the_cpu() {
    let mut scene = Scene::cluster(1, 2);
    training(&mut scene, "training", 2, 30_000);
    scene.settle();
    cpu_only(scene.job("prepare"), 1, 8_000);
    scene.settle();
    let waiting = scene.find("prepare").waiting.clone().expect("waits");
    let training = scene.find("training").id;
    let named = match waiting.smallest_change {
        Some(Change::EndJob { job, .. }) => vec![job],
        Some(Change::Wait { ended, .. }) => ended,
        other => panic!("{other:?}"),
    };
    assert_eq!(named, [training]);
}

#[test]
fn drained_node_is_the_remedy_of_a_job_without_gpus() {
    let mut scene = Scene::cluster(1, 0);
    scene.snapshot.nodes[0].drained = true;
    cpu_only(scene.job("prepare"), 1, 8_000);
    scene.settle();
    let waiting = scene.find("prepare").waiting.clone().expect("waits");
    let uncordon = Change::UncordonNode {
        name: "node-00".to_owned(),
    };
    assert_eq!(waiting.smallest_change, Some(uncordon));
}
