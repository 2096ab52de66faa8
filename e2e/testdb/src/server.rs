//! One running Postgres, reachable only by a socket in its own folder.

use crate::{files, programs};
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use std::fmt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;
use tempfile::TempDir;

const POLL: Duration = Duration::from_millis(10);
const POLLS: u32 = 6_000;
const SOCKET: &str = ".s.PGSQL.5432";

/// Durability of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresDurability {
    /// Data survives a crash of Postgres, but not of the machine, which suffices for tests.
    OutlivesProcess,
    /// Every commit is on disk before it is acknowledged: Postgres' defaults, as `muster up` runs
    /// it.
    OutlivesMachine,
}

/// Server and its folder, which contains `data`, the socket and the server's log.
pub struct PostgresServer {
    child: Mutex<Child>,
    folder: TempDir,
    durability: PostgresDurability,
}

impl PostgresServer {
    /// Starts a server on a copy of a data folder.
    pub fn start_copy(template: &Path) -> Self {
        let folder = files::folder();
        files::copy(template, &folder.path().join("data"));
        Self::start(folder, PostgresDurability::OutlivesProcess)
    }

    /// Starts a server on the folder `data` in `folder`.
    pub fn start(folder: TempDir, durability: PostgresDurability) -> Self {
        let child = start(folder.path(), durability);
        Self {
            child: Mutex::new(child),
            folder,
            durability,
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join(SOCKET)
    }

    pub fn url(&self, user: &str, database: &str) -> String {
        format!(
            "postgres://{user}@localhost/{database}?host={}",
            self.folder.path().display()
        )
    }

    pub fn crash_and_restart(&self) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.kill().expect("kill Postgres");
        child.wait().expect("wait for Postgres");
        *child = start(self.folder.path(), self.durability);
    }

    /// Stops the server orderly, calls `change` with its data folder, and starts it again.
    pub fn while_stopped(&self, change: impl FnOnce(&Path)) {
        self.end(Signal::INT);
        change(&self.folder.path().join("data"));
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        *child = start(self.folder.path(), self.durability);
    }

    /// Stops the server orderly, so that its data folder can be copied.
    pub fn stop(&self) {
        self.end(Signal::INT);
    }

    fn end(&self, signal: Signal) {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(None) = child.try_wait() {
            kill_process(Pid::from_child(&child), signal).expect("signal Postgres");
            child.wait().expect("wait for Postgres");
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // At once: the folder is removed next.
        self.end(Signal::QUIT);
    }
}

impl fmt::Debug for PostgresServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("folder", &self.folder.path())
            .finish_non_exhaustive()
    }
}

/// Starts a server and waits until it accepts connections.
fn start(folder: &Path, durability: PostgresDurability) -> Child {
    let mut child = spawn(command(folder, durability));
    let socket = folder.join(SOCKET);
    for _ in 0..POLLS {
        if let Some(ended) = child.try_wait().expect("wait for Postgres") {
            // After a crash, children of the previous server hold its shared memory until they end
            // by themselves.
            assert!(
                is_occupied(folder),
                "Postgres ended with {ended}; its log: {}",
                log(folder)
            );
            child = spawn(command(folder, durability));
        }
        // The last line of the pid file is `ready` after the recovery.
        let ready = std::fs::read_to_string(folder.join("data/postmaster.pid")).is_ok_and(|text| {
            let mut lines = text.lines();
            lines.next() == Some(&child.id().to_string())
                && text
                    .lines()
                    .last()
                    .is_some_and(|line| line.trim() == "ready")
        });
        if ready && UnixStream::connect(&socket).is_ok() {
            return child;
        }
        std::thread::sleep(POLL);
    }
    panic!("Postgres did not become ready; its log: {}", log(folder));
}

fn command(folder: &Path, durability: PostgresDurability) -> Command {
    let mut command = programs::command(&programs::folder().join("postgres"));
    command
        .arg("-D")
        .arg(folder.join("data"))
        .arg("-k")
        .arg(folder);
    let settings = [
        "listen_addresses=",
        "max_connections=100",
        "log_min_messages=warning",
        "timezone=UTC",
        // In the data folder, which is removed even if the server is killed.
        "dynamic_shared_memory_type=mmap",
    ];
    let hasty: &[&str] = match durability {
        PostgresDurability::OutlivesMachine => &[],
        PostgresDurability::OutlivesProcess => &[
            "fsync=off",
            "full_page_writes=off",
            "shared_buffers=32MB",
            "max_wal_size=256MB",
            "autovacuum=off",
        ],
    };
    for setting in settings.iter().chain(hasty) {
        command.args(["-c", setting]);
    }
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .expect("open the log of Postgres");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    // Not in the process group of the terminal, whose Ctrl-C would reach it before the tests end.
    command.process_group(0);
    // SAFETY: between fork and exec, the closure makes one system call, allocates nothing and takes
    // no lock.
    unsafe {
        command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::QUIT))?));
    }
    command
}

/// Spawns a server. The kernel sends the parent death signal when the spawning thread ends, and a
/// test's thread may end before other users of the server. One thread therefore spawns all servers
/// and lives as long as the process.
fn spawn(command: Command) -> Child {
    type Request = (Command, mpsc::SyncSender<std::io::Result<Child>>);
    static SPAWNER: OnceLock<mpsc::Sender<Request>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        std::thread::spawn(move || {
            for (mut command, reply) in requests {
                // The requester may have gone.
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let (reply, child) = mpsc::sync_channel(1);
    spawner
        .send((command, reply))
        .expect("the spawner lives as long as the process");
    child
        .recv()
        .expect("the spawner answers")
        .unwrap_or_else(|error| panic!("start postgres: {error}"))
}

/// Runs `initdb` in `folder`.
pub fn init(folder: &Path, durability: PostgresDurability) {
    let mut command = programs::command(&programs::folder().join("initdb"));
    command
        .arg("-D")
        .arg(folder.join("data"))
        .current_dir(folder);
    command.args(["-U", "owner", "-A", "trust", "-E", "UTF8", "--locale=C"]);
    if durability == PostgresDurability::OutlivesProcess {
        // Small, because it is copied for each test.
        command.args(["-N", "--wal-segsize=1"]);
    }
    let output = command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("run initdb: {error}"));
    let status: ExitStatus = output.status;
    assert!(
        status.success(),
        "initdb ended with {status}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn is_occupied(folder: &Path) -> bool {
    log(folder).lines().last().is_some() && log(folder).contains("still in use")
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}
