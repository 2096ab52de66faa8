//! Addresses of a job's processes.

use super::error::CommandError;
use muster_model::assignment::Peer;

/// Returns host and port. The host of an IPv6 address has no brackets, as resolvers expect.
pub(super) fn split(peer: &Peer) -> Result<(String, String), CommandError> {
    let address = peer.address.as_deref().ok_or(CommandError::Peers)?;
    let (host, port) = address.rsplit_once(':').ok_or(CommandError::Peers)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), port.to_owned()))
}
