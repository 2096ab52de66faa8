//! Layers that are unusual or hostile.

use super::error::{Fault, ImageError};
use super::unpack::Unpacking;
use super::{check_folders, make_mount_points};
use std::fs::{self, File};
use std::io::{Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// One entry: path, kind, target or content.
type Entry<'e> = (&'e [u8], EntryType, &'e [u8]);

const FILE: EntryType = EntryType::Regular;
const FOLDER: EntryType = EntryType::Directory;
const LINK: EntryType = EntryType::Symlink;
const HARD: EntryType = EntryType::Link;

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("fs")).expect("made");
        fs::create_dir(folder.path().join("outside")).expect("made");
        fs::write(folder.path().join("outside/kept"), "kept").expect("written");
        Self { folder }
    }

    fn files(&self) -> PathBuf {
        self.folder.path().join("fs")
    }

    fn layer(&self, content: &[u8]) -> File {
        let mut file = tempfile::tempfile_in(self.folder.path()).expect("a file");
        file.write_all(content).expect("written");
        file.rewind().expect("a file");
        file
    }

    fn unpack(&self, layers: &[&[Entry<'_>]]) -> Result<u64, ImageError> {
        let mut unpacking = Unpacking::into(&self.files(), 1 << 20)?;
        for layer in layers {
            unpacking.apply(self.layer(&archive(layer)))?;
        }
        Ok(unpacking.bytes())
    }

    /// All paths below the files, sorted.
    fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut left = vec![self.files()];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                let name = path.strip_prefix(self.files()).expect("below it");
                names.push(name.display().to_string());
                if path.is_dir() && !path.is_symlink() {
                    left.push(path);
                }
            }
        }
        names.sort();
        names
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.files().join(name)).expect("a file")
    }

    fn is_untouched(&self) -> bool {
        let outside = self.folder.path().join("outside");
        let names = fs::read_dir(&outside).expect("a folder").count();
        names == 1 && fs::read_to_string(outside.join("kept")).is_ok_and(|text| text == "kept")
    }
}

fn archive(entries: &[Entry<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for (path, kind, content) in entries {
        let mut header = Header::new_gnu();
        let gnu = header.as_gnu_mut().expect("it is one");
        gnu.name[..path.len()].copy_from_slice(path);
        let is_link = matches!(*kind, LINK | HARD);
        if is_link {
            gnu.linkname[..content.len()].copy_from_slice(content);
        }
        let content: &[u8] = if is_link { b"" } else { content };
        header.set_entry_type(*kind);
        header.set_mode(0o4640);
        header.set_mtime(1_600_000_000);
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, content).expect("in memory");
    }
    builder.into_inner().expect("in memory")
}

#[test]
fn folders_on_the_way_are_counted() {
    let place = Place::new();
    let tree = super::tree::ImageTree::open(&place.files()).expect("a folder");
    let deep = super::tree::parts(Path::new("a/b/c/file")).expect("within");
    tree.position(&deep).expect("made");
    assert_eq!(tree.take_made(), 3);
    tree.position(&deep).expect("found");
    assert_eq!(tree.take_made(), 0);
}

#[test]
fn layers_apply_one_after_the_other() {
    let place = Place::new();
    let below: &[Entry<'_>] = &[
        (b"./", FOLDER, b""),
        (b"./usr/lib/a", FILE, b"1"),
        (b"usr/lib/b", FILE, b"1"),
        (b"lib", LINK, b"usr/lib"),
        (b"opt/old/x", FILE, b"1"),
        (b"opt/gone", FILE, b"1"),
        (b"/absolute", FILE, b"1"),
        (b"hard", HARD, b"usr/lib/a"),
        (b"device", EntryType::Char, b""),
        (b"pipe", EntryType::Fifo, b""),
    ];
    let above: &[Entry<'_>] = &[
        // Leads through the link of the layer below.
        (b"lib/c", FILE, b"2"),
        (b"lib/.wh.b", FILE, b""),
        (b"opt/old/new", FILE, b"2"),
        (b"opt/old/.wh..wh..opq", FILE, b""),
        (b"opt/.wh.gone", FILE, b""),
        (b"opt/.wh..wh.plnk", FILE, b""),
        (b"hard", FILE, b"2"),
        (b"of-below", HARD, b"usr/lib/a"),
    ];
    let bytes = place.unpack(&[below, above]).expect("unpacked");
    let expected = [
        "absolute",
        "hard",
        "lib",
        "of-below",
        "opt",
        "opt/old",
        "opt/old/new",
        "usr",
        "usr/lib",
        "usr/lib/a",
        "usr/lib/c",
    ];
    assert_eq!(place.names(), expected);
    assert_eq!(
        (place.read("hard"), place.read("usr/lib/a")),
        ("2".into(), "1".into())
    );
    assert_eq!(bytes, 8);
    let found = place.files().join("usr/lib/a").metadata().expect("there");
    assert_eq!(
        found.permissions().mode() & 0o7777,
        0o644,
        "without set-user-ID"
    );
    assert_eq!(found.mtime(), 1_600_000_000);
    assert_eq!(
        place
            .files()
            .join("of-below")
            .metadata()
            .expect("there")
            .ino(),
        found.ino()
    );
    let folder = place.files().join("usr").metadata().expect("there");
    assert_eq!(folder.permissions().mode() & 0o7777, 0o755);
}

