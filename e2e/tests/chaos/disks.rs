//! Disks of the hosts: small ext4 file systems in files, which can be filled, stalled and slowed
//! down.

use crate::databases;
use crate::schedule::ChaosHost;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const NODE_MIB: u64 = 384;
const POSTGRES_MIB: u64 = 1_536;
/// Alternating times of a slow disk.
const FROZEN: Duration = Duration::from_millis(400);
const THAWED: Duration = Duration::from_millis(100);
const PIECE: usize = 1 << 20;

/// Disk that a thread slows down.
#[derive(Debug)]
struct SlowDisk {
    host: ChaosHost,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Mounted until it is dropped.
#[derive(Debug)]
pub struct Disks {
    folder: PathBuf,
    hosts: Vec<ChaosHost>,
    slow: Mutex<Vec<SlowDisk>>,
}

impl Disks {
    /// Creates and mounts the disks.
    ///
    /// # Errors
    /// If this machine or this user cannot do it.
    pub fn mount(folder: &Path, hosts: &[ChaosHost]) -> Result<Self, String> {
        let mut disks = Self {
            folder: folder.to_owned(),
            hosts: Vec::new(),
            slow: Mutex::new(Vec::new()),
        };
        for host in hosts {
            let mib = if matches!(host, ChaosHost::Postgres(_)) {
                POSTGRES_MIB
            } else {
                NODE_MIB
            };
            let image = folder.join(format!("{host}.img"));
            let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
            file.set_len(mib << 20).map_err(|error| error.to_string())?;
            let (image, place) = (image.display().to_string(), disks.path(*host));
            std::fs::create_dir_all(&place).map_err(|error| error.to_string())?;
            run("mkfs.ext4", &["-q", "-F", "-m", "0", &image])?;
            run(
                "mount",
                &["-o", "loop", &image, &place.display().to_string()],
            )?;
            if matches!(host, ChaosHost::Postgres(_)) {
                run(
                    "chown",
                    &[databases::UNPRIVILEGED, &place.display().to_string()],
                )?;
            }
            disks.hosts.push(*host);
        }
        Ok(disks)
    }

    /// Mount point.
    pub fn path(&self, host: ChaosHost) -> PathBuf {
        self.folder.join(format!("disk-{host}"))
    }

    /// Fills all free space.
    pub fn fill(&self, host: ChaosHost) {
        let Ok(mut file) = std::fs::File::create(self.ballast(host)) else {
            return;
        };
        let zeros = vec![0; PIECE];
        for piece in [PIECE, 4_096] {
            while file.write_all(&zeros[..piece]).is_ok() {}
        }
    }

    pub fn free(&self, host: ChaosHost) {
        let _ = std::fs::remove_file(self.ballast(host));
    }

    /// Blocks writes.
    pub fn stall(&self, host: ChaosHost) {
        freeze(&self.path(host), true);
    }

    pub fn go_on(&self, host: ChaosHost) {
        freeze(&self.path(host), false);
    }

    /// Blocks writes for four fifths of the time.
    pub fn slow_down(&self, host: ChaosHost) {
        let (stop, place) = (Arc::new(AtomicBool::new(false)), self.path(host));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                freeze(&place, true);
                std::thread::sleep(FROZEN);
                freeze(&place, false);
                std::thread::sleep(THAWED);
            }
        });
        self.slow
            .lock()
            .expect("no panic")
            .push(SlowDisk { host, stop, thread });
    }

    pub fn speed_up(&self, host: ChaosHost) {
        let mut slow = self.slow.lock().expect("no panic");
        let (ours, others) = std::mem::take(&mut *slow)
            .into_iter()
            .partition(|slow: &SlowDisk| slow.host == host);
        *slow = others;
        drop(slow);
        for slow in ours {
            slow.stop.store(true, Ordering::Relaxed);
            let _ = slow.thread.join();
        }
    }

    fn ballast(&self, host: ChaosHost) -> PathBuf {
        self.path(host).join("ballast")
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for host in self.hosts.clone() {
            self.speed_up(host);
            self.go_on(host);
            let place = self.path(host).display().to_string();
            // Lazily if a process still uses it.
            if run("umount", &[&place]).is_err() {
                let _ = run("umount", &["-l", &place]);
            }
            let _ = std::fs::remove_file(self.folder.join(format!("{host}.img")));
        }
    }
}

/// Mounts below the folder.
pub fn left(folder: &Path) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let folder = folder.display().to_string();
    let lines = mounts.lines().filter(|line| line.contains(&folder));
    lines.map(str::to_owned).collect()
}

/// Has no effect on a disk in that state.
fn freeze(place: &Path, is_to_stand: bool) {
    let _ = Command::new("fsfreeze")
        .arg(if is_to_stand { "-f" } else { "-u" })
        .arg(place)
        .stderr(Stdio::null())
        .status();
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("run {program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{program} {}: {}",
        arguments.join(" "),
        said.trim()
    ))
}
