//! Update loops.

use super::config::{OptimizerConfig, UpdateRule};
use crate::simd::vectorised;

impl OptimizerConfig {
    /// Returns the learning rate of `step`, which counts from 0.
    #[must_use]
    pub fn learning_rate(&self, step: u64) -> f64 {
        self.rule.lr() * self.schedule.factor(step)
    }

    /// Updates `params`, a whole tensor, in step number `step`, which counts from 0. `grads` are
    /// sums over examples and are multiplied by `grad_scale`, usually 1 / global batch. `state`
    /// holds [`Self::state_len_per_param`] elements per parameter, initially 0. It consists of one
    /// plane after another, in the order of [`Self::state_names`].
    ///
    /// # Panics
    /// If the lengths do not match.
    pub fn update(
        &self,
        step: u64,
        params: &mut [f32],
        grads: &[f32],
        state: &mut [f32],
        grad_scale: f32,
    ) {
        assert_eq!(
            state.len(),
            params.len() * self.state_len_per_param(),
            "this optimizer's state"
        );
        let trust = self.trust(params, grads, grad_scale);
        let (first, second) = state.split_at_mut(params.len().min(state.len()));
        self.update_part(step, params, grads, [first, second], grad_scale, trust);
    }

    /// Returns λ of a tensor under LARS, 1 under every other rule.
    pub fn trust(&self, params: &[f32], grads: &[f32], grad_scale: f32) -> f32 {
        let UpdateRule::Lars {
            weight_decay,
            trust,
            ..
        } = self.rule
        else {
            return 1.0;
        };
        let norm = square_sum(params).sqrt();
        let grad_norm = f64::from(grad_scale) * square_sum(grads).sqrt();
        if norm == 0.0 || grad_norm == 0.0 {
            return 1.0;
        }
        (trust * norm / (grad_norm + weight_decay * norm)) as f32
    }

    /// Updates a part of a tensor with a given [`Self::trust`]. `planes` are the state of the part:
    /// as long as `params` where the rule uses the plane, else empty.
    pub fn update_part(
        &self,
        step: u64,
        params: &mut [f32],
        grads: &[f32],
        planes: [&mut [f32]; 2],
        grad_scale: f32,
        trust: f32,
    ) {
        assert_eq!(params.len(), grads.len(), "one gradient per parameter");
        let lr = self.learning_rate(step);
        let [first, second] = planes;
        match self.rule {
            UpdateRule::Sgd {
                momentum,
                nesterov,
                weight_decay,
                ..
            } => {
                let factors = [lr as f32, momentum as f32, weight_decay as f32, grad_scale];
                if momentum == 0.0 {
                    sgd(params, grads, factors);
                } else if nesterov {
                    sgd_nesterov(params, grads, first, factors);
                } else {
                    sgd_momentum(params, grads, first, factors);
                }
            }
            UpdateRule::Lars {
                momentum,
                weight_decay,
                ..
            } => {
                let factors = [
                    lr as f32 * trust,
                    momentum as f32,
                    weight_decay as f32,
                    grad_scale,
                ];
                if momentum == 0.0 {
                    sgd(params, grads, factors);
                } else {
                    lars(params, grads, first, factors);
                }
            }
            UpdateRule::AdaGrad {
                eps, weight_decay, ..
            } => {
                let factors = [lr as f32, eps as f32, weight_decay as f32, grad_scale];
                adagrad(params, grads, first, factors);
            }
            UpdateRule::RmsProp {
                rho,
                eps,
                momentum,
                weight_decay,
                ..
            } => {
                let factors = [lr as f32, eps as f32, weight_decay as f32, grad_scale];
                let rho = [rho as f32, (1.0 - rho) as f32];
                if momentum == 0.0 {
                    rmsprop(params, grads, first, factors, rho);
                } else {
                    rmsprop_momentum(params, grads, first, second, factors, rho, momentum as f32);
                }
            }
            UpdateRule::Adam {
                beta1,
                beta2,
                eps,
                weight_decay,
                decoupled,
                ..
            } => {
                // The two bias corrections are folded into the rate and into epsilon:
                // m̂ / (√v̂ + ε) = (√c₂ / c₁) · m / (√v + ε·√c₂).
                let time = step as f64 + 1.0;
                let root = (1.0 - beta2.powf(time)).sqrt();
                let (penalty, shrink) = if decoupled {
                    (0.0, lr * weight_decay)
                } else {
                    (weight_decay, 0.0)
                };
                let factors = AdamFactors {
                    rate: (lr * root / (1.0 - beta1.powf(time))) as f32,
                    beta1: beta1 as f32,
                    beta2: beta2 as f32,
                    new1: (1.0 - beta1) as f32,
                    new2: (1.0 - beta2) as f32,
                    eps: (eps * root) as f32,
                    weight_decay: penalty as f32,
                    keep: (1.0 - shrink) as f32,
                    grad_scale,
                };
                adam(params, grads, first, second, factors);
            }
        }
    }
}

