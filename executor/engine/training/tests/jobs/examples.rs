//! The example documents, one per family, as real processes on small data of their kind.

use crate::rig::reports::evaluations;
use crate::rig::{Rig, RigLaunch};
use muster_model::assignment::TaskReport;
use muster_model::progress::Evaluation;
use muster_model::spec::{JobSpec, Range};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Trains the example for `steps` steps with this number of workers. Returns its evaluations.
fn train(name: &str, workers: u32, steps: u64, prepare: impl FnOnce(&Path)) -> Vec<Evaluation> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    let text = fs::read_to_string(path.join(name)).expect("the example is there");
    let mut spec: JobSpec = serde_norway::from_str(&text).expect("a document");
    spec.stop = muster_model::spec::Stop {
        steps: Some(steps),
        ..Default::default()
    };
    spec.scale.workers = Range {
        min: 1,
        max: workers,
    };
    assert_eq!(spec.validate(), Ok(()), "{name}");
    let rig = Rig::new();
    prepare(&rig.dataset_root());
    let mut revision = rig.start(&RigLaunch::new(1, workers, 1, spec));
    revision.succeed();
    let events = revision.chief().events();
    assert!(
        matches!(events.last(), Some(TaskReport::Finished { step, .. }) if *step >= steps),
        "{name}: {events:?}"
    );
    evaluations(&events)
}

/// Reproducible pseudo-random numbers.
fn noise(at: usize) -> f32 {
    let mixed = (at as u32).wrapping_mul(2_654_435_761).rotate_left(15) ^ 0x5bd1_e995;
    (mixed.wrapping_mul(0x85eb_ca6b) >> 8) as f32 / (1 << 24) as f32
}

fn text(root: &Path) {
    let sentence = "the quick brown fox jumps over the lazy dog, and every worker has its part. ";
    let numbered = (0..600).map(|i| format!("{i} {sentence}"));
    fs::create_dir_all(root.join("examples")).unwrap();
    fs::write(root.join("examples/text.txt"), numbered.collect::<String>()).unwrap();
}

#[test]
fn a_list_of_layers_learns_augmented_images() {
    let evaluations = train("fashion-layers.yaml", 2, 60, |_| {});
    let last = evaluations.last().expect("an evaluation");
    assert!(last.accuracy.unwrap() > 0.6, "of ten classes: {last:?}");
}

/// Images of three classes, each of its own colour.
fn images(root: &Path) {
    for (class, name) in ["red", "green", "blue"].into_iter().enumerate() {
        let folder = root.join("examples/images").join(name);
        fs::create_dir_all(&folder).unwrap();
        for number in 0..100 {
            let image = image::RgbImage::from_fn(20, 24, |x, y| {
                let at = ((class * 100 + number) * 20 + x as usize) * 24 + y as usize;
                let mut pixel = [0, 1, 2].map(|c| (noise(3 * at + c) * 200.0) as u8);
                pixel[class] = pixel[class].saturating_add(40);
                image::Rgb(pixel)
            });
            image.save(folder.join(format!("{number}.png"))).unwrap();
        }
    }
}

#[test]
fn a_convolutional_network_learns_a_folder_of_images() {
    let evaluations = train("images-cnn.yaml", 1, 60, images);
    let last = evaluations.last().expect("an evaluation");
    assert!(last.accuracy.unwrap() > 0.8, "of three classes: {last:?}");
}

#[test]
fn a_gpt_learns_a_text() {
    let evaluations = train("text-gpt.yaml", 2, 60, text);
    let last = evaluations.last().expect("an evaluation");
    assert!(
        last.loss.unwrap() < 3.5,
        "nats a byte, of 5.5 at random: {last:?}"
    );
    assert!(
        (0.1..=1.0).contains(&last.accuracy.unwrap()),
        "of bytes: {last:?}"
    );
}

#[test]
fn a_recurrent_network_learns_a_text() {
    let evaluations = train("text-lstm.yaml", 1, 100, text);
    let last = evaluations.last().expect("an evaluation");
    assert!(
        last.loss.unwrap() < 3.0,
        "nats a byte, of 5.5 at random: {last:?}"
    );
}

/// Rows of three classes; the column with the class's number is larger.
fn table(root: &Path) {
    let mut text = "a,b,class,c,d\n".to_owned();
    for row in 0..150 {
        let class = row % 3;
        let [a, b, c, d] = [0, 1, 2, 3].map(|column| {
            let centre = if column == class { 3.0 } else { 0.0 };
            centre + noise(row * 4 + column)
        });
        writeln!(text, "{a},{b},kind{class},{c},{d}").unwrap();
    }
    fs::create_dir_all(root.join("examples")).unwrap();
    fs::write(root.join("examples/table.csv"), text).unwrap();
}

#[test]
fn a_perceptron_learns_a_table() {
    let evaluations = train("table-mlp.yaml", 2, 60, table);
    let last = evaluations.last().expect("an evaluation");
    assert!(
        last.accuracy.unwrap() > 0.95,
        "three clear classes: {last:?}"
    );
}
