//! Training that stays on a device, against the CPU's passes and update rules.

use super::devices::Examples;
use super::emulator::Emulator;
use super::{assert_gaps, norm};
use crate::cuda::product::Kind;
use crate::cuda::resident::Resident;
use crate::cuda::session::Session;
use crate::model::zoo::{Goal, Layer, layers};
use crate::model::{Conv, InputShape, Network, Role, Windows};
use crate::optimizer::{Decay, Optimizer, Rule, Schedule};

/// Weights, biases and statistics, some with gaps between them where they are aligned and some without.
fn network() -> Network {
    let input = InputShape {
        height: 5,
        width: 4,
        channels: 2,
    };
    let list = [
        // Before a batch norm a bias has no gradient but noise.
        Layer::Conv(Conv::new(6, Windows::square(3).same()).without_bias()),
        Layer::BatchNorm { relu: true },
        Layer::Dense {
            width: 64,
            relu: true,
        },
    ];
    layers(input, &list, Goal::Classify { classes: 5 }).expect("a network")
}

fn rules() -> Vec<Rule> {
    let (lr, weight_decay) = (0.05, 0.01);
    let sgd = |momentum, nesterov| Rule::Sgd {
        lr,
        momentum,
        nesterov,
        weight_decay,
    };
    let lars = |momentum| Rule::Lars {
        lr,
        momentum,
        weight_decay,
        trust: 0.02,
    };
    let rmsprop = |momentum| Rule::RmsProp {
        lr,
        rho: 0.9,
        eps: 1e-3,
        momentum,
        weight_decay,
    };
    let adam = |decoupled| Rule::Adam {
        lr,
        beta1: 0.8,
        beta2: 0.99,
        eps: 1e-3,
        weight_decay,
        decoupled,
    };
    let adagrad = Rule::AdaGrad {
        lr,
        eps: 1e-3,
        weight_decay,
    };
    let more = [lars(0.0), lars(0.9), rmsprop(0.0), rmsprop(0.9)];
    let mut rules = vec![sgd(0.0, false), sgd(0.9, false), sgd(0.9, true), adagrad];
    rules.extend(more);
    rules.extend([adam(false), adam(true)]);
    rules
}

/// Five steps on the CPU, tensor by tensor.
fn train(network: &Network, optimizer: &Optimizer, scale: f32) -> Vec<f32> {
    let examples = Examples::new(network);
    let mut params = network.init(3);
    let mut grads = vec![0.0; params.len()];
    let mut workspace = network.workspace(7, 1);
    let planes = optimizer.state_len_per_param();
    let mut states: Vec<Vec<f32>> = network
        .blocks()
        .iter()
        .map(|block| vec![0.0; block.len * planes])
        .collect();
    for step in 0..5 {
        network.loss_and_grad(&mut workspace, &params, &examples.batch(), &mut grads);
        for (block, state) in network.blocks().iter().zip(&mut states) {
            let (params, grads) = (&mut params[block.range()], &grads[block.range()]);
            match (block.role, optimizer.rule) {
                (Role::Statistic, _) => crate::optimizer::follow(params, grads, scale),
                // LARS leaves biases and scales their rate.
                (Role::Bias, Rule::Lars { .. }) => {
                    let half = params.len().min(state.len());
                    let (first, second) = state.split_at_mut(half);
                    optimizer.update_part(step, params, grads, [first, second], scale, 1.0);
                }
                _ => optimizer.update(step, params, grads, state, scale),
            }
        }
    }
    params
}

#[test]
fn every_update_rule_is_the_cpus_and_outlives_giving_memory_back() {
    let network = network();
    let schedule = Schedule {
        warmup_steps: 2,
        decay: Decay::Step {
            every_steps: 1,
            factor: 0.9,
        },
    };
    for rule in rules() {
        let optimizer = Optimizer { rule, schedule };
        let scale = 1.0 / 7.0;
        let expected = train(&network, &optimizer, scale);
        let queue = Box::new(Emulator::new(Kind::F32));
        let planes = optimizer.state_len_per_param();
        let session = Session::new(&network, queue, Kind::F32, 7, planes).expect("room");
        let params = network.init(3);
        let mut resident =
            Resident::with(session, &network, optimizer.clone(), &params).expect("room");
        let examples = Examples::new(&network);
        for step in 0..5 {
            if step == 3 {
                resident.suspend().expect("suspended");
                resident.suspend().expect("nothing to do");
                resident.resume().expect("resumed");
            }
            resident.lay(&examples.batch());
            let loss = resident.step(scale).expect("a step");
            assert!(loss.loss_sum.is_finite());
        }
        assert_eq!(resident.steps(), 5);
        assert_gaps(resident.session());
        let found = resident.parameters().expect("parameters");
        for block in network.blocks() {
            let (expected, before) = (&expected[block.range()], &params[block.range()]);
            let of = |a: &[f32], b: &[f32]| {
                norm(a.iter().zip(b).map(|(a, b)| f64::from(*a) - f64::from(*b)))
            };
            let (apart, moved) = (of(expected, &found[block.range()]), of(expected, before));
            assert!(moved > 0.0, "{rule:?} moves {}", block.name);
            let share = apart / moved;
            assert!(share < 2e-3, "{rule:?}: {} is {share} off", block.name);
        }
    }
}
