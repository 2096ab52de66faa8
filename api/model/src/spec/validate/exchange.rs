//! Rules on which options of an exchange can be combined.

use super::Errors;
use crate::spec::{
    Algorithm, Averaging, BatchRule, Compression, Consistency, Engine, Exchange, JobSpec, Learn,
    Topology,
};

const ONLY_WITH_SHARDS: &str = "left out: only parameter_server has it";

impl JobSpec {
    pub(super) fn check_exchange(&self, errors: &mut Errors, engine: &Engine) {
        let exchange = &self.exchange;
        let shards = exchange.topology == Topology::ParameterServer;
        errors.check(
            "exchange.algorithm",
            &exchange.algorithm,
            !shards || exchange.algorithm == Algorithm::Auto,
            "left out: only all_reduce has it",
        );
        check_nccl(errors, exchange, engine);
        self.check_consistency(errors, shards);
        if let Some(averaging) = &exchange.averaging {
            errors.check(
                "exchange.averaging",
                &averaging.kind(),
                !shards,
                "left out: only all_reduce has it",
            );
            check_averaging(errors, averaging);
            check_skew(errors, engine, averaging);
        }
        self.check_compression(errors, engine);
        errors.check(
            "exchange.shard_replicas",
            &exchange.shard_replicas,
            exchange.shard_replicas <= 1,
            "0 or 1",
        );
        errors.check(
            "exchange.shard_replicas",
            &exchange.shard_replicas,
            shards || exchange.shard_replicas == 0 || exchange.shard_replicas > 1,
            ONLY_WITH_SHARDS,
        );
        let most = self.ps_shards().max;
        errors.check(
            "exchange.shard_replicas",
            &exchange.shard_replicas,
            exchange.shard_replicas != 1 || !shards || most >= 2,
            &format!(
                "0, or scale.ps_shards.max 2 or more ({most} now): another shard keeps the copy of each"
            ),
        );
        errors.check(
            "exchange.local_aggregation",
            &exchange.local_aggregation,
            shards || !exchange.local_aggregation,
            "left out: only parameter_server has it, and all_reduce adds up inside each node in any case",
        );
        let consistency = exchange.consistency;
        errors.check(
            "exchange.local_aggregation",
            &exchange.local_aggregation,
            !exchange.local_aggregation
                || (consistency.is_bulk_synchronous() && consistency.backup() == 0),
            "false, or exchange.consistency bsp without backup: a sum waits for all workers of its node",
        );
        errors.check(
            "exchange.local_aggregation",
            &exchange.local_aggregation,
            !exchange.local_aggregation || exchange.compression == Compression::None,
            "false, or exchange.compression none: what a node has added up is pushed as it is",
        );
        let hung = exchange.hung_after_s;
        errors.check(
            "exchange.hung_after_s",
            &hung,
            (2..=3_600).contains(&hung),
            "2 to 3600 seconds",
        );
        errors.check(
            "exchange.hung_after_s",
            &hung,
            !shards || hung == Exchange::default().hung_after_s || !(2..=3_600).contains(&hung),
            "left out: only all_reduce has it",
        );
        self.check_what_is_carried_out(errors);
    }

    fn check_consistency(&self, errors: &mut Errors, shards: bool) {
        let consistency = self.exchange.consistency;
        errors.check(
            "exchange.consistency",
            &consistency,
            shards || consistency.is_bulk_synchronous(),
            "bsp: all_reduce waits for every worker",
        );
        match consistency {
            Consistency::Bsp { backup } => {
                let fewest = self.scale.workers.min;
                errors.check(
                    "exchange.consistency.backup",
                    &backup,
                    backup == 0 || !shards || backup < fewest,
                    &format!(
                        "less than scale.workers.min ({fewest}): the gradients of at least one worker must count"
                    ),
                );
                errors.check(
                    "exchange.consistency.backup",
                    &backup,
                    backup == 0 || shards,
                    ONLY_WITH_SHARDS,
                );
            }
            Consistency::Ssp { staleness, .. } => errors.check(
                "exchange.consistency.staleness",
                &staleness,
                (1..=64).contains(&staleness),
                "1 to 64 steps",
            ),
            Consistency::Asp { .. } => {}
        }
    }
}

/// With NCCL, gradients are summed and clipped on the GPUs. Options that read gradients or
/// parameters in between need them on the host. Compression accepts no algorithm at all.
fn check_nccl(errors: &mut Errors, exchange: &Exchange, engine: &Engine) {
    let needs_the_host = [
        ("exchange.averaging", exchange.averaging.is_some()),
        ("engine.hogwild_threads", engine.hogwild_threads.is_some()),
        (
            "engine.batch_rule",
            engine.batch_rule != BatchRule::Constant,
        ),
    ];
    for (field, is_asked_for) in needs_the_host {
        errors.check(
            "exchange.algorithm",
            &exchange.algorithm,
            exchange.algorithm != Algorithm::Nccl || !is_asked_for,
            &format!("another one, or {field} left out: it needs gradients on the host"),
        );
    }
}

fn check_skew(errors: &mut Errors, engine: &Engine, averaging: &Averaging) {
    let Averaging::Fedavg {
        alpha: Some(alpha), ..
    } = *averaging
    else {
        return;
    };
    errors.check(
        "exchange.averaging.alpha",
        &alpha,
        (0.001..=1e6).contains(&alpha),
        "0.001 to 1000000",
    );
    let dataset = &engine.dataset;
    let classes = matches!(dataset.learn(), Learn::Classes { .. }) && !dataset.is_text();
    errors.check(
        "exchange.averaging.alpha",
        &alpha,
        classes || !(0.001..=1e6).contains(&alpha),
        "left out: only examples that have a class each can be dealt by class",
    );
}

fn check_averaging(errors: &mut Errors, averaging: &Averaging) {
    errors.check(
        "exchange.averaging.every",
        &averaging.every(),
        (1..=1_000_000).contains(&averaging.every()),
        "1 to 1000000 steps",
    );
    match *averaging {
        Averaging::LocalSgd { .. } | Averaging::Gossip { .. } => {}
        Averaging::Easgd { rho, .. } => errors.part("exchange.averaging.rho", rho),
        Averaging::Fedavg { share, .. } => errors.part("exchange.averaging.share", share),
        Averaging::Sma { momentum, .. } | Averaging::Bmuf { momentum, .. } => {
            errors.share("exchange.averaging.momentum", momentum);
        }
    }
}
