//! Driver helper: a process that calls the GPU driver for the shim, which must not block.
//! One process per order; it is killed when it exceeds its time.

use super::child::bind_to_us;
use crate::clock;
use crate::driver::{DriverAnswer, DriverOrder};
use crate::folder::NodeTaskFolder;
use crate::process::{self, ProcessId};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Time for the start and the answer of the helper, in addition to the driver's time.
const BESIDE_MS: u64 = 2_000;

pub(super) struct DriverHelper {
    id: ProcessId,
    folder: NodeTaskFolder,
    until_ms: u64,
}

/// Result of an order.
pub(super) enum DriverHelperResult {
    Answered(DriverAnswer),
    /// The helper was killed, by the shim for being late or by another process. Its progress is
    /// unknown.
    Vanished {
        why: String,
    },
}

impl DriverHelper {
    /// Starts a helper; call it on the main thread. The caller has removed the answer to an earlier
    /// order.
    pub fn send(
        folder: &NodeTaskFolder,
        promises: &Path,
        order: DriverOrder,
        needed: &BTreeMap<u32, u64>,
        patience_ms: u64,
    ) -> io::Result<Self> {
        let order = match order {
            DriverOrder::Probe => "probe",
            DriverOrder::TakeOff => "take-off",
            DriverOrder::BringBack => "bring-back",
            DriverOrder::BringBackToEnd => "bring-back-to-end",
            DriverOrder::Mend => "mend",
        };
        // Not by path: an upgrade may have replaced or removed the program.
        let mut command = Command::new("/proc/self/exe");
        command
            .args(["driver", "--order", order, "--folder"])
            .arg(folder.path())
            .arg("--promises")
            .arg(promises)
            .args(["--needed", &serde_json::to_string(needed)?])
            .args(["--patience-ms", &patience_ms.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        bind_to_us(&mut command);
        Ok(Self {
            id: tracked_id(command.spawn()?, ProcessId::of)?,
            folder: folder.clone(),
            until_ms: clock::boottime_ms() + patience_ms + BESIDE_MS,
        })
    }

    /// Returns the result; `None` while the helper works. Kills a late helper. A helper inside a
    /// system call ends when the call returns.
    pub fn poll(&self) -> Option<DriverHelperResult> {
        if process::stat(self.id.pid).is_some_and(|stat| stat.id == self.id && !stat.is_dead()) {
            if clock::boottime_ms() < self.until_ms {
                return None;
            }
            let _ = self.id.signal(Signal::KILL);
            return Some(DriverHelperResult::Vanished {
                why: "the driver took too long".to_owned(),
            });
        }
        let answer = self.folder.driver().read().ok().flatten();
        Some(answer.map_or_else(
            || DriverHelperResult::Vanished {
                why: "the driver helper has exited".to_owned(),
            },
            DriverHelperResult::Answered,
        ))
    }
}

/// Returns the id of the started helper. A helper without a known start time cannot be followed, so
/// it is killed and the caller continues as if it had not started.
fn tracked_id(
    mut helper: Child,
    look: impl FnOnce(i32) -> Option<ProcessId>,
) -> io::Result<ProcessId> {
    let pid = i32::try_from(helper.id()).expect("process ids are small");
    // The id stays reserved until the shim's loop reaps the process.
    if let Some(id) = look(pid) {
        return Ok(id);
    }
    helper.kill()?;
    helper.wait()?;
    Err(io::Error::other("the driver helper cannot be tracked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helper_without_a_known_id_is_killed() {
        let [first, second] = [(); 2].map(|()| {
            let mut command = Command::new("sleep");
            command.arg("60").spawn().expect("started")
        });
        let id = tracked_id(first, ProcessId::of).expect("it is there");
        assert!(id.is_alive());
        assert!(id.signal(Signal::KILL));
        let mut seen = None;
        let lost = tracked_id(second, |pid| {
            seen = ProcessId::of(pid);
            None
        });
        assert!(lost.is_err());
        assert!(seen.is_some_and(|id| !id.is_alive()), "{seen:?}");
    }
}
