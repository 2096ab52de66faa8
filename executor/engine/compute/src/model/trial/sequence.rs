//! Tests of embeddings, positions, dense layers over positions, layer normalisation, dropout,
//! recurrent layers and attention.

use super::fixtures::{FixtureCase, cases};
use super::{OperationTrial, TRAIN, assert_close, exact, network, sigmoid};
use crate::layer::PassMode;
use crate::layer::matrix::WriteMode;
use crate::loss::LossFunction;
use crate::model::{ExampleShape, Network, NetworkBuilder, ParameterInit, ValueId};

const FILL: ParameterInit = ParameterInit::Constant(0.0);

/// Network whose last operation reads positions × features. They come from an embedding, because no
/// input has this shape.
fn sequence(
    [positions, width]: [usize; 2],
    last: impl FnOnce(&mut NetworkBuilder, ValueId) -> ValueId,
) -> Network {
    let tokens = ExampleShape::Tokens {
        length: positions,
        vocabulary: 2,
    };
    network(tokens, |builder, x| {
        let x = builder.embedding("embedding", x, width, FILL).unwrap();
        Ok(last(builder, x))
    })
}

/// Parameters of the operation under test.
fn own<'a>(network: &Network, params: &'a [f64]) -> &'a [f64] {
    let node = network.nodes.last().expect("an operation");
    &params[node.op.kernel().parameters()]
}

/// `x · W + b` of each row, element by element.
fn dense(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let (outputs, inputs) = (bias.len(), weight.len() / bias.len());
    let places = x
        .chunks(inputs)
        .flat_map(|row| (0..outputs).map(move |o| (row, o)));
    let numbers = places.map(|(row, o)| {
        let products = row
            .iter()
            .enumerate()
            .map(|(i, x)| x * weight[i * outputs + o]);
        bias[o] + products.sum::<f64>()
    });
    numbers.collect()
}

#[test]
fn dense_over_positions_equals_definition() {
    for (shape, bias) in [([3, 5], true), ([7, 16], false)] {
        let network = sequence(shape, |b, x| b.project("p", x, 6, bias, FILL).unwrap());
        OperationTrial::new(network.clone(), 4, 3).check("project", |inputs, params| {
            let (weight, rest) = own(&network, params).split_at(shape[1] * 6);
            dense(&inputs[0], weight, if bias { rest } else { &[0.0; 6] })
        });
    }
}

#[test]
fn embedding_adds_gradients_to_the_rows_it_read() {
    for case in cases("embedding") {
        let (tokens, shape) = case.whole("tokens");
        let (table, sides) = case.tensor("table");
        let input = ExampleShape::Tokens {
            length: shape[1],
            vocabulary: sides[0],
        };
        let network = network(input, |b, x| b.embedding("e", x, sides[1], FILL));
        let mut trial = OperationTrial::new(network, shape[0], 0);
        trial.inputs = vec![tokens.iter().map(|t| *t as f32).collect()];
        trial.params = table.to_vec();
        trial.d_output = case.tensor("d_output").0.to_vec();
        let outcome = trial.run(2, TRAIN, WriteMode::Overwrite);
        case.assert_close("output", &outcome.output);
        case.assert_close("d_table", &outcome.grads);
        assert_eq!(
            outcome.grads,
            trial.run(1, TRAIN, WriteMode::Overwrite).grads
        );
    }
}

#[test]
#[should_panic(expected = "token 9 of a vocabulary of 9")]
fn token_outside_the_vocabulary_panics() {
    let input = ExampleShape::Tokens {
        length: 1,
        vocabulary: 9,
    };
    let network = network(input, |b, x| b.embedding("e", x, 2, FILL));
    let mut trial = OperationTrial::new(network, 1, 0);
    trial.inputs = vec![vec![9.0]];
    trial.run_here(1, TRAIN, WriteMode::Overwrite);
}

#[test]
fn positions_are_added() {
    let network = sequence([5, 7], |b, x| b.positions("p", x, FILL).unwrap());
    OperationTrial::new(network.clone(), 3, 4).check("positions", |inputs, params| {
        let table = own(&network, params);
        let numbers = inputs[0].iter().enumerate();
        numbers.map(|(i, x)| x + table[i % 35]).collect()
    });
}

