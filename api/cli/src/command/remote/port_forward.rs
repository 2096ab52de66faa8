//! `muster port-forward`: ports of a task on this machine. Each connection is one session.

use super::super::{CliSession, UsageError};
use super::{SessionTarget, printable};
use crate::output::line;
use anyhow::Context as _;
use clap::Args;
use muster_client::{ALIVE, ClientError, RemoteError, RemoteReceiver, RemoteSender};
use muster_model::remote::{RemoteAction, RemoteEnd, RemoteFrame};
use muster_model::view::JobView;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

const BLOCK_BYTES: usize = 32 << 10;

/// Forward ports of this machine to ports on which a running task listens
#[derive(Debug, Args)]
pub struct PortForwardArgs {
    /// Id or name of the job.
    job: String,
    /// Port of the task, or LOCAL:REMOTE; LOCAL 0 is any free port.
    #[arg(required = true, value_name = "[LOCAL:]REMOTE")]
    ports: Vec<PortPair>,
    /// Rank of the task.
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// Address of this machine at which to listen.
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PortPair {
    local: u16,
    remote: u16,
}

impl FromStr for PortPair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (local, remote) = text.split_once(':').unwrap_or((text, text));
        let (local, remote) = (local.parse(), remote.parse());
        match (local, remote) {
            (Ok(local), Ok(remote @ 1..)) => Ok(Self { local, remote }),
            _ => Err("expected REMOTE or LOCAL:REMOTE, such as 8888 or 9000:8888".to_owned()),
        }
    }
}

/// What the connections share.
struct Forwarder {
    session: CliSession,
    target: SessionTarget,
    /// Takes the error that no later connection can avoid.
    fatal: mpsc::Sender<anyhow::Error>,
}

impl PortForwardArgs {
    /// Forwards until it is interrupted.
    ///
    /// # Errors
    /// If a local port is taken, or the token may not open sessions in the job.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<ExitCode> {
        let target = SessionTarget::find(session, &self.job, self.rank).await?;
        if self.ports.iter().any(|pair| {
            pair.local > 0
                && self
                    .ports
                    .iter()
                    .filter(|other| other.local == pair.local)
                    .count()
                    > 1
        }) {
            let message = "two of the ports have the same local port".to_owned();
            return Err(UsageError(message).into());
        }
        let (forwarder, mut fails) = Forwarder::new(session, target);
        for pair in &self.ports {
            let listener = TcpListener::bind((self.address, pair.local)).await;
            let listener =
                listener.with_context(|| format!("listen on {}:{}", self.address, pair.local))?;
            let local = listener.local_addr()?;
            line(&format!(
                "{local} is port {} of worker-{} of {}",
                pair.remote, self.rank, forwarder.target.job.name
            ))?;
            tokio::spawn(accept(Arc::clone(&forwarder), listener, pair.remote));
        }
        match fails.recv().await {
            Some(error) => Err(error),
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

/// A forwarded port, until it is dropped with the process.
pub struct Forwarding {
    pub local: SocketAddr,
    fails: mpsc::Receiver<anyhow::Error>,
}

impl Forwarding {
    /// Forwards a port of the job's first task to 127.0.0.1; local port 0 is any free one.
    ///
    /// # Errors
    /// If the local port is taken.
    pub async fn start(
        session: &CliSession,
        job: JobView,
        local: u16,
        remote: u16,
    ) -> anyhow::Result<Self> {
        let target = SessionTarget { job, rank: 0 };
        let (forwarder, fails) = Forwarder::new(session, target);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, local)).await;
        let listener = listener.with_context(|| format!("listen on 127.0.0.1:{local}"))?;
        let local = listener.local_addr()?;
        tokio::spawn(accept(forwarder, listener, remote));
        Ok(Self { local, fails })
    }

    /// Waits for an error that no later connection can avoid.
    pub async fn failed(&mut self) -> anyhow::Error {
        let error = self.fails.recv().await;
        error.unwrap_or_else(|| anyhow::anyhow!("the port is not forwarded any more"))
    }
}

async fn accept(forwarder: Arc<Forwarder>, listener: TcpListener, remote: u16) {
    loop {
        match listener.accept().await {
            Ok((connection, _)) => {
                let forwarder = Arc::clone(&forwarder);
                tokio::spawn(async move {
                    if let Err(error) = forwarder.forward(connection, remote).await {
                        forwarder.report(error).await;
                    }
                });
            }
            Err(error) => {
                note!("muster: a connection could not be accepted: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

impl Forwarder {
    fn new(
        session: &CliSession,
        target: SessionTarget,
    ) -> (Arc<Self>, mpsc::Receiver<anyhow::Error>) {
        let (fatal, fails) = mpsc::channel(1);
        let session = CliSession {
            client: session.client.clone(),
            output: session.output,
        };
        let forwarder = Self {
            session,
            target,
            fatal,
        };
        (Arc::new(forwarder), fails)
    }

    async fn forward(&self, connection: TcpStream, port: u16) -> anyhow::Result<()> {
        let opened = self.target.open(&self.session, RemoteAction::Port { port });
        let (sender, receiver) = opened.await?;
        let _ = connection.set_nodelay(true);
        let (reader, writer) = connection.into_split();
        let end = tokio::select! {
            end = from_task(receiver, writer) => end?,
            Err(error) = to_task(reader, sender) => return Err(error.into()),
        };
        if let RemoteEnd::Failed { message } = end {
            anyhow::bail!(printable(&message));
        }
        Ok(())
    }

    async fn report(&self, error: anyhow::Error) {
        let status = error
            .downcast_ref::<ClientError>()
            .and_then(ClientError::status);
        // The next connection would meet the same refusal.
        if matches!(status, Some(401 | 403 | 404 | 501)) {
            let _ = self.fatal.try_send(error);
        } else {
            note!("muster: a connection ended: {error:#}");
        }
    }
}

async fn from_task(
    mut receiver: RemoteReceiver,
    mut writer: OwnedWriteHalf,
) -> Result<RemoteEnd, RemoteError> {
    loop {
        match receiver.next().await? {
            RemoteFrame::Output(data) => writer.write_all(&data).await?,
            RemoteFrame::OutputEnd => {
                let _ = writer.shutdown().await;
            }
            RemoteFrame::Ended(end) => return Ok(end),
            _ => {}
        }
    }
}

/// Never returns `Ok`.
async fn to_task(
    mut reader: OwnedReadHalf,
    mut sender: RemoteSender,
) -> Result<std::convert::Infallible, RemoteError> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut alive = tokio::time::interval(ALIVE);
    let mut is_open = true;
    loop {
        let frame = tokio::select! {
            read = reader.read(&mut block), if is_open => match read {
                Ok(count @ 1..) => RemoteFrame::Input(block[..count].to_vec()),
                Ok(_) => {
                    is_open = false;
                    RemoteFrame::InputEnd
                }
                Err(error) => return Err(error.into()),
            },
            _ = alive.tick() => RemoteFrame::Alive,
        };
        sender.send(&frame).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_remote_or_local_and_remote() {
        for (text, local) in [("8888", 8_888), ("9000:8888", 9_000), ("0:8888", 0)] {
            let remote = 8_888;
            assert_eq!(text.parse(), Ok(PortPair { local, remote }), "{text}");
        }
        for wrong in ["", "0", "8888:0", "a", "1:2:3", "70000"] {
            wrong.parse::<PortPair>().expect_err(wrong);
        }
    }
}
