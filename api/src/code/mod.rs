//! Code archives of users' programs: uploads, and their removal when they are unused.

pub mod get;
pub mod put;
mod remove_unused;

use crate::files::Files;
use crate::problem::{ApiError, ProblemKind};
use crate::state::ApiState;
use muster_model::spec::is_sha256;

/// Checks the name of an archive in a path.
fn named(sha256: &str) -> Result<(), ApiError> {
    if is_sha256(sha256) {
        return Ok(());
    }
    let expected = "the SHA-256 of an archive: 64 digits 0-9 a-f";
    Err(ApiError::parameter(
        "sha256",
        &format!("{sha256:?}"),
        expected,
    ))
}

fn files(app: &ApiState) -> Result<&Files, ApiError> {
    app.files.as_ref().ok_or_else(|| {
        let detail = "this daemon was started without checkpoint_root, so it keeps no code; an administrator sets it";
        ApiError::new(ProblemKind::NotFound, detail)
    })
}
