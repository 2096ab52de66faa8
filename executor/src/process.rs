//! Processes according to `/proc`. A process is identified by its id AND its start time, because
//! ids are reused.

use muster_model::id::TaskId;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;

/// Environment variable that marks a process as part of a task.
pub const TASK_VARIABLE: &str = "MUSTER_TASK_ID";

/// A process of the current boot of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// Clock ticks from the start of the machine to that of the process.
    pub start_ticks: u64,
}

/// The used fields of `/proc/<pid>/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    pub id: ProcessId,
    /// `R`, `S`, `Z` and so on.
    pub state: char,
    pub parent: i32,
    pub session: i32,
    /// Number of threads, including a first thread that has ended before the others.
    pub threads: u32,
    /// Processor time so far, including children that were waited for, in hundredths of a second.
    pub cpu_ticks: u64,
}

impl ProcessId {
    /// Returns the process with this id, if it exists.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        stat(pid).map(|stat| stat.id)
    }

    /// Whether the process still runs; a zombie does not.
    #[must_use]
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.id == self && !stat.is_dead())
    }

    /// Sends a signal to exactly this process; returns `false` if it is gone. The pidfd is opened
    /// before the start time is compared, so that the id cannot be reused in between.
    #[must_use]
    pub fn signal(self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return false;
        };
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
            return false;
        };
        self.is_alive() && pidfd_send_signal(process, signal).is_ok()
    }
}

impl Stat {
    /// Whether the process has ended. If only its first thread has, the state is `Z` too.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        is_dead(self.state) && self.threads <= 1
    }
}

fn is_dead(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// Returns the state of a process; `None` if it does not exist.
#[must_use]
pub fn stat(pid: i32) -> Option<Stat> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Whether a process currently runs a shell, according to the file name of its program.
#[must_use]
pub fn is_shell(pid: i32) -> bool {
    const SHELLS: [&str; 8] = ["sh", "bash", "dash", "ash", "busybox", "zsh", "ksh", "fish"];
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = program.file_name().unwrap_or_default();
    SHELLS.iter().any(|shell| name == *shell)
}

/// Returns the resident memory of a process in bytes, including shared memory; 0 if it does not
/// exist.
#[must_use]
pub fn resident_bytes(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1_024)
}

/// Returns all processes of the machine except zombies.
#[must_use]
pub fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(stat)
        .filter(|stat| !stat.is_dead())
        .collect()
}

/// Returns the descendants of a process, without the process itself.
#[must_use]
pub fn descendants(root: i32) -> Vec<Stat> {
    descendants_among(&all(), root)
}

/// Returns the descendants among given processes.
#[must_use]
pub fn descendants_among(all: &[Stat], root: i32) -> Vec<Stat> {
    let mut rest = all.to_vec();
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        rest.retain(|stat| {
            let is_child = stat.parent == parent;
            if is_child {
                parents.push(stat.id.pid);
                found.push(*stat);
            }
            !is_child
        });
    }
    found
}

/// Whether none of the processes can run code before one of them is continued. Every thread of a
/// process is stopped, or waits in the kernel (state D) while the process has a stopped child: a
/// `vfork` waits until its child has called `exec`.
#[must_use]
pub fn have_stopped(processes: &[Stat]) -> bool {
    have_stopped_with(processes, thread_states)
}

fn have_stopped_with(processes: &[Stat], thread_states: impl Fn(i32) -> Vec<char>) -> bool {
    processes.iter().all(|process| {
        let has_child = processes.iter().any(|child| child.parent == process.id.pid);
        let states = thread_states(process.id.pid);
        // A process without readable threads is not known to have stopped.
        !states.is_empty()
            && states.into_iter().all(|state| {
                matches!(state, 'T' | 't') || is_dead(state) || (state == 'D' && has_child)
            })
    })
}

/// Returns the states of the threads of a process; empty if they cannot be read. Threads that end
/// meanwhile are left out.
fn thread_states(pid: i32) -> Vec<char> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let stats = threads.flatten().filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("stat")).ok()?;
        parse(pid, &text)
    });
    stats.map(|stat| stat.state).collect()
}

