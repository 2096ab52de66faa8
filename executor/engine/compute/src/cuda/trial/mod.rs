//! Compares the device's passes with the CPU's without a device: the emulator executes every
//! kernel, product, address and shape.

#[path = "../../../tests/devices/mod.rs"]
mod devices;
mod losses;
mod nccl;
mod networks;
mod training;

use super::convolution::ComputedOperand;
use super::emulator::Emulator;
use super::product::ElementType;
use super::session::DeviceSession;
use crate as engine;
use crate::model::{Batch, Network};

/// Configuration of a case: kind of values, maximum number of examples, and convolutions that the
/// queue supports.
#[derive(Debug, Clone, Copy)]
struct SessionCase {
    kind: ElementType,
    max_batch: usize,
    convolves: &'static [ComputedOperand],
}

fn session(network: &Network, how: SessionCase) -> DeviceSession {
    let SessionCase {
        kind,
        max_batch,
        convolves,
    } = how;
    let mut queue = Box::new(Emulator::new(kind));
    queue.convolves = convolves;
    // Small parts also cover products whose bias and ReLU are left to a kernel.
    queue.is_plain = max_batch < devices::EXAMPLES;
    DeviceSession::new(network, queue, kind, (max_batch, max_batch), 0)
        .expect("the machine has room")
}

/// Fails if bytes between the regions were written.
fn assert_gaps(session: &DeviceSession) {
    let base = session.base.expect("memory");
    for gap in session.regions.gaps() {
        for byte in 0..gap.bytes {
            let at = base + (gap.offset + byte) as u64;
            // SAFETY: gaps are within the session's memory.
            let byte_there = unsafe { *(at as *const u8) };
            assert_eq!(byte_there, 0xff, "byte {byte} after {}", gap.offset);
        }
    }
}

fn norm(numbers: impl Iterator<Item = f64>) -> f64 {
    numbers.map(|x| x * x).sum::<f64>().sqrt()
}

/// Distance of a block's gradients relative to their norm. For a block that is small beside the
/// others it is relative to a quarter of the whole norm.
fn distance(expected: &[f32], actual: &[f32], whole: f64) -> f64 {
    let pairs = expected.iter().zip(actual);
    let apart = norm(pairs.map(|(e, a)| f64::from(*e) - f64::from(*a)));
    assert!(apart.is_finite(), "a number is none");
    let size = norm(expected.iter().map(|e| f64::from(*e)));
    apart / size.max(0.25 * whole).max(1e-6)
}

/// Compares the loss and every block's gradient with the CPU's.
fn compare(what: &str, network: &Network, batch: &Batch<'_>, how: SessionCase) {
    let SessionCase {
        kind, max_batch, ..
    } = how;
    // In bf16, ReLU and pooling may select differently where two values are close; a wrong index
    // gives a distance of about 1.
    let [tolerance, loss_tolerance] = match kind {
        ElementType::F32 => [2e-5, 2e-5],
        ElementType::Bf16 => [0.2, 0.03],
    };
    let params = devices::parameters(network);
    let mut expected = vec![0.0; params.len()];
    let mut workspace = network.workspace(max_batch, 1);
    let loss = network.loss_and_grad(&mut workspace, &params, batch, &mut expected);
    let mut session = session(network, how);
    let mut grads = vec![f32::NAN; params.len()];
    let mut told = vec![false; params.len()];
    let found = session.loss_and_grad(
        network,
        &params,
        network.parts_of(max_batch, batch),
        &mut grads,
        &mut |range, grads| {
            assert!(
                grads[range.clone()].iter().all(|g| g.is_finite()),
                "{what}: {range:?}"
            );
            told[range].fill(true);
        },
    );
    let found = found.expect("the emulator does not fail");
    assert!(
        told.iter().all(|told| *told),
        "{what}: every gradient is told"
    );
    let apart = (found.loss_sum - loss.loss_sum).abs() / loss.loss_sum.abs().max(1e-6);
    assert!(
        apart < loss_tolerance,
        "{what}: loss {found:?}, not {loss:?}"
    );
    let whole = norm(expected.iter().map(|e| f64::from(*e)));
    for block in network.blocks() {
        let apart = distance(&expected[block.range()], &grads[block.range()], whole);
        assert!(apart < tolerance, "{what}: {} is {apart} apart", block.name);
    }
    assert_gaps(&session);
    let expected = network.evaluate(&mut workspace, &params, batch);
    let parts = network.parts_of(max_batch, batch);
    let found = session
        .evaluate(network, &params, parts)
        .expect("no failure");
    let apart = (found.loss_sum - expected.loss_sum).abs() / expected.loss_sum.abs().max(1e-6);
    assert!(
        apart < loss_tolerance,
        "{what}: {found:?}, not {expected:?}"
    );
    if kind == ElementType::F32 {
        assert_eq!(
            found.correct, expected.correct,
            "{what}: how many are right"
        );
    }
    assert_gaps(&session);
}
