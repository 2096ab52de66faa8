//! Answers planning questions: the effect of a job that was not submitted, or of assumed nodes and
//! quotas. The real core runs forward from the live snapshot with and without the change, as for a
//! forecast. No decision reads the answers.

use crate::clock;
use crate::compute;
use crate::forecast::{
    ForecastEvidence, ForecastPassError, WINDOW_JOBS, interval, live, past, settings,
};
use crate::notifications::Notifications;
use crate::passes;
use crate::translate::date;
use muster_core::policy::Policy;
use muster_core::snapshot::ClusterSnapshot;
use muster_model::error_chain::chain;
use muster_model::id::TenantId;
use muster_model::question::{Answer, Question};
use muster_model::spec::FieldError;
use muster_model::view::{
    JobShift, PlanView, Shift, ShiftedJob, ShiftedJobs, TenantShift, WhatIf, WhatIfView,
};
use muster_sim::Cancel;
use muster_sim::what_if::{
    BeforeAfter, DocumentHistory, JobOutlook, WhatIfChange, WhatIfComparison, WhatIfError, what_if,
};
use muster_store::StoreError;
use muster_store::plan::Loader;
use muster_store::pool::{StorePool, begin, in_time};
use muster_store::question::{self, OpenQuestion};
use std::cmp::Reverse;
use std::time::Duration;

/// Poll interval, because a wake-up can be missed.
const LOOK: Duration = Duration::from_secs(2);
/// Interval of checks whether the client still waits.
const WATCH: Duration = Duration::from_millis(250);
/// Maximum computation time while another tenant's question waits: half of a client's time limit,
/// so that both get an answer.
const TURN: Duration = Duration::from_secs(10);
/// Maximum time of an answer; no client waits longer.
const LIMIT: Duration = Duration::from_secs(120);
/// Number of tenants in the rotation.
const REMEMBERED_TENANTS: usize = 1_000;
/// Minimum change of an end that is reported, in milliseconds.
const MOVED_MS: i64 = 30_000;
/// Maximum number of jobs in an answer.
const OWN_SHOWN: usize = 100;
const ALL_SHOWN: usize = 500;

/// Answers one question after the other, in rotation over tenants.
pub async fn run(pool: &StorePool, policy: &Policy, mut notifications: Notifications) {
    let mut served = ServedTenants::default();
    loop {
        notifications.questions.mark_unchanged();
        let answered = passes::one("questions", LIMIT, once(pool, policy, &mut served)).await;
        if answered != Some(true) {
            let _ = tokio::time::timeout(LOOK, notifications.questions.changed()).await;
        }
    }
}

/// Tenants whose questions were answered, the latest last.
#[derive(Debug, Default)]
pub struct ServedTenants(Vec<TenantId>);

impl ServedTenants {
    fn had_its_turn(&mut self, tenant: TenantId) {
        self.0.retain(|one| *one != tenant);
        self.0.push(tenant);
        let forgotten = self.0.len().saturating_sub(REMEMBERED_TENANTS);
        self.0.drain(..forgotten);
    }
}

/// Answers the next question. Returns whether there was one.
///
/// # Errors
/// [`ForecastPassError`].
#[tracing::instrument(name = "scheduler.question", skip_all)]
pub async fn once(
    pool: &StorePool,
    policy: &Policy,
    served: &mut ServedTenants,
) -> Result<bool, ForecastPassError> {
    once_by(answer, pool, policy, served).await
}

/// As [`once`], with another computation.
///
/// # Errors
/// [`ForecastPassError`].
pub async fn once_by(
    answer: impl FnOnce(
        &ClusterSnapshot,
        &OpenQuestion,
        &[WhatIfChange],
        &Policy,
        ForecastEvidence,
        &Cancel,
    ) -> Result<Answer, ForecastPassError>
    + Send
    + 'static,
    pool: &StorePool,
    policy: &Policy,
    served: &mut ServedTenants,
) -> Result<bool, ForecastPassError> {
    let Some(open) = in_time(next(pool, served)).await? else {
        return Ok(false);
    };
    // A failed question counts as the tenant's last one too.
    served.had_its_turn(open.tenant);
    let (snapshot, evidence) = live(pool, &mut Loader::new(WINDOW_JOBS)).await?;
    let changes = in_time(changes(pool, &snapshot, &open)).await?;
    let (asked, policy) = (open.clone(), policy.clone());
    let computed = compute::try_apart(move |cancel| {
        answer(&snapshot, &asked, &changes, &policy, evidence, cancel)
    });
    // Drops and thereby cancels the computation if the question ends first.
    let answer = tokio::select! {
        made = computed => made.map_err(ForecastPassError::from).flatten(),
        end = cancel_reason(pool, &open) => match end? {
            CancelReason::Withdrawn => return Ok(true),
            CancelReason::OthersWait => Ok(Answer::Failed { why: too_long() }),
        },
    };
    // A question that breaks the run gets an answer too. Retries would block all other questions.
    let answer = answer.unwrap_or_else(|error| {
        let why = chain(&error);
        tracing::error!(error = why, question = %open.id, "a question could not be answered");
        Answer::Failed { why }
    });
    in_time(tell(pool, &open, &answer)).await?;
    Ok(true)
}

