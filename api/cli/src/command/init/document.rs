//! The text of a job document for a program, with comments on what users usually change.

use super::program::{Framework, Program};
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;

/// Returns the document.
#[must_use]
pub fn of(program: &Program, file: &Path) -> String {
    let mut text = format!(
        "# Job document of {}, written by `muster init`.\n# All fields: docs/job.md and docs/commands.md. Submit it with its folder:\n#   muster submit {} --code . --follow\nversion: muster/v1\nname: {}\n",
        program.title(),
        file.display(),
        program.name,
    );
    text.push_str(&command(program));
    text.push_str(&resources(program));
    text.push_str(&scale(program.framework));
    text.push_str(&rest(program));
    text
}

fn command(program: &Program) -> String {
    let argv = match program.framework {
        Framework::Mpi => mpi_argv(program),
        _ => program.argv.clone(),
    };
    let mut text = format!("command:\n  argv: {}\n", list(&argv));
    match &program.requirements {
        Some(file) => {
            let _ = writeln!(
                text,
                "  # Each node installs these packages once, beside those that its python3 has.\n  python: {{ requirements: {file} }}"
            );
        }
        None => text.push_str(
            "  # Packages to install, from a file of the folder:\n  # python: { requirements: requirements.txt }\n",
        ),
    }
    if program.framework == Framework::Mpi {
        text.push_str("  # Worker 0 runs mpirun; the others hold their place until it has ended.\n  ends: first_worker\n");
    }
    text.push_str(
        "  # env: { NAME: value }\n  # Stored by `muster secrets set HF_TOKEN`:\n  # secrets: [{ name: HF_TOKEN }]\n",
    );
    text
}

/// Worker 0 runs `mpirun`, and the others wait.
fn mpi_argv(program: &Program) -> Vec<String> {
    let inner: Vec<String> = program.argv.iter().map(|word| quoted(word)).collect();
    let run = match program.argv.first().map(String::as_str) {
        Some("mpirun") => inner.join(" "),
        _ => format!("mpirun -np \"$WORLD_SIZE\" {}", inner.join(" ")),
    };
    let script = format!("[ \"$RANK\" = 0 ] || exec sleep infinity; exec {run}");
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

/// Returns a word that a shell reads as this one.
fn quoted(word: &str) -> String {
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Whether a shell gives the letter no meaning. `$` stays, so that variables are replaced.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_./=:@%+,$".contains(letter)
}

/// Returns a list of YAML in one line, which JSON is.
fn list(words: &[String]) -> String {
    let words = words.iter().map(|word| json!(word).to_string());
    format!("[{}]", words.collect::<Vec<_>>().join(", "))
}

fn resources(program: &Program) -> String {
    let gpus = match program.framework {
        Framework::Other | Framework::Mpi => "gpus: 1              # 0 if the program uses no GPU",
        _ => "gpus: 1              # of each worker",
    };
    format!(
        "resources:\n  worker:\n    {gpus}\n    # gpu_kinds: [A100, H100]\n    # cpu_milli: 4000    # default: the node's share per GPU\n    # memory_bytes: 16Gi # the same\n"
    )
}

fn scale(framework: Framework) -> String {
    let (comment, workers) = match framework {
        Framework::TorchDistributed => (
            "Each worker is a process with RANK, WORLD_SIZE and MASTER_ADDR, as torchrun sets them.\n# The scheduler chooses their number; a change restarts the program from its checkpoint.",
            "{ min: 1, max: 4 }",
        ),
        Framework::Lightning => (
            "Each worker is a node to Lightning: Trainer(num_nodes=int(os.environ[\"WORLD_SIZE\"]),\n# devices=1). Then max may be larger, and the scheduler chooses the number.",
            "{ min: 1, max: 1 }",
        ),
        Framework::Transformers => (
            "The Trainer distributes by itself: with a larger max, the scheduler chooses the number of\n# workers.",
            "{ min: 1, max: 1 }",
        ),
        Framework::TensorFlow => (
            "Each worker gets TF_CONFIG; more than one need a tf.distribute strategy. A program that\n# depends on their number has min equal to max.",
            "{ min: 1, max: 1 }",
        ),
        Framework::Mpi => (
            "The number of workers is the number of MPI ranks.",
            "{ min: 2, max: 2 }",
        ),
        Framework::Torch | Framework::Other => (
            "The program uses one worker. For several it needs torch.distributed, MPI or the like.",
            "{ min: 1, max: 1 }",
        ),
    };
    format!("# {comment}\nscale:\n  workers: {workers}\n")
}

fn rest(program: &Program) -> String {
    let checkpoints = match program.framework {
        _ if program.uses_muster => {
            "The program uses the package `muster`, which reports its checkpoints (docs/python.md)."
        }
        Framework::Lightning => {
            "Let it continue after a stop: MusterCallback and last_checkpoint() of muster.lightning."
        }
        Framework::Transformers => {
            "Let it continue after a stop: MusterCallback and last_checkpoint() of\n# muster.transformers."
        }
        _ => {
            "After a stop the program starts again. It continues if it keeps its checkpoints in\n# $MUSTER_CHECKPOINT_DIR and loads the newest one at its start."
        }
    };
    format!(
        "# {checkpoints}\nretries: 3\n# Metrics: log them to MLflow, by the package muster, or print lines such as\n#   muster: step=10 loss=0.31 val/f1=0.8\n# stop: {{ target: {{ metric: val/f1, value: 0.9, goal: maximize }} }}\n"
    )
}

/// Returns what a user can do with the file.
#[must_use]
pub fn next_steps(folder: &Path, file: &Path) -> [String; 2] {
    let (folder, file) = (folder.display(), file.display());
    [
        format!("check it: muster submit {file} --code {folder} --dry-run"),
        format!("run it:   muster submit {file} --code {folder} --follow"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(framework: Framework, argv: &[&str]) -> Program {
        Program {
            name: "train".to_owned(),
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            framework,
            uses_muster: false,
            requirements: Some("requirements.txt".to_owned()),
        }
    }

    #[test]
    fn every_document_is_valid() {
        for framework in [
            Framework::Lightning,
            Framework::Transformers,
            Framework::TorchDistributed,
            Framework::Torch,
            Framework::TensorFlow,
            Framework::Mpi,
            Framework::Other,
        ] {
            let argv = [
                "python3",
                "train.py",
                "--note",
                "it's \"good\": yes\nretries: 9",
            ];
            let text = of(&program(framework, &argv), Path::new("muster.yaml"));
            super::super::check(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let document = crate::document::parse(&text).expect("YAML");
            if framework == Framework::Mpi {
                let script = document["command"]["argv"][2].as_str().expect("a script");
                let end = "mpirun -np \"$WORLD_SIZE\" python3 train.py --note 'it'\\''s \"good\": yes\nretries: 9'";
                assert!(script.ends_with(end), "{script}");
            } else {
                assert_eq!(document["command"]["argv"], json!(argv), "{text}");
            }
        }
    }
}
