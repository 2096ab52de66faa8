//! Why a user's program could not be started.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the task has no command")]
    NoCommand,
    #[error("cannot reserve a port")]
    Port(#[source] io::Error),
    #[error("the task set does not hold this task with an address of the form host:port")]
    Peers,
    #[error("command.working_dir is {}, which is no folder on this node", path.display())]
    WorkingFolder { path: PathBuf },
    #[error("{field}[0] is {program:?}, which is no program on this node; looked in {looked_in}")]
    NoProgram {
        field: &'static str,
        program: String,
        looked_in: String,
    },
    #[error(
        "{field}[0] is {path:?}, which is no program on this node: there is no such file, or it may not be executed"
    )]
    NoProgramAt { field: &'static str, path: PathBuf },
    #[error("command.check ended with {how}{}; its output is in the task's log", saying(said.as_deref()))]
    Check { how: String, said: Option<String> },
    #[error("cannot start {}", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn saying(said: Option<&str>) -> String {
    said.map_or_else(String::new, |said| format!(", saying \"{said}\""))
}

impl CommandError {
    pub(super) fn read(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Read { path, source }
    }

    pub(super) fn write(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Write { path, source }
    }

    /// What is missing on this node may be there on another, so only what no node could do ends the job at once.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NoCommand => false,
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Port(_)
            | Self::Peers
            | Self::WorkingFolder { .. }
            | Self::NoProgram { .. }
            | Self::NoProgramAt { .. }
            | Self::Check { .. }
            | Self::Start { .. } => true,
        }
    }
}
