//! A daemon as a child process: started, restarted after an exit, and stopped in order.
//!
//! `muster up` takes the place of the init system. In production systemd or Kubernetes does this.

use super::rotation;
use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time after which a start counts as successful and the back-off is reset.
const STEADY: Duration = Duration::from_secs(30);
const STOP_PATIENCE: Duration = Duration::from_secs(40);

/// Command of a daemon.
#[derive(Debug, Clone)]
pub struct DaemonCommand {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(String, OsString)>,
    log: PathBuf,
    account: Option<(u32, u32)>,
    stop_signal: Signal,
}

/// A running daemon. Dropping it does not stop it; call [`Supervised::stop`].
#[derive(Debug)]
pub struct Supervised {
    name: String,
    stop: watch::Sender<bool>,
    watched: JoinHandle<()>,
}

impl DaemonCommand {
    #[must_use]
    pub fn new(name: &str, program: PathBuf, log: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            program,
            args: Vec::new(),
            env: Vec::new(),
            log,
            account: None,
            stop_signal: Signal::TERM,
        }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    #[must_use]
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable. Secrets are passed this way and never on the command line.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn run_as(mut self, uid: u32, gid: u32) -> Self {
        self.account = Some((uid, gid));
        self
    }

    #[must_use]
    pub fn stop_with(mut self, signal: Signal) -> Self {
        self.stop_signal = signal;
        self
    }

    /// Starts the daemon and keeps it running.
    ///
    /// # Errors
    /// If the first start fails.
    pub fn supervise(self) -> anyhow::Result<Supervised> {
        let child = self.spawn()?;
        let (stop, stopped) = watch::channel(false);
        let name = self.name.clone();
        let watched = tokio::spawn(self.watch(child, stopped));
        Ok(Supervised {
            name,
            stop,
            watched,
        })
    }

    async fn watch(self, mut child: Child, mut stopped: watch::Receiver<bool>) {
        // Dropped at the end of this function.
        let mut beside = JoinSet::new();
        beside.spawn(rotation::keep_short(self.log.clone()));
        let mut pause = FIRST_PAUSE;
        loop {
            tokio::select! {
                () = asked(&mut stopped) => return self.end(child).await,
                // After this time the failure is not one of the start.
                () = tokio::time::sleep(STEADY), if pause != FIRST_PAUSE => {
                    pause = FIRST_PAUSE;
                    continue;
                }
                status = child.wait() => {
                    let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                    note!("{} ended ({how}); starting it again; its log: {}", self.name, self.log.display());
                }
            }
            loop {
                tokio::select! {
                    () = asked(&mut stopped) => return,
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
                match self.spawn() {
                    Ok(again) => break child = again,
                    Err(error) => note!("{} could not be started: {error:#}", self.name),
                }
            }
        }
    }

    async fn end(&self, mut child: Child) {
        if let Some(pid) = child
            .id()
            .and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
        {
            // An error means that the process has already gone.
            let _ = kill_process(pid, self.stop_signal);
        }
        if tokio::time::timeout(STOP_PATIENCE, child.wait())
            .await
            .is_err()
        {
            note!(
                "{} did not stop within {} s; killing it",
                self.name,
                STOP_PATIENCE.as_secs()
            );
            let _ = child.kill().await;
        }
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .with_context(|| format!("open {}", self.log.display()))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C in the terminal reaches only this process, which stops the daemons in order.
            .process_group(0);
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid);
        }
        let parent_died = self.stop_signal;
        // SAFETY: prctl is async-signal-safe and changes only the new process.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(parent_died))?;
                Ok(())
            });
        }
        command
            .spawn()
            .with_context(|| format!("start {} ({})", self.name, self.program.display()))
    }
}

impl Supervised {
    /// Orders the stop and waits until the process has gone.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if self.watched.await.is_err() {
            note!("{} was not watched to its end", self.name);
        }
    }
}

/// Returns when the daemon is to stop.
async fn asked(stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender has gone, which also ends the daemon.
    let _ = stopped.wait_for(|stop| *stop).await;
}
