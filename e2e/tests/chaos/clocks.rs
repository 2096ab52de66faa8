//! Wall clocks of single daemons, stepped by a small library that is loaded before the C library.

use crate::schedule::ChaosHost;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const LIBRARY: &str = include_str!("clock.c");
/// One page, which the library maps.
const BYTES: u64 = 4_096;

/// The library, and per host a file with the offset of its clock.
#[derive(Debug)]
pub struct Clocks {
    folder: PathBuf,
}

impl Clocks {
    /// Compiles the library.
    ///
    /// # Errors
    /// If there is no C compiler.
    pub fn build(folder: &Path, hosts: &[ChaosHost]) -> Result<Self, String> {
        let clocks = Self {
            folder: folder.to_owned(),
        };
        let source = folder.join("clock.c");
        std::fs::write(&source, LIBRARY).map_err(|error| error.to_string())?;
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(clocks.shared_object())
            .arg(&source)
            .arg("-ldl")
            .output();
        let output = output.map_err(|error| format!("run cc: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        for host in hosts {
            let file = std::fs::File::create(clocks.file(*host));
            let file = file.map_err(|error| error.to_string())?;
            file.set_len(BYTES).map_err(|error| error.to_string())?;
        }
        Ok(clocks)
    }

    /// Environment of the host's daemon.
    pub fn environment(&self, host: ChaosHost) -> [(&'static str, String); 2] {
        [
            ("LD_PRELOAD", self.shared_object().display().to_string()),
            ("CHAOS_CLOCK", self.file(host).display().to_string()),
        ]
    }

    /// Sets the host's wall clock `by_s` seconds ahead of this machine's.
    pub fn step(&self, host: ChaosHost, by_s: i64) {
        let file = std::fs::File::options().write(true).open(self.file(host));
        file.and_then(|file| file.write_all_at(&by_s.to_ne_bytes(), 0))
            .expect("our own file");
    }

    fn shared_object(&self) -> PathBuf {
        self.folder.join("clock.so")
    }

    fn file(&self, host: ChaosHost) -> PathBuf {
        self.folder.join(format!("clock-{host}"))
    }
}
