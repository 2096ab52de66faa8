//! Each update rule against its textbook formula, one parameter at a time in f64.

use muster_compute::optimizer::{
    LearningRateDecay, LearningRateSchedule, OptimizerConfig, UpdateRule,
};

const SCALE: f32 = 0.125;

/// Gradient of step `step` at parameter `i`: neither constant nor of one sign, and sometimes 0.
fn gradient(step: u64, i: usize) -> f32 {
    let phase = (step as usize * 31 + i * 17) % 13;
    (phase as f32 - 6.0) * 0.3
}

/// Runs `rule` on an odd number of parameters, so that vector loops have a remainder, and compares
/// with `reference`. Its arguments are the parameter, its two state values, the gradient and the
/// time from 1; it updates the first two.
fn compare(rule: UpdateRule, reference: impl Fn(&mut f64, &mut [f64; 2], f64, i32)) {
    let optimizer = OptimizerConfig::new(rule);
    optimizer.validate().unwrap();
    const LEN: usize = 37;
    let mut params: Vec<f32> = (0..LEN).map(|i| i as f32 / 10.0 - 1.5).collect();
    let mut state = vec![0.0; LEN * optimizer.state_len_per_param()];
    let mut expected: Vec<(f64, [f64; 2])> =
        params.iter().map(|p| (f64::from(*p), [0.0; 2])).collect();
    for step in 0..50 {
        let grads: Vec<f32> = (0..LEN).map(|i| gradient(step, i)).collect();
        optimizer.update(step, &mut params, &grads, &mut state, SCALE);
        for ((p, state), g) in expected.iter_mut().zip(&grads) {
            reference(p, state, f64::from(SCALE * g), step as i32 + 1);
        }
    }
    for (i, (p, (e, slots))) in params.iter().zip(&expected).enumerate() {
        assert!(
            (f64::from(*p) - e).abs() < 3e-5,
            "{rule:?}: parameter {i} is {p}, should be {e}"
        );
        for slot in 0..optimizer.state_len_per_param() {
            let value = f64::from(state[slot * LEN + i]);
            assert!(
                (value - slots[slot]).abs() < 1e-5,
                "{rule:?}: state {slot} of {i} is {value}, should be {}",
                slots[slot]
            );
        }
    }
}

fn sgd(momentum: f64, nesterov: bool, weight_decay: f64) -> UpdateRule {
    let lr = 0.05;
    UpdateRule::Sgd {
        lr,
        momentum,
        nesterov,
        weight_decay,
    }
}

fn adam(weight_decay: f64) -> UpdateRule {
    let (lr, beta1, beta2, eps) = (0.01, 0.9, 0.99, 1e-3);
    UpdateRule::Adam {
        lr,
        beta1,
        beta2,
        eps,
        weight_decay,
        decoupled: false,
    }
}

#[test]
fn sgd_matches_its_formula() {
    for decay in [0.0, 0.02] {
        compare(sgd(0.0, false, decay), |p, _, g, _| {
            *p -= 0.05 * (g + decay * *p)
        });
        compare(sgd(0.9, false, decay), |p, [v, _], g, _| {
            *v = 0.9 * *v + g + decay * *p;
            *p -= 0.05 * *v;
        });
        compare(sgd(0.9, true, decay), |p, [v, _], g, _| {
            let g = g + decay * *p;
            *v = 0.9 * *v + g;
            *p -= 0.05 * (g + 0.9 * *v);
        });
    }
}

#[test]
fn adam_matches_its_formula() {
    for decay in [0.0, 0.02] {
        compare(adam(decay), |p, [m, v], g, t| {
            let g = g + decay * *p;
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.99 * *v + 0.01 * g * g;
            let (m_hat, v_hat) = (*m / (1.0 - 0.9_f64.powi(t)), *v / (1.0 - 0.99_f64.powi(t)));
            *p -= 0.01 * m_hat / (v_hat.sqrt() + 1e-3);
        });
    }
}

