//! What a document says of the job to begin from, held against that job: it must be the tenant's own, and still have the checkpoint.

use crate::problem::{Kind, Refusal};
use muster_model::spec::{FieldError, JobSpec, Origin};
use muster_store::PgConnection;
use muster_store::{checkpoint, job};

/// Names the step where the document leaves it out, and tells at which step of its own the job begins. The connection sees only what the caller's tenant owns.
///
/// # Errors
/// A refusal by field, when the job could not begin so.
pub async fn resolve(conn: &mut PgConnection, spec: &mut JobSpec) -> Result<u64, Refusal> {
    let Some(from) = spec.from else {
        return Ok(0);
    };
    let Some(parent) = job::get(conn, from.job).await? else {
        let expected = "a job of yours that was not deleted";
        return Err(refused("from.job", from.job.to_string(), expected));
    };
    let all = checkpoint::list(conn, from.job).await?;
    let mut retained = all.iter().filter(|one| one.retained);
    let steps: Vec<u64> = retained.clone().map(|one| one.written.step).collect();
    let found = match from.step {
        Some(step) => retained.find(|one| one.written.step == step),
        None => retained.next(),
    };
    let Some(found) = found else {
        let value = from.step.map_or("left out".to_owned(), |s| s.to_string());
        let known: Vec<String> = steps.iter().map(u64::to_string).collect();
        let expected = match known.is_empty() {
            true => "a job that has a checkpoint; this one has none yet".to_owned(),
            false => format!(
                "a step of which the job still has a checkpoint: {}",
                known.join(", ")
            ),
        };
        return Err(refused("from.step", value, &expected));
    };
    let step = found.written.step;
    let begins = spec
        .check_origin(&parent.job.spec, step)
        .map_err(|errors| Refusal::of_fields(Kind::InvalidJob, errors))?;
    spec.from = Some(Origin {
        step: Some(step),
        ..from
    });
    Ok(begins)
}

fn refused(field: &str, value: String, expected: &str) -> Refusal {
    let error = FieldError {
        field: field.to_owned(),
        value,
        expected: expected.to_owned(),
    };
    Refusal::of_fields(Kind::InvalidJob, vec![error])
}
