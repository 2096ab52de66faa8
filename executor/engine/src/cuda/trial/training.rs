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

/// Five steps on the CPU, tensor by tensor: parameters, and the state's planes.
fn train(network: &Network, optimizer: &Optimizer, scale: f32) -> (Vec<f32>, Vec<Vec<f32>>) {
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
    let plane = |number: usize| {
        let blocks = network.blocks().iter().zip(&states);
        let parts = blocks.map(|(block, state)| &state[number * block.len..][..block.len]);
        parts.collect::<Vec<_>>().concat()
    };
    let planes = (0..planes).map(plane).collect();
    (params, planes)
}

fn resident(network: &Network, optimizer: &Optimizer, params: &[f32]) -> Resident {
    let queue = Box::new(Emulator::new(Kind::F32));
    let planes = optimizer.state_len_per_param();
    let session = Session::new(network, queue, Kind::F32, 7, planes).expect("room");
    Resident::with(session, network, optimizer.clone(), params).expect("room")
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
        let (expected, planes) = train(&network, &optimizer, scale);
        let params = network.init(3);
        let mut resident = resident(&network, &optimizer, &params);
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
        let mut found = resident.parameters().expect("parameters");
        let mut state = vec![vec![0.0; found.len()]; planes.len()];
        resident.read(&mut found, &mut state).expect("a state");
        for (expected, found) in planes.iter().zip(&state) {
            let size = norm(expected.iter().map(|x| f64::from(*x)));
            let differences = expected.iter().zip(found);
            let apart = norm(differences.map(|(e, f)| f64::from(*e) - f64::from(*f)));
            assert!(apart < 2e-3 * size, "{rule:?}: {apart} of {size} off");
        }
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

/// What is read, on the device or while its memory is given back, is what another goes on from to the same bits; and evaluating between two
/// steps changes none.
#[test]
fn a_state_is_read_and_gone_on_from() {
    let network = network();
    let examples = Examples::new(&network);
    let scale = 1.0 / 7.0;
    for rule in rules() {
        let optimizer = Optimizer::new(rule);
        let params = network.init(3);
        let planes = optimizer.state_len_per_param();
        let train = |resident: &mut Resident, steps: usize| {
            for _ in 0..steps {
                resident.lay(&examples.batch());
                resident.step(scale).expect("a step");
            }
        };
        let read = |resident: &mut Resident| {
            let mut all = vec![vec![f32::NAN; params.len()]; 1 + planes];
            let (parameters, state) = all.split_first_mut().expect("parameters");
            resident.read(parameters, state).expect("a state");
            all
        };
        let mut straight = resident(&network, &optimizer, &params);
        train(&mut straight, 4);

        let mut first = resident(&network, &optimizer, &params);
        train(&mut first, 2);
        let evaluate = |resident: &mut Resident| {
            let parts = network.parts_of(3, &examples.batch());
            resident.evaluate(parts).expect("a loss")
        };
        let loss = evaluate(&mut first);
        let kept = read(&mut first);
        first.suspend().expect("suspended");
        assert_eq!(read(&mut first), kept, "{rule:?}");

        let mut second = resident(&network, &optimizer, &network.init(4));
        train(&mut second, 1);
        second.fill(2, &kept[0], &kept[1..]).expect("filled");
        assert_eq!(evaluate(&mut second), loss);
        let mut workspace = network.workspace(3, 1);
        let expected = network.evaluate(&mut workspace, &kept[0], &examples.batch());
        assert!((loss.loss_sum - expected.loss_sum).abs() < 1e-4 * expected.loss_sum);
        train(&mut second, 2);
        assert_eq!(second.steps(), 4);
        assert_eq!(read(&mut second), read(&mut straight), "{rule:?}");
        assert_gaps(second.session());
    }
}
