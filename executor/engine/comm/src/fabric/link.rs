//! Interface of a link to one peer, as collectives need it: send and receive as many floats as
//! possible, and sleep until more are possible.

use super::control::ControlSocket;
use rustix::event::PollFd;
use rustix::io::Errno;
use std::fmt::Debug;
use std::io;

/// Destination of received floats. All slices of one sink have the same length.
#[derive(Debug)]
pub enum ReceiveSink<'a> {
    /// Stores the received floats.
    Store(&'a mut [f32]),
    /// `out = own + received`: a partial sum that leaves the caller's input unchanged.
    Add { own: &'a [f32], out: &'a mut [f32] },
    /// `out += received`.
    AddTo(&'a mut [f32]),
}

impl ReceiveSink<'_> {
    /// Number of floats that fit.
    #[must_use]
    pub fn room(&self) -> usize {
        match self {
            Self::Store(out) | Self::AddTo(out) | Self::Add { out, .. } => out.len(),
        }
    }

    /// Processes `received`, beginning at float `at` of the sink.
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

/// Whether this error of a link means that the peer, its machine or the path to it is lost. Other
/// errors are errors of this task. A machine without power does not answer: after TCP gives up, the
/// error is the last ICMP message of a router, or the kernel's failure to resolve the address.
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
    // These errors have no `io::ErrorKind`.
    let others = [Errno::HOSTDOWN, Errno::NONET, Errno::NETRESET];
    is_gone
        || others
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Link to one peer. No method blocks; [`super::Mesh`] sleeps for all links at once.
pub trait PeerLink: Send + Debug {
    /// Sends as many of `floats` as possible now and returns their number.
    ///
    /// # Errors
    /// The peer has ended.
    fn try_send(&mut self, floats: &[f32]) -> io::Result<usize>;

    /// Like [`Self::try_send`] without a copy. The floats must not change until the peer has
    /// confirmed that it has taken them.
    ///
    /// # Errors
    /// The peer has ended.
    fn try_lend(&mut self, floats: &[f32]) -> io::Result<usize> {
        self.try_send(floats)
    }

    /// Receives as many floats as have arrived and fit into the sink, and returns their number.
    ///
    /// # Errors
    /// The peer has ended and all its data has been received.
    fn try_receive(&mut self, sink: ReceiveSink<'_>) -> io::Result<usize>;

    /// Requests a wake-up when sending or receiving becomes possible; `false` if it already is.
    fn arm(&mut self, send: bool, receive: bool) -> bool;

    /// Adds the file descriptors to poll for that, besides the control socket.
    fn watch<'a>(&'a self, send: bool, receive: bool, watched: &mut Vec<PollFd<'a>>);

    /// Control socket of the peer.
    fn control(&mut self) -> &mut ControlSocket;

    /// Shared reference to the control socket.
    fn control_ref(&self) -> &ControlSocket;

    /// Whether floats use memory that both tasks map.
    fn is_shared_memory(&self) -> bool;
}
