//! Supervision of a started task until none of its processes is left.

use super::child::{TaskProcess, own_id};
use super::request::ProgramRequest;
use super::suspend::{ProgramState, ProgramSuspension};
use super::writer::ShimFileWriter;
use super::{PodRecord, StopNotice};
use crate::clock;
use crate::error::ExecutorError;
use crate::lease::LeaseWatch;
use crate::process;
use crate::task_file::TaskFile;
use muster_model::task::Outcome;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait,
};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::{flag, low_level::pipe};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Poll interval while the task stops, or while the driver moves its memory.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest poll interval while the task runs; at most the rest of the lease. Signals end the wait
/// earlier.
const CALM_EVERY: Duration = Duration::from_secs(1);
/// Interval of repeated SIGKILL.
const KILL_EVERY: Duration = Duration::from_millis(10);
/// Rounds of waiting for the end of the output, at `KILL_EVERY`. Only a process outside the task
/// can hold the output open for longer.
const LOG_WAIT_ROUNDS: u32 = 100;

/// Flag of a requested stop, and a socket that wakes the shim for a stop, an ended child or a new
/// slice.
pub(super) struct Signals {
    stop: Arc<AtomicBool>,
    bell: UnixStream,
}

/// Settings for the stop of the task.
pub(super) struct StopSettings {
    /// Time from SIGTERM to SIGKILL after a requested stop.
    pub grace_ms: u64,
    /// Time from the end of the lease to SIGKILL. The scheduler assigns the GPUs to other tasks
    /// after it, so the job's document does not change it.
    pub lease_grace_ms: u64,
    /// Of a command: file that announces the stop.
    pub notice: Option<TaskFile>,
    /// Of a shim in a pod: record of whether the executor requested the pod's end.
    pub pod: TaskFile,
    pub writer: ShimFileWriter,
}

impl StopSettings {
    /// Whether the stop was requested by another party than the executor.
    fn is_foreign(&self) -> bool {
        let record = self.pod.read::<PodRecord>().ok().flatten();
        record.is_some_and(|record| !record.told_to_stop)
    }

    /// Announces the stop, with this time until SIGKILL.
    fn tell(&self, grace_ms: u64) {
        let Some(file) = &self.notice else { return };
        let left_ms = i64::try_from(grace_ms).unwrap_or(i64::MAX);
        let notice = StopNotice {
            until_unix_ms: clock::unix_ms().saturating_add(left_ms),
            grace_ms,
        };
        let file = file.clone();
        // A failure does not matter: the signal announces the stop too.
        self.writer.write(move || {
            if let Err(error) = file.write_atomically(&notice) {
                eprintln!("cannot write the stop notice of the task: {error}");
            }
        });
    }
}

enum SupervisionPhase {
    Running,
    Stopping {
        told_at_ms: u64,
        kill_at_ms: u64,
        is_lease: bool,
    },
    Killed {
        is_lease: bool,
    },
}

impl SupervisionPhase {
    /// Returns the phase with an updated time of SIGKILL.
    ///
    /// The grace lets the program write its checkpoint. It begins when the driver has restored the
    /// program, at the latest `driver_limit_ms` after the stop. After the lease has expired, the
    /// program has at most one grace, because the GPUs are then assigned to other jobs.
    fn postpone_kill(
        self,
        now_ms: u64,
        driver_limit_ms: Option<u64>,
        by_lease_ms: Option<u64>,
        grace_ms: u64,
    ) -> Self {
        let Self::Stopping {
            told_at_ms,
            kill_at_ms,
            is_lease: false,
        } = self
        else {
            return self;
        };
        let by_driver_ms = driver_limit_ms.map_or(kill_at_ms, |driver_limit_ms| {
            now_ms.min(told_at_ms.saturating_add(driver_limit_ms)) + grace_ms
        });
        let by_lease_ms = by_lease_ms.unwrap_or(u64::MAX);
        Self::Stopping {
            told_at_ms,
            kill_at_ms: by_driver_ms.min(by_lease_ms),
            is_lease: false,
        }
    }

    fn is_lease(&self) -> bool {
        match self {
            Self::Running => false,
            Self::Stopping { is_lease, .. } | Self::Killed { is_lease } => *is_lease,
        }
    }
}

