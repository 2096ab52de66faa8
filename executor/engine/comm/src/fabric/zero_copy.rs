//! Zero-copy sends: the kernel receives the pages of the data (`vmsplice`, `splice`) instead of a
//! copy. The copy is half of the processor time of a send.
//!
//! The sender must not change the data until the peer is known to have read it. The peer may not
//! have read data that this side's socket accepted earlier, and would then read the changed data.
//! `MSG_ZEROCOPY` was rejected: within one machine it copies anyway, and it reports when data was
//! sent, not when the peer has read it, which [`super::Mesh`] must know.

use rustix::fd::OwnedFd;
use rustix::pipe::{
    IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, vmsplice,
};
use std::io;
use std::net::TcpStream;

/// Capacity of the pipe in bytes: the kernel's limit for unprivileged users.
const PIPE_BYTES: usize = 1 << 20;

/// Pipe that passes pages from memory to a socket.
#[derive(Debug)]
pub struct ZeroCopySender {
    entry: OwnedFd,
    exit: OwnedFd,
    /// Bytes in the pipe that are not in the socket yet; they are the first bytes of the next call.
    inside: usize,
}

impl ZeroCopySender {
    /// Creates the pipe.
    ///
    /// # Errors
    /// If this user may create no more pipes, or none of this size.
    pub fn new() -> io::Result<Self> {
        let (exit, entry) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setpipe_size(&entry, PIPE_BYTES)?;
        Ok(Self {
            entry,
            exit,
            inside: 0,
        })
    }

    /// Passes as many of `bytes` to the socket as it accepts now and returns their number. The next
    /// call must continue with the bytes after them.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the socket accepts none now; another error if the peer has
    /// ended.
    pub fn lend(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        if self.inside == 0 {
            let part = &bytes[..bytes.len().min(PIPE_BYTES)];
            // SAFETY: the pages are only read, which cannot harm this process. The caller
            // guarantees that the data does not change before the peer has read it.
            self.inside = unsafe {
                vmsplice(
                    &self.entry,
                    &[IoSliceRaw::from_slice(part)],
                    SpliceFlags::NONBLOCK,
                )
            }?;
        }
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let count = splice(&self.exit, None, socket, None, self.inside, flags)?;
        self.inside -= count;
        Ok(count)
    }
}
