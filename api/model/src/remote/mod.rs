//! Remote sessions: a command, a forwarded port or a copied path of a running task, and the frames
//! that client and node exchange.

mod frame;

pub use frame::{
    FrameError, HEADER_BYTES, INPUT_WINDOW_BYTES, MAX_FRAME_BYTES, RemoteFrame, frame_bytes,
    is_ended, payload,
};

use crate::spec::FieldError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Value of the header `Upgrade` with which a client requests a remote session.
pub const PROTOCOL: &str = "muster-remote";

/// Maximum number of open sessions of one job.
pub const MAX_OF_JOB: u64 = 16;
/// Maximum number of open sessions of one tenant.
pub const MAX_OF_TENANT: u64 = 32;
/// Longest duration of a session.
pub const MAX_HOURS: u64 = 12;
/// Longest time of a session without data in either direction.
pub const MAX_IDLE_HOURS: u64 = 4;
/// Maximum number of arguments of a command, and of their bytes together. The history keeps them.
pub const MAX_ARGUMENTS: usize = 256;
pub const MAX_ARGUMENT_BYTES: usize = 16 << 10;
/// Maximum bytes of a path.
const MAX_PATH_BYTES: usize = 4_096;
/// Longest name of a terminal, such as `xterm-256color`.
const MAX_TERMINAL_NAME_BYTES: usize = 64;
/// Longest command in the text of an event, in characters.
const SHOWN_CHARS: usize = 200;

/// Session to open in a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewRemoteSession {
    /// Rank of the worker, or of the process of a command.
    #[serde(default)]
    pub rank: u32,
    pub action: RemoteAction,
}

/// Purpose of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RemoteAction {
    /// Runs a command in the task, with the user, environment, working folder and limits of the
    /// task's program.
    Exec {
        /// Program and arguments: at most 256, with 16 KiB together. The history shows them.
        command: Vec<String>,
        /// Terminal of the command. Without it, output and errors are separate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<Terminal>,
    },
    /// Connects to a TCP port of 127.0.0.1 on which a process of the task listens.
    Port { port: u16 },
    /// Sends a file or a folder of the task as a tar archive.
    Read {
        /// Relative to the working folder of the program, or absolute.
        path: String,
    },
    /// Unpacks a tar archive of the client in the task.
    Write {
        /// Target, relative to the working folder of the program, or absolute. An existing folder
        /// receives the entries of the archive. Otherwise the first entry gets this name.
        path: String,
    },
}

/// Terminal of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Terminal {
    /// Value of the variable `TERM`.
    pub name: String,
    pub size: TerminalSize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

/// End of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum RemoteEnd {
    /// The command exited, or the copy ended with 0.
    Exited { code: i32 },
    /// The command was killed.
    Signalled { signal: i32 },
    /// Both sides closed the connection to the port.
    Closed,
    /// The client left.
    ClientGone,
    /// The session did not start, or broke.
    Failed { message: String },
}

impl NewRemoteSession {
    /// # Errors
    /// Each invalid field.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let problem = match &self.action {
            RemoteAction::Exec { command, terminal } => {
                invalid_command(command).or_else(|| terminal.as_ref().and_then(invalid_terminal))
            }
            RemoteAction::Port { port: 0 } => Some(wrong("port", "0", "1 to 65535")),
            RemoteAction::Port { .. } => None,
            RemoteAction::Read { path } | RemoteAction::Write { path } => invalid_path(path),
        };
        problem.map_or(Ok(()), |error| Err(vec![error]))
    }
}

fn invalid_command(command: &[String]) -> Option<FieldError> {
    let bytes: usize = command.iter().map(String::len).sum();
    let expected = format!(
        "1 to {MAX_ARGUMENTS} arguments with at most {MAX_ARGUMENT_BYTES} bytes together, and without NUL"
    );
    let is_named = command.first().is_some_and(|program| !program.is_empty());
    let is_short = command.len() <= MAX_ARGUMENTS && bytes <= MAX_ARGUMENT_BYTES;
    if is_named && is_short && !command.iter().any(|argument| argument.contains('\0')) {
        return None;
    }
    let found = format!("{} arguments with {bytes} bytes", command.len());
    Some(wrong("command", &found, &expected))
}