#[test]
fn layer_norm_equals_definition_and_pytorch() {
    for (shape, examples) in [([3, 5], 4), ([2, 40], 3), ([64, 520], 5)] {
        let network = sequence(shape, |b, x| b.layer_norm("n", x).unwrap());
        let width = shape[1];
        OperationTrial::new(network.clone(), examples, 5).check("layer norm", |inputs, params| {
            let (scale, shift) = own(&network, params).split_at(width);
            let mut out = Vec::new();
            for row in inputs[0].chunks(width) {
                let mean = row.iter().sum::<f64>() / width as f64;
                let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
                let normal = row.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt());
                out.extend(
                    normal
                        .zip(scale.iter().zip(shift))
                        .map(|(x, (a, b))| x * a + b),
                );
            }
            out
        });
    }
    for case in cases("layer_norm") {
        let (input, shape) = case.tensor("input");
        let width = *shape.last().unwrap();
        let positions = if shape.len() == 3 { shape[1] } else { 1 };
        let network = sequence([positions, width], |b, x| b.layer_norm("n", x).unwrap());
        compare(&case, network, input, &["weight", "bias"]);
    }
}

/// Compares the last operation, whose parameters are the case's `tensors` in order.
fn compare(case: &FixtureCase, network: Network, input: &[f32], tensors: &[&str]) {
    let examples = input.len() / network.lens[network.nodes.len() - 1];
    let parameters = network.nodes.last().unwrap().op.kernel().parameters();
    let mut trial = OperationTrial::new(network, examples, 0);
    trial.inputs = vec![input.to_vec()];
    trial.d_output = case.tensor("d_output").0.to_vec();
    let given = tensors.iter().flat_map(|name| case.tensor(name).0);
    trial.params.truncate(parameters.start);
    trial.params.extend(given);
    let outcome = trial.compare(case, &["input"]);
    let mut grads = &outcome.grads[parameters];
    for name in tensors {
        let own = grads.split_off(..case.tensor(name).0.len()).unwrap();
        case.assert_close(&format!("d_{name}"), own);
    }
}

#[test]
fn dropout_draws_do_not_depend_on_workers() {
    let network = sequence([16, 300], |b, x| b.dropout("d", x, 0.3).unwrap());
    let mut trial = OperationTrial::new(network.clone(), 8, 6);
    trial.inputs[0].fill(1.0);
    trial.d_output.fill(1.0);
    let whole = trial.run(3, TRAIN, WriteMode::Overwrite);
    assert_eq!(
        whole.output, whole.d_inputs[0],
        "the way back drops the same"
    );
    let kept = 1.0 / 0.7;
    assert!(whole.output.iter().all(|y| *y == 0.0 || *y == kept));
    let dropped = whole.output.iter().filter(|y| **y == 0.0).count() as f64;
    let share = dropped / whole.output.len() as f64;
    assert!(
        (share - 0.3).abs() < 0.01,
        "{share} of {}",
        whole.output.len()
    );
    // Examples 5 and later, on another worker.
    let mut last = OperationTrial::new(network, 3, 6);
    last.inputs[0].fill(1.0);
    let mode = PassMode::Train { key: 7, first: 5 };
    let part = last.run(1, mode, WriteMode::Overwrite).output;
    assert_eq!(whole.output[5 * 4800..], part);
    assert_ne!(whole.output[..3 * 4800], part, "examples draw differently");
    let other = PassMode::Train { key: 8, first: 0 };
    assert_ne!(
        whole.output,
        trial.run(1, other, WriteMode::Overwrite).output,
        "and steps"
    );
    let plain = trial.run(1, PassMode::Evaluate, WriteMode::Overwrite);
    assert_eq!(plain.output, trial.inputs[0]);
}

#[test]
fn dropouts_of_one_network_draw_differently() {
    let network = sequence([4, 50], |b, x| {
        let x = b.dropout("d1", x, 0.5).unwrap();
        b.dropout("d2", x, 0.5).unwrap()
    });
    let first = sequence([4, 50], |b, x| b.dropout("d1", x, 0.5).unwrap());
    let [first, second] = [first, network].map(|network| {
        let mut trial = OperationTrial::new(network, 2, 6);
        trial.inputs[0].fill(1.0);
        trial.run(1, TRAIN, WriteMode::Overwrite).output
    });
    assert_ne!(first, second);
}

