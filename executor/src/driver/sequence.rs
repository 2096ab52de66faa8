//! In which order processes lose their device memory and get it back, and how what fails half-way is undone.
//!
//! All are locked before the first is moved, so that none waits on a GPU for one that is gone from it; and all is brought back before the
//! first is unlocked. A restore that fails for want of memory leaves its process without a way back (NVIDIA/cuda-checkpoint, issue 44), so
//! room on the GPUs is looked for first, and what failed is not tried twice.

use super::library::{Driver, State};
use super::promise::Promise;
use super::room::{Bytes, Room};
use super::{Answer, DriverError};
use std::collections::BTreeMap;

/// For a process to answer: what it has on its GPUs is done first.
const LOCK_MS: u64 = 10_000;
/// Looks for processes that were started while the others were being locked.
const ROUNDS: u32 = 8;
/// Between two looks at what takes its time.
const PAUSE_MS: u64 = 20;

/// Time, so that nothing here reads a clock.
pub(super) trait Time {
    /// Milliseconds that are left for all of it.
    fn left_ms(&self) -> u64;
    fn pause(&self, for_ms: u64);
}

/// One task's processes and all that is done to them.
pub(super) struct Sequence<'a> {
    pub driver: &'a dyn Driver,
    pub room: &'a dyn Room,
    pub time: &'a dyn Time,
    /// The task's processes at the moment.
    pub processes: &'a dyn Fn() -> Vec<i32>,
}

impl Sequence<'_> {
    /// Moves the task's device memory to the host. Afterwards all of it has moved, or none, or the answer says that there is no way back.
    pub fn take_off(&self) -> Answer {
        let mut locked = Vec::new();
        let moved = self
            .lock_all(&mut locked)
            .and_then(|()| self.move_all(&locked));
        match moved {
            Ok(gpus) => Answer::Moved {
                processes: locked.len(),
                gpus,
            },
            // Who was not touched is as it was, whatever the driver says of it.
            Err(why) => match self.as_before(Some(&locked)) {
                Ok(()) => Answer::Unchanged {
                    why: why.in_words(),
                },
                Err(worse) => Answer::Lost {
                    why: format!("{}; then {}", why.in_words(), worse.in_words()),
                },
            },
        }
    }

    /// Brings the task's device memory back to the GPUs, of which it needs so much. `spared` is the part of each GPU that is left to whoever
    /// else is there; without room nothing is tried.
    pub fn bring_back(&self, needed: &Bytes, spared: f64) -> Answer {
        match self.wait_for_room(needed, spared) {
            Ok(_promise) => self.mend(),
            Err(why @ (DriverError::NoRoomOnGpu { .. } | DriverError::Promises { .. })) => {
                Answer::NoRoom {
                    why: why.in_words(),
                }
            }
            Err(why) => Answer::Unchanged {
                why: why.in_words(),
            },
        }
    }

    /// Whatever was done to any of the processes is undone.
    pub fn mend(&self) -> Answer {
        match self.as_before(None) {
            Ok(()) => Answer::Back,
            Err(why) => Answer::Lost {
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
                if state != State::Running {
                    return Err(DriverError::Astray { pid, state });
                }
                let left_ms = self.time.left_ms().min(LOCK_MS);
                if left_ms == 0 {
                    return Err(DriverError::Late { pid });
                }
                let timeout_ms = u32::try_from(left_ms).unwrap_or(u32::MAX);
                // Before it is: a lock that fails may be half of one.
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

    /// All are locked, so what they hold cannot become more.
    fn move_all(&self, locked: &[i32]) -> Result<Bytes, DriverError> {
        if locked.is_empty() {
            return Ok(Bytes::new());
        }
        let gpus = self.room.on_gpus(locked)?;
        let needed = gpus.values().sum();
        let _promise = self
            .room
            .promise_host(locked, needed)?
            .map_err(|free| DriverError::NoRoomOnHost { needed, free })?;
        for &pid in locked {
            if self.time.left_ms() == 0 {
                return Err(DriverError::Late { pid });
            }
            self.driver.checkpoint(pid)?;
        }
        Ok(gpus)
    }

    fn wait_for_room(&self, needed: &Bytes, spared: f64) -> Result<Promise, DriverError> {
        loop {
            let why = match self.room.promise_gpus(needed, spared) {
                Ok(Ok(promise)) => return Ok(promise),
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

    /// First everything is brought back, then everybody is unlocked; of these processes or of all. What another has left half done is
    /// waited for.
    fn as_before(&self, only: Option<&[i32]>) -> Result<(), DriverError> {
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
            let not_so: Vec<(i32, State)> = states
                .into_iter()
                .filter(|(_, state)| *state != State::Running)
                .collect();
            let Some(&(first, state)) = not_so.first() else {
                return Ok(());
            };
            if let Some((pid, _)) = not_so.iter().find(|(_, state)| *state == State::Failed) {
                return Err(tried.remove(pid).unwrap_or(DriverError::Astray {
                    pid: *pid,
                    state: State::Failed,
                }));
            }
            let moved: Vec<i32> = of(&not_so, State::Moved);
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
                for pid in of(&not_so, State::Locked) {
                    // One that is still being moved by a call that nobody waits for any more refuses until that is over.
                    refused = self.driver.unlock(pid).err().or(refused);
                }
            }
            // A driver may say that it did something and not have done it.
            let is_waiting = not_so == before
                || refused.is_some()
                || not_so.iter().any(|(_, state)| is_on_the_way(*state));
            if is_waiting && self.time.left_ms() == 0 {
                return Err(refused.unwrap_or(DriverError::Astray { pid: first, state }));
            }
            if is_waiting {
                self.time.pause(PAUSE_MS);
            }
            before = not_so;
        }
    }

    fn states(&self, only: Option<&[i32]>) -> Result<Vec<(i32, State)>, DriverError> {
        let mut states = Vec::new();
        let mut processes = (self.processes)();
        processes.retain(|pid| only.is_none_or(|only| only.contains(pid)));
        for pid in processes {
            match self.driver.state(pid) {
                Ok(Some(state)) => states.push((pid, state)),
                Ok(None) => {}
                // One that has just ended has nothing to be moved.
                Err(_) if !(self.processes)().contains(&pid) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(states)
    }
}

fn of(states: &[(i32, State)], wanted: State) -> Vec<i32> {
    let all = states.iter().filter(|(_, state)| *state == wanted);
    all.map(|(pid, _)| *pid).collect()
}

fn is_on_the_way(state: State) -> bool {
    matches!(state, State::Other(_))
}

#[cfg(test)]
mod tests;
