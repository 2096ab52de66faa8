//! Copy of the shim's program in the data folder, which is mounted at the same path in all task
//! pods. A user's image does not contain `muster-executor`.

use crate::error::ExecutorError;
use crate::opener::FolderHandle;
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Number of copies of earlier executors to keep: their pods may not have started yet.
const KEPT: usize = 3;

/// Copies `program` into `data`, unless it is there, and returns its path. The copy appears
/// atomically. An existing file is compared by content, because tasks of earlier releases could
/// write there.
///
/// # Errors
/// If the program cannot be read or written.
pub fn shared(program: &Path, data: &Path) -> Result<PathBuf, ExecutorError> {
    let folder = data.join("programs");
    let content = fs::read(program).map_err(ExecutorError::read(program))?;
    // Times and lengths of different reproducible builds may be equal.
    let mut sum = DefaultHasher::new();
    sum.write(&content);
    let name = format!("muster-executor-{:016x}", sum.finish());
    let path = folder.join(&name);
    if !is_there(&content, &folder, OsStr::new(&name)) {
        put(&content, &folder, OsStr::new(&name)).map_err(ExecutorError::write(&path))?;
    }
    if let Err(error) = tidy(&folder, &path) {
        tracing::warn!(folder = %folder.display(), %error, "programs of earlier executors cannot be removed");
    }
    Ok(path)
}

/// Whether the file is the program: executable, no link, and of the same content.
fn is_there(content: &[u8], folder: &Path, name: &OsStr) -> bool {
    let Ok(folder) = FolderHandle::itself(folder) else {
        return false;
    };
    folder
        .metadata(name)
        .is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
        && folder
            .read(name, content.len() as u64)
            .is_ok_and(|found| found == content)
}

fn put(content: &[u8], folder: &Path, name: &OsStr) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let folder = FolderHandle::itself(folder)?;
    let mut half = name.to_owned();
    half.push(format!(".half-{}", std::process::id()));
    let mut copy = folder.create(&half, 0o755)?;
    copy.write_all(content)?;
    copy.set_permissions(fs::Permissions::from_mode(0o755))?;
    copy.sync_all()?;
    // A file that is open for writing cannot be executed.
    drop(copy);
    folder.rename(&half, name)
}

/// Removes all copies but this one and the newest others. A running program survives the removal.
fn tidy(folder: &Path, own: &Path) -> io::Result<()> {
    let mut others: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path() != own {
            others.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    others.sort_unstable();
    let surplus = others.len().saturating_sub(KEPT);
    others[..surplus]
        .iter()
        .try_for_each(|(_, path)| fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::Command;

    #[test]
    fn program_is_copied_once_and_runs() {
        let data = tempfile::tempdir().expect("a folder");
        let copy = shared(Path::new("/bin/true"), data.path()).expect("it is readable");
        let ran = Command::new(&copy).status().expect("it runs");
        assert!(ran.success() && copy.starts_with(data.path()));
        let made = fs::metadata(&copy).expect("it is there").ino();
        let again = shared(Path::new("/bin/true"), data.path()).expect("the same");
        assert_eq!(again, copy);
        assert_eq!(fs::metadata(&again).expect("it is there").ino(), made);
        let other = shared(Path::new("/bin/false"), data.path()).expect("it is readable");
        assert_ne!(other, copy);
        assert!(
            copy.exists(),
            "pods of the executor before may still want it"
        );
    }

    #[test]
    fn foreign_file_of_the_same_name_is_replaced() {
        let data = tempfile::tempdir().expect("a folder");
        let copy = shared(Path::new("/bin/true"), data.path()).expect("it is readable");
        fs::write(&copy, "#!/bin/sh\nexit 7\n").expect("our own folder");
        for number in 0..5 {
            let folder = data.path().join(format!("programs/{number}/full"));
            fs::create_dir_all(folder).expect("our own folder");
        }
        assert_eq!(
            shared(Path::new("/bin/true"), data.path()).expect("put anew"),
            copy
        );
        let ran = Command::new(&copy).status().expect("it runs");
        assert!(ran.success());
        fs::remove_file(&copy).expect("our own folder");
        std::os::unix::fs::symlink("/bin/false", &copy).expect("our own folder");
        shared(Path::new("/bin/true"), data.path()).expect("put anew");
        assert!(Command::new(&copy).status().expect("it runs").success());
    }

    #[test]
    fn old_copies_are_removed() {
        let data = tempfile::tempdir().expect("a folder");
        let program = data.path().join("program");
        let mut copies = Vec::new();
        for length in 1..=6 {
            fs::write(&program, vec![b'x'; length]).expect("our own folder");
            copies.push(shared(&program, data.path()).expect("it is readable"));
        }
        let there: Vec<bool> = copies.iter().map(|copy| copy.exists()).collect();
        assert_eq!(there, [false, false, true, true, true, true]);
    }

    #[test]
    fn prepared_link_is_not_followed_by_a_write() {
        let data = tempfile::tempdir().expect("a folder");
        let copy = shared(Path::new("/bin/true"), data.path()).expect("it is readable");
        fs::remove_file(&copy).expect("our own folder");
        let other = data.path().join("another's");
        fs::write(&other, "kept").expect("our own folder");
        let half = format!("{}.half-{}", copy.display(), std::process::id());
        std::os::unix::fs::symlink(&other, half).expect("our own folder");
        shared(Path::new("/bin/true"), data.path()).expect("put anew");
        assert!(Command::new(&copy).status().expect("it runs").success());
        assert_eq!(fs::read_to_string(&other).expect("there"), "kept");
    }
}
