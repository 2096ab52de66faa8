//! Unix sockets between tasks of one job on one node: the shared folder and the names of the
//! sockets.
//!
//! The name of a socket follows from the task id and the TCP port, so it needs no other exchange. A
//! task that finds no socket, because the peer is on another node or has another folder, uses TCP.

use muster_model::id::TaskId;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Maximum length in bytes of the folder's path. A socket's path must fit into the kernel's 108
/// bytes: folder, slash, name of at most 18 bytes, terminator.
const LONGEST_FOLDER: usize = 88;

/// Returns the folder, or the temporary folder if the path is too long for a socket.
fn with_room(folder: &Path) -> PathBuf {
    match folder.as_os_str().len() {
        ..=LONGEST_FOLDER => folder.to_owned(),
        _ => std::env::temp_dir(),
    }
}

/// Name of a task's socket. Tasks that share a folder can have the same port, each in a pod with
/// its own address. The name therefore contains the last 48 bits of the task id; the limited path
/// length does not allow the whole id.
#[must_use]
pub fn socket_name(task: TaskId, port: u16) -> String {
    let id = task.0.simple().to_string();
    format!("{}-{port}", &id[id.len() - 12..])
}

/// Unix socket on which a task listens for other tasks of its node. Dropping it removes the
/// socket's file. The file of a killed task stays, and connecting to it fails.
#[derive(Debug)]
pub struct LocalListener {
    path: PathBuf,
}

impl LocalListener {
    /// Listens in `folder` as the task with the TCP port `port`.
    ///
    /// # Errors
    /// If the folder does not exist or is not writable, or if the file system does not support
    /// sockets.
    pub fn open(folder: &Path, task: TaskId, port: u16) -> io::Result<(Self, UnixListener)> {
        let path = with_room(folder).join(socket_name(task, port));
        // A file of an earlier process of this task. No process listens on it, because this task
        // now has the TCP port.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        Ok((Self { path }, listener))
    }

    /// Path of the socket's file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects to the task with the TCP port `port`. Never blocks: if the backlog of the peer is full,
/// the caller uses TCP.
///
/// # Errors
/// If no process listens there.
pub(super) fn connect_local(folder: &Path, task: TaskId, port: u16) -> io::Result<UnixStream> {
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
    fn tasks_with_the_same_port_have_different_socket_names() {
        let [one, two] = [1, 2].map(|task| socket_name(TaskId(Uuid::from_u128(task)), 65_535));
        assert_ne!(one, two);
        // `with_room` reserves this many bytes.
        assert_eq!(one.len(), 18);
    }

    #[test]
    fn folder_above_the_length_limit_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let left = LONGEST_FOLDER - root.path().as_os_str().len() - 1;
        let longest = root.path().join("x".repeat(left));
        fs::create_dir(&longest).unwrap();
        let (door, _listener) = LocalListener::open(&longest, TASK, 65_535).unwrap();
        assert!(door.path().starts_with(&longest));
        let longer = root.path().join("x".repeat(left + 1));
        assert_eq!(with_room(&longer), std::env::temp_dir());
    }

    #[test]
    fn socket_of_a_killed_task_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let connected = || connect_local(folder.path(), TASK, 7);
        assert!(connected().is_err());
        let (door, listener) = LocalListener::open(folder.path(), TASK, 7).unwrap();
        assert!(connected().is_ok());
        drop(listener);
        assert!(connected().is_err(), "its process is gone");
        let again = LocalListener::open(folder.path(), TASK, 7).unwrap();
        assert!(connected().is_ok());
        drop((door, again));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