impl Signals {
    pub(super) fn register() -> Result<Self, ExecutorError> {
        let stop = Arc::new(AtomicBool::new(false));
        let (bell, ringer) = UnixStream::pair().map_err(ExecutorError::Signals)?;
        for signal in [SIGTERM, SIGINT] {
            flag::register(signal, Arc::clone(&stop)).map_err(ExecutorError::Signals)?;
        }
        // Executors wake the shim by SIGCHLD, those of an earlier release by SIGUSR1.
        for signal in [SIGTERM, SIGINT, SIGCHLD, SIGUSR1] {
            let ringer = ringer.try_clone().map_err(ExecutorError::Signals)?;
            pipe::register(signal, ringer).map_err(ExecutorError::Signals)?;
        }
        Ok(Self { stop, bell })
    }

    fn wait(&self, longest: Duration) {
        // A time-out of zero is invalid.
        let longest = longest.max(Duration::from_millis(1));
        let _ = self.bell.set_read_timeout(Some(longest));
        // The caller polls everything, whether the socket was written or the time has passed.
        let _ = (&self.bell).read(&mut [0; 64]);
    }
}

/// Returns the outcome of the task. All of its processes have ended and are reaped by then.
pub(super) fn run_to_end(
    task: TaskProcess,
    signals: &Signals,
    lease: &mut LeaseWatch,
    settings: &StopSettings,
    suspension: &mut Option<ProgramSuspension>,
    request: &mut Option<ProgramRequest>,
) -> Outcome {
    let mut phase = SupervisionPhase::Running;
    let mut is_foreign = false;
    let status = loop {
        if let Some(status) = reap(task.id.pid) {
            break status;
        }
        let now_ms = clock::boottime_ms();
        let expired_at_ms = lease.expired_at_ms(now_ms);
        let was_running = matches!(phase, SupervisionPhase::Running);
        let kill_at_ms = kill_by_lease_ms(expired_at_ms, settings.lease_grace_ms);
        if was_running && kill_at_ms.is_some_and(|at_ms| now_ms >= at_ms) {
            // Before all else: the machine was frozen, and the GPUs may belong to another task.
            kill_group(&task);
            phase = SupervisionPhase::Killed { is_lease: true };
        }
        let mut program = suspension
            .as_mut()
            .map_or(ProgramState::Lives, ProgramSuspension::follow);
        let driver_limit_ms = suspension
            .as_ref()
            .and_then(ProgramSuspension::driver_limit_ms);
        phase = phase.postpone_kill(now_ms, driver_limit_ms, kill_at_ms, settings.grace_ms);
        let is_requested = signals.stop.load(Ordering::Relaxed);
        let may_answer = suspension
            .as_ref()
            .is_none_or(ProgramSuspension::is_running);
        let is_answered = was_running
            && !is_requested
            && request
                .as_mut()
                .is_some_and(|request| request.follow(now_ms, &task, may_answer));
        let stops = is_requested || is_answered;
        phase = advance(phase, &task, stops, (now_ms, kill_at_ms), settings);
        let is_told_now = was_running && !matches!(phase, SupervisionPhase::Running);
        if is_told_now {
            is_foreign = is_requested && settings.is_foreign();
            request.iter_mut().for_each(ProgramRequest::give_up);
        }
        if let (true, Some(suspension)) = (is_told_now, suspension.as_mut()) {
            // A process stopped by SIGSTOP handles no signal until it is resumed.
            program = suspension.end(settings.grace_ms);
        }
        if program == ProgramState::Lost {
            kill_group(&task);
            phase = SupervisionPhase::Killed {
                is_lease: phase.is_lease(),
            };
        }
        let driver_has_it = suspension
            .as_ref()
            .and_then(ProgramSuspension::driver_limit_ms)
            .is_some();
        let is_asked = request.as_ref().is_some_and(ProgramRequest::is_pending);
        signals.wait(match phase {
            SupervisionPhase::Running if !driver_has_it && !is_asked => {
                lease.left(now_ms).min(CALM_EVERY)
            }
            _ => LOOK_EVERY,
        });
    };
    kill_rest(&task);
    for _ in 0..LOG_WAIT_ROUNDS {
        if task.log.is_finished() {
            break;
        }
        thread::sleep(KILL_EVERY);
    }
    let was_asked = request.as_ref().is_some_and(ProgramRequest::is_pending);
    if let Some(request) = request {
        request.program_ended(clock::boottime_ms());
    }
    let lost = suspension
        .as_ref()
        .and_then(ProgramSuspension::lost_by_driver);
    let end = TaskEnd {
        status,
        is_foreign,
        was_asked,
    };
    end.outcome(&phase, lost, settings.notice.is_some(), task)
}

