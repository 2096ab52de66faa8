//! One node under test: a folder, the real daemon as a child process, and shell scripts as tasks.

use crate::scheduler::{JOIN_TOKEN, ReceivedReports, Scheduler, TaskToAssign};
use muster_executor::process::{self, ProcessId};
use muster_executor::shim::ShimRecord;
use muster_model::assignment::{Observed, Peers};
use muster_model::id::TaskId;
use muster_model::task::Outcome;
use rustix::process::Signal;
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use uuid::Uuid;

/// Rounds until a test fails; no test measures time by it.
const PATIENCE_ROUNDS: u32 = 1_500;
/// The same for tests in which programs load PyTorch and the driver moves gigabytes.
const GPU_PATIENCE_ROUNDS: u32 = 3_000;
const ROUND: Duration = Duration::from_millis(20);

/// Devices that the daemon detects.
#[derive(Clone, Copy, PartialEq)]
enum TestDevices {
    CpuSlots,
    /// A GPU that the stand-in libraries report.
    StandIn,
    /// The devices of this machine.
    Own,
}

pub struct Site {
    pub scheduler: Scheduler,
    folder: tempfile::TempDir,
    daemon: Option<Child>,
    flags: Vec<String>,
    devices: TestDevices,
    /// User of the daemon, if not that of this process.
    user: Option<u32>,
    /// The daemon may not mount, like root in a container.
    is_without_mounts: bool,
    /// Mount point of a separate file system of the data folder, to be unmounted.
    mount: Option<PathBuf>,
}

/// An unprivileged user, as daemons have in containers.
const PLAIN_USER: u32 = 65_534;

impl Site {
    pub fn new(lease_ms: u64, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("folder");
        fs::create_dir(folder.path().join("scripts")).expect("made");
        let program = folder.path().join("task");
        // Each task runs the script named after it; `HOME` is this folder.
        fs::write(
            &program,
            "#!/bin/sh\nexec /bin/sh \"$HOME/scripts/$MUSTER_TASK_ID\" \"$@\"\n",
        )
        .expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permitted");
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self {
            scheduler: Scheduler::start(lease_ms),
            folder,
            daemon: None,
            flags,
            devices: TestDevices::CpuSlots,
            user: None,
            is_without_mounts: false,
            mount: None,
        }
    }

    /// Starts a daemon without root privileges, and tasks of the same user.
    pub fn of_a_plain_user(lease_ms: u64, flags: &[&str]) -> Self {
        let mut site = Self::new(lease_ms, flags);
        if rustix::process::geteuid().is_root() {
            site.user = Some(PLAIN_USER);
            std::os::unix::fs::chown(site.path(), Some(PLAIN_USER), None).expect("as root");
            // This user cannot execute files in /root.
            let program = site.path().join("executor");
            fs::copy(env!("CARGO_BIN_EXE_muster-executor"), program).expect("copied");
        }
        site.start();
        site
    }

