//! What a collective needs of a peer: to give floats and to take floats, as many as go at once, and to sleep until more do.

use super::control::Control;
use rustix::event::PollFd;
use rustix::io::Errno;
use std::fmt::Debug;
use std::io;

/// What becomes of received floats. All slices of one sink have the same length.
#[derive(Debug)]
pub enum Sink<'a> {
    /// They are the result.
    Store(&'a mut [f32]),
    /// `out = own + received`: a partial sum, without touching the caller's input.
    Add { own: &'a [f32], out: &'a mut [f32] },
    /// `out += received`.
    AddTo(&'a mut [f32]),
}

impl Sink<'_> {
    /// Floats that it takes.
    #[must_use]
    pub fn room(&self) -> usize {
        match self {
            Self::Store(out) | Self::AddTo(out) | Self::Add { out, .. } => out.len(),
        }
    }

    /// Takes in `received`, from the sink's float `at` on.
    pub fn take(&mut self, at: usize, received: &[f32]) {
        let range = at..at + received.len();
        match self {
            Self::Store(out) => out[range].copy_from_slice(received),
            Self::Add { own, out } => {
                crate::collective::add::add(&mut out[range.clone()], &own[range], received);
            }
            Self::AddTo(out) => crate::collective::add::add_to(&mut out[range], received),
        }
    }
}

/// Whether a link that failed so says that the peer, its machine or the way to it is gone, and nothing of this task's own. A machine
/// without power answers nothing: once TCP gives up, it says what it heard last of the way there, from a router or from the kernel, that
/// asked in vain who has the address.
#[must_use]
pub fn means_loss(error: &io::Error) -> bool {
    let is_gone = matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::TimedOut
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
    );
    // These have no kind of their own.
    let others = [Errno::HOSTDOWN, Errno::NONET, Errno::NETRESET];
    is_gone
        || others
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// One peer. Nothing in it blocks; [`super::Mesh`] sleeps for all links at once.
pub trait Link: Send + Debug {
    /// Gives as many of `floats` as go now.
    ///
    /// # Errors
    /// The peer is gone.
    fn try_send(&mut self, floats: &[f32]) -> io::Result<usize>;

    /// As [`Self::try_send`]; the peer may read them for as long as it has not said that it has taken them, so until then they stay as they are.
    ///
    /// # Errors
    /// The peer is gone.
    fn try_lend(&mut self, floats: &[f32]) -> io::Result<usize> {
        self.try_send(floats)
    }

    /// Takes as many floats as have come, at most as the sink holds; how many.
    ///
    /// # Errors
    /// The peer is gone and everything that it sent has been taken.
    fn try_receive(&mut self, sink: Sink<'_>) -> io::Result<usize>;

    /// Asks to be woken when sending or receiving may go on; `false` when it may already.
    fn arm(&mut self, send: bool, receive: bool) -> bool;

    /// Adds what to poll for, besides the control socket, to learn that.
    fn watch<'a>(&'a self, send: bool, receive: bool, watched: &mut Vec<PollFd<'a>>);

    /// The words beside the floats.
    fn control(&mut self) -> &mut Control;

    /// The same, to look at.
    fn control_ref(&self) -> &Control;

    /// Whether floats go through memory that both map.
    fn is_shared_memory(&self) -> bool;
}
