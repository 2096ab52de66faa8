//! Constraints of jobs on their nodes: GPU kinds, GPU memory, compute capability, labels, names and
//! classes of GPUs.

use crate::scene::{JobIn, Scene};
use muster_core::policies::name::PolicyName;
use muster_core::policy::Policy;
use muster_core::{Action, Violation, check, plan};
use muster_model::compute_capability::ComputeCapability;
use muster_model::job::JobPhase;
use muster_model::spec::{LabelOperator, NodeConstraints, NodeRequirement, UnmetConstraint};
use muster_model::wait::{Change, ForbiddenGpus, Wait};

const A100: &str = "NVIDIA A100-SXM4-40GB";
const H100: &str = "NVIDIA H100 80GB HBM3";

/// Returns one node per model, each with this number of GPUs. The label `site` is the number of
/// the node.
fn cluster(share: PolicyName, models: &[&str], gpus: u32) -> Scene {
    let mut scene = Scene::cluster(0, 0);
    scene.policy = Policy::named(share);
    for (number, &model) in models.iter().enumerate() {
        scene.add_nodes(1, gpus);
        let node = scene.snapshot.nodes.last_mut().expect("just added");
        node.gpu_model = model.to_owned();
        node.gpu_memory_bytes = if model == H100 { 80 << 30 } else { 40 << 30 };
        node.compute_capability = ComputeCapability::new(if model == H100 { 9 } else { 8 }, 0);
        node.cpu_slots = model == "cpu";
        node.labels.insert("site".to_owned(), number.to_string());
    }
    scene
}

trait Constrained {
    fn constrained(self, change: impl FnOnce(&mut NodeConstraints)) -> Self;
}

impl Constrained for JobIn<'_> {
    fn constrained(self, change: impl FnOnce(&mut NodeConstraints)) -> Self {
        change(&mut self.0.constraints);
        self
    }
}

fn kinds(constraints: &mut NodeConstraints, pattern: &str) {
    constraints.gpu_kinds = vec![pattern.to_owned()];
}

/// Returns the models of the nodes on which the job has tasks, each once.
fn models(scene: &mut Scene, job: &str) -> Vec<String> {
    let tasks = scene.find(job).tasks.clone();
    let nodes = &scene.snapshot.nodes;
    let mut models: Vec<String> = tasks
        .iter()
        .filter_map(|task| nodes.iter().find(|node| node.id == task.node))
        .map(|node| node.gpu_model.clone())
        .collect();
    models.sort();
    models.dedup();
    models
}

#[test]
fn job_runs_on_its_gpu_kind_under_every_policy() {
    for &share in PolicyName::ALL {
        let mut scene = cluster(share, &[A100, H100, A100], 4);
        let job = scene.job("own").workers(2, 4).ps_shards(1, 1);
        job.constrained(|of| kinds(of, "H100"));
        for _ in 0..3 {
            scene.round();
        }
        assert_eq!(models(&mut scene, "own"), [H100], "{share:?}");
    }
}

#[test]
fn each_constraint_selects_the_only_suitable_node() {
    let site = |operator, values: &[&str]| NodeRequirement {
        key: "site".to_owned(),
        operator,
        values: values.iter().map(|&value| value.to_owned()).collect(),
    };
    let all: [NodeConstraints; 5] = [
        NodeConstraints {
            compute_capability: ComputeCapability::new(8, 9),
            ..NodeConstraints::default()
        },
        NodeConstraints {
            gpu_memory_bytes: Some(64 << 30),
            ..NodeConstraints::default()
        },
        NodeConstraints {
            node_selector: vec![site(LabelOperator::In, &["1"])],
            ..NodeConstraints::default()
        },
        NodeConstraints {
            node_selector: vec![site(LabelOperator::NotIn, &["0", "2"])],
            ..NodeConstraints::default()
        },
        NodeConstraints {
            exclude_nodes: vec!["node-00".to_owned(), "node-02".to_owned()],
            ..NodeConstraints::default()
        },
    ];
    for constraints in all {
        let mut scene = cluster(PolicyName::Muster, &[A100, H100, A100], 4);
        let job = scene.job("own").workers(1, 1).ps_shards(0, 0);
        job.constrained(|of| *of = constraints.clone());
        scene.round();
        assert_eq!(models(&mut scene, "own"), [H100], "{constraints:?}");
    }
}

