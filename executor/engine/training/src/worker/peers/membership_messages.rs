//! Messages between the coordinator's membership server and its clients: one line of JSON each.

use muster_comm::fabric::{GroupView, MemberReport, PeerStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::io::{self, BufReader, Write};
use std::time::Duration;

/// Messages of a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum MembershipRequest {
    Next(MemberReport),
    /// The worker leaves in order.
    Goodbye,
}

/// Messages to a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub enum MembershipReply {
    View(GroupView),
    Over(CloseReason),
    /// There is no view yet: the coordinator may be evaluating, or wait for other members.
    Alive,
}

/// Why a worker gets no further view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CloseReason {
    /// The coordinator has finished or left in order.
    Over,
    /// The job continues without this worker.
    Dismissed,
    /// This worker was asked to stop.
    Stopped,
    /// The coordinator left without a goodbye.
    ChiefLost,
}

/// Sends one message.
pub fn send(stream: &mut PeerStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Whether a message or the end of the connection is there within the time.
pub fn has_line(lines: &BufReader<PeerStream>, within: Duration) -> bool {
    !lines.buffer().is_empty() || arrives(lines.get_ref(), within)
}

/// Whether data or the end of the connection arrives within the time.
pub fn arrives(stream: &PeerStream, within: Duration) -> bool {
    let limit = Timespec {
        tv_sec: 0,
        tv_nsec: within.subsec_nanos().into(),
    };
    let mut watched = [PollFd::new(stream, PollFlags::IN)];
    matches!(poll(&mut watched, Some(&limit)), Ok(1..))
}
