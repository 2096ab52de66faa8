//! `muster exec`: runs a command in a task.

use super::super::{CliSession, UsageError};
use super::terminal::RawTerminal;
use super::{BROKEN, SessionTarget, printable};
use clap::Args;
use muster_client::{ALIVE, RemoteError, RemoteReceiver, RemoteSender};
use muster_model::remote::{RemoteAction, RemoteEnd, RemoteFrame, Terminal};
use std::io::Read as _;
use std::process::ExitCode;
use std::thread;
use tokio::io::AsyncWriteExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

/// Size of one read of the input.
const BLOCK_BYTES: usize = 32 << 10;
/// Blocks of input that wait for the connection.
const QUEUE: usize = 2;
/// Base of exit codes of killed commands, as in shells.
const SIGNALLED: i32 = 128;

/// Run a command in a running task of a job, with the user, environment, folder and limits of its
/// program
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Id or name of the job.
    job: String,
    /// Rank of the task.
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// Pass the standard input to the command.
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Give the command a terminal; for shells with -i.
    #[arg(short = 't', long)]
    tty: bool,
    /// Program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

impl ExecArgs {
    /// Returns the exit code of the command; 128 + N if signal N killed it.
    ///
    /// # Errors
    /// If the session does not start.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<ExitCode> {
        let target = SessionTarget::find(session, &self.job, self.rank).await?;
        let (terminal, size) = if self.tty {
            let Some(size) = RawTerminal::size() else {
                let message = "the standard input is no terminal; leave out -t";
                return Err(UsageError(message.to_owned()).into());
            };
            let name = std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned());
            (Some(Terminal { name, size }), Some(size))
        } else {
            (None, None)
        };
        let action = RemoteAction::Exec {
            command: self.command,
            terminal,
        };
        let (sender, receiver) = target.open(session, action).await?;
        let raw = size.map(|_| RawTerminal::enter()).transpose()?;
        let resizes = size
            .map(|_| signal(SignalKind::window_change()))
            .transpose()?;
        let input = self.stdin.then(read_input);
        let ended = tokio::select! {
            ended = receive(receiver) => ended,
            Err(error) = pass(sender, input, resizes) => Err(error.into()),
        };
        drop(raw);
        match ended {
            Ok(end) => Ok(exit_code(&end)),
            Err(error) => {
                note!("muster: the session broke: {error:#}");
                Ok(ExitCode::from(BROKEN))
            }
        }
    }
}

fn exit_code(end: &RemoteEnd) -> ExitCode {
    let code = match end {
        RemoteEnd::Exited { code } => *code,
        RemoteEnd::Signalled { signal } => SIGNALLED + signal,
        RemoteEnd::Closed => 0,
        RemoteEnd::ClientGone | RemoteEnd::Failed { .. } => {
            note!("muster: the session ended: {}", printable(&end.to_string()));
            return ExitCode::from(BROKEN);
        }
    };
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(BROKEN))
}

/// Reads the standard input on a thread of its own, which does not delay the end of this process.
fn read_input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut block = vec![0; BLOCK_BYTES];
        while let Ok(count @ 1..) = input.read(&mut block) {
            if sender.blocking_send(block[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Sends input and sizes of the terminal. Never returns `Ok`.
async fn pass(
    mut sender: RemoteSender,
    mut input: Option<mpsc::Receiver<Vec<u8>>>,
    mut resizes: Option<Signal>,
) -> Result<std::convert::Infallible, RemoteError> {
    if input.is_none() {
        sender.send(&RemoteFrame::InputEnd).await?;
    }
    let mut alive = tokio::time::interval(ALIVE);
    loop {
        let frame = tokio::select! {
            block = next(&mut input) => match block {
                Some(block) => RemoteFrame::Input(block),
                None => {
                    input = None;
                    RemoteFrame::InputEnd
                }
            },
            () = resized(&mut resizes) => match RawTerminal::size() {
                Some(size) => RemoteFrame::Resize(size),
                None => continue,
            },
            _ = alive.tick() => RemoteFrame::Alive,
        };
        sender.send(&frame).await?;
    }
}

/// Next block of the input, or its end once.
async fn next(input: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match input {
        Some(input) => input.recv().await,
        None => std::future::pending().await,
    }
}

async fn resized(resizes: &mut Option<Signal>) {
    match resizes {
        Some(resizes) => drop(resizes.recv().await),
        None => std::future::pending().await,
    }
}

/// Prints the output, and returns the end of the command.
async fn receive(mut receiver: RemoteReceiver) -> anyhow::Result<RemoteEnd> {
    let (mut output, mut errors) = (tokio::io::stdout(), tokio::io::stderr());
    loop {
        match receiver.next().await? {
            RemoteFrame::Output(data) => {
                output.write_all(&data).await?;
                output.flush().await?;
            }
            RemoteFrame::Errors(data) => {
                errors.write_all(&data).await?;
                errors.flush().await?;
            }
            RemoteFrame::Ended(end) => return Ok(end),
            _ => {}
        }
    }
}
