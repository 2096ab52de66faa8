//! What lists can be asked for.

use muster_model::id::JobId;
use muster_model::job::JobPhase;

/// Which jobs; empty parts let every job pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// One of these; 500 at most.
    pub ids: Vec<JobId>,
    /// In one of these phases.
    pub phases: Vec<JobPhase>,
    /// With all of these labels, each as `key=value`.
    pub labels: Vec<String>,
    /// Of exactly this name.
    pub name: Option<String>,
    /// Jobs on the page, 1 to 500; 50 if left out.
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub after: Option<String>,
}

/// Whose tokens; the bearer's tenant's if neither is given. Both are for administrators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenQuery {
    /// Of the tenant of this name.
    pub tenant: Option<String>,
    pub all_tenants: bool,
}

/// Which of the newest events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentQuery {
    /// Starts and stops of tasks, tests and checkpoints too.
    pub routine: bool,
    /// Events on the page, 1 to 500.
    pub limit: u32,
    /// `next` of the page before.
    pub after: Option<String>,
}

/// Which part of a history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// After the event of this cursor.
    pub after: Option<String>,
    /// Events on the page, 1 to 500; 500 if left out.
    pub limit: Option<u32>,
}

impl JobQuery {
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let mut pairs: Vec<_> = self.ids.iter().map(|id| ("id", id.to_string())).collect();
        let phases = self.phases.iter().map(|phase| phase.as_str().to_owned());
        pairs.extend(phases.map(|phase| ("phase", phase)));
        pairs.extend(self.labels.iter().map(|label| ("label", label.clone())));
        pairs.extend(self.name.iter().map(|name| ("name", name.clone())));
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
