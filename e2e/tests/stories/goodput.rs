//! A job whose coordinator chooses the batch (`batch_rule: goodput`): the batch grows while it
//! trains, the job ends at its steps, and its family knows the goodput of its sizes.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::every_round_replays;

/// Enough for several decisions, which are at least a second apart.
const STEPS: u64 = 80_000;
const BATCH: f64 = 8.0;
const MAX_BATCH: f64 = 64.0;

/// An update of this small network takes nearly as long with eight times the examples.
fn document(name: &str, steps: u64) -> String {
    format!(
        "
version: muster/v1
name: {name}
engine:
  model: {{ kind: mlp, hidden: [16] }}
  dataset: {{ name: fashion-mnist, train_limit: 12800, test_limit: 2000 }}
  optimizer: {{ kind: sgd, learning_rate: 0.01, momentum: 0.9 }}
  batch: {BATCH}
  batch_rule: goodput
  max_batch: {MAX_BATCH}
  seed: 3
exchange: {{ topology: all_reduce }}
scale: {{ workers: {{ min: 1, max: 2 }} }}
stop: {{ steps: {steps} }}
"
    )
}

#[tokio::test]
async fn chosen_batch_grows_and_the_family_knows_its_goodput() {
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 1, slots: 2 }).await;
    let first = cluster.submit(&document("first", STEPS)).await.id;
    let done = cluster.succeeded(first).await;
    assert_eq!(done.failures, 0, "{done:?}");
    let progress = done.progress.expect("it trained");
    // The last update may be worth several steps.
    assert!((STEPS..STEPS + 8).contains(&progress.step), "{progress:?}");
    assert!(
        progress.test_accuracy.expect("evaluated") > 0.6,
        "{progress:?}"
    );

    let series = cluster.client().progress(first, None, None).await;
    let samples = series.expect("the series").samples;
    let batches = samples.iter().filter_map(|point| point.sample.batch());
    let largest = batches.clone().fold(0.0, f64::max);
    assert!(
        (2.0 * BATCH..MAX_BATCH + 1.0).contains(&largest),
        "{largest}"
    );
    assert!(batches.clone().all(|batch| batch > BATCH - 1.0));
    let gains = samples.iter().filter_map(|point| point.sample.gain);
    let most = gains.fold(0.0, f64::max);
    assert!(most > 1.2 && most < MAX_BATCH / BATCH + 0.1, "{most}");

    let shown = cluster.run(&["show", &first.to_string()]);
    assert!(shown.contains("examples, worth "), "{shown}");

    // The speeds of the family are steps: above the updates of the samples.
    let families = cluster.client().families().await.expect("families");
    let [family] = &families[..] else {
        panic!("one family: {families:?}")
    };
    let updates = samples.iter().map(|point| point.sample.updates_per_s());
    let updates = updates.sum::<f64>() / samples.len() as f64;
    let best = family.speeds.iter().map(|speed| speed.steps_per_s);
    let best = best.fold(0.0, f64::max);
    assert!(
        best > 1.1 * updates,
        "{best} steps, {updates} updates: {family:?}"
    );

    // A second job is planned by what the first has measured.
    let second = cluster.submit(&document("second", 4_000)).await.id;
    let done = cluster.succeeded(second).await;
    assert_eq!(done.failures, 0, "{done:?}");
    every_round_replays(&cluster);
    cluster.down();
}
