//! Tensors of a checkpoint in memory.

use super::{CheckpointArena, Manifest};
use muster_compute::pages::touched_zeros;
use std::ops::Deref;

/// Flat arenas; the manifest describes the positions of blocks. Contents to be written are vectors,
/// loaded contents are [`CheckpointArena`]s.
#[derive(Debug, Clone, Default)]
pub struct Contents<A = Vec<f32>> {
    pub parameters: A,
    /// One arena per state plane of the optimizer, in the order of the manifest's `state_planes`.
    pub state: Vec<A>,
    /// Further arenas of the exchange, by name.
    pub extras: Vec<(String, A)>,
}

impl<A: Deref<Target = [f32]>> Contents<A> {
    /// All arenas, in the order of [`Manifest::parts`].
    #[must_use]
    pub fn arenas(&self) -> Vec<&[f32]> {
        std::iter::once(&self.parameters)
            .chain(&self.state)
            .chain(self.extras.iter().map(|(_, values)| values))
            .map(Deref::deref)
            .collect()
    }

    /// Extra arena with this name.
    #[must_use]
    pub fn extra(&self, name: &str) -> Option<&[f32]> {
        let mut extras = self.extras.iter();
        extras.find_map(|(known, values)| (known == name).then_some(&**values))
    }

    /// Whether every parameter is finite.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        all_finite(&self.parameters)
    }
}

/// Whether every value is finite. Checks a chunk at a time without branches.
pub(super) fn all_finite(values: &[f32]) -> bool {
    values.chunks(4096).all(|chunk| {
        chunk
            .iter()
            .fold(true, |all, value| all & value.is_finite())
    })
}

impl<A: Deref<Target = [f32]>, B: Deref<Target = [f32]>> PartialEq<Contents<B>> for Contents<A> {
    fn eq(&self, other: &Contents<B>) -> bool {
        let named = self.extras.iter().zip(&other.extras);
        self.state.len() == other.state.len()
            && self.arenas() == other.arenas()
            && named.into_iter().all(|((own, _), (name, _))| own == name)
    }
}

impl From<Contents> for Contents<CheckpointArena> {
    fn from(contents: Contents) -> Self {
        let extras = contents.extras.into_iter();
        Self {
            parameters: contents.parameters.into(),
            state: contents
                .state
                .into_iter()
                .map(CheckpointArena::from)
                .collect(),
            extras: extras.map(|(name, values)| (name, values.into())).collect(),
        }
    }
}

impl Contents<CheckpointArena> {
    /// Assigns arenas in the order of [`Manifest::parts`]; their number must be that of the
    /// manifest.
    pub(super) fn of(manifest: &Manifest, arenas: Vec<CheckpointArena>) -> Self {
        let planes = manifest.state_planes.len();
        let expected = 1 + planes + manifest.extras.len();
        assert_eq!(arenas.len(), expected, "an arena for each");
        let mut arenas = arenas.into_iter();
        let parameters = arenas.next().expect("it was counted");
        let state = arenas.by_ref().take(planes).collect();
        let names = manifest.extras.iter().map(|(name, _)| name.clone());
        Self {
            parameters,
            state,
            extras: names.zip(arenas).collect(),
        }
    }
}

impl Contents {
    /// All arenas, to be filled.
    pub fn arenas_mut(&mut self) -> Vec<&mut [f32]> {
        std::iter::once(&mut self.parameters)
            .chain(&mut self.state)
            .chain(self.extras.iter_mut().map(|(_, values)| values))
            .map(Vec::as_mut_slice)
            .collect()
    }

    /// Resizes the arenas of parameters and state and keeps present memory. Its pages are
    /// populated, so that filling them costs only the copy.
    pub fn fit(&mut self, parameters: usize, planes: usize) {
        self.state.resize_with(planes, Vec::new);
        for arena in std::iter::once(&mut self.parameters).chain(&mut self.state) {
            if arena.capacity() < parameters {
                *arena = touched_zeros(parameters);
            } else {
                arena.resize(parameters, 0.0);
            }
        }
        self.extras.clear();
    }
}
