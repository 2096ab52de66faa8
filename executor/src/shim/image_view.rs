//! View of a task that runs in an image: a root folder of its own. It has the image's files,
//! read-only, and the few folders of the node that the task needs, at the same paths as outside.
//!
//! The shim mounts the view over a folder of the image cache, in a mount namespace of its own, and
//! stays outside. The task's process makes the view its root folder (`pivot_root`) and detaches the
//! node's, before it gives up its rights.

use super::loader::{FOLDER, OwnProgram};
use crate::image::{FILES, GpuAccess, INFO, ImageInfo, check_folders, make_mount_points};
use crate::task_user::TaskUser;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_remount, unmount,
};
use rustix::process::{DumpableBehavior, getegid, geteuid, pivot_root, set_dumpable_behavior};
use rustix::thread::{
    UnshareFlags, set_thread_gid, set_thread_groups, set_thread_uid, unshare_unsafe,
};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that the view has in each image.
pub(super) const OWN_FOLDERS: [&str; 6] = ["/proc", "/sys", "/dev", "/tmp", "/var/tmp", FOLDER];

/// Files of the node in each image, for names of hosts.
const NAME_FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// Device files of each task.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Devices of fast networks, if the node has them.
const NETWORK_DEVICES: &str = "infiniband";

/// What a task in an image sees.
#[derive(Debug)]
pub(crate) struct ImageView {
    /// Folder of the image in the cache.
    pub image: PathBuf,
    /// Description of the image for the program that starts in it.
    pub info: Option<ImageInfo>,
    /// Empty folder over which the view is mounted.
    pub stage: PathBuf,
    /// Folder of the task for temporary files.
    pub temporary: PathBuf,
    /// Folders of the node, of which the task sees only those of `shown`.
    pub covered: Vec<PathBuf>,
    /// Folders of the node at the same paths.
    pub shown: Vec<PathBuf>,
    /// Empty folders in memory: path and size in bytes.
    pub in_memory: Vec<(PathBuf, u64)>,
    /// Folders of the node at other paths: path in the image and on the node.
    pub mounted: Vec<(PathBuf, PathBuf)>,
    pub gpus: Option<GpuAccess>,
    /// Processes of other users are not visible.
    pub hides_processes: bool,
}

