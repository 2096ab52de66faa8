//! Data sets in users' own files: the content of valid ones, and the errors of invalid ones.

use image::{ImageFormat, Rgb, RgbImage};
use muster_compute::data::{
    BatchTargetsMut, DatasetSource, DatasetSplits, FeatureScaling, LearningTask, SplitLimits,
};
use muster_compute::model::{ExampleShape, ImageShape};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// `x[5]` of the arrays that NumPy has written.
const SIXTH: [u8; 18] = [
    115, 87, 162, 230, 70, 71, 240, 62, 47, 184, 31, 34, 63, 65, 146, 197, 142, 253,
];

fn limits(train: usize, test: usize) -> SplitLimits {
    SplitLimits {
        train: Some(train),
        test: Some(test),
    }
}

fn shape(height: usize, width: usize, channels: usize) -> ImageShape {
    ImageShape {
        height,
        width,
        channels,
    }
}

/// All examples, training first: inputs and classes.
fn all(data: &DatasetSplits) -> Vec<(Vec<f32>, u32)> {
    let mut out = Vec::new();
    for examples in [&data.train, &data.test] {
        for index in 0..examples.len() as u32 {
            let (mut input, mut class) = (vec![0.0; data.input.len()], [0]);
            examples.fill(&[index], &mut input, class.as_mut_slice());
            out.push((input, class[0]));
        }
    }
    out
}

fn refused(source: &DatasetSource, root: &Path, limits: SplitLimits) -> String {
    let mut error: &dyn std::error::Error = &DatasetSplits::load(source, root, limits).unwrap_err();
    let mut text = error.to_string();
    while let Some(source) = error.source() {
        text = format!("{text}: {source}");
        error = source;
    }
    text.replace(&root.display().to_string(), "ROOT")
}

fn table(classes: usize) -> DatasetSource {
    DatasetSource::Table {
        path: PathBuf::from("t.csv"),
        target: "kind".to_owned(),
        columns: 2,
        task: LearningTask::Classify { classes },
        scaling: FeatureScaling::Measured,
    }
}

#[test]
fn a_table_is_standardised_by_its_training_rows() {
    let root = tempfile::tempdir().unwrap();
    let mut text = "a,kind,b\n".to_owned();
    for i in 0..20 {
        let kind = ["rose", "iris", "lily"][i % 3];
        text += &format!("{i}, {kind} ,7\n");
    }
    fs::write(root.path().join("t.csv"), text).unwrap();
    let data = DatasetSplits::load(&table(3), root.path(), limits(15, 5)).unwrap();
    assert_eq!((data.train.len(), data.test.len()), (15, 5));
    let examples = all(&data);
    let (train, _) = examples.split_at(15);
    let mean: f32 = train.iter().map(|(x, _)| x[0]).sum::<f32>() / 15.0;
    let square: f32 = train.iter().map(|(x, _)| x[0] * x[0]).sum::<f32>() / 15.0;
    assert!(
        mean.abs() < 1e-6 && (square - 1.0).abs() < 1e-5,
        "{mean} {square}"
    );
    assert!(
        examples.iter().all(|(x, _)| x[1] == 0.0),
        "what does not vary is only centred"
    );
    // Rescaled by the distance of neighbours, each row occurs once with its class: iris 0, lily 1,
    // rose 2.
    let mut values: Vec<(f32, u32)> = examples.iter().map(|(x, class)| (x[0], *class)).collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let classes: Vec<u32> = values.iter().map(|(_, class)| *class).collect();
    let expected: Vec<u32> = (0..20).map(|i| [2, 0, 1][i % 3]).collect();
    assert_eq!(classes, expected);
    // The same for every job, and different from the order of the file.
    assert_eq!(
        examples,
        all(&DatasetSplits::load(&table(3), root.path(), limits(15, 5)).unwrap())
    );
    assert!(examples.windows(2).any(|pair| pair[0].0[0] > pair[1].0[0]));
}

