//! Rules of networks, as far as the document alone shows. The engine decides, and its error names
//! the layer.

use super::Errors;
use super::layers::{Walk, more_than_fit};
use crate::spec::{Dataset, DenseNetVariant, Goal, Input, Layer, Learn, Model};

const WIDEST: u32 = 16_384;
const MOST_CHANNELS: u32 = 1_024;

impl Errors {
    pub(super) fn model(&mut self, model: &Model, dataset: &Dataset) {
        match model {
            Model::Mlp { hidden } => {
                self.widths("engine.model.hidden", hidden, 0..=16, WIDEST);
                let reads = matches!(dataset.input(), Input::Image { .. } | Input::Row { .. });
                self.reads(model, dataset, reads, "numbers, such as images or tables");
                self.dense_parameters(dataset, hidden);
            }
            Model::Cnn { channels, dense } => {
                self.widths("engine.model.channels", channels, 1..=8, MOST_CHANNELS);
                self.widths("engine.model.dense", dense, 0..=8, WIDEST);
                if let Some([height, width]) = self.classifier(model, dataset) {
                    self.pooled(channels, height.min(width));
                }
            }
            Model::Lenet5 {} => self.least_side(model, dataset, 12),
            Model::Alexnet {} => self.least_side(model, dataset, 63),
            Model::Vgg { depth, .. } => {
                self.depth(*depth, &[11, 13, 16, 19]);
                self.least_side(model, dataset, 32);
            }
            Model::Googlenet {} => self.least_side(model, dataset, 1),
            Model::Resnet { depth } => {
                self.depth(*depth, &[18, 34, 50, 101, 152]);
                self.least_side(model, dataset, 1);
            }
            Model::Densenet { variant } => {
                let least = match variant {
                    DenseNetVariant::D121 => 29,
                    DenseNetVariant::Bc100 => 4,
                };
                self.least_side(model, dataset, least);
            }
            Model::Autoencoder { channels, code } => {
                self.autoencoder(model, dataset, channels, *code);
            }
            Model::Gpt {
                width,
                blocks,
                heads,
                dropout,
                ..
            } => {
                self.reads(model, dataset, dataset.is_text(), "a text");
                self.model_within("width", *width, WIDEST);
                self.model_within("blocks", *blocks, 128);
                self.check(
                    "engine.model.heads",
                    heads,
                    *heads > 0 && width.is_multiple_of(*heads),
                    &format!("a divisor of the width ({width})"),
                );
                self.share("engine.model.dropout", f64::from(*dropout));
                let (width, blocks) = (u64::from(*width), u64::from(*blocks));
                let each = 12 * width * width;
                self.parameters(each.saturating_mul(blocks));
            }
            Model::Lstm { width, hidden } | Model::Gru { width, hidden } => {
                self.reads(model, dataset, dataset.is_text(), "a text");
                self.model_within("width", *width, WIDEST);
                self.widths("engine.model.hidden", hidden, 1..=16, WIDEST);
            }
            Model::Layers { layers, goal } => self.layer_list(layers, *goal, dataset),
        }
    }

    fn reads(&mut self, model: &Model, dataset: &Dataset, right: bool, expected: &str) {
        self.check(
            "engine.model.kind",
            &format!("{:?} on {:?}", model.kind(), dataset.title()),
            right,
            &format!("a data set of {expected} for {}", model.kind()),
        );
    }

    /// Returns the sides of the images to classify. Anything else is an error and gives `None`.
    fn classifier(&mut self, model: &Model, dataset: &Dataset) -> Option<[u32; 2]> {
        let sides = match (dataset.input(), dataset.learn()) {
            (Input::Image { height, width, .. }, Learn::Classes { .. }) => Some([height, width]),
            _ => None,
        };
        self.reads(model, dataset, sides.is_some(), "images with classes");
        sides
    }

    fn least_side(&mut self, model: &Model, dataset: &Dataset, least: u32) {
        if let Some([height, width]) = self.classifier(model, dataset) {
            self.check(
                "engine.model.kind",
                &format!("{:?} on images of {height}×{width}", model.kind()),
                height.min(width) >= least,
                &format!(
                    "images of at least {least}×{least} pixels for {}",
                    model.kind()
                ),
            );
        }
    }

