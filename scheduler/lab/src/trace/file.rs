//! Opens files of traces and profiles, plain or compressed with zstd or gzip.

use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Maximum number of bytes of a file after decompression.
const MAX_TEXT_BYTES: u64 = 1 << 30;

/// Reason why a file is not readable.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} has more than {MAX_TEXT_BYTES} bytes of text")]
    TooLong { path: PathBuf },
}

/// Compression of a file, by the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TraceCompression {
    Zstd,
    Gzip,
}

impl TraceCompression {
    const ALL: [Self; 2] = [Self::Zstd, Self::Gzip];

    const fn extension(self) -> &'static str {
        match self {
            Self::Zstd => "zst",
            Self::Gzip => "gz",
        }
    }

    fn of(path: &Path) -> Option<Self> {
        let extension = path.extension()?;
        Self::ALL
            .into_iter()
            .find(|compression| extension == compression.extension())
    }
}

/// Returns the path if it exists, otherwise that of its compressed form (`.zst` or `.gz` appended).
#[must_use]
pub fn find(path: &Path) -> Option<PathBuf> {
    let mut candidates = vec![path.to_owned()];
    for compression in TraceCompression::ALL {
        candidates.push(path.with_added_extension(compression.extension()));
    }
    candidates.into_iter().find(|candidate| candidate.exists())
}

/// Returns the path as text, without the extension of a compression.
#[must_use]
pub fn name_of(path: &Path) -> String {
    match TraceCompression::of(path) {
        Some(_) => path.with_extension("").display().to_string(),
        None => path.display().to_string(),
    }
}

/// Reads the text of a file. A name that ends in `.zst` or `.gz` is that of a compressed file. If
/// the file does not exist, its compressed form is read ([`find`]).
///
/// # Errors
/// [`FileError`] if the file is missing, not text, damaged or too long.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    read_at_most(path, MAX_TEXT_BYTES)
}

fn read_at_most(path: &Path, max_bytes: u64) -> Result<String, FileError> {
    let path = find(path).unwrap_or_else(|| path.to_owned());
    let text = decompressed(&path).and_then(|source| {
        let mut text = String::new();
        source.take(max_bytes + 1).read_to_string(&mut text)?;
        Ok(text)
    });
    match text {
        Ok(text) if text.len() as u64 > max_bytes => Err(FileError::TooLong { path }),
        Ok(text) => Ok(text),
        Err(source) => Err(FileError::Read { path, source }),
    }
}

fn decompressed(path: &Path) -> io::Result<Box<dyn Read>> {
    let file = File::open(path)?;
    Ok(match TraceCompression::of(path) {
        Some(TraceCompression::Zstd) => Box::new(zstd::Decoder::new(file)?),
        Some(TraceCompression::Gzip) => Box::new(MultiGzDecoder::new(file)),
        None => Box::new(file),
    })
}

#[cfg(test)]
mod tests {
    use super::{FileError, find, name_of, read_at_most, read_text};
    use std::fs;
    use std::io::Write;
    use std::path::Path;

    #[test]
    fn plain_zstd_and_gzip_files_have_the_same_text() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"a,b\n1,2\n").unwrap();
        fs::write(folder.join("plain.csv"), "a,b\n1,2\n").unwrap();
        fs::write(folder.join("one.csv.gz"), gzip.finish().unwrap()).unwrap();
        let zstd = zstd::encode_all(&b"a,b\n1,2\n"[..], 1).unwrap();
        fs::write(folder.join("two.csv.zst"), zstd).unwrap();
        for name in [
            "plain.csv",
            "one.csv.gz",
            "one.csv",
            "two.csv.zst",
            "two.csv",
        ] {
            assert_eq!(
                read_text(&folder.join(name)).unwrap(),
                "a,b\n1,2\n",
                "{name}"
            );
        }
        assert_eq!(
            find(&folder.join("two.csv")),
            Some(folder.join("two.csv.zst"))
        );
        assert_eq!(find(&folder.join("three.csv")), None);
    }

    #[test]
    fn missing_damaged_and_long_files_are_refused() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path();
        let missing = read_text(&folder.join("none.csv")).unwrap_err().to_string();
        assert!(missing.contains("none.csv"), "{missing}");
        let whole = zstd::encode_all(&[b'a'; 1_000][..], 1).unwrap();
        fs::write(folder.join("cut.csv.zst"), &whole[..whole.len() - 4]).unwrap();
        let cut = read_text(&folder.join("cut.csv.zst"));
        assert!(matches!(cut, Err(FileError::Read { .. })), "{cut:?}");
        fs::write(folder.join("no.csv.gz"), "a,b\n").unwrap();
        let wrong = read_text(&folder.join("no.csv.gz"));
        assert!(matches!(wrong, Err(FileError::Read { .. })), "{wrong:?}");
        fs::write(folder.join("long.csv.zst"), &whole).unwrap();
        assert_eq!(
            read_at_most(&folder.join("long.csv.zst"), 1_000)
                .unwrap()
                .len(),
            1_000
        );
        let long = read_at_most(&folder.join("long.csv.zst"), 999);
        assert!(matches!(long, Err(FileError::TooLong { .. })), "{long:?}");
    }

    #[test]
    fn names_of_workloads_have_no_compression() {
        assert_eq!(name_of(Path::new("d/w-1.csv.zst")), "d/w-1.csv");
        assert_eq!(name_of(Path::new("d/w-1.csv.gz")), "d/w-1.csv");
        assert_eq!(name_of(Path::new("d/w-1.csv")), "d/w-1.csv");
    }
}