async fn next(
    pool: &StorePool,
    served: &ServedTenants,
) -> Result<Option<OpenQuestion>, StoreError> {
    let now = clock::now();
    let mut tx = begin(pool).await?;
    question::prune(&mut tx, now).await?;
    let next = question::next(&mut tx, &served.0, now).await?;
    tx.commit().await.map_err(StoreError::from)?;
    Ok(next)
}

async fn tell(pool: &StorePool, open: &OpenQuestion, answer: &Answer) -> Result<(), StoreError> {
    let mut tx = begin(pool).await?;
    question::answer(&mut tx, open.id, answer).await?;
    tx.commit().await.map_err(StoreError::from)
}

/// Reason why the computation of a question is cancelled.
enum CancelReason {
    /// The client has given up.
    Withdrawn,
    /// The time limit has expired, and another tenant's question waits.
    OthersWait,
}

/// Returns when the computation must be cancelled.
async fn cancel_reason(pool: &StorePool, open: &OpenQuestion) -> Result<CancelReason, StoreError> {
    let began = clock::instant();
    loop {
        tokio::time::sleep(WATCH).await;
        let standing = in_time(async {
            let mut tx = begin(pool).await?;
            question::standing(&mut tx, open, clock::now()).await
        });
        let standing = standing.await?;
        if !standing.is_open {
            return Ok(CancelReason::Withdrawn);
        }
        if standing.others_wait && began.elapsed() >= TURN {
            return Ok(CancelReason::OthersWait);
        }
    }
}

fn too_long() -> String {
    format!(
        "it takes longer than {} s, and questions of other tenants wait; ask again later",
        TURN.as_secs()
    )
}

/// Assumed changes of the question, with evidence of earlier jobs of its documents.
async fn changes(
    pool: &StorePool,
    snapshot: &ClusterSnapshot,
    open: &OpenQuestion,
) -> Result<Vec<WhatIfChange>, StoreError> {
    let mut changes = match &open.question {
        Question::Plan { job, begins } => vec![WhatIfChange::AddJob {
            tenant: name_of(snapshot, open.tenant),
            spec: job.clone(),
            begins: *begins,
            past: DocumentHistory::default(),
        }],
        Question::WhatIf { changes } => imagined(changes, &name_of(snapshot, open.tenant)),
    };
    let mut tx = begin(pool).await?;
    for change in &mut changes {
        let WhatIfChange::AddJob {
            tenant,
            spec,
            past: known,
            ..
        } = change
        else {
            continue;
        };
        let mut tenants = snapshot.tenants.iter();
        if let Some(tenant) = tenants.find(|one| one.name == *tenant) {
            let earlier = muster_store::duration_history::of_spec(&mut tx, tenant.id, spec).await?;
            let counts_steps = spec.command.is_none() || spec.max_steps().is_some();
            let least = (spec.scale.workers.min, spec.ps_shards().min);
            *known = past(counts_steps, least, &earlier, 0.0);
        }
    }
    Ok(changes)
}

fn answer(
    snapshot: &ClusterSnapshot,
    open: &OpenQuestion,
    changes: &[WhatIfChange],
    policy: &Policy,
    evidence: ForecastEvidence,
    cancel: &Cancel,
) -> Result<Answer, ForecastPassError> {
    let settings = settings(snapshot, evidence);
    let comparison = match what_if(snapshot, changes, policy, &settings, cancel) {
        Ok(comparison) => comparison,
        Err(WhatIfError::Run(error)) => return Err(error.into()),
        Err(refused @ (WhatIfError::NoSuchTenant { .. } | WhatIfError::NoNode)) => {
            return Ok(Answer::Refused {
                error: blame(&refused, &open.question),
            });
        }
    };
    Ok(match &open.question {
        Question::Plan { .. } => Answer::Plan {
            plan: plan(&comparison, &name_of(snapshot, open.tenant)),
        },
        Question::WhatIf { .. } => Answer::WhatIf {
            comparison: whole(&comparison),
        },
    })
}

fn name_of(snapshot: &ClusterSnapshot, id: TenantId) -> String {
    let mut tenants = snapshot.tenants.iter();
    let found = tenants.find(|tenant| tenant.id == id);
    found.map_or_else(|| id.to_string(), |tenant| tenant.name.clone())
}

