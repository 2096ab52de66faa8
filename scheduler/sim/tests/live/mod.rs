//! Snapshots of a live cluster: small nodes, one tenant, jobs without measurements.

use muster_core::snapshot::{ClusterSnapshot, Progress, SnapshotJob, SnapshotNode, SnapshotTenant};
use muster_model::id::{JobId, NodeId, TenantId};
use muster_model::job::{Intent, JobState};
use muster_model::spec::{Consistency, PsShardResources, Range, WorkerDemand};
use uuid::Uuid;

/// Cluster of `nodes` nodes of four GPUs.
pub fn cluster(nodes: u128) -> ClusterSnapshot {
    let nodes = (0..nodes).map(|n| SnapshotNode {
        id: NodeId(Uuid::from_u128(0x10 + n)),
        name: format!("node-{n}"),
        up: true,
        drained: false,
        seen_ms: None,
        freed: Vec::new(),
        gpu_memory_bytes: 0,
        compute_capability: None,
        driver_suspend: false,
        rack: None,
        excluded: false,
        cordoned: false,
        taken: Vec::new(),
        faults: Vec::new(),
        gpu_model: "T4".to_owned(),
        cpu_slots: false,
        labels: std::collections::BTreeMap::new(),
        pods: None,
        images: false,
        gpus: 4,
        cpu_milli: 1_000_000,
        memory_bytes: 1 << 44,
        speed: None,
    });
    ClusterSnapshot {
        round: 0,
        now_ms: 0,
        nodes: nodes.collect(),
        tenants: vec![tenant()],
        jobs: Vec::new(),
        left_out: Vec::new(),
        families: Vec::new(),
        history_gpu_s: Vec::new(),
        priority_classes: Vec::new(),
    }
}

const TENANT_ID: TenantId = TenantId(Uuid::from_u128(7));

fn tenant() -> SnapshotTenant {
    SnapshotTenant {
        id: TENANT_ID,
        name: "team".to_owned(),
        gpu_quota: None,
        weight: 1.0,
    }
}

/// Job of one to eight workers of one GPU each, with at most `bound` steps.
pub fn job(number: usize, submitted_ms: i64, bound: u64) -> SnapshotJob {
    SnapshotJob {
        id: JobId(Uuid::from_u128(0x1000 + ((number as u128) << 64))),
        tenant: TENANT_ID,
        name: format!("job-{number}"),
        priority: 0,
        priority_class: None,
        submitted_ms,
        intent: Intent::Run,
        state: JobState::Queued,
        revision: 0,
        failures: 0,
        put_off: 0,
        retries: 3,
        not_before_ms: None,
        after: Vec::new(),
        array_limit: None,
        workers: Range { min: 1, max: 8 },
        ps_shards: Range { min: 1, max: 1 },
        worker: WorkerDemand {
            gpus: 1,
            ..WorkerDemand::default()
        },
        ps_shard: PsShardResources::default(),
        pods: false,
        image: false,
        constraints: muster_model::spec::NodeConstraints::default(),
        consistency: Consistency::default(),
        batch: 64,
        adaptive: None,
        tasks: Vec::new(),
        leaving: Vec::new(),
        in_place: false,
        replicated: false,
        suspends: true,
        exclusive: false,
        preemption: Default::default(),
        reported: None,
        answer_ms: None,
        lost_s: 0.0,
        lent: false,
        trial: None,
        asked: None,
        turned_ms: None,
        command: None,
        limit_s: None,
        finished: None,
        failed: None,
        unfit: Vec::new(),
        progress: Progress {
            step: 0,
            steps_per_epoch: (bound / 20).max(1),
            max_steps: Some(bound.max(1)),
            convergence: None,
            epoch_losses: Vec::new(),
        },
        speeds: Vec::new(),
        placed_speeds: Vec::new(),
        family: None,
        trained_s: 0.0,
        service: None,
        lasts: None,
        ran: None,
        placed_ms: None,
        running_ms: None,
        power_of_two: false,
        restarts: None,
        waiting: None,
        watch: None,
        measured: None,
    }
}
