//! Gradient clipping by each worker, where the sum of a step is not clipped.

use muster_compute::model::{Network, ParameterBlock, ParameterRole};
use muster_compute::optimizer::{clip_factor, square_norm};
use muster_model::spec::{JobSpec, Topology};

/// How a worker clips its own gradients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum OwnClip {
    /// Where a step has no mean over workers, limits the norm of the worker's own mean.
    Mean { limit: f64 },
    /// With Deep Gradient Compression, limits a worker's contribution to the mean over the step's
    /// targets. Its norm is at most `limit` over the square root of the number of workers (Lin et
    /// al., ICLR 2018, section 3.2). The reason: the norm of a sum of independent gradients grows
    /// with that root. Clipping the decoded sum would be too late: it contains gradients of many
    /// steps, and what is scaled down there is lost.
    Part { limit: f64, targets: u32 },
}

impl OwnClip {
    /// Returns the rule of the job document; `None` where nothing is clipped, or where the sum is.
    #[must_use]
    pub fn of(spec: &JobSpec) -> Option<Self> {
        let (engine, exchange) = (spec.engine(), &spec.exchange);
        let limit = engine.clip_norm?;
        let codecs = exchange.compression.codecs();
        if codecs.is_some_and(|codecs| codecs.momentum().is_some()) {
            let targets = engine.targets_per_step();
            return Some(Self::Part { limit, targets });
        }
        let has_no_mean = exchange.topology == Topology::ParameterServer
            && !exchange.consistency.is_bulk_synchronous();
        has_no_mean.then_some(Self::Mean { limit })
    }

    /// Returns the limit for the norm of a step's mean, if the sum is clipped.
    #[must_use]
    pub fn of_sum(spec: &JobSpec) -> Option<f64> {
        let limit = spec.engine().clip_norm;
        limit.filter(|_| Self::of(spec).is_none())
    }

    /// Clips `gradients`, this worker's sum over its `targets` targets, in a step of `workers`
    /// workers. Running statistics are not gradients and stay unchanged.
    pub fn apply(self, network: &Network, gradients: &mut [f32], targets: u64, workers: usize) {
        let (limit, targets) = match self {
            Self::Mean { limit } => (limit, targets),
            Self::Part { limit, targets } => {
                (limit / (workers.max(1) as f64).sqrt(), u64::from(targets))
            }
        };
        let norm = mean_square(network, gradients, targets).sqrt();
        let factor = clip_factor(limit, norm) as f32;
        if factor != 1.0 {
            for block in moving(network) {
                let own = &mut gradients[block.range()];
                own.iter_mut().for_each(|value| *value *= factor);
            }
        }
    }
}

/// Returns the squared norm of the mean of `gradients`, a sum over `targets` targets. Running
/// statistics are left out.
#[must_use]
pub fn mean_square(network: &Network, gradients: &[f32], targets: u64) -> f64 {
    let scale = 1.0 / targets.max(1) as f32;
    let parts: Vec<(&[f32], f32)> = moving(network)
        .map(|block| (&gradients[block.range()], scale))
        .collect();
    square_norm(&parts, 1)
}

/// Returns the blocks that gradients update.
fn moving(network: &Network) -> impl Iterator<Item = &ParameterBlock> {
    let blocks = network.blocks().iter();
    blocks.filter(|block| block.role != ParameterRole::Statistic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use serde_json::{Value, json};

    fn spec(topology: &str, consistency: &str, compression: Value) -> JobSpec {
        serde_json::from_value(json!({
            "version": "muster/v1",
            "name": "clipped",
            "engine": {
                "model": { "kind": "layers", "layers": [
                    { "kind": "flatten" }, { "kind": "dense", "width": 8 }, { "kind": "batch_norm" }
                ] },
                "dataset": { "name": "fashion-mnist" },
                "optimizer": { "kind": "sgd", "learning_rate": 0.1 },
                "batch": 32,
                "clip_norm": 2.0
            },
            "exchange": {
                "topology": topology, "consistency": { "kind": consistency }, "compression": compression
            },
            "stop": { "steps": 1 }
        }))
        .unwrap()
    }

    fn dgc() -> serde_json::Value {
        json!({ "codec": { "kind": "dgc", "density": 0.1, "momentum": 0.9 } })
    }

    #[test]
    fn clipping_follows_topology_consistency_and_codec() {
        let named = json!({
            "codec": { "kind": "one_bit" },
            "layers": [{ "blocks": "dense*", "codec": dgc()["codec"].clone() }]
        });
        let part = Some(OwnClip::Part {
            limit: 2.0,
            targets: 32,
        });
        let mean = Some(OwnClip::Mean { limit: 2.0 });
        for (topology, consistency, compression, own) in [
            ("parameter_server", "bsp", json!("none"), None),
            (
                "parameter_server",
                "bsp",
                json!({ "codec": { "kind": "one_bit" } }),
                None,
            ),
            ("parameter_server", "bsp", dgc(), part),
            ("parameter_server", "bsp", named, part),
            ("parameter_server", "asp", json!("none"), mean),
            ("parameter_server", "asp", dgc(), part),
            ("all_reduce", "bsp", json!("none"), None),
            ("all_reduce", "bsp", dgc(), part),
        ] {
            let spec = spec(topology, consistency, compression);
            assert_eq!(OwnClip::of(&spec), own, "{:?}", spec.exchange);
            let of_sum = OwnClip::of_sum(&spec);
            assert_eq!(of_sum, own.is_none().then_some(2.0), "{:?}", spec.exchange);
        }
    }

    /// Lin et al.: with N workers, the norm of each part is at most the limit over √N.
    #[test]
    fn part_is_clipped_by_root_of_workers_without_statistics() {
        let spec = spec("all_reduce", "bsp", json!("none"));
        let network = document::network(spec.engine()).unwrap();
        let ones = vec![1.0; network.parameter_count()];
        let mut long = ones.clone();
        let own = OwnClip::Part {
            limit: 1e9,
            targets: 4,
        };
        own.apply(&network, &mut long, 2, 4);
        assert_eq!(long, ones, "short enough");
        let mut gradients = ones;
        let own = OwnClip::Part {
            limit: 3.0,
            targets: 4,
        };
        own.apply(&network, &mut gradients, 2, 4);
        let mut square = 0.0;
        for block in network.blocks() {
            for &value in &gradients[block.range()] {
                if block.role == ParameterRole::Statistic {
                    assert_eq!(value, 1.0);
                } else {
                    square += (f64::from(value) / 4.0).powi(2);
                }
            }
        }
        let norm = square.sqrt();
        assert!((norm - 1.5).abs() < 1e-4, "{norm}");
    }
}