fn imagined(changes: &WhatIf, own: &str) -> Vec<WhatIfChange> {
    let nodes = changes.add_nodes.iter().map(|add| WhatIfChange::AddNodes {
        nodes: add.nodes,
        gpus: add.gpus,
    });
    let quotas = changes.quotas.iter().map(|quota| WhatIfChange::Quota {
        tenant: quota.tenant.clone(),
        gpu_quota: quota.gpu_quota,
    });
    let jobs = changes.jobs.iter().map(|job| WhatIfChange::AddJob {
        tenant: job.tenant.clone().unwrap_or_else(|| own.to_owned()),
        spec: Box::new(job.job.clone()),
        begins: 0,
        past: DocumentHistory::default(),
    });
    nodes.chain(quotas).chain(jobs).collect()
}

/// Field of the question that caused the error. The API server has checked the tenants; one can be
/// missing only if it was deleted since.
fn blame(refused: &WhatIfError, question: &Question) -> FieldError {
    let (field, value, expected) = match refused {
        WhatIfError::NoSuchTenant { name } => {
            let expected = "a tenant that is there";
            (place_of(name, question), format!("{name:?}"), expected)
        }
        WhatIfError::NoNode | WhatIfError::Run(_) => (
            "add_nodes".to_owned(),
            "nodes for a cluster that has none".to_owned(),
            "no added nodes until one is up: what is added is like the largest that is there",
        ),
    };
    FieldError {
        field,
        value,
        expected: expected.to_owned(),
    }
}

/// Place in the question that names a tenant. A job without a tenant is of the asking tenant.
fn place_of(tenant: &str, question: &Question) -> String {
    let Question::WhatIf { changes } = question else {
        return "tenant".to_owned();
    };
    let quota = changes
        .quotas
        .iter()
        .position(|quota| quota.tenant == tenant);
    if let Some(index) = quota {
        return format!("quotas[{index}].tenant");
    }
    let mut owners = changes.jobs.iter().map(|job| job.tenant.as_deref());
    let job = owners.position(|owner| owner.is_none_or(|owner| owner == tenant));
    format!("jobs[{}].tenant", job.unwrap_or(0))
}

/// Answer for a member of a tenant: jobs of other tenants are counted and never named.
fn plan(comparison: &WhatIfComparison, tenant: &str) -> PlanView {
    let mut own_jobs = Vec::new();
    let mut other_jobs = ShiftedJobs::default();
    for job in comparison.jobs.iter().filter(|job| is_shifted(job)) {
        if job.tenant == tenant {
            own_jobs.push(ShiftedJob {
                id: job.job,
                name: job.name.clone(),
                later_s: later_s(job),
                displaced: job.is_displaced(),
            });
            continue;
        }
        let later_ms = job.moved_ms().unwrap_or(0);
        other_jobs.displaced += u32::from(job.is_displaced());
        other_jobs.later += u32::from(later_ms >= MOVED_MS);
        other_jobs.earlier += u32::from(later_ms <= -MOVED_MS);
    }
    own_jobs.truncate(OWN_SHOWN);
    let added = comparison.jobs.iter().find(|job| job.before.is_none());
    let start = added.and_then(|job| job.after.start);
    let finish = added.and_then(|job| job.after.finish);
    PlanView {
        made_at: date(comparison.now_ms),
        start: start.map(|start| interval(start, comparison.now_ms)),
        finish: finish.map(|finish| interval(finish, comparison.now_ms)),
        gpu_hours: added.map_or(0.0, gpu_hours),
        unforeseen: added.and_then(|job| job.after.unforeseen),
        own_jobs,
        other_jobs,
    }
}

fn shift(pair: BeforeAfter) -> Shift {
    Shift {
        before: pair.before,
        after: pair.after,
    }
}

fn whole(comparison: &WhatIfComparison) -> WhatIfView {
    let jobs = comparison.jobs.iter();
    let mut shown: Vec<&JobOutlook> = jobs
        .filter(|job| job.before.is_none() || is_shifted(job))
        .collect();
    shown.sort_by_key(|job| {
        let moved_ms = job.moved_ms().map_or(0, i64::abs);
        (job.before.is_some(), Reverse(moved_ms), job.job)
    });
    shown.truncate(ALL_SHOWN);
    let tenants = comparison.tenants.iter().map(|tenant| TenantShift {
        tenant: tenant.tenant.clone(),
        jobs: tenant.jobs,
        wait_s: tenant.wait_s.map(shift),
        jct_s: tenant.jct_s.map(shift),
    });
    let now_ms = comparison.now_ms;
    let jobs = shown.into_iter().map(|job| JobShift {
        id: job.before.is_some().then_some(job.job),
        name: job.name.clone(),
        tenant: job.tenant.clone(),
        start: job.after.start.map(|start| interval(start, now_ms)),
        finish: job.after.finish.map(|finish| interval(finish, now_ms)),
        gpu_hours: gpu_hours(job),
        unforeseen: job.after.unforeseen,
        later_s: later_s(job),
        displaced: job.is_displaced(),
    });
    WhatIfView {
        made_at: date(comparison.now_ms),
        tenants: tenants.collect(),
        jobs: jobs.collect(),
    }
}

