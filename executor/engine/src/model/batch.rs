//! What a pass is given.

/// Examples with their targets.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Examples × the network's input.
    pub inputs: &'a [f32],
    pub targets: Targets<'a>,
    pub draw: Draw,
}

/// What the network should have said.
#[derive(Debug, Clone, Copy)]
pub enum Targets<'a> {
    /// Examples × positions: the right class of each.
    Classes(&'a [u32]),
    /// Examples × the network's output.
    Values(&'a [f32]),
}

/// What random draws of a training pass (dropout) depend on, and nothing else: not on the number of workers or threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Draw {
    pub seed: u64,
    pub step: u64,
    /// Place of the first example in the batch of all workers.
    pub first: u64,
}

impl<'a> Batch<'a> {
    /// Examples of one class each, with nothing drawn.
    #[must_use]
    pub fn classes(inputs: &'a [f32], classes: &'a [u32]) -> Self {
        Self {
            inputs,
            targets: Targets::Classes(classes),
            draw: Draw::default(),
        }
    }

    /// In parts of `examples`, when one has `input` numbers and `target` targets.
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
                Targets::Classes(classes) => {
                    Targets::Classes(&classes[start * target..end * target])
                }
                Targets::Values(values) => Targets::Values(&values[start * target..end * target]),
            };
            let first = self.draw.first + start as u64;
            Batch {
                inputs: &self.inputs[start * input..end * input],
                targets,
                draw: Draw { first, ..self.draw },
            }
        })
    }
}

impl Targets<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Classes(classes) => classes.len(),
            Self::Values(values) => values.len(),
        }
    }
}
