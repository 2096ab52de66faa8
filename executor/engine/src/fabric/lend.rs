//! Bytes that a socket takes where they lie: the kernel is given their pages (`vmsplice`, `splice`) and not a copy of them, which is half of what
//! sending costs a processor.
//!
//! Whoever lends leaves the bytes as they are until the peer is known to have taken them: the peer may not have read yet what this side's
//! socket has long accepted, and would read what they have become. `MSG_ZEROCOPY` was rejected: within one machine it copies all the same,
//! and it tells when the bytes have been sent, which [`super::Mesh`] must know of the peer in any case.

use rustix::fd::OwnedFd;
use rustix::pipe::{
    IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, vmsplice,
};
use std::io;
use std::net::TcpStream;

/// Bytes of a pipe: what the kernel allows every user.
const ROOM: usize = 1 << 20;

/// The way of pages from memory to a socket.
#[derive(Debug)]
pub struct Lender {
    entry: OwnedFd,
    exit: OwnedFd,
    /// Bytes that are in the pipe and not in the socket yet: the first ones of what is lent next.
    inside: usize,
}

impl Lender {
    /// # Errors
    /// When this user may have no more pipes, or none of that size.
    pub fn new() -> io::Result<Self> {
        let (exit, entry) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setpipe_size(&entry, ROOM)?;
        Ok(Self {
            entry,
            exit,
            inside: 0,
        })
    }

    /// Gives the socket as many of `bytes` as it takes now; how many. The next call goes on with what follows them.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when it takes none now; the peer is gone.
    pub fn lend(&mut self, socket: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
        if self.inside == 0 {
            let part = &bytes[..bytes.len().min(ROOM)];
            // SAFETY: the pages are only read from, which does this process no harm whatever it makes of them; that a peer reads what was meant
            // is the lender's promise.
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
