//! Examples per second of complete training steps and of their parts, on one thread.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use muster_compute::model::{Batch, ImageShape, Network, zoo};

const BATCH: usize = 128;
const FASHION: ImageShape = ImageShape {
    height: 28,
    width: 28,
    channels: 1,
};

fn main() {
    divan::main();
}

fn mlp() -> Network {
    zoo::mlp(FASHION, &[1024, 1024], 10).unwrap()
}

fn cnn(channels: [usize; 2], dense: usize) -> Network {
    zoo::cnn(FASHION, &channels, &[dense], 10).unwrap()
}

fn examples(network: &Network) -> (Vec<f32>, Vec<u32>) {
    let images = (0..BATCH * network.input().len()).map(|i| (i * 37 % 255) as f32 / 255.0 - 0.5);
    (
        images.collect(),
        (0..BATCH).map(|i| (i % 10) as u32).collect(),
    )
}

fn step(bencher: Bencher, network: &Network) {
    let params = network.init(1);
    let (images, labels) = examples(network);
    let mut grads = vec![0.0; params.len()];
    let mut workspace = network.workspace(BATCH, 1);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        network.loss_and_grad(
            &mut workspace,
            black_box(&params),
            &Batch::classes(&images, &labels),
            &mut grads,
        )
    });
}

#[divan::bench]
fn step_mlp_1024_1024(bencher: Bencher) {
    step(bencher, &mlp());
}

#[divan::bench]
fn step_cnn_c16_c32_fc64(bencher: Bencher) {
    step(bencher, &cnn([16, 32], 64));
}

#[divan::bench]
fn step_cnn_c32_c64_fc128(bencher: Bencher) {
    step(bencher, &cnn([32, 64], 128));
}

/// 256 bytes, 64 steps, one layer of 256; 32 sequences.
#[divan::bench]
fn step_lstm_h256(bencher: Bencher) {
    let network = zoo::lstm_language_model(64, 256, 256, &[256]).unwrap();
    step_of_text(bencher, &network, 32);
}

#[divan::bench]
fn step_gru_h256(bencher: Bencher) {
    let network = zoo::gru_language_model(64, 256, 256, &[256]).unwrap();
    step_of_text(bencher, &network, 32);
}

/// 256 bytes, 4 blocks of width 256 with 4 heads; 8 sequences.
#[divan::bench(args = [128, 512])]
fn step_gpt_d256(bencher: Bencher, length: usize) {
    let gpt = zoo::Gpt {
        length,
        vocabulary: 256,
        width: 256,
        blocks: 4,
        heads: 4,
        tied: false,
        dropout: 0.0,
    };
    step_of_text(bencher, &zoo::gpt(gpt).unwrap(), 8);
}

fn step_of_text(bencher: Bencher, network: &Network, sequences: usize) {
    let params = network.init(1);
    let tokens: Vec<u32> = (0..sequences * network.input().len())
        .map(|i| (i * 7919 % 256) as u32)
        .collect();
    let inputs: Vec<f32> = tokens.iter().map(|token| *token as f32).collect();
    let mut grads = vec![0.0; params.len()];
    let mut workspace = network.workspace(sequences, 1);
    bencher
        .counter(ItemsCount::new(tokens.len()))
        .bench_local(|| {
            network.loss_and_grad(
                &mut workspace,
                black_box(&params),
                &Batch::classes(&inputs, &tokens),
                &mut grads,
            )
        });
}

#[divan::bench]
fn evaluate_cnn_c32_c64_fc128(bencher: Bencher) {
    let network = cnn([32, 64], 128);
    let params = network.init(1);
    let (images, labels) = examples(&network);
    let mut workspace = network.workspace(BATCH, 1);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        network.evaluate(
            &mut workspace,
            black_box(&params),
            &Batch::classes(&images, &labels),
        )
    });
}
