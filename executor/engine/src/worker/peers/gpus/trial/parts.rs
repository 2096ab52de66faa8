//! Steps in several passes, of which the last one's gradients meet, and clipped ones.

use super::*;

/// An update rule that the length of gradients matters to, and a norm that all of them exceed.
fn clipped(more: &Value) -> Value {
    let mut engine = json!({
        "optimizer": { "kind": "sgd", "learning_rate": 0.05, "momentum": 0.9 },
        "clip_norm": 0.3,
    });
    let more = more.as_object().unwrap().clone();
    engine.as_object_mut().unwrap().extend(more);
    json!({ "engine": engine })
}

/// Holds this job of so many workers to the host's way; each sum is asked for once a step, and once for the step that is none.
fn check(what: &str, more: &Value, images: u32, workers: usize) {
    let expected = on_host_of(Job::with_images(images), more);
    let (job, gpus) = (Job::with_images(images), gpus::<3>());
    let (used, launch) = (&gpus[..workers], asking(more));
    assert_eq!(launch.spec.validate(), Ok(()));
    assert_finished(&start(&job, &launch, &devices(used), workers, NOTHING));
    assert_eq!(sums(used), vec![STEPS + 1; workers], "{what}");
    assert_near(what, &job, &expected);
}

/// Two and one examples of two workers, one and one of the third.
#[test]
fn passes_add_up_before_their_gradients_meet() {
    let more = json!({ "engine": { "accumulate": 2 } });
    check("accumulate", &more, 96, 3);
}

/// One worker has 257 examples, which are two passes; the other 256, which are one.
#[test]
fn a_part_that_does_not_go_through_at_once_meets_one_that_does() {
    let more = json!({ "engine": { "batch": 513, "model": { "hidden": [2] } } });
    check("a large batch", &more, 520, 2);
}

/// Also that it is seen in the parameters.
#[test]
fn gradients_are_clipped_when_they_have_met() {
    check("clipped", &clipped(&json!({})), 96, 3);
    check("both", &clipped(&json!({ "accumulate": 2 })), 96, 2);
    let after = |engine: Value| {
        let launch = asking(&engine);
        let job = Job::new();
        start(&job, &launch, &devices(&gpus::<2>()), 2, NOTHING);
        job.kept(&launch).1.parameters
    };
    let without = clipped(&json!({ "clip_norm": null }));
    let apart = apart(&after(without), &after(clipped(&json!({}))));
    assert!(apart > 0.01, "{apart} apart");
}

#[test]
fn turns_and_stops_change_no_bit_of_what_is_clipped_in_passes() {
    assert_undisturbed(&asking(&clipped(&json!({ "accumulate": 2 }))));
}

/// The others' examples of a step are more than they had pinned room for, though as many as before go through the network at once.
#[test]
fn who_dies_leaves_more_parts_to_the_others() {
    let more = clipped(&json!({ "batch": 771, "model": { "kind": "mlp", "hidden": [2] } }));
    let expected = on_host_of(Job::with_images(780), &more);
    let (job, mut gpus) = (Job::with_images(780), gpus::<3>());
    gpus[2] = Arc::new(Ranked::new(2, StandIn::Usual).dying_in(5));
    let ended = start(&job, &asking(&more), &devices(&gpus), 3, NOTHING);
    assert!(ended[2].0.is_none(), "it dies");
    assert_finished(&ended[..2]);
    assert_eq!(sums(&gpus), [STEPS + 2, STEPS + 2, 5]);
    assert_near("after a death", &job, &expected);
}
