//! `command.keep`: files and folders of the working folder that are kept as artifacts. Each is a
//! link into the task's output folder, so a program writes artifacts without knowing that folder.

use super::environment::Paths;
use super::error::CommandError;
use crate::folder::NodeTaskFolder;
use muster_model::spec::{Command, KeptPath};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// Makes the links in the working folder, which exists. Files that are there already are moved.
///
/// # Errors
/// [`CommandError::KeptBelowLink`] if a folder on the way to a kept path is a link.
pub(super) fn link(paths: &Paths, command: &Command) -> Result<(), CommandError> {
    let output = NodeTaskFolder::at(&paths.task).output();
    for kept in &command.keep {
        let kept = KeptPath::new(kept);
        refuse_links(&paths.work, kept.name)?;
        let (place, target) = (paths.work.join(kept.name), output.join(kept.name));
        for path in [&place, &target] {
            let folder = path.parent().unwrap_or(path);
            fs::create_dir_all(folder).map_err(CommandError::write(folder))?;
        }
        if place.symlink_metadata().is_ok() {
            fs::rename(&place, &target).map_err(CommandError::write(&target))?;
        } else if kept.is_folder {
            fs::create_dir_all(&target).map_err(CommandError::write(&target))?;
        }
        let link = relative(&output, kept.name);
        symlink(link, &place).map_err(CommandError::write(&place))?;
    }
    Ok(())
}

/// Refuses a path below a link of the code: it would lie outside of the working folder, and a
/// relative link there would have another target.
fn refuse_links(work: &Path, name: &str) -> Result<(), CommandError> {
    for parent in Path::new(name).ancestors().skip(1) {
        let is_link = !parent.as_os_str().is_empty() && work.join(parent).is_symlink();
        if is_link {
            return Err(CommandError::KeptBelowLink {
                path: name.to_owned(),
                link: parent.to_owned(),
            });
        }
    }
    Ok(())
}

/// Returns the path from the folder of the link to its target. It is relative, because the task's
/// folder may have another path in an image.
fn relative(output: &Path, name: &str) -> PathBuf {
    let mut path = PathBuf::from("..");
    path.extend(name.split('/').skip(1).map(|_| ".."));
    path.extend(output.file_name());
    path.join(name)
}

#[cfg(test)]
mod tests {
    use super::super::environment::tests::{launch, paths};
    use super::*;

    #[test]
    fn written_paths_are_in_the_output_folder() {
        let task = tempfile::tempdir().expect("a folder");
        let folder = NodeTaskFolder::at(task.path());
        let (work, output) = (folder.work(), folder.output());
        fs::create_dir_all(work.join("runs")).expect("made");
        fs::create_dir_all(&output).expect("made");
        fs::write(work.join("runs/old"), "1").expect("written");
        let paths = Paths {
            task: task.path().to_owned(),
            work: work.clone(),
            ..paths()
        };
        let mut launch = launch(1, 0);
        let command = launch.spec.command.as_mut().expect("a command");
        command.keep = ["runs", "out/deep/", "a/model.pt"]
            .map(str::to_owned)
            .into();
        link(&paths, command).expect("linked");
        fs::write(work.join("runs/new"), "2").expect("written");
        fs::write(work.join("out/deep/x"), "3").expect("written");
        fs::write(work.join("a/model.pt"), "4").expect("written");
        for (name, text) in [
            ("runs/old", "1"),
            ("runs/new", "2"),
            ("out/deep/x", "3"),
            ("a/model.pt", "4"),
        ] {
            let found = fs::read_to_string(output.join(name)).expect("kept");
            assert_eq!(found, text, "{name}");
        }
    }

    #[test]
    fn path_below_a_link_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        symlink("/tmp", place.path().join("logs")).expect("linked");
        fs::create_dir(place.path().join("plain")).expect("made");
        let error = refuse_links(place.path(), "logs/a/b").expect_err("a link");
        let said = error.to_string();
        assert!(said.contains("command.keep has \"logs/a/b\""), "{said}");
        assert!(
            said.contains("\"logs\" of the working folder is a link"),
            "{said}"
        );
        assert!(!error.is_retryable() && error.lacks().is_none());
        for name in ["logs", "plain/a", "new/a"] {
            assert!(refuse_links(place.path(), name).is_ok(), "{name}");
        }
    }
}
