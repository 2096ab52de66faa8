//! The tensors of a checkpoint as they lie in memory.

use super::Manifest;

/// Flat arenas; which block lies where says the manifest.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Contents {
    pub parameters: Vec<f32>,
    /// One arena per value that the optimizer keeps of each parameter, in the order of the manifest's `state_planes`.
    pub state: Vec<Vec<f32>>,
    /// What the exchange keeps besides, by name.
    pub extras: Vec<(String, Vec<f32>)>,
}

impl Contents {
    /// All arenas, in the order of [`Manifest::parts`].
    #[must_use]
    pub fn arenas(&self) -> Vec<&[f32]> {
        std::iter::once(&self.parameters)
            .chain(&self.state)
            .chain(self.extras.iter().map(|(_, values)| values))
            .map(Vec::as_slice)
            .collect()
    }

    /// Likewise, to fill.
    pub fn arenas_mut(&mut self) -> Vec<&mut [f32]> {
        std::iter::once(&mut self.parameters)
            .chain(&mut self.state)
            .chain(self.extras.iter_mut().map(|(_, values)| values))
            .map(Vec::as_mut_slice)
            .collect()
    }

    /// Zeros, as large as the manifest says.
    #[must_use]
    pub fn zeroed(manifest: &Manifest) -> Self {
        let mut arenas = manifest.arena_lens().into_iter();
        let mut next = || vec![0.0; arenas.next().expect("an arena for each")];
        Self {
            parameters: next(),
            state: manifest.state_planes.iter().map(|_| next()).collect(),
            extras: manifest
                .extras
                .iter()
                .map(|(name, _)| (name.clone(), next()))
                .collect(),
        }
    }

    /// Makes the arenas of parameters and state as large as is asked, keeping memory that is there: its pages are in place, so
    /// that filling them costs no more than the copy.
    pub fn fit(&mut self, parameters: usize, planes: usize) {
        self.parameters.resize(parameters, 0.0);
        self.state.resize_with(planes, Vec::new);
        for plane in &mut self.state {
            plane.resize(parameters, 0.0);
        }
        self.extras.clear();
    }

    /// What the exchange has kept under that name.
    #[must_use]
    pub fn extra(&self, name: &str) -> Option<&Vec<f32>> {
        let mut extras = self.extras.iter();
        extras.find_map(|(known, values)| (known == name).then_some(values))
    }

    /// Whether every parameter is a number.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        self.parameters.iter().all(|value| value.is_finite())
    }
}
