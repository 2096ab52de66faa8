//! Submitted documents, and random numbers that select them.

use serde_json::{Value, json};

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub struct WorkloadRandom(u64);

impl WorkloadRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Above 0 and below 1.
    pub fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    pub fn below(&mut self, count: usize) -> usize {
        ((self.uniform() * count as f64) as usize).min(count - 1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// Program of uniform length between both, in tenths of a second.
    Even(u32, u32),
    /// Program of lognormal length: median in tenths of a second, and spread in hundredths.
    Wild(u32, u32),
    /// Program that reports this number of steps.
    Steps(u32),
    /// Built-in engine with 1 to this number of workers and this number of steps.
    Engine(u32, u32),
    /// Built-in engine that stops at a test accuracy.
    Target,
}

/// Kinds with their weights.
const KINDS: [(WorkloadKind, u32); 9] = [
    (WorkloadKind::Even(30, 60), 3),
    (WorkloadKind::Even(100, 200), 3),
    (WorkloadKind::Even(300, 500), 2),
    (WorkloadKind::Even(800, 1_200), 1),
    (WorkloadKind::Wild(120, 60), 2),
    (WorkloadKind::Steps(30), 2),
    (WorkloadKind::Engine(1, 6_000), 2),
    (WorkloadKind::Engine(3, 15_000), 1),
    (WorkloadKind::Target, 1),
];

/// Document that a tenant submits repeatedly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkloadDocument {
    pub tenant: usize,
    pub kind: WorkloadKind,
}

impl WorkloadDocument {
    pub fn thrown(tenant: usize, dice: &mut WorkloadRandom) -> Self {
        let all: u32 = KINDS.iter().map(|(_, weight)| weight).sum();
        let mut left = dice.below(all as usize) as u32;
        for (kind, weight) in KINDS {
            if left < weight {
                return Self { tenant, kind };
            }
            left -= weight;
        }
        unreachable!("the weights add up")
    }

    pub fn is_engine(self) -> bool {
        matches!(self.kind, WorkloadKind::Engine(..) | WorkloadKind::Target)
    }

    pub fn name(self) -> String {
        match self.kind {
            WorkloadKind::Even(least, most) => format!("even-{least}-{most}"),
            WorkloadKind::Wild(middle, _) => format!("wild-{middle}"),
            WorkloadKind::Steps(steps) => format!("steps-{steps}"),
            WorkloadKind::Engine(workers, steps) => format!("engine-{workers}-{steps}"),
            WorkloadKind::Target => "target".to_owned(),
        }
    }

    pub fn json(self) -> Value {
        let name = self.name();
        let program = |script: String, steps: Option<u32>| {
            let mut command = json!({ "argv": ["sh", "-c", script] });
            if let Some(steps) = steps {
                command["steps"] = json!(steps);
            }
            json!({ "version": "muster/v1", "name": name, "command": command })
        };
        match self.kind {
            WorkloadKind::Even(least, most) => {
                let span = most - least;
                program(
                    format!(
                        "{THROW}; sleep $(awk \"BEGIN {{ print ({least} + {span} * $a) / 10 }}\")"
                    ),
                    None,
                )
            }
            WorkloadKind::Wild(middle, spread) => program(
                format!(
                    "{THROW}; sleep $(awk \"BEGIN {{ n = sqrt(-2 * log($a)) * cos(6.2832 * $b); print {middle} / 10 * exp({spread} / 100 * n) }}\")"
                ),
                None,
            ),
            WorkloadKind::Steps(steps) => program(
                format!(
                    "{THROW}; s=$(awk \"BEGIN {{ print 0.2 + 0.3 * $a }}\"); i=0; while [ $i -lt {steps} ]; do i=$((i+1)); sleep $s; echo \"muster: step=$i loss=1\"; done"
                ),
                Some(steps),
            ),
            WorkloadKind::Engine(workers, steps) => {
                engine(&name, workers, json!({ "steps": steps }))
            }
            WorkloadKind::Target => engine(
                &name,
                1,
                json!({ "epochs": 150, "target": { "metric": "test_accuracy", "value": 0.84 } }),
            ),
        }
    }
}

/// Two numbers between 0 and 1 from the kernel.
const THROW: &str = "set -- $(od -An -N4 -tu2 /dev/urandom); a=$(awk \"BEGIN { print ($1 + 0.5) / 65536 }\"); b=$(awk \"BEGIN { print ($2 + 0.5) / 65536 }\")";

fn engine(name: &str, workers: u32, stop: Value) -> Value {
    json!({
        "version": "muster/v1",
        "name": name,
        "engine": {
            "model": { "kind": "mlp", "hidden": [64] },
            "dataset": { "name": "fashion-mnist", "train_limit": 6400, "test_limit": 1000 },
            "optimizer": { "kind": "sgd", "learning_rate": 0.01 },
            "batch": 64,
        },
        "scale": { "workers": { "min": 1, "max": workers }, "ps_shards": { "min": 1, "max": 1 } },
        "stop": stop,
    })
}