/// Decoupled decay shrinks the parameter before the step of Adam.
#[test]
fn adam_with_decoupled_decay_shrinks_first() {
    let (lr, beta1, beta2, eps, weight_decay) = (0.01, 0.9, 0.99, 1e-3, 0.1);
    let decoupled = true;
    let rule = UpdateRule::Adam {
        lr,
        beta1,
        beta2,
        eps,
        weight_decay,
        decoupled,
    };
    compare(rule, |p, [m, v], g, t| {
        *p *= 1.0 - lr * weight_decay;
        *m = beta1 * *m + (1.0 - beta1) * g;
        *v = beta2 * *v + (1.0 - beta2) * g * g;
        let (m, v) = (*m / (1.0 - beta1.powi(t)), *v / (1.0 - beta2.powi(t)));
        *p -= lr * m / (v.sqrt() + eps);
    });
}

#[test]
fn adagrad_matches_its_formula() {
    let (lr, eps, weight_decay) = (0.05, 1e-3, 0.01);
    let rule = UpdateRule::AdaGrad {
        lr,
        eps,
        weight_decay,
    };
    compare(rule, |p, [s, _], g, _| {
        let g = g + weight_decay * *p;
        *s += g * g;
        *p -= lr * g / (s.sqrt() + eps);
    });
}

#[test]
fn rmsprop_matches_its_formula() {
    let (lr, rho, eps, weight_decay) = (0.002, 0.9, 1e-3, 0.01);
    for momentum in [0.0, 0.8] {
        let rule = UpdateRule::RmsProp {
            lr,
            rho,
            eps,
            momentum,
            weight_decay,
        };
        compare(rule, |p, [s, v], g, _| {
            let g = g + weight_decay * *p;
            *s = rho * *s + (1.0 - rho) * g * g;
            let direction = g / (s.sqrt() + eps);
            *v = if momentum == 0.0 {
                0.0
            } else {
                momentum * *v + direction
            };
            *p -= lr * if momentum == 0.0 { direction } else { *v };
        });
    }
}

/// One tensor at a time, because its factor depends on the whole tensor.
#[test]
fn lars_scales_by_the_norms() {
    let (lr, weight_decay, trust) = (0.5, 0.01, 0.02);
    for momentum in [0.0, 0.9] {
        let rule = UpdateRule::Lars {
            lr,
            momentum,
            weight_decay,
            trust,
        };
        let optimizer = OptimizerConfig::new(rule);
        let mut params: Vec<f32> = (0..37).map(|i| i as f32 / 10.0 - 1.5).collect();
        let mut expected: Vec<f64> = params.iter().map(|p| f64::from(*p)).collect();
        let mut velocity = [0.0; 37];
        let mut state = vec![0.0; 37 * optimizer.state_len_per_param()];
        for step in 0..20 {
            let grads: Vec<f32> = (0..37).map(|i| gradient(step, i)).collect();
            optimizer.update(step, &mut params, &grads, &mut state, SCALE);
            let gradients: Vec<f64> = grads.iter().map(|g| f64::from(SCALE * g)).collect();
            let [w, d] = [&expected, &gradients]
                .map(|values| values.iter().map(|x| x * x).sum::<f64>().sqrt());
            let local = lr * trust * w / (d + weight_decay * w);
            for (i, (p, v)) in expected.iter_mut().zip(&mut velocity).enumerate() {
                *v = momentum * *v + local * (gradients[i] + weight_decay * *p);
                *p -= *v;
            }
        }
        for (p, e) in params.iter().zip(&expected) {
            assert!((f64::from(*p) - e).abs() < 1e-5, "{p}, should be {e}");
        }
        let mut still = [0.0; 4];
        let mut state = vec![0.0; 4 * optimizer.state_len_per_param()];
        optimizer.update(0, &mut still, &[0.5; 4], &mut state, 1.0);
        assert!(
            still.iter().all(|p| p.is_finite() && *p < 0.0),
            "from 0 it moves by plain steps"
        );
    }
}

