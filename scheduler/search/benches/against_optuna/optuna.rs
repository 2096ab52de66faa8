//! Optuna in a separate process (`optuna_peer.py`), which exchanges lines over stdin and stdout.
//! The benches of several crates use it.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process ends when this is dropped.
pub struct Optuna {
    child: Child,
    input: ChildStdin,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Optuna {
    /// `peer` is the path of `optuna_peer.py`, which documents the arguments.
    pub fn start(python: &OsStr, peer: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(python)
            .arg(peer)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        Self {
            child,
            input,
            lines: BufReader::new(output).lines(),
        }
    }

    pub fn tell(&mut self, what: impl Display) {
        writeln!(self.input, "{what}").expect("it listens");
    }

    pub fn line(&mut self) -> String {
        let line = self.lines.next().expect("Optuna goes on");
        line.expect("text")
    }
}

impl Drop for Optuna {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
