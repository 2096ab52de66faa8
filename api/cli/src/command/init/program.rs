//! The training program of a folder: its arguments, and the library that it uses.

use crate::command::run::name_of;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Names of training scripts, in the order of preference.
const SCRIPTS: [&str; 6] = [
    "train.py",
    "main.py",
    "run.py",
    "fit.py",
    "finetune.py",
    "training.py",
];
/// Number of bytes of a script that are searched for imports.
const SEARCHED: u64 = 1 << 20;
/// Files with the packages of a program; the first that exists counts.
const REQUIREMENTS: [&str; 3] = ["requirements.txt", "uv.lock", "pylock.toml"];

/// Library that decides how a program uses several workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    Lightning,
    Transformers,
    /// PyTorch with `torch.distributed`.
    TorchDistributed,
    Torch,
    TensorFlow,
    Mpi,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub name: String,
    pub argv: Vec<String>,
    pub framework: Framework,
    /// Whether it imports the package `muster`.
    pub uses_muster: bool,
    /// The requirements file of the folder.
    pub requirements: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    #[error(
        "{} has no Python script; name the program: muster init -- PROGRAM ARGUMENTS",
        folder.display()
    )]
    None { folder: PathBuf },
    #[error(
        "{} has several scripts ({}); name the program, such as: muster init -- python3 {}",
        folder.display(),
        scripts.join(", "),
        scripts[0]
    )]
    Several {
        folder: PathBuf,
        scripts: Vec<String>,
    },
    #[error("read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
}

impl SearchError {
    fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }
}

impl Program {
    /// Finds the training script of a folder: one of [`SCRIPTS`], or the only script that runs by
    /// itself.
    ///
    /// # Errors
    /// [`SearchError`].
    pub fn find(folder: &Path) -> Result<Self, SearchError> {
        let scripts = scripts(folder)?;
        let usual = SCRIPTS
            .into_iter()
            .find(|name| scripts.iter().any(|script| script == name));
        let script = match usual {
            Some(script) => script.to_owned(),
            None => only_program(folder, scripts)?,
        };
        Self::of(folder, vec!["python3".to_owned(), script])
    }

    /// Returns the program with these arguments.
    ///
    /// # Errors
    /// If its script exists and cannot be read.
    pub fn of(folder: &Path, argv: Vec<String>) -> Result<Self, SearchError> {
        let script = argv
            .iter()
            .map(|word| folder.join(word))
            .find(|path| path.extension().is_some_and(|ending| ending == "py") && path.is_file());
        let text = script.map(|script| text(&script)).transpose()?;
        let modules = modules(text.as_deref().unwrap_or_default());
        let is_mpi = argv.first().is_some_and(|program| program == "mpirun");
        Ok(Self {
            name: name_of(&argv),
            framework: if is_mpi {
                Framework::Mpi
            } else {
                framework(&modules)
            },
            uses_muster: modules.iter().any(|module| root(module) == "muster"),
            requirements: REQUIREMENTS
                .into_iter()
                .find(|name| folder.join(name).is_file())
                .map(str::to_owned),
            argv,
        })
    }

    /// Returns the program and its library in words.
    #[must_use]
    pub fn title(&self) -> String {
        let library = match self.framework {
            Framework::Lightning => " (Lightning)",
            Framework::Transformers => " (Transformers)",
            Framework::TorchDistributed => " (PyTorch, distributed)",
            Framework::Torch => " (PyTorch)",
            Framework::TensorFlow => " (TensorFlow)",
            Framework::Mpi => " (MPI)",
            Framework::Other => "",
        };
        let argv = self.argv.join(" ");
        format!("{}{library}", argv.replace(char::is_control, " "))
    }
}

