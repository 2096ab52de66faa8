//! Jobs whose training stays on the worker's GPU.

use muster_model::assignment::TaskLaunch;
use muster_model::spec::{BatchRule, Topology};

/// Returns why training cannot stay on the worker's GPU, if there is a reason.
pub fn why_not(launch: &TaskLaunch) -> Option<&'static str> {
    let (spec, engine) = (&launch.spec, launch.spec.engine());
    let (exchange, workers) = (&spec.exchange, spec.scale.workers);
    let reasons = [
        (
            (workers.min, workers.max, launch.workers) != (1, 1, 1),
            "scale.workers is not 1 to 1",
        ),
        (
            exchange.topology != Topology::AllReduce,
            "exchange.topology is not all_reduce",
        ),
        (
            exchange.averaging.is_some(),
            "exchange.averaging is asked for",
        ),
        (
            exchange.compression.codecs().is_some(),
            "exchange.compression is asked for",
        ),
        (
            engine.hogwild_threads.is_some(),
            "engine.hogwild_threads is asked for",
        ),
        (
            engine.batch_rule != BatchRule::Constant,
            "engine.batch_rule is not constant",
        ),
    ];
    let reason = reasons.into_iter().find(|(holds, _)| *holds);
    reason.map(|(_, why)| why)
}
