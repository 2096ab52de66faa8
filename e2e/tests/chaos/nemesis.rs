//! Carries out the schedule and heals its faults.

use crate::databases;
use crate::record::FaultRecord;
use crate::schedule::{ChaosFault, ChaosHost, ScheduledFault, Victim};
use crate::stand::ChaosCluster;
use muster_e2e::processes::OsProcess;
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Handle;

const TICK: Duration = Duration::from_millis(50);

/// Ends on drop with all faults healed.
pub struct Nemesis {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Active fault with its end.
struct ActiveFault {
    until_ms: u64,
    fault: ChaosFault,
    number: usize,
    stopped: Vec<(i32, u64)>,
}

impl Nemesis {
    pub fn begin(
        stand: Arc<ChaosCluster>,
        record: Arc<FaultRecord>,
        schedule: Vec<ScheduledFault>,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let runtime = Handle::current();
        let stops = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let work = FaultExecution {
                stand: &stand,
                record: &record,
                runtime,
            };
            work.carry_out(schedule, &stops);
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }

    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Nemesis {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct FaultExecution<'a> {
    stand: &'a Arc<ChaosCluster>,
    record: &'a Arc<FaultRecord>,
    runtime: Handle,
}

impl FaultExecution<'_> {
    fn carry_out(&self, schedule: Vec<ScheduledFault>, stop: &AtomicBool) {
        let mut open: Vec<ActiveFault> = Vec::new();
        let mut coming = schedule.into_iter().peekable();
        while !stop.load(Ordering::Relaxed) && (coming.peek().is_some() || !open.is_empty()) {
            let now_ms = self.record.elapsed().whole_milliseconds().unsigned_abs() as u64;
            while let Some(planned) = coming.next_if(|planned| planned.at_ms <= now_ms) {
                open.extend(self.begin(planned, now_ms));
            }
            let (over, going) = open
                .into_iter()
                .partition(|one: &ActiveFault| one.until_ms <= now_ms);
            open = going;
            over.into_iter().for_each(|one| self.heal(&one));
            std::thread::sleep(TICK);
        }
        open.iter().for_each(|one| self.heal(one));
    }

    /// `None` if there is nothing to heal.
    fn begin(&self, planned: ScheduledFault, now_ms: u64) -> Option<ActiveFault> {
        let mut stopped = Vec::new();
        let number = match planned.fault {
            ChaosFault::Kill(victim) => self
                .record
                .begun(planned, self.signal(&self.victims(victim), Signal::KILL)),
            ChaosFault::KillNode(node) => {
                // The shims first: a shim that outlives its task briefly would report the task's
                // end.
                let mut all = self.stand.processes_of(node);
                all.sort_by_key(|process| !is_shim(process));
                self.record.begun(planned, self.signal(&all, Signal::KILL))
            }
            ChaosFault::Stop(victim) => {
                let victims = self.victims(victim);
                stopped = ids(&victims);
                self.record
                    .begun(planned, self.signal(&victims, Signal::STOP))
            }
            ChaosFault::StopNode(node) => {
                let victims = self.stand.processes_of(node);
                stopped = ids(&victims);
                self.record
                    .begun(planned, self.signal(&victims, Signal::STOP))
            }
            ChaosFault::RestartPostgres => self
                .record
                .begun(planned, self.signal_postmaster(Signal::INT)),
            ChaosFault::CrashPostgres => self
                .record
                .begun(planned, self.signal_postmaster(Signal::QUIT)),
            ChaosFault::FailOver => return self.fail_over(planned),
            ChaosFault::Cut(one, other) => {
                let number = self.record.begun(planned, format!("{one} and {other}"));
                self.stand.network.cut(one, other);
                number
            }
            ChaosFault::Isolate(host) => {
                let number = self.record.begun(planned, host.to_string());
                self.stand.network.isolate(host);
                number
            }
            ChaosFault::FillDisk(host) => {
                let number = self.record.begun(planned, host.to_string());
                self.stand.disks.fill(host);
                number
            }
            ChaosFault::StallDisk(host) => {
                let number = self.record.begun(planned, host.to_string());
                self.stand.disks.stall(host);
                number
            }
            ChaosFault::SlowDisk(host) => {
                let number = self.record.begun(planned, host.to_string());
                self.stand.disks.slow_down(host);
                number
            }
            ChaosFault::StepClock { host, by_s } => {
                let number = self.record.begun(planned, host.to_string());
                self.stand.clocks.step(host, by_s);
                number
            }
        };
        (planned.for_ms > 0).then_some(ActiveFault {
            until_ms: now_ms + planned.for_ms,
            fault: planned.fault,
            number,
            stopped,
        })
    }

