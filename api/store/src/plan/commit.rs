//! Commits a plan by a compare-and-set per job. A conflict of one job does not affect the others.

use super::draft::{From, JobDraft, RevisionStart};
use super::{CommitOutcome, CommitRefusal, Conflict, PlanIds, start, turn, wait};
use crate::after;
use crate::array;
use crate::error::StoreError;
use crate::event::{self, NewEvent};
use crate::fault;
use crate::int_convert::{signed, signed32, unsigned, unsigned32};
use crate::node;
use crate::notify::{self, NotifyChannel};
use crate::task::{self, LockedTask, role};
use muster_model::id::{JobId, NodeId};
use muster_model::idle::IdleFinding;
use muster_model::job::{JobPhase, JobState};
use muster_model::pace::Suspect;
use muster_model::plan::{Action, JobDecision, RemainderWait, RoundPlan};
use muster_model::spec::CheckpointOnRequest;
use muster_model::task::{Task, TaskEvent, TaskState};
use muster_model::wait::Waiting;
use sqlx::types::Json;
use sqlx::{Connection as _, PgConnection};
use std::collections::{BTreeMap, BTreeSet};
use time::OffsetDateTime;
use uuid::Uuid;

/// Reason why the decisions about a job were not applied.
pub(super) enum CommitFailure {
    Refused(CommitRefusal),
    Store(StoreError),
}

/// Rows and nodes that were written for one job.
#[derive(Default)]
struct CommitEffects {
    events: Vec<NewEvent>,
    touched: BTreeSet<NodeId>,
    /// Jobs that have ended, with their last phase.
    ended: Vec<(JobId, JobPhase)>,
}

/// Decisions of a plan about one job.
struct JobActions<'p> {
    job: JobId,
    expected_revision: u64,
    /// In the order of the plan.
    actions: Vec<&'p Action>,
}

/// Applies the decisions about jobs and wait reasons. `fault::exclude` excludes the nodes of the
/// plan. Either all decisions about a job are applied, in their order, or none. Wakes sessions and
/// streams.
///
/// # Errors
/// [`StoreError::Statement`]; the transaction cannot be used afterwards.
///
/// # Panics
/// If decisions about one job name different revisions, if a start is not the last of them, or if
/// `ids` are of another plan.
pub async fn commit(
    conn: &mut PgConnection,
    plan: &RoundPlan,
    ids: &PlanIds,
    now: OffsetDateTime,
) -> Result<CommitOutcome, StoreError> {
    let behind = plan.behind.iter().flat_map(RemainderWait::decisions);
    let behind: Vec<JobDecision> = behind.collect();
    let groups = by_job(plan.decisions.iter().chain(&behind));
    let mut drafts = lock(conn, &groups, ids).await?;
    start::keep(conn, nodes_of(&groups, &drafts)).await?;
    let mut outcome = CommitOutcome::default();
    let mut all = CommitEffects::default();
    let mut waits: Vec<(JobDraft, &Waiting)> = Vec::new();
    for JobActions {
        job: job_id,
        expected_revision: expected,
        actions,
    } in groups
    {
        let mut conflict = |why| outcome.conflicts.push(Conflict { job_id, why });
        let Some(draft) = drafts.remove(&job_id) else {
            conflict(CommitRefusal::NoSuchJob);
            continue;
        };
        if draft.revision != expected {
            conflict(CommitRefusal::Revision {
                expected,
                found: draft.revision,
            });
            continue;
        }
        if let [Action::Wait { waiting }] = actions[..] {
            match draft.must_wait() {
                Ok(()) => waits.push((draft, waiting)),
                Err(why) => conflict(why),
            }
            continue;
        }
        let mut savepoint = conn.begin().await?;
        match apply(&mut savepoint, draft, &actions, now).await {
            Ok(written) => {
                savepoint.commit().await?;
                outcome.applied.push(job_id);
                all.events.extend(written.events);
                all.touched.extend(written.touched);
                all.ended.extend(written.ended);
            }
            Err(CommitFailure::Refused(why)) => {
                savepoint.rollback().await?;
                outcome.conflicts.push(Conflict { job_id, why });
            }
            Err(CommitFailure::Store(error)) => return Err(error),
        }
    }
    let waited = wait::write(conn, waits, now).await?;
    outcome.applied.extend(waited.jobs);
    all.events.extend(waited.events);
    all.events
        .extend(after::settle(conn, &all.ended, now).await?);
    array::settle(conn, &all.ended).await?;
    event::append(conn, &all.events).await?;
    node::bump(conn, &all.touched).await?;
    if !all.events.is_empty() {
        notify::send(conn, &[NotifyChannel::Events]).await?;
    }
    Ok(outcome)
}

/// Groups the decisions by job, in the order in which the jobs first appear.
fn by_job<'p>(decisions: impl Iterator<Item = &'p JobDecision>) -> Vec<JobActions<'p>> {
    let mut places: BTreeMap<JobId, usize> = BTreeMap::new();
    let mut groups: Vec<JobActions<'p>> = Vec::new();
    for decision in decisions {
        let place = *places.entry(decision.job).or_insert_with(|| {
            groups.push(JobActions {
                job: decision.job,
                expected_revision: decision.expected_revision,
                actions: Vec::new(),
            });
            groups.len() - 1
        });
        assert_eq!(
            groups[place].expected_revision, decision.expected_revision,
            "the decisions about {} are for one revision",
            decision.job
        );
        groups[place].actions.push(&decision.action);
    }
    groups
}