impl ImageView {
    /// Moves this process into a mount namespace with this view over [`Self::stage`]. Without the
    /// right to mount, it also enters a user namespace, which requires that it has one thread.
    ///
    /// # Errors
    /// Names the step that failed.
    pub(crate) fn enter(&self, own: &OwnProgram) -> io::Result<()> {
        self.make_mount_points()?;
        private_mounts()?;
        self.bind_image()?;
        self.system_folders()?;
        self.node_folders()?;
        self.own_program(own)?;
        self.name_files()
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.stage.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Covered folders that lie in no other covered folder.
    fn tops(&self) -> Vec<&Path> {
        let all: BTreeSet<&Path> = self.covered.iter().map(PathBuf::as_path).collect();
        let tops = all.iter().copied();
        tops.filter(|path| !path.ancestors().skip(1).any(|above| all.contains(above)))
            .collect()
    }

    fn make_mount_points(&self) -> io::Result<()> {
        let files: Vec<&Path> = name_files().collect();
        let tops = self.tops();
        let volumes = self.in_memory.iter().map(|(path, _)| path);
        let volumes = volumes.chain(self.mounted.iter().map(|(path, _)| path));
        let image = self.image.join(FILES);
        check_folders(&image, volumes.map(PathBuf::as_path))?;
        let folders: Vec<&Path> = OWN_FOLDERS
            .iter()
            .map(Path::new)
            .chain(tops)
            .filter(|path| !is_temporary(path))
            .collect();
        make_mount_points(&image, &folders, &files)
    }

    fn bind_image(&self) -> io::Result<()> {
        let files = self.image.join(FILES);
        // With the mounts below it, because a user namespace may not uncover what they hide.
        mount_bind_recursive(&files, &self.stage).map_err(at(&files))?;
        read_only(&self.stage)
    }

    fn system_folders(&self) -> io::Result<()> {
        let (proc, sys) = (self.at("/proc"), self.at("/sys"));
        self.mount_processes(&proc)?;
        mount_bind_recursive("/sys", &sys).map_err(at(&sys))?;
        read_only(&sys)?;
        self.devices()?;
        for folder in ["/tmp", "/var/tmp"] {
            let folder = self.at(folder);
            mount_bind(&self.temporary, &folder).map_err(at(&folder))?;
        }
        Ok(())
    }

    /// A user namespace may not mount processes of the machine anew, so it shows the node's mount.
    fn mount_processes(&self, folder: &Path) -> io::Result<()> {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let hidden: Option<&CStr> = self.hides_processes.then_some(c"hidepid=invisible");
        match mount("proc", folder, "proc", flags, hidden) {
            Err(_) if !self.hides_processes => {
                mount_bind_recursive("/proc", folder).map_err(at(folder))
            }
            mounted => mounted.map_err(at(folder)),
        }
    }

    fn devices(&self) -> io::Result<()> {
        let folder = self.at("/dev");
        memory(&folder, c"size=1m,mode=0755")?;
        for name in DEVICES {
            bind_file(&Path::new("/dev").join(name), &folder.join(name))?;
        }
        for (path, host) in self.gpus.iter().flat_map(|gpus| &gpus.devices) {
            let path = self.at(path);
            if path.starts_with(&folder) {
                make_folders(path.parent().unwrap_or(&folder))?;
                bind_file(host, &path)?;
            }
        }
        let terminals = folder.join("pts");
        fs::create_dir(&terminals).map_err(at_io(&terminals))?;
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        let options = c"newinstance,ptmxmode=0666,mode=0620";
        mount("devpts", &terminals, "devpts", flags, Some(options)).map_err(at(&terminals))?;
        for (name, target) in [
            ("ptmx", "pts/ptmx"),
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ] {
            symlink(target, folder.join(name)).map_err(at_io(&folder.join(name)))?;
        }
        // Workers of a job on one node share memory here.
        for name in ["shm", NETWORK_DEVICES] {
            let host = Path::new("/dev").join(name);
            if host.is_dir() {
                let inside = folder.join(name);
                fs::create_dir(&inside).map_err(at_io(&inside))?;
                mount_bind_recursive(&host, &inside).map_err(at(&inside))?;
            }
        }
        read_only(&folder)
    }

    fn node_folders(&self) -> io::Result<()> {
        let tops = self.tops();
        for top in &tops {
            let inside = self.at(top);
            make_folders(&inside)?;
            memory(&inside, c"size=1m,mode=0755")?;
        }
        for shown in self.shown.iter().filter(|shown| shown.exists()) {
            let inside = self.at(shown);
            make_folders(&inside)?;
            mount_bind_recursive(shown, &inside).map_err(at(&inside))?;
        }
        for (path, bytes) in &self.in_memory {
            let inside = self.at(path);
            let options = CString::new(format!("size={bytes},mode=1777"));
            memory(&inside, &options.map_err(io::Error::other)?)?;
        }
        for (path, host) in &self.mounted {
            let inside = self.at(path);
            mount_bind_recursive(host, &inside).map_err(at(&inside))?;
        }
        Ok(())
    }

    /// Shows the executor's program, and the libraries of the GPU driver.
    fn own_program(&self, own: &OwnProgram) -> io::Result<()> {
        let folder = self.at(FOLDER);
        // The description contains variables of the image.
        memory(&folder, c"size=16m,mode=0755")?;
        let libraries = folder.join("lib");
        make_folders(&libraries)?;
        bind_file(&own.path, &folder.join("executor"))?;
        if let Some(loader) = &own.loader {
            bind_file(loader, &folder.join("loader"))?;
        }
        for (name, path) in &own.libraries {
            bind_file(path, &libraries.join(name))?;
        }
        if let Some(info) = &self.info {
            let path = folder.join(INFO);
            fs::write(&path, serde_json::to_vec(info)?).map_err(at_io(&path))?;
            fs::set_permissions(&path, Permissions::from_mode(0o644)).map_err(at_io(&path))?;
        }
        if let Some(gpus) = &self.gpus {
            for (name, files) in [("lib64", &gpus.libraries), ("bin", &gpus.programs)] {
                let folder = folder.join("nvidia").join(name);
                make_folders(&folder)?;
                for (name, path) in files {
                    bind_file(path, &folder.join(name))?;
                }
            }
        }
        read_only(&folder)
    }

    fn name_files(&self) -> io::Result<()> {
        for file in name_files() {
            let inside = self.at(file);
            let host = fs::canonicalize(file).map_err(at_io(file))?;
            mount_bind(&host, &inside).map_err(at(&inside))?;
            read_only(&inside)?;
        }
        Ok(())
    }
}

/// Makes the started process enter the view, and become the user. `folder` is its working folder.
///
/// # Errors
/// If a path contains a zero byte.
pub(super) fn start_inside(
    command: &mut Command,
    stage: &Path,
    folder: &Path,
    user: Option<TaskUser>,
) -> io::Result<()> {
    let [stage, folder] = [stage, folder].map(|path| CString::new(path.as_os_str().as_bytes()));
    let (stage, folder) = (stage?, folder?);
    let enter = move || {
        // The shim keeps the node's root folder: `pivot_root` would move it along.
        // SAFETY: this process has one thread and shares nothing with the shim.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
        rustix::process::chdir(&stage)?;
        pivot_root(c".", c".")?;
        // The node's root folder lies over the new one, at the same path.
        unmount(c".", UnmountFlags::DETACH)?;
        rustix::process::chdir(&folder)?;
        if let Some(user) = user {
            // Without supplementary groups.
            set_thread_groups(&[])?;
            set_thread_gid(rustix::process::Gid::from_raw(user.gid))?;
            set_thread_uid(rustix::process::Uid::from_raw(user.uid))?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe calls are allowed. `enter` makes plain
    // system calls, without allocation or locks, on values made before the fork; its errors are
    // plain codes. The process has one thread, whose credentials are thus those of the process.
    unsafe { command.pre_exec(enter) };
    Ok(())
}

/// Files of the node that appear in the image; those that the node has.
fn name_files() -> impl Iterator<Item = &'static Path> {
    NAME_FILES
        .iter()
        .map(Path::new)
        .filter(|file| fs::metadata(file).is_ok_and(|found| found.is_file()))
}

/// Whether the path lies in a folder that is mounted over the image, so that its mount point is
/// made there.
fn is_temporary(path: &Path) -> bool {
    let mut folders = ["/tmp", "/var/tmp", "/dev"].into_iter();
    folders.any(|folder| path.starts_with(folder) && path != Path::new(folder))
}

/// Separates the mounts of this process from those of the machine.
fn private_mounts() -> io::Result<()> {
    // SAFETY: the new namespace separates only mounts and the working folder of this thread.
    match unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
        Ok(()) => {}
        Err(rustix::io::Errno::PERM) => user_namespace()?,
        Err(error) => return Err(step("unshare the mount namespace", error.into())),
    }
    let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    mount_change("/", slave).map_err(|error| step("change the propagation of mounts", error.into()))
}

/// Enters a user namespace in which only this user exists, and a mount namespace of it.
fn user_namespace() -> io::Result<()> {
    let (user, group) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: this process has one thread. No file descriptor is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }
        .map_err(|error| step("enter a user namespace", error.into()))?;
    // Only a process that may be traced owns its own files in /proc.
    let _ = set_dumpable_behavior(DumpableBehavior::Dumpable);
    let mapped = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ]
    .into_iter()
    .try_for_each(|(path, text)| fs::write(path, text).map_err(at_io(Path::new(path))));
    super::forbid_tracing();
    mapped
}

