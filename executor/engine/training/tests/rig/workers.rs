//! A job of workers without shards: the test takes the role of the executor, which rewrites the
//! task set while tasks run.

#![expect(clippy::disallowed_methods, reason = "tests wait with a time limit")]

use crate::rig::reports::{listening, samples};
use crate::rig::{PATIENCE, Rig, RigLaunch, RigTask};
use muster_model::assignment::{Peer, Peers};
use muster_model::id::{NodeId, TaskId};
use muster_model::task::Role;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Tasks in the order of their start; the last call of [`Crew::roster`] selects those that belong
/// to the job.
pub struct Crew<'a> {
    rig: &'a Rig,
    launch: RigLaunch,
    pub tasks: Vec<RigTask>,
    /// Indices of tasks, in order of rank.
    members: Vec<usize>,
    turn: u64,
}

#[allow(dead_code, reason = "no test needs all of it")]
impl<'a> Crew<'a> {
    /// Starts the workers of the launch and sends them the task set.
    pub fn start(rig: &'a Rig, launch: &RigLaunch) -> Self {
        let mut crew = Self {
            rig,
            launch: launch.clone(),
            tasks: Vec::new(),
            members: Vec::new(),
            turn: 0,
        };
        let members = (0..launch.workers).map(|rank| crew.spawn(rank)).collect();
        crew.roster(launch.revision, members);
        crew
    }

    /// Starts a task as worker `rank`. Returns its index.
    fn spawn(&mut self, rank: u32) -> usize {
        let number = self.tasks.len();
        let role = Role::Worker { rank };
        let mut launch = self.rig.task_launch(&self.launch, role);
        launch.task_id = TaskId(Uuid::from_u128(0x1000 + number as u128));
        // One secret for all revisions of one start.
        launch.secret = format!("{:064x}", 0xabcd_0000_u64);
        let folder = self
            .rig
            .root
            .path()
            .join("tasks")
            .join(format!("r{}-{number}", self.launch.revision));
        fs::create_dir_all(&folder).unwrap();
        fs::write(
            folder.join("task.json"),
            serde_json::to_vec(&launch).unwrap(),
        )
        .unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        // Without the folder no task opens a socket for tasks of the same node.
        let nowhere = self.rig.root.path().join("nowhere");
        let sockets = self.rig.tcp.then_some(nowhere.as_path());
        let child = Command::new(env!("CARGO_BIN_EXE_muster-task"))
            .args(sockets.iter().flat_map(|at| [Path::new("--sockets"), at]))
            .arg("--folder")
            .arg(&folder)
            .arg("--checkpoint-root")
            .arg(self.rig.checkpoint_root())
            .arg("--dataset-root")
            .arg(self.rig.dataset_root())
            .stdin(Stdio::null())
            .stderr(log.try_clone().unwrap())
            .stdout(log)
            .spawn()
            .unwrap();
        self.tasks.push(RigTask {
            id: launch.task_id,
            role,
            folder,
            child,
        });
        number
    }

    /// Sets the workers of the job from `revision` on. Sends the task set to all running tasks,
    /// with the known addresses.
    pub fn roster(&mut self, revision: u64, members: Vec<usize>) {
        self.launch.revision = revision;
        self.members = members;
        self.tell(None);
        let chief = self.tasks[self.members[0]].wait_for("listening", listening);
        self.tell(Some(chief));
    }

    fn tell(&self, chief: Option<String>) {
        let workers = self.members.iter().enumerate().map(|(rank, &number)| Peer {
            task_id: self.tasks[number].id,
            node_id: NodeId(Uuid::from_u128(1)),
            address: chief.clone().filter(|_| rank == 0),
        });
        let peers = Peers {
            revision: self.launch.revision,
            workers: workers.collect(),
            ps_shards: Vec::new(),
            turn: self.turn,
            ..Peers::default()
        };
        for task in &self.tasks {
            let fresh = task.folder.join("peers.json.new");
            fs::write(&fresh, serde_json::to_vec(&peers).unwrap()).unwrap();
            fs::rename(&fresh, task.folder.join("peers.json")).unwrap();
        }
    }

    /// Suspends the workers for an odd slice number, resumes them for an even one.
    pub fn turn(&mut self, turn: u64) {
        self.turn = turn;
        let chief = &self.tasks[self.members[0]];
        self.tell(Some(chief.wait_for("listening", listening)));
    }

    pub fn tasks(&self) -> &[RigTask] {
        &self.tasks
    }

    /// Starts `more` workers and adds them to the job.
    pub fn grow(&mut self, revision: u64, more: u32) {
        self.launch.revision = revision;
        let mut members = self.members.clone();
        self.launch.workers = members.len() as u32 + more;
        for _ in 0..more {
            let rank = members.len() as u32;
            members.push(self.spawn(rank));
        }
        self.roster(revision, members);
    }

    /// Removes the workers with these ranks from the job.
    pub fn shrink(&mut self, revision: u64, ranks: &[usize]) {
        let members = (0..self.members.len())
            .filter(|rank| !ranks.contains(rank))
            .map(|rank| self.members[rank])
            .collect();
        self.roster(revision, members);
    }

    pub fn chief(&mut self) -> &mut RigTask {
        let chief = self.members[0];
        &mut self.tasks[chief]
    }

    /// Waits until the coordinator has reported progress up to this step.
    pub fn wait_for_step(&self, step: u64) {
        let chief = &self.tasks[self.members[0]];
        let began = Instant::now();
        while samples(&chief.events())
            .last()
            .is_none_or(|sample| sample.step < step)
        {
            assert!(began.elapsed() < PATIENCE, "{}", self.logs());
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Exit codes in order of start; -1 for a killed one.
    pub fn wait(&mut self) -> Vec<i32> {
        let mut codes = Vec::new();
        for task in &mut self.tasks {
            codes.push(task.wait().code().unwrap_or(-1));
        }
        codes
    }

    pub fn succeed(&mut self) {
        let codes = self.wait();
        assert!(
            codes.iter().all(|&code| code == 0),
            "exit codes {codes:?}\n{}",
            self.logs()
        );
    }

    pub fn logs(&self) -> String {
        let logs = self.tasks.iter();
        logs.map(|task| format!("--- {}\n{}", task.folder.display(), task.log()))
            .collect()
    }

    /// Checks that the state at the beginning of each view is the same on all its members,
    /// according to their logs.
    pub fn agree(&self) {
        let mut by_step: BTreeMap<u64, String> = BTreeMap::new();
        for (step, print) in self.fingerprints() {
            let known = by_step.entry(step).or_insert_with(|| print.clone());
            assert_eq!(*known, print, "step {step}\n{}", self.logs());
        }
    }

    /// Steps at which a view began, with the fingerprint of the state, from the logs of all tasks.
    pub fn fingerprints(&self) -> Vec<(u64, String)> {
        let logs: Vec<String> = self.tasks.iter().map(RigTask::log).collect();
        logs.iter()
            .flat_map(|log| log.lines().filter_map(fingerprint))
            .collect()
    }
}

/// Step and fingerprint in the log line of a worker on its new view.
fn fingerprint(line: &str) -> Option<(u64, String)> {
    let (_, rest) = line.split_once(" from step ")?;
    let (step, rest) = rest.split_once(',')?;
    let print = rest.split_whitespace().last()?;
    line.starts_with("worker ")
        .then(|| (step.parse().unwrap(), print.to_owned()))
}

impl Drop for Crew<'_> {
    fn drop(&mut self) {
        for task in &mut self.tasks {
            let _ = task.child.kill();
            let _ = task.child.wait();
        }
    }
}
