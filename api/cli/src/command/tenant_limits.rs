//! `muster tenants limits`: limits on the open work of a tenant's users and on the stored volume
//! per job.

use super::CliSession;
use super::tenant_lookup::find;
use crate::output::table;
use clap::Args;
use muster_model::tenant::{LimitsChange, LimitsUse, TenantLimits};
use muster_model::view::{TenantChange, TenantView};

/// Show or set the limits of a tenant; `default` restores the default of a limit.
#[derive(Debug, Args)]
pub struct TenantLimitsArgs {
    name: String,
    /// Jobs that have not ended, including trials of studies.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    open_jobs: Option<TenantLimitArg>,
    /// Bytes of the documents of these jobs.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    open_job_bytes: Option<TenantLimitArg>,
    /// Studies that have not finished.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    open_studies: Option<TenantLimitArg>,
    /// Tokens that are neither revoked nor expired.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    tokens: Option<TenantLimitArg>,
    /// Such tokens of one user.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    user_tokens: Option<TenantLimitArg>,
    /// Bytes of stored code archives.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    code_bytes: Option<TenantLimitArg>,
    /// Bytes of the artifacts of all jobs.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    artifact_bytes: Option<TenantLimitArg>,
    /// Artifacts of one job.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    job_artifacts: Option<TenantLimitArg>,
    /// Bytes of the artifacts of one job.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    job_artifact_bytes: Option<TenantLimitArg>,
    /// Stored secrets.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    secrets: Option<TenantLimitArg>,
    /// Schedules.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    schedules: Option<TenantLimitArg>,
    /// Stored templates.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    templates: Option<TenantLimitArg>,
    /// GPUs and CPU slots of interactive jobs that have not ended.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    interactive_gpus: Option<TenantLimitArg>,
    /// Stored events from the tasks of one job.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    job_events: Option<TenantLimitArg>,
    /// Bytes of these events.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    job_event_bytes: Option<TenantLimitArg>,
    /// Stored points of the training series of one job.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    job_points: Option<TenantLimitArg>,
    /// Listed checkpoints of one job.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    job_checkpoints: Option<TenantLimitArg>,
    /// Stored bytes of output of the tasks of one job.
    #[arg(long, value_name = "N|default", value_parser = limit)]
    job_log_bytes: Option<TenantLimitArg>,
}

/// A number, or `None` for the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TenantLimitArg(Option<u64>);

fn limit(text: &str) -> Result<TenantLimitArg, String> {
    match text {
        "default" => Ok(TenantLimitArg(None)),
        _ => match text.parse() {
            Ok(most) => Ok(TenantLimitArg(Some(most))),
            Err(_) => Err("expected a number, or default".to_owned()),
        },
    }
}

impl TenantLimitsArgs {
    /// Shows the limits, after changing the given ones.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let given = self.given();
        let tenant = if given.is_nothing() {
            find(session, &self.name).await?
        } else {
            let change = TenantChange {
                limits: Some(given),
                ..TenantChange::default()
            };
            session.client.change_tenant(&self.name, &change).await?
        };
        session.output.print(&tenant, shown)
    }

    fn given(&self) -> LimitsChange {
        LimitsChange {
            open_jobs: value(self.open_jobs),
            open_job_bytes: value(self.open_job_bytes),
            open_studies: value(self.open_studies),
            tokens: value(self.tokens),
            user_tokens: value(self.user_tokens),
            code_bytes: value(self.code_bytes),
            artifact_bytes: value(self.artifact_bytes),
            job_artifacts: value(self.job_artifacts),
            job_artifact_bytes: value(self.job_artifact_bytes),
            secrets: value(self.secrets),
            schedules: value(self.schedules),
            templates: value(self.templates),
            interactive_gpus: value(self.interactive_gpus),
            job_events: value(self.job_events),
            job_event_bytes: value(self.job_event_bytes),
            job_points: value(self.job_points),
            job_checkpoints: value(self.job_checkpoints),
            job_log_bytes: value(self.job_log_bytes),
        }
    }
}

fn value(limit: Option<TenantLimitArg>) -> Option<Option<u64>> {
    limit.map(|limit| limit.0)
}

fn shown(tenant: &TenantView) -> String {
    let used = tenant.used;
    let rows = tenant.limits.named().into_iter().map(|(name, most)| {
        let used = match name {
            "open_jobs" => used.open_jobs.to_string(),
            "open_job_bytes" => used.open_job_bytes.to_string(),
            "open_studies" => used.open_studies.to_string(),
            "tokens" => used.tokens.to_string(),
            _ => String::new(),
        };
        let default = TenantLimits::DEFAULT.named();
        let default = default.iter().find(|(other, _)| *other == name);
        let default = default.map_or(String::new(), |(_, most)| most.to_string());
        [name.replace('_', "-"), most.to_string(), used, default]
    });
    table(["limit", "most", "used", "default"], rows)
}

/// Returns the number of open jobs and their limit.
pub fn open_jobs(limits: &TenantLimits, used: &LimitsUse) -> String {
    format!("{} of {}", used.open_jobs, limits.open_jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_is_a_number_or_default() {
        assert_eq!(limit("12"), Ok(TenantLimitArg(Some(12))));
        assert_eq!(limit("default"), Ok(TenantLimitArg(None)));
        for wrong in ["", "-1", "1k", "none"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