    /// On a thread, because it takes time and heals itself.
    fn fail_over(&self, planned: ScheduledFault) -> Option<ActiveFault> {
        let number = self
            .record
            .begun(planned, "both servers of Postgres".to_owned());
        let (stand, record, runtime) = (
            self.stand.clone(),
            self.record.clone(),
            self.runtime.clone(),
        );
        std::thread::spawn(move || {
            match runtime.block_on(databases::fail_over(&stand)) {
                Ok(met) => record.met(number, met),
                Err(why) => record.broke(&format!("no fail-over of Postgres: {why}")),
            }
            record.healed(number);
        });
        None
    }

    fn heal(&self, open: &ActiveFault) {
        match open.fault {
            ChaosFault::Cut(one, other) => self.stand.network.join(one, other),
            ChaosFault::Isolate(host) => self.stand.network.connect(host),
            ChaosFault::FillDisk(host) => self.stand.disks.free(host),
            ChaosFault::StallDisk(host) => self.stand.disks.go_on(host),
            ChaosFault::SlowDisk(host) => self.stand.disks.speed_up(host),
            ChaosFault::StepClock { host, .. } => self.stand.clocks.step(host, 0),
            ChaosFault::Stop(_)
            | ChaosFault::StopNode(_)
            | ChaosFault::Kill(_)
            | ChaosFault::KillNode(_)
            | ChaosFault::RestartPostgres
            | ChaosFault::CrashPostgres
            | ChaosFault::FailOver => {}
        }
        for (pid, started) in &open.stopped {
            if start_ticks(*pid) == Some(*started) {
                let pid = rustix::process::Pid::from_raw(*pid).expect("a process number");
                let _ = rustix::process::kill_process(pid, Signal::CONT);
            }
        }
        self.record.healed(open.number);
    }

    fn daemon(&self, mut all: Vec<OsProcess>, host: ChaosHost) -> Vec<OsProcess> {
        let pid = self.stand.daemon(host);
        all.retain(|process| Some(process.pid) == pid);
        all
    }

    fn victims(&self, victim: Victim) -> Vec<OsProcess> {
        let all = self.stand.processes();
        match victim {
            Victim::Daemon(host) => self.daemon(all, host),
            Victim::Leader => match self.stand.leader() {
                Some(host) => self.daemon(all, host),
                None => Vec::new(),
            },
            Victim::Shim(pick) => one_of(
                all.iter().filter(|one| is_shim(one)).cloned().collect(),
                pick,
            ),
            Victim::Task(pick) => one_of(
                all.iter()
                    .filter(|one| task_of(one).is_some())
                    .cloned()
                    .collect(),
                pick,
            ),
            Victim::Backend(pick) => one_of(self.stand.backends(), pick),
        }
    }

    fn signal_postmaster(&self, signal: Signal) -> String {
        self.signal(
            &self.victims(Victim::Daemon(ChaosHost::Postgres(
                self.stand.network.database(),
            ))),
            signal,
        )
    }

    /// Signals the victims and returns their description.
    fn signal(&self, victims: &[OsProcess], signal: Signal) -> String {
        let met = victims.iter().map(|victim| {
            victim.signal(signal);
            let task = task_of(victim).unwrap_or_default();
            let role = if is_shim(victim) { " shim" } else { "" };
            format!("{}{role} {} {task}", victim.program, victim.pid)
        });
        let met: Vec<String> = met.collect();
        if met.is_empty() {
            return "no such process".to_owned();
        }
        met.join(", ")
    }
}

pub fn is_shim(process: &OsProcess) -> bool {
    process.program == "muster-executor"
        && process.arguments.get(1).is_some_and(|word| word == "shim")
}

/// Task of a process; `None` for a daemon or a shim.
pub fn task_of(process: &OsProcess) -> Option<&str> {
    let mut variables = process.environment.iter();
    let task = variables.find_map(|variable| variable.strip_prefix("MUSTER_TASK_ID="));
    task.filter(|_| process.program != "muster-executor")
}

fn ids(processes: &[OsProcess]) -> Vec<(i32, u64)> {
    let pids = processes.iter().map(|process| process.pid);
    pids.filter_map(|pid| Some((pid, start_ticks(pid)?)))
        .collect()
}

/// Start time, which distinguishes a process from a later one with the same id.
pub fn start_ticks(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain blanks and brackets.
    let (_, rest) = text.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// Returns the process with the number `pick` modulo their count; none if there is none.
fn one_of(found: Vec<OsProcess>, pick: u32) -> Vec<OsProcess> {
    let index = (pick as usize).checked_rem(found.len());
    let chosen = index.map(|index| found[index].clone());
    chosen.into_iter().collect()
}
