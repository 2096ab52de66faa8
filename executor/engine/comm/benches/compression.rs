//! Cost of compressing 100 MB of gradients on one thread, relative to the cost of a copy in the
//! same run.
//!
//! The sides alternate, so that other load affects them equally, and medians of the thread's CPU
//! time are compared. Codecs with error feedback keep their state between rounds, as in training;
//! the gradients alternate between two sets. Gradients, state and the copy use huge pages, as an
//! arena does.

use muster_comm::compress::{
    Codec, Correction, DecodeMode, EncodingKey, FeedbackPlane, FeedbackState, HalfCodec,
    HalfFormat, Norm, OneBit, Qsgd, Rounding, Scale, Selection, Sparse, TernGrad, decode, encode,
    max_encoded_bytes,
};
use muster_compute::pages;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;

/// 100 MB.
const LEN: usize = 25_000_000;

const ROUNDS: usize = 25;

fn main() {
    let gradients = [gradients(1), gradients(2)];
    let mut sides: Vec<MeasuredCodec> = codecs()
        .into_iter()
        .map(|(name, target, codec)| MeasuredCodec::new(name, target, codec))
        .collect();
    let mut copy = pages::zeros(LEN);
    let mut copies = Vec::new();
    for round in 0..ROUNDS {
        let gradients = &gradients[round % 2];
        for side in &mut sides {
            // One copy before each side, because load of the machine lasts longer than that.
            copies.push(seconds(|| {
                copy.copy_from_slice(black_box(gradients));
                black_box(&mut copy);
            }));
            side.round(round as u64, gradients, &mut copy);
        }
    }
    let copy = median(copies);
    println!(
        "\n100 MB of gradients, one thread; memcpy {:.2} ms",
        copy * 1e3
    );
    println!(
        "{:>34} {:>10} {:>8} {:>8} {:>8} {:>10} {:>8}",
        "codec", "encode ms", "/memcpy", "target", "ratio", "decode ms", "/memcpy"
    );
    for side in sides {
        let (encode, decode) = (median(side.encode), median(side.decode));
        println!(
            "{:>34} {:>10.2} {:>8.2} {:>8} {:>8.1} {:>10.2} {:>8.2}",
            side.name,
            encode * 1e3,
            encode / copy,
            side.target,
            LEN as f64 * 4.0 / side.bytes as f64,
            decode * 1e3,
            decode / copy
        );
    }
}

/// Name, goal as a multiple of a copy's time, codec.
fn codecs() -> Vec<(&'static str, &'static str, Box<dyn Codec>)> {
    let half = |format, rounding, feedback| Box::new(HalfCodec::new(format, rounding, feedback));
    let qsgd = |bits, norm| Box::new(Qsgd::new(bits, 512, norm).expect("sizes that are allowed"));
    let sparse = |selection, correction| {
        Box::new(Sparse::new(selection, correction).expect("shares that are allowed"))
    };
    let momentum = Correction {
        momentum: 0.9,
        warm_up_steps: 0,
        masking: true,
    };
    vec![
        ("1-bit", "0.90", Box::new(OneBit::new())),
        ("1-bit, portable", "", Box::new(OneBit::portable())),
        ("QSGD, 8 bits", "1.00", qsgd(8, Norm::Largest)),
        (
            "QSGD, 8 bits, portable",
            "",
            Box::new(qsgd(8, Norm::Largest).portable()),
        ),
        ("QSGD, 8 bits, Euclidean", "1.00", qsgd(8, Norm::Euclidean)),
        ("QSGD, 4 bits", "1.00", qsgd(4, Norm::Largest)),
        ("QSGD, 5 bits", "1.00", qsgd(5, Norm::Largest)),
        (
            "TernGrad",
            "1.10",
            Box::new(TernGrad::new(Scale::Group, 2.5)),
        ),
        (
            "TernGrad, portable",
            "",
            Box::new(TernGrad::new(Scale::Group, 2.5).portable()),
        ),
        (
            "TernGrad, one scale a block",
            "",
            Box::new(TernGrad::new(Scale::Block, 2.5)),
        ),
        (
            "top 1 %, exact",
            "2.00",
            sparse(Selection::Exact { density: 0.01 }, None),
        ),
        (
            "top 1 %, sampled",
            "1.05",
            sparse(Selection::Sampled { density: 0.01 }, None),
        ),
        (
            "top 0.1 %, sampled",
            "",
            sparse(Selection::Sampled { density: 0.001 }, None),
        ),
        (
            "DGC, 0.1 %, sampled",
            "",
            sparse(Selection::Sampled { density: 0.001 }, Some(momentum)),
        ),
        ("fp16", "", half(HalfFormat::F16, Rounding::Nearest, false)),
        ("bf16", "", half(HalfFormat::Bf16, Rounding::Nearest, false)),
        (
            "bf16, stochastic",
            "",
            half(HalfFormat::Bf16, Rounding::Stochastic, false),
        ),
        (
            "fp16 with feedback",
            "",
            half(HalfFormat::F16, Rounding::Nearest, true),
        ),
    ]
}

struct MeasuredCodec {
    name: &'static str,
    target: &'static str,
    codec: Box<dyn Codec>,
    residual: Vec<f32>,
    velocity: Vec<f32>,
    out: Vec<u8>,
    bytes: usize,
    encode: Vec<f64>,
    decode: Vec<f64>,
}

impl MeasuredCodec {
    fn new(name: &'static str, target: &'static str, codec: Box<dyn Codec>) -> Self {
        let [residual, velocity] =
            [FeedbackPlane::Residual, FeedbackPlane::Velocity].map(|plane| {
                if codec.planes().contains(&plane) {
                    pages::zeros(LEN)
                } else {
                    Vec::new()
                }
            });
        Self {
            name,
            target,
            residual,
            velocity,
            out: pages::zeros(max_encoded_bytes(&*codec, LEN)),
            codec,
            bytes: 0,
            encode: Vec::new(),
            decode: Vec::new(),
        }
    }

    fn round(&mut self, step: u64, gradients: &[f32], sum: &mut [f32]) {
        let key = EncodingKey {
            seed: 7,
            step,
            block: 0,
        };
        let encode = seconds(|| {
            let state = FeedbackState {
                residual: &mut self.residual,
                velocity: &mut self.velocity,
            };
            self.bytes = encode(
                &*self.codec,
                key,
                black_box(gradients),
                state,
                &mut self.out,
            );
        });
        let bytes = &self.out[..self.bytes];
        let decode = seconds(|| {
            decode(&*self.codec, black_box(bytes), sum, DecodeMode::Add).expect("our own bytes");
        });
        // The first rounds touch new memory, and the residual has not reached its usual size.
        if step >= ROUNDS as u64 / 4 {
            self.encode.push(encode);
            self.decode.push(decode);
        }
    }
}

/// CPU seconds of this thread: other processes count only through the memory bandwidth that they
/// use.
fn seconds(work: impl FnOnce()) -> f64 {
    let began = thread_seconds();
    work();
    thread_seconds() - began
}

fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Layers of different scale, with heavier tails than a normal distribution.
fn gradients(seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut draw = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    let mut gradients = pages::zeros(LEN);
    for (index, gradient) in gradients.iter_mut().enumerate() {
        let scale = 0.01 / (1.0 + (index >> 20) as f32);
        let normal = draw() + draw() + draw() + draw();
        *gradient = scale * normal * (0.3 + normal * normal);
    }
    gradients
}
