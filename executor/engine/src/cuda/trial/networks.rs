//! Every operation against the CPU's.

use super::compare;
use super::devices::{self, Case, EXAMPLES, Examples};
use crate::cuda::product::Kind;

/// Examples in one part and in parts of three.
fn check(cases: Vec<Case>) {
    for (what, network) in cases {
        let examples = Examples::new(&network);
        for kind in [Kind::F32, Kind::Bf16] {
            for max_batch in [EXAMPLES, 3] {
                let what = format!("{what}, {kind:?}, {max_batch} at a time");
                compare(&what, &network, &examples.batch(), max_batch, kind);
            }
        }
    }
}

#[test]
fn dense_layers_and_losses_are_the_cpus() {
    check(devices::dense_layers_and_losses());
}

#[test]
fn activations_are_the_cpus() {
    check(devices::activations());
}

#[test]
fn convolutions_are_the_cpus() {
    check(devices::convolutions());
}

#[test]
fn pooling_and_what_changes_images_are_the_cpus() {
    check(devices::pooling_and_what_changes_images());
}

#[test]
fn sequences_are_the_cpus() {
    check(devices::sequences());
}
