//! The update loops.

use super::config::{Optimizer, Rule};
use crate::layer::simd::vectorised;

impl Optimizer {
    /// Learning rate of `step`, which counts from 0.
    #[must_use]
    pub fn learning_rate(&self, step: u64) -> f64 {
        let (Rule::Sgd { lr, .. } | Rule::Adam { lr, .. }) = self.rule;
        lr * self.schedule.factor(step)
    }

    /// Updates `params` by step number `step`, which counts from 0. `grads` are sums over examples and are multiplied by `grad_scale`, usually
    /// 1 / global batch. `state` holds [`Self::state_len_per_param`] numbers per parameter, at first all 0: all parameters' first number,
    /// then all parameters' second, in the order of [`Self::state_names`].
    ///
    /// # Panics
    /// When the lengths do not fit together.
    pub fn update(
        &self,
        step: u64,
        params: &mut [f32],
        grads: &[f32],
        state: &mut [f32],
        grad_scale: f32,
    ) {
        assert_eq!(params.len(), grads.len(), "one gradient per parameter");
        assert_eq!(
            state.len(),
            params.len() * self.state_len_per_param(),
            "this optimizer's state"
        );
        let lr = self.learning_rate(step);
        match self.rule {
            Rule::Sgd {
                momentum: 0.0,
                weight_decay,
                ..
            } => sgd(params, grads, lr as f32, weight_decay as f32, grad_scale),
            Rule::Sgd {
                momentum,
                nesterov,
                weight_decay,
                ..
            } => {
                let factors = [lr as f32, momentum as f32, weight_decay as f32, grad_scale];
                if nesterov {
                    sgd_nesterov(params, grads, state, factors);
                } else {
                    sgd_momentum(params, grads, state, factors);
                }
            }
            Rule::Adam {
                beta1,
                beta2,
                eps,
                weight_decay,
                ..
            } => {
                let (first, second) = state.split_at_mut(params.len());
                // The two bias corrections, folded into the rate and into epsilon: m̂ / (√v̂ + ε) = (√c₂ / c₁) · m / (√v + ε·√c₂).
                let time = step as f64 + 1.0;
                let root = (1.0 - beta2.powf(time)).sqrt();
                let factors = AdamFactors {
                    rate: (lr * root / (1.0 - beta1.powf(time))) as f32,
                    beta1: beta1 as f32,
                    beta2: beta2 as f32,
                    new1: (1.0 - beta1) as f32,
                    new2: (1.0 - beta2) as f32,
                    eps: (eps * root) as f32,
                    weight_decay: weight_decay as f32,
                    grad_scale,
                };
                adam(params, grads, first, second, factors);
            }
        }
    }
}

/// Of one step, rounded to f32 once.
#[derive(Clone, Copy)]
struct AdamFactors {
    rate: f32,
    beta1: f32,
    beta2: f32,
    new1: f32,
    new2: f32,
    eps: f32,
    weight_decay: f32,
    grad_scale: f32,
}

vectorised! {
    fn sgd(params: &mut [f32], grads: &[f32], lr: f32, weight_decay: f32, grad_scale: f32) {
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

    fn adam(params: &mut [f32], grads: &[f32], first: &mut [f32], second: &mut [f32], factors: AdamFactors) {
        let f = factors;
        for (((p, g), m), v) in params.iter_mut().zip(grads).zip(first).zip(second) {
            let g = f.grad_scale * g + f.weight_decay * *p;
            *m = f.beta1 * *m + f.new1 * g;
            *v = f.beta2 * *v + f.new2 * (g * g);
            *p -= f.rate * *m / (v.sqrt() + f.eps);
        }
    }
}
