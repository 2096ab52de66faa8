//! How rows of studies are shown.

use crate::auth::Caller;
use crate::problem::{Kind, Refusal};
use muster_model::id::StudyId;
use muster_model::spec::FieldError;
use muster_model::study::{MAX_TRIALS, StudyPhase};
use muster_model::view::StudyView;
use muster_store::PgConnection;
use muster_store::study::{self, StudyRow};

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
        "{waiting} orders and results of the study wait for the scheduler; try again in a moment"
    );
    Refusal::new(Kind::TooManyRequests, detail).retry_after(1)
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

/// The study as it is now.
pub async fn shown(
    conn: &mut PgConnection,
    caller: &Caller,
    id: StudyId,
) -> Result<StudyView, Refusal> {
    Ok(view(find(conn, id).await?, &caller.tenant_name))
}
