//! Floats through a [ring](crate::memory::ring) of bytes: only whole floats, added directly from
//! the ring.

use super::link::ReceiveSink;
use crate::memory::{SharedMapping, ring};
use std::io;

pub use ring::RING_BYTES;

const FLOAT: usize = size_of::<f32>();

/// Writing end.
#[derive(Debug)]
pub struct FloatRingWriter(ring::RingWriter);

/// Reading end.
#[derive(Debug)]
pub struct FloatRingReader(ring::RingReader);

impl FloatRingWriter {
    #[must_use]
    pub fn new(base: usize) -> Self {
        Self(ring::RingWriter::new(base))
    }

    /// Writes as many floats as fit. Returns their number and whether the reader must be woken.
    ///
    /// # Errors
    /// If the reader's position is invalid.
    pub fn write(&mut self, memory: &SharedMapping, floats: &[f32]) -> io::Result<(usize, bool)> {
        let count = self.0.fill(memory, bytemuck::cast_slice(floats))?;
        if count % FLOAT > 0 {
            // Only a faulty peer takes a part of a float.
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok((count / FLOAT, self.0.show(memory)?))
    }

    /// Requests a wake-up when there is room; `false` if there already is.
    pub fn arm(&self, memory: &SharedMapping) -> bool {
        self.0.arm(memory, FLOAT)
    }
}

impl FloatRingReader {
    #[must_use]
    pub fn new(base: usize) -> Self {
        Self(ring::RingReader::new(base))
    }

    /// Passes available floats from the ring to the sink. Returns their number and whether the
    /// writer must be woken.
    ///
    /// # Errors
    /// If the writer's position is invalid.
    pub fn read(
        &mut self,
        memory: &SharedMapping,
        mut sink: ReceiveSink<'_>,
    ) -> io::Result<(usize, bool)> {
        let most = sink.room() * FLOAT;
        let (count, wake) = self.0.read(memory, most, FLOAT, |come| {
            sink.take(0, bytemuck::cast_slice(come))
        })?;
        Ok((count / FLOAT, wake))
    }

    /// Requests a wake-up when data arrives; `false` if some already has.
    pub fn arm(&self, memory: &SharedMapping) -> bool {
        self.0.arm(memory, FLOAT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_added_directly_from_the_ring() {
        let memory = SharedMapping::create(RING_BYTES).unwrap();
        let (mut writer, mut reader) = (FloatRingWriter::new(0), FloatRingReader::new(0));
        assert!(reader.arm(&memory), "nothing has come");
        assert_eq!(writer.write(&memory, &[1.0, 2.0]).unwrap(), (2, true));
        assert_eq!(writer.write(&memory, &[3.0]).unwrap(), (1, false));
        let mut out = [0.5; 4];
        assert_eq!(
            reader
                .read(&memory, ReceiveSink::AddTo(&mut out))
                .unwrap()
                .0,
            3
        );
        assert_eq!(out, [1.5, 2.5, 3.5, 0.5]);
    }
}
