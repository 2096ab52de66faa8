//! Checks `from` of a document against the other job: it must be of the same tenant and still have
//! the checkpoint.

use crate::problem::{ApiError, ProblemKind};
use muster_model::spec::{FieldError, JobSpec, Origin};
use muster_store::PgConnection;
use muster_store::{checkpoint, job};

/// Fills in the step if the document leaves it out, and returns the new job's own step at its
/// start. The connection sees only rows of the caller's tenant.
///
/// # Errors
/// A refusal by field if the job cannot start from the checkpoint.
pub async fn resolve(conn: &mut PgConnection, spec: &mut JobSpec) -> Result<u64, ApiError> {
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
        let expected = if known.is_empty() {
            let hint = "a job that has a checkpoint; this one has none yet";
            match &parent.job.spec.command {
                Some(_) => format!(
                    "{hint}. A program registers one by a report with a path, or by checkpoint.files"
                ),
                None => hint.to_owned(),
            }
        } else {
            format!(
                "a step of which the job still has a checkpoint: {}",
                known.join(", ")
            )
        };
        return Err(refused("from.step", value, &expected));
    };
    let step = found.written.step;
    let begins = spec
        .check_origin(&parent.job.spec, step)
        .map_err(|errors| ApiError::of_fields(ProblemKind::InvalidJob, errors))?;
    spec.from = Some(Origin {
        step: Some(step),
        ..from
    });
    Ok(begins)
}

fn refused(field: &str, value: String, expected: &str) -> ApiError {
    let error = FieldError {
        field: field.to_owned(),
        value,
        expected: expected.to_owned(),
    };
    ApiError::of_fields(ProblemKind::InvalidJob, vec![error])
}
