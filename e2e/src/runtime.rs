//! What carries the tasks of a story that does not care: processes, or pods with `MUSTER_E2E_RUNTIME=pod`.

const VARIABLE: &str = "MUSTER_E2E_RUNTIME";

/// # Panics
/// When the variable says neither.
#[must_use]
pub fn is_pod() -> bool {
    let said = std::env::var(VARIABLE).unwrap_or_default();
    match said.as_str() {
        "" | "process" => false,
        "pod" => true,
        other => panic!("{VARIABLE} is {other:?}; expected process or pod"),
    }
}

/// The first line of a story that cannot be told of pods, and why not. `scripts/story-pods` looks for it, leaves the story out and says so.
///
/// # Panics
/// Where tasks are to be pods, so that nobody takes the story for one that has passed.
pub fn of_processes(why: &str) {
    assert!(!is_pod(), "a story of processes alone: {why}");
}
