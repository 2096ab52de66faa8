//! Change of the owner of a folder with everything in it.

use crate::task_user::TaskUser;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Maximum depth of folders. Each level holds an open folder.
const MAX_DEPTH: usize = 128;

/// Gives a folder of another owner to the user, with everything in it. Does nothing if the folder
/// is the user's already.
///
/// Processes of the former owner may change the content meanwhile, so no link is followed, and
/// each name is opened within its open folder. Files with several hard links keep their owner: the
/// other name may belong to another tenant.
///
/// # Errors
/// If something cannot be read or transferred, or lies deeper than [`MAX_DEPTH`] folders.
pub(crate) fn transfer(folder: &Path, user: TaskUser) -> io::Result<()> {
    let opened = open(CWD, folder)?;
    let is_own = rustix::fs::fstat(&opened)?.st_uid == user.uid;
    if is_own {
        return Ok(());
    }
    transfer_content(&opened, user, MAX_DEPTH)?;
    // Last: after an interruption the next call begins again.
    own(&opened, user)
}

fn open(above: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(above, name, flags, Mode::empty())
}

fn own(opened: impl AsFd, user: TaskUser) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    Ok(rustix::fs::fchown(opened, Some(uid), Some(gid))?)
}

fn transfer_content(folder: &OwnedFd, user: TaskUser, depth: usize) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other("has too many folders within each other"));
    }
    for entry in Dir::read_from(folder)? {
        let name = entry?.file_name().to_owned();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match transfer_entry(folder, &name, user, depth) {
            // A process of the former owner has removed or replaced it.
            Err(error) if is_gone(&error) => {}
            done => done?,
        }
    }
    Ok(())
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP];
    Errno::from_io_error(error).is_some_and(|errno| gone.contains(&errno))
}

fn transfer_entry(
    folder: &OwnedFd,
    name: &CString,
    user: TaskUser,
    depth: usize,
) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(folder, name.as_c_str(), flags, Mode::empty())?;
    let found = rustix::fs::fstat(&opened)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        let inner = open(folder, name.as_c_str())?;
        transfer_content(&inner, user, depth - 1)?;
        return own(&inner, user);
    }
    if found.st_nlink > 1 {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    // By the open descriptor: the name may have been replaced since.
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    Ok(rustix::fs::chownat(
        &opened,
        c"",
        Some(uid),
        Some(gid),
        flags,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn content_is_transferred_but_no_linked_file() {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root, "only root can change owners");
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("job/step-1/deep")).expect("made");
        fs::write(at("job/step-1/deep/weights"), "w").expect("written");
        fs::write(at("secret"), "of another tenant").expect("written");
        fs::hard_link(at("secret"), at("job/hard")).expect("linked");
        symlink(at("secret"), at("job/soft")).expect("linked");
        let user = TaskUser { uid: 7, gid: 8 };
        transfer(&at("job"), user).expect("transferred");
        let owner = |name: &str| {
            let found = fs::symlink_metadata(at(name)).expect("there");
            (found.uid(), found.gid())
        };
        for name in ["job", "job/step-1/deep/weights", "job/soft"] {
            assert_eq!(owner(name), (7, 8), "{name}");
        }
        assert_eq!(owner("secret"), (0, 0));
        // A folder of the user is not walked through again.
        fs::write(at("job/new"), "").expect("written");
        transfer(&at("job"), user).expect("nothing to do");
        assert_eq!(owner("job/new"), (0, 0));
    }
}
