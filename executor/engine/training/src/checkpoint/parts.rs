//! Layout of tensors in part files: safetensors files of several blocks each, written from the
//! arenas and read into them without a copy.
//!
//! A part contains whole tensors in order without gaps, so that other programs can load each file
//! by itself. Its header follows from the manifest: a reader generates it again and compares the
//! bytes, so the header is never trusted.

use super::manifest::NamedBlock;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum size of a part in bytes; a larger tensor has a part of its own. Parts are hashed,
/// uploaded and read in parallel, so they are small compared with a large model. They are large
/// compared with the cost of a request to an object store.
pub const PART_BYTES: usize = 128 << 20;

/// Alignment in bytes of the data in format 2.
const ALIGN: usize = 64;

/// Page size of most processors, in bytes. The position of data in a page is that of their arena,
/// so that they can be mapped. With larger pages no file is mapped, and files are read.
pub(super) const PAGE: usize = 4096;

const FLOAT_BYTES: usize = size_of::<f32>();

/// One tensor of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartTensor {
    pub name: String,
    pub shape: Vec<usize>,
    /// Index of its arena.
    pub arena: usize,
    /// Offset in that arena, in floats.
    pub offset: usize,
    pub len: usize,
}

/// One part file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointPart {
    pub name: String,
    pub tensors: Vec<PartTensor>,
    /// Number of bytes from the start of a page to the data; `None` in files of format 2, which
    /// does not define it.
    pub lead: Option<usize>,
}

impl CheckpointPart {
    /// Cuts tensors into the files `<stem>.safetensors`, or `<stem>-00001-of-0000n.safetensors` if
    /// there are several, as is common for large models.
    #[must_use]
    pub fn cut(stem: &str, tensors: Vec<PartTensor>, part_bytes: usize) -> Vec<Self> {
        let mut groups: Vec<Vec<PartTensor>> = vec![Vec::new()];
        let mut held = 0;
        for tensor in tensors {
            let bytes = tensor.len * FLOAT_BYTES;
            if held > 0 && held + bytes > part_bytes {
                groups.push(Vec::new());
                held = 0;
            }
            held += bytes;
            groups.last_mut().expect("never empty").push(tensor);
        }
        let count = groups.len();
        groups
            .into_iter()
            .zip(1..)
            .map(|(tensors, number)| Self {
                name: match count {
                    1 => format!("{stem}.safetensors"),
                    _ => format!("{stem}-{number:05}-of-{count:05}.safetensors"),
                },
                tensors,
                lead: None,
            })
            .collect()
    }

    /// Chooses the position in a page at which the data of each part begin. An arena in several
    /// parts has the positions of one contiguous range of memory. The part with the first value of
    /// an arena determines the position of the whole arena.
    pub fn place(parts: &mut [Self]) {
        // Position in a page of byte 0 of each arena.
        let mut begins: BTreeMap<usize, usize> = BTreeMap::new();
        for part in parts {
            let runs = part.runs();
            let first = runs.first().map_or((0, 0), |&(arena, offset, _)| {
                (begins.get(&arena).copied().unwrap_or(0), offset)
            });
            let lead = (first.0 + first.1 * FLOAT_BYTES) % PAGE;
            part.lead = Some(lead);
            let mut at = lead;
            for (arena, offset, len) in runs {
                let before = offset * FLOAT_BYTES % PAGE;
                begins.entry(arena).or_insert((at + PAGE - before) % PAGE);
                at = (at + len * FLOAT_BYTES) % PAGE;
            }
        }
    }

    /// Bytes before the data: length of the header, the header, and spaces, which the format
    /// allows.
    #[must_use]
    pub fn header(&self) -> Vec<u8> {
        let mut text = String::from(r#"{"__metadata__":{"format":"pt"}"#);
        let mut at = 0;
        for tensor in &self.tensors {
            let end = at + tensor.len * FLOAT_BYTES;
            let name = serde_json::to_string(&tensor.name).expect("a name is text");
            let _ = write!(
                text,
                r#",{name}:{{"dtype":"F32","shape":{:?},"data_offsets":[{at},{end}]}}"#,
                tensor.shape
            );
            at = end;
        }
        text.push('}');
        let end = 8 + text.len();
        let length = match self.lead {
            None => end.next_multiple_of(ALIGN),
            Some(lead) => end + (PAGE + lead - end % PAGE) % PAGE,
        } - 8;
        let mut out = (length as u64).to_le_bytes().to_vec();
        out.extend_from_slice(text.as_bytes());
        out.resize(8 + length, b' ');
        out
    }

    /// Length of the data of all its tensors in bytes.
    #[must_use]
    pub fn data_bytes(&self) -> usize {
        let floats: usize = self.tensors.iter().map(|tensor| tensor.len).sum();
        floats * FLOAT_BYTES
    }

    /// Whether its tensors are the model's (arena 0). All tensors of one file are, or none.
    #[must_use]
    pub fn holds_parameters(&self) -> bool {
        self.tensors.first().is_some_and(|tensor| tensor.arena == 0)
    }

    /// Data in order: one slice for tensors that are neighbours in their arena, which they usually
    /// are.
    #[must_use]
    pub fn slices<'a>(&self, arenas: &[&'a [f32]]) -> Vec<&'a [u8]> {
        self.runs()
            .into_iter()
            .map(|(arena, offset, len)| bytemuck::cast_slice(&arenas[arena][offset..offset + len]))
            .collect()
    }

    /// Arena, offset and length of contiguous tensors, in the order of the file.
    #[must_use]
    pub fn runs(&self) -> Vec<(usize, usize, usize)> {
        let mut out: Vec<(usize, usize, usize)> = Vec::new();
        for tensor in &self.tensors {
            match out.last_mut() {
                Some((arena, offset, len))
                    if *arena == tensor.arena && *offset + *len == tensor.offset =>
                {
                    *len += tensor.len;
                }
                _ => out.push((tensor.arena, tensor.offset, tensor.len)),
            }
        }
        out
    }
}