    /// Starts a daemon that runs as root with tasks of another user.
    ///
    /// # Panics
    /// If this process is not root; scripts/run-tests then reports such tests as left out, by name.
    pub fn with_another_user_for_tasks(flags: &[&str]) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root, "only root can start tasks as another user");
        let user = PLAIN_USER.to_string();
        let flags: Vec<&str> = flags
            .iter()
            .copied()
            .chain(["--task-user", &user])
            .collect();
        let mut site = Self::new(60_000, &flags);
        fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        let program = site.path().join("executor");
        fs::copy(env!("CARGO_BIN_EXE_muster-executor"), program).expect("copied");
        site.user = Some(0);
        site.start();
        site
    }

    /// Starts a daemon that runs as root, with a user for each of a hundred tenants.
    ///
    /// # Panics
    /// If this process is not root or may not mount; scripts/run-tests then reports such tests as
    /// left out, by name.
    pub fn with_user_per_tenant(flags: &[&str]) -> Self {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root, "only root can start tasks as another user");
        let users = ["--task-user", "200000-200099"];
        let flags: Vec<&str> = flags.iter().copied().chain(users).collect();
        let mut site = Self::new(60_000, &flags);
        // Other users cannot enter this folder. It is below `/tmp`, which tasks do not see.
        site.start_as_root();
        site
    }

    /// Starts the same daemon without the right to mount.
    ///
    /// # Panics
    /// If this process is not root; scripts/run-tests then reports such tests as left out, by name.
    pub fn with_user_per_tenant_without_mounts() -> Self {
        let mut site = Self::new(60_000, &["--task-user", "200000-200099"]);
        fs::set_permissions(site.path(), fs::Permissions::from_mode(0o755)).expect("ours");
        site.is_without_mounts = true;
        site.start_as_root();
        site
    }

    fn start_as_root(&mut self) {
        let program = self.path().join("executor");
        fs::copy(env!("CARGO_BIN_EXE_muster-executor"), program).expect("copied");
        self.user = Some(0);
        self.start();
        self.until("it has begun", |heard| !heard.hellos.is_empty());
    }

    /// Starts with a disk of this size under the data folder.
    ///
    /// # Panics
    /// If this user may not mount one; scripts/run-tests then reports such tests as left out, by
    /// name.
    pub fn on_a_disk(kib: u64, lease_ms: u64, flags: &[&str]) -> Self {
        let mut site = Self::new(lease_ms, flags);
        let data = site.data();
        fs::create_dir(&data).expect("made");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "tmpfs"])
            .arg(&data)
            .stderr(Stdio::null())
            .status();
        let is_mounted = mounted.is_ok_and(|status| status.success());
        assert!(is_mounted, "this user may not mount a disk of {kib} KiB");
        site.mount = Some(data);
        site.start();
        site.until("it has begun", |heard| !heard.hellos.is_empty());
        site
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Starts a daemon with one GPU that compiled stand-ins of NVIDIA's libraries report.
    pub fn with_gpu(flags: &[&str]) -> Self {
        Self::with_gpu_and_environment("PATH,HOME,LD_LIBRARY_PATH,STAND_IN", flags)
    }

    /// Does the same, with these variables passed to tasks.
    pub fn with_gpu_and_environment(passed: &str, flags: &[&str]) -> Self {
        let flags: Vec<&str> = flags
            .iter()
            .copied()
            .chain(["--pass-environment", passed])
            .collect();
        let mut site = Self::new(10_000, &flags);
        site.devices = TestDevices::StandIn;
        let (libraries, state) = (site.path().join("libraries"), site.stand_in());
        fs::create_dir(&libraries).expect("made");
        fs::create_dir(state).expect("made");
        for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
            let compiled = Command::new("cc")
                .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
                .arg(libraries.join(name))
                .arg(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/tests/node/stand_in.c"
                ))
                .status();
            assert!(compiled.expect("there is a C compiler").success());
        }
        site.start();
        site
    }

    /// Starts a daemon with the GPUs of this machine and its own libraries.
    pub fn on_gpus(flags: &[&str]) -> Self {
        let passed = ["--pass-environment", "PATH,HOME,LD_LIBRARY_PATH"];
        let flags: Vec<&str> = flags.iter().copied().chain(passed).collect();
        let mut site = Self::new(10_000, &flags);
        site.devices = TestDevices::Own;
        site.start();
        site
    }

    /// Folder in which the stand-in keeps its state and finds requests to fail.
    pub fn stand_in(&self) -> PathBuf {
        self.folder.path().join("stand-in")
    }

    /// Creates a site and starts the daemon.
    pub fn started(lease_ms: u64, flags: &[&str]) -> Self {
        let mut site = Self::new(lease_ms, flags);
        site.start();
        site
    }

    pub fn start(&mut self) {
        assert!(self.daemon.is_none(), "it runs already");
        self.daemon = Some(self.spawn());
    }

    /// Starts a daemon on this site's folder; the caller owns it.
    pub fn spawn(&self) -> Child {
        let path = self.folder.path();
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(path.join("daemon.log"))
            .expect("opened");
        let mut command = match self.user {
            None => Command::new(env!("CARGO_BIN_EXE_muster-executor")),
            Some(user) => {
                let mut command = Command::new(path.join("executor"));
                command.uid(user).gid(user);
                command
            }
        };
        if self.is_without_mounts {
            // SAFETY: the closure makes one system call, without allocation or locks.
            unsafe {
                command.pre_exec(|| {
                    Ok(remove_capability_from_bounding_set(
                        CapabilitySet::SYS_ADMIN,
                    )?)
                });
            }
        }
        match self.devices {
            TestDevices::CpuSlots => command.args(["--cpu-slots", "4"]),
            TestDevices::StandIn => command
                .env("LD_LIBRARY_PATH", path.join("libraries"))
                .env("STAND_IN", self.stand_in()),
            TestDevices::Own => &mut command,
        };
        command
            .args([
                "--scheduler-url",
                &self.scheduler.url,
                "--node-name",
                "node-a",
            ])
            .arg("--data-dir")
            .arg(path.join("data"))
            .arg("--task-binary")
            .arg(path.join("task"))
            .arg("--checkpoint-root")
            .arg(path.join("checkpoints"))
            .arg("--dataset-root")
            .arg(path.join("datasets"))
            .args(&self.flags)
            .env("MUSTER_EXECUTOR_JOIN_TOKEN", JOIN_TOKEN)
            .env("HOME", path)
            .env("SECRET_OF_THE_DAEMON", "x")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("started")
    }

    pub fn daemon_pid(&self) -> i32 {
        let daemon = self.daemon.as_ref().expect("it runs");
        i32::try_from(daemon.id()).expect("small")
    }

    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        daemon.kill().expect("killed");
        daemon.wait().expect("reaped");
    }

    /// Sends SIGTERM; returns whether the daemon exits successfully.
    pub fn terminate(&mut self) -> bool {
        let mut daemon = self.daemon.take().expect("it runs");
        let pid = i32::try_from(daemon.id()).expect("small");
        assert!(ProcessId::of(pid).expect("runs").signal(Signal::TERM));
        daemon.wait().expect("reaped").success()
    }

    /// Returns a task that runs this script on one slot.
    pub fn task(&self, slot: u32, script: &str) -> TaskToAssign {
        let id = unique_id();
        fs::write(
            self.folder.path().join("scripts").join(id.to_string()),
            script,
        )
        .expect("written");
        let launch = json!({
            "task_id": id, "job_id": Uuid::from_u128(1), "tenant_id": Uuid::from_u128(2), "revision": 7,
            "role": { "kind": "worker", "rank": slot }, "workers": 1, "ps_shards": 1, "gpus": [slot % 4],
            "cpu_milli": 1000, "memory_bytes": 1 << 26, "secret": "00",
            "spec": {
                "version": "muster/v1", "name": "test", "stop": { "steps": 1 },
                "engine": {
                    "model": { "kind": "mlp", "hidden": [] }, "dataset": { "name": "fashion-mnist" },
                    "optimizer": { "kind": "sgd", "learning_rate": 0.1 }, "batch": 1,
                },
            },
            "resume_step": null, "trained_s": 0.0, "grace_ms": 400,
        });
        let launch = serde_json::from_value(launch).expect("a launch");
        TaskToAssign {
            launch,
            peers: Peers::default(),
            stop: false,
            asks: false,
        }
    }

    /// Returns a worker that runs a user's program on the slot of its rank.
    pub fn command(&self, rank: u32, command: serde_json::Value) -> TaskToAssign {
        let mut wanted = self.task(rank, "");
        wanted.launch.spec = serde_json::from_value(json!({
            "version": "muster/v1", "name": "test", "command": command,
        }))
        .expect("a document");
        wanted
    }

    pub fn task_folder(&self, task: &TaskToAssign) -> PathBuf {
        self.folder
            .path()
            .join("data/tasks")
            .join(task.id().to_string())
    }

    pub fn record(&self, task: &TaskToAssign) -> ShimRecord {
        let bytes = fs::read(self.task_folder(task).join("shim.json")).expect("started");
        serde_json::from_slice(&bytes).expect("a record")
    }

    /// Waits until the received messages fulfil a condition.
    pub fn until(&self, what: &str, is_so: impl Fn(&ReceivedReports) -> bool) {
        self.until_it(what, || is_so(&self.scheduler.heard()));
    }

    pub fn until_it(&self, what: &str, is_so: impl Fn() -> bool) {
        let rounds = match self.devices {
            TestDevices::CpuSlots | TestDevices::StandIn => PATIENCE_ROUNDS,
            TestDevices::Own => GPU_PATIENCE_ROUNDS,
        };
        for _ in 0..rounds {
            if is_so() {
                return;
            }
            thread::sleep(ROUND);
        }
        let log = fs::read_to_string(self.folder.path().join("daemon.log")).unwrap_or_default();
        panic!(
            "waited in vain until {what}; heard {:#?}; the daemon says:\n{log}",
            self.scheduler.heard()
        );
    }

    /// Waits for a second session in which the node reported every task as running.
    pub fn until_running_in_second_session(&self, tasks: &[&TaskToAssign]) {
        self.until("the second session reports each task", |heard| {
            heard.hellos.len() == 2
                && tasks
                    .iter()
                    .all(|task| heard.first_in_session(task.id()) == Some(&Observed::Running))
        });
    }

    pub fn until_running(&self, task: &TaskToAssign) {
        self.until("it runs", |heard| {
            heard.last(task.id()) == Some(&Observed::Running)
        });
    }

    pub fn until_gone(&self, task: &TaskToAssign) -> Outcome {
        self.until("it is gone", |heard| {
            matches!(heard.last(task.id()), Some(Observed::Gone { .. }))
        });
        match self.scheduler.heard().last(task.id()) {
            Some(Observed::Gone { outcome }) => outcome.clone(),
            other => panic!("gone, and then {other:?}"),
        }
    }

    pub fn until_log_has(&self, task: &TaskToAssign, text: &str) {
        self.until(&format!("the log has {text:?}"), |heard| {
            heard.log(task.id()).contains(text)
        });
    }

    /// Returns the processes of this site, including the daemon. All tasks have its folder in their
    /// environment; processes with a hidden environment have it in their arguments.
    pub fn processes(&self) -> Vec<i32> {
        let path = self.folder.path().display();
        let (home, data) = (format!("HOME={path}"), format!("{path}/data"));
        process::all()
            .into_iter()
            .map(|stat| stat.id.pid)
            .filter(|&pid| has(pid, "environ", &home) || has(pid, "cmdline", &data))
            .collect()
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Ends every test: checks that the contract was kept and that no process is left.
    pub fn finish(mut self) {
        if self.daemon.is_some() {
            assert!(self.terminate(), "the daemon ends in order");
        }
        // A shim that has just reported its task's end may still be exiting.
        self.until_it("nothing is left behind", || self.processes().is_empty());
        assert_eq!(self.scheduler.heard().faults, Vec::<String>::new());
    }
}