/// A parameter gets the same bits for every cut of the arena into shards.
#[test]
fn a_range_alone_gets_the_same_bits() {
    for rule in [
        sgd(0.0, false, 0.01),
        sgd(0.9, false, 0.01),
        sgd(0.9, true, 0.0),
        adam(0.01),
    ] {
        let optimizer = OptimizerConfig::new(rule);
        let slots = optimizer.state_len_per_param();
        let runs = [vec![0, 101], vec![0, 1, 8, 30, 30, 101]].map(|cuts| {
            let mut params = Vec::new();
            for (&start, &end) in cuts.iter().zip(&cuts[1..]) {
                let mut part: Vec<f32> = (start..end).map(|i| (i as f32).sin()).collect();
                let mut state = vec![0.0; part.len() * slots];
                for step in 0..10 {
                    let grads: Vec<f32> = (start..end).map(|i| gradient(step, i)).collect();
                    optimizer.update(step, &mut part, &grads, &mut state, SCALE);
                }
                params.extend(part.iter().map(|p| p.to_bits()));
            }
            params
        });
        assert_eq!(runs[0], runs[1], "{rule:?}");
    }
}

#[test]
fn the_schedule_reaches_the_update() {
    let schedule = LearningRateSchedule {
        warmup_steps: 2,
        decay: LearningRateDecay::Step {
            every_steps: 2,
            factor: 0.5,
        },
    };
    let optimizer = OptimizerConfig {
        rule: sgd(0.0, false, 0.0),
        schedule,
    };
    let moved: Vec<f32> = (0..4)
        .map(|step| {
            let mut params = [1.0];
            optimizer.update(step, &mut params, &[1.0], &mut [], 1.0);
            ((1.0 - params[0]) * 1e4).round() / 1e4
        })
        .collect();
    assert_eq!(moved, [0.025, 0.05, 0.025, 0.025]);
}

fn refused(rule: UpdateRule) -> String {
    let refused = OptimizerConfig::new(rule).validate();
    refused.unwrap_err().to_string()
}

fn plain_sgd(lr: f64) -> UpdateRule {
    UpdateRule::Sgd {
        lr,
        momentum: 0.0,
        nesterov: false,
        weight_decay: 0.0,
    }
}

#[test]
fn settings_out_of_range_are_named() {
    assert_eq!(
        refused(plain_sgd(0.0)),
        "lr is 0; it must be above 0, at most 100"
    );
    assert_eq!(
        refused(plain_sgd(f64::NAN)),
        "lr is NaN; it must be above 0, at most 100"
    );
    assert_eq!(
        refused(sgd(1.0, false, 0.0)),
        "momentum is 1; it must be 0 to below 1"
    );
    assert_eq!(
        refused(sgd(0.0, true, 0.0)),
        "momentum is 0; it must be above 0 with nesterov"
    );
    assert_eq!(
        refused(sgd(0.5, false, -1.0)),
        "weight_decay is -1; it must be 0 to 1"
    );
    let eps = UpdateRule::Adam {
        lr: 0.1,
        beta1: 0.9,
        beta2: 0.999,
        eps: 0.0,
        weight_decay: 0.0,
        decoupled: false,
    };
    assert_eq!(refused(eps), "eps is 0; it must be 1e-30 to 1");
    let schedule = LearningRateSchedule {
        warmup_steps: 9,
        decay: LearningRateDecay::Cosine {
            total_steps: 9,
            floor: 0.0,
        },
    };
    let refused = OptimizerConfig {
        rule: plain_sgd(0.1),
        schedule,
    }
    .validate()
    .unwrap_err()
    .to_string();
    assert_eq!(
        refused,
        "total_steps is 9; it must be more than warmup_steps"
    );
}

fn read(text: &str) -> serde_json::Result<OptimizerConfig> {
    serde_json::from_str(text)
}

#[test]
fn a_rule_is_read_strictly() {
    let optimizer = read(r#"{"rule":{"kind":"adam","lr":0.001}}"#).unwrap();
    let expected = UpdateRule::Adam {
        lr: 0.001,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
    };
    assert_eq!(optimizer, OptimizerConfig::new(expected));
    assert!(read(r#"{"rule":{"kind":"adam","lr":0.001,"momentum":0.9}}"#).is_err());
    assert!(read(r#"{"rule":{"kind":"adam"}}"#).is_err());
}
