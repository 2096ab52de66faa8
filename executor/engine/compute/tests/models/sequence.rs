//! Language models as whole networks: sizes, threads, workers, and gradients reported during the
//! backward pass.

use muster_compute::model::{Batch, BatchTargets, Network, ParameterRole, RandomKey, zoo};
use std::ops::Range;

const VOCABULARY: usize = 23;

fn networks() -> Vec<Network> {
    let [gpt, tied_gpt] = [false, true].map(|tied| zoo::Gpt {
        length: 9,
        vocabulary: VOCABULARY,
        width: 24,
        blocks: 2,
        heads: 3,
        tied,
        dropout: 0.2,
    });
    vec![
        zoo::lstm_language_model(9, VOCABULARY, 8, &[16, 12]).unwrap(),
        zoo::gru_language_model(9, VOCABULARY, 8, &[16, 12]).unwrap(),
        zoo::gpt(gpt).unwrap(),
        zoo::gpt(tied_gpt).unwrap(),
    ]
}

struct TextBatch {
    tokens: Vec<f32>,
    next: Vec<u32>,
}

fn token(index: usize) -> usize {
    (index * index / 3 + index * 5) % VOCABULARY
}

fn text(network: &Network, examples: usize) -> TextBatch {
    let len = examples * network.input().len();
    TextBatch {
        tokens: (0..len).map(|i| token(i) as f32).collect(),
        next: (0..len).map(|i| token(i + 1) as u32).collect(),
    }
}

impl TextBatch {
    /// Some examples of a step that many workers share.
    fn part(&self, network: &Network, examples: Range<usize>) -> Batch<'_> {
        let len = network.input().len();
        let span = examples.start * len..examples.end * len;
        Batch {
            inputs: &self.tokens[span.clone()],
            targets: BatchTargets::Classes(&self.next[span]),
            draw: RandomKey {
                seed: 4,
                step: 7,
                first: examples.start as u64,
            },
        }
    }
}

/// Loss and gradients of some examples.
fn step(
    network: &Network,
    text: &TextBatch,
    examples: Range<usize>,
    room: usize,
    threads: usize,
) -> (f64, Vec<f32>) {
    let params = network.init(5);
    let mut grads = vec![f32::NAN; params.len()];
    let batch = text.part(network, examples);
    let mut workspace = network.workspace(room, threads);
    let loss = network.loss_and_grad(&mut workspace, &params, &batch, &mut grads);
    (loss.loss_sum, grads)
}

#[test]
fn threads_do_not_change_a_bit() {
    for network in networks() {
        let text = text(&network, 70);
        let (loss, grads) = step(&network, &text, 0..70, 70, 1);
        for threads in [2, 3] {
            let (other, others) = step(&network, &text, 0..70, 70, threads);
            assert_eq!(loss.to_bits(), other.to_bits());
            let same = grads
                .iter()
                .zip(&others)
                .all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "{threads} threads");
        }
    }
}

/// With dropout too: dropped values depend on the example's position in the global batch.
#[test]
fn gradients_of_workers_and_parts_add_up_to_the_batch() {
    for network in networks() {
        let text = text(&network, 11);
        let (loss, grads) = step(&network, &text, 0..11, 16, 1);
        let mut sum = (0.0, vec![0.0; grads.len()]);
        for examples in [0..4, 4..4, 4..11] {
            // The last one in parts of 3.
            let (loss, part) = step(&network, &text, examples, 3, 1);
            sum.0 += loss;
            sum.1
                .iter_mut()
                .zip(part)
                .for_each(|(sum, part)| *sum += part);
        }
        assert!((loss - sum.0).abs() < 1e-5 * loss, "{loss}, {}", sum.0);
        let scale = grads.iter().fold(1.0_f32, |most, g| most.max(g.abs()));
        let mut pairs = grads.iter().zip(&sum.1);
        assert!(pairs.all(|(a, b)| (a - b).abs() <= 1e-5 * scale));
    }
}

#[test]
fn gradient_ranges_are_reported_once_and_final() {
    for network in networks() {
        let text = text(&network, 7);
        let (_, expected) = step(&network, &text, 0..7, 4, 1);
        let params = network.init(5);
        let mut grads = vec![f32::NAN; params.len()];
        let mut end = params.len();
        network.loss_and_grad_telling(
            &mut network.workspace(4, 1),
            &params,
            &text.part(&network, 0..7),
            &mut grads,
            &mut |range, grads| {
                assert_eq!(range.end, end);
                assert_eq!(grads[range.clone()], expected[range.clone()]);
                end = range.start;
            },
        );
        assert_eq!(end, 0);
    }
}

#[test]
fn language_model_learns_the_next_token() {
    for network in networks() {
        let text = text(&network, 8);
        let mut params = network.init(2);
        let mut grads = vec![0.0; params.len()];
        let mut workspace = network.workspace(8, 1);
        let batch = text.part(&network, 0..8);
        let before = network.evaluate(&mut workspace, &params, &batch).loss_sum;
        for _ in 0..200 {
            network.loss_and_grad(&mut workspace, &params, &batch, &mut grads);
            params
                .iter_mut()
                .zip(&grads)
                .for_each(|(p, g)| *p -= 0.01 * g);
        }
        let after = network.evaluate(&mut workspace, &params, &batch);
        assert!(
            after.loss_sum < 0.8 * before,
            "{before} to {}",
            after.loss_sum
        );
        let again = network.evaluate(&mut workspace, &params, &batch);
        assert_eq!(after, again, "nothing is dropped in evaluation");
    }
}

#[test]
fn gpt2_small_has_the_published_number_of_parameters() {
    let network = zoo::gpt(zoo::Gpt::gpt2_small()).unwrap();
    assert_eq!(network.parameter_count(), 124_439_808);
    let tables = network
        .blocks()
        .iter()
        .filter(|block| block.role == ParameterRole::Weight);
    assert_eq!(tables.count(), 2 + 12 * 4);
    assert_eq!(network.targets(), 1024);
}

/// 4 · ((inputs + hidden) · hidden + hidden) for each LSTM layer, with one bias; a GRU has 3 gates
/// and two biases.
#[test]
fn recurrent_models_have_the_sizes_of_their_formulas() {
    let lstm = zoo::lstm_language_model(64, 256, 128, &[200, 300]).unwrap();
    let layers = 4 * ((128 + 200) * 200 + 200) + 4 * ((200 + 300) * 300 + 300);
    assert_eq!(lstm.parameter_count(), 256 * 128 + layers + 301 * 256);
    let gru = zoo::gru_language_model(64, 256, 128, &[200]).unwrap();
    let layer = 3 * ((128 + 200) * 200 + 2 * 200);
    assert_eq!(gru.parameter_count(), 256 * 128 + layer + 201 * 256);
}
