//! Conversion of studies to response types.

use crate::auth::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use muster_model::id::StudyId;
use muster_model::spec::FieldError;
use muster_model::study::{MAX_TRIALS, StudyOrder, StudyPhase, StudySpec};
use muster_model::view::StudyView;
use muster_store::PgConnection;
use muster_store::study::{self, MAX_PROPOSED, StudyOrderOutcome, StudyRow};
use serde::Serialize;

/// `tenant` is the name of the study's tenant.
pub fn view(row: StudyRow, tenant: &str) -> StudyView {
    StudyView {
        id: row.id,
        tenant: tenant.to_owned(),
        name: row.document.name.clone(),
        labels: row.document.labels.clone(),
        phase: row.phase,
        trials: row.counts,
        best: row.best,
        events: row.seq,
        created_by: row.created_by,
        created_at: row.created_at,
        finished_at: row.finished_at,
        document: row.document,
    }
}

/// Returns the study, or the refusal of a missing one.
pub async fn find(conn: &mut PgConnection, id: StudyId) -> Result<StudyRow, ApiError> {
    study::get(conn, id).await?.ok_or_else(|| missing(id))
}

/// Returns the document of the study without reading its trials, which may be many; or the refusal
/// of a missing study.
pub async fn document(conn: &mut PgConnection, id: StudyId) -> Result<StudySpec, ApiError> {
    study::document(conn, id).await?.ok_or_else(|| missing(id))
}

/// Refuses a study that does not exist.
pub async fn exists(conn: &mut PgConnection, id: StudyId) -> Result<(), ApiError> {
    let phase = study::phase_of(conn, id).await?;
    phase.map(drop).ok_or_else(|| missing(id))
}

pub fn missing(id: StudyId) -> ApiError {
    ApiError::not_found(format!("study {id}"))
}

pub fn wrong_phase(phase: StudyPhase, verb: &str, needed: &str) -> ApiError {
    let detail = format!("the study is {}; {verb} needs {needed}", phase.as_str());
    ApiError::new(ProblemKind::WrongPhase, detail)
}

/// Returns the refusal while the scheduler has not read earlier orders.
pub fn busy(waiting: u64) -> ApiError {
    let detail = format!(
        "{waiting} orders, results or ends of jobs of the study wait for the scheduler; try again in a moment"
    );
    ApiError::new(ProblemKind::TooManyRequests, detail).retry_after(1)
}

/// Stores orders or results of a study, or returns why it does not accept them. `needed` is what is
/// expected.
pub async fn order(
    conn: &mut PgConnection,
    id: StudyId,
    orders: &[StudyOrder],
    verb: &str,
    needed: &str,
) -> Result<(), ApiError> {
    let done = study::order(conn, id, orders, clock::now()).await?;
    ordered(done, id, orders, verb, needed)
}

/// Returns the refusal of orders or results that were not stored.
pub fn ordered(
    done: StudyOrderOutcome,
    id: StudyId,
    orders: &[StudyOrder],
    verb: &str,
    needed: &str,
) -> Result<(), ApiError> {
    match done {
        StudyOrderOutcome::Done => Ok(()),
        StudyOrderOutcome::Refused { phase } => Err(wrong_phase(phase, verb, needed)),
        StudyOrderOutcome::Busy { waiting } => Err(busy(waiting)),
        StudyOrderOutcome::TooManyProposed { waiting } => Err(too_many_proposed(orders, waiting)),
        StudyOrderOutcome::TooMany { limit, most } => {
            let asked = orders.iter().map(|order| match order {
                StudyOrder::Extend { trials } => *trials,
                _ => 0,
            });
            Err(too_many(asked.sum(), limit, most))
        }
        StudyOrderOutcome::NotFound => Err(missing(id)),
    }
}

/// Returns the refusal of more trials than a study may have.
pub fn too_many(asked: u32, limit: u32, most: u32) -> ApiError {
    let expected = match most {
        0 => {
            format!("none: a study has {MAX_TRIALS} trials at most, and this one may have as many")
        }
        _ => format!(
            "1 to {most}: a study has {MAX_TRIALS} trials at most, and this one may have {limit}"
        ),
    };
    let error = FieldError {
        field: "trials".to_owned(),
        value: asked.to_string(),
        expected,
    };
    ApiError::of_fields(ProblemKind::InvalidBody, vec![error])
}

/// Returns the refusal of more proposals than may wait.
fn too_many_proposed(orders: &[StudyOrder], waiting: u64) -> ApiError {
    let proposed = orders.iter().map(StudyOrder::proposed).sum::<u64>();
    let rule = format!("{waiting} proposals wait to become trials, and {MAX_PROPOSED} may");
    let expected = match MAX_PROPOSED.saturating_sub(waiting) {
        0 => format!("none for now: {rule}"),
        most => format!("1 to {most} trials: {rule}"),
    };
    let error = FieldError {
        field: "trials".to_owned(),
        value: format!("{proposed} trials"),
        expected,
    };
    ApiError::of_fields(ProblemKind::InvalidBody, vec![error])
}

/// Returns the present state of the study.
pub async fn shown(
    conn: &mut PgConnection,
    caller: &Caller,
    id: StudyId,
) -> Result<StudyView, ApiError> {
    Ok(view(find(conn, id).await?, &caller.tenant_name))
}

pub fn written(view: &impl Serialize) -> String {
    serde_json::to_string(view).expect("a view is JSON")
}
