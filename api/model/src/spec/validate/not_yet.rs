//! What a document may say one day, and this release does not carry out: it is refused, for a field without effect is a lie.
//!
//! One function for each group; whoever carries a variant out takes its line away.

use super::Errors;
use crate::spec::{Compression, Exchange, JobSpec};
use std::fmt;

impl JobSpec {
    pub(super) fn check_what_is_carried_out(&self, errors: &mut Errors) {
        replicas(errors, &self.exchange);
    }
}

fn replicas(errors: &mut Errors, exchange: &Exchange) {
    let replicas = exchange.shard_replicas;
    not_yet(
        errors,
        "exchange.shard_replicas",
        &replicas,
        replicas == 0 || exchange.compression == Compression::None,
        "0 with compression",
    );
}

fn not_yet(errors: &mut Errors, field: &str, value: &dyn fmt::Display, there: bool, today: &str) {
    errors.check(
        field,
        value,
        there,
        &format!("{today}: anything else is not yet supported by this release"),
    );
}
