//! Images of noise, for benches in which the learning result does not matter.

use std::fs;
use std::path::Path;

/// Writes a data set in the files of Fashion-MNIST: 6,400 examples for training, 64 for testing.
pub fn write_images(folder: &Path) {
    fs::create_dir_all(folder).expect("a folder");
    for (prefix, count) in [("train", 6_400u32), ("t10k", 64)] {
        let mut images = vec![0, 0, 8, 3];
        [count, 28, 28]
            .iter()
            .for_each(|side| images.extend(side.to_be_bytes()));
        images.extend((0..count * 784).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8));
        let mut labels = vec![0, 0, 8, 1];
        labels.extend(count.to_be_bytes());
        labels.extend((0..count).map(|i| (i % 10) as u8));
        fs::write(folder.join(format!("{prefix}-images-idx3-ubyte")), images).expect("images");
        fs::write(folder.join(format!("{prefix}-labels-idx1-ubyte")), labels).expect("labels");
    }
}
