//! The copy of all it holds that a shard makes between two steps for a checkpoint, and gives away while training goes on.
//!
//! There is one at a time, and its memory stays for the next. Each stretch of it is asked for by the copy's name, so that whoever still
//! draws one that was replaced is refused, and never gets numbers of both. Nobody waits for whoever draws.

use super::exchange::Exchange;
use super::room::Broken;
use super::tensors::Tensors;
use super::words::{Refusal, Seat};
use crate::pages;
use crate::wire::draw::{DrawHead, LentHead};
use crate::wire::{Connection, Kind, WireError};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// What there is to be drawn.
#[derive(Debug, Default)]
pub(super) struct Lent(Mutex<Copy>);

#[derive(Debug, Default)]
struct Copy {
    version: u64,
    /// Of copies so far; the first is 1.
    count: u64,
    /// As [`Tensors::parts`], one after the other.
    numbers: Vec<f32>,
}

impl Lent {
    /// Copies everything over what was copied before; how many copies that makes.
    fn copy(&self, version: u64, tensors: &Tensors) -> u64 {
        let parts = tensors.parts();
        let len = parts.iter().map(|part| part.len()).sum();
        let mut copy = self.lock();
        if copy.numbers.capacity() > 2 * len {
            // Of pieces that are elsewhere by now.
            copy.numbers = Vec::new();
        }
        pages::resize(&mut copy.numbers, len);
        let mut rest = copy.numbers.as_mut_slice();
        for part in parts {
            let (here, tail) = rest.split_at_mut(part.len());
            here.copy_from_slice(part);
            rest = tail;
        }
        copy.version = version;
        copy.count += 1;
        copy.count
    }

    /// Reads a stretch of the copy of that version and count into `out`.
    fn read(&self, version: u64, head: DrawHead, out: &mut Vec<f32>) -> Result<(), Refusal> {
        let copy = self.lock();
        let (asked, newest) = ((version, head.count), (copy.version, copy.count));
        if asked != newest {
            return Err(Refusal::OtherCopy { asked, newest });
        }
        let range = usize::try_from(head.from)
            .ok()
            .and_then(|from| copy.numbers.get(from..)?.get(..head.numbers as usize));
        let numbers = range.ok_or(Refusal::NotCopied {
            from: head.from,
            numbers: head.numbers,
            len: copy.numbers.len(),
        })?;
        out.clear();
        out.extend_from_slice(numbers);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Copy> {
        self.0.lock().expect("no connection has panicked with it")
    }
}

impl Exchange {
    /// Copies everything at one version to be drawn later; the version, and what else the chief is told of it. `within` as of
    /// [`Self::snapshot`].
    ///
    /// # Errors
    /// A [`Refusal`].
    pub(super) fn lend(&self, seat: Seat, within: Duration) -> Result<(u64, LentHead), Refusal> {
        let mut lent = None;
        self.snapshot(seat, within, |version, updates, tensors| {
            let count = self.lent.copy(version, tensors);
            lent = Some((version, LentHead { updates, count }));
            Ok::<(), Refusal>(())
        })?;
        Ok(lent.expect("it was read"))
    }
}

/// Gives whoever writes the chief's checkpoint what it asks for, until it hangs up.
pub(super) fn give(connection: &mut Connection, exchange: &Exchange) -> Result<(), Broken> {
    let mut numbers = Vec::new();
    loop {
        let header = match connection.receive() {
            Ok(header) => header,
            Err(WireError::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if header.kind != Kind::Draw {
            return Err(WireError::Unexpected { got: header.kind }.into());
        }
        let head = DrawHead::decode(&connection.receive_meta(header)?)?;
        exchange.lent.read(header.clock, head, &mut numbers)?;
        // Sent from a buffer: the chief's next copy waits for no wire.
        connection.send(Kind::Drawn, header.clock, &[], &[&numbers])?;
    }
}
