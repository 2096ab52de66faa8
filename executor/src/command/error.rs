//! Reasons why a user's program could not be started.

use super::checkpoint_error::CheckpointFetchError;
use super::code::CodeFetchError;
use super::secrets::SecretsError;
use muster_model::id::JobId;
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
    #[error("code archive {archive} is not available")]
    Code {
        archive: String,
        #[source]
        source: CodeFetchError,
    },
    #[error(
        "command.git needs the program git, which this node does not have; install git, or name an image that has it"
    )]
    NoGit,
    #[error("cannot get commit {commit} of {url}: {what} ended with {how}{}; its output is in the task's log", saying(said.as_deref()))]
    Git {
        url: String,
        commit: String,
        what: String,
        how: String,
        said: Option<String>,
    },
    #[error("command.git.commit is {commit}, which is no commit of {url}: {why}")]
    NoCommit {
        url: String,
        commit: String,
        why: &'static str,
    },
    #[error(
        "command.keep has {path:?}, but {link:?} of the working folder is a link; name a path without links"
    )]
    KeptBelowLink { path: String, link: PathBuf },
    #[error("the secrets of the program are not available")]
    Secrets(#[source] SecretsError),
    #[error("command.python.requirements is {path:?}, which {what}")]
    Requirements { path: String, what: String },
    #[error(
        "command.python needs pip, and python3 of this node has neither pip nor ensurepip; install python3-pip or python3-venv"
    )]
    NoPip,
    #[error(
        "a lock file of command.python needs uv, and this node has neither uv nor pip to install it; install uv"
    )]
    NoUv,
    #[error("{what} ended with {how}{}; its output is in the task's log", saying(said.as_deref()))]
    Packages {
        what: &'static str,
        how: String,
        said: Option<String>,
    },
    #[error("the checkpoint with which the program begins is not available")]
    Checkpoint(#[source] CheckpointFetchError),
    #[error("cannot begin from the checkpoint of job {job} at {step}: {why}")]
    Origin {
        job: JobId,
        step: u64,
        why: &'static str,
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

    pub(super) fn start(program: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let program = program.into();
        move |source| Self::Start { program, source }
    }

    /// Returns what the program requires and this node lacks; another node may have it.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        match self {
            Self::WorkingFolder { path } => Some(format!("the folder {}", path.display())),
            Self::NoProgram { program, .. } => Some(program.clone()),
            Self::NoProgramAt { path, .. } => Some(path.display().to_string()),
            Self::Check { how, said } => Some(format!(
                "what command.check asks for ({how}{})",
                saying(said.as_deref())
            )),
            Self::NoPip => Some("pip for python3".to_owned()),
            Self::NoGit => Some("git".to_owned()),
            Self::NoUv => Some("uv".to_owned()),
            // The interpreter of a script, or the loader of a program.
            Self::Start { program, source } if source.kind() == io::ErrorKind::NotFound => {
                Some(format!("what {} is started with", program.display()))
            }
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Code { .. }
            | Self::Git { .. }
            | Self::NoCommit { .. }
            | Self::KeptBelowLink { .. }
            | Self::Secrets(_)
            | Self::Requirements { .. }
            | Self::Packages { .. }
            | Self::Checkpoint(_)
            | Self::Origin { .. }
            | Self::NoCommand
            | Self::Port(_)
            | Self::Peers
            | Self::Start { .. } => None,
        }
    }

    /// Whether another node could start the program. Only a fault that no node can repair ends the
    /// job.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NoCommand
            | Self::NoCommit { .. }
            | Self::KeptBelowLink { .. }
            | Self::Requirements { .. }
            | Self::Origin { .. } => false,
            Self::Code { source, .. } => source.is_of_this_node(),
            Self::Secrets(source) => source.is_of_this_node(),
            Self::Read { .. }
            | Self::Write { .. }
            | Self::Packages { .. }
            | Self::Git { .. }
            | Self::NoGit
            | Self::Checkpoint(_)
            | Self::NoPip
            | Self::NoUv
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
