//! PyTorch's side of a bench: a process that reads one order per line and answers each with a line.

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
    /// Starts a script of `benches/peers` and prints its first line; `None` if PyTorch is not
    /// available.
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

    /// Sends an order and reads the answer.
    ///
    /// # Panics
    /// If the process has ended or its answer has another format.
    pub fn ask<T: DeserializeOwned>(&mut self, order: &str) -> T {
        writeln!(self.input, "{order}").expect("PyTorch's side reads");
        let line = self.line().expect("PyTorch's side answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    /// Reads a line; `None` if the process has ended.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = self.output.read_line(&mut line).ok()?;
        (read > 0).then_some(line)
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        // The process has no state to save; waiting prevents a zombie.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