/// Runs `step` position after position, example after example.
fn unroll(
    x: &[f64],
    [positions, inputs, hidden]: [usize; 3],
    mut step: impl FnMut(&[f64], &mut Vec<f64>, &mut Vec<f64>),
) -> Vec<f64> {
    let mut out = Vec::new();
    for example in x.chunks(positions * inputs) {
        let (mut h, mut c) = (vec![0.0; hidden], vec![0.0; hidden]);
        for x in example.chunks(inputs) {
            step(x, &mut h, &mut c);
            out.extend_from_slice(&h);
        }
    }
    out
}

#[test]
fn lstm_equals_definition_and_pytorch() {
    // The second case has two groups of examples.
    for ([positions, inputs, hidden], examples) in
        [([5, 4, 6], 3), ([3, 2, 17], 35), ([1, 3, 2], 2)]
    {
        let network = sequence([positions, inputs], |b, x| b.lstm("l", x, hidden).unwrap());
        OperationTrial::new(network.clone(), examples, 7).check("lstm", |values, params| {
            let (weight, rest) = own(&network, params).split_at(inputs * 4 * hidden);
            let (recurrent, bias) = rest.split_at(hidden * 4 * hidden);
            unroll(&values[0], [positions, inputs, hidden], |x, h, c| {
                let sums = dense(x, weight, bias);
                let more = dense(h, recurrent, &vec![0.0; 4 * hidden]);
                let gate =
                    |gate: usize, k: usize| sums[gate * hidden + k] + more[gate * hidden + k];
                for k in 0..hidden {
                    c[k] = sigmoid(gate(1, k)) * c[k] + sigmoid(gate(0, k)) * gate(2, k).tanh();
                    h[k] = sigmoid(gate(3, k)) * c[k].tanh();
                }
            })
        });
    }
    recurrent_cases("lstm", &["input_weight", "recurrent_weight", "bias"]);
}

#[test]
fn gru_equals_definition_and_pytorch() {
    for ([positions, inputs, hidden], examples) in
        [([5, 4, 6], 3), ([3, 2, 17], 35), ([1, 3, 2], 2)]
    {
        let network = sequence([positions, inputs], |b, x| b.gru("g", x, hidden).unwrap());
        OperationTrial::new(network.clone(), examples, 8).check("gru", |values, params| {
            let (weight, rest) = own(&network, params).split_at(inputs * 3 * hidden);
            let (recurrent, biases) = rest.split_at(hidden * 3 * hidden);
            let (bias, recurrent_bias) = biases.split_at(3 * hidden);
            unroll(&values[0], [positions, inputs, hidden], |x, h, _| {
                let a = dense(x, weight, bias);
                let b = dense(h, recurrent, recurrent_bias);
                for k in 0..hidden {
                    let r = sigmoid(a[k] + b[k]);
                    let z = sigmoid(a[hidden + k] + b[hidden + k]);
                    let n = (a[2 * hidden + k] + r * b[2 * hidden + k]).tanh();
                    h[k] = (1.0 - z) * n + z * h[k];
                }
            })
        });
    }
    let tensors = ["input_weight", "recurrent_weight", "bias", "recurrent_bias"];
    recurrent_cases("gru", &tensors);
}

/// Turns outer × inner × width to inner × outer × width.
fn turn(x: &[f32], width: usize, outer: usize, inner: usize) -> Vec<f32> {
    let places = (0..inner).flat_map(|i| (0..outer).map(move |o| o * inner + i));
    places
        .flat_map(|place| x[place * width..(place + 1) * width].to_vec())
        .collect()
}

