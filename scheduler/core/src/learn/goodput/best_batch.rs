//! The batch with the highest goodput at one placement, for reports. Decisions use whole curves.

use super::{CANDIDATES, GoodputModel, UpdateTimes, examples, scales, update_s};
use crate::learn::{PlacementShape, Spread};
use muster_model::plan::PredictedBatch;

impl UpdateTimes {
    /// Returns the batch with the highest goodput of `workers` workers on one or several nodes of a
    /// kind, with the noise of the first stretch. `None` if the kind was not measured.
    #[must_use]
    pub fn best_batch(
        &self,
        model: &GoodputModel,
        kind: &str,
        workers: u32,
        spread: Spread,
    ) -> Option<PredictedBatch> {
        let throughput = self.by_kind.get(kind)?;
        let gpus = workers.max(1);
        let shape = match spread {
            Spread::OneNode => PlacementShape { nodes: 1, gpus },
            Spread::Nodes => throughput.spread_shape(gpus),
        };
        let scales = scales(model.init, model.max);
        let times = update_s(throughput, shape, (model.init, scales));
        let [noise, ..] = model.noises;
        let goodputs: [f64; CANDIDATES] =
            std::array::from_fn(|at| noise.gain(scales[at]) / times[at]);
        let smallest_steps_per_s = goodputs[0];
        // Of equal goodputs the one of the smallest batch.
        let mut best = 0;
        for at in 1..CANDIDATES {
            if goodputs[at] > goodputs[best] {
                best = at;
            }
        }
        Some(PredictedBatch {
            batch: examples(model.init, scales[best]),
            smallest_batch: model.init,
            steps_per_s: goodputs[best],
            smallest_steps_per_s,
        })
    }
}
