//! PyTorch's side of a bench: a process that does what it is told, line by line, and answers each order with a line.

use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub struct Torch {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Torch {
    /// Starts a script of `benches/peers` and prints its first line; `None` where there is no PyTorch.
    pub fn start(script: &str) -> Option<Self> {
        let python = std::env::var("MUSTER_TORCH_PYTHON")
            .ok()
            .filter(|python| !python.is_empty())?;
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers");
        let mut command = Command::new(python);
        command
            .arg(peers.join(script))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().ok()?;
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut torch = Self {
            child,
            input,
            output,
        };
        println!("PyTorch: {}", torch.line()?.trim());
        Some(torch)
    }

    /// # Panics
    /// When it has ended, or answers something else.
    pub fn ask<T: DeserializeOwned>(&mut self, order: &str) -> T {
        writeln!(self.input, "{order}").expect("PyTorch's side reads");
        let line = self.line().expect("PyTorch's side answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// `None` once it has ended.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).ok()?;
        (read > 0).then_some(line)
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // It keeps nothing; waiting leaves no dead child behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
