//! Update rules on a device: one kernel for each run of adjacent tensors. Kernels read the factors
//! of the step from memory, so that a recorded step can be replayed.

use super::arenas::DeviceArenas;
use super::operation::pack_blocks;
use super::queue::{DeviceAddress, DeviceQueue, KernelArgument, THREADS, int};
use crate::model::{ParameterBlock, ParameterRole};
use crate::optimizer::{OptimizerConfig, UpdateRule};
use std::ops::Range;

/// Number of factors of a step, which are floats.
pub(super) const FACTORS: usize = 13;
/// Maximum number of blocks of a sum over a tensor: several for each multiprocessor.
const NORM_BLOCKS: usize = 512;
/// Size of the sums of LARS in bytes: two sums of each block, two total sums, one ratio.
pub(super) const NORMS_LEN: usize = 8 * (2 * NORM_BLOCKS + 3);

/// Addresses of the operands of an update.
pub(super) struct UpdateOperands<'a> {
    pub(super) arenas: &'a DeviceArenas,
    /// Plane after plane, each in the order of the table.
    pub(super) state: DeviceAddress,
    pub(super) parameters: usize,
    pub(super) factors: DeviceAddress,
    pub(super) norms: DeviceAddress,
    pub(super) squares: DeviceAddress,
}

/// Returns the factors of update number `step`, in the layout of the kernels' `struct told`.
pub(super) fn factors(optimizer: &OptimizerConfig, step: u64, grad_scale: f32) -> [f32; FACTORS] {
    let lr = optimizer.learning_rate(step);
    let mut factors = [0.0_f32; FACTORS];
    [factors[3], factors[12]] = [grad_scale; 2];
    factors[11] = 1.0;
    let mut common = |lr: f64, momentum: f64, weight_decay: f64, eps: f64| {
        factors[0] = lr as f32;
        factors[1] = momentum as f32;
        factors[2] = weight_decay as f32;
        factors[4] = eps as f32;
    };
    match optimizer.rule {
        UpdateRule::Sgd {
            momentum,
            weight_decay,
            ..
        }
        | UpdateRule::Lars {
            momentum,
            weight_decay,
            ..
        } => common(lr, momentum, weight_decay, 0.0),
        UpdateRule::AdaGrad {
            eps, weight_decay, ..
        } => common(lr, 0.0, weight_decay, eps),
        UpdateRule::RmsProp {
            rho,
            eps,
            momentum,
            weight_decay,
            ..
        } => {
            common(lr, momentum, weight_decay, eps);
            [factors[5], factors[6]] = [rho as f32, (1.0 - rho) as f32];
        }
        UpdateRule::Adam {
            beta1,
            beta2,
            eps,
            weight_decay,
            decoupled,
            ..
        } => {
            // As on the CPU, both bias corrections are folded into the rate and into epsilon.
            let time = step as f64 + 1.0;
            let root = (1.0 - beta2.powf(time)).sqrt();
            let (penalty, shrink) = if decoupled {
                (0.0, lr * weight_decay)
            } else {
                (weight_decay, 0.0)
            };
            let rate = lr * root / (1.0 - beta1.powf(time));
            common(rate, 0.0, penalty, eps * root);
            [factors[7], factors[8]] = [beta1 as f32, beta2 as f32];
            [factors[9], factors[10]] = [(1.0 - beta1) as f32, (1.0 - beta2) as f32];
            factors[11] = (1.0 - shrink) as f32;
        }
    }
    factors
}

/// Size of the partial sums of [`clip`] in bytes.
pub(super) fn squares_len(arenas: &DeviceArenas, blocks: &[ParameterBlock]) -> usize {
    let parts = clipped(arenas, blocks)
        .iter()
        .map(norm_blocks)
        .sum::<usize>();
    8 * (2 * parts + 2)
}

/// Runs that clipping measures and scales; statistics have no gradients in this sense.
fn clipped(arenas: &DeviceArenas, blocks: &[ParameterBlock]) -> Vec<Range<usize>> {
    let runs = arenas.runs(blocks.iter(), ParameterBlock::is_statistic);
    let runs = runs.into_iter().filter(|(_, is_statistic)| !is_statistic);
    runs.map(|(run, _)| run).collect()
}

/// Number of blocks that sum the squares of a run.
fn norm_blocks(run: &Range<usize>) -> usize {
    pack_blocks(run.len()).min(NORM_BLOCKS)
}

/// Scales the factor of the gradients so that the norm of the mean gradient is at most `limit`
/// ([`crate::optimizer::clip_factor`]). The norm stays on the device, so that a recorded step clips
/// by its own norm at each replay. Sums are f64, in an order that depends on the lengths of the
/// tensors alone, so the same gradients give the same bits.
pub(super) fn clip(
    queue: &mut dyn DeviceQueue,
    operands: &UpdateOperands<'_>,
    blocks: &[ParameterBlock],
    limit: f64,
) {
    let runs = clipped(operands.arenas, blocks);
    let parts: usize = runs.iter().map(norm_blocks).sum();
    // Partial sums of parameters, which are not used here, and of gradients.
    let [of_p, of_g, sums] = [0, 1, 2].map(|array| operands.squares + (8 * array * parts) as u64);
    let mut first = 0;
    for run in runs {
        let blocks = norm_blocks(&run);
        let at = 8 * first as u64;
        let arguments = [
            KernelArgument::from(0_u64),
            operands.arenas.gradient(run.start).into(),
            int(run.len()),
            (of_p + at).into(),
            (of_g + at).into(),
        ];
        queue.launch("squares", blocks, THREADS, &arguments);
        first += blocks;
    }
    let adds = KernelArgument::from(false);
    let arguments = [of_p.into(), of_g.into(), int(parts), sums.into(), adds];
    queue.launch("total", 1, THREADS, &arguments);
    let arguments = [(sums + 8).into(), operands.factors.into(), limit.into()];
    queue.launch("clip", 1, 32, &arguments);
}

