//! Regular tenants that submit all the time: trainings, programs with their own checkpoints, short
//! jobs and studies.

use crate::record::FaultRecord;
use crate::stand::ChaosCluster;
use muster_client::{Client, ClientError};
use muster_e2e::clock;
use muster_e2e::story;
use muster_model::id::{JobId, StudyId};
use muster_model::job::JobPhase;
use muster_model::study::StudyPhase;
use muster_model::tenant::{Access, TenantPods};
use muster_model::view::{JobView, NewTenant, NewToken};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use time::OffsetDateTime;

pub const TENANTS: [&str; 3] = ["ada", "bob", "cleo"];
const LOOK: Duration = Duration::from_secs(2);
const CALL_WITHIN: Duration = Duration::from_secs(20);
/// Open jobs of each kind.
const TRAININGS: usize = 2;
const PROGRAMS: usize = 1;
const SHORT: usize = 2;
pub const STEPS: u64 = 1_200;
const PROGRAM_STEPS: u32 = 80;
pub const TRIALS: u32 = 4;
/// More than faults can use up; the story compares failures with the faults instead.
const RETRIES: u32 = 100;
/// Recovery time of the cluster at the start of a quiet time.
const RECOVERS_WITHIN: time::Duration = time::Duration::seconds(30);
/// Limit for a short job in a quiet time: a time slice of another job, its end and a start, doubled
/// for a machine with two cores.
const SHORT_ENDS_WITHIN: time::Duration = time::Duration::seconds(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoadKind {
    Training,
    Program,
    Short,
}

/// Acknowledged submission.
#[derive(Debug, Clone)]
pub struct AcceptedJob {
    pub id: JobId,
    pub kind: LoadKind,
    pub tenant: usize,
    pub at: OffsetDateTime,
    pub phase: JobPhase,
}

pub struct TenantLoad {
    pub clients: Vec<Vec<Client>>,
    pub jobs: Mutex<Vec<AcceptedJob>>,
    pub studies: Mutex<Vec<StudyId>>,
    /// Number of idempotency keys so far.
    keys: Mutex<u64>,
    /// Short jobs that were reported as late.
    late: Mutex<BTreeSet<JobId>>,
    ends: AtomicBool,
}

impl TenantLoad {
    pub async fn settle(stand: &ChaosCluster) -> Arc<Self> {
        let mut clients = Vec::new();
        for name in TENANTS {
            clients.push(stand.clients(&settle(stand, name, None).await));
        }
        Arc::new(Self {
            clients,
            jobs: Mutex::default(),
            studies: Mutex::default(),
            keys: Mutex::default(),
            late: Mutex::default(),
            ends: AtomicBool::new(false),
        })
    }

    /// Ends the submissions.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
    }

    pub fn begin(self: &Arc<Self>, record: &Arc<FaultRecord>) {
        let kinds = [
            (0, LoadKind::Training, TRAININGS),
            (1, LoadKind::Program, PROGRAMS),
            (1, LoadKind::Short, SHORT),
        ];
        for (tenant, kind, open) in kinds {
            let (ours, record) = (Arc::clone(self), Arc::clone(record));
            tokio::spawn(
                async move { ours.submit_all_the_while(tenant, kind, open, &record).await },
            );
        }
        let ours = Arc::clone(self);
        tokio::spawn(async move { ours.study_all_the_while().await });
    }

    /// Number of jobs by kind and phase.
    pub fn counts(&self) -> String {
        let mut counts = std::collections::BTreeMap::new();
        for job in self.jobs.lock().expect("no panic").iter() {
            *counts.entry((job.kind, job.phase)).or_insert(0_u32) += 1;
        }
        let told = counts
            .iter()
            .map(|((kind, phase), count)| format!("{kind:?} {phase:?} {count}"));
        told.collect::<Vec<_>>().join(", ")
    }

    pub fn all(&self) -> Vec<AcceptedJob> {
        self.jobs.lock().expect("no panic").clone()
    }

    /// The job according to the first API server that answers.
    pub async fn job(&self, job: &AcceptedJob) -> Option<JobView> {
        for client in &self.clients[job.tenant] {
            let view = tokio::time::timeout(CALL_WITHIN, client.job(job.id)).await;
            if let Ok(Ok(view)) = view {
                return Some(view);
            }
        }
        None
    }

    async fn submit_all_the_while(
        &self,
        tenant: usize,
        kind: LoadKind,
        most: usize,
        record: &FaultRecord,
    ) {
        while !self.ends.load(Ordering::Relaxed) {
            self.look(tenant, kind, record).await;
            let open = self
                .all()
                .into_iter()
                .filter(|job| job.kind == kind && job.tenant == tenant && !job.phase.is_terminal());
            if open.count() < most {
                self.submit(tenant, kind, record).await;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends the document with one key until an API server acknowledges it.
    async fn submit(&self, tenant: usize, kind: LoadKind, record: &FaultRecord) {
        let number = {
            let mut keys = self.keys.lock().expect("no panic");
            *keys += 1;
            *keys
        };
        let (key, document) = (format!("chaos-{number}"), document(kind, number));
        for attempt in 0.. {
            if self.ends.load(Ordering::Relaxed) && attempt > 60 {
                return;
            }
            let client = &self.clients[tenant][attempt % self.clients[tenant].len()];
            let sent = client.submit(&document, Some(&key));
            match tokio::time::timeout(CALL_WITHIN, sent).await {
                Ok(Ok(view)) => {
                    self.jobs.lock().expect("no panic").push(AcceptedJob {
                        id: view.id,
                        kind,
                        tenant,
                        at: clock::now(),
                        phase: view.phase,
                    });
                    return;
                }
                Ok(Err(error)) if is_refused(&error) => {
                    record.broke(&format!("{kind:?} job was refused: {error:?}"));
                    return;
                }
                Ok(Err(_)) | Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            }
        }
    }

    /// Updates the phases. Short jobs must end soon while no fault is active.
    pub async fn look(&self, tenant: usize, kind: LoadKind, record: &FaultRecord) {
        let jobs = self.all().into_iter().enumerate();
        let open = jobs.filter(|(_, job)| {
            job.tenant == tenant && job.kind == kind && !job.phase.is_terminal()
        });
        for (index, job) in open {
            let Some(view) = self.job(&job).await else {
                continue;
            };
            self.jobs.lock().expect("no panic")[index].phase = view.phase;
            if matches!(view.phase, JobPhase::Failed | JobPhase::Cancelled) {
                record.broke(&format!(
                    "{kind:?} {} is {:?}: {:?}",
                    job.id, view.phase, view.failure
                ));
            }
            let Some(calm) = record.calm_since() else {
                continue;
            };
            let counts_from = job.at.max(calm + RECOVERS_WITHIN);
            let waited = clock::now() - counts_from;
            let is_new = !self.late.lock().expect("no panic").contains(&job.id);
            if kind == LoadKind::Short
                && is_new
                && !view.phase.is_terminal()
                && waited > SHORT_ENDS_WITHIN
            {
                self.late.lock().expect("no panic").insert(job.id);
                record.broke(&format!(
                    "short job {} is {:?} after {waited} of calm: {:?}",
                    job.id, view.phase, view.waiting
                ));
            }
        }
    }

    async fn study_all_the_while(&self) {
        let mut number = 0;
        while !self.ends.load(Ordering::Relaxed) {
            let client = &self.clients[2][number % 2];
            number += 1;
            let key = format!(
                "chaos-study-{}",
                self.studies.lock().expect("no panic").len()
            );
            let document = study();
            let created = client.create_study(&document, Some(&key));
            let Ok(Ok(created)) = tokio::time::timeout(CALL_WITHIN, created).await else {
                tokio::time::sleep(LOOK).await;
                continue;
            };
            self.studies.lock().expect("no panic").push(created.id);
            while !self.ends.load(Ordering::Relaxed) && !self.has_finished(created.id).await {
                tokio::time::sleep(LOOK).await;
            }
        }
    }

    pub async fn has_finished(&self, study: StudyId) -> bool {
        for client in &self.clients[2] {
            let view = tokio::time::timeout(CALL_WITHIN, client.study(study)).await;
            if let Ok(Ok(view)) = view {
                return view.phase == StudyPhase::Finished;
            }
        }
        false
    }
}

/// Whether the cluster has refused the request, and would refuse it again.
fn is_refused(error: &ClientError) -> bool {
    let refused = error
        .status()
        .is_some_and(|status| (400..500).contains(&status));
    refused && !error.is_transient() && error.status() != Some(409)
}

/// Creates a tenant and returns its token.
pub async fn settle(stand: &ChaosCluster, name: &str, gpu_quota: Option<u32>) -> String {
    let admin = &stand.clients(&stand.token)[0];
    let new = NewTenant {
        name: name.to_owned(),
        gpu_quota,
        weight: 1.0,
        pods: TenantPods::default(),
        preemption: muster_model::tenant::TenantPreemption::default(),
        shares_families: false,
        interactive: false,
    };
    admin.create_tenant(&new).await.expect("a new tenant");
    let token = NewToken {
        name: name.to_owned(),
        access: Access::Member,
        user: Some(name.to_owned()),
        tenant: Some(name.to_owned()),
        expires_at: None,
    };
    admin.create_token(&token).await.expect("a token").secret
}

fn document(kind: LoadKind, number: u64) -> Value {
    match kind {
        LoadKind::Training => {
            let text = story::document(&format!("training-{number}"), (1, 2), (1, 2), STEPS);
            let mut document: Value = serde_norway::from_str(&text).expect("YAML");
            document["retries"] = json!(RETRIES);
            if number.is_multiple_of(2) {
                document["exchange"] = json!({"topology": "all_reduce"});
                document["scale"] = json!({"workers": {"min": 1, "max": 2}});
            }
            document
        }
        // It appends its revision to a log with each step, which would show two simultaneous runs.
        LoadKind::Program => json!({
            "version": "muster/v1", "name": format!("program-{number}"), "retries": RETRIES,
            "command": {"argv": ["sh", "-c", format!(
                "cd \"$MUSTER_CHECKPOINT_DIR\" || exit 1; n=$(cat n 2>/dev/null || echo 0); while [ $n -lt {PROGRAM_STEPS} ]; do sleep 0.5; n=$((n+1)); \
                 echo \"$n $MUSTER_REVISION\" >>steps; echo $n >n.$$ && mv n.$$ n || exit 1; echo \"muster: step=$n loss=0.5\"; done"
            )]},
        }),
        LoadKind::Short => json!({
            "version": "muster/v1", "name": format!("short-{number}"), "retries": RETRIES,
            "command": {"argv": ["true"]},
        }),
    }
}

fn study() -> Value {
    json!({
        "version": "muster/v1", "kind": "study", "name": "small",
        "search": {
            "objectives": [{"metric": "test_accuracy", "goal": "maximize"}],
            "parameters": [{"name": "rate", "field": "engine.optimizer.learning_rate", "type": "float", "low": 0.001, "high": 0.3, "log": true}],
            "searcher": {"kind": "random"},
            "budget": {"max": 3, "unit": "epochs"},
            "trials": TRIALS, "concurrency": 2, "seed": 5,
        },
        "job": {
            "retries": RETRIES,
            "engine": {
                "model": {"kind": "mlp", "hidden": [16]},
                "dataset": {"name": "fashion-mnist", "train_limit": 1280, "test_limit": 500},
                "optimizer": {"kind": "sgd"}, "batch": 128,
            },
        },
    })
}
