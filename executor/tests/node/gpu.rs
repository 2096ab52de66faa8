//! Suspension of programs on a real GPU, with PyTorch, NVIDIA's driver and NVML.
//!
//! Run it with
//! `cargo test -p muster-executor --test node -- --ignored gpu:: --test-threads 1 --nocapture`.
//! `MUSTER_TORCH_PYTHON` names Python (`python3`). It prints observations and durations. Without a
//! GPU it fails instead of being skipped. See docs/gpu.md.

#![expect(clippy::disallowed_methods, reason = "prints durations")]

use crate::command::{introduce, told};
use crate::driver::{ASKED, is_driver_helper, notes, of_task, turn};
use crate::scheduler::TaskToAssign;
use crate::site::Site;
use muster_executor::process::ProcessId;
use muster_model::assignment::{Observed, TaskReport};
use muster_model::node::{Capacity, DriverSuspend};
use muster_model::task::Outcome;
use nvml_wrapper::Nvml;
use nvml_wrapper::struct_wrappers::device::MemoryInfo;
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const TRAIN: &str = include_str!("gpu/train.py");
const ROOM: &str = include_str!("gpu/room.py");

const GIB: u64 = 1 << 30;
/// Tolerated growth of the memory in use over a test: less than the context of a program.
const SLACK: u64 = GIB / 4;
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time until the middle of a move of 20 GiB, which takes longer.
const MIDDLE: Duration = Duration::from_millis(900);
/// Time in which a program that is not suspended would visibly make progress.
const WHILE: Duration = Duration::from_millis(700);
/// Time limit of a reference run, and of the driver's work after the end of a process.
const PATIENCE: Duration = Duration::from_secs(120);