/// Updates running statistics by their gradients, without rule, learning rate or decay.
pub fn follow(params: &mut [f32], grads: &[f32], grad_scale: f32) {
    for (p, g) in params.iter_mut().zip(grads) {
        *p -= grad_scale * g;
    }
}

/// Sum of squares in eight partial sums in f64, which are added in order.
pub(super) fn square_sum(values: &[f32]) -> f64 {
    let mut sums = [0.0_f64; 8];
    let mut chunks = values.chunks_exact(8);
    for chunk in &mut chunks {
        for (sum, value) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(*value) * f64::from(*value);
        }
    }
    for (sum, value) in sums.iter_mut().zip(chunks.remainder()) {
        *sum += f64::from(*value) * f64::from(*value);
    }
    sums.iter().sum()
}

/// Factors of one step, each rounded to f32 once.
#[derive(Clone, Copy)]
struct AdamFactors {
    rate: f32,
    beta1: f32,
    beta2: f32,
    new1: f32,
    new2: f32,
    eps: f32,
    weight_decay: f32,
    /// Factor that decoupled decay applies to a parameter; 1 without it.
    keep: f32,
    grad_scale: f32,
}

vectorised! {
    fn sgd(params: &mut [f32], grads: &[f32], factors: [f32; 4]) {
        let [lr, _, weight_decay, grad_scale] = factors;
        for (p, g) in params.iter_mut().zip(grads) {
            *p -= lr * (grad_scale * g + weight_decay * *p);
        }
    }

    fn sgd_momentum(params: &mut [f32], grads: &[f32], velocity: &mut [f32], factors: [f32; 4]) {
        let [lr, momentum, weight_decay, grad_scale] = factors;
        for ((p, g), v) in params.iter_mut().zip(grads).zip(velocity) {
            let g = grad_scale * g + weight_decay * *p;
            *v = momentum * *v + g;
            *p -= lr * *v;
        }
    }

    fn sgd_nesterov(params: &mut [f32], grads: &[f32], velocity: &mut [f32], factors: [f32; 4]) {
        let [lr, momentum, weight_decay, grad_scale] = factors;
        for ((p, g), v) in params.iter_mut().zip(grads).zip(velocity) {
            let g = grad_scale * g + weight_decay * *p;
            *v = momentum * *v + g;
            *p -= lr * (g + momentum * *v);
        }
    }

    fn lars(params: &mut [f32], grads: &[f32], velocity: &mut [f32], factors: [f32; 4]) {
        let [rate, momentum, weight_decay, grad_scale] = factors;
        for ((p, g), v) in params.iter_mut().zip(grads).zip(velocity) {
            *v = momentum * *v + rate * (grad_scale * g + weight_decay * *p);
            *p -= *v;
        }
    }

    fn adagrad(params: &mut [f32], grads: &[f32], squares: &mut [f32], factors: [f32; 4]) {
        let [lr, eps, weight_decay, grad_scale] = factors;
        for ((p, g), s) in params.iter_mut().zip(grads).zip(squares) {
            let g = grad_scale * g + weight_decay * *p;
            *s += g * g;
            *p -= lr * g / (s.sqrt() + eps);
        }
    }

    fn rmsprop(params: &mut [f32], grads: &[f32], squares: &mut [f32], factors: [f32; 4], rho: [f32; 2]) {
        let [lr, eps, weight_decay, grad_scale] = factors;
        for ((p, g), s) in params.iter_mut().zip(grads).zip(squares) {
            let g = grad_scale * g + weight_decay * *p;
            *s = rho[0] * *s + rho[1] * (g * g);
            *p -= lr * g / (s.sqrt() + eps);
        }
    }

    fn rmsprop_momentum(
        params: &mut [f32], grads: &[f32], squares: &mut [f32], velocity: &mut [f32], factors: [f32; 4], rho: [f32; 2], momentum: f32,
    ) {
        let [lr, eps, weight_decay, grad_scale] = factors;
        for (((p, g), s), v) in params.iter_mut().zip(grads).zip(squares).zip(velocity) {
            let g = grad_scale * g + weight_decay * *p;
            *s = rho[0] * *s + rho[1] * (g * g);
            *v = momentum * *v + g / (s.sqrt() + eps);
            *p -= lr * *v;
        }
    }

    fn adam(params: &mut [f32], grads: &[f32], first: &mut [f32], second: &mut [f32], factors: AdamFactors) {
        let f = factors;
        for (((p, g), m), v) in params.iter_mut().zip(grads).zip(first).zip(second) {
            let g = f.grad_scale * g + f.weight_decay * *p;
            *m = f.beta1 * *m + f.new1 * g;
            *v = f.beta2 * *v + f.new2 * (g * g);
            *p = f.keep * *p - f.rate * *m / (v.sqrt() + f.eps);
        }
    }
}