/// How the task's process has ended.
struct TaskEnd {
    status: WaitStatus,
    /// The stop was requested by another party than the executor.
    is_foreign: bool,
    /// The program was asked for a checkpoint and not yet stopped.
    was_asked: bool,
}

impl TaskEnd {
    /// Returns the outcome of the task. `lost` is the reason why the driver did not restore the
    /// program.
    fn outcome(
        self,
        phase: &SupervisionPhase,
        lost: Option<&str>,
        is_command: bool,
        task: TaskProcess,
    ) -> Outcome {
        if phase.is_lease() {
            return Outcome::LeaseExpired;
        }
        if let Some(why) = lost {
            return Outcome::lost_by_driver(why.to_owned());
        }
        let is_running = matches!(phase, SupervisionPhase::Running);
        if !is_running && self.is_foreign {
            return Outcome::pod_deleted();
        }
        // The built-in engine reports the cause of its failure itself.
        if !is_command {
            return outcome(self.status);
        }
        match phase {
            // Its end answers the request, which precedes a stop.
            SupervisionPhase::Running if self.was_asked => Outcome::stopped(),
            SupervisionPhase::Running => outcome(self.status).saying(last_line(task)),
            // A program that was asked to stop may end in any way: few programs use Muster's exit
            // codes, and most end by the signal.
            SupervisionPhase::Stopping { .. } => Outcome::stopped(),
            SupervisionPhase::Killed { .. } => Outcome::killed_late(),
        }
    }
}

/// Returns the last output line; `None` also while a process outside the task holds the output
/// open.
fn last_line(task: TaskProcess) -> Option<String> {
    let ended = task.log.is_finished().then(|| task.log.join());
    ended?.ok().flatten()
}

/// Ends the task without grace.
pub(super) fn kill_all(task: &TaskProcess) {
    while reap(task.id.pid).is_none() {
        kill_group(task);
        thread::sleep(KILL_EVERY);
    }
    kill_rest(task);
}

/// Returns the latest time of SIGKILL after the lease has expired. The grace counts from the
/// deadline, because the scheduler assigns the GPUs to other tasks after it. It does not count from
/// now: the shim may have been frozen together with its task.
fn kill_by_lease_ms(expired_at_ms: Option<u64>, grace_ms: u64) -> Option<u64> {
    expired_at_ms.map(|at_ms| at_ms.saturating_add(grace_ms))
}

/// Moves to the next phase. A requested stop and the end of the lease have the same effect: SIGTERM
/// to the program and, after the grace, SIGKILL to all processes of the task. `by_lease_ms` is the
/// latest time of SIGKILL after the lease has expired.
fn advance(
    phase: SupervisionPhase,
    task: &TaskProcess,
    is_requested: bool,
    (now_ms, by_lease_ms): (u64, Option<u64>),
    settings: &StopSettings,
) -> SupervisionPhase {
    match phase {
        SupervisionPhase::Running => {
            let is_lease = by_lease_ms.is_some();
            if is_lease || is_requested {
                settings.tell(if is_lease {
                    settings.lease_grace_ms
                } else {
                    settings.grace_ms
                });
                signal_program(task, Signal::TERM);
                return SupervisionPhase::Stopping {
                    told_at_ms: now_ms,
                    kill_at_ms: by_lease_ms.unwrap_or(now_ms + settings.grace_ms),
                    is_lease,
                };
            }
            SupervisionPhase::Running
        }
        SupervisionPhase::Stopping {
            kill_at_ms,
            is_lease,
            ..
        } if now_ms >= kill_at_ms => {
            kill_group(task);
            SupervisionPhase::Killed { is_lease }
        }
        stopping @ SupervisionPhase::Stopping { .. } => stopping,
        SupervisionPhase::Killed { is_lease } => {
            kill_group(task);
            SupervisionPhase::Killed { is_lease }
        }
    }
}

