//! Compares docs/reference/cli.md with the definitions of the commands, and renews it.

use clap::{Arg, ArgAction, Command, CommandFactory as _};

const HEAD: &str = "\
# CLI reference

This page comes from the definitions of the commands in `api/cli`. `muster COMMAND --help` prints
the same texts.
";

/// Returns the reference of a command and of all its subcommands as Markdown.
fn markdown(mut muster: Command) -> String {
    muster.build();
    let mut page = HEAD.to_owned();
    if let Some(after) = muster.get_after_help() {
        push(&mut page, &escaped(&after.to_string()));
    }
    push(&mut page, "## Options of every command");
    let globals: Vec<&Arg> = muster.get_arguments().filter(|arg| is_shown(arg)).collect();
    push(&mut page, &table(&globals));
    for command in shown(&muster) {
        describe(
            &mut page,
            command,
            &format!("muster {}", command.get_name()),
            "##",
        );
    }
    page
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    let commands = command.get_subcommands();
    commands.filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

fn is_shown(arg: &Arg) -> bool {
    let is_own = !matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version
    );
    is_own && !arg.is_hide_set()
}

fn describe(page: &mut String, command: &Command, name: &str, heading: &str) {
    push(page, &format!("{heading} {name}"));
    let about = command.get_long_about().or_else(|| command.get_about());
    let mut text = about.map_or_else(String::new, |about| sentence(&about.to_string()));
    let aliases: Vec<String> = command
        .get_visible_aliases()
        .map(|alias| format!("`{alias}`"))
        .collect();
    if !aliases.is_empty() {
        text.push_str(&format!(" Also: {}.", aliases.join(", ")));
    }
    push(page, &text);
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    push(page, &format!("```text\n{usage}\n```"));
    let own: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| is_shown(arg) && !arg.is_global_set())
        .collect();
    if !own.is_empty() {
        push(page, &table(&own));
    }
    if let Some(after) = command.get_after_help() {
        push(page, &escaped(&after.to_string()));
    }
    for inner in shown(command) {
        describe(page, inner, &format!("{name} {}", inner.get_name()), "###");
    }
}

/// Appends a paragraph.
fn push(page: &mut String, text: &str) {
    page.push('\n');
    page.push_str(text.trim_end());
    page.push('\n');
}

fn table(arguments: &[&Arg]) -> String {
    let rows = arguments.iter().map(|arg| row(arg));
    let head = ["| argument | meaning |".to_owned(), "|---|---|".to_owned()];
    head.into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

fn row(arg: &Arg) -> String {
    let text = arg.get_long_help().or_else(|| arg.get_help());
    let mut parts = vec![text.map_or_else(String::new, |text| sentence(&text.to_string()))];
    let takes_values = arg.get_action().takes_values();
    let choices = arg.get_possible_values();
    let choices: Vec<String> = choices
        .iter()
        .filter(|choice| takes_values && !choice.is_hide_set())
        .map(|choice| match choice.get_help() {
            Some(help) => format!("`{}` ({})", choice.get_name(), unended(&help.to_string())),
            None => format!("`{}`", choice.get_name()),
        })
        .collect();
    if !choices.is_empty() {
        parts.push(format!("Values: {}.", choices.join(", ")));
    }
    let defaults = arg.get_default_values().iter();
    let defaults: Vec<String> = defaults
        .filter(|_| takes_values && !arg.is_hide_default_value_set())
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if !defaults.is_empty() {
        parts.push(format!("Default: {}.", defaults.join(", ")));
    }
    if let Some(variable) = arg.get_env() {
        parts.push(format!("Variable: `{}`.", variable.to_string_lossy()));
    }
    parts.retain(|part| !part.is_empty());
    format!(
        "| {} | {} |",
        code(arg),
        parts.join(" ").replace('|', "\\|")
    )
}

/// Returns how the argument is written, such as `-f`, `--file FILE`.
fn code(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(clap::builder::Str::as_str).collect();
    let value = names.join(" ");
    let is_repeated = match arg.get_action() {
        ArgAction::Append | ArgAction::Count => true,
        _ => arg
            .get_num_args()
            .is_some_and(|range| range.max_values() > 1),
    };
    let mut written = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `--{long}"),
        (Some(short), None) => format!("`-{short}"),
        (None, Some(long)) => format!("`--{long}"),
        (None, None) => "`".to_owned(),
    };
    if arg.get_action().takes_values() {
        written.push_str(if arg.is_positional() { "" } else { " " });
        written.push_str(&value);
    }
    written.push_str(if is_repeated { "...`" } else { "`" });
    written.replace('|', "\\|")
}

/// Returns the text on one line, with a full stop at its end.
fn sentence(text: &str) -> String {
    match unended(text) {
        text if text.is_empty() => text,
        text => format!("{text}."),
    }
}

fn unended(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    escaped(words.join(" ").trim_end_matches('.'))
}

/// Escapes what Markdown would read as HTML, outside code.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate();
    let parts = parts.map(|(index, part)| match index % 2 {
        0 => part.replace('<', "&lt;").replace('*', "\\*"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

#[test]
fn reference_page_is_what_the_commands_define() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    let page = markdown(crate::Cli::command());
    if std::env::var_os("MUSTER_GOLDEN").is_some_and(|word| word == "write") {
        std::fs::write(path, &page).expect("the page can be written");
    }
    let committed = std::fs::read_to_string(path).expect("the page is there");
    assert!(
        committed == page,
        "docs/reference/cli.md is not what the commands define; MUSTER_GOLDEN=write renews it"
    );
}
