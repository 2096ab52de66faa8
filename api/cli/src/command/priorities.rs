//! `muster priorities`: ranges of job priorities, with their roles and tenants.

use super::{CliSession, UsageError};
use crate::output::table;
use clap::{Args, Subcommand};
use muster_model::priority::{PriorityClass, PriorityClassDocument};
use muster_model::tenant::Access;
use muster_model::view::JobView;
use std::collections::BTreeSet;

#[derive(Debug, Args)]
pub struct PrioritiesArgs {
    #[command(subcommand)]
    verb: Option<PriorityVerb>,
}

#[derive(Debug, Subcommand)]
enum PriorityVerb {
    /// List the priority classes that you may use; for administrators all (the default)
    List,
    /// Create or change a priority class; for administrators
    Set(SetArgs),
    /// Delete a priority class; its jobs keep their priorities
    Delete { name: String },
}

/// Create or change a priority class. An option that is left out keeps its value.
#[derive(Debug, Args)]
struct SetArgs {
    name: String,
    /// Lowest priority of its jobs, -100 to 100; required for a new class.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    lowest: Option<i32>,
    /// Highest priority of its jobs, up to 100; required for a new class.
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    highest: Option<i32>,
    /// Priority of jobs whose documents state only the class [default: the number of the range
    /// that is nearest to 0].
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    default: Option<i32>,
    /// Text for users.
    #[arg(long)]
    description: Option<String>,
    /// Access of the tokens that may use it; may be repeated [default: member]. Administrators may
    /// use every class.
    #[arg(long = "role", value_name = "member|admin", value_parser = role)]
    roles: Vec<Access>,
    /// Tenant whose jobs may have it; may be repeated; `none`: all tenants.
    #[arg(long = "tenant", value_name = "NAME|none")]
    tenants: Vec<String>,
}

fn role(text: &str) -> Result<Access, String> {
    Access::of_name(text).ok_or_else(|| "expected member or admin".to_owned())
}

impl PrioritiesArgs {
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        match self.verb.unwrap_or(PriorityVerb::List) {
            PriorityVerb::List => {
                let classes = session.client.priority_classes().await?;
                session.output.print(&classes, |classes| shown(classes))
            }
            PriorityVerb::Set(set) => {
                let known = session.client.priority_classes().await?;
                let known = known.into_iter().find(|class| class.name == set.name);
                let name = set.name.clone();
                let document = set.over(known)?;
                let class = session.client.set_priority_class(&name, &document).await?;
                session
                    .output
                    .print(&class, |class| shown(std::slice::from_ref(class)))
            }
            PriorityVerb::Delete { name } => {
                session.client.delete_priority_class(&name).await?;
                session.print_deleted(name, |name| {
                    format!("priority class {name} deleted; its jobs keep their priorities")
                })
            }
        }
    }
}

impl SetArgs {
    /// Returns the class after the change.
    fn over(self, known: Option<PriorityClass>) -> Result<PriorityClassDocument, UsageError> {
        let range = known.as_ref().map(|class| (class.lowest, class.highest));
        let (lowest, highest) = (
            self.lowest.or(range.map(|range| range.0)),
            self.highest.or(range.map(|range| range.1)),
        );
        let (Some(lowest), Some(highest)) = (lowest, highest) else {
            let text = format!(
                "priority class {} does not exist: give --lowest and --highest for a new one",
                self.name
            );
            return Err(UsageError(text));
        };
        let known = known.as_ref();
        let roles = match (self.roles.is_empty(), known) {
            (true, Some(known)) => known.roles.clone(),
            (true, None) => BTreeSet::from([Access::Member]),
            (false, _) => self.roles.into_iter().collect(),
        };
        let tenants = match known {
            Some(known) if self.tenants.is_empty() => known.tenants.clone(),
            _ => self
                .tenants
                .into_iter()
                .filter(|name| name != "none")
                .collect(),
        };
        let description = self
            .description
            .or_else(|| known.map(|known| known.description.clone()));
        Ok(PriorityClassDocument {
            description: description.unwrap_or_default(),
            lowest,
            highest,
            default: self.default.or(known.map(|known| known.default)),
            roles,
            tenants,
        })
    }
}

/// Returns the priority of a job with its class, such as `20 (urgent)`.
pub fn of_job(job: &JobView) -> String {
    match &job.priority_class {
        Some(class) => format!("{} ({class})", job.priority),
        None => job.priority.to_string(),
    }
}

fn shown(classes: &[PriorityClass]) -> String {
    table(
        [
            "name",
            "range",
            "default",
            "roles",
            "tenants",
            "description",
        ],
        classes.iter().map(row),
    )
}

fn row(class: &PriorityClass) -> [String; 6] {
    let roles: Vec<&str> = class.roles.iter().map(|role| role.as_str()).collect();
    let tenants: Vec<&str> = class.tenants.iter().map(String::as_str).collect();
    let tenants = if tenants.is_empty() {
        "all".to_owned()
    } else {
        tenants.join(",")
    };
    [
        class.name.clone(),
        format!("{}..{}", class.lowest, class.highest),
        class.default.to_string(),
        roles.join(","),
        tenants,
        class.description.clone(),
    ]
}