/// Updates all tensors from their gradients, and the copies that products read.
pub(super) fn update_all(
    queue: &mut dyn DeviceQueue,
    operands: &UpdateOperands<'_>,
    optimizer: &OptimizerConfig,
    blocks: &[ParameterBlock],
) {
    // Statistics have their own rule, and LARS measures each weight separately.
    let is_lars = matches!(optimizer.rule, UpdateRule::Lars { .. });
    let runs = operands
        .arenas
        .runs(blocks.iter(), |block| match block.role {
            ParameterRole::Statistic => (ParameterRole::Statistic, 0),
            ParameterRole::Weight if is_lars => (ParameterRole::Weight, block.offset),
            ParameterRole::Weight | ParameterRole::Bias => (ParameterRole::Bias, 0),
        });
    for (run, (role, _)) in runs {
        update(queue, operands, optimizer, &run, role);
    }
}

/// Updates a run of tensors. Only LARS distinguishes weights from other tensors.
fn update(
    queue: &mut dyn DeviceQueue,
    operands: &UpdateOperands<'_>,
    optimizer: &OptimizerConfig,
    run: &Range<usize>,
    role: ParameterRole,
) {
    let p = operands.arenas.parameter(run.start);
    let g = operands.arenas.gradient(run.start);
    let [first, second] = [0, operands.parameters].map(|plane| {
        let numbers = plane + run.start;
        KernelArgument::from(operands.state + 4 * numbers as u64)
    });
    let (count, factors) = (int(run.len()), KernelArgument::from(operands.factors));
    let (parameter, gradient) = (KernelArgument::from(p), KernelArgument::from(g));
    let weight = KernelArgument::from(operands.arenas.weight(run.start));
    let blocks = pack_blocks(run.len());
    if role == ParameterRole::Statistic {
        let arguments = [parameter, gradient, count, factors];
        return queue.launch("follow", blocks, THREADS, &arguments);
    }
    match optimizer.rule {
        UpdateRule::Sgd { momentum: 0.0, .. } => {
            let none = KernelArgument::from(0_u64);
            let arguments = [parameter, gradient, weight, count, factors, none];
            queue.launch("sgd", blocks, THREADS, &arguments);
        }
        UpdateRule::Sgd { nesterov, .. } => {
            let nesterov = nesterov.into();
            let arguments = [parameter, gradient, first, weight, count, factors, nesterov];
            queue.launch("momentum", blocks, THREADS, &arguments);
        }
        UpdateRule::Lars {
            momentum, trust, ..
        } => {
            let ratio = match role {
                ParameterRole::Weight => trust_ratio(queue, operands, run, [p, g], trust),
                // A null pointer means 1.
                _ => KernelArgument::from(0_u64),
            };
            if momentum == 0.0 {
                let arguments = [parameter, gradient, weight, count, factors, ratio];
                queue.launch("sgd", blocks, THREADS, &arguments);
            } else {
                let arguments = [parameter, gradient, first, weight, count, factors, ratio];
                queue.launch("lars", blocks, THREADS, &arguments);
            }
        }
        UpdateRule::AdaGrad { .. } => {
            let arguments = [parameter, gradient, first, weight, count, factors];
            queue.launch("adagrad", blocks, THREADS, &arguments);
        }
        UpdateRule::RmsProp { momentum, .. } => {
            let velocity = if momentum == 0.0 {
                KernelArgument::from(0_u64)
            } else {
                second
            };
            let arguments = [parameter, gradient, first, velocity, weight, count, factors];
            queue.launch("rmsprop", blocks, THREADS, &arguments);
        }
        UpdateRule::Adam { .. } => {
            let arguments = [parameter, gradient, first, second, weight, count, factors];
            queue.launch("adam", blocks, THREADS, &arguments);
        }
    }
}

/// Computes LARS' factor of a tensor and returns its address.
fn trust_ratio(
    queue: &mut dyn DeviceQueue,
    operands: &UpdateOperands<'_>,
    run: &Range<usize>,
    [p, g]: [DeviceAddress; 2],
    coefficient: f64,
) -> KernelArgument {
    let of_g = operands.norms + 8 * NORM_BLOCKS as u64;
    let sums = of_g + 8 * NORM_BLOCKS as u64;
    let ratio = sums + 16;
    let blocks = norm_blocks(run);
    let (parts, len) = (operands.norms.into(), int(run.len()));
    let arguments = [p.into(), g.into(), len, parts, of_g.into()];
    queue.launch("squares", blocks, THREADS, &arguments);
    let adds = KernelArgument::from(false);
    let arguments = [parts, of_g.into(), int(blocks), sums.into(), adds];
    queue.launch("total", 1, THREADS, &arguments);
    let factors = operands.factors.into();
    let arguments = [sums.into(), factors, coefficient.into(), ratio.into()];
    queue.launch("trust", 1, 32, &arguments);
    ratio.into()
}