#[test]
fn wait_reason_names_free_gpus_that_the_job_excludes() {
    let mut scene = cluster(PolicyName::Muster, &[A100, H100], 2);
    let holder = scene.job("holder").workers(2, 2).ps_shards(0, 0);
    holder.constrained(|of| kinds(of, "A100")).priority(1);
    scene.round();
    let own = scene.job("own").workers(1, 1).ps_shards(0, 0);
    own.constrained(|of| kinds(of, "A100"));
    scene.round();
    let waiting = scene.find("own").waiting.clone().expect("it waits");
    let Wait::WaitingForGpus { forbidden, .. } = &waiting.why else {
        panic!("{waiting:?}");
    };
    let expected = ForbiddenGpus {
        gpu_model: H100.to_owned(),
        gpus: 2,
        by: UnmetConstraint::GpuKinds,
    };
    assert_eq!(forbidden, &[expected]);
    let allow = Change::AllowNodes {
        constraint: UnmetConstraint::GpuKinds,
        gpu_model: H100.to_owned(),
    };
    assert_eq!(waiting.smallest_change, Some(allow.clone()));
    // The remedy holds what it promises.
    let id = scene.find("own").id;
    scene.snapshot = muster_core::apply_change(&scene.snapshot, id, &allow).expect("known");
    scene.round();
    assert_eq!(models(&mut scene, "own"), [H100]);
}

#[test]
fn absent_gpu_kind_is_a_final_wait_reason_with_a_remedy() {
    let mut scene = cluster(PolicyName::Muster, &[H100], 2);
    let own = scene.job("own").workers(1, 1).ps_shards(0, 0);
    own.constrained(|of| kinds(of, "B200"));
    scene.round();
    let waiting = scene.find("own").waiting.clone().expect("it waits");
    assert_eq!(
        waiting.why.to_string(),
        "each worker needs 1 GPU on one node, and no open node meets the job's constraints; 2 GPUs of model NVIDIA H100 80GB HBM3 are excluded by resources.worker.gpu_kinds"
    );
    assert!(waiting.why.is_for_good());
    assert_eq!(
        waiting.remedy().as_deref(),
        Some("allow NVIDIA H100 80GB HBM3 in resources.worker.gpu_kinds")
    );
}

#[test]
fn cpu_slots_stand_for_gpus_only_without_gpus() {
    for &share in PolicyName::ALL {
        let mut scene = cluster(share, &["cpu", H100], 1);
        scene.job("gpu").workers(1, 1).ps_shards(0, 0);
        scene.job("second").workers(1, 1).ps_shards(0, 0);
        let slot = scene.job("slot").workers(1, 1).ps_shards(0, 0);
        slot.constrained(|of| kinds(of, "cpu"));
        scene.round();
        assert!(models(&mut scene, "gpu").iter().all(|model| model == H100));
        assert!(
            models(&mut scene, "second")
                .iter()
                .all(|model| model == H100)
        );
        assert_eq!(models(&mut scene, "slot"), ["cpu"], "{share:?}");
    }
    let mut scene = cluster(PolicyName::Muster, &["cpu"], 1);
    scene.job("own").workers(1, 1).ps_shards(0, 0);
    scene.round();
    assert_eq!(models(&mut scene, "own"), ["cpu"]);
}

#[test]
fn running_job_keeps_its_node_when_better_gpus_join() {
    let mut scene = cluster(PolicyName::Muster, &["cpu"], 2);
    scene.job("own").workers(1, 1).ps_shards(0, 0);
    scene.round();
    assert_eq!(models(&mut scene, "own"), ["cpu"]);
    let revision = scene.find("own").revision;
    scene.add_nodes(1, 2);
    scene
        .snapshot
        .nodes
        .last_mut()
        .expect("just added")
        .gpu_model = H100.to_owned();
    for _ in 0..3 {
        scene.round();
    }
    assert_eq!(models(&mut scene, "own"), ["cpu"]);
    assert_eq!(scene.find("own").revision, revision);
}

#[test]
fn idle_gpus_go_to_others_if_a_constrained_job_finds_no_place() {
    // Both nodes have the same kind, and only labels differ.
    let mut scene = cluster(PolicyName::Muster, &[H100, H100], 1);
    let on = |site: &str| {
        vec![NodeRequirement {
            key: "site".to_owned(),
            operator: LabelOperator::In,
            values: vec![site.to_owned()],
        }]
    };
    for name in ["first", "second"] {
        let job = scene.job(name).workers(1, 1).ps_shards(0, 0);
        job.constrained(|of| of.node_selector = on("0"));
    }
    scene.job("other").workers(1, 1).ps_shards(0, 0);
    scene.round();
    let mut running = |name: &str| scene.phase(name) != JobPhase::Queued;
    assert!(running("other"), "its node is free");
    assert!(running("first") != running("second"));
}

#[test]
fn check_rejects_a_task_on_an_excluded_node() {
    let mut scene = cluster(PolicyName::Muster, &[H100], 1);
    scene.job("own").workers(1, 1).ps_shards(0, 0);
    let (planned, _) = plan(&scene.snapshot, &scene.policy);
    let starts = planned.decisions.iter();
    let mut starts = starts.filter(|one| matches!(one.action, Action::Start { .. }));
    assert!(starts.next().is_some());
    let own = scene.find("own");
    kinds(&mut own.constraints, "A100");
    let violations = check(&scene.snapshot, &planned);
    let is_forbidden = |one: &Violation| {
        let by = UnmetConstraint::GpuKinds;
        matches!(one, Violation::ForbiddenNode { by: found, .. } if *found == by)
    };
    assert!(violations.iter().any(is_forbidden), "{violations:?}");
}
