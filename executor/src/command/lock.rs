//! Lock files of Python packages: `uv.lock` and `pylock.toml`. uv installs exactly what they name.

use super::check::{Failed, until_ended};
use super::environment::Paths;
use super::error::CommandError;
use super::origin::clear;
use super::python::{interpreter_of, runs, step};
use muster_model::spec::{Command, LockFile};
use std::path::{Path, PathBuf};
use std::process;

/// Description of the project, beside a `uv.lock`.
pub(super) const PROJECT: &str = "pyproject.toml";
/// Folder of a uv that is installed for one environment.
const OWN_UV: &str = ".muster-uv";

/// Whether a line of a lock file refers to a folder or file of the code. In a `uv.lock`, the
/// project itself is `virtual = "."` or `editable = "."`, and is not installed.
pub(super) fn names_a_file(lock: LockFile, line: &str) -> bool {
    let line = compact(line);
    let is_of = |key: &str| {
        let value = line.split_once(&format!("{key}=\""));
        value.is_some_and(|(_, rest)| lock == LockFile::Pylock || !rest.starts_with(".\""))
    };
    ["editable", "directory", "path"].into_iter().any(is_of)
}

/// Whether a line of a `pylock.toml` installs a folder. The environment outlives the folder.
pub(super) fn installs_a_folder(line: &str) -> bool {
    let line = compact(line);
    let begins = [
        "directory=",
        "directory.",
        "\"directory\"=",
        "[packages.directory",
    ];
    let contains = ["{directory=", ",directory=", ",directory.", "editable=true"];
    begins.iter().any(|text| line.starts_with(text))
        || contains.iter().any(|text| line.contains(text))
}

/// Returns a line of TOML without spaces, and with one kind of quotation marks.
fn compact(line: &str) -> String {
    let marks = line.chars().filter(|c| !c.is_whitespace());
    marks.map(|c| if c == '\'' { '"' } else { c }).collect()
}

/// Makes the environment: `python3 -m venv`, and what the lock file names.
pub(super) fn make(
    folder: &Path,
    paths: &Paths,
    command: &Command,
    (lock, path): (LockFile, &str),
) -> Result<(), CommandError> {
    // Without packages of the node, because only the lock file names packages.
    let mut venv = process::Command::new("python3");
    venv.args(["-m", "venv", "--without-pip"]).arg(folder);
    step(
        "python3 -m venv",
        venv,
        Path::new("python3"),
        paths,
        command,
    )?;
    let uv = find_uv(folder, paths, command)?;
    let place = paths.work.join(path);
    let project = place.parent().unwrap_or(&paths.work);
    let mut sync = process::Command::new(&uv);
    match lock {
        LockFile::Uv => {
            sync.args(["sync", "--frozen", "--no-dev", "--no-editable"]);
            sync.args(["--no-install-workspace", "--project"])
                .arg(project);
        }
        LockFile::Pylock => {
            sync.args(["pip", "sync", "--python"]);
            sync.arg(interpreter_of(folder)).arg(&place);
            // Some releases of uv warn otherwise; others do not have the option.
            sync.env("UV_PREVIEW_FEATURES", "pylock");
        }
    }
    // The cache of uv would be a folder of the task's user that no limit bounds.
    sync.args(["--no-cache", "--link-mode", "copy", "--no-progress"]);
    sync.envs(&command.env).current_dir(&paths.work);
    sync.env("UV_PROJECT_ENVIRONMENT", folder);
    // A task installs no interpreter.
    sync.env("UV_PYTHON_DOWNLOADS", "never");
    sync.env("UV_PYTHON", interpreter_of(folder));
    if let Some(Failed { how, said }) = until_ended(sync, &uv, None)? {
        let what = "uv sync";
        return Err(CommandError::Packages { what, how, said });
    }
    let own_uv = folder.join(OWN_UV);
    clear(&own_uv).map_err(CommandError::write(&own_uv))
}