#[test]
fn numbers_can_be_targets_too() {
    let root = tempfile::tempdir().unwrap();
    fs::write(
        root.path().join("t.csv"),
        "a,b,kind\n1,2,0.5\n3,5,1.5\n5,1,2.5\n",
    )
    .unwrap();
    let source = DatasetSource::Table {
        path: PathBuf::from("t.csv"),
        target: "kind".to_owned(),
        columns: 2,
        task: LearningTask::Regress { values: 1 },
        scaling: FeatureScaling::Measured,
    };
    let data = DatasetSplits::load(&source, root.path(), limits(2, 1)).unwrap();
    let mut values = [0.0; 2];
    data.train
        .fill(&[0, 1], &mut [0.0; 4], BatchTargetsMut::Values(&mut values));
    let mut last = [0.0];
    data.test
        .fill(&[0], &mut [0.0; 2], BatchTargetsMut::Values(&mut last));
    let mut all = [values[0], values[1], last[0]];
    all.sort_by(f32::total_cmp);
    assert_eq!(all, [0.5, 1.5, 2.5]);
}

#[test]
fn table_error_names_file_line_and_column() {
    let root = tempfile::tempdir().unwrap();
    let said = |text: &str, classes, train| {
        fs::write(root.path().join("t.csv"), text).unwrap();
        refused(&table(classes), root.path(), limits(train, 1))
    };
    assert_eq!(
        said("a,b,kind\n1,2,x\n1,two,y\n", 2, 1),
        "ROOT/t.csv: line 3: b is \"two\"; expected a finite number"
    );
    assert_eq!(
        said("a,b,kind\n1,inf,x\n", 2, 1),
        "ROOT/t.csv: line 2: b is \"inf\"; expected a finite number"
    );
    assert_eq!(
        said("a,b,c\n1,2,x\n", 2, 1),
        "ROOT/t.csv: no column \"kind\"; it has a, b, c"
    );
    assert_eq!(
        said("a,kind\n1,x\n", 2, 1),
        "ROOT/t.csv has 1 columns beside the target; the document says 2"
    );
    assert_eq!(
        said("a,b,kind\n1,2,x\n1,3,y\n", 3, 1),
        "ROOT/t.csv has 2 classes; the document says 3"
    );
    assert_eq!(
        said("a,b,kind\n1,2,x\n1,3,y\n", 2, 5),
        "ROOT/t.csv has 2 examples; 5 for training and 1 for the test are wanted"
    );
    assert!(
        said("a,b,kind\n1,2,x\n1,3\n", 2, 1).contains("line: 3"),
        "a row that is too short"
    );
    let missing = refused(&table(2), &root.path().join("absent"), limits(1, 1));
    assert!(missing.contains("No such file"), "{missing}");
}

fn arrays(
    path: &str,
    inputs: &str,
    targets: &str,
    input: ExampleShape,
    task: LearningTask,
) -> DatasetSource {
    DatasetSource::Arrays {
        path: PathBuf::from(path),
        inputs: inputs.to_owned(),
        targets: targets.to_owned(),
        input,
        task,
        scaling: None,
    }
}