/// Whether the change affects an existing job.
fn is_shifted(job: &JobOutlook) -> bool {
    let Some(before) = &job.before else {
        return false;
    };
    let ends = before.finish.is_some() != job.after.finish.is_some();
    let moved = job.moved_ms().is_some_and(|ms| ms.abs() >= MOVED_MS);
    ends || moved || job.is_displaced()
}

fn later_s(job: &JobOutlook) -> Option<f64> {
    job.moved_ms().map(|ms| ms as f64 / 1000.0)
}

fn gpu_hours(job: &JobOutlook) -> f64 {
    job.after.gpu_s / 3600.0
}

#[cfg(test)]
mod tests {
    use super::{MOVED_MS, blame, plan, whole};
    use muster_model::id::JobId;
    use muster_model::question::Question;
    use muster_model::view::ShiftedJobs;
    use muster_sim::forecast::{ForecastInterval, JobForecast, STARTS, UncalibratedForecast};
    use muster_sim::what_if::{JobOutlook, WhatIfComparison, WhatIfError};
    use uuid::Uuid;

    fn forecast(job: JobId, end_ms: i64, stops: f64) -> JobForecast {
        JobForecast {
            job,
            start: None,
            finish: Some(ForecastInterval {
                p10_ms: end_ms - 10,
                p50_ms: end_ms,
                p90_ms: end_ms + 10,
            }),
            gpu_s: 7_200.0,
            unforeseen: None,
            stops,
            raw: UncalibratedForecast {
                start: None,
                finish: None,
                context: STARTS,
            },
        }
    }

    fn outlook(
        id: u128,
        name: &str,
        tenant: &str,
        before_ms: Option<i64>,
        stops: f64,
    ) -> JobOutlook {
        let job = Uuid::from_u128(id).into();
        JobOutlook {
            job,
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            before: before_ms.map(|end_ms| forecast(job, end_ms, 0.0)),
            after: forecast(job, 1_000_000, stops),
        }
    }

    #[test]
    fn error_names_field_of_deleted_tenant() {
        let text = r#"{"quotas": [{"tenant": "red", "gpu_quota": 1}, {"tenant": "blue", "gpu_quota": null}]}"#;
        let changes = serde_json::from_str(text).expect("a what-if");
        let gone = WhatIfError::NoSuchTenant {
            name: "blue".to_owned(),
        };
        let blamed = blame(&gone, &Question::WhatIf { changes });
        assert_eq!(
            blamed.to_string(),
            "quotas[1].tenant is \"blue\"; expected a tenant that is there"
        );
    }

    #[test]
    fn answer_to_member_names_own_jobs_and_counts_others() {
        let comparison = WhatIfComparison {
            now_ms: 0,
            tenants: Vec::new(),
            jobs: vec![
                outlook(1, "mine", "red", Some(1_000_000 - MOVED_MS), 0.0),
                outlook(2, "mine-unmoved", "red", Some(1_000_000), 0.0),
                outlook(3, "secret", "blue", Some(1_000_000 - MOVED_MS), 1.0),
                outlook(4, "secret-too", "blue", Some(1_000_000 + MOVED_MS), 0.0),
                outlook(5, "imagined", "red", None, 0.0),
            ],
        };
        let told = plan(&comparison, "red");
        assert_eq!(told.own_jobs.len(), 1);
        assert_eq!(told.own_jobs[0].name, "mine");
        assert_eq!(told.own_jobs[0].later_s, Some(30.0));
        let counts = ShiftedJobs {
            displaced: 1,
            later: 1,
            earlier: 1,
        };
        assert_eq!(told.other_jobs, counts);
        assert!((told.gpu_hours - 2.0).abs() < 1e-9);
        let text = serde_json::to_string(&told).expect("JSON");
        assert!(!text.contains("secret") && !text.contains("blue"), "{text}");

        let names: Vec<String> = whole(&comparison)
            .jobs
            .into_iter()
            .map(|job| job.name)
            .collect();
        assert_eq!(names, ["imagined", "mine", "secret", "secret-too"]);
    }
}