/// Returns the nodes that the decisions may change. They are locked together in order of id, as in
/// all transactions that lock several nodes. Locked job by job they would follow the order of the
/// plan, and a transaction that marks many nodes as lost could deadlock with the commit.
///
/// Nodes of a guest that continues beside a host are omitted: the host's allocation is locked
/// before its node. A deadlock in this case is resolved by a repetition.
fn nodes_of<'p>(
    groups: &'p [JobActions<'p>],
    drafts: &'p BTreeMap<JobId, JobDraft>,
) -> impl Iterator<Item = NodeId> + use<'p> {
    let touching = groups.iter().filter(|group| {
        !group.actions.iter().any(|action| {
            matches!(
                action,
                Action::Wait { .. }
                    | Action::Continue {
                        beside: Some(_),
                        ..
                    }
            )
        })
    });
    touching.flat_map(|group| {
        let new = group.actions.iter().filter_map(|action| action.new_tasks());
        let new = new.flatten().map(|task| task.node);
        let held = drafts.get(&group.job).into_iter();
        let held = held.flat_map(|draft| &draft.held);
        new.chain(held.map(|held| held.task.node_id))
    })
}

/// Locks the jobs and then their unreleased tasks, each in order of id.
async fn lock(
    conn: &mut PgConnection,
    groups: &[JobActions<'_>],
    ids: &PlanIds,
) -> Result<BTreeMap<JobId, JobDraft>, StoreError> {
    let jobs: Vec<Uuid> = groups.iter().map(|group| group.job.0).collect();
    let rows = sqlx::query!(
        r#"select id, tenant_id, state as "state: Json<JobState>", revision, revision_floor, failures, put_off, last_failure, waiting as "waiting: Json<Waiting>",
                  not_before, started_at, placed_at, running_since, finished_at, trained_s, turn, turned_at, lent,
                  verdicts, suspects as "suspects: Json<Vec<Suspect>>", idle as "idle: Json<IdleFinding>", stopped_at, stops, stop_s, lost_s, asked_at,
                  spec #> '{preemption,checkpoint_on_request}' as "request: Json<CheckpointOnRequest>",
                  (select (preemption ->> 'timeout_s')::integer from tenant where id = job.tenant_id) as timeout_cap_s
           from job where id in (select unnest($1::uuid[])) and deleted_at is null order by id for no key update"#,
        &jobs
    )
    .fetch_all(&mut *conn)
    .await?;
    let drafts = rows.into_iter().map(|row| JobDraft {
        id: row.id.into(),
        tenant_id: row.tenant_id.into(),
        state: row.state.0,
        revision: unsigned(row.revision),
        revision_floor: unsigned(row.revision_floor),
        failures: unsigned32(row.failures),
        put_off: unsigned32(row.put_off),
        last_failure: row.last_failure,
        waiting: row.waiting.map(|waiting| waiting.0),
        not_before: row.not_before,
        started_at: row.started_at,
        placed_at: row.placed_at,
        running_since: row.running_since,
        finished_at: row.finished_at,
        trained_s: row.trained_s,
        stopped_at: row.stopped_at,
        stops: unsigned32(row.stops),
        stop_s: row.stop_s,
        turn: unsigned(row.turn),
        turned_at: row.turned_at,
        lent: row.lent,
        verdicts: unsigned32(row.verdicts),
        suspects: row.suspects.0,
        idle: row.idle.map(|idle| idle.0),
        lost_s: row.lost_s,
        request_s: row.request.map(|request| {
            let cap_s = row.timeout_cap_s.map_or(u32::MAX, unsigned32);
            request.0.timeout_s.min(cap_s)
        }),
        asked_at: row.asked_at,
        ids: ids.revision(row.id.into()).cloned().unwrap_or_default(),
        held: Vec::new(),
        events: Vec::new(),
        charges: Vec::new(),
        given_up: Vec::new(),
        start: None,
    });
    let mut drafts: BTreeMap<JobId, JobDraft> = drafts.map(|draft| (draft.id, draft)).collect();
    let rows = sqlx::query!(
        r#"select id, tenant_id, job_id, revision, role, role_index, node_id, gpus, state as "state: Json<TaskState>", address
           from task where job_id in (select unnest($1::uuid[])) and released_at is null order by id for no key update"#,
        &jobs
    )
    .fetch_all(conn)
    .await?;
    for row in rows {
        let Some(draft) = drafts.get_mut(&JobId::from(row.job_id)) else {
            continue;
        };
        let task = Task {
            id: row.id.into(),
            job_id: row.job_id.into(),
            revision: unsigned(row.revision),
            role: role(&row.role, row.role_index),
            node_id: row.node_id.into(),
            gpus: row.gpus.into_iter().map(unsigned32).collect(),
            state: row.state.0,
            address: row.address,
        };
        draft.held.push(LockedTask {
            tenant_id: row.tenant_id.into(),
            task,
        });
    }
    Ok(drafts)
}

async fn apply(
    conn: &mut PgConnection,
    mut draft: JobDraft,
    actions: &[&Action],
    now: OffsetDateTime,
) -> Result<CommitEffects, CommitFailure> {
    let before = (draft.state.clone(), draft.revision);
    for action in actions {
        draft.apply(action, now)?;
    }
    draft.state_changed(&before.0, now);
    let mut written = CommitEffects {
        events: std::mem::take(&mut draft.events),
        ..CommitEffects::default()
    };
    let phase = draft.state.phase();
    if phase.is_terminal() && !before.0.phase().is_terminal() {
        written.ended.push((draft.id, phase));
    }
    update(conn, &draft, &before).await?;
    for charge in &draft.charges {
        let event = fault::charge(conn, charge)
            .await
            .map_err(CommitFailure::Store)?;
        written.events.extend(event);
    }
    let given_up = std::mem::take(&mut draft.given_up);
    let done = task::transition(conn, given_up, now).await?;
    written
        .touched
        .extend(done.changed.iter().map(|task| task.node_id));
    written.events.extend(done.events);
    let stops = draft.held.iter().filter(|held| {
        let mut events = actions
            .iter()
            .filter_map(|action| action.task_event(held.task.id, held.task.role));
        events.any(|event| event == TaskEvent::Stop)
    });
    let stops: Vec<(LockedTask, TaskEvent)> =
        stops.map(|held| (held.clone(), TaskEvent::Stop)).collect();
    // Includes nodes of shards that were ordered to leave earlier and are stopped only now.
    if actions
        .iter()
        .any(|action| matches!(action, Action::Stop { .. }))
    {
        let held = draft.held.iter().map(|held| held.task.node_id);
        written.touched.extend(held);
    }
    if !stops.is_empty() {
        let done = task::transition(conn, stops, now).await?;
        written
            .touched
            .extend(done.changed.iter().map(|task| task.node_id));
        written.events.extend(done.events);
    }
    let turns = actions
        .iter()
        .filter(|action| matches!(action, Action::Suspend { .. } | Action::Continue { .. }));
    for action in turns {
        let done = turn::write(conn, &draft, action, now).await?;
        written
            .touched
            .extend(draft.held.iter().map(|held| held.task.node_id));
        written.events.extend(done.events);
    }
    if let Some(new) = draft.start.take() {
        let started = start::write(conn, &draft, new, now).await?;
        written.touched.extend(started.nodes);
        // The placement precedes the start in the history.
        written.events.splice(0..0, started.placed);
        written.events.extend(started.tasks);
    }
    Ok(written)
}

/// Writes the draft's columns, guarded by the revision and phase from which its transitions began.
async fn update(
    conn: &mut PgConnection,
    draft: &JobDraft,
    before: &(JobState, u64),
) -> Result<(), CommitFailure> {
    let secret = match &draft.start {
        Some(RevisionStart {
            from: From::Nothing { secret },
            ..
        }) => Some(secret.as_str()),
        _ => None,
    };
    let done = sqlx::query!(
        "update job
         set phase = $4, state = $5, revision = $6, failures = $7, waiting = $8, not_before = $9, started_at = $10,
             placed_at = $11, running_since = $12, finished_at = $13, trained_s = $14,
             secret = case when $15 then $16 else secret end,
             finished = case when $15 then null else finished end,
             failed = case when $15 then null else failed end,
             revision_samples = case when $17 then 0 else revision_samples end,
             turn = $18, turned_at = $19, verdicts = $20, suspects = $21, stopped_at = $22, stops = $23, stop_s = $24,
             last_failure = $25, put_off = $26, lent = $27, lost_s = $28, asked_at = $29, idle = $30
         where id = $1 and revision = $2 and phase = $3",
        draft.id.0,
        signed(before.1),
        before.0.phase().as_str(),
        draft.state.phase().as_str(),
        Json(&draft.state) as _,
        signed(draft.revision),
        signed32(draft.failures),
        draft.waiting.as_ref().map(Json) as _,
        draft.not_before,
        draft.started_at,
        draft.placed_at,
        draft.running_since,
        draft.finished_at,
        draft.trained_s,
        secret.is_some(),
        secret,
        draft.revision != before.1,
        signed(draft.turn),
        draft.turned_at,
        signed32(draft.verdicts),
        Json(&draft.suspects) as _,
        draft.stopped_at,
        signed32(draft.stops),
        draft.stop_s,
        draft.last_failure,
        signed32(draft.put_off),
        draft.lent,
        draft.lost_s,
        draft.asked_at,
        draft.idle.map(Json) as _
    )
    .execute(conn)
    .await
    .map_err(StoreError::from)?;
    assert_eq!(
        done.rows_affected(),
        1,
        "job {} is locked, so its revision and phase are those read",
        draft.id
    );
    Ok(())
}

impl std::convert::From<CommitRefusal> for CommitFailure {
    fn from(refusal: CommitRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl std::convert::From<StoreError> for CommitFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