/// Whether the file `list` of a process contains this entry.
fn has(pid: i32, list: &str, wanted: &str) -> bool {
    fs::read(format!("/proc/{pid}/{list}")).is_ok_and(|list| {
        list.split(|byte| *byte == 0)
            .any(|one| one == wanted.as_bytes())
    })
}

impl TaskToAssign {
    pub fn id(&self) -> TaskId {
        self.launch.task_id
    }

    pub fn stopped(&self) -> Self {
        Self {
            stop: true,
            ..self.clone()
        }
    }

    /// The task, to be asked for a checkpoint and then stopped.
    pub fn asked(&self) -> Self {
        Self {
            asks: true,
            ..self.stopped()
        }
    }
}

/// Returns an id that is unique among tests that run at the same time. Processes are found by task
/// ids.
pub fn unique_id() -> Uuid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Uuid::from_u64_pair(
        u64::from(std::process::id()),
        NEXT.fetch_add(1, Ordering::Relaxed),
    )
}

impl Drop for Site {
    /// Also runs after a failed test.
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for pid in self.processes() {
            if let Some(process) = ProcessId::of(pid) {
                let _ = process.signal(Signal::KILL);
            }
        }
        if let Some(data) = self.mount.take() {
            let _ = Command::new("umount").arg("-l").arg(data).status();
        }
    }
}
