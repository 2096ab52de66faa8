//! A forward pass that begins while its parameters arrive: bits of the result, and the order in
//! which parameters are requested.

use muster_compute::model::{Batch, BatchTargets, ImageShape, Network, RandomKey, zoo};
use std::ops::Range;

const VOCABULARY: usize = 11;
const EXAMPLES: usize = 3;

fn networks() -> Vec<(&'static str, Network)> {
    let image = ImageShape {
        height: 8,
        width: 8,
        channels: 1,
    };
    let [gpt, tied_gpt] = [false, true].map(|tied| zoo::Gpt {
        length: 6,
        vocabulary: VOCABULARY,
        width: 8,
        blocks: 2,
        heads: 2,
        tied,
        dropout: 0.1,
    });
    vec![
        ("mlp", zoo::mlp(image, &[7, 5], 4).unwrap()),
        ("cnn", zoo::cnn(image, &[3, 4], &[6], 4).unwrap()),
        ("densenet", zoo::densenet_small(image, 4).unwrap()),
        (
            "lstm",
            zoo::lstm_language_model(6, VOCABULARY, 5, &[6, 4]).unwrap(),
        ),
        (
            "gru",
            zoo::gru_language_model(6, VOCABULARY, 5, &[6]).unwrap(),
        ),
        ("gpt", zoo::gpt(gpt).unwrap()),
        ("gpt, tied", zoo::gpt(tied_gpt).unwrap()),
    ]
}

struct InitialBatch {
    inputs: Vec<f32>,
    classes: Vec<u32>,
}

impl InitialBatch {
    fn of(network: &Network) -> Self {
        let numbers = EXAMPLES * network.input().len();
        let targets = EXAMPLES * network.targets();
        Self {
            inputs: (0..numbers).map(|i| (i * 7 % VOCABULARY) as f32).collect(),
            classes: (0..targets as u32).map(|i| i * 3 % 4).collect(),
        }
    }

    fn batch(&self) -> Batch<'_> {
        Batch {
            inputs: &self.inputs,
            targets: BatchTargets::Classes(&self.classes),
            draw: RandomKey {
                seed: 5,
                step: 9,
                first: 0,
            },
        }
    }
}

#[test]
fn pass_with_arriving_parameters_has_the_bits_of_a_plain_pass() {
    for (name, network) in networks() {
        let examples = InitialBatch::of(&network);
        let params = network.init(3);
        let count = network.parameter_count();
        let expected = {
            let mut grads = vec![0.0; count];
            let mut workspace = network.workspace(2, 1);
            let loss =
                network.loss_and_grad(&mut workspace, &params, &examples.batch(), &mut grads);
            (loss, grads)
        };
        // Only requested parameters are there; a second part of the batch follows the first.
        let mut arriving = vec![f32::NAN; count];
        let mut asked: Vec<Range<usize>> = Vec::new();
        let mut workspace = network.workspace(2, 1);
        let begun = network.begin_fetching(
            &mut workspace,
            &mut arriving,
            &examples.batch(),
            &mut |range, arriving| {
                arriving[range.clone()].copy_from_slice(&params[range.clone()]);
                asked.push(range);
                true
            },
        );
        assert!(begun, "{name}");
        assert_eq!(arriving, params, "{name}: all were asked for");
        let mut grads = vec![f32::NAN; count];
        let loss = network.loss_and_grad_after(
            true,
            &mut workspace,
            &arriving,
            &examples.batch(),
            &mut grads,
            &mut |_, _| {},
        );
        assert_eq!((loss, grads), expected, "{name}");
        // The arena is in the order of need: a later request has a higher offset, except for
        // parameters that have already arrived.
        let mut end = 0;
        for range in asked {
            assert!(
                range.start == end || range.end <= end,
                "{name}: {range:?} after {end}"
            );
            end = end.max(range.end);
        }
    }
}

#[test]
fn pass_without_its_parameters_does_not_begin() {
    for (name, network) in networks() {
        let examples = InitialBatch::of(&network);
        let mut params = network.init(3);
        let mut workspace = network.workspace(EXAMPLES, 1);
        let mut asked = 0;
        let begun = network.begin_fetching(
            &mut workspace,
            &mut params,
            &examples.batch(),
            &mut |_, _| {
                asked += 1;
                asked < 3
            },
        );
        assert!(!begun, "{name}");
        assert_eq!(asked, 3, "{name}");
    }
}