/// PyTorch's cases with initial state 0, converted from position-major order.
fn recurrent_cases(kind: &str, tensors: &[&str]) {
    let mut compared = 0;
    for case in cases(kind).into_iter().filter(|case| !case.has("hidden")) {
        let (input, shape) = case.tensor("input");
        let &[positions, examples, inputs] = shape else {
            panic!("positions × examples × inputs")
        };
        let hidden = case.tensor("recurrent_weight").1[0];
        let network = sequence([positions, inputs], |b, x| match kind {
            "lstm" => b.lstm("r", x, hidden).unwrap(),
            _ => b.gru("r", x, hidden).unwrap(),
        });
        let parameters = network.nodes[1].op.kernel().parameters();
        let mut trial = OperationTrial::new(network, examples, 0);
        trial.inputs = vec![turn(input, inputs, positions, examples)];
        trial.d_output = turn(case.tensor("d_output").0, hidden, positions, examples);
        trial.params.truncate(parameters.start);
        trial
            .params
            .extend(tensors.iter().flat_map(|name| case.tensor(name).0));
        let outcome = trial.run(2, TRAIN, WriteMode::Overwrite);
        case.assert_close(
            "output",
            &turn(&outcome.output, hidden, examples, positions),
        );
        let d_input = turn(&outcome.d_inputs[0], inputs, examples, positions);
        case.assert_close("d_input", &d_input);
        let mut grads = &outcome.grads[parameters];
        for name in tensors {
            let own = grads.split_off(..case.tensor(name).0.len()).unwrap();
            case.assert_close(&format!("d_{name}"), own);
        }
        compared += 1;
    }
    assert_eq!(compared, 3);
}

/// Attention, element by element.
fn attend(x: &[f64], [positions, width, heads]: [usize; 3]) -> Vec<f64> {
    let head = width / heads;
    let mut out = vec![0.0; x.len() / 3];
    for (x, out) in x
        .chunks(positions * 3 * width)
        .zip(out.chunks_mut(positions * width))
    {
        let at = |part: usize, t: usize, i: usize| x[t * 3 * width + part * width + i];
        for (h, q) in (0..heads).flat_map(|h| (0..positions).map(move |q| (h, q))) {
            let own = h * head..(h + 1) * head;
            let scores: Vec<f64> = (0..=q)
                .map(|k: usize| {
                    let products = own.clone().map(|i| at(0, q, i) * at(1, k, i));
                    (products.sum::<f64>() / (head as f64).sqrt()).exp()
                })
                .collect();
            let sum: f64 = scores.iter().sum();
            for i in own {
                let shares = scores.iter().enumerate();
                out[q * width + i] = shares.map(|(k, s)| s / sum * at(2, k, i)).sum();
            }
        }
    }
    out
}

#[test]
fn attention_equals_definition() {
    for (shape @ [positions, width, heads], examples) in [
        ([5, 8, 2], 3),
        ([1, 4, 4], 2),
        ([64, 6, 3], 1),
        ([150, 4, 1], 2),
    ] {
        let network = sequence([positions, 3 * width], |b, x| {
            b.attention("a", x, heads).unwrap()
        });
        let trial = OperationTrial::new(network, examples, 9);
        trial.check("attention", |inputs, _| attend(&inputs[0], shape));
    }
}

/// PyTorch's layer includes the projections before and after.
#[test]
fn attention_with_projections_equals_pytorch() {
    for case in cases("attention") {
        let (input, shape) = case.tensor("input");
        let &[examples, positions, width] = shape else {
            panic!("examples × positions × width")
        };
        let heads = case.number("heads") as usize;
        let [x, weight, bias] =
            ["input", "qkv_weight", "qkv_bias"].map(|name| exact(case.tensor(name).0));
        let qkv = dense(&x, &weight, &bias);
        let network = sequence([positions, 3 * width], |b, x| {
            b.attention("a", x, heads).unwrap()
        });
        let mut trial = OperationTrial::new(network, examples, 0);
        trial.inputs = vec![qkv.iter().map(|x| *x as f32).collect()];
        // Backward pass of the output projection: d · Wᵀ.
        let [weight, bias, d_output] =
            ["output_weight", "output_bias", "d_output"].map(|name| exact(case.tensor(name).0));
        let turned: Vec<f64> = (0..width * width)
            .map(|i| weight[i % width * width + i / width])
            .collect();
        let d_mixed = dense(&d_output, &turned, &vec![0.0; width]);
        trial.d_output = d_mixed.iter().map(|x| *x as f32).collect();
        let outcome = trial.run(2, TRAIN, WriteMode::Overwrite);
        let output = dense(&exact(&outcome.output), &weight, &bias);
        assert_close(case.tensor("output").0, &output, &case.name);
        // The gradient of the bias of qkv is the sum of the rows of the operation's input gradient.
        let mut d_bias = vec![0.0; 3 * width];
        for row in outcome.d_inputs[0].chunks(3 * width) {
            d_bias
                .iter_mut()
                .zip(row)
                .for_each(|(sum, d)| *sum += f64::from(*d));
        }
        assert_close(case.tensor("d_qkv_bias").0, &d_bias, &case.name);
        assert_eq!(input.len(), examples * positions * width);
    }
}

