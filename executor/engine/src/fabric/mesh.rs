//! All links of one view, and the loop that moves floats over two of them at once.
//!
//! One thread: it takes what has come, adds it, gives what goes, and sleeps in one `poll` for everything when nothing moves. A
//! thread per direction was rejected: with as many tasks as cores each hand-over between threads is a context switch, and the
//! sum over a chunk would find it in another core's cache.

use super::control::{Heard, Word};
use super::link::{Link, Sink, means_loss};
use super::pulse::Pulse;
use super::{FabricError, Options};
use crate::clock;
use crate::log;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long the news of who died may stay behind the end of the socket of who brings it (two connections of one peer).
const NEWS_LIMIT: Duration = Duration::from_millis(500);

/// Floats of a flow, 1 MiB, from which on they are lent: below, a word more costs as much as the copy.
const LEND_FROM: usize = 256 << 10;

/// Looks at whether peers live in the time after which their silence means something.
const LOOKS: u32 = 8;

/// Floats of `range`, to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub range: Range<usize>,
    /// The caller's input, untouched by collectives, or what they have made of it.
    pub from: Side,
    /// Index of the receive that makes it; it is sent as far as that one has come.
    pub after: Option<usize>,
}

/// Which of a collective's two sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Input,
    Output,
}

/// Floats to be received into `range` of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Take {
    pub range: Range<usize>,
    pub how: How,
}

/// What becomes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Store,
    /// `output = input + received`.
    AddInput,
    /// `output += received`.
    AddOutput,
}

/// What goes to one peer and what comes from one, each in order, both at once.
#[derive(Debug, Clone, Default)]
pub struct Flow {
    pub to: Option<usize>,
    pub sends: Vec<Piece>,
    pub from: Option<usize>,
    pub takes: Vec<Take>,
    /// Take into a range no further than the send of the same index has come: what is sent there must go before it is changed.
    pub in_step: bool,
    /// What is sent is only changed by what the peer has made of it, and nobody writes to either side after an error before it has
    /// [settled](Mesh::has_lent): so it need not be copied. The peer's flow says the same.
    pub lends: bool,
}

/// The links of one view.
#[derive(Debug)]
pub struct Mesh {
    rank: usize,
    /// By rank; `None` for this task itself.
    links: Vec<Option<Box<dyn Link>>>,
    stall: Duration,
    silence: Duration,
    pulse: Option<Pulse>,
    /// When each peer was last heard, and when this task last looked: it may not have looked for a whole step.
    heard: Vec<Instant>,
    looked: Instant,
    /// Whether a peer may still read what this task has lent it.
    has_lent: bool,
}

impl Mesh {
    /// Of so many tasks, whose links are [added](Self::add) later.
    pub(super) fn new(rank: usize, size: usize, options: &Options) -> Self {
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

    /// All links are there: from here on peers hear that this task's process runs, and are expected to say so themselves.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub(super) fn live(&mut self) -> Result<(), FabricError> {
        let links = self.links.iter().flatten();
        let streams = links.map(|link| link.control_ref().stream()).collect();
        let pulse = Pulse::start(streams, self.silence);
        self.pulse = Some(pulse.map_err(FabricError::io("start a thread"))?);
        self.heard.fill(clock::now());
        Ok(())
    }

    /// This task's place in the view.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Members of the view.
    #[must_use]
    pub fn size(&self) -> usize {
        self.links.len()
    }

    /// Whether floats to that rank go through shared memory.
    #[must_use]
    pub fn is_shared_memory(&self, rank: usize) -> bool {
        self.links[rank]
            .as_ref()
            .is_some_and(|link| link.is_shared_memory())
    }

    pub(super) fn add(&mut self, rank: usize, link: Box<dyn Link>) {
        self.links[rank] = Some(link);
    }

    /// Tells every peer why this task leaves and closes every link: so that those who wait for it, and not for who died, leave
    /// as well.
    pub(super) fn leave_because(&mut self, error: &FabricError) {
        self.say(match error {
            FabricError::Lost { rank } => Word::Lost {
                rank: u16::try_from(*rank).expect("ranks are few"),
            },
            _ => Word::Regroup,
        });
        self.links.iter_mut().for_each(|link| *link = None);
    }