    /// Each convolution of `cnn` halves the sides.
    fn pooled(&mut self, channels: &[u32], side: u32) {
        let halvings = channels.len().min(32) as u32;
        let left = u64::from(side) >> halvings;
        self.check(
            "engine.model.channels",
            &format!("{} layers", channels.len()),
            left >= 1,
            &format!(
                "at most {} layers: each halves an image whose smaller side is {side}",
                side.max(1).ilog2()
            ),
        );
    }

    fn autoencoder(&mut self, model: &Model, dataset: &Dataset, channels: &[u32], code: u32) {
        self.widths("engine.model.channels", channels, 1..=8, MOST_CHANNELS);
        self.model_within("code", code, WIDEST);
        let Input::Image { height, width, .. } = dataset.input() else {
            self.reads(model, dataset, false, "images");
            return;
        };
        let halvings = height.trailing_zeros().min(width.trailing_zeros());
        self.check(
            "engine.model.channels",
            &format!("{} layers", channels.len()),
            channels.len() <= halvings as usize,
            &format!("at most {halvings} layers: so often sides of {height}×{width} halve evenly"),
        );
    }

    fn depth(&mut self, depth: u32, known: &[u32]) {
        let names: Vec<String> = known.iter().map(u32::to_string).collect();
        self.check(
            "engine.model.depth",
            &depth,
            known.contains(&depth),
            &format!("one of {}", names.join(", ")),
        );
    }

    fn dense_parameters(&mut self, dataset: &Dataset, hidden: &[u32]) {
        let mut inputs = dataset.input().numbers();
        let mut sum = 0_u64;
        for &width in hidden {
            sum = sum.saturating_add(inputs.saturating_mul(u64::from(width)));
            inputs = u64::from(width);
        }
        self.parameters(sum);
    }

    fn parameters(&mut self, count: u64) {
        self.check(
            "engine.model",
            &format!("a network of at least {count} parameters"),
            !more_than_fit(count),
            "at most 2147483648 parameters",
        );
    }

    fn layer_list(&mut self, layers: &[Layer], goal: Goal, dataset: &Dataset) {
        let Some(end) = Walk::new(self, dataset.input()).all(layers) else {
            return;
        };
        let (numbers, learn) = (end.iter().product::<u64>(), dataset.learn());
        let kind = match goal {
            Goal::Data => "data",
            Goal::Reconstruct => "reconstruct",
            Goal::Answer => "answer",
        };
        let at = "engine.model.goal";
        match (goal, learn) {
            (Goal::Reconstruct, _) => {
                let inputs = dataset.input().numbers();
                let tokens = matches!(dataset.input(), Input::Tokens { .. });
                let expected = "an input of numbers, not of tokens";
                self.check(at, &kind, !tokens, expected);
                self.makes(numbers, inputs, "as many as an input has");
            }
            (Goal::Answer, Learn::Classes { .. }) => {
                let expected = "a data set whose examples have values";
                self.check(at, &kind, false, expected);
            }
            (Goal::Answer | Goal::Data, Learn::Values { values }) => {
                self.makes(
                    numbers,
                    u64::from(values),
                    "as many as an example has values",
                );
            }
            (Goal::Data, Learn::Classes { .. }) if dataset.is_text() => {
                let positions = dataset.input().numbers();
                let rows = numbers / end.last().copied().unwrap_or(1).max(1);
                self.check(
                    "engine.model.layers",
                    &format!("a last layer of {rows} positions"),
                    end.len() >= 2 && rows == positions,
                    &format!("features at each of the text's {positions} positions"),
                );
            }
            (Goal::Data, Learn::Classes { .. }) => {}
        }
    }

    fn makes(&mut self, found: u64, expected: u64, why: &str) {
        self.check(
            "engine.model.layers",
            &format!("a last layer that makes {found} numbers"),
            found == expected,
            &format!("{expected} numbers, {why}"),
        );
    }

    fn model_within(&mut self, field: &str, value: u32, most: u32) {
        self.check(
            &format!("engine.model.{field}"),
            &value,
            (1..=most).contains(&value),
            &format!("1 to {most}"),
        );
    }
}
