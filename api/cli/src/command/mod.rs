//! The verbs of `muster`, one file each or a few that belong together. Each asks REST and prints; none decides.

pub mod checkpoints;
pub mod compare;
mod contest;
pub mod edit;
pub mod events;
pub mod explain;
pub mod export;
pub mod export_trace;
pub mod forecast;
pub mod list;
pub mod login;
pub mod logs;
mod lowering;
mod meant;
pub mod nodes;
pub mod replay;
pub mod show;
pub mod simulate;
pub mod study;
pub mod submit;
mod tenant_limits;
mod tenant_pods;
pub mod tenants;
pub mod verbs;
pub mod wait;
pub mod what_if;

use crate::config::Context;
use crate::output::Format;
use clap::Subcommand;
use muster_client::Client;
use muster_client::JobQuery;
use muster_model::id::JobId;
use muster_model::view::JobView;
use std::process::ExitCode;

/// A connection and how to print what comes from it.
#[derive(Debug)]
pub struct Session {
    pub client: Client,
    pub output: Format,
}

#[derive(Debug, Subcommand)]
pub enum Remote {
    /// Submit a job document (YAML or JSON)
    Submit(submit::Submit),
    /// List jobs, newest first
    #[command(visible_alias = "ls")]
    List(list::List),
    /// Show one job
    #[command(visible_alias = "describe")]
    Show(show::Show),
    /// Print what a job's tasks wrote
    Logs(logs::Logs),
    /// Print what happened to a job, or to the cluster
    Events(events::Events),
    /// Wait until a job has ended; the exit code says how
    Wait(wait::Wait),
    /// Say why a job runs as it does, or why it waits and what would let it start
    Explain(explain::Explain),
    /// Say when a job will start and end, and how often such forecasts held
    Forecast(forecast::Forecast),
    /// Let a running job stand still with its processes kept, and give its GPUs to others
    Suspend(verbs::OnJob),
    /// Let a suspended job go on from where it stands
    Continue(verbs::OnJob),
    /// Take a job from its GPUs; it keeps a checkpoint to continue from
    Pause(verbs::OnJob),
    /// Let a paused job run again
    Resume(verbs::OnJob),
    /// Change a job's range of workers or its priority
    Edit(edit::Edit),
    /// Give a job another number of workers
    Scale(edit::Scale),
    /// End a job
    Cancel(verbs::OnJob),
    /// Forget a job that has ended
    Delete(verbs::Delete),
    /// List a job's checkpoints, or download one
    Checkpoints(checkpoints::Checkpoints),
    /// Write a checkpoint's model into one file that other programs load: safetensors or ONNX
    Export(export::Export),
    /// Download the model of a job that has succeeded
    Model(checkpoints::Model),
    /// Search parameters: create, watch and steer studies
    Study(study::Study),
    /// List nodes and what runs on each GPU; let one join, reset or remove one
    Nodes(nodes::Nodes),
    /// Move all work away from a node and send no more there
    Drain(nodes::OnNode),
    /// Let work go to a node again
    Uncordon(nodes::OnNode),
    /// List tenants, make one, set its quota or weight
    Tenants(tenants::Tenants),
    /// List tokens, make or revoke one
    Tokens(tenants::Tokens),
    /// Plan past rounds again: the same bytes, or what another policy would have decided
    Replay(replay::Replay),
    /// Print the history of all jobs as a job trace (CSV), for simulations
    ExportTrace(export_trace::ExportTrace),
    /// Say when a job would start and end, who would be displaced and what it would cost, before it is submitted
    Plan(what_if::Plan),
    /// Say what more nodes, another quota or another job would do to everybody's waits
    WhatIf(what_if::WhatIf),
    /// Say who the token stands for
    Whoami(nodes::Whoami),
}

/// The command line is right in form, but asks for something that does not fit together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// What was named does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(pub String);

impl Remote {
    /// # Errors
    /// What the server refused, or why it could not be asked.
    pub async fn run(self, session: &Session) -> anyhow::Result<ExitCode> {
        match self {
            Self::Submit(options) => return options.run(session).await,
            Self::Wait(options) => return options.run(session).await,
            Self::List(options) => options.run(session).await?,
            Self::Show(options) => options.run(session).await?,
            Self::Logs(options) => options.run(session).await?,
            Self::Events(options) => options.run(session).await?,
            Self::Explain(options) => options.run(session).await?,
            Self::Forecast(options) => options.run(session).await?,
            Self::Suspend(job) => job.run(session, verbs::Verb::Suspend).await?,
            Self::Continue(job) => job.run(session, verbs::Verb::Continue).await?,
            Self::Pause(job) => job.run(session, verbs::Verb::Pause).await?,
            Self::Resume(job) => job.run(session, verbs::Verb::Resume).await?,
            Self::Edit(options) => options.run(session).await?,
            Self::Scale(options) => options.run(session).await?,
            Self::Cancel(job) => job.run(session, verbs::Verb::Cancel).await?,
            Self::Delete(options) => options.run(session).await?,
            Self::Checkpoints(options) => options.run(session).await?,
            Self::Export(options) => options.run(session).await?,
            Self::Model(options) => options.run(session).await?,
            Self::Study(options) => options.run(session).await?,
            Self::Nodes(options) => options.run(session).await?,
            Self::Drain(node) => node.run(session, true).await?,
            Self::Uncordon(node) => node.run(session, false).await?,
            Self::Tenants(options) => options.run(session).await?,
            Self::Tokens(options) => options.run(session).await?,
            Self::Replay(options) => options.run(session).await?,
            Self::ExportTrace(options) => options.run(session).await?,
            Self::Plan(options) => options.run(session).await?,
            Self::WhatIf(options) => options.run(session).await?,
            Self::Whoami(options) => options.run(session).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Session {
    /// # Errors
    /// When the server's address is not one.
    pub fn connect(
        context: &Context,
        tenant: Option<&str>,
        output: Format,
    ) -> anyhow::Result<Self> {
        let mut client = Client::new(&context.server, &context.token)?;
        if let Some(tenant) = tenant {
            client = client.for_tenant(tenant)?;
        }
        Ok(Self { client, output })
    }

    /// # Errors
    /// [`NotFound`], or why the server could not be asked.
    pub async fn job_of_id(&self, id: JobId) -> anyhow::Result<JobView> {
        let found = self.client.find_job(id).await?;
        Ok(found.ok_or_else(|| {
            NotFound(format!(
                "this tenant has no job {id}; an administrator names another tenant with --as-tenant"
            ))
        })?)
    }

    /// The job of this id, or else the newest of this name.
    ///
    /// # Errors
    /// [`NotFound`], or why the server could not be asked.
    pub async fn job(&self, named: &str) -> anyhow::Result<JobView> {
        if let Ok(id) = named.parse::<JobId>() {
            return self.job_of_id(id).await;
        }
        let query = JobQuery {
            name: Some(named.to_owned()),
            limit: Some(1),
            ..JobQuery::default()
        };
        let mut page = self.client.jobs(&query).await?;
        page.items
            .pop()
            .ok_or_else(|| NotFound(format!("no job has the name or id {named:?}")).into())
    }
}
