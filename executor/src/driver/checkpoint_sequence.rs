//! Order in which processes lose and regain their device memory, and the undoing of a partial move.
//!
//! All processes are locked before the first is moved, so that none waits on a GPU for a process
//! that has left it. All are restored before the first is unlocked. A restore that fails for lack
//! of memory leaves its process lost (see the issues of NVIDIA/cuda-checkpoint). So the room on the
//! GPUs is reserved first, and a failed restore is not repeated.

use super::library::{CudaProcessState, Driver};
use super::memory_budget::{GpuBytes, MemoryBudget};
use super::memory_reservation::MemoryReservation;
use super::{DriverAnswer, DriverError};
use std::collections::BTreeMap;

/// Time limit of a lock: the process completes its work on the GPU first.
const LOCK_MS: u64 = 10_000;
/// Maximum number of passes that lock processes started during the previous pass.
const ROUNDS: u32 = 8;
/// Interval between polls of the driver.
const PAUSE_MS: u64 = 20;

/// The clock as an input.
pub(super) trait Time {
    /// Returns the milliseconds that are left for the whole order.
    fn left_ms(&self) -> u64;
    fn pause(&self, for_ms: u64);
}

/// The processes of one task and the operations on them.
pub(super) struct CheckpointSequence<'a> {
    pub driver: &'a dyn Driver,
    pub memory: &'a dyn MemoryBudget,
    pub time: &'a dyn Time,
    /// Returns the present processes of the task.
    pub processes: &'a dyn Fn() -> Vec<i32>,
}

