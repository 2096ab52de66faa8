//! Transfer of file descriptors between processes over a Unix socket.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of descriptors in one call.
pub const FILES: usize = 4;

/// Sends `bytes`, and duplicates of `files` with the first byte. Returns the number of bytes sent.
///
/// # Errors
/// If the peer has closed, or the socket cannot transfer descriptors;
/// [`io::ErrorKind::InvalidInput`] for more than [`FILES`].
pub fn send(
    socket: impl AsFd,
    bytes: &[u8],
    files: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = flags | SendFlags::NOSIGNAL;
    Ok(sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut ancillary,
        flags,
    )?)
}

/// Receives bytes and adds the descriptors that came with them to `files`, at most [`FILES`].
/// Returns the number of bytes; 0 at the end of the stream.
///
/// # Errors
/// The error of the socket.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    files: &mut impl Extend<OwnedFd>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(
        socket,
        &mut [IoSliceMut::new(bytes)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(come) = part {
            files.extend(come);
        }
    }
    Ok(message.bytes)
}
