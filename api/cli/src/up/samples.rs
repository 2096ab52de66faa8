//! Small data sets for the documents in examples/: a text, a table and a folder of images, in
//! `<data sets>/examples`. The text is this project's documentation; table and images come from
//! Fashion-MNIST.

use anyhow::{Context as _, ensure};
use flate2::read::GzDecoder;
use image::GrayImage;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

const FOLDER: &str = "examples";
const TEXT: &str = concat!(
    include_str!("../../../../docs/job.md"),
    include_str!("../../../../docs/engine.md")
);
const SOURCE_IMAGES: &str = "fashion-mnist/train-images-idx3-ubyte.gz";
const SOURCE_LABELS: &str = "fashion-mnist/train-labels-idx1-ubyte.gz";
const IMAGES_HEADER_BYTES: usize = 16;
const LABELS_HEADER_BYTES: usize = 8;
/// Width and height of an image, in pixels.
const SIDE: u32 = 28;
const IMAGE_BYTES: usize = (SIDE * SIDE) as usize;
/// Chosen labels of Fashion-MNIST, and their names.
const CLASSES: [(u8, &str); 3] = [(1, "trouser"), (8, "bag"), (9, "ankle-boot")];
const IMAGES_PER_CLASS: usize = 100;
const TABLE_ROWS_PER_CLASS: usize = 50;
/// Number of images that are searched for the three classes.
const SEARCHED_IMAGES: usize = 2_000;

/// Writes the data, unless it exists or Fashion-MNIST is missing.
///
/// # Errors
/// If the folder cannot be written, or Fashion-MNIST's files are damaged.
pub fn place(datasets: &Path) -> anyhow::Result<()> {
    let target = datasets.join(FOLDER);
    if target.exists() || !datasets.join(SOURCE_IMAGES).exists() {
        return Ok(());
    }
    let fresh = datasets.join(format!(".{FOLDER}.{}", std::process::id()));
    let written = write(datasets, &fresh).and_then(|()| Ok(fs::rename(&fresh, &target)?));
    if written.is_err() {
        let _ = fs::remove_dir_all(&fresh);
    }
    // Another process may have written the same data meanwhile.
    match written {
        Err(_) if target.exists() => Ok(()),
        other => other.with_context(|| format!("write {}", target.display())),
    }
}

fn write(datasets: &Path, fresh: &Path) -> anyhow::Result<()> {
    let labels = unpacked(
        &datasets.join(SOURCE_LABELS),
        LABELS_HEADER_BYTES + SEARCHED_IMAGES,
    )?;
    let pixels = unpacked(
        &datasets.join(SOURCE_IMAGES),
        IMAGES_HEADER_BYTES + SEARCHED_IMAGES * IMAGE_BYTES,
    )?;
    let all = labels[LABELS_HEADER_BYTES..]
        .iter()
        .zip(pixels[IMAGES_HEADER_BYTES..].chunks_exact(IMAGE_BYTES));
    let mut table = "class,top,bottom,left,right\n".to_owned();
    for (label, name) in CLASSES {
        let folder = fresh.join("images").join(name);
        fs::create_dir_all(&folder)?;
        let images = all.clone().filter(|(of, _)| **of == label);
        let images: Vec<&[u8]> = images
            .map(|(_, image)| image)
            .take(IMAGES_PER_CLASS)
            .collect();
        ensure!(
            images.len() == IMAGES_PER_CLASS,
            "too few images of class {label}"
        );
        for (number, pixels) in images.iter().enumerate() {
            let image = GrayImage::from_raw(SIDE, SIDE, pixels.to_vec()).expect("28 by 28 pixels");
            image.save(folder.join(format!("{number:03}.png")))?;
        }
        for pixels in &images[..TABLE_ROWS_PER_CLASS] {
            let [top, bottom, left, right] = brightness(pixels);
            writeln!(table, "{name},{top:.3},{bottom:.3},{left:.3},{right:.3}")?;
        }
    }
    fs::write(fresh.join("table.csv"), table)?;
    fs::write(fresh.join("text.txt"), TEXT)?;
    Ok(())
}

fn unpacked(path: &Path, bytes: usize) -> anyhow::Result<Vec<u8>> {
    read(path, bytes).with_context(|| format!("read {}", path.display()))
}

fn read(path: &Path, bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut all = vec![0; bytes];
    GzDecoder::new(File::open(path)?).read_exact(&mut all)?;
    Ok(all)
}

/// Returns the mean brightness of an image's upper, lower, left and right half, 0 to 1.
fn brightness(pixels: &[u8]) -> [f64; 4] {
    let side = SIDE as usize;
    let mean = |is_in: &dyn Fn(usize, usize) -> bool| {
        let inside = (0..IMAGE_BYTES).filter(|at| is_in(at / side, at % side));
        let sum: u64 = inside.map(|at| u64::from(pixels[at])).sum();
        sum as f64 / (255 * IMAGE_BYTES / 2) as f64
    };
    let half = side / 2;
    [
        mean(&|row, _| row < half),
        mean(&|row, _| row >= half),
        mean(&|_, column| column < half),
        mean(&|_, column| column >= half),
    ]
}
