//! Remote sessions in tasks of this node: commands, connections to ports, and copies of files.
//!
//! The scheduler orders a session in the node's session. The executor then opens a stream of its
//! own connection, so that data of users never delays heartbeats. A helper process enters the task
//! and runs the command; this daemon only passes frames.

mod attach;
pub mod helper;
mod input;
mod port;
mod program;
mod session_use;
mod sockets;
mod task;
mod terminal;

use crate::config::{ExecutorConfig, RuntimeKind};
use crate::process::ProcessId;
use crate::session::Endpoints;
use attach::{Attachment, RemoteStream};
use muster_model::id::TaskId;
use muster_model::remote::{RemoteAction, RemoteEnd, RemoteFrame};
use muster_proto::session::OpenRemote;
use program::Program;
use session_use::{SessionUse, SessionUseByTask};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use task::RunningTask;
use tokio::sync::Semaphore;

/// Maximum number of sessions of the node.
const MAX_SESSIONS: usize = 32;

/// Opens sessions. Cheap to clone.
#[derive(Clone)]
pub struct RemoteSessions {
    inner: Arc<RemoteState>,
}

struct RemoteState {
    config: ExecutorConfig,
    endpoints: Endpoints,
    credential: String,
    places: Semaphore,
    /// Helpers of open sessions. Their descendants count as processes of the task.
    helpers: Mutex<BTreeSet<(TaskId, i32)>>,
    used: SessionUseByTask,
}

/// Why a session does not start. The user reads it.
#[derive(Debug, thiserror::Error)]
pub enum RemoteRefusal {
    #[error("the order of the scheduler is not understood: {0}")]
    Order(String),
    #[error("{MAX_SESSIONS} remote sessions are open on the node, which is the limit")]
    Full,
    #[error(
        "the task runs in the pod {pod}, which this node cannot enter; use `kubectl {verb} -n {namespace} {rest}`"
    )]
    Pod {
        pod: String,
        namespace: String,
        verb: &'static str,
        rest: String,
    },
    #[error("the task does not run on the node any more")]
    NotRunning,
    #[error("cannot read the task's {what}: {source}")]
    Read {
        what: &'static str,
        #[source]
        source: std::io::Error,
    },
    #[error("cannot start the session: {0}")]
    Start(#[source] std::io::Error),
    #[error("{0}")]
    Port(String),
}

impl fmt::Debug for RemoteSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteSessions").finish_non_exhaustive()
    }
}

impl RemoteSessions {
    #[must_use]
    pub fn new(config: &ExecutorConfig, endpoints: Endpoints, credential: &str) -> Self {
        Self {
            inner: Arc::new(RemoteState {
                config: config.clone(),
                endpoints,
                credential: credential.to_owned(),
                places: Semaphore::new(MAX_SESSIONS),
                helpers: Mutex::default(),
                used: SessionUseByTask::default(),
            }),
        }
    }

    /// Carries out an order of the scheduler, without waiting.
    pub fn open(&self, order: OpenRemote) {
        let sessions = self.clone();
        tokio::spawn(async move { sessions.carry_out(order).await });
    }

