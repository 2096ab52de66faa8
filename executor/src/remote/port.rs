//! Connection to a port on which a process of the task listens.
//!
//! Tasks share the machine's network, so a port may belong to another tenant or to a daemon. All
//! sockets that can take the connection must belong to the task, before and after it is made.

use super::attach::{FrameSender, RemoteStream};
use super::input::{self, InputSink};
use super::sockets::{Listener, listeners, sockets_of};
use super::task::RunningTask;
use super::{RemoteRefusal, RemoteSessions};
use crate::process;
use muster_model::remote::{RemoteEnd, RemoteFrame, TerminalSize};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// Size of one read.
const BLOCK_BYTES: usize = 32 << 10;
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Interval at which the end of the task is noticed.
const TASK_CHECK: Duration = Duration::from_millis(200);

/// Connects, and passes data until both sides have closed or one has left.
///
/// # Errors
/// [`RemoteRefusal::Port`] if no process of the task listens on the port.
pub async fn forward(
    task: &RunningTask,
    port: u16,
    sessions: &RemoteSessions,
    stream: &mut RemoteStream,
) -> Result<RemoteEnd, RemoteRefusal> {
    let program = Pid::from_raw(task.program.pid).ok_or(RemoteRefusal::NotRunning)?;
    let program = pidfd_open(program, PidfdFlags::empty());
    let program = program.map_err(|_| RemoteRefusal::NotRunning)?;
    let connection = connect(task, port, sessions).await?;
    let _ = connection.set_nodelay(true);
    let RemoteStream { sender, receiver } = stream;
    sender.send(RemoteFrame::Started).await;
    let (reader, writer) = connection.into_split();
    let both = async {
        tokio::join!(
            from_port(reader, sender),
            input::pass(PortInput(writer), sender, receiver, true)
        )
        .1
    };
    Ok(tokio::select! {
        end = both => end,
        () = sender.closed() => RemoteEnd::ClientGone,
        () = ended(&program) => RemoteEnd::Failed { message: "the task has ended".to_owned() },
    })
}

async fn connect(
    task: &RunningTask,
    port: u16,
    sessions: &RemoteSessions,
) -> Result<TcpStream, RemoteRefusal> {
    let targets: [IpAddr; 2] = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let mut failure = None;
    for target in targets {
        if !owned(task, port, target, sessions).await? {
            continue;
        }
        let connection = TcpStream::connect((target, port));
        match tokio::time::timeout(CONNECT_WITHIN, connection).await {
            // Another process may have taken the port meanwhile.
            Ok(Ok(connection)) if owned(task, port, target, sessions).await? => {
                return Ok(connection);
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => failure = Some(error.to_string()),
            Err(_) => failure = Some("it does not answer".to_owned()),
        }
    }
    Err(RemoteRefusal::Port(match failure {
        Some(failure) => format!("cannot connect to port {port} of the task: {failure}"),
        None => format!(
            "no process of the task listens on port {port} of 127.0.0.1; start the server in the task, or in `muster exec`"
        ),
    }))
}

/// Whether the sockets that take a connection to this address all belong to the task. `false`
/// without any.
async fn owned(
    task: &RunningTask,
    port: u16,
    target: IpAddr,
    sessions: &RemoteSessions,
) -> Result<bool, RemoteRefusal> {
    let mut roots = sessions.helpers_of(task.id);
    roots.push(task.shim.pid);
    let (found, of_task) = tokio::task::spawn_blocking(move || {
        let taking: Vec<Listener> = listeners(port)
            .into_iter()
            .filter(|listener| listener.serves(target))
            .collect();
        (taking, of_processes(&roots))
    })
    .await
    .map_err(|error| RemoteRefusal::Start(io::Error::other(error)))?;
    if found.is_empty() {
        return Ok(false);
    }
    let of_task = of_task.map_err(|source| RemoteRefusal::Read {
        what: "network",
        source,
    })?;
    if found
        .iter()
        .all(|listener| of_task.contains(&listener.inode))
    {
        return Ok(true);
    }
    Err(RemoteRefusal::Port(format!(
        "port {port} of the node belongs to a process outside of the task; only ports of the task's own processes are reachable"
    )))
}

/// Returns the sockets of all descendants of these processes.
fn of_processes(roots: &[i32]) -> io::Result<BTreeSet<u64>> {
    let own = fs::read_link("/proc/self/ns/net")?;
    let all = process::all();
    let mut pids = Vec::new();
    for root in roots {
        let descendants = process::descendants_among(&all, *root);
        // A process in another network has other sockets under the same ports.
        let is_near =
            |pid: &i32| fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|net| net == own);
        pids.extend(
            descendants
                .into_iter()
                .map(|stat| stat.id.pid)
                .filter(is_near),
        );
    }
    Ok(sockets_of(pids))
}

async fn from_port(mut reader: OwnedReadHalf, sender: &FrameSender) {
    let mut block = vec![0; BLOCK_BYTES];
    while let Ok(count @ 1..) = reader.read(&mut block).await {
        if !sender
            .send(RemoteFrame::Output(block[..count].to_vec()))
            .await
        {
            return;
        }
    }
    sender.send(RemoteFrame::OutputEnd).await;
}

/// The writing side of the connection.
struct PortInput(OwnedWriteHalf);

impl InputSink for PortInput {
    async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        self.0.write_all(data).await
    }

    async fn end(&mut self) {
        let _ = self.0.shutdown().await;
    }

    fn resize(&self, _: TerminalSize) {}
}

/// Returns once the process has ended.
async fn ended(process: &OwnedFd) {
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    loop {
        let mut watched = [PollFd::new(process, PollFlags::IN)];
        if matches!(poll(&mut watched, Some(&at_once)), Ok(1..)) {
            return;
        }
        tokio::time::sleep(TASK_CHECK).await;
    }
}
