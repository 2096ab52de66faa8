//! Links to all members of one view, and the loop that moves floats over two of them at once.
//!
//! One thread receives, adds and sends, and sleeps in one `poll` for all links if nothing moves.
//! One thread per direction was rejected: with as many tasks as cores, each hand-over between
//! threads is a context switch, and the addition would find its chunk in another core's cache.

use super::control::{ControlMessage, ControlPoll};
use super::heartbeat::HeartbeatSender;
use super::link::{PeerLink, ReceiveSink, means_loss};
use super::{FabricError, FabricOptions};
use crate::log;
use muster_compute::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Maximum time to wait after a broken connection for the peer's message on its other connection
/// about the rank that was lost.
const NEWS_LIMIT: Duration = Duration::from_millis(500);

/// Minimum number of floats of a flow (1 MiB) that are lent. Below it, the additional control
/// message costs as much as the copy.
const LEND_FROM: usize = 256 << 10;

/// Number of heartbeat checks within the silence limit.
const LOOKS: u32 = 8;

/// Range of floats to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendRange {
    pub range: Range<usize>,
    /// Source: the caller's input, which collectives do not change, or the output.
    pub from: CollectiveBuffer,
    /// Index of the receive that produces this range. The range is sent as far as that receive has
    /// progressed.
    pub after: Option<usize>,
}

/// One of the two sides of a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectiveBuffer {
    Input,
    Output,
}

/// Range of the output to receive floats into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveRange {
    pub range: Range<usize>,
    pub how: ReceiveOp,
}

/// Operation on received floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveOp {
    Store,
    /// `output = input + received`.
    AddInput,
    /// `output += received`.
    AddOutput,
}

/// Transfers to one peer and from one peer, each in order, both at the same time.
#[derive(Debug, Clone, Default)]
pub struct Flow {
    pub to: Option<usize>,
    pub sends: Vec<SendRange>,
    pub from: Option<usize>,
    pub takes: Vec<ReceiveRange>,
    /// Receive into a range only as far as the send of the same index has progressed, because the
    /// range must be sent before it is changed.
    pub in_step: bool,
    /// Whether the data may be lent instead of copied. The sent data then changes only by what the
    /// peer returns. After an error no caller writes to either side before the peer has
    /// [settled](Mesh::has_lent). The peer's flow must have the same value.
    pub lends: bool,
}

/// Links of one view.
#[derive(Debug)]
pub struct Mesh {
    rank: usize,
    /// Indexed by rank; `None` for this task.
    links: Vec<Option<Box<dyn PeerLink>>>,
    stall: Duration,
    silence: Duration,
    pulse: Option<HeartbeatSender>,
    /// Time of the last message of each peer, and time of this task's last check. A task may not
    /// check for a whole step.
    heard: Vec<Instant>,
    looked: Instant,
    /// Whether a peer may still read data that this task has lent to it.
    has_lent: bool,
}

impl Mesh {
    /// Creates a mesh of `size` tasks. The links are [added](Self::add) later.
    pub(super) fn new(rank: usize, size: usize, options: &FabricOptions) -> Self {
        let now = clock::now();
        Self {
            rank,
            links: (0..size).map(|_| None).collect(),
            stall: options.stall,
            silence: options.silence,
            pulse: None,
            heard: vec![now; size],
            looked: now,
            has_lent: false,
        }
    }