    pub(super) fn link(&mut self, rank: usize) -> &mut dyn Link {
        self.links[rank]
            .as_mut()
            .expect("a task has no link to itself")
            .as_mut()
    }

    /// Moves what `flow` says. `input` and `output` are the collective's two sides, of the same length.
    ///
    /// # Errors
    /// [`FabricError`]; what has been moved stays moved.
    pub fn run(
        &mut self,
        input: &[f32],
        output: &mut [f32],
        flow: &Flow,
    ) -> Result<(), FabricError> {
        let (mut sent, mut taken) = (Cursor::default(), Cursor::default());
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
                let said = self.link(from).control().say_surely(Word::Taken);
                said.map_err(|error| self.broken(from, error))?;
            }
            if !receives && !sends {
                return lent_to.map_or(Ok(()), |to| self.settle(to));
            }
            let mut moved = 0;
            // An empty sink would mistake nothing for the peer's end.
            let takes = receives
                && taken.limit(flow, &sent) > flow.takes[taken.index].range.start + taken.within;
            if let (true, Some(from)) = (takes, flow.from) {
                let take = &flow.takes[taken.index];
                let range = take.range.start + taken.within..taken.limit(flow, &sent);
                let out = &mut output[range.clone()];
                let sink = match take.how {
                    How::Store => Sink::Store(out),
                    How::AddInput => Sink::Add {
                        own: &input[range],
                        out,
                    },
                    How::AddOutput => Sink::AddTo(out),
                };
                let count = self.link(from).try_receive(sink);
                let count = count.map_err(|error| self.broken(from, error))?;
                taken.within += count;
                moved += count;
            }
            let ready = sent.ready(flow, &taken);
            if let (true, Some(to)) = (!ready.is_empty(), flow.to) {
                let floats = match flow.sends[sent.index].from {
                    Side::Input => &input[ready],
                    Side::Output => &output[ready],
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

    /// Whether peers may still read what this task has lent them: then both sides of the flow that was broken off must not be written any more.
    #[must_use]
    pub fn has_lent(&self) -> bool {
        self.has_lent
    }

    /// Whether floats of these ranges are lent between this task and `rank`; both say the same.
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

    /// Waits until `to` has taken all that it was lent.
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

    /// Sleeps until floats may go to `to`, come from `from`, or a word is heard; and now and then whether they live.
    ///
    /// # Errors
    /// The word, when it ends the view.
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

    /// Looks for peers that have not been heard for too long. What this task did not listen to, as it was computing or was stopped
    /// itself, counts for nothing against them.
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
        let is_silent = |rank: &usize| {
            let link = self.links[*rank].as_ref();
            let is_there = link.is_some_and(|link| !link.control_ref().has_left());
            is_there && now - self.heard[*rank] > self.silence
        };
        match (0..self.links.len()).find(is_silent) {
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

    /// Whether all peers are still there, without waiting: for who waits for them elsewhere. One that has left in order will not come either.
    ///
    /// # Errors
    /// As [`Self::sleep`].
    pub fn look(&mut self) -> Result<(), FabricError> {
        self.listen()?;
        self.miss()?;
        let has_left = |rank: &usize| {
            let link = self.links[*rank].as_ref();
            link.is_some_and(|link| link.control_ref().has_left())
        };
        match (0..self.links.len()).find(has_left) {
            Some(rank) => Err(FabricError::Lost { rank }),
            None => Ok(()),
        }
    }

    /// Looks at what peers have said.
    ///
    /// # Errors
    /// The word, when it ends the view.
    pub fn listen(&mut self) -> Result<(), FabricError> {
        let mut gone = None;
        for rank in 0..self.links.len() {
            let Some(link) = &mut self.links[rank] else {
                continue;
            };
            match link.control().listen() {
                Heard::Nothing => {}
                Heard::Something => self.heard[rank] = clock::now(),
                // Not at once: another peer may say that they all leave for another reason.
                Heard::Gone => gone = Some(rank),
                heard => return Err(ended(heard, rank)),
            }
        }
        gone.map_or(Ok(()), |rank| Err(FabricError::Lost { rank }))
    }

    /// What the end of a link to `rank` means: a death there, or the peer's leaving because of somebody else's.
    fn broken(&mut self, rank: usize, error: io::Error) -> FabricError {
        if !means_loss(&error) {
            return FabricError::io("exchange with a peer")(error);
        }
        let deadline = clock::now() + NEWS_LIMIT;
        let control = self.link(rank).control();
        while !control.has_left() {
            let left = deadline.saturating_duration_since(clock::now());
            let heard = control.listen();
            if !matches!(heard, Heard::Nothing | Heard::Something) {
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

    /// Says a word to every peer.
    pub(super) fn say(&mut self, word: Word) {
        for link in self.links.iter_mut().flatten() {
            link.control().say(word);
        }
    }
}

fn ended(heard: Heard, by: usize) -> FabricError {
    match heard {
        Heard::Lost { rank } => FabricError::Lost {
            rank: usize::from(rank),
        },
        Heard::Regroup => FabricError::Regroup,
        Heard::Nothing | Heard::Something | Heard::Gone => FabricError::Lost { rank: by },
    }
}

/// How far a list of ranges has come.
#[derive(Debug, Default)]
struct Cursor {
    index: usize,
    within: usize,
}

impl Cursor {
    /// Goes past what is complete or empty.
    fn skip(&mut self, len: usize, floats: impl Fn(usize) -> usize) {
        while self.index < len && self.within == floats(self.index) {
            self.index += 1;
            self.within = 0;
        }
    }

    /// Where what may be taken now ends.
    fn limit(&self, flow: &Flow, sent: &Self) -> usize {
        let range = &flow.takes[self.index].range;
        match (flow.in_step, sent.index.cmp(&self.index)) {
            (false, _) | (true, std::cmp::Ordering::Greater) => range.end,
            (true, std::cmp::Ordering::Equal) => range.start + sent.within.max(self.within),
            (true, std::cmp::Ordering::Less) => range.start + self.within,
        }
    }

    /// What may be sent now.
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
    use super::super::control::Control;
    use super::super::hello::Stream;
    use super::*;
    use rustix::io::Errno;
    use std::os::unix::net::UnixStream;

    /// A link that fails as its socket would.
    #[derive(Debug)]
    struct Failing {
        errno: Errno,
        control: Control,
    }

    impl Link for Failing {
        fn try_send(&mut self, _: &[f32]) -> io::Result<usize> {
            Err(self.errno.into())
        }

        fn try_receive(&mut self, _: Sink<'_>) -> io::Result<usize> {
            Err(self.errno.into())
        }

        fn arm(&mut self, _: bool, _: bool) -> bool {
            true
        }

        fn watch<'a>(&'a self, _: bool, _: bool, _: &mut Vec<PollFd<'a>>) {}

        fn control(&mut self) -> &mut Control {
            &mut self.control
        }

        fn control_ref(&self) -> &Control {
            &self.control
        }

        fn is_shared_memory(&self) -> bool {
            false
        }
    }

    /// What becomes of a sum when the link to rank 1 fails so.
    fn failed(errno: Errno) -> FabricError {
        let (ours, _) = UnixStream::pair().unwrap();
        let control = Control::new(Stream::Unix(ours)).unwrap();
        let mut mesh = Mesh::new(0, 2, &Options::default());
        mesh.add(1, Box::new(Failing { errno, control }));
        let flow = Flow {
            to: Some(1),
            sends: vec![Piece {
                range: 0..1,
                from: Side::Input,
                after: None,
            }],
            ..Flow::default()
        };
        mesh.run(&[1.0], &mut [], &flow).unwrap_err()
    }

    #[test]
    fn a_machine_that_is_gone_is_a_lost_peer_and_this_tasks_trouble_is_its_own() {
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
