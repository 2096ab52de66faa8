//! True step times: the published profiles, with interpolation between measured points.

use std::collections::BTreeMap;

/// Seconds of one step, and the part of it that is exchange.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProfiledStepTime {
    pub step_s: f64,
    pub sync_s: f64,
}

/// Step times of one shape by the batch size per GPU, ascending.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepTimeSeries(Vec<(f64, ProfiledStepTime)>);

/// Measurements of one application on one kind of GPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThroughputProfile {
    /// By GPUs per node, as the smallest rotation.
    placements: BTreeMap<Vec<u32>, StepTimeSeries>,
    /// By nodes and GPUs: means over the placements, and measurements on many nodes.
    sizes: BTreeMap<u32, BTreeMap<u32, StepTimeSeries>>,
    /// Batch sizes of the measurements on many nodes.
    scaled: Vec<ScaledBatch>,
}

/// Largest number of examples per GPU that was measured for a number of nodes and GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ScaledBatch {
    nodes: u32,
    gpus: u32,
    local_batch: f64,
}

impl ThroughputProfile {
    /// Adds a measurement of a placement.
    pub(super) fn add_placement(
        &mut self,
        placement: &[u32],
        local_batch: f64,
        time: ProfiledStepTime,
    ) {
        let shape = smallest_rotation(placement);
        self.placements
            .entry(shape)
            .or_default()
            .0
            .push((local_batch, time));
    }

    pub(super) fn add_size(
        &mut self,
        nodes: u32,
        gpus: u32,
        local_batch: f64,
        time: ProfiledStepTime,
    ) {
        let by_gpus = self.sizes.entry(nodes).or_default();
        by_gpus.entry(gpus).or_default().0.push((local_batch, time));
        self.scaled.push(ScaledBatch {
            nodes,
            gpus,
            local_batch,
        });
    }

    /// Whether there is no measurement: the application never ran on this kind.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.placements.is_empty() && self.sizes.is_empty()
    }

    /// Largest number of examples that a GPU was given at once on this placement. On a placement
    /// without measurement it is the largest on as many nodes and GPUs or more (Sia's artefact).
    pub(super) fn largest_local(&self, placement: &[u32]) -> Option<u32> {
        let largest = match self.placements.get(&smallest_rotation(placement)) {
            Some(series) => series.0.last().map(|&(batch, _)| batch),
            None => self.largest_scaled(placement),
        };
        // The files contain whole numbers.
        largest.map(|batch| batch as u32)
    }

    fn largest_scaled(&self, placement: &[u32]) -> Option<f64> {
        let nodes = u32::try_from(placement.len()).ok()?;
        let gpus: u32 = placement.iter().sum();
        let large = self.scaled.iter();
        large
            .filter(|size| size.nodes >= nodes && size.gpus >= gpus)
            .map(|size| size.local_batch)
            .max_by(f64::total_cmp)
    }

    /// Largest measured batch of one GPU over its longest measured step, in examples per second:
    /// the measure by which Sia's artefact compares GPU kinds. `None` without measurements.
    pub(super) fn speed_of_one_gpu(&self) -> Option<f64> {
        let alone = &self.placements.get(&vec![1])?.0;
        let steps = alone.iter().map(|(_, time)| time.step_s);
        Some(alone.last()?.0 / steps.fold(0.0, f64::max))
    }

    /// Orders the measurements. With `sizes_from_placements` the sizes are means over placements
    /// with equal nodes and GPUs.
    pub(super) fn finish(&mut self, sizes_from_placements: bool) {
        if sizes_from_placements {
            for (placement, series) in &self.placements {
                let nodes = u32::try_from(placement.len()).unwrap_or(u32::MAX);
                let by_gpus = self.sizes.entry(nodes).or_default();
                let size = by_gpus.entry(placement.iter().sum()).or_default();
                size.0.extend(series.0.iter().copied());
            }
        }
        let sizes = self.sizes.values_mut().flat_map(BTreeMap::values_mut);
        for series in self.placements.values_mut().chain(sizes) {
            series.finish();
        }
    }

    /// Time of a step on a placement with `local_batch` examples per GPU. A measured placement is
    /// linear in the batch size. Others are interpolated between measured sizes. `None` without
    /// measurements.
    #[must_use]
    pub fn step_time(&self, placement: &[u32], local_batch: u32) -> Option<ProfiledStepTime> {
        let batch = f64::from(local_batch);
        if let Some(series) = self.placements.get(&smallest_rotation(placement)) {
            return series.at(batch);
        }
        let nodes = u32::try_from(placement.len()).ok()?;
        self.of_size(nodes, placement.iter().sum(), batch)
    }

    fn of_size(&self, nodes: u32, gpus: u32, batch: f64) -> Option<ProfiledStepTime> {
        between(&self.sizes, nodes, |by_gpus| {
            between(by_gpus, gpus, |series| series.at(batch))
        })
    }
}

