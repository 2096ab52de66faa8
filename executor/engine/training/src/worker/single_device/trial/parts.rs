//! Steps in several passes, and steps with clipping.

use super::{Outside, TrialJob, apart, assert_same, assert_undisturbed, evaluations, launch};
use crate::checkpoint::{CheckpointArena, Contents, Manifest};
use crate::worker::context::ExitReason;
use muster_compute::cuda::Device;
use muster_model::assignment::{TaskLaunch, TaskReport};
use serde_json::{Value, json};

/// Limit for the norm of a step's gradients.
const LIMIT: f64 = 0.3;

/// Returns a job with batch statistics per pass, random draws, and an update rule that depends on
/// the norm of the gradients.
fn document(engine: &Value) -> TaskLaunch {
    let layers = json!([
        { "kind": "conv", "channels": 3, "stride": 4, "bias": false },
        { "kind": "batch_norm", "relu": true },
        { "kind": "dropout", "share": 0.25 },
    ]);
    let mut document = json!({
        "model": { "kind": "layers", "layers": layers },
        "optimizer": { "kind": "sgd", "learning_rate": 0.05, "momentum": 0.9 },
    });
    let more = engine.as_object().unwrap().clone();
    document.as_object_mut().unwrap().extend(more);
    let mut launch = launch(&json!({}));
    let mut spec = serde_json::to_value(&launch.spec).unwrap();
    spec["engine"]
        .as_object_mut()
        .unwrap()
        .extend(document.as_object().unwrap().clone());
    launch.spec = serde_json::from_value(spec).unwrap();
    assert_eq!(launch.spec.validate(), Ok(()));
    launch
}

/// Returns enough images for the end of an epoch.
fn images(launch: &TaskLaunch) -> u32 {
    launch.spec.engine().batch.max(90) + 7
}

/// Returns the state after the last step and the reports.
fn trained(
    launch: &TaskLaunch,
    device: &Device,
) -> ((Manifest, Contents<CheckpointArena>), Vec<TaskReport>) {
    let job = TrialJob::with_images(images(launch));
    let ran = job.run(launch.clone(), 1, device, Outside::Nothing);
    let (ending, reports) = ran.unwrap();
    assert_eq!(ending, ExitReason::Finished);
    (job.kept(launch), reports)
}

/// Returns the losses of a job: of its epochs, then of its evaluations.
fn losses(manifest: &Manifest, reports: &[TaskReport]) -> Vec<f64> {
    let tested = evaluations(reports).into_iter().filter_map(|e| e.loss);
    let of_epochs = manifest.curve.epoch_losses.clone();
    of_epochs.into_iter().chain(tested).collect()
}

/// Compares a device-resident job with the CPU, and with itself: repeated, suspended, stopped and
/// resumed.
fn check(what: &str, engine: &Value) {
    let launch = document(engine);
    let ((plain, expected), on_cpu) = trained(&launch, &Device::Cpu);
    let ((manifest, found), on_gpu) = trained(&launch, &Device::Emulated);
    assert!(
        !on_gpu
            .iter()
            .any(|report| matches!(report, TaskReport::Listening { .. })),
        "{what}: it stays on the device"
    );
    let (plain, seen) = (losses(&plain, &on_cpu), losses(&manifest, &on_gpu));
    assert!(seen.len() > 3 && seen.len() == plain.len(), "{what}");
    for (expected, found) in plain.iter().zip(&seen) {
        let off = (found - expected).abs() / expected;
        assert!(off < 1e-4, "{what}: {found}, not {expected}");
    }
    let planes = expected.state.iter().zip(&found.state);
    for (expected, found) in planes.chain([(&expected.parameters, &found.parameters)]) {
        let apart = apart(expected, found);
        assert!(apart < 1e-3, "{what}: {apart} apart");
    }
    assert_same(what, &trained(&launch, &Device::Emulated).0.1, &found);
    assert_undisturbed(&launch, &found, images(&launch));
}

/// Passes of three, three and two examples.
#[test]
fn accumulated_passes_stay_on_the_device() {
    check("accumulate", &json!({ "accumulate": 3 }));
}

/// Passes of 256 and 44 examples.
#[test]
fn batch_of_several_passes_stays_on_the_device() {
    check("a large batch", &json!({ "batch": 300 }));
}

#[test]
fn clipping_stays_on_the_device() {
    check("clipped", &json!({ "clip_norm": LIMIT }));
}

#[test]
fn passes_with_clipping_stay_on_the_device() {
    let engine = json!({ "batch": 300, "accumulate": 7, "clip_norm": LIMIT });
    check("clipped, in passes", &engine);
}

/// Returns the parameters that a device-resident job trains.
fn trained_parameters(engine: &Value) -> Vec<f32> {
    let ((_, contents), _) = trained(&document(engine), &Device::Emulated);
    contents.parameters.to_vec()
}

/// Proves that clipping and passes change the result; otherwise the tests above would show nothing.
#[test]
fn clipping_and_passes_change_the_parameters() {
    let plain = trained_parameters(&json!({}));
    for engine in [json!({ "clip_norm": LIMIT }), json!({ "accumulate": 3 })] {
        let apart = apart(&plain, &trained_parameters(&engine));
        assert!(apart > 0.01, "{engine}: {apart} apart");
    }
}
