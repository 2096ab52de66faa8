//! Options that this release does not support. They are refused, because a field must not be
//! without effect.
//!
//! There is one function per group. Remove its line when an option becomes supported.

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