#[test]
fn layers_are_read_in_each_compression() {
    let place = Place::new();
    let mut unpacking = Unpacking::into(&place.files(), 1 << 20).expect("a folder");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&archive(&[(b"a", FILE, b"1")]))
        .expect("in memory");
    let gzip = gzip.finish().expect("in memory");
    let zstd = zstd::encode_all(&archive(&[(b"b", FILE, b"1")])[..], 1).expect("in memory");
    for layer in [gzip, zstd] {
        unpacking.apply(place.layer(&layer)).expect("unpacked");
    }
    assert_eq!(place.names(), ["a", "b"]);
    let error = unpacking
        .apply(place.layer(&[0x1f, 0x8b, 9, 9, 9]))
        .expect_err("no archive");
    assert_eq!(error.fault(), Fault::OfImage);
}

#[test]
fn hostile_layers_write_nothing_outside() {
    let up: &[u8] = b"../../../../../../outside";
    for (what, layer) in [
        ("dots", vec![(&b"../outside/x"[..], FILE, &b"x"[..])]),
        ("dots within", vec![(b"a/../../outside/x", FILE, b"x")]),
        ("hard link to dots", vec![(b"x", HARD, b"../outside/kept")]),
        ("link up", vec![(b"l", LINK, up), (b"l/kept", FILE, b"x")]),
        (
            "link to the root",
            vec![(b"l", LINK, b"/"), (b"l/outside/kept", FILE, b"x")],
        ),
        (
            "links in turn",
            vec![(b"a", LINK, b"b"), (b"b", LINK, b"a"), (b"a/x", FILE, b"x")],
        ),
        (
            "file over a link",
            vec![(b"l", LINK, up), (b"l", FILE, b"x")],
        ),
        (
            "folder over a link",
            vec![
                (b"l", LINK, up),
                (b"l", FOLDER, b""),
                (b"l/kept", FILE, b"x"),
            ],
        ),
        ("whiteout of dots", vec![(b"a/.wh...", FILE, b"")]),
        (
            "whiteout behind a link",
            vec![(b"l", LINK, up), (b"l/.wh.kept", FILE, b"")],
        ),
        (
            "opaque link",
            vec![(b"l", LINK, up), (b"l/.wh..wh..opq", FILE, b"")],
        ),
        (
            "hard link behind a link",
            vec![
                (b"l", LINK, up),
                (b"x", HARD, b"l/kept"),
                (b"x", FILE, b"x"),
            ],
        ),
        (
            "file as a folder",
            vec![(b"f", FILE, b""), (b"f/x", FILE, b"x")],
        ),
    ] {
        let place = Place::new();
        // Some are refused, the others stay within the folder.
        let _ = place.unpack(&[&layer]);
        assert!(place.is_untouched(), "{what}");
        let above = fs::read_dir(place.folder.path()).expect("a folder").count();
        assert_eq!(above, 2, "{what}");
    }
}

/// The target of an absolute link is that of the image.
#[test]
fn absolute_link_leads_within_the_image() {
    let place = Place::new();
    let outside = place.folder.path().join("outside");
    let target = outside.as_os_str().as_encoded_bytes();
    place
        .unpack(&[&[(b"l", LINK, target), (b"l/kept", FILE, b"image")]])
        .expect("unpacked");
    assert!(place.is_untouched());
    let inside = outside.strip_prefix("/").expect("absolute").join("kept");
    assert_eq!(place.read(&inside.display().to_string()), "image");
}

#[test]
fn layer_beyond_the_limit_is_refused() {
    let place = Place::new();
    let mut header = Header::new_gnu();
    header.set_path("large").expect("short");
    header.set_size((1 << 20) + 1);
    header.set_cksum();
    let mut unpacking = Unpacking::into(&place.files(), 1 << 20).expect("a folder");
    let error = unpacking
        .apply(place.layer(header.as_bytes()))
        .expect_err("too large");
    assert!(matches!(error, ImageError::Large(_)), "{error}");
}

#[test]
fn mount_points_do_not_follow_links_of_image() {
    let place = Place::new();
    let files = place.files();
    let paths = |folder: &str| make_mount_points(&files, &[Path::new(folder)], &[]);
    paths("/data/muster").expect("made");
    paths("/data/muster").expect("it is there");
    assert_eq!(place.names(), ["data", "data/muster"]);
    symlink(place.folder.path().join("outside"), files.join("link")).expect("linked");
    let error = paths("/link/muster").expect_err("a link").to_string();
    assert!(error.contains("/link/muster cannot appear"), "{error}");
    assert!(place.is_untouched());
    fs::create_dir(files.join("etc")).expect("made");
    symlink("../../outside/kept", files.join("etc/hosts")).expect("linked");
    make_mount_points(&files, &[], &[Path::new("/etc/hosts")]).expect("made");
    assert_eq!(place.read("etc/hosts"), "");
    assert!(place.is_untouched());
}

#[test]
fn volume_needs_a_folder_of_the_image() {
    let place = Place::new();
    let files = place.files();
    fs::create_dir_all(files.join("opt/data")).expect("made");
    fs::write(files.join("file"), "").expect("written");
    symlink(place.folder.path().join("outside"), files.join("link")).expect("linked");
    for (path, is_there) in [
        ("/opt/data", true),
        ("/opt/other", false),
        ("/file", false),
        ("/link", false),
        ("/link/x", false),
    ] {
        let checked = check_folders(&files, [Path::new(path)]);
        assert_eq!(checked.is_ok(), is_there, "{path}: {checked:?}");
        if let Err(error) = checked {
            assert!(error.to_string().contains(path), "{error}");
        }
    }
    assert_eq!(place.names(), ["file", "link", "opt", "opt/data"]);
    assert!(place.is_untouched());
}
