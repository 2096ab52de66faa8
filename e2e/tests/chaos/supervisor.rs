//! Keeps daemons running as an init system does: restarts a daemon that ended, after a pause that
//! doubles.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(50);
/// In polls: 0.2 s, doubled up to 3.2 s.
const FIRST_PAUSE: u32 = 4;
const LONGEST_PAUSE: u32 = 64;
/// Polls after which a daemon counts as stable.
const STEADY: u32 = 400;
/// Polls until a stopping daemon is killed.
const STOP_PATIENCE: u32 = 600;

#[derive(Debug, Clone)]
pub struct ChaosDaemon {
    pub name: String,
    /// The program is first.
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub log: PathBuf,
    pub stop: Signal,
}

#[derive(Debug)]
pub struct DaemonSupervisor {
    state: Arc<Mutex<SupervisorState>>,
    orders: mpsc::Sender<SupervisorOrder>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct SupervisorState {
    pids: BTreeMap<String, i32>,
}

#[derive(Debug)]
enum SupervisorOrder {
    Keep(ChaosDaemon),
    /// Stops all daemons orderly, the newest first.
    Stop,
    Kill,
    /// Kills the daemon of this name, which is not restarted before `Release`.
    Hold(String, mpsc::Sender<()>),
    Release(String),
}

struct SupervisedDaemon {
    daemon: ChaosDaemon,
    child: Option<Child>,
    /// Polls since its start, or until its next one.
    looks: u32,
    pause: u32,
    is_held: bool,
}

impl DaemonSupervisor {
    /// Starts the supervisor. One thread starts all daemons and lives as long as they do, because
    /// the kernel ends a daemon with the thread that started it.
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(SupervisorState::default()));
        let (orders, received) = mpsc::channel();
        let shared = Arc::clone(&state);
        let thread = std::thread::spawn(move || supervise(&shared, &received));
        Self {
            state,
            orders,
            thread: Mutex::new(Some(thread)),
        }
    }

    pub fn keep(&self, daemon: ChaosDaemon) {
        self.orders
            .send(SupervisorOrder::Keep(daemon))
            .expect("the thread lives");
    }

    /// Returns when the daemon is gone.
    pub fn hold(&self, name: &str) {
        let (done, gone) = mpsc::channel();
        let _ = self
            .orders
            .send(SupervisorOrder::Hold(name.to_owned(), done));
        let _ = gone.recv();
    }

    pub fn release(&self, name: &str) {
        let _ = self.orders.send(SupervisorOrder::Release(name.to_owned()));
    }

    /// Process id while the daemon runs.
    pub fn pid(&self, name: &str) -> Option<i32> {
        let state = self.state.lock().expect("no panic");
        state.pids.get(name).copied()
    }

    /// Returns when all daemons have ended.
    pub fn stop(&self) {
        self.end(SupervisorOrder::Stop);
    }

    pub fn kill(&self) {
        self.end(SupervisorOrder::Kill);
    }

    fn end(&self, order: SupervisorOrder) {
        let _ = self.orders.send(order);
        if let Some(thread) = self.thread.lock().expect("no panic").take() {
            let _ = thread.join();
        }
    }
}

fn supervise(state: &Mutex<SupervisorState>, orders: &mpsc::Receiver<SupervisorOrder>) {
    let mut kept: Vec<SupervisedDaemon> = Vec::new();
    loop {
        match orders.recv_timeout(LOOK) {
            Ok(SupervisorOrder::Keep(daemon)) => kept.push(SupervisedDaemon::start(daemon)),
            Ok(SupervisorOrder::Stop) => {
                kept.iter_mut().rev().for_each(SupervisedDaemon::stop);
                break;
            }
            Ok(SupervisorOrder::Kill) | Err(mpsc::RecvTimeoutError::Disconnected) => {
                kept.iter_mut().rev().for_each(SupervisedDaemon::kill);
                break;
            }
            Ok(SupervisorOrder::Hold(name, done)) => {
                for one in kept.iter_mut().filter(|one| one.daemon.name == name) {
                    one.kill();
                    (one.child, one.is_held) = (None, true);
                }
                // The caller may have gone.
                let _ = done.send(());
            }
            Ok(SupervisorOrder::Release(name)) => {
                for one in kept.iter_mut().filter(|one| one.daemon.name == name) {
                    one.is_held = false;
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        kept.iter_mut().for_each(SupervisedDaemon::look);
        let running = kept.iter().filter_map(|one| {
            let pid = one.child.as_ref()?.id().cast_signed();
            Some((one.daemon.name.clone(), pid))
        });
        state.lock().expect("no panic").pids = running.collect();
    }
    state.lock().expect("no panic").pids.clear();
}

impl SupervisedDaemon {
    fn start(daemon: ChaosDaemon) -> Self {
        let mut kept = Self {
            daemon,
            child: None,
            looks: 0,
            pause: FIRST_PAUSE,
            is_held: false,
        };
        kept.spawn();
        kept
    }

    fn look(&mut self) {
        match &mut self.child {
            Some(child) => {
                self.looks += 1;
                if self.looks > STEADY {
                    self.pause = FIRST_PAUSE;
                }
                if let Ok(Some(_)) = child.try_wait() {
                    (self.child, self.looks) = (None, self.pause);
                    self.pause = (2 * self.pause).min(LONGEST_PAUSE);
                }
            }
            None if self.is_held => {}
            None if self.looks > 0 => self.looks -= 1,
            None => self.spawn(),
        }
    }

    fn spawn(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&self.daemon.log);
        let log = log.expect("our own folder");
        let (program, arguments) = self.daemon.arguments.split_first().expect("a program");
        let child = Command::new(program)
            .args(arguments)
            .envs(
                self.daemon
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("the same log"))
            .stderr(log)
            .spawn();
        self.looks = 0;
        self.child = Some(child.expect("nsenter is there"));
    }

    fn stop(&mut self) {
        let Some(child) = &mut self.child else { return };
        let _ = kill_process(Pid::from_child(child), self.daemon.stop);
        for _ in 0..STOP_PATIENCE {
            if let Ok(Some(_)) = child.try_wait() {
                return;
            }
            std::thread::sleep(LOOK);
        }
        eprintln!("chaos: {} did not stop and is killed", self.daemon.name);
        self.kill();
    }

    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
