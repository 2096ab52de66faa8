//! Data set files: the content of valid ones, and the errors of invalid ones.

use flate2::{Compression, write::GzEncoder};
use muster_compute::data::{
    DatasetError, DatasetSource, DatasetSplits, IdxProblem, NamedDataset, SplitLimits, read_images,
    read_labels,
};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

const FASHION: DatasetSource = DatasetSource::Known(NamedDataset::FashionMnist);

fn idx(dimensions: &[u32], data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 8, dimensions.len() as u8];
    dimensions
        .iter()
        .for_each(|side| bytes.extend(side.to_be_bytes()));
    bytes.extend(data);
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn write(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    fs::create_dir_all(directory).unwrap();
    let path = directory.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// A complete small data set: 5 training images, 3 test images; pixel i of image n is n + i, label
/// n is n modulo 10.
fn write_dataset(root: &Path) -> PathBuf {
    let directory = root.join("fashion-mnist");
    for (prefix, count) in [("train", 5_u8), ("t10k", 3)] {
        let pixels: Vec<u8> = (0..count)
            .flat_map(|n| (0..784).map(move |i| (usize::from(n) + i) as u8))
            .collect();
        let images = idx(&[count.into(), 28, 28], &pixels);
        write(
            &directory,
            &format!("{prefix}-images-idx3-ubyte.gz"),
            &gzip(&images),
        );
        // One file compressed, one plain: both are found.
        write(
            &directory,
            &format!("{prefix}-labels-idx1-ubyte"),
            &idx(&[count.into()], &(0..count).collect::<Vec<_>>()),
        );
    }
    directory
}

#[test]
fn a_data_set_is_read_and_normalised() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let data = DatasetSplits::load(&FASHION, root.path(), SplitLimits::default()).unwrap();
    assert_eq!(
        (data.train.len(), data.test.len(), data.outputs()),
        (5, 3, 10)
    );
    let (mut images, mut labels) = (vec![0.0; 2 * 784], vec![0; 2]);
    data.train.fill(&[4, 1], &mut images, &mut labels);
    assert_eq!(labels, [4, 1]);
    for (image, first) in images.chunks(784).zip([4, 1]) {
        for (pixel, byte) in image.iter().zip(first..) {
            let expected = ((byte % 256) as f32 / 255.0 - 0.2860) / 0.3530;
            assert!((pixel - expected).abs() < 1e-6);
        }
    }
}

#[test]
fn limits_keep_the_first_examples() {
    let root = tempfile::tempdir().unwrap();
    write_dataset(root.path());
    let load =
        |train, test| DatasetSplits::load(&FASHION, root.path(), SplitLimits { train, test });
    let data = load(Some(2), Some(1000)).unwrap();
    assert_eq!((data.train.len(), data.test.len()), (2, 3));
    assert!(matches!(
        load(Some(0), None),
        Err(DatasetError::EmptyLimit { split: "train" })
    ));
    assert!(matches!(
        load(None, Some(0)),
        Err(DatasetError::EmptyLimit { split: "test" })
    ));
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let directory = write_dataset(root.path());
    let load = || DatasetSplits::load(&FASHION, root.path(), SplitLimits::default()).unwrap_err();

    let labels = directory.join("t10k-labels-idx1-ubyte");
    fs::write(&labels, idx(&[4], &[0; 4])).unwrap();
    assert!(matches!(
        load(),
        DatasetError::Counts {
            image_count: 3,
            label_count: 4,
            ..
        }
    ));

    fs::write(&labels, idx(&[3], &[0, 10, 0])).unwrap();
    let DatasetError::Read(error) = load() else {
        panic!("a label out of range")
    };
    assert_eq!(
        error.to_string(),
        format!("{}: at byte 9", labels.display())
    );
    assert!(matches!(
        error.problem,
        IdxProblem::Label {
            label: 10,
            classes: 10
        }
    ));

    fs::write(
        directory.join("t10k-images-idx3-ubyte.gz"),
        idx(&[3, 14, 56], &[0; 3 * 784]),
    )
    .unwrap();
    fs::write(&labels, idx(&[3], &[0; 3])).unwrap();
    assert!(matches!(
        load(),
        DatasetError::Size {
            split: "test",
            height: 14,
            width: 56,
            ..
        }
    ));

    fs::remove_file(&labels).unwrap();
    let message = load().to_string();
    assert_eq!(
        message,
        format!(
            "neither t10k-labels-idx1-ubyte.gz nor t10k-labels-idx1-ubyte is in {}",
            directory.display()
        )
    );
}

#[test]
fn damaged_files_say_where_and_why() {
    let directory = tempfile::tempdir().unwrap();
    let good = idx(&[2, 2, 3], &[7; 12]);
    let problem = |bytes: &[u8]| {
        let error = read_images(&write(directory.path(), "images", bytes)).unwrap_err();
        (error.offset, error.problem)
    };
    assert_eq!(
        read_images(&write(directory.path(), "images", &good))
            .unwrap()
            .pixels,
        [7; 12]
    );
    assert_eq!(
        read_images(&write(directory.path(), "images", &gzip(&good)))
            .unwrap()
            .pixels,
        [7; 12]
    );

    assert!(matches!(problem(&[]), (0, IdxProblem::HeaderCut)));
    assert!(matches!(problem(&good[..10]), (8, IdxProblem::HeaderCut)));
    assert!(matches!(
        problem(&good[..20]),
        (
            20,
            IdxProblem::DataCut {
                expected: 12,
                found: 4
            }
        )
    ));
    assert!(matches!(
        problem(&[good.clone(), vec![0]].concat()),
        (28, IdxProblem::Trailing)
    ));
    assert!(matches!(
        problem(&idx(&[2, 0, 3], &[])),
        (8, IdxProblem::EmptyDimension { dimension: 1 })
    ));
    assert!(matches!(
        problem(&idx(&[12], &[7; 12])),
        (
            0,
            IdxProblem::Magic {
                found: [0, 0, 8, 1],
                dimensions: 3
            }
        )
    ));
    let mut floats = good.clone();
    floats[2] = 0x0d;
    assert!(matches!(problem(&floats), (0, IdxProblem::Magic { .. })));
    // Announces 2^96 bytes; the reader must neither overflow nor reserve them.
    assert!(matches!(
        problem(&idx(&[u32::MAX; 3], &[1])),
        (8, IdxProblem::TooLarge)
    ));
    // Announces 4 GB, within the limit, and contains one byte.
    assert!(matches!(
        problem(&idx(&[u32::MAX, 1, 1], &[1])),
        (17, IdxProblem::DataCut { .. })
    ));

    let mut compressed = gzip(&good);
    compressed.truncate(compressed.len() - 6);
    assert!(
        matches!(problem(&compressed).1, IdxProblem::Read(_)),
        "a gzip stream that was cut off"
    );
    let mut compressed = gzip(&good);
    let checksum = compressed.len() - 8;
    compressed[checksum] ^= 1;
    assert!(
        matches!(problem(&compressed).1, IdxProblem::Read(_)),
        "a wrong checksum"
    );

    let missing = read_labels(&directory.path().join("absent"), 10).unwrap_err();
    assert!(matches!(missing.problem, IdxProblem::Open(_)));
}
