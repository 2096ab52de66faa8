//! The executor's own program with its libraries, so that it can run in an image that has no C
//! library or another one.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Folder of the executor's program in an image.
pub(crate) const FOLDER: &str = "/.muster";

/// The executor's program and what the kernel needs to start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnProgram {
    pub path: PathBuf,
    /// Dynamic loader; `None` if the program is linked statically.
    pub loader: Option<PathBuf>,
    /// Libraries by the names under which the loader searches them.
    pub libraries: BTreeMap<String, PathBuf>,
}

impl OwnProgram {
    /// Asks the dynamic loader for the libraries of this program.
    ///
    /// # Errors
    /// If this program cannot be started.
    pub(crate) fn find() -> io::Result<Self> {
        let path = std::env::current_exe()?;
        // With this variable the loader lists libraries instead of starting the program. A static
        // program prints its version.
        let listed = Command::new(&path)
            .arg("--version")
            .env_clear()
            .env("LD_TRACE_LOADED_OBJECTS", "1")
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()?;
        Ok(Self::parse(path, &String::from_utf8_lossy(&listed.stdout)))
    }

    fn parse(path: PathBuf, listed: &str) -> Self {
        let mut own = Self {
            path,
            loader: None,
            libraries: BTreeMap::new(),
        };
        for line in listed.lines() {
            let line = line.trim();
            // The address of the library follows.
            let line = line.rsplit_once(" (").map_or(line, |(line, _)| line);
            match line.split_once(" => ") {
                Some((name, found)) if found.starts_with('/') && !name.contains('/') => {
                    own.libraries.insert(name.to_owned(), found.into());
                }
                None if line.starts_with('/') => own.loader = Some(line.into()),
                _ => {}
            }
        }
        own
    }

    /// Returns the command that starts the program in an image, where [`FOLDER`] has it.
    pub(crate) fn command_inside(&self) -> Command {
        let folder = Path::new(FOLDER);
        let program = folder.join("executor");
        if self.loader.is_none() {
            return Command::new(program);
        }
        let mut command = Command::new(folder.join("loader"));
        command.arg("--library-path").arg(folder.join("lib"));
        command.arg(program);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_that_the_loader_lists() {
        let listed = "\tlinux-vdso.so.1 (0x00007ffc)\n\
            \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f)\n\
            \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let own = OwnProgram::parse("/bin/executor".into(), listed);
        let loader = own.loader.clone().expect("listed");
        assert_eq!(loader, Path::new("/lib64/ld-linux-x86-64.so.2"));
        let names: Vec<&String> = own.libraries.keys().collect();
        assert_eq!(names, ["libc.so.6", "libgcc_s.so.1"]);
        let fixed = OwnProgram::parse("/bin/executor".into(), "muster-executor 1.0.0\n");
        assert_eq!((fixed.loader, fixed.libraries.len()), (None, 0));
    }

    #[test]
    fn own_libraries_exist() {
        let own = OwnProgram::find().expect("this program");
        let mut all = own.libraries.values().chain(&own.loader);
        assert!(all.all(|path| path.exists()), "{own:?}");
    }
}
