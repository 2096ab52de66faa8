//! Resources that the daemons of a cluster have used on this machine, from the kernel's counters.

use crate::processes::OsProcess;
use std::collections::BTreeMap;
use std::fmt;

/// Unit of times in `/proc` on Linux.
const TICKS_PER_S: f64 = 100.0;

/// Sums over the living processes of a program.
#[derive(Debug, Default, Clone, Copy)]
struct ProgramUsage {
    processes: u32,
    cpu_s: f64,
    /// Proportional set size: shared memory counts once.
    memory_bytes: u64,
}

/// By program.
#[derive(Debug, Default)]
pub struct UsageByProgram(BTreeMap<String, ProgramUsage>);

impl UsageByProgram {
    /// Usage of these processes.
    #[must_use]
    pub fn of(processes: &[OsProcess]) -> Self {
        let mut usage = Self::default();
        for process in processes {
            let Some(cpu_s) = cpu_s(process.pid) else {
                continue;
            };
            let used = usage.0.entry(process.program.clone()).or_default();
            used.processes += 1;
            used.cpu_s += cpu_s;
            used.memory_bytes += memory_bytes(process.pid);
        }
        usage
    }

    /// Usage since `before`; memory at present.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let used = self.0.iter().map(|(program, used)| {
            let earlier = before.0.get(program).map_or(0.0, |used| used.cpu_s);
            let cpu_s = used.cpu_s - earlier;
            (program.clone(), ProgramUsage { cpu_s, ..*used })
        });
        Self(used.collect())
    }
}

impl fmt::Display for UsageByProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (program, used) in &self.0 {
            writeln!(
                f,
                "  {program:<18} {:>4} processes {:>8.1} s of CPU {:>7} MiB",
                used.processes,
                used.cpu_s,
                used.memory_bytes >> 20
            )?;
        }
        Ok(())
    }
}

/// CPU seconds, including ended children.
fn cpu_s(pid: i32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain blanks and brackets. After it come the state and numbers, of which the
    // 12th to the 15th are times.
    let (_, rest) = stat.rsplit_once(')')?;
    let numbers = rest.split_ascii_whitespace().skip(11).take(4);
    let ticks: u32 = numbers
        .filter_map(|number| number.parse::<u32>().ok())
        .sum();
    Some(f64::from(ticks) / TICKS_PER_S)
}

fn memory_bytes(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let number = line.and_then(|line| line.split_ascii_whitespace().next());
    number
        .and_then(|number| number.parse::<u64>().ok())
        .unwrap_or(0)
        * 1_024
}