/// Reaps all ended children, including adopted orphans. Returns the status of the task's process if
/// it is among them.
fn reap(task: i32) -> Option<WaitStatus> {
    let mut found = None;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if pid.as_raw_nonzero().get() == task {
            found = Some(status);
        }
    }
    found
}

/// Kills all remaining descendants until none is left. Every process of the task is a descendant of
/// the subreaper.
fn kill_rest(task: &TaskProcess) {
    let own = own_id().pid;
    loop {
        let left = process::descendants(own);
        for stat in &left {
            // A descendant keeps its process id until the shim reaps it, so the id is not reused.
            if let Some(pid) = Pid::from_raw(stat.id.pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        reap(task.id.pid);
        if left.is_empty() {
            return;
        }
        thread::sleep(KILL_EVERY);
    }
}

/// Sends a signal to the task's process. If that is a shell, which does not forward signals, its
/// children receive it too.
///
/// Other processes of the program receive none. PyTorch's data loader workers, for example, would
/// exit and bring down the process that writes the checkpoint.
pub(super) fn signal_program(task: &TaskProcess, signal: Signal) {
    let all = process::descendants(own_id().pid);
    let mut told = vec![task.id];
    while let Some(id) = told.pop() {
        // Tested before the signal, because the process may be gone afterwards.
        if process::is_shell(id.pid) {
            let children = all.iter().filter(|stat| stat.parent == id.pid);
            told.extend(children.map(|stat| stat.id));
        }
        let _ = id.signal(signal);
    }
}

/// Kills the task's process group. Its leader is the task, whose id stays reserved until it is
/// reaped.
fn kill_group(task: &TaskProcess) {
    if let Some(group) = Pid::from_raw(task.id.pid) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn outcome(status: WaitStatus) -> Outcome {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Outcome::exited(code),
        (None, Some(signal)) => Outcome::signalled(signal),
        (None, None) => Outcome::LaunchFailed {
            message: format!("ended with the unknown status {status:?}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{SupervisionPhase, kill_by_lease_ms};

    /// The stop is at 1,000 with a grace of 5,000; the driver may take 60,000.
    #[test]
    fn kill_follows_the_lease_within_a_grace_despite_the_driver() {
        const GRACE_MS: u64 = 5_000;
        let kept = Some(60_000);
        for (now_ms, driver_limit_ms, expired_at_ms, kill_at_ms) in [
            (2_000, None, None, 6_000),
            (9_000, kept, None, 14_000),
            (90_000, kept, None, 66_000),
            (9_000, kept, Some(8_000), 13_000),
            (40_000, kept, Some(8_000), 13_000),
            (12_000, kept, Some(11_900), 16_900),
            (2_000, None, Some(1_900), 6_000),
        ] {
            let told = SupervisionPhase::Stopping {
                told_at_ms: 1_000,
                kill_at_ms: 1_000 + GRACE_MS,
                is_lease: false,
            };
            let by_lease_ms = kill_by_lease_ms(expired_at_ms, GRACE_MS);
            let postponed = told.postpone_kill(now_ms, driver_limit_ms, by_lease_ms, GRACE_MS);
            let SupervisionPhase::Stopping { kill_at_ms: at, .. } = postponed else {
                panic!("it is still being stopped");
            };
            assert_eq!(
                at, kill_at_ms,
                "{now_ms} {driver_limit_ms:?} {expired_at_ms:?}"
            );
        }
    }
    /// The document asks for 60 s, the cluster for 5 s. The GPUs belong to others 5 s after the
    /// lease.
    #[test]
    fn longer_grace_of_a_document_ends_with_the_lease() {
        for (expired_at_ms, kill_at_ms) in [(None, 61_000), (Some(8_000), 13_000)] {
            let told = SupervisionPhase::Stopping {
                told_at_ms: 1_000,
                kill_at_ms: 61_000,
                is_lease: false,
            };
            let by_lease_ms = kill_by_lease_ms(expired_at_ms, 5_000);
            let postponed = told.postpone_kill(9_000, None, by_lease_ms, 60_000);
            let SupervisionPhase::Stopping { kill_at_ms: at, .. } = postponed else {
                panic!("it is still being stopped");
            };
            assert_eq!(at, kill_at_ms);
        }
    }
}
