use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use tar::{Builder, EntryType, Header};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().expect("below the folder")).expect("made");
    fs::write(path, text).expect("written");
}

/// Names of all files and links below a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut left = vec![folder.to_owned()];
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(at).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.is_symlink() {
                left.push(path);
            } else {
                let name = path.strip_prefix(folder).expect("below it");
                names.push(name.display().to_string());
            }
        }
    }
    names.sort();
    names
}

#[test]
fn folder_comes_back_without_excluded_files() {
    let source = folder();
    let at = source.path();
    write(at, "train.py", "print(1)");
    write(at, "src/model.py", "x = 1");
    write(at, ".env.example", "A=1");
    write(at, ".gitignore", "data/\n*.log\n");
    write(at, ".musterignore", "notes.txt\n");
    write(at, "src/.gitignore", "secret.py\n");
    for excluded in [
        "data/train.bin",
        "run.log",
        "notes.txt",
        "src/secret.py",
        ".git/HEAD",
        "src/__pycache__/model.pyc",
        "env/pyvenv.cfg",
        "env/bin/python",
    ] {
        write(at, excluded, "x");
    }
    fs::set_permissions(at.join("train.py"), fs::Permissions::from_mode(0o700)).expect("set");
    symlink("src/model.py", at.join("link.py")).expect("linked");
    let packed = pack(at).expect("packed");
    let target = folder();
    unpack(&packed.bytes[..], target.path()).expect("unpacked");
    let expected = [
        ".env.example",
        ".gitignore",
        ".musterignore",
        "link.py",
        "src/.gitignore",
        "src/model.py",
        "train.py",
    ];
    assert_eq!(names(target.path()), expected);
    assert_eq!(packed.files as usize, expected.len());
    let mode = |name: &str| {
        fs::metadata(target.path().join(name))
            .expect("there")
            .permissions()
            .mode()
    };
    assert_eq!(mode("train.py") & 0o777, 0o755);
    assert_eq!(mode("src/model.py") & 0o777, 0o644);
    let linked = fs::read_to_string(target.path().join("link.py")).expect("there");
    assert_eq!(linked, "x = 1");
}

#[test]
fn equal_folders_have_equal_archives() {
    let (first, second) = (folder(), folder());
    for at in [first.path(), second.path()] {
        write(at, "b.py", "2");
        write(at, "a/c.py", "1");
    }
    let touched = fs::File::options()
        .append(true)
        .open(second.path().join("b.py"));
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    touched.expect("open").set_modified(long_ago).expect("set");
    let (one, other) = (
        pack(first.path()).expect("packed"),
        pack(second.path()).expect("packed"),
    );
    assert_eq!((one.sha256.len(), &one.sha256), (64, &other.sha256));
    write(second.path(), "b.py", "3");
    assert_ne!(pack(second.path()).expect("packed").sha256, one.sha256);
}

#[test]
fn folder_without_files_is_refused() {
    let source = folder();
    write(source.path(), "data/x", "1");
    write(source.path(), ".musterignore", "*\n");
    let error = pack(source.path()).expect_err("all are excluded");
    assert!(matches!(error, ArchiveError::Empty { .. }), "{error}");
}

#[test]
fn folder_above_the_limit_names_its_largest_files() {
    let source = folder();
    write(source.path(), "small.py", "1");
    let large = fs::File::create(source.path().join("weights.bin")).expect("made");
    large
        .set_len(MAX_UNPACKED_BYTES + 1)
        .expect("a sparse file");
    let error = pack(source.path()).expect_err("too large").to_string();
    assert!(error.contains("weights.bin (2147483649 bytes)"), "{error}");
    assert!(error.contains(".musterignore"), "{error}");
}

fn archive(fill: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    fill(&mut builder);
    let tar = builder.into_inner().expect("in memory");
    zstd::encode_all(&tar[..], 1).expect("in memory")
}

fn header(name: &[u8], kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.as_gnu_mut().expect("it is one").name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(0);
    header.set_cksum();
    header
}

#[test]
fn hostile_entries_are_refused() {
    let place = folder();
    let target = place.path().join("work");
    fs::create_dir(&target).expect("made");
    let escape = archive(|builder| {
        let header = header(b"../escaped", EntryType::Regular);
        builder.append(&header, &b""[..]).expect("in memory");
    });
    let error = unpack(&escape[..], &target).expect_err("it leads out");
    assert!(matches!(error, ArchiveError::Entry { .. }), "{error}");
    let through = archive(|builder| {
        let mut link = header(b"out", EntryType::Symlink);
        link.set_link_name("..").expect("short");
        link.set_cksum();
        builder.append(&link, &b""[..]).expect("in memory");
        let file = header(b"out/escaped", EntryType::Regular);
        builder.append(&file, &b""[..]).expect("in memory");
    });
    unpack(&through[..], &target).expect_err("it leads through a link");
    assert!(!place.path().join("escaped").exists());
    for kind in [EntryType::Fifo, EntryType::Char, EntryType::Link] {
        let special = archive(|builder| {
            builder
                .append(&header(b"special", kind), &b""[..])
                .expect("in memory");
        });
        let error = unpack(&special[..], &target).expect_err("no file");
        assert!(matches!(error, ArchiveError::Entry { .. }), "{error}");
    }
}

#[test]
fn archive_that_unpacks_beyond_the_limit_is_refused() {
    let bomb = archive(|builder| {
        let mut large = header(b"zeros", EntryType::Regular);
        large.set_size(MAX_UNPACKED_BYTES + 1);
        large.set_cksum();
        builder.append(&large, &b""[..]).expect("in memory");
    });
    let error = unpack(&bomb[..], folder().path()).expect_err("too large");
    assert!(matches!(error, ArchiveError::Bomb), "{error}");
}

#[test]
fn damaged_archive_is_refused() {
    let source = folder();
    write(source.path(), "a.py", &"x = 1\n".repeat(1000));
    let packed = pack(source.path()).expect("packed");
    let half = &packed.bytes[..packed.bytes.len() / 2];
    unpack(half, folder().path()).expect_err("it is cut off");
    unpack(&b"no archive"[..], folder().path()).expect_err("no archive");
}
