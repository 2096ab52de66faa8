//! Compares the passes of small networks, which together contain every operation, on the emulator
//! and on the CPU.

use super::devices::{self, DeviceCase, EXAMPLES, OwnedBatch};
use super::{SessionCase, compare};
use crate::cuda::convolution::ComputedOperand;
use crate::cuda::product::ElementType;

/// Checks on a queue without convolutions of its own.
fn check(cases: Vec<DeviceCase>) {
    check_on(&cases, &[]);
}

/// Checks on a queue that supports the convolutions `convolves` itself; the others are products.
/// Each case runs in both number formats, with all examples in one part and in parts of three.
fn check_on(cases: &[DeviceCase], convolves: &'static [ComputedOperand]) {
    for (what, network) in cases {
        let examples = OwnedBatch::new(network);
        for kind in [ElementType::F32, ElementType::Bf16] {
            for max_batch in [EXAMPLES, 3] {
                let how = SessionCase {
                    kind,
                    max_batch,
                    convolves,
                };
                let what = format!("{what}, {how:?}");
                compare(&what, network, &examples.batch(), how);
            }
        }
    }
}

#[test]
fn dense_layers_and_losses_equal_cpu() {
    check(devices::dense_layers_and_losses());
}

#[test]
fn activations_equal_cpu() {
    check(devices::activations());
}

#[test]
fn convolutions_as_products_equal_cpu() {
    check(devices::convolutions());
}

#[test]
fn convolutions_by_the_queue_equal_cpu() {
    check_on(&devices::convolutions(), &ComputedOperand::ALL);
}

#[test]
fn convolutions_partly_by_the_queue_equal_cpu() {
    let cases = devices::convolutions();
    for convolves in [
        &[ComputedOperand::Output],
        &[ComputedOperand::Image],
        &[ComputedOperand::Weight],
    ] {
        check_on(&cases, convolves);
    }
}

#[test]
fn pooling_and_image_operations_equal_cpu() {
    check(devices::pooling_and_what_changes_images());
}

#[test]
fn sequences_equal_cpu() {
    check(devices::sequences());
}
