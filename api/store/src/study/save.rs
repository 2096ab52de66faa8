//! Writes the result of a step of a search. A step takes one round trip, independent of its size.

use super::trial_rows::TrialWrite;
use crate::error::StoreError;
use crate::int_convert::{signed, signed32, unsigned};
use crate::notify::NotifyChannel;
use muster_model::id::StudyId;
use sqlx::PgConnection;
use time::OffsetDateTime;

/// Changes of a study and its trials by one step.
#[derive(Debug, Clone)]
pub struct StudyStepChanges {
    pub phase: &'static str,
    pub cancelled: bool,
    pub limit: u32,
    /// Number of proposals that are no trials yet.
    pub proposed: u32,
    /// Number of events so far; the new ones begin after `before`.
    pub seq: u64,
    pub before: u64,
    /// Numbers of the applied orders.
    pub taken: Vec<i64>,
    /// JSON of the new events.
    pub events: Vec<String>,
    /// JSON of the state after these events, if a snapshot is due.
    pub state: Option<String>,
    /// New trials.
    pub created: Vec<TrialWrite>,
    /// Existing trials that changed.
    pub changed: Vec<TrialWrite>,
    /// Whether its trials are jobs, which concern rounds.
    pub has_jobs: bool,
    /// Whether the commit waits for the disk. Otherwise it is on the disk at the latest when a
    /// later commit is.
    pub durable: bool,
}

/// Writes all changes, and wakes rounds and streams. Returns `false` and writes nothing if another
/// process has advanced the study since it was read, or if it was deleted. Jobs of new trials must
/// exist.
///
/// # Errors
/// [`StoreError::Statement`].
///
/// # Panics
/// If a changed trial does not exist.
pub async fn save(
    conn: &mut PgConnection,
    id: StudyId,
    saved: &StudyStepChanges,
    now: OffsetDateTime,
) -> Result<bool, StoreError> {
    let woken: &[NotifyChannel] = if saved.has_jobs {
        &[NotifyChannel::Rounds, NotifyChannel::Events]
    } else {
        &[NotifyChannel::Events]
    };
    let woken: Vec<String> = woken.iter().map(|one| one.as_str().to_owned()).collect();
    let numbers = saved.changed.iter().map(|trial| signed32(trial.number));
    let numbers: Vec<i32> = numbers.collect();
    // Sent as text, because the driver would send Postgres's binary form of JSON, which changes the
    // notation of numbers.
    let done = sqlx::query!(
        r#"with saved as (
            update study set phase = $3, cancelled = $4, trials_limit = $5, proposed = $6, seq = $7, state = coalesce($8::text::json, state),
                   state_seq = case when $8::text is null then state_seq else $7 end,
                   finished_at = case when $3 = 'finished' then coalesce(finished_at, $9) end
            where id = $1 and seq = $2 and deleted_at is null
            returning id, tenant_id
        ), forgotten as (
            delete from study_order where id = any($10) and exists (select from saved)
        ), kept as (
            insert into study_event (study_id, seq, tenant_id, at, body)
            select saved.id, $2 + place, saved.tenant_id, $9, body::json
            from saved, unnest($11::text[]) with ordinality as given (body, place)
        ), created as (
            insert into study_trial (study_id, number, tenant_id, job_id, state, parameters, seed, budget, rung, from_trial, from_step,
                   reports, rungs, outcome, is_best, fed_step, failure, created_at, ended_at, end_fed)
            select saved.id, number, saved.tenant_id, job_id, state, parameters, seed, budget, rung, (origin ->> 'trial')::integer,
                   (origin ->> 'step')::bigint, reports, rungs, outcome, best, coalesce(fed_step, -1), failure, $9::timestamptz,
                   case when state in ('completed', 'stopped', 'failed') then $9::timestamptz end, coalesce(end_fed, false)
            from saved, json_to_recordset($12::text::json) as given
                 (number integer, job_id uuid, state text, parameters json, seed bigint, budget bigint, rung integer, origin json,
                  reports json, rungs json, outcome json, best boolean, fed_step bigint, failure text, end_fed boolean)
        ), changed as (
            update study_trial t
            set job_id = coalesce(t.job_id, given.job_id), state = given.state, budget = given.budget, rung = given.rung,
                reports = given.reports, rungs = given.rungs, outcome = given.outcome, is_best = given.best,
                fed_step = greatest(t.fed_step, given.fed_step), failure = coalesce(given.failure, t.failure),
                asked_at = case when given.open then null else t.asked_at end,
                ended_at = case when given.state in ('completed', 'stopped', 'failed') then coalesce(t.ended_at, $9::timestamptz) end,
                end_fed = coalesce(given.end_fed, t.end_fed)
            from saved, json_to_recordset($13::text::json) as given
                 (number integer, job_id uuid, state text, budget bigint, rung integer, reports json, rungs json, outcome json,
                  best boolean, fed_step bigint, failure text, end_fed boolean, open boolean)
            -- By number too, or all trials of the study would be read to join them with the few that are given.
            where t.study_id = $1 and t.number = any($16) and t.number = given.number
            returning t.number
        )
        select (select count(*) from saved) as "saved!", (select count(*) from changed) as "changed!",
               (select count(pg_notify(channel, '')) from saved, unnest($14::text[]) as channel) as "woken!",
               (select count(set_config('synchronous_commit', 'off', true)) from saved where not $15::boolean) as "hurried!""#,
        id.0,
        signed(saved.before),
        saved.phase,
        saved.cancelled,
        signed32(saved.limit),
        signed32(saved.proposed),
        signed(saved.seq),
        saved.state.as_deref(),
        now,
        &saved.taken,
        &saved.events,
        json(&saved.created),
        json(&saved.changed),
        &woken,
        saved.durable,
        &numbers
    )
    .fetch_one(conn)
    .await?;
    if done.saved == 0 {
        return Ok(false);
    }
    let there = unsigned(done.changed);
    assert_eq!(there, saved.changed.len() as u64, "they are there");
    Ok(true)
}

fn json(trials: &[TrialWrite]) -> String {
    serde_json::to_string(trials).expect("it is JSON")
}
