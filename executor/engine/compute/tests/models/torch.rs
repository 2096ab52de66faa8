//! Training runs, update rules and schedules compared with PyTorch's, as stored in
//! `executor/engine/compute/fixtures`.

use crate::fixtures::{Curve, FixtureCase, NumberStream, cases, curves};
use muster_compute::model::{Batch, ImageShape, Network, ParameterBlock, zoo};
use muster_compute::optimizer::{
    LearningRateDecay, LearningRateSchedule, OptimizerConfig, UpdateRule, clip_factor, square_norm,
};
use serde_json::json;

/// Fixed on both sides: the first number of SplitMix64 with the FNV-1a hash of the empty name as
/// seed, and derived values.
#[test]
fn generator_matches_the_fixtures() {
    let stream = NumberStream::new("");
    assert_eq!(stream.number(0), PINNED);
    for (case, name) in cases("dense").iter().zip(["plain", "relu", "one", "wide"]) {
        let (input, _) = case.tensor("input");
        let stream = NumberStream::new(&format!("dense/{name}/input"));
        assert_eq!(input, stream.values(input.len(), 0.0, 1.0));
    }
    let case = &cases("embedding")[0];
    let (tokens, shape) = case.whole("tokens");
    assert_eq!(shape, [5, 3]);
    let stream = NumberStream::new("embedding/tokens");
    assert!((0..15).all(|i| stream.below(i, 9) == tokens[i] as usize));
}

const PINNED: u64 = 0xC381_7C01_6BA4_FF30;

#[test]
fn mlp_trains_as_pytorch_does() {
    let input = ImageShape {
        height: 8,
        width: 8,
        channels: 1,
    };
    let network = zoo::mlp(input, &[32, 32], 10).unwrap();
    for curve in curves("mlp") {
        train(&network, &curve);
    }
}

#[test]
fn cnn_trains_as_pytorch_does() {
    let input = ImageShape {
        height: 8,
        width: 8,
        channels: 1,
    };
    let network = zoo::cnn(input, &[4, 8], &[32], 10).unwrap();
    for curve in curves("cnn") {
        train(&network, &curve);
    }
}

#[test]
fn lstm_trains_as_pytorch_does() {
    let network = zoo::lstm_language_model(16, 32, 16, &[32]).unwrap();
    for curve in curves("lstm") {
        train(&network, &curve);
    }
}

#[test]
fn gpt_trains_as_pytorch_does() {
    for (model, tied) in [("gpt", false), ("gpt_tied", true)] {
        let gpt = zoo::Gpt {
            length: 16,
            vocabulary: 32,
            width: 32,
            blocks: 2,
            heads: 4,
            tied,
            dropout: 0.0,
        };
        let network = zoo::gpt(gpt).unwrap();
        for curve in curves(model) {
            train(&network, &curve);
        }
    }
}

/// Name of one of our blocks in the fixtures.
fn theirs(block: &ParameterBlock) -> String {
    match block.name.as_str() {
        "embedding.weight" | "tokens.weight" | "positions.weight" => {
            block.name.replace(".weight", "")
        }
        name => name.replace("lstm1.", "lstm."),
    }
}

/// Compares the gradient of step 0, then every loss.
fn train(network: &Network, curve: &Curve) {
    let names = curve.parameters.iter().map(|parameter| &parameter.name);
    assert!(names.cloned().eq(network.blocks().iter().map(theirs)));
    let initial = network.blocks().iter();
    let mut params: Vec<f32> = initial.flat_map(|b| curve.initial(&theirs(b))).collect();
    let optimizer = OptimizerConfig::new(match curve.optimizer {
        crate::fixtures::CurveOptimizer::Sgd { lr, momentum } => {
            read(json!({ "kind": "sgd", "lr": lr, "momentum": momentum }))
        }
        crate::fixtures::CurveOptimizer::Adam { lr } => read(json!({ "kind": "adam", "lr": lr })),
    });
    let mut state = vec![0.0; params.len() * optimizer.state_len_per_param()];
    let mut grads = vec![0.0; params.len()];
    let examples = curve.batch(0).1.len();
    let mut workspace = network.workspace(examples, 1);
    let mut losses = Vec::new();
    for step in 0..curve.losses.len() {
        let (inputs, targets) = curve.batch(step);
        let batch = Batch::classes(&inputs, &targets);
        let loss = network.loss_and_grad(&mut workspace, &params, &batch, &mut grads);
        losses.push((loss.loss_sum / targets.len() as f64) as f32);
        let scale = 1.0 / targets.len() as f32;
        if step == 0 {
            for block in network.blocks() {
                let ours: Vec<f32> = grads[block.range()].iter().map(|g| g * scale).collect();
                let what = format!("gradient of {}", block.name);
                curve
                    .tolerance
                    .assert(&what, &ours, curve.gradient(&theirs(block)));
            }
        }
        optimizer.update(step as u64, &mut params, &grads, &mut state, scale);
    }
    let what = format!("{} {:?}", curve.model, curve.optimizer);
    curve.tolerance.assert(&what, &losses, &curve.losses);
    assert!(losses[199] < 0.8 * losses[0], "{what}");
}

