//! Batch normalisation with encoded gradients: running statistics are sent without a codec, so that
//! evaluation uses the same ones.

use crate::rig::reports::last_accuracy;
use crate::rig::workers::Crew;
use crate::rig::{Rig, RigLaunch, spec};
use muster_model::spec::JobSpec;
use safetensors::SafeTensors;
use serde_json::{Value, json};
use std::fs;

/// A wide layer whose statistics are not a small block, after functions whose values differ so
/// little that the variances become much smaller than their initial 1.
fn normalised(topology: &str, compression: &Value) -> JobSpec {
    let mut all = json!({
        "engine": {
            "model": { "kind": "layers", "layers": [
                { "kind": "flatten" },
                { "kind": "dense", "width": 1100 },
                { "kind": "activation", "function": "sigmoid" },
                { "kind": "batch_norm" },
                { "kind": "dense", "width": 24 },
                { "kind": "activation", "function": "sigmoid" },
                { "kind": "batch_norm" }
            ] },
            "optimizer": { "kind": "sgd", "learning_rate": 0.02 }
        },
        "exchange": { "topology": topology, "compression": compression },
        "stop": { "epochs": 10 }
    });
    if topology == "all_reduce" {
        all["scale"] =
            json!({ "workers": { "min": 1, "max": 4 }, "ps_shards": { "min": 0, "max": 0 } });
    }
    let spec = spec(all);
    assert_eq!(spec.validate(), Ok(()));
    spec
}

/// Test accuracy and running variances by layer of a job of two workers that ran to its end.
fn trained(topology: &str, compression: Value) -> (f64, Vec<Vec<f32>>) {
    let rig = Rig::new();
    let spec = normalised(topology, &compression);
    let accuracy = match topology {
        "all_reduce" => {
            let mut crew = Crew::start(&rig, &RigLaunch::new(1, 2, 0, spec));
            crew.succeed();
            last_accuracy(&crew.tasks()[0].events())
        }
        _ => {
            let mut revision = rig.start(&RigLaunch::new(1, 2, 2, spec));
            revision.succeed();
            last_accuracy(&revision.chief().events())
        }
    };
    let model = fs::read(rig.job_folder().join("final-r1/model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&model).unwrap();
    let mut names = tensors.names();
    names.sort_unstable();
    names.retain(|name| name.ends_with(".variance"));
    let variances = names.iter().map(|name| {
        let tensor = tensors.tensor(name).unwrap();
        let (words, _) = tensor.data().as_chunks::<4>();
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    });
    (accuracy, variances.collect())
}

/// Mean of variances, which are positive.
fn mean(numbers: &[f32]) -> f64 {
    assert!(numbers.iter().all(|number| *number > 0.0), "{numbers:?}");
    f64::from(numbers.iter().sum::<f32>()) / numbers.len() as f64
}

#[test]
fn batch_norm_statistics_do_not_depend_on_the_codec() {
    let dgc = json!({ "kind": "dgc", "density": 0.05, "momentum": 0.9, "warm_up_steps": 20 });
    for topology in ["parameter_server", "all_reduce"] {
        let (accuracy, plain) = trained(topology, json!("none"));
        assert!(accuracy > 0.85, "{topology}: {accuracy}");
        for codec in [&dgc, &json!({ "kind": "one_bit" })] {
            let (accuracy, encoded) = trained(topology, json!({ "codec": codec }));
            println!("{topology}, {codec}: {accuracy}");
            assert!(accuracy > 0.85, "{topology}, {codec}: {accuracy}");
            for (plain, encoded) in plain.iter().zip(&encoded) {
                let (plain, encoded) = (mean(plain), mean(encoded));
                println!("variances of {encoded}, without a codec {plain}");
                assert!(
                    (0.4..2.5).contains(&(encoded / plain)),
                    "{topology}, {codec}: variances of {encoded}, without a codec {plain}"
                );
            }
        }
    }
}