/// A table with two readers receives the sum of both gradients, and its gradient is reported once,
/// when it is final.
#[test]
fn tied_table_receives_both_gradients() {
    let tokens = ExampleShape::Tokens {
        length: 4,
        vocabulary: 5,
    };
    let [tied, apart] = [true, false].map(|tied| {
        let mut b = NetworkBuilder::new(tokens).unwrap();
        let x = b.input();
        let e = b
            .embedding("e", x, 3, ParameterInit::deviation(1.0))
            .unwrap();
        let y = b.layer_norm("n", e).unwrap();
        let y = if tied {
            b.project_tied("h", y, e).unwrap()
        } else {
            b.project("h", y, 5, false, ParameterInit::deviation(1.0))
                .unwrap()
        };
        b.end(y, LossFunction::CrossEntropy { classes: 5 })
    });
    let params = tied.init(3);
    // Transposes 5 × 3 to 3 × 5.
    let mut more = params.clone();
    more.extend((0..15).map(|i| params[i % 5 * 3 + i / 5]));
    let inputs: Vec<f32> = (0..12).map(|i| (i * 7 % 5) as f32).collect();
    let classes: Vec<u32> = (0..12).map(|i| i * 3 % 5).collect();
    let batch = crate::model::Batch::classes(&inputs, &classes);
    let (mut grads, mut other) = (vec![f32::NAN; 21], vec![0.0; 36]);
    // Several parts, so that later gradients are added.
    let mut told = Vec::new();
    let loss = tied.loss_and_grad_telling(
        &mut tied.workspace(2, 1),
        &params,
        &batch,
        &mut grads,
        &mut |range, grads| told.push((range.clone(), grads[range].to_vec())),
    );
    let expected = apart.loss_and_grad(&mut apart.workspace(3, 1), &more, &batch, &mut other);
    assert!((loss.loss_sum - expected.loss_sum).abs() < 1e-6);
    let sum: Vec<f64> = (0..21)
        .map(|i| {
            f64::from(other[i])
                + if i < 15 {
                    f64::from(other[21 + i % 3 * 5 + i / 3])
                } else {
                    0.0
                }
        })
        .collect();
    assert_close(&grads, &sum, "tied");
    assert_eq!(
        told,
        [
            (15..21, grads[15..].to_vec()),
            (0..15, grads[..15].to_vec())
        ]
    );
}

#[test]
fn invalid_layers_are_named() {
    let mut b = NetworkBuilder::new(ExampleShape::Row { columns: 6 }).unwrap();
    let x = b.input();
    let said = [
        b.embedding("e", x, 4, FILL).unwrap_err().to_string(),
        b.lstm("l", x, 4).unwrap_err().to_string(),
        b.dropout("d", x, 1.0).unwrap_err().to_string(),
        b.project_tied("h", x, x).unwrap_err().to_string(),
    ];
    assert_eq!(
        said,
        [
            "e reads tokens, but what comes to it is [6]",
            "l reads a sequence (positions × features), but what comes to it is [6]",
            "d drops 1 of its input; it can be 0 to less than 1",
            "h reads the table of an embedding, but what comes to it is [6]",
        ]
    );
    let mut b = NetworkBuilder::new(ExampleShape::Tokens {
        length: 3,
        vocabulary: 7,
    })
    .unwrap();
    let x = b.input();
    let e = b.embedding("e", x, 12, FILL).unwrap();
    let said = [
        b.attention("a", e, 3).unwrap_err().to_string(),
        b.lstm("l", e, 0).unwrap_err().to_string(),
        b.project("p", e, 0, false, FILL).unwrap_err().to_string(),
    ];
    assert_eq!(
        said,
        [
            "a has 3 heads, which do not divide its width 4",
            "l has 0 outputs; it needs at least 1",
            "p has 0 outputs; it needs at least 1",
        ]
    );
}
