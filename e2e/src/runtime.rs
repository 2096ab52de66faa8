//! Runtime of the tasks in stories that support both: processes, or pods with
//! `MUSTER_E2E_RUNTIME=pod`.

const VARIABLE: &str = "MUSTER_E2E_RUNTIME";

/// Whether tasks are pods.
///
/// # Panics
/// If the variable has another value.
#[must_use]
pub fn is_pod() -> bool {
    let said = std::env::var(VARIABLE).unwrap_or_default();
    match said.as_str() {
        "" | "process" => false,
        "pod" => true,
        other => panic!("{VARIABLE} is {other:?}; expected process or pod"),
    }
}

/// First line of a story that does not support pods, with the reason. `scripts/story-pods` finds
/// the line, skips the story and prints the reason.
///
/// # Panics
/// If tasks are pods, so that the story does not count as passed.
pub fn of_processes(why: &str) {
    assert!(!is_pod(), "a story of processes alone: {why}");
}