/// Returns the uv of the node, or installs one beside the environment with pip.
fn find_uv(folder: &Path, paths: &Paths, command: &Command) -> Result<PathBuf, CommandError> {
    let mut version = process::Command::new("uv");
    version.arg("--version").envs(&command.env);
    let output = version.stderr(process::Stdio::null()).output();
    if output.is_ok_and(|output| output.status.success()) {
        return Ok(PathBuf::from("uv"));
    }
    let own = interpreter_of(folder);
    let interpreter = if runs(Path::new("python3"), "pip") {
        PathBuf::from("python3")
    } else if runs(&own, "ensurepip") {
        let mut pip = process::Command::new(&own);
        // `uv sync` removes it again.
        pip.args(["-m", "ensurepip", "--default-pip"]);
        step("ensurepip", pip, &own, paths, command)?;
        own
    } else {
        return Err(CommandError::NoUv);
    };
    let place = folder.join(OWN_UV);
    let mut pip = process::Command::new(&interpreter);
    pip.args(["-m", "pip", "install", "--disable-pip-version-check"]);
    pip.args(["--no-input", "--quiet", "uv", "--target"])
        .arg(&place);
    step("pip install uv", pip, &interpreter, paths, command)?;
    Ok(place.join("bin/uv"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::environment::tests::paths as test_paths;
    use serde_json::json;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn lock_with_paths_belongs_to_its_code() {
        for line in [
            "source = { editable = \"packages/a\" }",
            "source = { directory = \"../b\" }",
            "    { path = \"wheels/c.whl\" },",
        ] {
            assert!(names_a_file(LockFile::Uv, line), "{line}");
        }
        for line in [
            "source = { virtual = \".\" }",
            "source = { editable = \".\" }",
            "source = { registry = \"https://pypi.org/simple\" }",
            "name = \"editable\"",
        ] {
            assert!(!names_a_file(LockFile::Uv, line), "{line}");
        }
        let project = "archive = { path='.' }";
        assert!(names_a_file(LockFile::Pylock, project));
    }

    #[test]
    fn folders_of_a_pylock_are_found() {
        for line in [
            "directory = { path = \".\", editable = true }",
            "directory = { path = \"packages/a\" }",
            "[packages.directory]",
            "  editable=true",
            "packages = [{ name = \"a\", directory = { path = \".\" } }]",
        ] {
            assert!(installs_a_folder(line), "{line}");
        }
        for line in [
            "name = \"directory\"",
            "vcs = { url = \"https://host/a\", subdirectory = \"b\" }",
            "wheels = [{ url = \"https://host/a.whl\" }]",
        ] {
            assert!(!installs_a_folder(line), "{line}");
        }
    }

    /// Makes an environment with a uv that writes its arguments into the task's folder.
    fn called(lock: LockFile, path: &str) -> String {
        let place = tempfile::tempdir().expect("a folder");
        let (bin, work) = (place.path().join("bin"), place.path().join("work"));
        fs::create_dir_all(&bin).expect("made");
        fs::create_dir_all(&work).expect("made");
        let text = "#!/bin/sh\nif [ \"$1\" != --version ]; then echo \"$@\" > ../called; echo $UV_PROJECT_ENVIRONMENT $UV_PYTHON_DOWNLOADS >> ../called; fi\n";
        fs::write(bin.join("uv"), text).expect("written");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(bin.join("uv"), mode).expect("set");
        let inherited = std::env::var("PATH").unwrap_or_default();
        let path_variable = format!("{}:{inherited}", bin.display());
        let command = json!({ "argv": ["true"], "env": { "PATH": path_variable } });
        let command: Command = serde_json::from_value(command).expect("a command");
        let paths = Paths {
            task: place.path().to_owned(),
            work,
            ..test_paths()
        };
        let environment = place.path().join("env");
        make(&environment, &paths, &command, (lock, path)).expect("made");
        let settings = fs::read_to_string(environment.join("pyvenv.cfg")).expect("a venv");
        assert!(
            settings.contains("include-system-site-packages = false"),
            "{settings}"
        );
        let called = fs::read_to_string(place.path().join("called")).expect("called");
        called.replace(&place.path().display().to_string(), "T")
    }

    #[test]
    fn uv_installs_exactly_the_lock_file() {
        let sync = called(LockFile::Uv, "sub/uv.lock");
        assert_eq!(
            sync,
            "sync --frozen --no-dev --no-editable --no-install-workspace --project T/work/sub \
             --no-cache --link-mode copy --no-progress\nT/env never\n"
        );
        let sync = called(LockFile::Pylock, "pylock.toml");
        assert!(
            sync.starts_with("pip sync --python T/env/bin/python T/work/pylock.toml"),
            "{sync}"
        );
    }
}
