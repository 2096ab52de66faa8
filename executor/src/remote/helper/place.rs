//! Where a task runs: its cgroup, mount namespace, root, working folder, user and environment. All
//! of it is read from the task's program, and opened before anything of it is entered.

use crate::process::ProcessId;
use crate::task_user::TaskUser;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Gid, Pid, PidfdFlags, Resource, Rlimit, Uid, pidfd_open};
use rustix::thread::{
    LinkNameSpaceType, move_into_link_name_space, set_no_new_privs, set_thread_gid,
    set_thread_groups, set_thread_uid,
};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Mount point of cgroup v2.
const CGROUPS: &str = "/sys/fs/cgroup";
const NO_CORE: Rlimit = Rlimit {
    current: Some(0),
    maximum: Some(0),
};

/// Opened parts of a task.
pub struct TaskPlace {
    /// Readable once the task's program has ended.
    pub program: OwnedFd,
    pub environment: Vec<(OsString, OsString)>,
    /// `None` if this process is in it already.
    cgroup: Option<File>,
    /// `None` if this process has the same view of the machine.
    view: Option<TaskMounts>,
    folder: File,
    user: Option<TaskUser>,
}

struct TaskMounts {
    namespace: File,
    root: File,
}

impl TaskPlace {
    /// # Errors
    /// If the program has ended, or if this process may not enter its cgroup.
    pub fn open(program: ProcessId, user: Option<TaskUser>) -> io::Result<Self> {
        let pid = Pid::from_raw(program.pid).ok_or_else(gone)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|_| gone())?;
        let proc = format!("/proc/{}", program.pid);
        let environment = fs::read(format!("{proc}/environ"));
        let environment = environment.map_err(|error| at("the task's environment", &error))?;
        let namespace = open(&proc, "ns/mnt")?;
        let root = open_folder(&proc, "root")?;
        let place = Self {
            program: pidfd,
            environment: variables(&environment),
            cgroup: cgroup(&proc)?,
            view: if has_own_view(&namespace, &root)? {
                None
            } else {
                Some(TaskMounts { namespace, root })
            },
            folder: open_folder(&proc, "cwd")?,
            user,
        };
        // The id may have been reused while the files above were opened.
        if program.is_alive() {
            Ok(place)
        } else {
            Err(gone())
        }
    }

    /// Moves this thread into the task, with the rights of its program. It makes system calls only,
    /// so that it may run between fork and exec.
    ///
    /// # Errors
    /// If a step is not permitted.
    pub fn enter(&self) -> io::Result<()> {
        if let Some(cgroup) = &self.cgroup {
            rustix::io::write(cgroup, b"0")?;
        }
        if let Some(TaskMounts { namespace, root }) = &self.view {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
            rustix::process::fchdir(root)?;
            rustix::process::chroot(c".")?;
        }
        rustix::process::fchdir(&self.folder)?;
        set_no_new_privs(true)?;
        rustix::process::setrlimit(Resource::Core, NO_CORE)?;
        if let Some(TaskUser { uid, gid }) = self.user {
            set_thread_groups(&[])?;
            set_thread_gid(Gid::from_raw(gid))?;
            set_thread_uid(Uid::from_raw(uid))?;
        }
        Ok(())
    }
}

fn gone() -> io::Error {
    io::Error::other("the task's program has ended")
}

fn open(proc: &str, name: &str) -> io::Result<File> {
    let file = File::open(format!("{proc}/{name}"));
    file.map_err(|error| at(&format!("the task's {name}"), &error))
}

/// Opens a folder only to enter it, which needs no permission to read it.
fn open_folder(proc: &str, name: &str) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(format!("{proc}/{name}"), flags, Mode::empty());
    let folder = folder.map_err(|error| at(&format!("the task's {name}"), &error.into()));
    folder.map(File::from)
}

fn is_same(file: &File, path: &str) -> io::Result<bool> {
    let (one, other) = (file.metadata()?, fs::metadata(path)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// Whether this process has the same mount namespace and root.
fn has_own_view(namespace: &File, root: &File) -> io::Result<bool> {
    Ok(is_same(namespace, "/proc/self/ns/mnt")? && is_same(root, "/")?)
}

/// Returns the open list of the task's cgroup; `None` if this process is in that cgroup.
fn cgroup(proc: &str) -> io::Result<Option<File>> {
    let of_task = unified_cgroup(proc)?;
    if of_task == unified_cgroup("/proc/self")? {
        return Ok(None);
    }
    let folder = Path::new(CGROUPS).join(of_task.trim_start_matches('/'));
    let list = OpenOptions::new()
        .write(true)
        .open(folder.join("cgroup.procs"));
    // Outside of it the command would exceed the task's limits.
    let list = list.map_err(|error| at("the task's cgroup", &error))?;
    Ok(Some(list))
}

/// Returns the path of a process's cgroup v2; empty without one.
fn unified_cgroup(proc: &str) -> io::Result<String> {
    let text = fs::read_to_string(format!("{proc}/cgroup"))?;
    let unified = text.lines().find_map(|line| line.strip_prefix("0::"));
    Ok(unified.unwrap_or_default().to_owned())
}

fn variables(environment: &[u8]) -> Vec<(OsString, OsString)> {
    let lines = environment.split(|byte| *byte == 0);
    let pairs = lines.filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&line[..at], &line[at + 1..]);
        let pair = [name, value].map(|bytes| OsStr::from_bytes(bytes).to_owned());
        (!name.is_empty()).then(|| pair.into())
    });
    pairs.collect()
}

fn at(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot use {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_process_needs_no_entering() {
        let own = i32::try_from(std::process::id()).expect("small");
        let own = ProcessId::of(own).expect("this process");
        let place = TaskPlace::open(own, None).expect("readable");
        assert!(place.view.is_none() && place.cgroup.is_none());
        let earlier = ProcessId {
            start_ticks: own.start_ticks - 1,
            ..own
        };
        assert!(TaskPlace::open(earlier, None).is_err(), "another process");
    }

    #[test]
    fn variables_keep_equals_signs_and_lose_nonsense() {
        let found = variables(b"A=1\0B=x=y\0nonsense\0=z\0C=\0");
        let found: Vec<_> = found
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        assert_eq!(found, ["A=1", "B=x=y", "C="]);
    }
}
