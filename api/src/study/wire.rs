//! How rows of studies are shown.

use crate::auth::Caller;
use crate::clock;
use crate::problem::{Kind, Refusal};
use muster_model::id::StudyId;
use muster_model::spec::FieldError;
use muster_model::study::{MAX_TRIALS, StudyOrder, StudyPhase, StudySpec};
use muster_model::view::StudyView;
use muster_store::PgConnection;
use muster_store::study::{self, MAX_PROPOSED, Outcome, StudyRow};
use serde::Serialize;

/// `tenant` is the name of the one that owns it.
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

/// The study, or the refusal that there is none.
pub async fn find(conn: &mut PgConnection, id: StudyId) -> Result<StudyRow, Refusal> {
    study::get(conn, id).await?.ok_or_else(|| missing(id))
}

/// The study's document, without a look at its trials, of which there may be many; or the refusal that there is no such study.
pub async fn document(conn: &mut PgConnection, id: StudyId) -> Result<StudySpec, Refusal> {
    study::document(conn, id).await?.ok_or_else(|| missing(id))
}

/// Refuses what is asked of a study that is not there.
pub async fn exists(conn: &mut PgConnection, id: StudyId) -> Result<(), Refusal> {
    let phase = study::phase_of(conn, id).await?;
    phase.map(drop).ok_or_else(|| missing(id))
}

pub fn missing(id: StudyId) -> Refusal {
    Refusal::not_found(format!("study {id}"))
}

pub fn wrong_phase(phase: StudyPhase, verb: &str, needed: &str) -> Refusal {
    let detail = format!("the study is {}; {verb} needs {needed}", phase.as_str());
    Refusal::new(Kind::WrongPhase, detail)
}

/// The scheduler has not taken in yet what was said before.
pub fn busy(waiting: u64) -> Refusal {
    let detail = format!(
        "{waiting} orders, results or ends of jobs of the study wait for the scheduler; try again in a moment"
    );
    Refusal::new(Kind::TooManyRequests, detail).retry_after(1)
}

/// States what a user wants of a study or tells it, or says why it does not take that; `needed` is what would.
pub async fn order(
    conn: &mut PgConnection,
    id: StudyId,
    orders: &[StudyOrder],
    verb: &str,
    needed: &str,
) -> Result<(), Refusal> {
    let done = study::order(conn, id, orders, clock::now()).await?;
    ordered(done, id, orders, verb, needed)
}

/// The refusal of what was ordered or told, if it was not taken.
pub fn ordered(
    done: Outcome,
    id: StudyId,
    orders: &[StudyOrder],
    verb: &str,
    needed: &str,
) -> Result<(), Refusal> {
    match done {
        Outcome::Done => Ok(()),
        Outcome::Refused { phase } => Err(wrong_phase(phase, verb, needed)),
        Outcome::Busy { waiting } => Err(busy(waiting)),
        Outcome::TooManyProposed { waiting } => Err(too_many_proposed(orders, waiting)),
        Outcome::TooMany { limit, most } => {
            let asked = orders.iter().map(|order| match order {
                StudyOrder::Extend { trials } => *trials,
                _ => 0,
            });
            Err(too_many(asked.sum(), limit, most))
        }
        Outcome::NotFound => Err(missing(id)),
    }
}

/// More trials than a study may have.
pub fn too_many(asked: u32, limit: u32, most: u32) -> Refusal {
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
    Refusal::of_fields(Kind::InvalidBody, vec![error])
}

/// More proposals than may wait.
fn too_many_proposed(orders: &[StudyOrder], waiting: u64) -> Refusal {
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
    Refusal::of_fields(Kind::InvalidBody, vec![error])
}

/// The study as it is now.
pub async fn shown(
    conn: &mut PgConnection,
    caller: &Caller,
    id: StudyId,
) -> Result<StudyView, Refusal> {
    Ok(view(find(conn, id).await?, &caller.tenant_name))
}

pub fn written(view: &impl Serialize) -> String {
    serde_json::to_string(view).expect("a view is JSON")
}
