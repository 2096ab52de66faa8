//! Checks `after` of a document against the other jobs: they must be of the same tenant, and those
//! that have ended must have ended as the document wants.

use crate::problem::{ApiError, ProblemKind};
use muster_model::id::JobId;
use muster_model::spec::{After, FieldError, JobSpec};
use muster_store::{PgConnection, after};

/// Returns the jobs that have not ended. They stay locked until the end of the transaction.
///
/// # Errors
/// A refusal by field for a job that does not exist, or that ended without the wanted success.
pub async fn unmet(conn: &mut PgConnection, spec: &JobSpec) -> Result<Vec<After>, ApiError> {
    if spec.after.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<JobId> = spec.after.iter().map(|after| after.job).collect();
    let found = after::lock(conn, &ids).await?;
    let (mut unmet, mut errors) = (Vec::new(), Vec::new());
    for (at, after) in spec.after.iter().enumerate() {
        let wrong = |value: String, expected: &str| FieldError {
            field: format!("after[{at}].job"),
            value,
            expected: expected.to_owned(),
        };
        match found.get(&after.job) {
            None => {
                let expected = "a job of yours that was not deleted";
                errors.push(wrong(after.job.to_string(), expected));
            }
            Some(job) if !job.phase.is_terminal() => unmet.push(*after),
            Some(job) if !after.on.is_met_by(job.phase) => {
                let value = format!(
                    "{} ({}), which is {}",
                    job.name,
                    after.job,
                    job.phase.as_str()
                );
                errors.push(wrong(value, "a job that can still succeed, or `on: end`"));
            }
            Some(_) => {}
        }
    }
    if errors.is_empty() {
        Ok(unmet)
    } else {
        Err(ApiError::of_fields(ProblemKind::InvalidJob, errors))
    }
}