/// Returns the processes with the task's id in their initial environment, or in the session of the
/// task's process.
#[must_use]
pub fn of_task(task: TaskId, session: Option<i32>) -> Vec<Stat> {
    let mark = format!("{TASK_VARIABLE}={task}");
    all()
        .into_iter()
        .filter(|stat| Some(stat.session) == session || has_variable(stat.id.pid, &mark))
        .collect()
}

/// Whether the initial environment of a process contains this variable with its value.
fn has_variable(pid: i32, wanted: &str) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
        environment
            .split(|&byte| byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    })
}

/// Parses `/proc/<pid>/stat`. The name of a process may contain any characters, also brackets; the
/// fields follow the last bracket.
fn parse(pid: i32, text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text
        .get(text.rfind(')')? + 1..)?
        .split_ascii_whitespace()
        .collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        cpu_ticks: {
            let times = fields.get(11..15)?;
            times
                .iter()
                .filter_map(|time| time.parse::<u64>().ok())
                .sum()
        },
        id: ProcessId {
            pid,
            start_ticks: fields.get(19)?.parse().ok()?,
        },
    })
}

/// Returns the boot id of the machine, which is new after each boot.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |id| id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_with_brackets_and_blanks_is_parsed() {
        let text = "7 (a) R 1 (b) S 3 4 5 0 -1 0 0 0 0 0 40 2 300 1 20 0 1 0 987 0 0";
        let stat = parse(7, text).expect("well-formed");
        assert_eq!(
            stat,
            Stat {
                id: ProcessId {
                    pid: 7,
                    start_ticks: 987
                },
                state: 'S',
                parent: 3,
                session: 5,
                threads: 1,
                cpu_ticks: 343
            }
        );
    }

    fn process(pid: i32, parent: i32, state: char) -> Stat {
        Stat {
            id: ProcessId {
                pid,
                start_ticks: 1,
            },
            state,
            parent,
            session: 1,
            threads: 2,
            cpu_ticks: 0,
        }
    }

    #[test]
    fn processes_have_stopped_once_no_thread_can_run() {
        let (parent, child) = (process(2, 1, 'T'), process(3, 2, 'T'));
        let cases: [(&[Stat], &str, &str, bool); 9] = [
            (&[parent, child], "T", "Tt", true),
            // The parent waits in a `vfork`.
            (&[parent, child], "DT", "T", true),
            (&[parent, child], "DR", "T", false),
            (&[parent, child], "D", "S", false),
            (&[parent], "D", "", false),
            // A tracer can stop the first thread alone.
            (&[parent], "tR", "", false),
            (&[parent], "", "", false),
            // The first thread has ended.
            (&[parent], "ZT", "", true),
            (&[parent], "ZR", "", false),
        ];
        for (processes, of_parent, of_child, expected) in cases {
            let threads = |pid| match pid {
                2 => of_parent.chars().collect(),
                _ => of_child.chars().collect(),
            };
            let found = have_stopped_with(processes, threads);
            assert_eq!(found, expected, "{of_parent:?} {of_child:?}");
        }
    }

    #[test]
    fn process_lives_while_one_of_its_threads_does() {
        let first_ended = process(2, 1, 'Z');
        let ended = Stat {
            threads: 1,
            ..first_ended
        };
        assert_eq!((first_ended.is_dead(), ended.is_dead()), (false, true));
    }

    #[test]
    fn own_threads_are_read() {
        let own = i32::try_from(std::process::id()).expect("small");
        assert!(thread_states(own).contains(&'R'));
    }

    #[test]
    fn reused_process_id_is_another_process() {
        let own = i32::try_from(std::process::id()).expect("small");
        let id = ProcessId::of(own).expect("this process");
        assert!(id.is_alive());
        let earlier = ProcessId {
            start_ticks: id.start_ticks - 1,
            ..id
        };
        assert!(!earlier.is_alive());
        assert!(!earlier.signal(Signal::TERM));
    }
}