    /// Starts the heartbeat after all links are added. From now on peers are also expected to send
    /// theirs.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn live(&mut self) -> Result<(), FabricError> {
        let links = self.links.iter().flatten();
        let streams = links.map(|link| link.control_ref().stream()).collect();
        let pulse = HeartbeatSender::start(streams, self.silence);
        self.pulse = Some(pulse.map_err(FabricError::io("start a thread"))?);
        self.heard.fill(clock::now());
        Ok(())
    }

    /// Rank of this task in the view.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of members of the view.
    #[must_use]
    pub fn size(&self) -> usize {
        self.links.len()
    }

    /// Whether floats to that rank use shared memory.
    #[must_use]
    pub fn is_shared_memory(&self, rank: usize) -> bool {
        self.links[rank]
            .as_ref()
            .is_some_and(|link| link.is_shared_memory())
    }

    pub(super) fn add(&mut self, rank: usize, link: Box<dyn PeerLink>) {
        self.links[rank] = Some(link);
    }

    /// Sends every peer the reason why this task leaves, and closes every link. Peers that wait for
    /// this task, and not for the lost one, then leave as well.
    pub(super) fn leave_because(&mut self, error: &FabricError) {
        self.say(match error {
            FabricError::Lost { rank } => ControlMessage::Lost {
                rank: u16::try_from(*rank).expect("ranks are few"),
            },
            _ => ControlMessage::Regroup,
        });
        self.links.iter_mut().for_each(|link| *link = None);
    }

    pub(super) fn link(&mut self, rank: usize) -> &mut dyn PeerLink {
        self.links[rank]
            .as_mut()
            .expect("a task has no link to itself")
            .as_mut()
    }

    /// Carries out `flow`. `input` and `output` are the two sides of the collective, of the same
    /// length.
    ///
    /// # Errors
    /// [`FabricError`]; transfers up to the error are not undone.
    pub fn run(
        &mut self,
        input: &[f32],
        output: &mut [f32],
        flow: &Flow,
    ) -> Result<(), FabricError> {
        let (mut sent, mut taken) = (RangeCursor::default(), RangeCursor::default());
        let lent_to = flow
            .to
            .filter(|&to| self.is_lent(flow, to, flow.sends.iter().map(|piece| &piece.range)));
        let lent_by = flow
            .from
            .filter(|&from| self.is_lent(flow, from, flow.takes.iter().map(|take| &take.range)));
        let mut owed = lent_by;
        let mut idle_since: Option<Instant> = None;
        loop {
            taken.skip(flow.takes.len(), |i| flow.takes[i].range.len());
            sent.skip(flow.sends.len(), |i| flow.sends[i].range.len());
            let receives = taken.index < flow.takes.len();
            let sends = sent.index < flow.sends.len();
            if let Some(from) = owed.take_if(|_| !receives) {
                let said = self.link(from).control().say_surely(ControlMessage::Taken);
                said.map_err(|error| self.broken(from, error))?;
            }
            if !receives && !sends {
                return lent_to.map_or(Ok(()), |to| self.settle(to));
            }
            let mut moved = 0;
            // A receive of zero bytes would be mistaken for the end of the connection.
            let takes = receives
                && taken.limit(flow, &sent) > flow.takes[taken.index].range.start + taken.within;
            if let (true, Some(from)) = (takes, flow.from) {
                let take = &flow.takes[taken.index];
                let range = take.range.start + taken.within..taken.limit(flow, &sent);
                let out = &mut output[range.clone()];
                let sink = match take.how {
                    ReceiveOp::Store => ReceiveSink::Store(out),
                    ReceiveOp::AddInput => ReceiveSink::Add {
                        own: &input[range],
                        out,
                    },
                    ReceiveOp::AddOutput => ReceiveSink::AddTo(out),
                };
                let count = self.link(from).try_receive(sink);
                let count = count.map_err(|error| self.broken(from, error))?;
                taken.within += count;
                moved += count;
            }
            let ready = sent.ready(flow, &taken);
            if let (true, Some(to)) = (!ready.is_empty(), flow.to) {
                let floats = match flow.sends[sent.index].from {
                    CollectiveBuffer::Input => &input[ready],
                    CollectiveBuffer::Output => &output[ready],
                };
                let count = match lent_to {
                    Some(_) => {
                        self.has_lent = true;
                        self.link(to).try_lend(floats)
                    }
                    None => self.link(to).try_send(floats),
                };
                let count = count.map_err(|error| self.broken(to, error))?;
                sent.within += count;
                moved += count;
            }
            if moved > 0 {
                idle_since = None;
                continue;
            }
            let since = *idle_since.get_or_insert_with(clock::now);
            let sends = !sent.ready(flow, &taken).is_empty();
            self.sleep(flow.to.filter(|_| sends), flow.from.filter(|_| takes))?;
            if since.elapsed() > self.stall {
                let rank = flow.from.filter(|_| receives).or(flow.to);
                return Err(FabricError::Lost {
                    rank: rank.unwrap_or(self.rank),
                });
            }
        }
    }

    /// Whether peers may still read data that this task has lent to them. If so, both sides of the
    /// aborted flow must not be written any more.
    #[must_use]
    pub fn has_lent(&self) -> bool {
        self.has_lent
    }

    /// Whether floats of these ranges are lent between this task and `rank`. Both tasks compute the
    /// same result.
    fn is_lent<'a>(
        &self,
        flow: &Flow,
        rank: usize,
        ranges: impl Iterator<Item = &'a Range<usize>>,
    ) -> bool {
        flow.lends
            && !self.is_shared_memory(rank)
            && ranges.map(Range::len).sum::<usize>() >= LEND_FROM
    }

    /// Waits until `to` has taken all data that was lent to it.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn settle(&mut self, to: usize) -> Result<(), FabricError> {
        let began = clock::now();
        while !self.link(to).control().is_taken() {
            if self.link(to).control_ref().has_left() || began.elapsed() > self.stall {
                return Err(FabricError::Lost { rank: to });
            }
            self.sleep(None, None)?;
        }
        self.has_lent = false;
        Ok(())
    }

    /// Sleeps until floats can be sent to `to` or received from `from`, or a control message
    /// arrives. Also checks heartbeats.
    ///
    /// # Errors
    /// [`FabricError`] if a message ends the view or a peer is lost.
    pub fn sleep(&mut self, to: Option<usize>, from: Option<usize>) -> Result<(), FabricError> {
        if let (Some(a), Some(b)) = (to, from)
            && a == b
        {
            if !self.link(a).arm(true, true) {
                return Ok(());
            }
        } else {
            if to.is_some_and(|to| !self.link(to).arm(true, false))
                || from.is_some_and(|from| !self.link(from).arm(false, true))
            {
                return Ok(());
            }
        }
        let slice = self.silence / LOOKS;
        let limit = Timespec {
            tv_sec: slice.as_secs() as i64,
            tv_nsec: slice.subsec_nanos().into(),
        };
        let mut watched = Vec::with_capacity(self.links.len() + 2);
        for (rank, link) in self.links.iter().enumerate() {
            let Some(link) = link else { continue };
            if !link.control_ref().has_left() {
                watched.push(PollFd::new(link.control_ref(), PollFlags::IN));
            }
            let (send, receive) = (to == Some(rank), from == Some(rank));
            if send || receive {
                link.watch(send, receive, &mut watched);
            }
        }
        match poll(&mut watched, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(FabricError::io("wait for peers")(error.into())),
        }
        drop(watched);
        self.listen()?;
        self.miss()
    }

    /// Checks for peers without a message for too long. Time in which this task did not check,
    /// because it computed or was stopped itself, does not count.
    fn miss(&mut self) -> Result<(), FabricError> {
        let now = clock::now();
        let away = now - self.looked > self.silence / 2;
        self.looked = now;
        if away {
            self.heard.fill(now);
        }
        if self.pulse.is_none() {
            return Ok(());
        }
        let mut links = self.links.iter().zip(&self.heard);
        let silent = links.position(|(link, heard)| {
            let link = link.as_ref();
            let is_there = link.is_some_and(|link| !link.control_ref().has_left());
            is_there && now - *heard > self.silence
        });
        match silent {
            Some(rank) => {
                log::line(format_args!(
                    "rank {rank} gives no sign of life for {} s",
                    self.silence.as_secs_f64()
                ));
                Err(FabricError::Lost { rank })
            }
            None => Ok(()),
        }
    }

    /// Checks without waiting that all peers are still there, for callers that wait for them
    /// elsewhere. A peer that has left in order counts as lost.
    ///
    /// # Errors
    /// As [`Self::sleep`].
    pub fn look(&mut self) -> Result<(), FabricError> {
        self.listen()?;
        self.miss()?;
        let left = self.links.iter().position(|link| {
            let link = link.as_ref();
            link.is_some_and(|link| link.control_ref().has_left())
        });
        match left {
            Some(rank) => Err(FabricError::Lost { rank }),
            None => Ok(()),
        }
    }

    /// Reads the control messages of all peers.
    ///
    /// # Errors
    /// [`FabricError`] if a message ends the view or a connection has ended.
    pub fn listen(&mut self) -> Result<(), FabricError> {
        let mut gone = None;
        for rank in 0..self.links.len() {
            let Some(link) = &mut self.links[rank] else {
                continue;
            };
            match link.control().listen() {
                ControlPoll::Nothing => {}
                ControlPoll::Something => self.heard[rank] = clock::now(),
                // Not reported at once: another peer may send another reason for leaving.
                ControlPoll::Gone => gone = Some(rank),
                heard => return Err(ended(heard, rank)),
            }
        }
        gone.map_or(Ok(()), |rank| Err(FabricError::Lost { rank }))
    }

    /// Returns the meaning of a broken link to `rank`: that rank is lost, or it left because of
    /// another lost rank.
    fn broken(&mut self, rank: usize, error: io::Error) -> FabricError {
        if !means_loss(&error) {
            return FabricError::io("exchange with a peer")(error);
        }
        let deadline = clock::now() + NEWS_LIMIT;
        let control = self.link(rank).control();
        while !control.has_left() {
            let left = deadline.saturating_duration_since(clock::now());
            let heard = control.listen();
            if !matches!(heard, ControlPoll::Nothing | ControlPoll::Something) {
                return ended(heard, rank);
            }
            if left.is_zero() {
                break;
            }
            let limit = Timespec {
                tv_sec: 0,
                tv_nsec: left.subsec_nanos().into(),
            };
            let _ = poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&limit));
        }
        FabricError::Lost { rank }
    }

    /// Sends a message to every peer.
    pub(super) fn say(&mut self, word: ControlMessage) {
        for link in self.links.iter_mut().flatten() {
            link.control().say(word);
        }
    }
}

