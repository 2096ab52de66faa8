//! The subcommands of `muster`. Each sends REST requests and prints the answers; none makes
//! decisions.

mod array;
pub mod artifacts;
pub mod checkpoints;
pub mod code;
pub mod compare;
pub mod diff;
pub mod edit;
pub mod events;
pub mod explain;
pub mod export;
pub mod export_trace;
pub mod families;
mod follow_job;
pub mod forecast;
mod git;
pub mod init;
mod interrupted;
pub mod job_table;
pub mod list;
mod log_printer;
pub mod login;
pub mod logs;
pub mod metrics;
pub mod nodes;
pub mod notebook;
pub mod priorities;
mod quota_preview;
pub mod remote;
pub mod replay;
mod resolve_job;
pub mod run;
pub mod schedule;
pub mod secrets;
pub mod show;
pub mod simulate;
mod simulation_args;
pub mod study;
pub mod submit;
pub mod template;
mod tenant_limits;
mod tenant_lookup;
mod tenant_pods;
mod tenant_preemption;
pub mod tenants;
pub mod top;
pub mod verbs;
pub mod wait;
pub mod what_if;

use crate::config::ServerContext;
use crate::output::OutputFormat;
use clap::Subcommand;
use muster_client::Client;
use muster_client::JobQuery;
use muster_model::id::JobId;
use muster_model::view::JobView;
use serde::Serialize;
use std::process::ExitCode;

/// A connection and the format of the output.
#[derive(Debug)]
pub struct CliSession {
    pub client: Client,
    pub output: OutputFormat,
}

/// Answer to `delete` for programs.
#[derive(Debug, Serialize)]
struct Deleted {
    deleted: String,
}

#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Run a program in the working folder as a job, and follow it
    Run(Box<run::RunArgs>),
    /// Start a notebook or another server to work in, and forward its port. The job ends after a
    /// time without use
    Notebook(Box<notebook::NotebookArgs>),
    /// Submit a job document (YAML or JSON)
    Submit(submit::SubmitArgs),
    /// List jobs, newest first
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Show nodes and open jobs, drawn every two seconds
    Top(top::TopArgs),
    /// Compare documents, results and metrics of jobs
    Diff(diff::DiffArgs),
    /// Show one job
    #[command(visible_alias = "describe")]
    Show(show::ShowArgs),
    /// Print the output of a job's tasks
    Logs(logs::LogsArgs),
    /// List the metrics that a job's program has logged, print points of some, or export them
    Metrics(metrics::MetricsArgs),
    /// Print the history of a job or of the cluster
    Events(events::EventsArgs),
    /// Run a command or a shell in a running task
    Exec(remote::exec::ExecArgs),
    /// Forward local ports to ports of a running task
    PortForward(remote::port_forward::PortForwardArgs),
    /// Copy files from or to a running task
    Cp(remote::cp::CpArgs),
    /// Wait until a job has ended; the exit code gives its result
    Wait(wait::WaitArgs),
    /// Explain why a job has its size, or why it waits and what would start it
    Explain(explain::ExplainArgs),
    /// Show when a job will start and end, and how accurate such forecasts were
    Forecast(forecast::ForecastArgs),
    /// Stop a running job with its processes kept, and release its GPUs
    Suspend(verbs::JobVerbArgs),
    /// Continue a suspended job at the step where it stopped
    Continue(verbs::JobVerbArgs),
    /// Stop a job after a checkpoint and release all its resources
    Pause(verbs::JobVerbArgs),
    /// Queue a paused job again; it continues from its checkpoint
    Resume(verbs::JobVerbArgs),
    /// Change a job's range of workers or PS shards, or its priority
    Edit(edit::EditArgs),
    /// Change a job's number of workers
    Scale(edit::ScaleArgs),
    /// End a job
    Cancel(verbs::JobVerbArgs),
    /// Delete a job that has ended
    Delete(verbs::DeleteArgs),
    /// List a job's checkpoints, or download one
    Checkpoints(checkpoints::CheckpointsArgs),
    /// List files that a job's program has written, or download them
    Artifacts(artifacts::ArtifactsArgs),
    /// Export a checkpoint's model as one file: safetensors or ONNX
    Export(export::ExportArgs),
    /// Download the code of a program's job into a new folder
    Code(code::CodeArgs),
    /// Download the model of a job that has succeeded
    Model(checkpoints::ModelArgs),
    /// Search for parameters: create, watch and control studies
    Study(study::StudyCommand),
    /// List nodes and the jobs on each GPU; create join tokens, reset or remove nodes
    Nodes(nodes::NodesArgs),
    /// Move all tasks away from a node and place none there
    Drain(nodes::NodeVerbArgs),
    /// Place tasks on a node again
    Uncordon(nodes::NodeVerbArgs),
    /// List tenants; create one, set quotas, weights and limits
    Tenants(tenants::TenantsArgs),
    /// List priority classes; set or delete one
    Priorities(priorities::PrioritiesArgs),
    /// List schedules: jobs at the times of a cron expression; create, pause or run one
    #[command(visible_alias = "schedules")]
    Schedule(schedule::ScheduleArgs),
    /// List templates: job documents with parameters; store or delete one
    #[command(visible_alias = "templates")]
    Template(template::TemplateArgs),
    /// List secrets for programs; store or delete one
    Secrets(secrets::SecretsArgs),
    /// List tokens; create or revoke one
    Tokens(tenants::TokensArgs),
    /// List measured speeds of families of jobs, or forget those of a family
    Families(families::FamiliesArgs),
    /// Replay past rounds: check that results are identical, or show decisions of another policy
    Replay(replay::ReplayArgs),
    /// Print the history of all jobs as a job trace (CSV) for simulations
    ExportTrace(export_trace::ExportTraceArgs),
    /// Show when a job would start and end, which jobs it would displace and its cost, before
    /// submission
    Plan(what_if::PlanArgs),
    /// Show how more nodes, another quota or another job would change the waits of all jobs
    WhatIf(what_if::WhatIfArgs),
    /// Show the user, tenant and access of the token
    Whoami(nodes::WhoamiArgs),
}

