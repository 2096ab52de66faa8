//! `muster notebook`: starts an interactive job, forwards its port and prints its address.
//!
//! The token of Jupyter is made in the task and read from its log. It is in no document.

use super::interrupted::{ChoiceWords, Interrupted};
use super::remote::port_forward::Forwarding;
use super::run::RunArgs;
use super::{CliSession, wait};
use crate::output::line;
use clap::Args;
use futures::StreamExt as _;
use muster_client::{ClientError, Messages, StreamItem};
use muster_model::id::JobId;
use muster_model::job::JobPhase;
use muster_model::remote::{NewRemoteSession, RemoteAction};
use muster_model::view::JobView;
use std::collections::VecDeque;
use std::process::ExitCode;

const TASK: &str = "worker-0";
const NAME: &str = "notebook";
/// Answers after Ctrl-C.
const WORDS: ChoiceWords = ChoiceWords {
    leave: "leave",
    end: "end",
};
/// Lines of the output that are shown if the program ends before it listens.
const TOLD_LINES: usize = 20;
/// Beginning of an address in the output of a server.
const SCHEMES: [&str; 2] = ["http://", "https://"];
/// Hosts that stand for the machine of the program itself.
const OWN_HOSTS: [&str; 5] = ["127.0.0.1", "localhost", "0.0.0.0", "[::]", "[::1]"];

/// Start a notebook or another server to work in, and forward its port. The job ends after a time
/// without use
///
/// Without a program, the job runs `jupyter lab`. Give it by an image or by --requirements if the
/// nodes lack it.
#[derive(Debug, Args)]
#[command(
    mut_arg("argv", |arg| arg.required(false)),
    mut_arg("workers", |arg| arg.hide(true)),
    mut_arg("array", |arg| arg.hide(true)),
    mut_arg("study", |arg| arg.hide(true)),
)]
pub struct NotebookArgs {
    /// Minutes without use after which the job ends.
    #[arg(long, value_name = "MINUTES", default_value_t = 60.0)]
    idle_minutes: f64,
    /// Port on which the program listens [default: from the address that it prints].
    #[arg(long)]
    port: Option<u16>,
    /// Port of this machine; 0 for any free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    local_port: u16,
    #[command(flatten)]
    run: RunArgs,
}

/// Where the program listens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServerAddress {
    scheme: &'static str,
    port: u16,
    /// Path with the token.
    path: String,
}

/// The job while it starts and runs.
struct Notebook<'s> {
    session: &'s CliSession,
    job: JobView,
    changes: Messages,
    log: Messages,
    log_ended: bool,
    output: NewestLines,
    phase: String,
}

/// The newest lines of the output, and the rest without a line end.
#[derive(Debug, Default)]
struct NewestLines {
    lines: VecDeque<String>,
    rest: String,
}

impl NotebookArgs {
    /// # Errors
    /// If the server refuses the document, or sessions of the tenant are refused.
    pub async fn run(mut self, session: &CliSession) -> anyhow::Result<ExitCode> {
        let is_jupyter = self.run.work_in(NAME, self.idle_minutes)?;
        let is_detached = self.run.is_detached();
        let Some(job) = self.run.submit(session).await? else {
            return Ok(ExitCode::SUCCESS);
        };
        check_sessions(session, &job).await?;
        let name = job.name.clone();
        note!("muster: job {name} ({}) submitted", job.id);
        if is_detached {
            note!("muster: muster logs {name} shows its address; muster port-forward {name} PORT");
            return Ok(ExitCode::SUCCESS);
        }
        let mut notebook = Notebook {
            session,
            changes: session.client.watch_job(job.id, None),
            log: session.client.follow_place(job.id, TASK, None),
            log_ended: false,
            output: NewestLines::default(),
            phase: String::new(),
            job,
        };
        let address = tokio::select! {
            found = notebook.address(self.port) => found?,
            pressed = tokio::signal::ctrl_c() => {
                pressed?;
                note!("muster: job {name} stays; muster cancel {name} ends it");
                return Ok(ExitCode::SUCCESS);
            }
        };
        let Some(address) = address else {
            return notebook.ended_early(is_jupyter);
        };
        notebook.serve(&address, self.local_port).await
    }
}

