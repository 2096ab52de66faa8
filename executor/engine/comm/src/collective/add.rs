//! Sums of slices. The order of two operands does not change their sum; the callers fix the order
//! of three or more.

use muster_compute::simd::vectorised;

vectorised! {
    /// `out = a + b`. All slices have the same length.
    pub fn add(out: &mut [f32], a: &[f32], b: &[f32]) {
        let len = out.len();
        let (a, b) = (&a[..len], &b[..len]);
        for i in 0..len {
            out[i] = a[i] + b[i];
        }
    }

    /// `out += a`. Both slices have the same length.
    pub fn add_to(out: &mut [f32], a: &[f32]) {
        let len = out.len();
        let a = &a[..len];
        for i in 0..len {
            out[i] += a[i];
        }
    }
}

vectorised! {
    fn sum2(out: &mut [f32], a: &[f32], b: &[f32]) {
        let len = out.len();
        let (a, b) = (&a[..len], &b[..len]);
        for i in 0..len {
            out[i] = a[i] + b[i];
        }
    }

    fn sum3(out: &mut [f32], a: &[f32], b: &[f32], c: &[f32]) {
        let len = out.len();
        let (a, b, c) = (&a[..len], &b[..len], &c[..len]);
        for i in 0..len {
            out[i] = a[i] + b[i] + c[i];
        }
    }

    fn sum4(out: &mut [f32], a: &[f32], b: &[f32], c: &[f32], d: &[f32]) {
        let len = out.len();
        let (a, b, c, d) = (&a[..len], &b[..len], &c[..len], &d[..len]);
        for i in 0..len {
            out[i] = a[i] + b[i] + c[i] + d[i];
        }
    }
}

/// Sets `out` to the sum of all inputs, from the first to the last. Adds four at a time, so that
/// the output is written once for them.
pub fn sum(out: &mut [f32], inputs: &[&[f32]]) {
    let rest = match inputs {
        [] => return out.fill(0.0),
        [a] => return out.copy_from_slice(a),
        [a, b] => return sum2(out, a, b),
        [a, b, c] => return sum3(out, a, b, c),
        [a, b, c, d, rest @ ..] => {
            sum4(out, a, b, c, d);
            rest
        }
    };
    for input in rest {
        add_to(out, input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_adds_any_number_of_inputs_in_order() {
        for n in 0..=9 {
            let inputs: Vec<Vec<f32>> = (0..n)
                .map(|k| {
                    (0..1_003)
                        .map(|i| 1e-3 * (i * (k + 7)) as f32 + 10f32.powi(k))
                        .collect()
                })
                .collect();
            let mut out = vec![f32::NAN; 1_003];
            sum(
                &mut out,
                &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>(),
            );
            for i in 0..1_003 {
                let expected = inputs.iter().map(|input| input[i]).reduce(|a, b| a + b);
                assert_eq!(
                    out[i].to_bits(),
                    expected.unwrap_or(0.0).to_bits(),
                    "{n} inputs"
                );
            }
        }
    }
}