/// Tensors of the model (arena 0).
#[must_use]
pub fn model(blocks: &[NamedBlock]) -> Vec<PartTensor> {
    blocks
        .iter()
        .map(|block| tensor(block, block.name.clone(), 0))
        .collect()
}

/// Tensors of the optimizer, plane after plane: plane `p` is arena `p + 1`.
#[must_use]
pub fn optimizer(blocks: &[NamedBlock], planes: &[String]) -> Vec<PartTensor> {
    let mut out = Vec::with_capacity(blocks.len() * planes.len());
    for (plane, arena) in planes.iter().zip(1..) {
        for block in blocks {
            out.push(tensor(block, format!("{}.{plane}", block.name), arena));
        }
    }
    out
}

/// Tensors of further arenas, one each; `first` is the index of the first arena.
#[must_use]
pub fn extras(extras: &[(String, usize)], first: usize) -> Vec<PartTensor> {
    extras
        .iter()
        .enumerate()
        .map(|(index, (name, len))| PartTensor {
            name: name.clone(),
            shape: vec![*len],
            arena: first + index,
            offset: 0,
            len: *len,
        })
        .collect()
}

fn tensor(block: &NamedBlock, name: String, arena: usize) -> PartTensor {
    PartTensor {
        name,
        shape: block.shape.clone(),
        arena,
        offset: block.offset,
        len: block.len,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensors(lens: &[usize]) -> Vec<PartTensor> {
        let mut offset = 0;
        lens.iter()
            .enumerate()
            .map(|(index, &len)| {
                offset += len;
                PartTensor {
                    name: format!("t{index}"),
                    shape: vec![len],
                    arena: 0,
                    offset: offset - len,
                    len,
                }
            })
            .collect()
    }

    #[test]
    fn parts_hold_whole_tensors_and_stay_below_their_size() {
        let parts = CheckpointPart::cut("model", tensors(&[3, 4, 2, 20, 1]), 8 * 4);
        let lens: Vec<Vec<usize>> = parts
            .iter()
            .map(|part| part.tensors.iter().map(|tensor| tensor.len).collect())
            .collect();
        assert_eq!(lens, [vec![3, 4], vec![2], vec![20], vec![1]]);
        assert_eq!(parts[1].name, "model-00002-of-00004.safetensors");
        assert_eq!(
            CheckpointPart::cut("m", tensors(&[3]), 1)[0].name,
            "m.safetensors"
        );
        assert_eq!(
            CheckpointPart::cut("m", Vec::new(), 1).len(),
            1,
            "no tensor is a file too"
        );
    }

    /// Two arenas over parts of arbitrary lengths; one part contains the end of one and the
    /// beginning of the other.
    #[test]
    fn arena_in_several_parts_keeps_its_page_positions() {
        let mut tensors = tensors(&[1000, 1025, 3, 2048, 5000]);
        let again = tensors
            .clone()
            .into_iter()
            .map(|tensor| PartTensor { arena: 1, ..tensor });
        tensors.extend(again.collect::<Vec<_>>());
        let mut parts = CheckpointPart::cut("model", tensors, 6000 * FLOAT_BYTES);
        CheckpointPart::place(&mut parts);
        assert!(parts.iter().any(|part| part.runs().len() == 2), "one does");
        let mut begins: BTreeMap<usize, usize> = BTreeMap::new();
        for part in &parts {
            let mut at = part.header().len();
            for (arena, offset, len) in part.runs() {
                let begin = (at + 100 * PAGE - offset * FLOAT_BYTES) % PAGE;
                let expected = *begins.entry(arena).or_insert(begin);
                assert_eq!(begin, expected, "arena {arena} in {}", part.name);
                at += len * FLOAT_BYTES;
            }
        }
    }

    #[test]
    fn a_part_is_a_safetensors_file() {
        let arena: Vec<f32> = (0..9).map(|i| i as f32).collect();
        let part = &mut CheckpointPart::cut("model", tensors(&[3, 4, 2]), 1 << 20)[0];
        assert_eq!(part.header().len() % ALIGN, 0);
        part.lead = Some(12);
        let mut file = part.header();
        assert_eq!(file.len() % PAGE, 12);
        assert_eq!(part.slices(&[&arena]).len(), 1, "neighbours are one slice");
        file.extend(part.slices(&[&arena]).concat());
        let read = safetensors::SafeTensors::deserialize(&file).expect("sound");
        let second: Vec<f32> = bytemuck::pod_collect_to_vec(read.tensor("t1").unwrap().data());
        assert_eq!(second, [3.0, 4.0, 5.0, 6.0]);
        assert_eq!(read.len(), 3);
    }
}