fn memory(folder: &Path, options: &CStr) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", folder, "tmpfs", flags, Some(options)).map_err(at(folder))
}

/// Makes a mount read-only. Flags of a mount of another user namespace must be repeated.
fn read_only(folder: &Path) -> io::Result<()> {
    let found = rustix::fs::statvfs(folder).map_err(at(folder))?;
    let kept = [
        (4, MountFlags::NODEV),
        (8, MountFlags::NOEXEC),
        (1_024, MountFlags::NOATIME),
        (2_048, MountFlags::NODIRATIME),
        (4_096, MountFlags::RELATIME),
    ];
    let mut flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
    for (bit, flag) in kept {
        if found.f_flag.bits() & bit != 0 {
            flags |= flag;
        }
    }
    mount_remount(folder, flags, c"").map_err(at(folder))
}

fn bind_file(host: &Path, inside: &Path) -> io::Result<()> {
    File::create(inside).map_err(at_io(inside))?;
    mount_bind(host, inside).map_err(at(host))
}

/// Creates folders that each user can enter.
fn make_folders(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folders(above)?;
    }
    fs::create_dir(folder).map_err(at_io(folder))?;
    fs::set_permissions(folder, Permissions::from_mode(0o755)).map_err(at_io(folder))
}

fn at(folder: &Path) -> impl Fn(rustix::io::Errno) -> io::Error {
    move |error| at_io(folder)(error.into())
}

fn at_io(folder: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
}

fn step(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