fn ended(heard: ControlPoll, by: usize) -> FabricError {
    match heard {
        ControlPoll::Lost { rank } => FabricError::Lost {
            rank: usize::from(rank),
        },
        ControlPoll::Regroup => FabricError::Regroup,
        ControlPoll::Nothing | ControlPoll::Something | ControlPoll::Gone => {
            FabricError::Lost { rank: by }
        }
    }
}

/// Progress in a list of ranges.
#[derive(Debug, Default)]
struct RangeCursor {
    index: usize,
    within: usize,
}

impl RangeCursor {
    /// Skips ranges that are complete or empty.
    fn skip(&mut self, len: usize, floats: impl Fn(usize) -> usize) {
        while self.index < len && self.within == floats(self.index) {
            self.index += 1;
            self.within = 0;
        }
    }

    /// End of the part that may be received now.
    fn limit(&self, flow: &Flow, sent: &Self) -> usize {
        let range = &flow.takes[self.index].range;
        match (flow.in_step, sent.index.cmp(&self.index)) {
            (false, _) | (true, std::cmp::Ordering::Greater) => range.end,
            (true, std::cmp::Ordering::Equal) => range.start + sent.within.max(self.within),
            (true, std::cmp::Ordering::Less) => range.start + self.within,
        }
    }

