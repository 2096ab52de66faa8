//! Steps in several passes, of which the last one's gradients are summed, and steps with clipping.

use super::*;

/// Returns a job with an update rule that depends on the gradients' norm, and a limit that all
/// exceed.
fn clipped(more: &Value) -> Value {
    let mut engine = json!({
        "optimizer": { "kind": "sgd", "learning_rate": 0.05, "momentum": 0.9 },
        "clip_norm": 0.3,
    });
    let more = more.as_object().unwrap().clone();
    engine.as_object_mut().unwrap().extend(more);
    json!({ "engine": engine })
}

/// Compares this job of `workers` workers with sums on the host. Each sum is made once per step,
/// and once for the end of training.
fn check(what: &str, more: &Value, images: u32, workers: usize) {
    let expected = on_host_of(TrialJob::with_images(images), more);
    let (job, gpus) = (TrialJob::with_images(images), gpus::<3>());
    let (used, launch) = (&gpus[..workers], asking(more));
    assert_eq!(launch.spec.validate(), Ok(()));
    assert_finished(&start(&job, &launch, &devices(used), workers, NOTHING));
    assert_eq!(sums(used), vec![STEPS + 1; workers], "{what}");
    assert_near(what, &job, &expected);
}

/// Passes of two and one examples on two workers, one and one on the third.
#[test]
fn passes_are_added_before_the_sum() {
    let more = json!({ "engine": { "accumulate": 2 } });
    check("accumulate", &more, 96, 3);
}

/// One worker has 257 examples in two passes, the other 256 in one.
#[test]
fn part_of_two_passes_is_summed_with_part_of_one() {
    let more = json!({ "engine": { "batch": 513, "model": { "hidden": [2] } } });
    check("a large batch", &more, 520, 2);
}

/// Returns the parameters that two workers train.
fn trained_by_two(engine: &Value) -> Vec<f32> {
    let launch = asking(engine);
    let job = TrialJob::new();
    start(&job, &launch, &devices(&gpus::<2>()), 2, NOTHING);
    job.kept(&launch).1.parameters.to_vec()
}

/// Also checks that clipping changes the parameters.
#[test]
fn gradients_are_clipped_after_the_sum() {
    check("clipped", &clipped(&json!({})), 96, 3);
    check("both", &clipped(&json!({ "accumulate": 2 })), 96, 2);
    let without = trained_by_two(&clipped(&json!({ "clip_norm": null })));
    let apart = apart(&without, &trained_by_two(&clipped(&json!({}))));
    assert!(apart > 0.01, "{apart} apart");
}

#[test]
fn suspension_and_stop_keep_bits_of_clipped_passes() {
    assert_undisturbed(&asking(&clipped(&json!({ "accumulate": 2 }))));
}

/// The others' examples exceed their pinned memory, although their passes are no larger.
#[test]
fn survivors_take_over_parts_of_dead_worker() {
    let more = clipped(&json!({ "batch": 771, "model": { "kind": "mlp", "hidden": [2] } }));
    let expected = on_host_of(TrialJob::with_images(780), &more);
    let (job, mut gpus) = (TrialJob::with_images(780), gpus::<3>());
    gpus[2] = Arc::new(EmulatedGpu::new(2, StandInBehaviour::Usual).dying_in(5));
    let ended = start(&job, &asking(&more), &devices(&gpus), 3, NOTHING);
    assert!(ended[2].0.is_none(), "it dies");
    assert_finished(&ended[..2]);
    assert_eq!(sums(&gpus), [STEPS + 2, STEPS + 2, 5]);
    assert_near("after a death", &job, &expected);
}