impl CheckpointSequence<'_> {
    /// Moves the task's device memory to the host. Afterwards all of it has moved, or none, or the
    /// answer is `Lost`.
    pub fn checkpoint(&self) -> DriverAnswer {
        let mut locked = Vec::new();
        let moved = self
            .lock_all(&mut locked)
            .and_then(|()| self.move_all(&locked));
        match moved {
            Ok(gpus) => DriverAnswer::Moved {
                processes: locked.len(),
                gpus,
            },
            // Only processes that this attempt has tried to lock are restored; the others are
            // unchanged.
            Err(why) => match self.restore_and_unlock(Some(&locked)) {
                Ok(()) => DriverAnswer::Unchanged {
                    why: why.in_words(),
                },
                Err(worse) => DriverAnswer::Lost {
                    why: format!("{}; then {}", why.in_words(), worse.in_words()),
                },
            },
        }
    }

    /// Moves the task's device memory, `needed` bytes per GPU, back to the GPUs. `spared` is the
    /// part of each GPU that must stay free beside it. Without room, nothing is changed.
    pub fn restore(&self, needed: &GpuBytes, spared: f64) -> DriverAnswer {
        match self.reserve_gpu_memory(needed, spared) {
            Ok(_reservation) => self.roll_back(),
            Err(why @ (DriverError::NoRoomOnGpu { .. } | DriverError::Promises { .. })) => {
                DriverAnswer::NoRoom {
                    why: why.in_words(),
                }
            }
            Err(why) => DriverAnswer::Unchanged {
                why: why.in_words(),
            },
        }
    }

    /// Restores and unlocks all processes.
    pub fn roll_back(&self) -> DriverAnswer {
        match self.restore_and_unlock(None) {
            Ok(()) => DriverAnswer::Back,
            Err(why) => DriverAnswer::Lost {
                why: why.in_words(),
            },
        }
    }

    fn lock_all(&self, locked: &mut Vec<i32>) -> Result<(), DriverError> {
        for _ in 0..ROUNDS {
            let mut is_new = false;
            for (pid, state) in self.states(None)? {
                if locked.contains(&pid) {
                    continue;
                }
                if state != CudaProcessState::Running {
                    return Err(DriverError::Astray { pid, state });
                }
                let left_ms = self.time.left_ms().min(LOCK_MS);
                if left_ms == 0 {
                    return Err(DriverError::Late { pid });
                }
                let timeout_ms = u32::try_from(left_ms).unwrap_or(u32::MAX);
                // Added before the call: a failed lock may have locked the process.
                locked.push(pid);
                self.driver.lock(pid, timeout_ms)?;
                is_new = true;
            }
            if !is_new {
                return Ok(());
            }
        }
        Err(DriverError::Breeding { rounds: ROUNDS })
    }

    /// Moves the memory of locked processes. They are locked, so their memory cannot grow.
    fn move_all(&self, locked: &[i32]) -> Result<GpuBytes, DriverError> {
        if locked.is_empty() {
            return Ok(GpuBytes::new());
        }
        let gpus = self.memory.on_gpus(locked)?;
        let needed = gpus.values().sum();
        let _reservation = self
            .memory
            .reserve_host(locked, needed)?
            .map_err(|free| DriverError::NoRoomOnHost { needed, free })?;
        for &pid in locked {
            if self.time.left_ms() == 0 {
                return Err(DriverError::Late { pid });
            }
            self.driver.checkpoint(pid)?;
        }
        Ok(gpus)
    }

    fn reserve_gpu_memory(
        &self,
        needed: &GpuBytes,
        spared: f64,
    ) -> Result<MemoryReservation, DriverError> {
        loop {
            let why = match self.memory.reserve_gpus(needed, spared) {
                Ok(Ok(reservation)) => return Ok(reservation),
                Ok(Err((gpu, free))) => {
                    let needed = needed.get(&gpu).copied().unwrap_or(0);
                    DriverError::NoRoomOnGpu { gpu, needed, free }
                }
                Err(why @ DriverError::Promises { .. }) => why,
                Err(why) => return Err(why),
            };
            if self.time.left_ms() == 0 {
                return Err(why);
            }
            self.time.pause(PAUSE_MS);
        }
    }

    /// Restores all processes and then unlocks all, of the given ones or of the task. Waits for
    /// transitions that another helper has begun.
    fn restore_and_unlock(&self, only: Option<&[i32]>) -> Result<(), DriverError> {
        let mut tried: BTreeMap<i32, DriverError> = BTreeMap::new();
        let mut before = Vec::new();
        loop {
            let states = match self.states(only) {
                Ok(states) => states,
                Err(error) if self.time.left_ms() == 0 => return Err(error),
                Err(_) => {
                    self.time.pause(PAUSE_MS);
                    continue;
                }
            };
            let unrestored: Vec<(i32, CudaProcessState)> = states
                .into_iter()
                .filter(|(_, state)| *state != CudaProcessState::Running)
                .collect();
            let Some(&(first, state)) = unrestored.first() else {
                return Ok(());
            };
            if let Some((pid, _)) = unrestored
                .iter()
                .find(|(_, state)| *state == CudaProcessState::Failed)
            {
                return Err(tried.remove(pid).unwrap_or(DriverError::Astray {
                    pid: *pid,
                    state: CudaProcessState::Failed,
                }));
            }
            let moved: Vec<i32> = of(&unrestored, CudaProcessState::Moved);
            for &pid in &moved {
                if let Some(error) = tried.remove(&pid) {
                    return Err(error);
                }
                if let Err(error) = self.driver.restore(pid) {
                    tried.insert(pid, error);
                }
            }
            let mut refused = None;
            if moved.is_empty() {
                for pid in of(&unrestored, CudaProcessState::Locked) {
                    // The driver refuses while a call of a killed helper still moves the process.
                    refused = self.driver.unlock(pid).err().or(refused);
                }
            }
            // A driver may report success without an effect.
            let is_waiting = unrestored == before
                || refused.is_some()
                || unrestored.iter().any(|(_, state)| is_in_transition(*state));
            if is_waiting && self.time.left_ms() == 0 {
                return Err(refused.unwrap_or(DriverError::Astray { pid: first, state }));
            }
            if is_waiting {
                self.time.pause(PAUSE_MS);
            }
            before = unrestored;
        }
    }

    fn states(&self, only: Option<&[i32]>) -> Result<Vec<(i32, CudaProcessState)>, DriverError> {
        let mut states = Vec::new();
        let mut processes = (self.processes)();
        processes.retain(|pid| only.is_none_or(|only| only.contains(pid)));
        for pid in processes {
            match self.driver.state(pid) {
                Ok(Some(state)) => states.push((pid, state)),
                Ok(None) => {}
                // A process that has just ended has no memory.
                Err(_) if !(self.processes)().contains(&pid) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(states)
    }
}

fn of(states: &[(i32, CudaProcessState)], wanted: CudaProcessState) -> Vec<i32> {
    let all = states.iter().filter(|(_, state)| *state == wanted);
    all.map(|(pid, _)| *pid).collect()
}

fn is_in_transition(state: CudaProcessState) -> bool {
    matches!(state, CudaProcessState::Other(_))
}

#[cfg(test)]
mod tests;