#[test]
fn numpys_arrays_are_read() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/arrays");
    let images = ExampleShape::Image(shape(2, 3, 3));
    let classes = LearningTask::Classify { classes: 3 };
    let source = arrays("small.npz", "x", "y", images, classes);
    let data = DatasetSplits::load(&source, &root, limits(9, 3)).unwrap();
    let examples = all(&data);
    let (train, _) = examples.split_at(9);
    for channel in 0..3 {
        let values = train
            .iter()
            .flat_map(|(x, _)| x.iter().skip(channel).step_by(3));
        let mean = values.clone().sum::<f32>() / 54.0;
        let square = values.map(|x| x * x).sum::<f32>() / 54.0;
        assert!(
            mean.abs() < 1e-5 && (square - 1.0).abs() < 1e-4,
            "{channel}: {mean} {square}"
        );
    }
    // Without scaling, the sixth image is found at any position.
    let wide = DatasetSplits::load(
        &arrays("small.npz", "wide", "y", images, classes),
        &root,
        limits(9, 3),
    )
    .unwrap();
    let sixth: Vec<f32> = SIXTH.iter().map(|byte| f32::from(*byte) / 8.0).collect();
    let place = all(&wide).iter().position(|(x, _)| *x == sixth).unwrap();
    assert_eq!(all(&wide)[place].1, 5 % 3);
    assert_eq!(examples[place].1, 5 % 3, "both are dealt alike");
    let counts = [0, 1, 2].map(|class| examples.iter().filter(|(_, c)| *c == class).count());
    assert_eq!(counts, [4, 4, 4]);

    let single = arrays(
        "",
        "x",
        "y",
        ExampleShape::Row { columns: 18 },
        LearningTask::Regress { values: 1 },
    );
    let data = DatasetSplits::load(&single, &root, limits(11, 1)).unwrap();
    let (mut inputs, mut values) = (vec![0.0; 11 * 18], [0.0; 11]);
    let indices: Vec<u32> = (0..11).collect();
    data.train
        .fill(&indices, &mut inputs, BatchTargetsMut::Values(&mut values));
    if let Some(place) = inputs.chunks(18).position(|x| x[0] == f32::from(SIXTH[0])) {
        assert_eq!(values[place], 2.5);
    }
    assert!(values.iter().all(|value| (value * 2.0).fract() == 0.0));
}

#[test]
fn array_error_names_the_array() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/arrays");
    let images = ExampleShape::Image(shape(2, 3, 3));
    let said = |inputs: &str, targets: &str, input, classes| {
        let source = arrays(
            "small.npz",
            inputs,
            targets,
            input,
            LearningTask::Classify { classes },
        );
        refused(&source, &root, limits(9, 3))
    };
    let none = said("z", "y", images, 3);
    assert!(
        none.contains("no array \"z\"") && none.contains("wide.npy"),
        "{none}"
    );
    assert!(said("f", "y", images, 3).contains("Fortran order"));
    assert_eq!(
        said("x", "y", ExampleShape::Image(shape(3, 3, 3)), 3),
        "ROOT/small.npz has 18 numbers per example; the document says 27"
    );
    assert_eq!(
        said("x", "y", images, 2),
        "ROOT/small.npz: \"y\" has the label 2; labels are whole numbers below 2"
    );
    assert!(said("x", "x", images, 3).contains("18 labels per example; the document says 1"));
    let tokens = ExampleShape::Tokens {
        length: 18,
        vocabulary: 200,
    };
    assert!(said("x", "y", tokens, 3).contains("tokens are whole numbers below 200"));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("broken.npz"), b"PK not quite").unwrap();
    let broken = arrays(
        "broken.npz",
        "x",
        "y",
        images,
        LearningTask::Classify { classes: 3 },
    );
    assert!(refused(&broken, folder.path(), limits(1, 1)).starts_with("ROOT/broken.npz: "));
}