/// Ends the job again if the tenant's rules refuse sessions: its port could not be reached.
async fn check_sessions(session: &CliSession, job: &JobView) -> anyhow::Result<()> {
    let probe = NewRemoteSession {
        rank: 0,
        action: RemoteAction::Port { port: 1 },
    };
    let Err(error) = session.client.open_session(job.id, &probe).await else {
        return Ok(());
    };
    // The job does not run yet, which the server checks last.
    if !matches!(error.status(), Some(401 | 403 | 404 | 501)) {
        return Ok(());
    }
    session.client.cancel(job.id).await?;
    Err(anyhow::Error::from(error)
        .context("the notebook was cancelled, because its port cannot be reached"))
}

impl Notebook<'_> {
    /// Returns the address at which the program listens; `None` if the job ended before. With a
    /// port, the address does not depend on the output.
    async fn address(&mut self, port: Option<u16>) -> anyhow::Result<Option<ServerAddress>> {
        self.read_job().await?;
        loop {
            if self.job.phase.is_terminal() {
                return Ok(None);
            }
            if let Some(port) = port.filter(|_| self.job.phase == JobPhase::Running) {
                return Ok(Some(ServerAddress {
                    scheme: SCHEMES[0],
                    port,
                    path: "/".to_owned(),
                }));
            }
            tokio::select! {
                item = self.log.next(), if !self.log_ended => match item.transpose()? {
                    Some(StreamItem::Log(piece)) => {
                        let found = self.output.take(&piece.text);
                        if let Some(found) = found.filter(|_| port.is_none()) {
                            return Ok(Some(found));
                        }
                    }
                    Some(StreamItem::End(_)) | None => self.log_ended = true,
                    Some(_) => {}
                },
                changed = changed(self.session, self.job.id, &mut self.changes) => {
                    changed?;
                    self.read_job().await?;
                }
            }
        }
    }

    /// Reads the job, and prints its phase if that is new.
    async fn read_job(&mut self) -> Result<(), ClientError> {
        self.job = wait::read(self.session, self.job.id).await?;
        let phase = wait::phase_line(&self.job);
        if phase != self.phase {
            note!("muster: {phase}");
            self.phase = phase;
        }
        Ok(())
    }

    /// Prints why the job ended before its program listened.
    fn ended_early(&self, is_jupyter: bool) -> anyhow::Result<ExitCode> {
        for told in &self.output.lines {
            note!("{told}");
        }
        note!("muster: {}", wait::ending(&self.job));
        if is_jupyter {
            note!(
                "muster: if the nodes lack jupyter, give it by --image IMAGE, or by --requirements FILE with jupyterlab in it"
            );
        }
        Ok(wait::exit_code(self.job.phase))
    }

    /// Forwards the port until the job ends or the user leaves.
    async fn serve(mut self, address: &ServerAddress, local_port: u16) -> anyhow::Result<ExitCode> {
        let job = self.job.clone();
        let mut forwarding = Forwarding::start(self.session, job, local_port, address.port).await?;
        let (local, name) = (forwarding.local, self.job.name.clone());
        line(&format!("{}{local}{}", address.scheme, address.path))?;
        if let Some(interactive) = self.job.spec.interactive {
            note!(
                "muster: {name} ends after {} minutes without use; Ctrl-C stops the forwarding",
                interactive.idle_minutes
            );
        }
        loop {
            tokio::select! {
                error = forwarding.failed() => return Err(error),
                changed = changed(self.session, self.job.id, &mut self.changes) => {
                    changed?;
                    self.read_job().await?;
                    if self.job.phase.is_terminal() {
                        note!("muster: {}", wait::ending(&self.job));
                        return Ok(wait::exit_code(self.job.phase));
                    }
                }
                pressed = tokio::signal::ctrl_c() => {
                    pressed?;
                    let question = format!(
                        "\nmuster: leave {name} running (l), end it (e), or continue to forward (Enter)? "
                    );
                    match WORDS.ask(&question)? {
                        Interrupted::Continue => {}
                        Interrupted::End => {
                            self.session.client.cancel(self.job.id).await?;
                            note!("muster: {name} ends");
                            return Ok(ExitCode::SUCCESS);
                        }
                        Interrupted::Leave => {
                            note!(
                                "muster: {name} continues; muster port-forward {name} {} reaches it, muster cancel {name} ends it",
                                address.port
                            );
                            return Ok(ExitCode::SUCCESS);
                        }
                    }
                }
            }
        }
    }
}