fn invalid_terminal(terminal: &Terminal) -> Option<FieldError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+');
    let name = &terminal.name;
    let is_right =
        !name.is_empty() && name.len() <= MAX_TERMINAL_NAME_BYTES && name.chars().all(allowed);
    let expected = "1 to 64 letters, digits and - _ . +, such as xterm-256color";
    (!is_right).then(|| wrong("terminal.name", &format!("{name:?}"), expected))
}

fn invalid_path(path: &str) -> Option<FieldError> {
    let is_right = !path.is_empty() && path.len() <= MAX_PATH_BYTES && !path.contains('\0');
    let expected = "a path of 1 to 4096 bytes without NUL";
    (!is_right).then(|| wrong("path", &format!("{} bytes", path.len()), expected))
}

fn wrong(field: &str, value: &str, expected: &str) -> FieldError {
    FieldError {
        field: format!("action.{field}"),
        value: value.to_owned(),
        expected: expected.to_owned(),
    }
}

impl fmt::Display for RemoteAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec { command, terminal } => {
                let what = if terminal.is_some() {
                    "command with a terminal"
                } else {
                    "command"
                };
                let command = command.join(" ").escape_debug().to_string();
                let shown: String = command.chars().take(SHOWN_CHARS).collect();
                let more = if shown.len() < command.len() {
                    "…"
                } else {
                    ""
                };
                write!(f, "{what}: {shown}{more}")
            }
            Self::Port { port } => write!(f, "connection to port {port}"),
            Self::Read { path } => write!(f, "copy of {}", path.escape_debug()),
            Self::Write { path } => write!(f, "copy to {}", path.escape_debug()),
        }
    }
}

impl fmt::Display for RemoteEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited { code } => write!(f, "exit code {code}"),
            Self::Signalled { signal } => write!(f, "killed by signal {signal}"),
            Self::Closed => write!(f, "connection closed"),
            Self::ClientGone => write!(f, "the client left"),
            Self::Failed { message } => write!(f, "{message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(command: &[&str], terminal: Option<&str>) -> NewRemoteSession {
        let size = TerminalSize {
            rows: 24,
            columns: 80,
        };
        NewRemoteSession {
            rank: 0,
            action: RemoteAction::Exec {
                command: command.iter().map(ToString::to_string).collect(),
                terminal: terminal.map(|name| Terminal {
                    name: name.to_owned(),
                    size,
                }),
            },
        }
    }

    #[test]
    fn invalid_session_names_its_field() {
        let long = "x".repeat(MAX_ARGUMENT_BYTES + 1);
        let path = |path: &str| NewRemoteSession {
            rank: 0,
            action: RemoteAction::Read {
                path: path.to_owned(),
            },
        };
        let port = NewRemoteSession {
            rank: 0,
            action: RemoteAction::Port { port: 0 },
        };
        for (session, field) in [
            (exec(&[], None), "action.command"),
            (exec(&[""], None), "action.command"),
            (exec(&["a\0b"], None), "action.command"),
            (exec(&[&long], None), "action.command"),
            (exec(&["sh"], Some("x=1\n")), "action.terminal.name"),
            (path(""), "action.path"),
            (port, "action.port"),
        ] {
            let errors = session.validate().expect_err(field);
            assert_eq!(errors[0].field, field);
        }
        exec(&["sh", ""], Some("xterm")).validate().expect("valid");
    }

    #[test]
    fn action_on_one_line_is_bounded_and_escaped() {
        let long = "é".repeat(300);
        let text = match exec(&["sh", "-c", "a\nb", &long], None).action {
            action @ RemoteAction::Exec { .. } => action.to_string(),
            _ => unreachable!("it is one"),
        };
        assert!(
            text.starts_with("command: sh -c a\\nb é") && text.ends_with('…'),
            "{text}"
        );
        assert_eq!(text.chars().count(), "command: ".len() + SHOWN_CHARS + 1);
    }

    #[test]
    fn request_has_no_unknown_fields() {
        let json = r#"{"action":{"kind":"port","port":6006,"host":"db"}}"#;
        serde_json::from_str::<NewRemoteSession>(json).expect_err("it has a host");
        let json = r#"{"action":{"kind":"port","port":6006}}"#;
        let session: NewRemoteSession = serde_json::from_str(json).expect("valid");
        assert_eq!(session.action, RemoteAction::Port { port: 6006 });
    }
}