#[test]
fn safetensors_are_read() {
    let root = tempfile::tempdir().unwrap();
    let x: Vec<u8> = (0..12_u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let y: Vec<u8> = (0..6_i64).flat_map(|i| (i % 2).to_le_bytes()).collect();
    let tensors = [
        ("x", TensorView::new(Dtype::F32, vec![6, 2], &x).unwrap()),
        ("y", TensorView::new(Dtype::I64, vec![6], &y).unwrap()),
    ];
    let bytes = safetensors::serialize(tensors, None).unwrap();
    fs::write(root.path().join("d.safetensors"), &bytes).unwrap();
    let row = ExampleShape::Row { columns: 2 };
    let task = LearningTask::Classify { classes: 2 };
    let [x, z] = ["x", "z"].map(|inputs| arrays("d.safetensors", inputs, "y", row, task));
    let data = DatasetSplits::load(&x, root.path(), limits(4, 2)).unwrap();
    let mut rows = all(&data);
    rows.sort_by(|a, b| a.0[0].total_cmp(&b.0[0]));
    let expected: Vec<(Vec<f32>, u32)> = (0..6)
        .map(|i| (vec![2.0 * i as f32, 2.0 * i as f32 + 1.0], i % 2))
        .collect();
    assert_eq!(rows, expected);
    let none = refused(&z, root.path(), limits(4, 2));
    assert!(
        none.starts_with("ROOT/d.safetensors: no tensor \"z\"; it has "),
        "{none}"
    );
}

#[test]
fn text_targets_are_shifted_by_one_byte() {
    let root = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=100).collect();
    fs::write(root.path().join("t.txt"), &bytes).unwrap();
    let source = DatasetSource::Text {
        path: PathBuf::from("t.txt"),
        length: 10,
    };
    let data = DatasetSplits::load(&source, root.path(), limits(7, 3)).unwrap();
    let (mut inputs, mut targets) = ([0.0; 20], [0; 20]);
    data.train
        .fill(&[6, 0], &mut inputs, targets.as_mut_slice());
    assert!((0..10).all(|i| inputs[i] == 60.0 + i as f32 && targets[i] == 61 + i as u32));
    assert!((0..10).all(|i| inputs[10 + i] == i as f32 && targets[10 + i] == 1 + i as u32));
    data.test.fill(&[0, 2], &mut inputs, targets.as_mut_slice());
    assert_eq!(
        (inputs[0], targets[19]),
        (70.0, 100),
        "the end of the text is for the test"
    );
    assert_eq!(
        refused(&source, root.path(), limits(8, 3)),
        "ROOT/t.txt has 10 examples; 8 for training and 3 for the test are wanted"
    );
}

fn fruit(classes: usize, channels: usize) -> DatasetSource {
    DatasetSource::Images {
        path: PathBuf::from("fruit"),
        shape: shape(3, 4, channels),
        classes,
        scaling: FeatureScaling::Measured,
    }
}

#[test]
fn a_folder_of_images_is_read_and_resized() {
    let root = tempfile::tempdir().unwrap();
    for (name, colour) in [("apple", [200, 10, 10]), ("pear", [10, 200, 10])] {
        let folder = root.path().join("fruit").join(name);
        fs::create_dir_all(&folder).unwrap();
        for i in 0..6_u32 {
            let image = RgbImage::from_pixel(4 + i, 5, Rgb(colour));
            let (extension, format) =
                [("png", ImageFormat::Png), ("JPG", ImageFormat::Jpeg)][i as usize % 2];
            image
                .save_with_format(folder.join(format!("{i}.{extension}")), format)
                .unwrap();
        }
        fs::write(folder.join("notes.txt"), "no image").unwrap();
    }
    let data = DatasetSplits::load(&fruit(2, 3), root.path(), limits(9, 3)).unwrap();
    let examples = all(&data);
    for (input, class) in &examples {
        let (red, green) = (input[0], input[1]);
        assert_eq!(red > green, *class == 0, "{input:?} of {class}");
        assert!(
            input.chunks(3).all(|pixel| (pixel[0] - red).abs() < 0.1),
            "one colour stays one"
        );
    }
    let classes: BTreeSet<u32> = examples[..9].iter().map(|(_, class)| *class).collect();
    assert_eq!(classes.len(), 2, "both are dealt to training");
    assert_eq!(
        DatasetSplits::load(&fruit(2, 1), root.path(), limits(9, 3))
            .unwrap()
            .input
            .len(),
        12
    );
    assert_eq!(
        refused(&fruit(3, 3), root.path(), limits(9, 3)),
        "ROOT/fruit has 2 folders of a class each; the document says 3"
    );
    fs::write(root.path().join("fruit/pear/0.png"), "no image").unwrap();
    assert!(
        refused(&fruit(2, 3), root.path(), limits(9, 3)).starts_with("ROOT/fruit/pear/0.png: ")
    );
}
