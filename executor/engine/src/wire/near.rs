//! Tasks of one job on one node: a folder in which each listens on a socket of its own, and what the socket is called.
//!
//! Whoever knows a task's id and its TCP port knows the socket's name, so that nobody has to be told of it. Who finds no socket there, as
//! the task is on another node or sees another folder, goes over TCP.

use muster_model::id::TaskId;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A socket's path has to fit into the kernel's 108 bytes: the folder, the socket's own name, which has up to 18, a slash and an end.
const LONGEST_FOLDER: usize = 88;

/// The folder itself, or that for passing files where its path is too long for a socket's.
fn with_room(folder: &Path) -> PathBuf {
    match folder.as_os_str().len() {
        ..=LONGEST_FOLDER => folder.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// Tasks that share a folder may have the same port, each in a pod with an address of its own, so the name says whose it is too: by the last
/// 48 bits of its id, as a path has little room.
#[must_use]
pub fn socket_name(task: TaskId, port: u16) -> String {
    let id = task.0.simple().to_string();
    format!("{}-{port}", &id[id.len() - 12..])
}

/// Where a task listens for others of its node. The socket's file goes with this; one of a task that was killed stays, and leads nowhere.
#[derive(Debug)]
pub struct Door {
    path: PathBuf,
}

impl Door {
    /// Listens in `folder` as the task that has the TCP port `port`.
    ///
    /// # Errors
    /// When the folder is not there or not to be written, or the file system has no sockets.
    pub fn open(folder: &Path, task: TaskId, port: u16) -> io::Result<(Self, UnixListener)> {
        let path = with_room(folder).join(socket_name(task, port));
        // This task's own from before, if any; nobody listens there, as the TCP port is this one's now.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        Ok((Self { path }, listener))
    }

    /// Where others find it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects to the task that has the TCP port `port`. Never waits: whoever is so busy that connections queue up is reached otherwise.
///
/// # Errors
/// When nobody listens there.
pub(super) fn knock(folder: &Path, task: TaskId, port: u16) -> io::Result<UnixStream> {
    let path = with_room(folder).join(socket_name(task, port));
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.connect(&SockAddr::unix(path)?)?;
    socket.set_nonblocking(false)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const TASK: TaskId = TaskId(Uuid::from_u128(1));

    #[test]
    fn sockets_of_one_folder_are_told_apart_where_ports_are_the_same() {
        let name = |task| socket_name(TaskId(Uuid::from_u128(task)), 65_535);
        assert_ne!(name(1), name(2));
        // `with_room` leaves room for so much.
        assert_eq!(name(1).len(), 18);
    }

    #[test]
    fn the_longest_folder_has_room_and_a_longer_one_is_another() {
        let root = tempfile::tempdir().unwrap();
        let left = LONGEST_FOLDER - root.path().as_os_str().len() - 1;
        let longest = root.path().join("x".repeat(left));
        fs::create_dir(&longest).unwrap();
        let (door, _listener) = Door::open(&longest, TASK, 65_535).unwrap();
        assert!(door.path().starts_with(&longest));
        let longer = root.path().join("x".repeat(left + 1));
        assert_eq!(with_room(&longer), std::env::temp_dir());
    }

    #[test]
    fn a_door_goes_with_its_task_and_one_that_is_left_over_is_in_nobodys_way() {
        let folder = tempfile::tempdir().unwrap();
        let knock = || knock(folder.path(), TASK, 7);
        assert!(knock().is_err());
        let (door, listener) = Door::open(folder.path(), TASK, 7).unwrap();
        assert!(knock().is_ok());
        drop(listener);
        assert!(knock().is_err(), "its process is gone");
        let again = Door::open(folder.path(), TASK, 7).unwrap();
        assert!(knock().is_ok());
        drop((door, again));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
