//! Division of gradients into units, owners of the units, and transfer of their words.

use muster_comm::compress::{CHUNK, Codec, CodecPlan, DecodeMode};
use muster_comm::fabric::{
    CollectiveBuffer, FabricError, Flow, Mesh, ReceiveOp, ReceiveRange, SendRange,
};
use std::ops::Range;

/// A part of a block that is encoded independently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EncodingUnit {
    pub block: usize,
    /// Range in the parameters.
    pub range: Range<usize>,
}

/// Returns the units of the blocks of `bucket`.
pub(super) fn units(plan: &CodecPlan, bucket: &Range<usize>) -> Vec<EncodingUnit> {
    let mut units = Vec::new();
    for (block, planned) in plan.blocks().iter().enumerate() {
        if !bucket.contains(&planned.range.start) {
            continue;
        }
        let Range { start, end } = planned.range;
        units.extend((start..end).step_by(CHUNK).map(|at| EncodingUnit {
            block,
            range: at..end.min(at + CHUNK),
        }));
    }
    units
}

/// Divides the units among the ranks: a range for each, with about the same number of values.
pub(super) fn deal(units: &[EncodingUnit], size: usize) -> Vec<Range<usize>> {
    let total: usize = units.iter().map(|unit| unit.range.len()).sum();
    let mut dealt = Vec::with_capacity(size);
    let (mut next, mut done) = (0, 0);
    for rank in 0..size {
        let start = next;
        let until = total * (rank + 1) / size;
        while let Some(unit) = units.get(next) {
            // Whole units go to the nearer side, by their middle.
            if rank + 1 < size && done + unit.range.len() / 2 >= until {
                break;
            }
            done += unit.range.len();
            next += 1;
        }
        dealt.push(start..next);
    }
    dealt
}

pub(super) fn own_units<'a>(
    units: &'a [EncodingUnit],
    dealt: &[Range<usize>],
    rank: usize,
) -> &'a [EncodingUnit] {
    &units[dealt[rank].clone()]
}

/// Returns the parameters that a range of units covers.
pub(super) fn span(units: &[EncodingUnit], range: Range<usize>) -> Range<usize> {
    match &units[range] {
        [] => 0..0,
        [first, .., last] => first.range.start..last.range.end,
        [only] => only.range.clone(),
    }
}

/// Decodes the units' words into their places; `None` if they are not valid.
pub(super) fn decode<'a>(
    units: &[EncodingUnit],
    codec: impl Fn(&EncodingUnit) -> &'a dyn Codec,
    words: &[u32],
    output: &mut [f32],
    mode: DecodeMode,
) -> Option<()> {
    let bytes: &[u8] = bytemuck::cast_slice(words);
    let mut read = 0;
    for unit in units {
        let out = &mut output[unit.range.clone()];
        read += codec(unit).decode_chunk(&bytes[read..], out, mode).ok()?;
        read = read.next_multiple_of(4);
    }
    (read == bytes.len()).then_some(())
}

/// Sends words to one rank and receives those of another, at most `most`. Their number is sent
/// first.
pub(super) fn trade(
    mesh: &mut Mesh,
    (to, words): (usize, &[u32]),
    (from, most): (usize, usize),
) -> Result<Vec<u32>, FabricError> {
    let mut announced = [0];
    transfer(mesh, (to, &[words.len() as u32]), (from, &mut announced))?;
    let count = announced[0] as usize;
    if count > most {
        return Err(FabricError::Nonsense { rank: from });
    }
    let mut taken = vec![0; count];
    transfer(mesh, (to, words), (from, &mut taken))?;
    Ok(taken)
}

/// Sends words to one rank and receives as many from another as `taken` has room for.
fn transfer(
    mesh: &mut Mesh,
    (to, words): (usize, &[u32]),
    (from, taken): (usize, &mut [u32]),
) -> Result<(), FabricError> {
    let flow = Flow {
        to: Some(to),
        sends: vec![SendRange {
            range: 0..words.len(),
            from: CollectiveBuffer::Input,
            after: None,
        }],
        from: Some(from),
        takes: vec![ReceiveRange {
            range: 0..taken.len(),
            how: ReceiveOp::Store,
        }],
        in_step: false,
        lends: false,
    };
    // Words travel as floats; the transfer does not interpret their bits.
    mesh.run(
        bytemuck::cast_slice(words),
        bytemuck::cast_slice_mut(taken),
        &flow,
    )
}
