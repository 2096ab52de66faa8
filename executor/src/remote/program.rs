//! A command or a copy in a task: starts the helper, and passes its input and output.

use super::attach::{FrameReceiver, FrameSender, RemoteStream};
use super::helper::{STARTED, arguments};
use super::input::{self, InputSink};
use super::task::RunningTask;
use super::terminal::{self, TerminalMaster};
use super::{RemoteRefusal, RemoteSessions};
use crate::process::ProcessId;
use muster_model::id::TaskId;
use muster_model::remote::{RemoteAction, RemoteEnd, RemoteFrame, TerminalSize};
use rustix::io::{FdFlags, fcntl_setfd};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, Command};

/// Size of one read of the output.
const BLOCK_BYTES: usize = 32 << 10;
/// Time for the helper to kill its processes.
const HELPER_ENDS_WITHIN: Duration = Duration::from_secs(15);

/// A started helper.
pub struct Program {
    helper: Child,
    control: UnixStream,
    console: Console,
}

/// Input and output of the helper.
enum Console {
    Pipes,
    Terminal(TerminalMaster),
}

impl Program {
    /// # Errors
    /// [`RemoteRefusal::Start`].
    pub fn start(task: &RunningTask, action: &RemoteAction) -> Result<Self, RemoteRefusal> {
        Self::try_start(task, action).map_err(RemoteRefusal::Start)
    }

    fn try_start(task: &RunningTask, action: &RemoteAction) -> io::Result<Self> {
        let (control, of_helper) = StdUnixStream::pair()?;
        control.set_nonblocking(true)?;
        let of_helper = OwnedFd::from(of_helper);
        // Not by path: an upgrade may have replaced or removed the program.
        let mut command = Command::new("/proc/self/exe");
        command.env_clear();
        command.args(arguments(task, action, of_helper.as_raw_fd()));
        let terminal = match action {
            RemoteAction::Exec { terminal, .. } => terminal.as_ref(),
            _ => None,
        };
        let console = match terminal {
            Some(wanted) => {
                let (master, program) = terminal::open(task.user, wanted.size)?;
                command.stdin(Stdio::from(program.try_clone()?));
                command.stdout(Stdio::from(program.try_clone()?));
                command.stderr(Stdio::from(program));
                Console::Terminal(master)
            }
            None => {
                command.stdin(Stdio::piped());
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                Console::Pipes
            }
        };
        let inherit = move || Ok(fcntl_setfd(&of_helper, FdFlags::empty())?);
        // SAFETY: between fork and exec only async-signal-safe calls are allowed. `inherit` makes
        // one plain system call on a descriptor made before the fork.
        unsafe { command.pre_exec(inherit) };
        let helper = command.spawn()?;
        // The command holds copies of the descriptors of the helper.
        drop(command);
        Ok(Self {
            helper,
            control: UnixStream::from_std(control)?,
            console,
        })
    }

    /// Passes frames until the command has ended or the client has left. No process of the session
    /// is left afterwards.
    ///
    /// # Errors
    /// [`RemoteRefusal::Start`] if the helper failed before the command started.
    pub async fn run(
        self,
        sessions: &RemoteSessions,
        task: TaskId,
        stream: &mut RemoteStream,
    ) -> Result<RemoteEnd, RemoteRefusal> {
        let Self {
            mut helper,
            control,
            console,
        } = self;
        let pid = helper.id().and_then(|pid| i32::try_from(pid).ok());
        let known = pid.and_then(ProcessId::of);
        let _registered = known.map(|helper| sessions.register(task, helper));
        let mut control = Control(BufReader::new(control));
        let RemoteStream { sender, receiver } = stream;
        let end = tokio::select! {
            end = carry_out(&mut helper, &mut control, &console, sender, receiver) => end,
            // Also while the input of the command is blocked.
            () = sender.closed() => Ok(RemoteEnd::ClientGone),
        };
        // The helper notices it, and kills what is left.
        drop(control);
        let _ = tokio::time::timeout(HELPER_ENDS_WITHIN, helper.wait()).await;
        end.map_err(RemoteRefusal::Start)
    }
}

async fn carry_out(
    helper: &mut Child,
    control: &mut Control,
    console: &Console,
    sender: &FrameSender,
    receiver: &mut FrameReceiver,
) -> io::Result<RemoteEnd> {
    if let ControlMessage::Ended(end) = control.next().await? {
        return Ok(end);
    }
    sender.send(RemoteFrame::Started).await;
    let stdin = helper.stdin.take();
    let (stdout, stderr) = (helper.stdout.take(), helper.stderr.take());
    let output = async {
        match console {
            Console::Terminal(master) => from_terminal(master, sender).await,
            Console::Pipes => {
                let output = copy(stdout, sender, RemoteFrame::Output);
                let errors = copy(stderr, sender, RemoteFrame::Errors);
                tokio::join!(output, errors);
            }
        }
    };
    let ended = async {
        loop {
            if let ControlMessage::Ended(end) = control.next().await? {
                return Ok(end);
            }
        }
    };
    let input = match console {
        Console::Terminal(master) => CommandInput::Terminal(master),
        Console::Pipes => CommandInput::Pipe(stdin),
    };
    // The end of the command ends its output, because the helper has killed all processes.
    let whole = async { tokio::join!(ended, output).0 };
    tokio::select! {
        end = whole => end,
        end = input::pass(input, sender, receiver, false) => Ok(end),
    }
}

/// Messages of the helper, one per line.
struct Control(BufReader<UnixStream>);

enum ControlMessage {
    Started,
    Ended(RemoteEnd),
}

impl Control {
    async fn next(&mut self) -> io::Result<ControlMessage> {
        let mut line = String::new();
        if self.0.read_line(&mut line).await? == 0 {
            return Err(io::Error::other("its helper was killed"));
        }
        if line.trim_end() == STARTED {
            return Ok(ControlMessage::Started);
        }
        Ok(ControlMessage::Ended(serde_json::from_str(&line)?))
    }
}

async fn from_terminal(master: &TerminalMaster, sender: &FrameSender) {
    let mut block = vec![0; BLOCK_BYTES];
    while let Ok(count @ 1..) = master.read(&mut block).await {
        if !sender
            .send(RemoteFrame::Output(block[..count].to_vec()))
            .await
        {
            return;
        }
    }
}

async fn copy(
    from: Option<impl AsyncRead + Unpin>,
    sender: &FrameSender,
    frame: fn(Vec<u8>) -> RemoteFrame,
) {
    let Some(mut from) = from else { return };
    let mut block = vec![0; BLOCK_BYTES];
    while let Ok(count @ 1..) = from.read(&mut block).await {
        if !sender.send(frame(block[..count].to_vec())).await {
            return;
        }
    }
}

/// Standard input of the command.
enum CommandInput<'c> {
    Terminal(&'c TerminalMaster),
    Pipe(Option<ChildStdin>),
}

impl InputSink for CommandInput<'_> {
    async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        let written = match self {
            Self::Terminal(master) => return master.write_all(data).await,
            Self::Pipe(Some(pipe)) => pipe.write_all(data).await,
            Self::Pipe(None) => return Err(io::ErrorKind::BrokenPipe.into()),
        };
        if written.is_err() {
            *self = Self::Pipe(None);
        }
        written
    }

    async fn end(&mut self) {
        if let Self::Pipe(pipe) = self {
            *pipe = None;
        }
    }

    fn resize(&self, size: TerminalSize) {
        if let Self::Terminal(master) = self {
            let _ = master.resize(size);
        }
    }
}