/// The command line is well-formed, but its arguments contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The named object does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotFound(pub String);

impl RemoteCommand {
    /// # Errors
    /// A refusal of the server, or the reason why it was not reached.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<ExitCode> {
        match self {
            Self::Run(options) => return options.run(session).await,
            Self::Notebook(options) => return options.run(session).await,
            Self::Submit(options) => return options.run(session).await,
            Self::Exec(options) => return options.run(session).await,
            Self::PortForward(options) => return options.run(session).await,
            Self::Cp(options) => return options.run(session).await,
            Self::Logs(options) => return options.run(session).await,
            Self::Wait(options) => return options.run(session).await,
            Self::List(options) => options.run(session).await?,
            Self::Top(options) => options.run(session).await?,
            Self::Diff(options) => options.run(session).await?,
            Self::Show(options) => options.run(session).await?,
            Self::Metrics(options) => options.run(session).await?,
            Self::Events(options) => options.run(session).await?,
            Self::Explain(options) => options.run(session).await?,
            Self::Forecast(options) => options.run(session).await?,
            Self::Suspend(job) => job.run(session, verbs::JobVerb::Suspend).await?,
            Self::Continue(job) => job.run(session, verbs::JobVerb::Continue).await?,
            Self::Pause(job) => job.run(session, verbs::JobVerb::Pause).await?,
            Self::Resume(job) => job.run(session, verbs::JobVerb::Resume).await?,
            Self::Edit(options) => options.run(session).await?,
            Self::Scale(options) => options.run(session).await?,
            Self::Cancel(job) => job.run(session, verbs::JobVerb::Cancel).await?,
            Self::Delete(options) => options.run(session).await?,
            Self::Checkpoints(options) => options.run(session).await?,
            Self::Artifacts(options) => options.run(session).await?,
            Self::Export(options) => options.run(session).await?,
            Self::Code(options) => options.run(session).await?,
            Self::Model(options) => options.run(session).await?,
            Self::Study(options) => options.run(session).await?,
            Self::Nodes(options) => options.run(session).await?,
            Self::Drain(node) => node.run(session, true).await?,
            Self::Uncordon(node) => node.run(session, false).await?,
            Self::Tenants(options) => options.run(session).await?,
            Self::Priorities(options) => options.run(session).await?,
            Self::Schedule(options) => options.run(session).await?,
            Self::Template(options) => options.run(session).await?,
            Self::Secrets(options) => options.run(session).await?,
            Self::Tokens(options) => options.run(session).await?,
            Self::Families(options) => options.run(session).await?,
            Self::Replay(options) => options.run(session).await?,
            Self::ExportTrace(options) => options.run(session).await?,
            Self::Plan(options) => options.run(session).await?,
            Self::WhatIf(options) => options.run(session).await?,
            Self::Whoami(options) => options.run(session).await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl CliSession {
    /// Prints that the object of this name was deleted.
    fn print_deleted(&self, name: String, text: impl FnOnce(&str) -> String) -> anyhow::Result<()> {
        let answer = Deleted { deleted: name };
        self.output.print(&answer, |answer| text(&answer.deleted))
    }

    /// # Errors
    /// If the server's address is invalid.
    pub fn connect(
        context: &ServerContext,
        tenant: Option<&str>,
        output: OutputFormat,
    ) -> anyhow::Result<Self> {
        let mut client = Client::new(&context.server, &context.token)?;
        if let Some(tenant) = tenant {
            client = client.for_tenant(tenant)?;
        }
        Ok(Self { client, output })
    }

    /// # Errors
    /// [`NotFound`], or the reason why the server was not reached.
    pub async fn job_of_id(&self, id: JobId) -> anyhow::Result<JobView> {
        let found = self.client.find_job(id).await?;
        Ok(found.ok_or_else(|| {
            NotFound(format!(
                "this tenant has no job {id}; an administrator names another tenant with --as-tenant"
            ))
        })?)
    }

    /// Returns the job of this id, the newest job of this name, or the job whose id ends so.
    ///
    /// # Errors
    /// [`NotFound`], [`UsageError`] if several ids end so, or the reason why the server was not
    /// reached.
    pub async fn job(&self, named: &str) -> anyhow::Result<JobView> {
        if let Ok(id) = named.parse::<JobId>() {
            return self.job_of_id(id).await;
        }
        let query = JobQuery {
            name: Some(named.to_owned()),
            limit: Some(1),
            ..JobQuery::default()
        };
        match self.client.jobs(&query).await?.items.pop() {
            Some(job) => Ok(job),
            None => resolve_job::by_short_id(self, named).await,
        }
    }
}
