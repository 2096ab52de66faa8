//! Test whether a user's program can be started on this node: the program exists, and `check`
//! succeeds.

use super::environment::Paths;
use super::error::CommandError;
use crate::clock;
use crate::log::LastLine;
use muster_model::spec::Command;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::io::{self, PipeReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const CHECK_MS: u64 = 60_000;
/// Time limit of the remaining output after the end of the check.
const OUTPUT_MS: u64 = 1_000;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Returns the path of the program in `argv`.
pub(super) fn program(
    command: &Command,
    variables: &BTreeMap<String, String>,
    paths: &Paths,
) -> Result<PathBuf, CommandError> {
    find("command.argv", &command.argv[0], variables, paths)
}

/// Runs `check`, if the document has one.
pub(super) fn run(
    command: &Command,
    variables: &BTreeMap<String, String>,
    paths: &Paths,
) -> Result<(), CommandError> {
    let Some((name, arguments)) = command.check.split_first() else {
        return Ok(());
    };
    let program = find("command.check", name, variables, paths)?;
    let mut check = process::Command::new(&program);
    check
        .args(arguments)
        .envs(variables)
        .current_dir(&paths.work);
    let failed = until_ended(check, &program, Some(CHECK_MS))?;
    failed.map_or(Ok(()), |Failed { how, said }| {
        Err(CommandError::Check { how, said })
    })
}

/// How a program ended that should have ended with code 0, and its last line.
pub(super) struct Failed {
    pub how: String,
    pub said: Option<String>,
}

/// Runs a program whose output becomes part of the task's log. Returns `None` if it ended with code
/// 0 within `limit_ms`.
pub(super) fn until_ended(
    mut command: process::Command,
    program: &Path,
    limit_ms: Option<u64>,
) -> Result<Option<Failed>, CommandError> {
    let (reader, writer) = io::pipe().map_err(CommandError::start(program))?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(CommandError::start(program))?)
        .stderr(writer)
        .process_group(0)
        .spawn()
        .map_err(CommandError::start(program))?;
    // Its copies of the pipe's end would keep the reader waiting.
    drop(command);
    let output = thread::spawn(move || pass_on(reader));
    let until_ms = limit_ms.map(|limit_ms| clock::boottime_ms() + limit_ms);
    let how = loop {
        match child.try_wait().map_err(CommandError::start(program))? {
            Some(status) if status.success() => break None,
            Some(status) => break Some(status.to_string()),
            None if until_ms.is_some_and(|until_ms| clock::boottime_ms() >= until_ms) => {
                // The child processes of a program such as git would continue.
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
                let minutes = limit_ms.unwrap_or_default() / 60_000;
                break Some(format!("no end within {minutes} min"));
            }
            None => thread::sleep(LOOK_EVERY),
        }
    };
    // The rest of the output would be lost when this process becomes the program.
    let said = last_line(output);
    Ok(how.map(|how| Failed { how, said }))
}

/// Copies the output to standard error, which is the task's log; returns the last line.
fn pass_on(mut output: PipeReader) -> Option<String> {
    let mut last_line = LastLine::default();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match output.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => {
                last_line.feed(&buffer[..count]);
                // A closed log does not matter to the check.
                let _ = io::stderr().write_all(&buffer[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    last_line.told()
}

/// Returns the last output line. A process that the check has left behind may hold its output open,
/// so the wait is limited.
fn last_line(output: JoinHandle<Option<String>>) -> Option<String> {
    let until_ms = clock::boottime_ms() + OUTPUT_MS;
    while !output.is_finished() && clock::boottime_ms() < until_ms {
        thread::sleep(LOOK_EVERY);
    }
    let ended = output.is_finished().then(|| output.join());
    ended?.ok().flatten()
}

/// Finds a program as a shell does: a name with a slash is relative to the working folder, another
/// one is searched in `PATH`.
fn find(
    field: &'static str,
    name: &str,
    variables: &BTreeMap<String, String>,
    paths: &Paths,
) -> Result<PathBuf, CommandError> {
    let inherited = std::env::var("PATH").unwrap_or_default();
    let path = variables.get("PATH").unwrap_or(&inherited);
    // For an absolute path the error needs no list of searched folders.
    if Path::new(name).is_absolute() {
        let path = PathBuf::from(name);
        return if may_run(&path) {
            Ok(path)
        } else {
            Err(CommandError::NoProgramAt { field, path })
        };
    }
    let (folders, looked_in): (Vec<PathBuf>, String) = if name.contains('/') {
        let work = paths.work.clone();
        let shown = work.display().to_string();
        (vec![work], shown)
    } else {
        let folders = std::env::split_paths(path).map(|folder| paths.work.join(folder));
        (folders.collect(), path.clone())
    };
    folders
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| may_run(path))
        .ok_or_else(|| CommandError::NoProgram {
            field,
            program: name.to_owned(),
            looked_in,
        })
}

fn may_run(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::{find, until_ended};
    use crate::command::environment::tests::paths;
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process;

    #[test]
    fn program_over_its_limit_ends_with_its_children() {
        let mut command = process::Command::new("/bin/sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]);
        let failed = until_ended(command, Path::new("/bin/sh"), Some(300));
        let failed = failed.expect("it ran").expect("it has not ended");
        assert!(failed.how.contains("no end within"), "{}", failed.how);
        // The child holds the output open as long as it runs.
        assert!(failed.said.is_some_and(|said| said.parse::<u32>().is_ok()));
    }

    #[test]
    fn error_names_only_searched_folders() {
        let paths = paths();
        let variables = BTreeMap::from([("PATH".to_owned(), "/here:/there".to_owned())]);
        let said = |name: &str| {
            let found = find("command.argv", name, &variables, &paths);
            found.expect_err("none").to_string()
        };
        assert!(!said("/no/such/prog").contains("/t/work"));
        assert!(said("/no/such/prog").contains("command.argv[0] is \"/no/such/prog\""));
        assert!(said("./prog").contains("looked in /t/work"));
        assert!(said("prog").contains("looked in /here:/there"));
        let shell = find("command.argv", "/bin/sh", &variables, &paths);
        assert_eq!(shell.expect("a shell"), Path::new("/bin/sh"));
    }
}
