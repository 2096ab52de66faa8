//! Parameters of lists.

use muster_model::id::JobId;
use muster_model::job::JobPhase;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Filter of jobs; an empty part matches every job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// At most 500 ids.
    pub ids: Vec<JobId>,
    /// Phases, any of which matches.
    pub phases: Vec<JobPhase>,
    /// Labels as `key=value`, all of which must match.
    pub labels: Vec<String>,
    /// Exact name.
    pub name: Option<String>,
    /// End of the id without hyphens, 4 to 32 lowercase hexadecimal digits.
    pub short_id: Option<String>,
    /// Name of the user who has submitted the job.
    pub user: Option<String>,
    pub submitted_since: Option<OffsetDateTime>,
    /// Whether jobs that are trials of studies are left out.
    pub is_without_trials: bool,
    /// Jobs per page, 1 to 500. Default: 50.
    pub limit: Option<u32>,
    /// `next` of the last page.
    pub after: Option<String>,
}

/// Selection of tokens, for administrators. Default: those of the caller's tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenQuery {
    /// Name of the tenant.
    pub tenant: Option<String>,
    pub all_tenants: bool,
}

/// Selection of recent events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentQuery {
    /// Whether to include routine events: starts and stops of tasks, evaluations and checkpoints.
    pub routine: bool,
    /// Events per page, 1 to 500.
    pub limit: u32,
    /// `next` of the last page.
    pub after: Option<String>,
}

/// Part of a history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Cursor of the event before the first one.
    pub after: Option<String>,
    /// Events per page, 1 to 500. Default: 500.
    pub limit: Option<u32>,
}

impl JobQuery {
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs: Vec<_> = self.ids.iter().map(|id| ("id", id.to_string())).collect();
        let phases = self.phases.iter().map(|phase| phase.as_str().to_owned());
        pairs.extend(phases.map(|phase| ("phase", phase)));
        pairs.extend(self.labels.iter().map(|label| ("label", label.clone())));
        pairs.extend(self.name.iter().map(|name| ("name", name.clone())));
        pairs.extend(self.short_id.iter().map(|end| ("short_id", end.clone())));
        pairs.extend(self.user.iter().map(|user| ("user", user.clone())));
        let since = self
            .submitted_since
            .and_then(|since| since.format(&Rfc3339).ok());
        pairs.extend(since.map(|since| ("submitted_since", since)));
        pairs.extend(
            self.is_without_trials
                .then(|| ("trials", "false".to_owned())),
        );
        pairs.extend(self.limit.iter().map(|limit| ("limit", limit.to_string())));
        pairs.extend(self.after.iter().map(|after| ("continue", after.clone())));
        pairs
    }
}

impl TokenQuery {
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = Vec::new();
        pairs.extend(self.tenant.iter().map(|name| ("tenant", name.clone())));
        pairs.extend(self.all_tenants.then(|| ("all_tenants", "true".to_owned())));
        pairs
    }
}

impl RecentQuery {
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![
            ("routine", self.routine.to_string()),
            ("limit", self.limit.to_string()),
        ];
        pairs.extend(self.after.iter().map(|after| ("continue", after.clone())));
        pairs
    }
}

impl EventQuery {
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![("limit", self.limit.unwrap_or(500).to_string())];
        pairs.extend(self.after.iter().map(|after| ("after", after.clone())));
        pairs
    }
}