fn python() -> String {
    std::env::var("MUSTER_TORCH_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// GPU 0 according to NVML.
struct NvmlGpu {
    nvml: Nvml,
    /// Bytes in use before the test.
    before: u64,
}

impl NvmlGpu {
    fn open() -> Self {
        let nvml =
            Nvml::init().unwrap_or_else(|error| panic!("these tests need a GPU: NVML: {error}"));
        let mut gpu = Self { nvml, before: 0 };
        gpu.before = gpu.memory().used;
        println!("before: {}", gpu.shown());
        gpu
    }

    fn memory(&self) -> MemoryInfo {
        let device = self.nvml.device_by_index(0);
        device
            .and_then(|device| device.memory_info())
            .unwrap_or_else(|error| panic!("these tests need a GPU: {error}"))
    }

    /// Returns the bytes in use beyond those before the test.
    fn used(&self) -> u64 {
        self.memory().used.saturating_sub(self.before)
    }

    fn shown(&self) -> String {
        let memory = self.memory();
        let device = self.nvml.device_by_index(0).expect("it answered");
        let users = device.running_compute_processes().map(|all| {
            all.iter()
                .map(|one| format!("{} {:?}", one.pid, one.used_gpu_memory))
                .collect::<Vec<_>>()
        });
        format!(
            "{:.3} GB used, {:.3} GB free; NVML knows {users:?}",
            gb(memory.used),
            gb(memory.free)
        )
    }

    /// Ends every test: waits until the memory is released.
    fn finish(self) {
        let since = Instant::now();
        while self.used() > SLACK {
            assert!(
                since.elapsed() < PATIENCE,
                "memory is left behind: {}",
                self.shown()
            );
            thread::sleep(LOOK_EVERY);
        }
        println!(
            "after {:.2} s: {}",
            since.elapsed().as_secs_f64(),
            self.shown()
        );
    }
}

fn gb(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// A task that trains.
struct TrainingTask {
    task: TaskToAssign,
    lines: PathBuf,
    /// Path of its checkpoint.
    kept: PathBuf,
    gib: u32,
    kind: &'static str,
    turn: u64,
}

impl TrainingTask {
    fn start(site: &Site, gib: u32, kind: &'static str) -> Self {
        let (lines, kept) = (site.path().join("lines"), site.path().join("kept.pt"));
        let mut environment = json!({ "LINES": lines, "GIB": gib.to_string(), "KIND": kind });
        // Ranks would overwrite each other's checkpoint. `command.rs` covers stops with a loader's
        // processes.
        if kind == "alone" {
            environment["KEPT"] = json!(kept);
        }
        let command = json!({
            "argv": [python(), "train.py"], "files": { "train.py": TRAIN }, "env": environment,
        });
        let mut tasks = [site.command(0, command)];
        let launch = &mut tasks[0].launch;
        (launch.gpus, launch.grace_ms) = (vec![0], 30_000);
        (launch.cpu_milli, launch.memory_bytes) = (4_000, 64 * GIB);
        site.scheduler.assign(1, &tasks);
        introduce(site, &mut tasks);
        let [task] = tasks;
        let training = Self {
            task,
            lines,
            kept,
            gib,
            kind,
            turn: 0,
        };
        training.until_steps(site, 10);
        training
    }

    /// Returns the complete lines of its processes, ordered by rank.
    fn lines(&self) -> Vec<Vec<String>> {
        match self.kind {
            "ranks" => [0, 1]
                .map(|rank| read(&self.lines.with_extension(rank.to_string())))
                .into(),
            _ => vec![read(&self.lines)],
        }
    }

    fn steps(&self) -> usize {
        self.lines().iter().map(Vec::len).min().unwrap_or(0)
    }

    fn until_steps(&self, site: &Site, steps: usize) {
        self.until(site, &format!("{steps} steps"), || self.steps() >= steps);
    }

    /// Waits with a shorter interval than the site, and prints the known state when it fails.
    fn until(&self, site: &Site, what: &str, is_so: impl Fn() -> bool) {
        let since = Instant::now();
        while !is_so() {
            if since.elapsed() > PATIENCE / 2 || self.is_gone(site) {
                panic!("in vain: {what}\n{}", self.known(site));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    fn is_gone(&self, site: &Site) -> bool {
        let heard = site.scheduler.heard();
        matches!(heard.last(self.task.id()), Some(Observed::Gone { .. }))
    }

    /// Returns the known state for the message of a failure.
    fn known(&self, site: &Site) -> String {
        let folder = site.task_folder(&self.task);
        let mut text = format!(
            "steps {}; said {:#?}; state {:?}\n",
            self.steps(),
            told(site, &self.task),
            site.scheduler.heard().last(self.task.id())
        );
        let processes = fs::read_to_string(folder.join("shim.json")).map(|_| {
            of_task(site, &self.task)
                .iter()
                .map(|stat| (stat.id.pid, stat.state, threads(stat.id.pid)))
                .collect::<Vec<_>>()
        });
        text += &format!("processes {processes:?}\n");
        let named = ["driver.json", "shim.log", "log"].map(|name| folder.join(name));
        for path in named.iter().chain([&site.path().join("daemon.log")]) {
            let content = fs::read_to_string(path).unwrap_or_default();
            let from = content.len().saturating_sub(6_000);
            let tail = content.get(from..).unwrap_or(&content);
            text += &format!("--- {}\n{tail}\n", path.display());
        }
        text + &format!(
            "--- its output\n{}",
            site.scheduler.heard().log(self.task.id())
        )
    }

    fn next_turn(&mut self, site: &Site) -> u64 {
        let number = self.turn + 1;
        self.turn = number;
        turn(site, &mut self.task, number);
        number
    }

    /// Waits until the task is suspended; returns the driver's answer.
    fn until_suspended(&self, site: &Site) -> String {
        let wanted = TaskReport::Suspended {
            turn: self.turn,
            step: None,
        };
        self.until(site, "it stands still", || {
            told(site, &self.task).contains(&wanted)
        });
        fs::read_to_string(site.task_folder(&self.task).join("driver.json")).unwrap_or_default()
    }

    fn has_continued(&self, site: &Site) -> bool {
        told(site, &self.task).contains(&TaskReport::Continued {
            turn: self.turn,
            step: None,
        })
    }

    /// Suspends the task and checks that it makes no progress; returns its former GPU memory.
    fn suspend(&mut self, site: &Site, gpu: &NvmlGpu) -> u64 {
        let (had, order) = (gpu.used(), Instant::now());
        self.next_turn(site);
        let answer = self.until_suspended(site);
        let (took, left) = (order.elapsed().as_secs_f64(), gpu.used());
        println!(
            "turn {}: suspended after {took:.3} s at step {}; {:.3} GB of {:.3} GB have gone, {:.2} GB/s; {answer}; {}",
            self.turn,
            self.steps(),
            gb(had - left.min(had)),
            gb(had),
            gb(had - left.min(had)) / took,
            gpu.shown(),
        );
        let notes = notes(site, &self.task);
        assert!(notes.is_empty(), "{notes:?}\n{}", self.known(site));
        assert!(
            left <= SLACK,
            "its memory is still there: {}\n{}",
            gpu.shown(),
            self.known(site)
        );
        self.assert_still(site);
        had
    }

    fn assert_still(&self, site: &Site) {
        let mut all = of_task(site, &self.task);
        all.retain(|stat| !is_driver_helper(stat.id.pid));
        assert!(!all.is_empty());
        assert!(
            all.iter().all(|stat| matches!(stat.state, 'T' | 'D')),
            "they do not stand still: {all:?}"
        );
        let before = self.lines();
        thread::sleep(WHILE);
        assert_eq!(self.lines(), before, "it goes on");
    }

    /// Resumes the task and waits for its next step.
    fn resume(&mut self, site: &Site, had: u64) {
        let (before, order) = (self.steps(), Instant::now());
        self.next_turn(site);
        self.until(site, "it goes on", || self.has_continued(site));
        let took = order.elapsed().as_secs_f64();
        self.until_steps(site, before + 1);
        println!(
            "turn {}: goes on after {took:.3} s, {:.2} GB/s; a step after {:.3} s",
            self.turn,
            gb(had) / took,
            order.elapsed().as_secs_f64()
        );
        self.until_steps(site, before + 15);
    }

    /// Stops the task, which keeps its work; returns its number of steps.
    fn stop(&self, site: &Site) -> usize {
        let order = Instant::now();
        site.scheduler.assign(99, &[self.task.stopped()]);
        let outcome = site.until_gone(&self.task);
        println!("{outcome} after {:.3} s", order.elapsed().as_secs_f64());
        assert_eq!(outcome, Outcome::stopped(), "{}", self.known(site));
        let steps = self.steps();
        if self.kind == "alone" {
            site.until_log_has(&self.task, &format!("saved {steps}"));
            assert!(fs::metadata(&self.kept).is_ok_and(|kept| kept.len() > GIB / 32));
        }
        steps
    }

    /// Checks that the results equal those of an undisturbed run bit by bit.
    fn assert_undisturbed(&self, folder: &Path) {
        let ours = self.lines().concat();
        let (script, lines) = (folder.join("beside.py"), folder.join("beside"));
        fs::write(&script, TRAIN).expect("written");
        let mut command = Command::new(python());
        command
            .arg(script)
            .env("LINES", &lines)
            .env("GIB", self.gib.to_string())
            .env("KIND", self.kind)
            .env("STEPS", ours.len().to_string())
            .stdin(Stdio::null());
        let mut beside = OutsideProcess(command.spawn().expect("started"));
        let since = Instant::now();
        while beside.0.try_wait().expect("ours").is_none() {
            assert!(since.elapsed() < PATIENCE, "the other run does not end");
            thread::sleep(LOOK_EVERY);
        }
        let theirs = read(&lines);
        assert_eq!(theirs.len(), ours.len());
        let differs = ours.iter().zip(&theirs).find(|(our, their)| our != their);
        assert_eq!(differs, None, "not to the bit");
        println!(
            "{} steps are to the bit those of a run without turns; the last is {:?}",
            ours.len(),
            ours.last()
        );
    }
}

fn read(lines: &Path) -> Vec<String> {
    let text = fs::read_to_string(lines).unwrap_or_default();
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    whole.lines().map(str::to_owned).collect()
}

fn threads(pid: i32) -> Vec<String> {
    let all = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let names = all
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
    names
        .map(|name| name.trim().to_owned())
        .filter(|name| name.contains("cuda"))
        .collect()
}

/// A process outside the executor.
struct OutsideProcess(Child);

impl OutsideProcess {
    /// Starts a process that takes all free GPU memory except `but` bytes; returns the bytes it
    /// takes.
    fn with_room(folder: &Path, but: u64) -> (Self, u64) {
        let script = folder.join("room.py");
        fs::write(&script, ROOM).expect("written");
        let mut command = Command::new(python());
        command.arg(script).arg(but.to_string());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut beside = Self(child.expect("started"));
        let mut line = String::new();
        let output = beside.0.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("read");
        let taken = line.trim().parse();
        (beside, taken.expect("it says how much it has"))
    }

    fn leave(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("ours").success());
    }
}

impl Drop for OutsideProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the driver helper in the middle of a move.
fn driver_helper_at_work(site: &Site, training: &TrainingTask) -> ProcessId {
    let helper = || {
        let all = of_task(site, &training.task).into_iter();
        let mut helpers = all.filter(|stat| is_driver_helper(stat.id.pid));
        helpers.next().map(|stat| stat.id)
    };
    training.until(site, "the driver is asked", || helper().is_some());
    let helper = helper().expect("it takes a while");
    thread::sleep(MIDDLE);
    let driver = site.task_folder(&training.task).join("driver.json");
    println!(
        "in the middle: it is at work: {}, has answered: {}",
        helper.is_alive(),
        driver.exists()
    );
    helper
}

#[test]
#[ignore = "needs a GPU"]
fn node_reports_its_gpus_and_driver_checkpoints() {
    let gpu = NvmlGpu::open();
    let began = Instant::now();
    let site = Site::on_gpus(ASKED);
    site.until("it is heard", |heard| !heard.hellos.is_empty());
    println!("heard after {:.3} s", began.elapsed().as_secs_f64());
    let text = site.scheduler.heard().hellos[0].capacity_json.clone();
    println!("{text}");
    let capacity: Capacity = serde_json::from_str(&text).expect("a capacity");
    let device = gpu.nvml.device_by_index(0).expect("there is one");
    assert_eq!(capacity.gpus[0].model, device.name().expect("a name"));
    assert_eq!(capacity.gpus[0].memory_bytes, gpu.memory().total);
    let version = gpu.nvml.sys_cuda_driver_version().expect("a version");
    let cuda = format!("{}.{}", version / 1_000, version % 1_000 / 10);
    assert_eq!(capacity.driver_suspend, Some(DriverSuspend::Able { cuda }));
    site.finish();
    gpu.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn suspended_program_leaves_its_gpu_and_resumes_bit_exactly() {
    let gpu = NvmlGpu::open();
    let site = Site::on_gpus(ASKED);
    let mut training = TrainingTask::start(&site, 4, "alone");
    let free_at_work = gpu.memory().free;
    println!("at work: {}", gpu.shown());
    for pid in of_task(&site, &training.task) {
        println!("{} has threads {:?}", pid.id.pid, threads(pid.id.pid));
    }
    for round in 0..5 {
        let had = training.suspend(&site, &gpu);
        assert!(had > 4 * GIB);
        if round == 0 {
            let (other, taken) = OutsideProcess::with_room(site.path(), GIB);
            println!(
                "another has {:.3} GB, where {:.3} GB were free",
                gb(taken),
                gb(free_at_work)
            );
            assert!(taken > free_at_work);
            other.leave();
        }
        training.resume(&site, had);
    }
    training.stop(&site);
    training.assert_undisturbed(site.path());
    site.finish();
    gpu.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn interdependent_processes_leave_the_gpu_and_return() {
    let gpu = NvmlGpu::open();
    let site = Site::on_gpus(ASKED);
    let mut training = TrainingTask::start(&site, 1, "ranks");
    println!("at work: {}", gpu.shown());
    for _ in 0..3 {
        let had = training.suspend(&site, &gpu);
        training.resume(&site, had);
    }
    let lines = training.lines();
    let [first, second] = [0, 1].map(|rank| &lines[rank]);
    let sum = |line: &String| line.rsplit(' ').next().map(str::to_owned);
    let apart = first.iter().zip(second).find(|(a, b)| sum(a) != sum(b));
    assert_eq!(apart, None, "they have the same weights");
    training.stop(&site);
    site.finish();
    gpu.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn forked_children_of_a_gpu_process_do_not_prevent_a_move() {
    let gpu = NvmlGpu::open();
    let site = Site::on_gpus(ASKED);
    let mut training = TrainingTask::start(&site, 1, "loader");
    println!("at work: {}", gpu.shown());
    for stat in of_task(&site, &training.task) {
        println!("{stat:?} has threads {:?}", threads(stat.id.pid));
    }
    for _ in 0..2 {
        let had = training.suspend(&site, &gpu);
        training.resume(&site, had);
    }
    training.stop(&site);
    training.assert_undisturbed(site.path());
    site.finish();
    gpu.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn killed_executor_does_not_disturb_a_move_of_gpu_memory() {
    let gpu = NvmlGpu::open();
    let mut site = Site::on_gpus(ASKED);
    let mut training = TrainingTask::start(&site, 20, "alone");
    println!("at work: {}", gpu.shown());
    let had = gpu.used();
    training.next_turn(&site);
    driver_helper_at_work(&site, &training);
    site.kill();
    println!("killed: {}", gpu.shown());
    thread::sleep(WHILE);
    site.start();
    let answer = training.until_suspended(&site);
    println!("stands still: {answer}; {}", gpu.shown());
    assert_eq!(notes(&site, &training.task), Vec::<String>::new());
    training.assert_still(&site);
    training.resume(&site, had);
    // Once more without a failure, to print the duration.
    training.suspend(&site, &gpu);
    training.resume(&site, had);
    training.stop(&site);
    site.finish();
    gpu.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn helper_killed_during_a_move_is_undone() {
    let gpu = NvmlGpu::open();
    let site = Site::on_gpus(ASKED);
    let mut training = TrainingTask::start(&site, 20, "alone");
    println!("at work: {}", gpu.shown());
    let had = gpu.used();
    training.next_turn(&site);
    let order = Instant::now();
    println!(
        "killed: {}",
        driver_helper_at_work(&site, &training).signal(Signal::KILL)
    );
    let answer = training.until_suspended(&site);
    println!(
        "stands still {:.3} s after the order: {answer}; {}; it says {:?}",
        order.elapsed().as_secs_f64(),
        gpu.shown(),
        notes(&site, &training.task)
    );
    training.assert_still(&site);
    training.resume(&site, had);
    // The same on the way back.
    training.next_turn(&site);
    println!(
        "stands still: {}; {}",
        training.until_suspended(&site),
        gpu.shown()
    );
    let (before, order) = (training.steps(), Instant::now());
    training.next_turn(&site);
    println!(
        "killed: {}",
        driver_helper_at_work(&site, &training).signal(Signal::KILL)
    );
    training.until(&site, "it goes on", || training.has_continued(&site));
    training.until_steps(&site, before + 15);
    println!(
        "goes on {:.3} s after the order: {}",
        order.elapsed().as_secs_f64(),
        gpu.shown()
    );
    training.stop(&site);
    training.assert_undisturbed(site.path());
    site.finish();
    gpu.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn killed_shim_ends_all_processes_and_frees_the_gpu() {
    let gpu = NvmlGpu::open();
    let site = Site::on_gpus(ASKED);
    let mut training = TrainingTask::start(&site, 20, "alone");
    training.next_turn(&site);
    driver_helper_at_work(&site, &training);
    let all = of_task(&site, &training.task);
    assert!(site.record(&training.task).shim.signal(Signal::KILL));
    assert_eq!(site.until_gone(&training.task), Outcome::NodeLost);
    let left = all.iter().filter(|stat| stat.id.is_alive());
    assert_eq!(left.count(), 0);
    site.finish();
    gpu.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn suspended_program_that_is_stopped_keeps_its_work() {
    let gpu = NvmlGpu::open();
    let site = Site::on_gpus(ASKED);
    let mut training = TrainingTask::start(&site, 4, "alone");
    let had = training.suspend(&site, &gpu);
    let before = training.steps();
    let steps = training.stop(&site);
    println!(
        "{:.3} GB were on the host; stood at step {before}, kept step {steps}",
        gb(had)
    );
    assert!(steps >= before && steps <= before + 2);
    training.assert_undisturbed(site.path());
    site.finish();
    gpu.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn return_waits_while_another_program_uses_the_gpu() {
    let gpu = NvmlGpu::open();
    let site = Site::on_gpus(&["--driver-patience-ms", "5000"]);
    let mut training = TrainingTask::start(&site, 4, "alone");
    training.suspend(&site, &gpu);
    let (other, taken) = OutsideProcess::with_room(site.path(), GIB);
    println!("another has {:.3} GB: {}", gb(taken), gpu.shown());
    let before = training.steps();
    training.next_turn(&site);
    training.until(&site, "it says that it waits", || {
        !notes(&site, &training.task).is_empty()
    });
    let said = notes(&site, &training.task);
    println!("{said:?}");
    assert!(said[0].contains("waits for room on its GPUs"), "{said:?}");
    thread::sleep(WHILE);
    assert!(!training.has_continued(&site));
    // The GPU may have finished one more step before the suspension.
    assert!(training.steps() <= before + 1);
    let free = Instant::now();
    other.leave();
    training.until(&site, "it goes on", || training.has_continued(&site));
    println!(
        "goes on {:.3} s after the other was told to leave: {}",
        free.elapsed().as_secs_f64(),
        gpu.shown()
    );
    training.until_steps(&site, before + 15);
    training.stop(&site);
    training.assert_undisturbed(site.path());
    site.finish();
    gpu.finish();
}