/// Waits for an event of the job. A stream that has ended is opened again.
async fn changed(
    session: &CliSession,
    job: JobId,
    changes: &mut Messages,
) -> Result<(), ClientError> {
    loop {
        match changes.next().await.transpose()? {
            Some(StreamItem::Event(_) | StreamItem::Opened(_)) => return Ok(()),
            Some(_) => {}
            None => *changes = session.client.watch_job(job, None),
        }
    }
}

impl NewestLines {
    /// Adds output. Returns the first address in its whole lines.
    fn take(&mut self, text: &str) -> Option<ServerAddress> {
        self.rest.push_str(text);
        let mut found = None;
        while let Some(end) = self.rest.find('\n') {
            let rest = self.rest.split_off(end + 1);
            let whole = std::mem::replace(&mut self.rest, rest);
            let whole = whole.trim_end().to_owned();
            found = found.or_else(|| address_in(&whole));
            self.lines.push_back(whole);
            if self.lines.len() > TOLD_LINES {
                self.lines.pop_front();
            }
        }
        found
    }
}

/// Returns the address of the program's own machine in a line.
fn address_in(text: &str) -> Option<ServerAddress> {
    text.split_ascii_whitespace().find_map(|word| {
        let word = word.trim_matches(|c: char| "()<>[],.'\"".contains(c) && c != '[');
        let (scheme, rest) = SCHEMES
            .into_iter()
            .find_map(|scheme| Some((scheme, &word[word.find(scheme)? + scheme.len()..])))?;
        let host = OWN_HOSTS.into_iter().find(|host| rest.starts_with(host))?;
        let rest = rest[host.len()..].strip_prefix(':')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (port, path) = rest.split_at(digits);
        let port = port.parse().ok().filter(|port| *port > 0)?;
        // The address is printed in a terminal.
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic());
        is_plain.then(|| ServerAddress {
            scheme,
            port,
            path: if path.is_empty() { "/" } else { path }.to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(port: u16, path: &str) -> Option<ServerAddress> {
        let (scheme, path) = (SCHEMES[0], path.to_owned());
        Some(ServerAddress { scheme, port, path })
    }

    #[test]
    fn address_is_found_in_the_output_of_servers() {
        for (text, expected) in [
            (
                "    http://127.0.0.1:8888/lab?token=abc",
                of(8888, "/lab?token=abc"),
            ),
            (
                "[I 2026] http://localhost:8889/lab?token=x",
                of(8889, "/lab?token=x"),
            ),
            (
                "Serving HTTP on 0.0.0.0 port 8000 (http://0.0.0.0:8000/) ...",
                of(8000, "/"),
            ),
            ("listening on http://[::]:9000", of(9000, "/")),
            ("see https://example.org:8888/docs", None),
            ("http://127.0.0.1/lab", None),
            ("http://127.0.0.1:0/", None),
            ("http://127.0.0.1:8888/\u{1b}[2J", None),
        ] {
            assert_eq!(address_in(text), expected, "{text}");
        }
    }

    #[test]
    fn address_in_pieces_is_found_once_its_line_ends() {
        let mut output = NewestLines::default();
        assert_eq!(output.take("a\nhttp://127.0.0.1:8888/lab?tok"), None);
        assert_eq!(output.take("en=1\nb"), of(8888, "/lab?token=1"));
        assert_eq!(output.lines.len(), 2);
    }
}
