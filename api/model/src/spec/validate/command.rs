//! Rules of a command, and of document parts that only the built-in engine has.

use super::Errors;
use super::git;
use super::pod::parts_are_right;
use super::{checkpoints, secrets};
use crate::metric::{NAME_RULE, is_name};
use crate::spec::output_metrics;
use crate::spec::{
    Command, EvaluationPolicy, Exchange, JobSpec, KeptPath, RESERVED_OF_TORCHRUN, Stop, is_sha256,
};
use std::collections::BTreeSet;

const MOST_ARGUMENTS: usize = 256;
const MOST_VARIABLES: usize = 256;
const MOST_FILES: usize = 64;
const MOST_KEPT: usize = 32;
const MOST_METRICS: usize = 32;
const MOST_PATTERN_BYTES: usize = 512;
/// Maximum size of the arguments, of the variables and of the files, each. They are part of every
/// assignment and of the job's row.
const MOST_BYTES: usize = 64 << 10;
/// Maximum size of the command as JSON times its processes. One message carries all tasks of a
/// node, and its size is limited.
const MOST_BYTES_OF_ALL_PROCESSES: usize = 2 << 20;
const ONLY_BUILT_IN: &str = "left out: only the built-in engine has it";

impl JobSpec {
    pub(super) fn check_command(&self, errors: &mut Errors, command: &Command) {
        check_arguments(errors, "command.argv", &command.argv, 1);
        check_arguments(errors, "command.check", &command.check, 0);
        check_variables(errors, command);
        check_files(errors, command);
        secrets::check(errors, command);
        check_metrics(errors, command);
        check_kept(errors, command);
        if let Some(code) = &command.code {
            errors.check(
                "command.code.archive",
                &format!("{:?}", code.archive),
                is_sha256(&code.archive),
                "the SHA-256 of an archive: 64 digits 0-9 a-f. `muster submit --code FOLDER` sets it",
            );
        }
        git::check(errors, command);
        if let Some(python) = &command.python {
            errors.check(
                "command.python.requirements",
                &format!("{:?}", python.requirements),
                !python.requirements.is_empty() && is_inside(&python.requirements),
                "a relative path of at most 255 bytes in code or files, without .. and empty parts",
            );
            let instead = python.in_place_of_requirements();
            errors.check(
                "command.python.requirements",
                &format!("{:?}", python.requirements),
                instead.is_none(),
                instead.unwrap_or_default(),
            );
        }
        if let Some(folder) = &command.working_dir {
            let right = folder.starts_with('/') && folder.len() <= 4096 && !folder.contains('\0');
            errors.check(
                "command.working_dir",
                &format!("{folder:?}"),
                right,
                "an absolute path of at most 4096 bytes",
            );
            errors.check(
                "command.files",
                &format!("{} files beside working_dir", command.files.len()),
                command.files.is_empty(),
                "left out beside working_dir: files lie in a new folder of the task, where the program is then started",
            );
            errors.check(
                "command.keep",
                &"given beside working_dir",
                command.keep.is_empty(),
                "left out beside working_dir: it names parts of a new folder of the task; write to $MUSTER_OUTPUT_DIR",
            );
            errors.check(
                "command.python",
                &"given beside working_dir",
                command.python.is_none(),
                "left out beside working_dir: its requirements lie in a new folder of the task, where the program is then started",
            );
            errors.check(
                "command.code",
                &"given beside working_dir",
                command.code.is_none(),
                "left out beside working_dir: code lies in a new folder of the task, where the program is then started",
            );
            errors.check(
                "command.git",
                &"given beside working_dir",
                command.git.is_none(),
                "left out beside working_dir: the commit lies in a new folder of the task, where the program is then started",
            );
        }
        if let Some(steps) = command.steps {
            let right = (1..=1_000_000_000).contains(&steps);
            errors.check("command.steps", &steps, right, "1 to 1000000000");
        }
        errors.check(
            "command.parameter_servers",
            &command.parameter_servers,
            command.parameter_servers <= 64,
            "0 to 64",
        );
        check_elastic(errors, command);
        let bytes = serde_json::to_string(command).map_or(0, |text| text.len());
        let processes = u64::from(self.scale.workers.max) + u64::from(command.parameter_servers);
        errors.check(
            "command",
            &format!("{bytes} bytes of JSON for each of {processes} processes"),
            bytes as u64 * processes <= MOST_BYTES_OF_ALL_PROCESSES as u64,
            &format!(
                "at most {MOST_BYTES_OF_ALL_PROCESSES} bytes for all processes together; larger files belong into command.code (muster submit --code FOLDER)"
            ),
        );
        self.check_what_only_the_engine_has(errors);
    }

    fn check_what_only_the_engine_has(&self, errors: &mut Errors) {
        let exchange = self.exchange == Exchange::default();
        errors.check("exchange", &"given", exchange, ONLY_BUILT_IN);
        self.check_checkpoint(errors);
        checkpoints::check(errors, &self.checkpoint);
        let evaluate = self.evaluate == EvaluationPolicy::default();
        errors.check("evaluate", &"given", evaluate, ONLY_BUILT_IN);
        let only_known = Stop {
            wall_minutes: self.stop.wall_minutes,
            target: self.stop.target.clone(),
            ..Stop::default()
        };
        errors.check(
            "stop",
            &"given",
            self.stop == only_known,
            "at most wall_minutes and target: a command is done when all of its workers have ended with code 0; command.steps says how long it is",
        );
        if let Some(minutes) = self.stop.wall_minutes {
            errors.positive("stop.wall_minutes", minutes);
        }
        if let Some(target) = &self.stop.target {
            target.check(true, errors);
        }
        errors.check(
            "scale.ps_shards",
            &"given",
            self.scale.ps_shards.is_none(),
            "left out: command.parameter_servers says how many there are",
        );
    }
}

