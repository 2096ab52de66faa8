//! Bounds a daemon's logs: `NAME.log` and `NAME.log.1` have at most 16 MiB each, plus the output
//! between two polls.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MOST_BYTES: u64 = 16 << 20;
const PAUSE: Duration = Duration::from_secs(5);

/// Rotates the log periodically; never returns.
pub async fn keep_short(log: PathBuf) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let look = log.clone();
        let rotating = tokio::task::spawn_blocking(move || rotate(&look, MOST_BYTES));
        if let Ok(Err(error)) = rotating.await {
            note!("{} could not be rotated: {error}", log.display());
        }
    }
}

/// Moves the content of a log longer than `most_bytes` into the file beside it. The daemon keeps
/// its open file in append mode and continues at the new end. Output between the copy and the
/// truncation is lost.
fn rotate(log: &Path, most_bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(log)?;
    if file.metadata()?.len() <= most_bytes {
        return Ok(());
    }
    let older = older(log);
    let copied = std::fs::copy(log, &older);
    if copied.is_err() {
        // The log is truncated even if the disk is full.
        let _ = std::fs::remove_file(&older);
    }
    file.set_len(0)?;
    copied.map(drop)
}

fn older(log: &Path) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::{older, rotate};
    use std::fs::{File, read_to_string};
    use std::io::Write as _;
    use std::path::Path;

    fn bytes(path: &Path) -> usize {
        read_to_string(path).map_or(0, |text| text.len())
    }

    #[test]
    fn long_log_is_rotated_and_its_writer_continues() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("api.log");
        let mut daemon = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .expect("opened");
        let mut told = Vec::new();
        for number in 0..10 {
            let line = format!("line {number}\n");
            daemon.write_all(line.as_bytes()).expect("written");
            told.push(line);
            rotate(&log, 16).expect("rotated");
            assert!(bytes(&log) <= 16 && bytes(&older(&log)) <= 24);
        }
        let (before, now) = (read_to_string(older(&log)), read_to_string(&log));
        let (before, now) = (before.expect("kept"), now.expect("there"));
        assert_eq!(before, told[6..9].concat());
        assert_eq!(now, told[9..].concat());
    }

    #[test]
    fn log_is_truncated_if_the_older_part_cannot_be_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("api.log");
        std::fs::write(&log, "more than it may have").expect("written");
        std::fs::create_dir(older(&log)).expect("in its place");
        rotate(&log, 16).expect_err("it cannot be kept");
        assert_eq!(read_to_string(&log).expect("there"), "");
    }
}
