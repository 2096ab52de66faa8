//! A process that speaks to the GPUs' driver for the shim, which must not wait: one for each order, killed when it takes too long.

use super::child::bind_to_us;
use crate::clock;
use crate::driver::{Answer, Order};
use crate::folder::TaskFolder;
use crate::process::{self, ProcessId};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// For the aide itself to come up and to write, beside the time that the driver has.
const BESIDE_MS: u64 = 2_000;

pub(super) struct Aide {
    id: ProcessId,
    folder: TaskFolder,
    until_ms: u64,
}

/// What became of an order.
pub(super) enum End {
    Answered(Answer),
    /// It was killed, by us for being late or by somebody else, and nobody knows how far it came.
    Vanished {
        why: String,
    },
}

impl Aide {
    /// On the main thread, like every start of a process here. The caller has removed the answer to an earlier order.
    pub fn send(
        folder: &TaskFolder,
        promises: &Path,
        order: Order,
        needed: &BTreeMap<u32, u64>,
        patience_ms: u64,
    ) -> io::Result<Self> {
        let order = match order {
            Order::Probe => "probe",
            Order::TakeOff => "take-off",
            Order::BringBack => "bring-back",
            Order::BringBackToEnd => "bring-back-to-end",
            Order::Mend => "mend",
        };
        // Not by its path: an upgrade may have put another program there, or none.
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
            id: known(command.spawn()?, ProcessId::of)?,
            folder: folder.clone(),
            until_ms: clock::boottime_ms() + patience_ms + BESIDE_MS,
        })
    }

    /// `None` while it is at work. One that is too late is killed; if it lies in a call to the kernel it goes with that.
    pub fn look(&self) -> Option<End> {
        if process::stat(self.id.pid).is_some_and(|stat| stat.id == self.id && !stat.is_dead()) {
            if clock::boottime_ms() < self.until_ms {
                return None;
            }
            let _ = self.id.signal(Signal::KILL);
            return Some(End::Vanished {
                why: "the driver took too long".to_owned(),
            });
        }
        let answer = self.folder.driver().read().ok().flatten();
        Some(answer.map_or_else(
            || End::Vanished {
                why: "who spoke to the driver has died".to_owned(),
            },
            End::Answered,
        ))
    }
}

/// One that cannot be told from others cannot be followed, and must not go on unseen: whoever asked goes on as if it had never been.
fn known(mut aide: Child, look: impl FnOnce(i32) -> Option<ProcessId>) -> io::Result<ProcessId> {
    let pid = i32::try_from(aide.id()).expect("process ids are small");
    // Until it is reaped, which the shim's loop does, the number is its own.
    if let Some(id) = look(pid) {
        return Ok(id);
    }
    aide.kill()?;
    aide.wait()?;
    Err(io::Error::other(
        "who was to speak to the driver cannot be followed",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_be_followed_does_not_go_on() {
        let start = || {
            let mut command = Command::new("sleep");
            command.arg("60").spawn().expect("started")
        };
        let id = known(start(), ProcessId::of).expect("it is there");
        assert!(id.is_alive());
        assert!(id.signal(Signal::KILL));
        let mut seen = None;
        let lost = known(start(), |pid| {
            seen = ProcessId::of(pid);
            None
        });
        assert!(lost.is_err());
        assert!(seen.is_some_and(|id| !id.is_alive()), "{seen:?}");
    }
}
