//! Processes of one cluster, found in `/proc` by their arguments and environment.

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::path::Path;

/// One process.
#[derive(Debug, Clone)]
pub struct OsProcess {
    pub pid: i32,
    /// File name of the program.
    pub program: String,
    pub arguments: Vec<String>,
    /// `NAME=value`; empty if not readable.
    pub environment: Vec<String>,
    /// Whether this user cannot read its environment.
    is_hidden: bool,
}

/// All processes that name `folder` in their arguments or environment, and hidden children of
/// these.
#[must_use]
pub fn of(folder: &Path) -> Vec<OsProcess> {
    let folder = folder.to_string_lossy();
    let (mut found, others): (Vec<OsProcess>, Vec<OsProcess>) = all()
        .into_iter()
        .partition(|process| process.mentions(&folder));
    // The environment of daemons is not readable; they are children of the process that started
    // them.
    let hidden = others.into_iter().filter(|process| process.is_hidden);
    let parents: Vec<i32> = found.iter().map(|process| process.pid).collect();
    found.extend(hidden.filter(|process| {
        parents
            .iter()
            .any(|parent: &i32| children(*parent).iter().any(|one| one.pid == process.pid))
    }));
    found
}

/// Living children of a process. Some, for example those of Postgres, overwrite their arguments and
/// name no folder.
#[must_use]
pub fn children(parent: i32) -> Vec<OsProcess> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let pids = text.split_ascii_whitespace();
    pids.filter_map(|pid| read(pid.parse().ok()?)).collect()
}

impl OsProcess {
    /// Sends a signal; ignores a process that has exited.
    ///
    /// # Panics
    /// If this user may not signal the process.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid).expect("a process number");
        match kill_process(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => panic!("signal {self:?}: {error}"),
        }
    }

    #[must_use]
    pub fn is_alive(&self) -> bool {
        Pid::from_raw(self.pid).is_some_and(|pid| test_kill_process(pid).is_ok())
            && !is_zombie(self.pid)
    }

    #[must_use]
    pub fn mentions(&self, text: &str) -> bool {
        self.arguments
            .iter()
            .chain(&self.environment)
            .any(|word| word.contains(text))
    }
}

fn all() -> Vec<OsProcess> {
    let own = i32::try_from(std::process::id()).expect("a process number");
    std::fs::read_dir("/proc")
        .expect("/proc is mounted")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| *pid != own && !is_zombie(*pid))
        .filter_map(read)
        .collect()
}

/// Words of a file of `/proc/PID` that end with a zero byte each.
fn words(pid: i32, name: &str) -> Option<Vec<String>> {
    let bytes = std::fs::read(format!("/proc/{pid}/{name}")).ok()?;
    let words = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty());
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    Some(words.collect())
}

fn read(pid: i32) -> Option<OsProcess> {
    let arguments = words(pid, "cmdline")?;
    let program = Path::new(arguments.first()?)
        .file_name()?
        .to_string_lossy()
        .into_owned();
    Some(OsProcess {
        pid,
        program,
        arguments,
        is_hidden: words(pid, "environ").is_none(),
        environment: words(pid, "environ").unwrap_or_default(),
    })
}

fn is_zombie(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may contain blanks and brackets.
    status
        .rsplit_once(')')
        .is_none_or(|(_, rest)| matches!(rest.trim_start().chars().next(), Some('Z' | 'X')))
}