#[test]
fn norms_and_clipped_gradients_are_pytorchs() {
    let cases = cases("clipping");
    let mut clipped = 0;
    for case in &cases {
        let limit = case.hyper["max_norm"].as_f64().unwrap();
        let parts = ["weight", "bias"].map(|name| (case.tensor(name).0, 1.0));
        let norm = square_norm(&parts, 1).sqrt();
        case.tolerance
            .assert(&case.name, &[norm as f32], case.tensor("norm").0);
        let factor = clip_factor(limit, norm) as f32;
        clipped += u32::from(factor < 1.0);
        for name in ["weight", "bias"] {
            let ours: Vec<f32> = case.tensor(name).0.iter().map(|g| g * factor).collect();
            let theirs = case.tensor(&format!("{name}_after")).0;
            case.tolerance.assert(&case.name, &ours, theirs);
        }
    }
    assert_eq!((clipped, cases.len()), (1, 2));
}

#[test]
fn rules_update_as_pytorch_does() {
    let mut compared = 0;
    for case in cases("optimizer") {
        let Some(rule) = rule(&case) else { continue };
        let optimizer = OptimizerConfig::new(rule);
        // Only PyTorch's AdaGrad reduces its rate, and its state may have an initial value.
        let rate_decay = case.number_or_zero("lr_decay");
        let begins_with = case.number_or_zero("initial_accumulator_value") as f32;
        for tensor in ["weight", "bias"] {
            let mut params = case.tensor(tensor).0.to_vec();
            let mut state = vec![begins_with; params.len() * optimizer.state_len_per_param()];
            let gradients = case.tensor(&format!("{tensor}_gradient")).0;
            let mut after = Vec::new();
            for (step, gradient) in gradients.chunks(params.len()).enumerate() {
                let optimizer = match rule {
                    // Its corrections depend on the step; its rate is constant.
                    UpdateRule::Adam { .. } => optimizer.clone(),
                    _ => optimizer.for_one(step as u64, 1.0 / (1.0 + step as f64 * rate_decay)),
                };
                optimizer.update(step as u64, &mut params, gradient, &mut state, 1.0);
                after.extend_from_slice(&params);
            }
            case.assert_close(&format!("{tensor}_after"), &after);
        }
        compared += 1;
    }
    // All cases except the one that the engine does not implement.
    assert_eq!(compared, cases("optimizer").len() - 1);
}

/// The rule as a user writes it, so that omitted settings have the engine's defaults. `None` for
/// the centred variant of RMSProp.
fn rule(case: &FixtureCase) -> Option<UpdateRule> {
    let (lr, weight_decay) = (case.number("lr"), case.number_or_zero("weight_decay"));
    match case.name.as_str() {
        "optimizer/adam" | "optimizer/adam_decay" | "optimizer/adamw" => {
            let betas = &case.hyper["betas"];
            Some(read(json!({
                "kind": "adam",
                "lr": lr,
                "beta1": betas[0],
                "beta2": betas[1],
                "eps": case.number("eps"),
                "weight_decay": weight_decay,
                "decoupled": case.name == "optimizer/adamw",
            })))
        }
        "optimizer/adagrad" | "optimizer/adagrad_decay" => Some(read(json!({
            "kind": "adagrad",
            "lr": lr,
            "eps": case.number("eps"),
            "weight_decay": weight_decay,
        }))),
        "optimizer/rmsprop" | "optimizer/rmsprop_momentum" => Some(read(json!({
            "kind": "rmsprop",
            "lr": lr,
            "rho": case.number("alpha"),
            "eps": case.number("eps"),
            "momentum": case.number_or_zero("momentum"),
            "weight_decay": weight_decay,
        }))),
        "optimizer/lars" => Some(read(json!({
            "kind": "lars",
            "lr": lr,
            "momentum": case.number("momentum"),
            "weight_decay": weight_decay,
            "trust": case.number("trust"),
        }))),
        "optimizer/sgd"
        | "optimizer/sgd_decay"
        | "optimizer/momentum"
        | "optimizer/momentum_decay"
        | "optimizer/nesterov" => Some(read(json!({
            "kind": "sgd",
            "lr": lr,
            "momentum": case.number_or_zero("momentum"),
            "nesterov": case.hyper["nesterov"] == true,
            "weight_decay": weight_decay,
        }))),
        "optimizer/rmsprop_centered" => None,
        name => panic!("no rule for {name}"),
    }
}

fn read(rule: serde_json::Value) -> UpdateRule {
    serde_json::from_value(rule).unwrap()
}

#[test]
fn rates_follow_pytorchs_schedules() {
    for case in cases("schedule") {
        let whole = |name| case.number(name) as u64;
        let decay = match case.name.as_str() {
            "schedule/constant" => LearningRateDecay::Constant,
            "schedule/cosine" => LearningRateDecay::Cosine {
                total_steps: whole("total_steps"),
                floor: case.number("floor"),
            },
            "schedule/step" => LearningRateDecay::Step {
                every_steps: whole("every_steps"),
                factor: case.number("factor"),
            },
            "schedule/polynomial" => LearningRateDecay::Polynomial {
                total_steps: whole("total_steps"),
                power: case.number("power"),
            },
            name => panic!("no schedule for {name}"),
        };
        let warmup_steps = whole("warmup_steps");
        let schedule = LearningRateSchedule {
            warmup_steps,
            decay,
        };
        let (factors, _) = case.tensor("factor");
        let ours: Vec<f32> = (0..factors.len() as u64)
            .map(|step| schedule.factor(step) as f32)
            .collect();
        case.assert_close("factor", &ours);
    }
}
