//! A pseudo terminal: the program has one end, this daemon the other one.

use crate::task_user::TaskUser;
use muster_model::remote::TerminalSize;
use rustix::fs::{OFlags, fchown, fcntl_getfl, fcntl_setfl};
use rustix::process::{Gid, Uid};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::io;
use std::os::fd::OwnedFd;
use tokio::io::unix::AsyncFd;

/// The daemon's end.
#[derive(Debug)]
pub struct TerminalMaster(AsyncFd<OwnedFd>);

/// Opens a terminal for the user, and returns both ends.
///
/// # Errors
/// If the machine has no free terminal.
pub fn open(user: Option<TaskUser>, size: TerminalSize) -> io::Result<(TerminalMaster, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    let program = ioctl_tiocgptpeer(&master, flags)?;
    if let Some(TaskUser { uid, gid }) = user {
        // So that the program can open the terminal by its name.
        fchown(&program, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
    // SAFETY: the result owns the descriptor, which stays the same and open until it is dropped.
    let master = TerminalMaster(unsafe { AsyncFd::register(master) }?);
    master.resize(size)?;
    Ok((master, program))
}

impl TerminalMaster {
    /// # Errors
    /// If the terminal is closed.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let size = Winsize {
            ws_row: size.rows,
            ws_col: size.columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        Ok(tcsetwinsize(self.0.get_ref(), size)?)
    }

    /// Returns 0 once no process has the program's end any more.
    ///
    /// # Errors
    /// If the terminal cannot be read.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self
            .0
            .async_io(tokio::io::Interest::READABLE, |master| {
                Ok(rustix::io::read(master, &mut *buffer)?)
            })
            .await;
        match read {
            Err(error) if error.raw_os_error() == Some(EIO) => Ok(0),
            read => read,
        }
    }

    /// # Errors
    /// If no process has the program's end.
    pub async fn write_all(&self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            let written = self
                .0
                .async_io(tokio::io::Interest::WRITABLE, |master| {
                    Ok(rustix::io::write(master, data)?)
                })
                .await?;
            data = &data[written..];
        }
        Ok(())
    }
}

/// Linux reports the end of a terminal so.
const EIO: i32 = rustix::io::Errno::IO.raw_os_error();