fn check_arguments(errors: &mut Errors, field: &str, argv: &[String], fewest: usize) {
    errors.check(
        field,
        &format!("{} arguments", argv.len()),
        (fewest..=MOST_ARGUMENTS).contains(&argv.len()),
        &format!("{fewest} to {MOST_ARGUMENTS} arguments"),
    );
    if let Some(program) = argv.first() {
        let right = !program.is_empty();
        errors.check(&format!("{field}[0]"), &"\"\"", right, "a program");
    }
    let bytes: usize = argv.iter().map(String::len).sum();
    errors.check(
        field,
        &format!("{bytes} bytes"),
        bytes <= MOST_BYTES,
        &format!("at most {MOST_BYTES} bytes together"),
    );
    for (index, argument) in argv.iter().enumerate() {
        errors.check(
            &format!("{field}[{index}]"),
            &"with a NUL",
            !argument.contains('\0'),
            "an argument without NUL bytes",
        );
    }
}

/// Checks that nothing of the document contradicts the rendezvous of `torchrun`.
fn check_elastic(errors: &mut Errors, command: &Command) {
    if command.elastic.is_none() {
        return;
    }
    errors.check(
        "command.parameter_servers",
        &command.parameter_servers,
        command.parameter_servers == 0,
        "0 beside elastic: torchrun knows no parameter servers",
    );
    for name in RESERVED_OF_TORCHRUN {
        errors.check(
            &format!("command.env.{name}"),
            &"given beside elastic",
            !command.env.contains_key(name),
            "left out: Muster is the rendezvous of torchrun and sets it",
        );
    }
}

fn check_variables(errors: &mut Errors, command: &Command) {
    let bytes: usize = command.env.iter().map(|(k, v)| k.len() + v.len()).sum();
    errors.check(
        "command.env",
        &format!("{} variables of {bytes} bytes", command.env.len()),
        command.env.len() <= MOST_VARIABLES && bytes <= MOST_BYTES,
        &format!("at most {MOST_VARIABLES} variables with {MOST_BYTES} bytes together"),
    );
    for (name, value) in &command.env {
        let field = format!("command.env.{name}");
        let right = !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0');
        errors.check(
            &field,
            &format!("{value:?}"),
            right,
            "a name without =, and no NUL",
        );
        errors.check(
            &field,
            &format!("{value:?}"),
            !Command::is_reserved(name),
            "left out: Muster sets it",
        );
    }
}

fn check_files(errors: &mut Errors, command: &Command) {
    let bytes: usize = command.files.values().map(String::len).sum();
    errors.check(
        "command.files",
        &format!("{} files of {bytes} bytes", command.files.len()),
        command.files.len() <= MOST_FILES && bytes <= MOST_BYTES,
        &format!("at most {MOST_FILES} files with {MOST_BYTES} bytes together; larger ones belong into command.code (muster submit --code FOLDER), or on a disk that all nodes see"),
    );
    for (path, text) in &command.files {
        let field = format!("command.files.{path}");
        errors.check(
            &field,
            &"a text with a NUL",
            !text.contains('\0'),
            "a text without NUL bytes",
        );
        errors.check(
            &field,
            &format!("{path:?}"),
            is_inside(path),
            "a relative path of at most 255 bytes, without .. and empty parts",
        );
    }
    // A file cannot also be a folder.
    for path in command.files.keys() {
        let below = format!("{path}/");
        let next = command.files.range(below.clone()..).next();
        let clash = next.is_some_and(|(other, _)| other.starts_with(&below));
        errors.check(
            &format!("command.files.{path}"),
            &format!("{path:?}"),
            !clash,
            "a path that is not the folder of another file",
        );
    }
}

fn check_kept(errors: &mut Errors, command: &Command) {
    errors.check(
        "command.keep",
        &format!("{} paths", command.keep.len()),
        command.keep.len() <= MOST_KEPT,
        &format!("at most {MOST_KEPT} paths"),
    );
    let mut names: BTreeSet<String> = BTreeSet::new();
    for (index, entry) in command.keep.iter().enumerate() {
        let field = format!("command.keep[{index}]");
        let name = KeptPath::new(entry).name;
        errors.check(
            &field,
            &format!("{entry:?}"),
            is_inside(name),
            "a relative path of at most 255 bytes, without .. and empty parts",
        );
        // A link cannot be below another one.
        let name = format!("{name}/");
        let is_apart = |other: &String| !other.starts_with(&name) && !name.starts_with(other);
        errors.check(
            &field,
            &format!("{entry:?}"),
            names.iter().all(is_apart),
            "a path that is not within another one of the list",
        );
        names.insert(name);
    }
}

fn check_metrics(errors: &mut Errors, command: &Command) {
    errors.check(
        "command.metrics",
        &format!("{} metrics", command.metrics.len()),
        command.metrics.len() <= MOST_METRICS,
        &format!("at most {MOST_METRICS} metrics"),
    );
    for (name, pattern) in &command.metrics {
        let field = format!("command.metrics.{name}");
        errors.check(&field, &format!("{name:?}"), is_name(name), NAME_RULE);
        errors.check(
            &field,
            &format!("{} bytes", pattern.len()),
            pattern.len() <= MOST_PATTERN_BYTES,
            &format!("a regular expression of at most {MOST_PATTERN_BYTES} bytes"),
        );
        if let Err(error) = output_metrics::compile(name, pattern) {
            errors.check(
                &field,
                &format!("{pattern:?}"),
                false,
                &format!("a regular expression with a group for the number, such as \"Loss: ([0-9.]+)\": {error}"),
            );
        }
    }
}

fn is_inside(path: &str) -> bool {
    path.len() <= 255 && parts_are_right(path)
}
