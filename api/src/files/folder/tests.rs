use super::{OpenCheckpointFile, OpenError, content, open};
use crate::files::reads::BlockingReads;
use crate::files::{MANIFEST, MAX_MANIFEST_BYTES};
use axum::body::Bytes;
use futures::TryStreamExt as _;
use rustix::fs::{CWD, Mode, RenameFlags, mkfifoat, renameat_with};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const OWN: &str = "own content";
const SECRET: &str = "another tenant's";
/// Outcomes of each kind that a race must show before it proves anything.
const SEEN: usize = 200;
/// Far more than a race needs to show both outcomes.
const MOST_OPENS: usize = 2_000_000;

/// A root with a job's folder, and a secret outside of it.
struct CheckpointRootFixture {
    root: TempDir,
}

impl CheckpointRootFixture {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["root/tenant/job/step", "outside/step"] {
            fs::create_dir_all(root.path().join(folder)).expect("made");
        }
        let place = Self { root };
        fs::write(place.at("root/tenant/job/step/a.bin"), OWN).expect("written");
        for secret in ["outside/a.bin", "outside/step/a.bin"] {
            fs::write(place.at(secret), SECRET).expect("written");
        }
        place
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    fn open(&self) -> Result<OpenCheckpointFile, OpenError> {
        open(&self.at("root"), Path::new("tenant/job/step"), "a.bin")
    }

    /// Opens the file while `one` and `other` are exchanged repeatedly. Only the job's own content
    /// may be read.
    fn race(&self, one: &str, other: &str) {
        let (one, other) = (self.at(one), self.at(other));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)
                        .expect("exchanged");
                }
            });
            let seen = std::panic::catch_unwind(|| self.open_many());
            is_over.store(true, Ordering::Relaxed);
            let (read, refused) = seen.expect("only the own content is read");
            assert!(
                read >= SEEN && refused >= SEEN,
                "{read} read, {refused} refused"
            );
        });
    }

    fn open_many(&self) -> (usize, usize) {
        let (mut read, mut refused) = (0, 0);
        for _ in 0..MOST_OPENS {
            match self.open() {
                Ok(mut opened) => {
                    let mut text = String::new();
                    opened.file.read_to_string(&mut text).expect("read");
                    assert_eq!(text, OWN);
                    read += 1;
                }
                Err(OpenError::Unfit(_)) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
            if read >= SEEN && refused >= SEEN && read + refused >= 20_000 {
                break;
            }
        }
        (read, refused)
    }
}

fn unfit(result: Result<OpenCheckpointFile, OpenError>) -> String {
    match result {
        Ok(_) => panic!("it was opened"),
        Err(OpenError::Unfit(what)) => what,
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn file_replaced_by_a_link_is_never_followed() {
    let place = CheckpointRootFixture::new();
    symlink(place.at("outside/a.bin"), place.at("root/link")).expect("linked");
    place.race("root/tenant/job/step/a.bin", "root/link");
}

#[test]
fn checkpoint_folder_replaced_by_a_link_is_never_followed() {
    let place = CheckpointRootFixture::new();
    symlink(place.at("outside/step"), place.at("root/link")).expect("linked");
    place.race("root/tenant/job/step", "root/link");
}

#[test]
fn job_folder_replaced_by_a_link_is_never_followed() {
    let place = CheckpointRootFixture::new();
    symlink(place.at("outside"), place.at("root/link")).expect("linked");
    place.race("root/tenant/job", "root/link");
}

#[test]
fn manifest_that_is_not_a_small_regular_file_is_refused() {
    let step = "root/tenant/job/step";
    type Put = fn(&Path);
    let put: [(&str, Put); 5] = [
        ("a FIFO", |at| {
            mkfifoat(CWD, at, Mode::RWXU).expect("made");
        }),
        ("a link", |at| symlink("/dev/zero", at).expect("linked")),
        ("a link", |at| symlink("a.bin", at).expect("linked")),
        ("a folder", |at| fs::create_dir(at).expect("made")),
        ("at most 4194304", |at| {
            let file = File::create(at).expect("made");
            file.set_len(3 << 30).expect("sparse");
        }),
    ];
    for (what, put) in put {
        let place = CheckpointRootFixture::new();
        put(&place.at(step).join(MANIFEST));
        let refused = unfit(place.open());
        assert!(
            refused.starts_with(MANIFEST) && refused.contains(what),
            "{refused}"
        );
    }
}

#[test]
fn file_without_a_manifest_or_with_a_large_one_is_served() {
    let place = CheckpointRootFixture::new();
    assert_eq!(place.open().expect("opened").sha256, None);
    let sum = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    let mut manifest = format!(r#"{{"files": {{"a.bin": {{"sha256": "{sum}"}}}}}}"#).into_bytes();
    manifest.resize(usize::try_from(MAX_MANIFEST_BYTES).expect("small"), b' ');
    fs::write(place.at("root/tenant/job/step").join(MANIFEST), manifest).expect("written");
    assert_eq!(place.open().expect("opened").sha256.as_deref(), Some(sum));
}

#[test]
fn hard_link_to_own_file_is_served() {
    let place = CheckpointRootFixture::new();
    let step = place.at("root/tenant/job/step");
    fs::hard_link(step.join("a.bin"), step.join("copy")).expect("linked");
    assert!(place.open().is_ok(), "a link to a file of the same user");
}

#[test]
#[ignore = "needs root: gives a folder to another user"]
fn hard_link_to_another_users_file_is_refused() {
    let place = CheckpointRootFixture::new();
    let step = place.at("root/tenant/job/step");
    fs::hard_link(step.join("a.bin"), step.join("copy")).expect("linked");
    std::os::unix::fs::chown(&step, Some(12_345), None).expect("this test runs as root");
    assert!(unfit(place.open()).contains("another user"));
}

#[tokio::test]
async fn content_is_that_of_the_opened_file() {
    let place = CheckpointRootFixture::new();
    let path = place.at("root/tenant/job/step/a.bin");
    let long: Vec<u8> = (0..700_000_u32).map(|at| at as u8).collect();
    fs::write(&path, &long).expect("written");
    let sent = |bytes: u64| {
        let file = place.open().expect("opened").file;
        let pieces = content(file, bytes, BlockingReads::default());
        async move { pieces.try_collect::<Vec<Bytes>>().await }
    };
    let mut appended = File::options().append(true).open(&path).expect("opened");
    appended.write_all(b"more").expect("written");
    assert_eq!(sent(700_000).await.expect("whole").concat(), long);
    let error = sent(700_010).await.expect_err("it is shorter");
    assert!(error.to_string().contains("shorter"), "{error}");
}