/// Linear between the nearest keys on both sides; the nearest value beyond the ends.
fn between<T>(
    map: &BTreeMap<u32, T>,
    at: u32,
    value: impl Fn(&T) -> Option<ProfiledStepTime>,
) -> Option<ProfiledStepTime> {
    let below = map.range(..=at).next_back();
    let above = map.range(at..).next();
    match (below, above) {
        (Some((&low, left)), Some((&high, right))) if low < high => {
            let share = f64::from(at - low) / f64::from(high - low);
            Some(value(left)?.mix(value(right)?, share))
        }
        (Some((_, only)), _) | (None, Some((_, only))) => value(only),
        (None, None) => None,
    }
}

impl ProfiledStepTime {
    fn mix(self, other: Self, share: f64) -> Self {
        Self {
            step_s: self.step_s + (other.step_s - self.step_s) * share,
            sync_s: self.sync_s + (other.sync_s - self.sync_s) * share,
        }
    }
}

impl StepTimeSeries {
    /// Sorts by batch size, and merges measurements at one batch size to their mean.
    fn finish(&mut self) {
        self.0.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut merged: Vec<(f64, ProfiledStepTime)> = Vec::with_capacity(self.0.len());
        for chunk in self.0.chunk_by(|a, b| a.0 == b.0) {
            merged.push((
                chunk[0].0,
                ProfiledStepTime {
                    step_s: mean_of(chunk, |time| time.step_s),
                    sync_s: mean_of(chunk, |time| time.sync_s),
                },
            ));
        }
        self.0 = merged;
    }

    /// Linear between measured batch sizes; the nearest value outside of them.
    fn at(&self, batch: f64) -> Option<ProfiledStepTime> {
        let right = self.0.partition_point(|&(size, _)| size < batch);
        match (
            right.checked_sub(1).and_then(|left| self.0.get(left)),
            self.0.get(right),
        ) {
            (_, Some(&(size, time))) if size == batch => Some(time),
            (Some(&(low, left)), Some(&(high, right))) => {
                Some(left.mix(right, (batch - low) / (high - low)))
            }
            (Some(&(_, time)), None) | (None, Some(&(_, time))) => Some(time),
            (None, None) => None,
        }
    }
}

fn mean_of(times: &[(f64, ProfiledStepTime)], part: fn(&ProfiledStepTime) -> f64) -> f64 {
    times.iter().map(|(_, time)| part(time)).sum::<f64>() / times.len() as f64
}

fn smallest_rotation(placement: &[u32]) -> Vec<u32> {
    (0..placement.len())
        .map(|start| {
            let mut rotated = placement.to_vec();
            rotated.rotate_left(start);
            rotated
        })
        .min()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{ProfiledStepTime, ThroughputProfile};

    const TIME: ProfiledStepTime = ProfiledStepTime {
        step_s: 1.0,
        sync_s: 0.5,
    };

    #[test]
    fn largest_local_batch_is_that_of_placement() {
        let mut profile = ThroughputProfile::default();
        for (placement, batch) in [(&[1][..], 320.0), (&[3], 163.0), (&[1, 3], 81.0)] {
            profile.add_placement(placement, 20.0, TIME);
            profile.add_placement(placement, batch, TIME);
        }
        profile.finish(true);
        assert_eq!(profile.largest_local(&[1]), Some(320));
        assert_eq!(profile.largest_local(&[3]), Some(163));
        assert_eq!(profile.largest_local(&[3, 1]), Some(81), "a rotation");
        assert_eq!(profile.largest_local(&[2]), None, "no measurement");
    }

    #[test]
    fn unmeasured_placement_takes_batch_of_larger_size() {
        let mut profile = ThroughputProfile::default();
        profile.add_placement(&[4], 320.0, TIME);
        for (nodes, gpus, batch) in [(6, 6, 80.0), (6, 20, 57.0), (6, 24, 40.0), (2, 24, 99.0)] {
            profile.add_size(nodes, gpus, batch, TIME);
        }
        profile.finish(true);
        assert_eq!(profile.largest_local(&[4, 4, 4, 4, 4]), Some(57));
        assert_eq!(profile.largest_local(&[4, 4, 4, 4, 4, 4]), Some(40));
        assert_eq!(profile.largest_local(&[4, 4, 4, 4, 4, 4, 1]), None);
    }
}
