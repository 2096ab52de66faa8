use super::*;
use std::cell::{Cell, RefCell};

/// Driver stand-in that keeps states, refuses calls in a wrong order as NVIDIA's does, and fails on
/// request.
struct FakeDriver {
    states: RefCell<BTreeMap<i32, CudaProcessState>>,
    calls: RefCell<Vec<(&'static str, i32)>>,
    /// This call fails for this process, each time.
    fails: Option<(&'static str, i32)>,
    /// A failed call takes effect nevertheless.
    half: bool,
    /// This call reports success without an effect.
    idle: Option<&'static str>,
}

impl FakeDriver {
    fn new(processes: &[i32]) -> Self {
        let states = processes
            .iter()
            .map(|pid| (*pid, CudaProcessState::Running));
        Self {
            states: RefCell::new(states.collect()),
            calls: RefCell::default(),
            fails: None,
            half: false,
            idle: None,
        }
    }

    fn act(
        &self,
        call: &'static str,
        pid: i32,
        (from, to): (CudaProcessState, CudaProcessState),
    ) -> Result<(), DriverError> {
        self.calls.borrow_mut().push((call, pid));
        assert!(self.calls.borrow().len() < 1_000, "nobody asks so often");
        if self.idle == Some(call) {
            return Ok(());
        }
        let mut states = self.states.borrow_mut();
        let state = states.get_mut(&pid).expect("a process of the task");
        let refused = |code| {
            Err(DriverError::Refused {
                call,
                pid: Some(pid),
                code,
            })
        };
        if *state != from {
            return refused(401);
        }
        if self.fails == Some((call, pid)) {
            if self.half {
                *state = to;
            }
            return refused(999);
        }
        *state = to;
        Ok(())
    }

    fn all(&self, wanted: CudaProcessState) -> bool {
        self.states.borrow().values().all(|state| *state == wanted)
    }

    fn calls(&self) -> Vec<(&'static str, i32)> {
        self.calls.borrow().clone()
    }
}

impl Driver for FakeDriver {
    fn state(&self, pid: i32) -> Result<Option<CudaProcessState>, DriverError> {
        Ok(self.states.borrow().get(&pid).copied())
    }

    fn lock(&self, pid: i32, _: u32) -> Result<(), DriverError> {
        self.act(
            "lock",
            pid,
            (CudaProcessState::Running, CudaProcessState::Locked),
        )
    }

    fn checkpoint(&self, pid: i32) -> Result<(), DriverError> {
        self.act(
            "checkpoint",
            pid,
            (CudaProcessState::Locked, CudaProcessState::Moved),
        )
    }

    fn restore(&self, pid: i32) -> Result<(), DriverError> {
        self.act(
            "restore",
            pid,
            (CudaProcessState::Moved, CudaProcessState::Locked),
        )
    }

    fn unlock(&self, pid: i32) -> Result<(), DriverError> {
        self.act(
            "unlock",
            pid,
            (CudaProcessState::Locked, CudaProcessState::Running),
        )
    }
}

/// Each process has one gigabyte on GPU 0.
struct FakeMemoryBudget {
    host: u64,
    gpu: Cell<u64>,
}

const GB: u64 = 1 << 30;

impl MemoryBudget for FakeMemoryBudget {
    fn on_gpus(&self, processes: &[i32]) -> Result<GpuBytes, DriverError> {
        Ok(GpuBytes::from([(0, processes.len() as u64 * GB)]))
    }

    fn reserve_host(
        &self,
        _: &[i32],
        needed: u64,
    ) -> Result<Result<MemoryReservation, u64>, DriverError> {
        Ok(if self.host < needed {
            Err(self.host)
        } else {
            Ok(MemoryReservation::default())
        })
    }

    fn reserve_gpus(
        &self,
        needed: &GpuBytes,
        _: f64,
    ) -> Result<Result<MemoryReservation, (u32, u64)>, DriverError> {
        let free = self.gpu.get();
        // The other user of the GPU leaves gradually.
        self.gpu.set(free + GB / 4);
        Ok(if free < needed[&0] {
            Err((0, free))
        } else {
            Ok(MemoryReservation::default())
        })
    }
}

struct Clock(Cell<u64>);

impl Time for Clock {
    fn left_ms(&self) -> u64 {
        self.0.get()
    }

    fn pause(&self, for_ms: u64) {
        self.0.set(self.0.get().saturating_sub(for_ms));
    }
}

fn with<T>(
    driver: &FakeDriver,
    host: u64,
    gpu: u64,
    act: impl FnOnce(&CheckpointSequence<'_>) -> T,
) -> T {
    let memory = FakeMemoryBudget {
        host,
        gpu: Cell::new(gpu),
    };
    let time = Clock(Cell::new(1_000));
    act(&CheckpointSequence {
        driver,
        memory: &memory,
        time: &time,
        // Process 9 uses no GPU, so the driver does not know it.
        processes: &|| vec![1, 2, 3, 9],
    })
}

#[test]
fn locks_precede_moves_and_restores_precede_unlocks() {
    let driver = FakeDriver::new(&[1, 2, 3]);
    let answer = with(&driver, 8 * GB, 8 * GB, |sequence| sequence.checkpoint());
    let gpus = GpuBytes::from([(0, 3 * GB)]);
    assert_eq!(
        answer,
        DriverAnswer::Moved {
            processes: 3,
            gpus: gpus.clone()
        }
    );
    assert!(driver.all(CudaProcessState::Moved));
    let answer = with(&driver, 0, 8 * GB, |sequence| sequence.restore(&gpus, 0.0));
    assert_eq!(answer, DriverAnswer::Back);
    assert!(driver.all(CudaProcessState::Running));
    let order: Vec<&str> = driver.calls().into_iter().map(|(call, _)| call).collect();
    let thrice = ["lock", "checkpoint", "restore", "unlock"].map(|call| [call; 3]);
    assert_eq!(order, thrice.concat());
}

#[test]
fn failed_call_leaves_no_process_in_between() {
    for call in ["lock", "checkpoint", "restore", "unlock"] {
        for pid in 1..=3 {
            for half in [false, true] {
                let mut driver = FakeDriver::new(&[1, 2, 3]);
                (driver.fails, driver.half) = (Some((call, pid)), half);
                let answer = with(&driver, 8 * GB, 8 * GB, |sequence| sequence.checkpoint());
                let what = format!("{call} of {pid}, half {half}: {answer:?}");
                match call {
                    "lock" | "checkpoint" => {
                        assert!(matches!(answer, DriverAnswer::Unchanged { .. }), "{what}");
                        assert!(driver.all(CudaProcessState::Running), "{what}");
                        continue;
                    }
                    // The move calls neither of these.
                    _ => assert!(driver.all(CudaProcessState::Moved), "{what}"),
                }
                let needed = GpuBytes::from([(0, 3 * GB)]);
                let answer = with(&driver, 0, 8 * GB, |sequence| {
                    sequence.restore(&needed, 0.0)
                });
                let what = format!("{call} of {pid}, half {half}: {answer:?}");
                if half {
                    // It reports a failure but has succeeded.
                    assert_eq!(answer, DriverAnswer::Back, "{what}");
                    assert!(driver.all(CudaProcessState::Running), "{what}");
                } else {
                    assert!(matches!(answer, DriverAnswer::Lost { .. }), "{what}");
                    let tried = driver.calls();
                    let tries = tried.iter().filter(|one| **one == (call, pid)).count();
                    assert!(call != "restore" || tries == 1, "{what}: {tries} tries");
                }
            }
        }
    }
}

#[test]
fn memory_without_room_on_the_host_stays_on_the_gpu() {
    let driver = FakeDriver::new(&[1, 2, 3]);
    let answer = with(&driver, 3 * GB - 1, 0, |sequence| sequence.checkpoint());
    assert!(
        matches!(&answer, DriverAnswer::Unchanged { why } if why.contains(&(3 * GB).to_string())),
        "{answer:?}"
    );
    assert!(driver.all(CudaProcessState::Running));
    assert!(driver.calls().iter().all(|(call, _)| *call != "checkpoint"));
}

#[test]
fn restore_waits_for_room_for_all_memory() {
    let driver = FakeDriver::new(&[1, 2, 3]);
    with(&driver, 8 * GB, 0, |sequence| sequence.checkpoint());
    let needed = GpuBytes::from([(0, 3 * GB)]);
    let calls = driver.calls().len();
    let never = GpuBytes::from([(0, 1_000 * GB)]);
    let answer = with(&driver, 0, 0, |sequence| sequence.restore(&never, 0.0));
    assert!(matches!(answer, DriverAnswer::NoRoom { .. }), "{answer:?}");
    assert_eq!(driver.calls().len(), calls, "nothing was tried");
    let answer = with(&driver, 0, 0, |sequence| sequence.restore(&needed, 0.0));
    assert_eq!(answer, DriverAnswer::Back);
}

#[test]
fn unknown_driver_state_leaves_processes_unchanged() {
    let driver = FakeDriver::new(&[]);
    driver
        .states
        .borrow_mut()
        .insert(1, CudaProcessState::Other(7));
    let answer = with(&driver, 8 * GB, 0, |sequence| sequence.checkpoint());
    assert!(
        matches!(answer, DriverAnswer::Unchanged { .. }),
        "{answer:?}"
    );
    assert_eq!(driver.calls(), []);
}

#[test]
fn mend_waits_for_transitions_within_a_limit() {
    let driver = FakeDriver::new(&[1, 2]);
    driver
        .states
        .borrow_mut()
        .insert(2, CudaProcessState::Other(4));
    let answer = with(&driver, 0, 0, |sequence| sequence.roll_back());
    assert!(matches!(answer, DriverAnswer::Lost { .. }), "{answer:?}");
    driver
        .states
        .borrow_mut()
        .insert(2, CudaProcessState::Moved);
    driver
        .states
        .borrow_mut()
        .insert(1, CudaProcessState::Locked);
    let answer = with(&driver, 0, 0, |sequence| sequence.roll_back());
    assert_eq!(answer, DriverAnswer::Back);
    assert!(driver.all(CudaProcessState::Running));
    driver
        .states
        .borrow_mut()
        .insert(1, CudaProcessState::Failed);
    let answer = with(&driver, 0, 0, |sequence| sequence.roll_back());
    assert!(matches!(answer, DriverAnswer::Lost { .. }), "{answer:?}");
}

#[test]
fn calls_without_effect_are_repeated_a_bounded_number_of_times() {
    for (call, state) in [
        ("unlock", CudaProcessState::Locked),
        ("restore", CudaProcessState::Moved),
    ] {
        let mut driver = FakeDriver::new(&[1, 2]);
        driver.idle = Some(call);
        driver.states.borrow_mut().insert(1, state);
        let answer = with(&driver, 0, 0, |sequence| sequence.roll_back());
        let tries = driver.calls().len() as u64;
        assert!(matches!(answer, DriverAnswer::Lost { .. }), "{answer:?}");
        assert!(tries <= 3 + 1_000 / PAUSE_MS, "{tries} tries of {call}");
    }
}
