//! `muster template`: job documents with parameters.

use super::{CliSession, UsageError};
use crate::clock;
use crate::document::{self, map_in, read};
use crate::output::{age, fields, table};
use crate::refused::with_lines;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use muster_model::template::{
    ParameterType, TEMPLATE_LABEL, TemplateDocument, TemplateParameter, Values,
};
use muster_model::view::TemplateView;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct TemplateArgs {
    #[command(subcommand)]
    verb: Option<TemplateVerb>,
}

#[derive(Debug, Subcommand)]
enum TemplateVerb {
    /// List the templates of the tenant with their parameters (the default)
    #[command(visible_alias = "ls")]
    List,
    /// Create or replace a template from a file with `parameters` and `job`
    Set {
        /// Name of the template: letters a-z, digits and '-'.
        name: String,
        /// The template, YAML or JSON; `-` reads standard input.
        file: PathBuf,
    },
    /// Show the parameters and the document of a template
    Show { name: String },
    /// Delete a template; its jobs stay
    Delete { name: String },
}

impl TemplateArgs {
    /// # Errors
    /// If the file cannot be read, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        match self.verb.unwrap_or(TemplateVerb::List) {
            TemplateVerb::List => {
                let templates = session.client.templates().await?;
                session.output.print(&templates, |all| listed(all))
            }
            TemplateVerb::Set { name, file } => {
                let stored = session.client.set_template(&name, &read(&file)?).await;
                let stored = stored.map_err(|error| with_lines(error, Some(&file)))?;
                session.output.print(&stored, |stored| {
                    let (name, version) = (&stored.name, stored.version);
                    format!("template {name} stored (version {version}); muster submit --template {name}")
                })
            }
            TemplateVerb::Show { name } => {
                let template = session.client.template(&name).await?;
                let job = serde_norway::to_string(&template.document.job).context("write YAML")?;
                session.output.print(&template, |template| {
                    format!("{}\n\n{job}", shown(template))
                })
            }
            TemplateVerb::Delete { name } => {
                session.client.delete_template(&name).await?;
                session.print_deleted(name, |name| {
                    format!("template {name} deleted; its jobs stay")
                })
            }
        }
    }
}

/// Returns the document of a template with these values, `NAME=VALUE` each.
///
/// # Errors
/// [`UsageError`] with all wrong values, or if the server refuses.
pub async fn filled(
    session: &CliSession,
    name: &str,
    assignments: &[String],
) -> anyhow::Result<Value> {
    let template = session.client.template(name).await?.document;
    let mut values = Values::new();
    for assignment in assignments {
        let (parameter, value) = value(&template, assignment)?;
        values.insert(parameter, value);
    }
    let filled = template.fill(&values).map_err(|errors| {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        UsageError(format!("template {name}: {}", errors.join("; ")))
    });
    let mut document = filled?;
    if let Some(labels) = map_in(&mut document, "labels") {
        labels.insert(TEMPLATE_LABEL.to_owned(), json!(name));
    }
    Ok(document)
}

/// Reads a value as its parameter's type: that of a string is not parsed.
fn value(template: &TemplateDocument, assignment: &str) -> anyhow::Result<(String, Value)> {
    let Some((name, text)) = assignment.split_once('=') else {
        let text = format!("--set {assignment}: expected PARAMETER=VALUE");
        return Err(UsageError(text).into());
    };
    let value = match template.type_of(name) {
        Some(ParameterType::String) => json!(text),
        _ => document::parse(text)
            .map_err(|error| UsageError(format!("--set {assignment}: {error}")))?,
    };
    Ok((name.to_owned(), value))
}

fn listed(templates: &[TemplateView]) -> String {
    let now = clock::now();
    table(
        [
            "name",
            "version",
            "updated",
            "by",
            "parameters",
            "description",
        ],
        templates.iter().map(|template| {
            let parameters = template.document.parameters.iter();
            let names: Vec<&str> = parameters.map(|one| one.name.as_str()).collect();
            [
                template.name.clone(),
                template.version.to_string(),
                format!("{} ago", age(template.updated_at, now)),
                template.updated_by.to_string(),
                names.join(", "),
                template.document.description.clone(),
            ]
        }),
    )
}

fn shown(template: &TemplateView) -> String {
    let document = &template.document;
    let mut rows = vec![
        ("template", template.name.clone()),
        ("version", template.version.to_string()),
        ("description", document.description.clone()),
    ];
    rows.extend(document.parameters.iter().map(|one| {
        let name = one.name.as_str();
        (name, described(one))
    }));
    fields(&rows)
}

/// Returns type, default, choices and description of a parameter.
fn described(parameter: &TemplateParameter) -> String {
    let default = match &parameter.default {
        Some(value) => format!(", default {value}"),
        None => ", required".to_owned(),
    };
    let choices: Vec<String> = parameter.choices.iter().map(Value::to_string).collect();
    let choices = if choices.is_empty() {
        String::new()
    } else {
        format!(", one of {}", choices.join(", "))
    };
    let text = match parameter.description.as_str() {
        "" => String::new(),
        text => format!(": {text}"),
    };
    format!("{}{default}{choices}{text}", parameter.kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_the_type_of_their_parameter() {
        let template: TemplateDocument = serde_json::from_value(json!({
            "parameters": [{ "name": "tag", "type": "string" }, { "name": "lr", "type": "float" }], "job": {},
        }))
        .expect("a template");
        for (text, expected) in [
            ("tag=01", json!("01")),
            ("tag=a=b", json!("a=b")),
            ("lr=0.1", json!(0.1)),
        ] {
            assert_eq!(value(&template, text).expect("a value").1, expected);
        }
        assert!(value(&template, "lr").is_err());
    }
}
