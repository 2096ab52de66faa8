//! The state × event matrix of jobs and tasks, as golden files. A changed line is a changed
//! promise. `UPDATE_GOLDEN=1 cargo test -p muster-model` writes them again.

use muster_model::id::NodeId;
use muster_model::job::{AfterStop, JobEvent, JobState, RequeueCause, Seat};
use muster_model::task::{Outcome, Role, TaskEvent, TaskState};
use std::fmt::Write as _;
use std::path::Path;
use uuid::Uuid;

#[test]
fn job_states_change_only_as_the_matrix_says() {
    let mut text = String::new();
    for state in job_states() {
        for event in job_events() {
            let after = match state.clone().apply(event.clone()) {
                Ok(after) => json(&after),
                Err(error) => format!("refused: {error}"),
            };
            writeln!(text, "{} + {} -> {after}", json(&state), json(&event))
                .expect("a string takes all");
        }
    }
    golden("job_states.txt", &text);
}

#[test]
fn task_states_change_only_as_the_matrix_says() {
    let gone = Outcome::exited(0);
    let states = [
        TaskState::Assigned,
        TaskState::Running,
        TaskState::Suspending,
        TaskState::Suspended,
        TaskState::Stopping,
        TaskState::Ending,
        TaskState::Released {
            outcome: Outcome::signalled(9),
        },
    ];
    let mut text = String::new();
    for state in states {
        for event in [
            TaskEvent::Up,
            TaskEvent::Suspend,
            TaskEvent::StoodStill,
            TaskEvent::Continue,
            TaskEvent::Stop,
            TaskEvent::Gone {
                outcome: gone.clone(),
            },
        ] {
            let after = match state.clone().apply(event.clone()) {
                Ok(after) => json(&after),
                Err(error) => format!("refused: {error}"),
            };
            writeln!(text, "{} + {} -> {after}", json(&state), json(&event))
                .expect("a string takes all");
        }
    }
    golden("task_states.txt", &text);
}

#[test]
fn finished_job_never_changes_again() {
    let terminal = [
        JobState::Succeeded,
        JobState::Cancelled,
        JobState::Failed {
            reason: "loss".into(),
        },
    ];
    for state in terminal {
        assert!(state.phase().is_terminal());
        for event in job_events() {
            // A study may extend a trial that has trained to its budget.
            let extended = state == JobState::Succeeded && event == JobEvent::Extend;
            assert_eq!(state.clone().apply(event).is_ok(), extended);
        }
    }
}

fn job_states() -> Vec<JobState> {
    let mut states = vec![
        JobState::Queued,
        JobState::Starting,
        JobState::Running,
        JobState::Suspended,
    ];
    states.extend(ends().into_iter().map(|then| JobState::Stopping { then }));
    states.extend([
        JobState::Paused,
        JobState::Succeeded,
        JobState::Failed {
            reason: "loss is not a number".into(),
        },
        JobState::Cancelled,
    ]);
    states
}

fn job_events() -> Vec<JobEvent> {
    let mut events = vec![
        JobEvent::Start,
        JobEvent::AllRunning,
        JobEvent::Resize,
        JobEvent::Suspend,
        JobEvent::Continue,
    ];
    events.extend(ends().into_iter().map(|then| JobEvent::Stop { then }));
    events.extend([
        JobEvent::Released,
        JobEvent::Hold,
        JobEvent::Resume,
        JobEvent::Cancel,
        JobEvent::Extend,
    ]);
    events
}

fn ends() -> Vec<AfterStop> {
    vec![
        AfterStop::Requeue {
            cause: RequeueCause::Resize,
        },
        AfterStop::Move {
            to: vec![Seat {
                role: Role::Worker { rank: 0 },
                node: NodeId(Uuid::nil()),
                gpus: vec![1],
            }],
            until_unix_ms: None,
        },
        AfterStop::Pause,
        AfterStop::Succeed,
        AfterStop::Fail {
            reason: "loss is not a number".into(),
        },
        AfterStop::Cancel,
    ]
}

fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("the model's types are JSON")
}

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).expect("the golden file is writable");
    }
    let kept = std::fs::read_to_string(&path).expect("the golden file is there");
    assert_eq!(
        kept,
        text,
        "{} differs; look at every changed line before UPDATE_GOLDEN=1",
        path.display()
    );
}
