//! Test functions, with the same formulas, spaces and budgets as in `optuna_peer.py`.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::f64::consts::PI;

pub struct Function {
    pub name: &'static str,
    pub parameters: Value,
    pub value: fn(&BTreeMap<String, Value>) -> f64,
}

pub fn functions() -> Vec<Function> {
    vec![
        Function {
            name: "branin",
            parameters: json!([
                {"name": "x0", "type": "float", "low": -5.0, "high": 10.0},
                {"name": "x1", "type": "float", "low": 0.0, "high": 15.0},
            ]),
            value: |p| branin(number(p, "x0"), number(p, "x1")),
        },
        Function {
            name: "hartmann6",
            parameters: axes(6, 0.0, 1.0),
            value: |p| hartmann6(&row(p, 6)),
        },
        Function {
            name: "rosenbrock10",
            parameters: axes(10, -5.0, 10.0),
            value: |p| rosenbrock(&row(p, 10)),
        },
        Function {
            name: "mixed",
            parameters: json!([
                {"name": "kind", "type": "categorical", "choices": ["linear", "tree", "net"]},
                {"name": "penalty", "type": "float", "low": 1e-6, "high": 1.0, "log": true,
                 "when": {"parameter": "kind", "is": ["linear"]}},
                {"name": "depth", "type": "int", "low": 1, "high": 20, "when": {"parameter": "kind", "is": ["tree"]}},
                {"name": "share", "type": "float", "low": 0.1, "high": 1.0, "when": {"parameter": "kind", "is": ["tree"]}},
                {"name": "rate", "type": "float", "low": 1e-5, "high": 1.0, "log": true,
                 "when": {"parameter": "kind", "is": ["net"]}},
                {"name": "width", "type": "int", "low": 8, "high": 1024, "log": true,
                 "when": {"parameter": "kind", "is": ["net"]}},
                {"name": "activation", "type": "categorical", "choices": ["relu", "tanh", "gelu", "selu"],
                 "when": {"parameter": "kind", "is": ["net"]}},
                {"name": "scaling", "type": "categorical", "choices": ["none", "unit", "rank"]},
            ]),
            value: mixed,
        },
    ]
}

/// Parameters `x0`, `x1` and so on.
fn axes(n: usize, low: f64, high: f64) -> Value {
    let axes =
        (0..n).map(|i| json!({"name": format!("x{i}"), "type": "float", "low": low, "high": high}));
    Value::from(axes.collect::<Vec<Value>>())
}

fn number(p: &BTreeMap<String, Value>, name: &str) -> f64 {
    p[name].as_f64().expect("a number")
}

fn text<'p>(p: &'p BTreeMap<String, Value>, name: &str) -> &'p str {
    p[name].as_str().expect("a text")
}

fn row(p: &BTreeMap<String, Value>, n: usize) -> Vec<f64> {
    (0..n).map(|i| number(p, &format!("x{i}"))).collect()
}

/// Minimum 0.397887.
fn branin(x: f64, y: f64) -> f64 {
    let bent = y - 5.1 / (4.0 * PI * PI) * x * x + 5.0 / PI * x - 6.0;
    bent * bent + 10.0 * (1.0 - 1.0 / (8.0 * PI)) * x.cos() + 10.0
}

/// Minimum -3.32237.
fn hartmann6(x: &[f64]) -> f64 {
    const HEIGHTS: [f64; 4] = [1.0, 1.2, 3.0, 3.2];
    const A: [[f64; 6]; 4] = [
        [10.0, 3.0, 17.0, 3.5, 1.7, 8.0],
        [0.05, 10.0, 17.0, 0.1, 8.0, 14.0],
        [3.0, 3.5, 1.7, 10.0, 17.0, 8.0],
        [17.0, 8.0, 0.05, 10.0, 0.1, 14.0],
    ];
    const P: [[f64; 6]; 4] = [
        [0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886],
        [0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991],
        [0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650],
        [0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381],
    ];
    let hills = (0..4).map(|i| {
        let far: f64 = (0..6).map(|j| A[i][j] * (x[j] - P[i][j]).powi(2)).sum();
        HEIGHTS[i] * (-far).exp()
    });
    -hills.sum::<f64>()
}

/// Minimum 0 at (1, ..., 1).
fn rosenbrock(x: &[f64]) -> f64 {
    let pairs = x.windows(2);
    pairs
        .map(|w| 100.0 * (w[1] - w[0] * w[0]).powi(2) + (1.0 - w[0]).powi(2))
        .sum()
}

/// Choice between three kinds of models, each with its own parameters. Minimum 0.1, for a gelu net.
fn mixed(p: &BTreeMap<String, Value>) -> f64 {
    let scaling = match text(p, "scaling") {
        "none" => 0.08,
        "unit" => 0.0,
        _ => 0.03,
    };
    let rest = match text(p, "kind") {
        "linear" => 0.35 + 0.02 * (number(p, "penalty").log10() + 3.0).powi(2),
        "tree" => {
            let depth = (number(p, "depth") - 7.0) / 10.0;
            0.18 + 0.3 * depth * depth + 0.2 * (number(p, "share") - 0.7).powi(2)
        }
        _ => {
            let rate = number(p, "rate").log10() + 2.5;
            let width = number(p, "width").log2() - 7.0;
            let activation = match text(p, "activation") {
                "relu" => 0.02,
                "tanh" => 0.06,
                "gelu" => 0.0,
                _ => 0.04,
            };
            0.1 + 0.06 * (rate + 0.15 * width).powi(2) + 0.01 * width * width + activation
        }
    };
    rest + scaling
}
