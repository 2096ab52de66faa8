//! `muster exec`, `port-forward` and `cp`: remote sessions in a running task.

pub mod cp;
pub mod exec;
pub mod port_forward;
mod terminal;

use super::{CliSession, resolve_job};
use muster_client::{RemoteReceiver, RemoteSender};
use muster_model::remote::{NewRemoteSession, RemoteAction};
use muster_model::view::JobView;

/// Exit code if the session broke after the command had started.
const BROKEN: u8 = 255;

/// Returns a text of the node without control characters, which the terminal would interpret.
fn printable(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}")
}

/// Task in which a session runs.
#[derive(Debug, Clone)]
struct SessionTarget {
    job: JobView,
    rank: u32,
}

impl SessionTarget {
    /// # Errors
    /// If the name is ambiguous or unknown, or the server was not reached.
    async fn find(session: &CliSession, named: &str, rank: u32) -> anyhow::Result<Self> {
        let job = resolve_job::job(session, named, "open a session").await?;
        Ok(Self { job, rank })
    }

    /// # Errors
    /// If the server refuses.
    async fn open(
        &self,
        session: &CliSession,
        action: RemoteAction,
    ) -> anyhow::Result<(RemoteSender, RemoteReceiver)> {
        let new = NewRemoteSession {
            rank: self.rank,
            action,
        };
        Ok(session.client.open_session(self.job.id, &new).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn control_characters_are_not_printed() {
        let text = printable("a\u{1b}[2Jb\r\u{9b}\nä");
        assert_eq!(text, "a\u{fffd}[2Jb\u{fffd}\u{fffd}\nä");
    }
}
