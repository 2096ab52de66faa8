//! Converts a scenario's nodes, tenants and jobs to the snapshot of the first round.

use super::ids::{node_id, tenant_id};
use super::learned::LearnedFamilies;
use super::node_speeds::NodeSpeeds;
use super::service::ServiceHistory;
use super::sharing::Companies;
use super::{SimulatedJob, SimulationEngine, freed};
use crate::outcome::JobOutcome;
use crate::scenario::{GpuUse, Scenario, SimJob, TrueSpeed};
use crate::simulation_record::Holds;
use muster_core::snapshot::{
    Adaptive, ClusterSnapshot, Progress, SnapshotJob, SnapshotNode, SnapshotService, SnapshotTenant,
};
use muster_model::id::JobId;
use muster_model::job::{Intent, JobState};
use muster_model::spec::{NodeConstraints, PsShardResources, WorkerDemand};
use std::collections::BTreeMap;

impl<'s> SimulationEngine<'s> {
    pub(super) fn new(scenario: &'s Scenario) -> Self {
        let mut incidents = scenario.incidents.clone();
        incidents.sort_by_key(|incident| std::cmp::Reverse(incident.at_ms));
        let mut order: Vec<usize> = (0..scenario.jobs.len()).collect();
        order.sort_by_key(|&number| scenario.jobs[number].submitted_ms);
        let jobs = scenario.jobs.iter().map(|job| JobOutcome {
            name: job.name.clone(),
            state: JobState::Queued,
            jct_ms: None,
            restarts: 0,
            sizes: Vec::new(),
        });
        let mut engine = Self {
            scenario,
            snapshot: ClusterSnapshot {
                round: 0,
                now_ms: -1,
                nodes: (0_u128..)
                    .zip(&scenario.nodes)
                    .map(|(n, node)| SnapshotNode {
                        id: node_id(n),
                        name: node.name.clone(),
                        up: true,
                        drained: false,
                        seen_ms: None,
                        freed: Vec::new(),
                        gpu_memory_bytes: scenario
                            .sharing
                            .as_ref()
                            .map_or(0, |sharing| sharing.gpu_memory_bytes),
                        compute_capability: None,
                        driver_suspend: false,
                        rack: node.rack.clone(),
                        excluded: false,
                        cordoned: false,
                        taken: Vec::new(),
                        faults: Vec::new(),
                        gpus: node.gpus,
                        gpu_model: node.gpu_model.clone(),
                        cpu_slots: false,
                        labels: BTreeMap::new(),
                        pods: None,
                        images: false,
                        cpu_milli: 1_000_000,
                        memory_bytes: 1 << 44,
                        speed: None,
                    })
                    .collect(),
                tenants: (0_u128..)
                    .zip(&scenario.tenants)
                    .map(|(n, tenant)| SnapshotTenant {
                        id: tenant_id(n),
                        name: tenant.name.clone(),
                        gpu_quota: tenant.gpu_quota,
                        weight: 1.0,
                    })
                    .collect(),
                jobs: Vec::new(),
                left_out: Vec::new(),
                families: Vec::new(),
                history_gpu_s: Vec::new(),
                priority_classes: Vec::new(),
            },
            incidents,
            places: BTreeMap::new(),
            live: vec![SimulatedJob::default(); scenario.jobs.len()],
            jobs: jobs.collect(),
            timeline: Vec::new(),
            keeps_timeline: true,
            order,
            submitted: 0,
            holds: Holds::of(scenario.jobs.len()),
            companies: Companies::new(),
            uses: uses(scenario),
            decision_s: Vec::new(),
            learned: LearnedFamilies::default(),
            node_speeds: NodeSpeeds::of(scenario, node_id),
            history: ServiceHistory::default(),
        };
        engine.snapshot.sort();
        engine.places = freed::places(&engine.snapshot.nodes);
        engine
    }
}

/// GPU use of every job; empty without `sharing`.
fn uses(scenario: &Scenario) -> Vec<GpuUse> {
    let Some(sharing) = &scenario.sharing else {
        return Vec::new();
    };
    assert_eq!(
        sharing.uses.len(),
        scenario.jobs.len(),
        "sharing.uses says of every job what it uses"
    );
    sharing.uses.clone()
}

pub(super) fn job(id: JobId, spec: &SimJob) -> SnapshotJob {
    SnapshotJob {
        constraints: NodeConstraints {
            no_gpus: spec.gpus_per_worker == 0,
            ..NodeConstraints::default()
        },
        id,
        tenant: tenant_id(spec.tenant as u128),
        name: spec.name.clone(),
        priority: spec.priority,
        priority_class: None,
        submitted_ms: spec.submitted_ms,
        intent: Intent::Run,
        state: JobState::Queued,
        revision: 0,
        failures: 0,
        put_off: 0,
        retries: spec.retries,
        not_before_ms: None,
        after: Vec::new(),
        array_limit: None,
        workers: spec.workers,
        ps_shards: spec.ps_shards,
        worker: WorkerDemand {
            gpus: spec.gpus_per_worker,
            ..WorkerDemand::default()
        },
        ps_shard: PsShardResources::default(),
        pods: false,
        image: false,
        consistency: spec.consistency,
        batch: spec.batch,
        adaptive: match &spec.speed {
            TrueSpeed::Formula(_) | TrueSpeed::Table(_) => None,
            TrueSpeed::Goodput(table) => Some(Adaptive {
                noise: None,
                max_batch: Some(table.max),
            }),
        },
        tasks: Vec::new(),
        leaving: Vec::new(),
        in_place: spec.in_place,
        replicated: false,
        suspends: spec.gpus_per_worker > 0,
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
            steps_per_epoch: spec.steps.div_ceil(10).max(1),
            max_steps: Some(spec.steps),
            convergence: None,
            epoch_losses: Vec::new(),
        },
        speeds: Vec::new(),
        placed_speeds: Vec::new(),
        family: spec.family.clone(),
        trained_s: 0.0,
        service: Some(SnapshotService::default()),
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