    async fn carry_out(&self, order: OpenRemote) {
        let state = &self.inner;
        let attachment = Attachment {
            endpoints: &state.endpoints,
            node_name: &state.config.node_name,
            credential: &state.credential,
            order: &order,
            used: self.use_of(&order),
        };
        let mut stream = match attachment.open().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(session.id = order.session_id, %error, "a remote session is not attached");
                return;
            }
        };
        tracing::info!(
            session.id = order.session_id,
            task.id = order.task_id,
            "a remote session begins"
        );
        let longest = Duration::from_millis(order.longest_ms);
        let ended = tokio::select! {
            ended = self.run(&order, &mut stream) => ended,
            () = tokio::time::sleep(longest) => Ok(RemoteEnd::Failed {
                message: "the session has reached its longest duration".to_owned(),
            }),
        };
        let end = ended.unwrap_or_else(|refusal| RemoteEnd::Failed {
            message: refusal.to_string(),
        });
        tracing::info!(session.id = order.session_id, %end, "a remote session ends");
        let _ = stream.sender.send(RemoteFrame::Ended(end)).await;
        stream.drained().await;
    }

    async fn run(
        &self,
        order: &OpenRemote,
        stream: &mut RemoteStream,
    ) -> Result<RemoteEnd, RemoteRefusal> {
        let state = &self.inner;
        let _place = state
            .places
            .try_acquire()
            .map_err(|_| RemoteRefusal::Full)?;
        let id = order.task_id.parse::<TaskId>().map_err(wrong)?;
        let action = serde_json::from_str::<RemoteAction>(&order.action_json).map_err(wrong)?;
        if state.config.runtime == RuntimeKind::Pod {
            return Err(self.in_pod(id, &action));
        }
        let task = RunningTask::find(&state.config, id)?;
        let session = async {
            match &action {
                RemoteAction::Port { port } => port::forward(&task, *port, self, stream).await,
                RemoteAction::Exec { .. }
                | RemoteAction::Read { .. }
                | RemoteAction::Write { .. } => {
                    Program::start(&task, &action)?.run(self, id, stream).await
                }
            }
        };
        tokio::select! {
            biased;
            () = task.suspended() => Ok(RemoteEnd::Failed {
                message: "the task is suspended".to_owned(),
            }),
            end = session => end,
        }
    }

    fn in_pod(&self, id: TaskId, action: &RemoteAction) -> RemoteRefusal {
        let pod = format!("muster-{id}");
        let namespace = &self.inner.config.pod_namespace;
        let namespace = namespace.clone().unwrap_or_else(|| "NAMESPACE".to_owned());
        let (verb, rest) = match action {
            RemoteAction::Exec { command, terminal } => {
                let terminal = if terminal.is_some() { "-it " } else { "" };
                let command: Vec<_> = command.iter().map(|word| quoted(word)).collect();
                ("exec", format!("{terminal}{pod} -- {}", command.join(" ")))
            }
            RemoteAction::Port { port } => ("port-forward", format!("{pod} {port}")),
            RemoteAction::Read { path } => {
                ("cp", format!("{} LOCAL", quoted(&format!("{pod}:{path}"))))
            }
            RemoteAction::Write { path } => {
                ("cp", format!("LOCAL {}", quoted(&format!("{pod}:{path}"))))
            }
        };
        RemoteRefusal::Pod {
            pod,
            namespace,
            verb,
            rest,
        }
    }

    /// Registers a helper until the result is dropped.
    fn register(&self, task: TaskId, helper: ProcessId) -> RegisteredHelper<'_> {
        self.helpers().insert((task, helper.pid));
        RegisteredHelper {
            sessions: self,
            key: (task, helper.pid),
        }
    }

    fn use_of(&self, order: &OpenRemote) -> SessionUse {
        let task = order.task_id.parse::<TaskId>().ok();
        task.map_or_else(SessionUse::default, |task| self.inner.used.of(task))
    }

    /// Returns the time at which a session in this task last carried data, on the clock of the
    /// lease.
    pub(crate) fn used_ms(&self, task: TaskId) -> Option<u64> {
        self.inner.used.last_ms(task)
    }

    /// Forgets the use of sessions in all tasks but these.
    pub(crate) fn keep_use_of(&self, tasks: &BTreeSet<TaskId>) {
        self.inner.used.keep(tasks);
    }

    /// Returns the helpers in this task.
    pub(crate) fn helpers_of(&self, task: TaskId) -> Vec<i32> {
        let helpers = self.helpers();
        let of_task = helpers.range((task, i32::MIN)..=(task, i32::MAX));
        of_task.map(|(_, pid)| *pid).collect()
    }

    fn helpers(&self) -> MutexGuard<'_, BTreeSet<(TaskId, i32)>> {
        let helpers = &self.inner.helpers;
        helpers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a shell gives the character no meaning.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./:=,@%+".contains(&byte)
}

/// Returns a word as a shell takes it.
fn quoted(word: &str) -> String {
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

fn wrong(error: impl fmt::Display) -> RemoteRefusal {
    RemoteRefusal::Order(error.to_string())
}

struct RegisteredHelper<'s> {
    sessions: &'s RemoteSessions,
    key: (TaskId, i32),
}

impl Drop for RegisteredHelper<'_> {
    fn drop(&mut self) {
        self.sessions.helpers().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_for_shells() {
        assert_eq!(quoted("runs/a.log"), "runs/a.log");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b; $(c)"), "'a b; $(c)'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