/// Returns the names of the folder's Python scripts, ordered.
fn scripts(folder: &Path) -> Result<Vec<String>, SearchError> {
    let mut scripts = Vec::new();
    for entry in fs::read_dir(folder).map_err(SearchError::read(folder))? {
        let entry = entry.map_err(SearchError::read(folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".py") && entry.path().is_file() {
            scripts.push(name);
        }
    }
    scripts.sort_unstable();
    Ok(scripts)
}

fn only_program(folder: &Path, scripts: Vec<String>) -> Result<String, SearchError> {
    let mut programs = Vec::new();
    for script in &scripts {
        if text(&folder.join(script))?.contains("__main__") {
            programs.push(script.clone());
        }
    }
    let mut candidates = if programs.is_empty() {
        scripts
    } else {
        programs
    };
    let folder = folder.to_owned();
    match candidates.len() {
        0 => Err(SearchError::None { folder }),
        1 => Ok(candidates.remove(0)),
        _ => Err(SearchError::Several {
            folder,
            scripts: candidates,
        }),
    }
}

/// Returns the first part of a file; bytes that are no UTF-8 are replaced.
fn text(path: &Path) -> Result<String, SearchError> {
    let file = fs::File::open(path).map_err(SearchError::read(path))?;
    let mut bytes = Vec::new();
    let read = file.take(SEARCHED).read_to_end(&mut bytes);
    read.map_err(SearchError::read(path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the modules that a script imports, also inside of functions.
fn modules(text: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for line in text.lines().map(str::trim) {
        if let Some(names) = line.strip_prefix("import ") {
            let names = names.split(',').map(first_word);
            modules.extend(names.map(str::to_owned));
        } else if let Some(rest) = line.strip_prefix("from ") {
            let module = first_word(rest);
            let names = rest.split_once(" import ").map_or("", |(_, names)| names);
            modules.insert(module.to_owned());
            // `from torch import distributed` imports a module, too.
            let names = names.trim().trim_start_matches('(');
            let names = names.split([',', ')']).map(first_word);
            modules.extend(names.map(|name| format!("{module}.{name}")));
        }
    }
    modules
}

fn first_word(text: &str) -> &str {
    let text = text.trim();
    let end = text.find([' ', '\t', ';', '#', '(']);
    &text[..end.unwrap_or(text.len())]
}

fn root(module: &str) -> &str {
    module.split('.').next().unwrap_or(module)
}

fn framework(modules: &BTreeSet<String>) -> Framework {
    let has = |names: &[&str]| modules.iter().any(|module| names.contains(&root(module)));
    let is_distributed = modules.iter().any(|module| {
        module.starts_with("torch.distributed") || module.starts_with("torch.nn.parallel")
    });
    let trains = modules
        .iter()
        .any(|module| module.starts_with("transformers.") && module.contains("Trainer"));
    if has(&["lightning", "pytorch_lightning"]) {
        Framework::Lightning
    } else if trains || has(&["trl"]) {
        Framework::Transformers
    } else if is_distributed || has(&["accelerate", "deepspeed"]) {
        Framework::TorchDistributed
    } else if has(&["torch", "transformers"]) {
        Framework::Torch
    } else if has(&["tensorflow", "keras"]) {
        Framework::TensorFlow
    } else if has(&["mpi4py"]) {
        Framework::Mpi
    } else {
        Framework::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Framework {
        framework(&modules(text))
    }

    #[test]
    fn library_of_a_script_is_found_by_its_imports() {
        for (text, expected) in [
            ("import os, torch\n", Framework::Torch),
            (
                "import torch.distributed as dist\n",
                Framework::TorchDistributed,
            ),
            (
                "import torch\nfrom torch import distributed",
                Framework::TorchDistributed,
            ),
            (
                "from torch.nn.parallel import DistributedDataParallel as DDP",
                Framework::TorchDistributed,
            ),
            ("  import lightning.pytorch as pl", Framework::Lightning),
            (
                "import torch\nimport pytorch_lightning",
                Framework::Lightning,
            ),
            ("from transformers import (AutoModel)", Framework::Torch),
            (
                "from transformers import (Trainer, AutoModel)",
                Framework::Transformers,
            ),
            (
                "from transformers import AutoModel, Trainer",
                Framework::Transformers,
            ),
            ("from keras import layers", Framework::TensorFlow),
            ("from mpi4py import MPI", Framework::Mpi),
            ("# import torch\nimport torchless", Framework::Other),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }

    #[test]
    fn training_script_is_found_or_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
        let found = || Program::find(folder.path()).map(|program| program.argv[1].clone());
        assert!(matches!(found(), Err(SearchError::None { .. })));
        write("model.py", "import torch").expect("our own folder");
        assert_eq!(found().expect("the only script"), "model.py");
        write("fit_model.py", "if __name__ == '__main__': pass").expect("our own folder");
        assert_eq!(found().expect("the only program"), "fit_model.py");
        write("evaluate.py", "if __name__ == '__main__': pass").expect("our own folder");
        let error = found().expect_err("two programs").to_string();
        assert!(error.contains("evaluate.py, fit_model.py"), "{error}");
        write("train.py", "").expect("our own folder");
        assert_eq!(found().expect("a usual name"), "train.py");
    }
}
