//! A CNN learns real images in one process: forward pass, backward pass, optimizer and data order
//! together.
//!
//! Reads Fashion-MNIST from `$MUSTER_DATASETS`, by default `~/.cache/muster/datasets`, where
//! `scripts/ensure-dataset` stores it.

use muster_compute::data::{
    DatasetSource, DatasetSplits, GlobalBatches, NamedDataset, SplitLimits,
};
use muster_compute::loss::StepLoss;
use muster_compute::model::{Batch, Network, zoo};
use muster_compute::optimizer::{OptimizerConfig, UpdateRule};
use std::path::PathBuf;

const BATCH: usize = 64;

/// Returns the folder that an environment variable names.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

fn dataset(limits: SplitLimits) -> DatasetSplits {
    let cache =
        || variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    let root = variable("MUSTER_DATASETS")
        .or_else(|| cache().map(|cache| cache.join("muster/datasets")))
        .expect("a home");
    assert!(
        root.join(NamedDataset::FashionMnist.folder()).is_dir(),
        "Fashion-MNIST is not in {}; scripts/ensure-dataset fashion-mnist brings it",
        root.display()
    );
    DatasetSplits::load(
        &DatasetSource::Known(NamedDataset::FashionMnist),
        &root,
        limits,
    )
    .expect("a whole data set")
}

struct TrainingRun {
    network: Network,
    params: Vec<f32>,
    /// Mean training loss per epoch.
    losses: Vec<f64>,
    test: StepLoss,
}

/// Trains on `workers` slices of each batch, one after another, and adds their gradients as a PS
/// shard would.
fn train(
    data: &DatasetSplits,
    optimizer: &OptimizerConfig,
    epochs: u64,
    workers: usize,
) -> TrainingRun {
    let network = zoo::cnn(data.input, &[8, 16], &[32], data.outputs()).unwrap();
    let mut params = network.init(1);
    let mut state = vec![0.0; params.len() * optimizer.state_len_per_param()];
    let mut batches = GlobalBatches::new(1, data.train.len(), BATCH).unwrap();
    let mut workspace = network.workspace(BATCH, 1);
    let (mut sum, mut grads) = (vec![0.0; params.len()], vec![0.0; params.len()]);
    let mut losses = vec![0.0; epochs as usize];
    for step in 0..epochs * batches.steps_per_epoch() {
        sum.fill(0.0);
        for rank in 0..workers {
            let part = muster_compute::data::slice(BATCH, rank, workers);
            let (mut images, mut labels) = (
                vec![0.0; part.len() * data.input.len()],
                vec![0; part.len()],
            );
            data.train
                .fill(&batches.indices(step)[part], &mut images, &mut labels);
            let loss = network.loss_and_grad(
                &mut workspace,
                &params,
                &Batch::classes(&images, &labels),
                &mut grads,
            );
            sum.iter_mut().zip(&grads).for_each(|(sum, g)| *sum += g);
            losses[batches.position(step).epoch as usize] +=
                loss.loss_sum / (BATCH as u64 * batches.steps_per_epoch()) as f64;
        }
        optimizer.update(step, &mut params, &sum, &mut state, 1.0 / BATCH as f32);
    }
    let (mut images, mut labels) = (
        vec![0.0; data.test.len() * data.input.len()],
        vec![0; data.test.len()],
    );
    data.test.fill(
        &(0..data.test.len() as u32).collect::<Vec<_>>(),
        &mut images,
        &mut labels,
    );
    let test = network.evaluate(&mut workspace, &params, &Batch::classes(&images, &labels));
    TrainingRun {
        network,
        params,
        losses,
        test,
    }
}

fn limits() -> SplitLimits {
    SplitLimits {
        train: Some(6_000),
        test: Some(2_000),
    }
}

fn adam() -> OptimizerConfig {
    OptimizerConfig::new(UpdateRule::Adam {
        lr: 2e-3,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
    })
}

#[test]
fn a_cnn_learns_fashion_mnist() {
    let data = dataset(limits());
    let run = train(&data, &adam(), 2, 1);
    let accuracy = run.test.correct as f64 / data.test.len() as f64;
    println!("losses {:?}, accuracy {accuracy}", run.losses);
    assert!(
        accuracy > 0.79,
        "accuracy {accuracy} after two epochs of 6,000 images"
    );
    assert!(
        run.losses[1] < 0.8 * run.losses[0],
        "losses {:?}",
        run.losses
    );
    assert!(run.params.iter().all(|p| p.is_finite()));
    assert_eq!(run.params.len(), run.network.parameter_count());
}

#[test]
fn sgd_with_momentum_learns_too() {
    let data = dataset(limits());
    let (lr, momentum, nesterov, weight_decay) = (0.02, 0.9, true, 1e-4);
    let rule = UpdateRule::Sgd {
        lr,
        momentum,
        nesterov,
        weight_decay,
    };
    let run = train(&data, &OptimizerConfig::new(rule), 2, 1);
    let accuracy = run.test.correct as f64 / data.test.len() as f64;
    println!("losses {:?}, accuracy {accuracy}", run.losses);
    assert!(
        accuracy > 0.77,
        "accuracy {accuracy} after two epochs of 6,000 images"
    );
}

/// Workers change only the order of additions: the runs stay close, and each repeats bit for bit.
#[test]
fn three_workers_learn_as_well_as_one() {
    let data = dataset(SplitLimits {
        train: Some(2_000),
        test: Some(1_000),
    });
    let (one, three, again) = (
        train(&data, &adam(), 2, 1),
        train(&data, &adam(), 2, 3),
        train(&data, &adam(), 2, 3),
    );
    println!("losses {:?} {:?}", one.losses, three.losses);
    assert!((one.losses[1] - three.losses[1]).abs() < 0.02 * one.losses[1]);
    let [three, again] = [three, again].map(|run| run.params.into_iter().map(f32::to_bits));
    assert!(three.eq(again));
}
