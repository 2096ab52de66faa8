//! Input of a pass.

/// Examples with their targets.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Examples × input length of the network.
    pub inputs: &'a [f32],
    pub targets: BatchTargets<'a>,
    pub draw: RandomKey,
}

/// Targets that the network is trained to predict.
#[derive(Debug, Clone, Copy)]
pub enum BatchTargets<'a> {
    /// Examples × positions: the correct class of each position.
    Classes(&'a [u32]),
    /// Examples × output length of the network.
    Values(&'a [f32]),
}

/// Inputs of the random draws of a training pass (dropout). The draws do not depend on the number
/// of workers or threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RandomKey {
    pub seed: u64,
    pub step: u64,
    /// Place of the first example in the global batch.
    pub first: u64,
}

impl<'a> Batch<'a> {
    /// Batch of examples with one class each and without random draws.
    #[must_use]
    pub fn classes(inputs: &'a [f32], classes: &'a [u32]) -> Self {
        Self {
            inputs,
            targets: BatchTargets::Classes(classes),
            draw: RandomKey::default(),
        }
    }

    /// Splits the batch into parts of `examples`. An example has `input` elements and `target`
    /// targets.
    pub(super) fn parts(
        self,
        examples: usize,
        input: usize,
        target: usize,
    ) -> impl Iterator<Item = Batch<'a>> {
        let count = self.inputs.len() / input;
        (0..count).step_by(examples).map(move |start| {
            let end = (start + examples).min(count);
            let targets = match self.targets {
                BatchTargets::Classes(classes) => {
                    BatchTargets::Classes(&classes[start * target..end * target])
                }
                BatchTargets::Values(values) => {
                    BatchTargets::Values(&values[start * target..end * target])
                }
            };
            let first = self.draw.first + start as u64;
            Batch {
                inputs: &self.inputs[start * input..end * input],
                targets,
                draw: RandomKey { first, ..self.draw },
            }
        })
    }
}

impl BatchTargets<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Classes(classes) => classes.len(),
            Self::Values(values) => values.len(),
        }
    }
}