    /// Part that may be sent now.
    fn ready(&self, flow: &Flow, taken: &Self) -> Range<usize> {
        let Some(piece) = flow.sends.get(self.index) else {
            return 0..0;
        };
        let made = match piece.after {
            Some(after) if after > taken.index => 0,
            Some(after) if after == taken.index => taken.within,
            _ => piece.range.len(),
        };
        let start = piece.range.start + self.within;
        start..(piece.range.start + made).max(start)
    }
}

#[cfg(test)]
mod tests {
    use super::super::control::ControlSocket;
    use super::super::handshake::PeerStream;
    use super::*;
    use rustix::io::Errno;
    use std::os::unix::net::UnixStream;

    /// Link that fails with an error of its socket.
    #[derive(Debug)]
    struct Failing {
        errno: Errno,
        control: ControlSocket,
    }

    impl PeerLink for Failing {
        fn try_send(&mut self, _: &[f32]) -> io::Result<usize> {
            Err(self.errno.into())
        }

        fn try_receive(&mut self, _: ReceiveSink<'_>) -> io::Result<usize> {
            Err(self.errno.into())
        }

        fn arm(&mut self, _: bool, _: bool) -> bool {
            true
        }

        fn watch<'a>(&'a self, _: bool, _: bool, _: &mut Vec<PollFd<'a>>) {}

        fn control(&mut self) -> &mut ControlSocket {
            &mut self.control
        }

        fn control_ref(&self) -> &ControlSocket {
            &self.control
        }

        fn is_shared_memory(&self) -> bool {
            false
        }
    }

    /// Error of a sum if the link to rank 1 fails with `errno`.
    fn failed(errno: Errno) -> FabricError {
        let (ours, _) = UnixStream::pair().unwrap();
        let control = ControlSocket::new(PeerStream::Unix(ours)).unwrap();
        let mut mesh = Mesh::new(0, 2, &FabricOptions::default());
        mesh.add(1, Box::new(Failing { errno, control }));
        let flow = Flow {
            to: Some(1),
            sends: vec![SendRange {
                range: 0..1,
                from: CollectiveBuffer::Input,
                after: None,
            }],
            ..Flow::default()
        };
        mesh.run(&[1.0], &mut [], &flow).unwrap_err()
    }

    #[test]
    fn network_errors_are_lost_peers_and_local_errors_are_not() {
        for errno in [
            Errno::CONNRESET,
            Errno::PIPE,
            Errno::TIMEDOUT,
            Errno::HOSTUNREACH,
            Errno::NETUNREACH,
            Errno::HOSTDOWN,
            Errno::NETDOWN,
            Errno::NONET,
        ] {
            let error = failed(errno);
            assert!(
                matches!(error, FabricError::Lost { rank: 1 }),
                "{errno}: {error:?}"
            );
        }
        for errno in [Errno::NOMEM, Errno::BADF, Errno::NOBUFS] {
            let error = failed(errno);
            assert!(
                matches!(error, FabricError::Io { .. }),
                "{errno}: {error:?}"
            );
        }
    }
}
