//! Rules of `command.secrets`.

use super::Errors;
use crate::spec::Command;
use crate::spec::secret::{SECRET_NAME_RULE, SecretRef, is_secret_name, is_variable_name};
use std::collections::BTreeSet;

const MOST_SECRETS: usize = 64;
const MOST_FILE_NAME: usize = 255;

pub(super) fn check(errors: &mut Errors, command: &Command) {
    let secrets = &command.secrets;
    errors.check(
        "command.secrets",
        &format!("{} secrets", secrets.len()),
        secrets.len() <= MOST_SECRETS,
        &format!("at most {MOST_SECRETS} secrets"),
    );
    let mut taken: BTreeSet<(bool, &str)> = BTreeSet::new();
    for (index, secret) in secrets.iter().enumerate() {
        let field = format!("command.secrets[{index}]");
        errors.check(
            &format!("{field}.name"),
            &format!("{:?}", secret.name),
            is_secret_name(&secret.name),
            &format!("the name of a secret: {SECRET_NAME_RULE}"),
        );
        errors.check(
            &field,
            &"with env and file",
            secret.env.is_none() || secret.file.is_none(),
            "one of the two: env for a variable, file for a file in $MUSTER_SECRETS_DIR",
        );
        match (secret.variable(), &secret.file) {
            (Some(variable), _) => check_variable(errors, &field, command, secret, variable),
            (None, Some(file)) => errors.check(
                &format!("{field}.file"),
                &format!("{file:?}"),
                is_file_name(file),
                "a file name of at most 255 bytes, without / and NUL",
            ),
            (None, None) => {}
        }
        let target = secret.variable().or(secret.file.as_deref());
        let target = target.unwrap_or_default();
        let is_variable = secret.variable().is_some();
        errors.check(
            &field,
            &format!("{target:?}"),
            taken.insert((is_variable, target)),
            "a variable or file that no other secret of the document has",
        );
    }
}

fn check_variable(
    errors: &mut Errors,
    field: &str,
    command: &Command,
    secret: &SecretRef,
    variable: &str,
) {
    let (field, remedy) = match secret.env {
        Some(_) => (format!("{field}.env"), ""),
        None => (
            format!("{field}.name"),
            ". Set env to another variable, or file to a file name",
        ),
    };
    let shown = format!("{variable:?}");
    errors.check(
        &field,
        &shown,
        is_variable_name(variable),
        &format!(
            "the name of a variable: A-Z, a-z, 0-9 and '_', not beginning with a digit{remedy}"
        ),
    );
    errors.check(
        &field,
        &shown,
        !Command::is_reserved(variable),
        &format!("a variable that Muster does not set{remedy}"),
    );
    errors.check(
        &field,
        &shown,
        !command.env.contains_key(variable),
        &format!("a variable that command.env does not set{remedy}"),
    );
}

fn is_file_name(text: &str) -> bool {
    (1..=MOST_FILE_NAME).contains(&text.len())
        && !text.contains(['/', '\0'])
        && text != "."
        && text != ".."
}
