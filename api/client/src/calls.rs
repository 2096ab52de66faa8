//! All calls of the interface except studies, one method each. Every call returns [`ClientError`].

use crate::error::ClientError;
use crate::query::{EventQuery, JobQuery, RecentQuery, TokenQuery};
use crate::request::{Client, answer, send, unreachable};
use muster_model::id::{JobId, TaskId, TokenId};
use muster_model::node::Notice;
use muster_model::priority::{PriorityClass, PriorityClassDocument};
use muster_model::view::{
    AccuracyView, ArtifactView, CheckpointView, CreatedJoinToken, CreatedToken, EventView,
    ExplainView, FamilyView, JobChange, JobView, Me, MetricSeriesView, MetricView, NewJoinToken,
    NewTenant, NewToken, NodeView, Page, PlanView, RevokedTokens, RoundSummaryView, RoundView,
    SeriesView, TaskView, TenantChange, TenantView, TokenView, UserView, WhatIf, WhatIfView,
};
use reqwest::{Method, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Largest number of jobs of a page.
const LARGEST_PAGE: u32 = 500;

/// Selection of a part of a task's log. An answer has at most 1 MiB of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPart {
    /// From this byte on.
    From(u64),
    /// The last bytes, at most 1 MiB.
    Tail(u64),
    /// From the output on that was received at this time.
    Since(OffsetDateTime),
}

/// A part of a task's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPage {
    /// Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Bytes of the log before this part.
    pub offset: u64,
    /// Offset of the next part.
    pub next_offset: u64,
    /// Whether the part reaches the present end of the log.
    pub at_end: bool,
}

/// Jobs.
#[allow(
    clippy::missing_errors_doc,
    reason = "described in the comment of the module"
)]
impl Client {
    /// Submits a document. With a unique key the request can be repeated without a second
    /// submission.
    pub async fn submit(
        &self,
        document: &impl Serialize,
        idempotency_key: Option<&str>,
    ) -> Result<JobView, ClientError> {
        let mut request = self.request(Method::POST, &["jobs"]).json(document);
        if let Some(key) = idempotency_key {
            request = request.header("Idempotency-Key", key);
        }
        answer(send(request).await?).await
    }

    /// Returns the job that would be submitted.
    pub async fn dry_run(&self, document: &impl Serialize) -> Result<JobView, ClientError> {
        answer(
            send(
                self.request(Method::POST, &["jobs"])
                    .query(&[("dry_run", "true")])
                    .json(document),
            )
            .await?,
        )
        .await
    }

    /// Predicts start and end of a job with this document, and its effects on other jobs.
    pub async fn plan(&self, document: &impl Serialize) -> Result<PlanView, ClientError> {
        let request = self.request(Method::POST, &["plan"]);
        answer(send(request.json(document)).await?).await
    }

    /// Predicts the effects of changes. For administrators.
    pub async fn what_if(&self, changes: &WhatIf) -> Result<WhatIfView, ClientError> {
        let request = self.request(Method::POST, &["what-if"]);
        answer(send(request.json(changes)).await?).await
    }

    /// Returns a page of jobs, newest first.
    pub async fn jobs(&self, query: &JobQuery) -> Result<Page<JobView>, ClientError> {
        self.get(&["jobs"], &query.pairs()).await
    }

    /// Returns all jobs that match, newest first. It reads as many pages as are needed; the page
    /// size and the start of `query` have no effect.
    pub async fn all_jobs(&self, query: &JobQuery) -> Result<Vec<JobView>, ClientError> {
        let mut query = JobQuery {
            limit: Some(LARGEST_PAGE),
            after: None,
            ..query.clone()
        };
        let mut jobs = Vec::new();
        loop {
            let page = self.jobs(&query).await?;
            jobs.extend(page.items);
            query.after = page.next;
            if query.after.is_none() {
                return Ok(jobs);
            }
        }
    }

    pub async fn job(&self, id: JobId) -> Result<JobView, ClientError> {
        self.get(&["jobs", &id.to_string()], &[]).await
    }

    /// Returns `None` if the job does not exist.
    pub async fn find_job(&self, id: JobId) -> Result<Option<JobView>, ClientError> {
        match self.job(id).await {
            Err(error) if error.status() == Some(404) => Ok(None),
            found => found.map(Some),
        }
    }

    pub async fn cancel(&self, id: JobId) -> Result<JobView, ClientError> {
        self.post(&["jobs", &id.to_string(), "cancel"]).await
    }

    pub async fn pause(&self, id: JobId) -> Result<JobView, ClientError> {
        self.post(&["jobs", &id.to_string(), "pause"]).await
    }

    pub async fn suspend(&self, id: JobId) -> Result<JobView, ClientError> {
        self.post(&["jobs", &id.to_string(), "suspend"]).await
    }

    /// Continues a suspended job.
    pub async fn go_on(&self, id: JobId) -> Result<JobView, ClientError> {
        self.post(&["jobs", &id.to_string(), "continue"]).await
    }

    pub async fn resume(&self, id: JobId) -> Result<JobView, ClientError> {
        self.post(&["jobs", &id.to_string(), "resume"]).await
    }

    /// Changes the size range or the priority of a job.
    pub async fn edit(&self, id: JobId, change: &JobChange) -> Result<JobView, ClientError> {
        let request = self.request(Method::PATCH, &["jobs", &id.to_string()]);
        answer(send(request.json(change)).await?).await
    }

    pub async fn delete(&self, id: JobId) -> Result<(), ClientError> {
        send(self.request(Method::DELETE, &["jobs", &id.to_string()]))
            .await
            .map(drop)
    }

    /// Returns the tasks of all revisions, the newest first.
    pub async fn tasks(&self, id: JobId) -> Result<Vec<TaskView>, ClientError> {
        let page: Page<TaskView> = self
            .get(
                &["jobs", &id.to_string(), "tasks"],
                &[("all", "true".to_owned())],
            )
            .await?;
        Ok(page.items)
    }

    /// Returns a page of the job's history, oldest first.
    pub async fn events(
        &self,
        id: JobId,
        query: &EventQuery,
    ) -> Result<Page<EventView>, ClientError> {
        self.get(&["jobs", &id.to_string(), "events"], &query.pairs())
            .await
    }

    /// Returns a page of the newest events of the tenant's jobs and of the nodes, newest first.
    pub async fn recent_events(&self, query: &RecentQuery) -> Result<Page<EventView>, ClientError> {
        self.get(&["events"], &query.pairs()).await
    }

    /// Explains the size of a job, or why it waits.
    pub async fn explain(&self, id: JobId) -> Result<ExplainView, ClientError> {
        self.get(&["jobs", &id.to_string(), "explain"], &[]).await
    }

    /// Returns the accuracy of the forecasts of the last `days` days.
    pub async fn forecast_accuracy(&self, days: u32) -> Result<AccuracyView, ClientError> {
        self.get(&["forecasts", "accuracy"], &[("days", days.to_string())])
            .await
    }

    /// Returns the training series after a step, thinned to `max_points`.
    pub async fn progress(
        &self,
        id: JobId,
        after_step: Option<u64>,
        max_points: Option<u32>,
    ) -> Result<SeriesView, ClientError> {
        let mut query = Vec::new();
        query.extend(after_step.map(|step| ("after_step", step.to_string())));
        query.extend(max_points.map(|points| ("max_points", points.to_string())));
        self.get(&["jobs", &id.to_string(), "progress"], &query)
            .await
    }

    /// Returns all metrics that the job's program has logged, by name.
    pub async fn metrics(&self, id: JobId) -> Result<Vec<MetricView>, ClientError> {
        self.rest(&["jobs", &id.to_string(), "metrics"], Vec::new())
            .await
    }

    /// Returns the series of at most ten metrics, thinned to `max_points`. Names that the job has
    /// not logged are left out.
    pub async fn metric_points(
        &self,
        id: JobId,
        names: &[String],
        max_points: Option<u32>,
    ) -> Result<Vec<MetricSeriesView>, ClientError> {
        let mut query: Vec<_> = names.iter().map(|name| ("name", name.clone())).collect();
        query.extend(max_points.map(|points| ("max_points", points.to_string())));
        self.rest(&["jobs", &id.to_string(), "metrics", "points"], query)
            .await
    }

    /// Returns a part of a task's log. With `timestamps`, each line begins with the time at which
    /// the scheduler received it.
    pub async fn logs(
        &self,
        id: JobId,
        task: TaskId,
        part: LogPart,
        timestamps: bool,
    ) -> Result<LogPage, ClientError> {
        let part = match part {
            LogPart::From(offset) => ("offset", offset.to_string()),
            LogPart::Tail(bytes) => ("tail_bytes", bytes.to_string()),
            LogPart::Since(at) => ("since", at.format(&Rfc3339).unwrap_or_default()),
        };
        let mut query = vec![("task", task.to_string()), part];
        if timestamps {
            // A server of an earlier release refuses the parameter.
            query.push(("timestamps", "true".to_owned()));
        }
        let request = self.request(Method::GET, &["jobs", &id.to_string(), "logs"]);
        log_page(send(request.query(&query)).await?, timestamps).await
    }

    /// Returns a job's artifacts whose path begins with `prefix`, by path.
    pub async fn artifacts(
        &self,
        id: JobId,
        prefix: &str,
    ) -> Result<Vec<ArtifactView>, ClientError> {
        let mut query = Vec::new();
        if !prefix.is_empty() {
            query.push(("prefix", prefix.to_owned()));
        }
        self.rest(&["jobs", &id.to_string(), "artifacts"], query)
            .await
    }

    pub async fn checkpoints(&self, id: JobId) -> Result<Vec<CheckpointView>, ClientError> {
        // A server of an earlier release accepts no parameters here, and answers with one page.
        self.rest(&["jobs", &id.to_string(), "checkpoints"], Vec::new())
            .await
    }
}

/// Nodes, tenants, tokens.
#[allow(
    clippy::missing_errors_doc,
    reason = "described in the comment of the module"
)]
impl Client {
    /// Returns all nodes, by name.
    pub async fn nodes(&self) -> Result<Vec<NodeView>, ClientError> {
        self.all(&["nodes"], Vec::new()).await
    }

    pub async fn node(&self, name: &str) -> Result<NodeView, ClientError> {
        self.get(&["nodes", name], &[]).await
    }

    pub async fn drain(&self, name: &str) -> Result<NodeView, ClientError> {
        self.post(&["nodes", name, "drain"]).await
    }

    pub async fn uncordon(&self, name: &str) -> Result<NodeView, ClientError> {
        self.post(&["nodes", name, "uncordon"]).await
    }

    /// Removes a node, which must be lost and hold no tasks.
    pub async fn remove_node(&self, name: &str) -> Result<(), ClientError> {
        send(self.request(Method::DELETE, &["nodes", name]))
            .await
            .map(drop)
    }

    /// Resets the credential of a node, so that the next executor that joins under its name gets a
    /// new one.
    pub async fn reset_node(&self, name: &str) -> Result<NodeView, ClientError> {
        self.post(&["nodes", name, "reset"]).await
    }

    /// Creates a one-time join token for the node.
    pub async fn create_join_token(
        &self,
        name: &str,
        wanted: NewJoinToken,
    ) -> Result<CreatedJoinToken, ClientError> {
        let request = self.request(Method::POST, &["nodes", name, "join-tokens"]);
        answer(send(request.json(&wanted)).await?).await
    }

    /// Reports what the cluster manager says about a machine.
    pub async fn notice(&self, node: &str, notice: &Notice) -> Result<NodeView, ClientError> {
        let request = self.request(Method::PUT, &["nodes", node, "notice"]);
        answer(send(request.json(notice)).await?).await
    }

    /// Returns all tenants, by name.
    pub async fn tenants(&self) -> Result<Vec<TenantView>, ClientError> {
        self.all(&["tenants"], Vec::new()).await
    }

    pub async fn create_tenant(&self, new: &NewTenant) -> Result<TenantView, ClientError> {
        answer(send(self.request(Method::POST, &["tenants"]).json(new)).await?).await
    }

    /// Changes quota, weight, pods and limits of a tenant.
    pub async fn change_tenant(
        &self,
        tenant: &str,
        change: &TenantChange,
    ) -> Result<TenantView, ClientError> {
        let request = self.request(Method::PATCH, &["tenants", tenant]);
        answer(send(request.json(change)).await?).await
    }

    /// Deletes a tenant, which must have no open work.
    pub async fn delete_tenant(&self, tenant: &str) -> Result<(), ClientError> {
        send(self.request(Method::DELETE, &["tenants", tenant]))
            .await
            .map(drop)
    }

    /// Returns the priority classes that the caller may use, by name; for administrators all.
    pub async fn priority_classes(&self) -> Result<Vec<PriorityClass>, ClientError> {
        self.all(&["priority-classes"], Vec::new()).await
    }

    /// Creates or replaces a priority class.
    pub async fn set_priority_class(
        &self,
        name: &str,
        class: &PriorityClassDocument,
    ) -> Result<PriorityClass, ClientError> {
        let request = self.request(Method::PUT, &["priority-classes", name]);
        answer(send(request.json(class)).await?).await
    }

    /// Deletes a priority class; its jobs keep their numbers.
    pub async fn delete_priority_class(&self, name: &str) -> Result<(), ClientError> {
        send(self.request(Method::DELETE, &["priority-classes", name]))
            .await
            .map(drop)
    }

    /// Returns what is known of the tenant's families of jobs.
    pub async fn families(&self) -> Result<Vec<FamilyView>, ClientError> {
        self.all(&["families"], Vec::new()).await
    }

    /// Deletes what is known of a family of jobs.
    pub async fn forget_family(&self, family: &str) -> Result<(), ClientError> {
        send(self.request(Method::DELETE, &["families", family]))
            .await
            .map(drop)
    }

    /// Returns a page of rounds, newest first: those below `before`, and not before `since`.
    pub async fn rounds(
        &self,
        before: Option<u64>,
        since: Option<OffsetDateTime>,
    ) -> Result<Page<RoundSummaryView>, ClientError> {
        let mut query = vec![("limit", "500".to_owned())];
        query.extend(before.map(|number| ("continue", number.to_string())));
        query.extend(
            since
                .and_then(|at| at.format(&Rfc3339).ok())
                .map(|at| ("since", at)),
        );
        self.get(&["rounds"], &query).await
    }

    /// Returns a complete round.
    pub async fn round(&self, number: u64) -> Result<RoundView, ClientError> {
        self.get(&["rounds", &number.to_string()], &[]).await
    }

    /// Returns all tokens of the tenant or tenants, newest first.
    pub async fn tokens(&self, query: &TokenQuery) -> Result<Vec<TokenView>, ClientError> {
        self.all(&["tokens"], query.pairs()).await
    }

    pub async fn create_token(&self, new: &NewToken) -> Result<CreatedToken, ClientError> {
        answer(send(self.request(Method::POST, &["tokens"]).json(new)).await?).await
    }

    pub async fn revoke_token(&self, id: TokenId) -> Result<(), ClientError> {
        send(self.request(Method::DELETE, &["tokens", &id.to_string()]))
            .await
            .map(drop)
    }

    /// Revokes all tokens of a user. Default of `tenant`: that of the caller.
    pub async fn revoke_tokens_of(
        &self,
        user: &str,
        tenant: Option<&str>,
    ) -> Result<RevokedTokens, ClientError> {
        let mut query = vec![("user", user)];
        query.extend(tenant.map(|tenant| ("tenant", tenant)));
        let request = self.request(Method::DELETE, &["tokens"]).query(&query);
        answer(send(request).await?).await
    }

    /// Returns the users of all tenants, by tenant and name. For administrators.
    pub async fn users(&self) -> Result<Vec<UserView>, ClientError> {
        self.all(&["users"], Vec::new()).await
    }

    /// Returns user, tenant and token of the caller.
    pub async fn me(&self) -> Result<Me, ClientError> {
        self.get(&["me"], &[]).await
    }

    /// Returns the items of all pages of a list, in large pages.
    pub(crate) async fn all<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        mut query: Vec<(&'static str, String)>,
    ) -> Result<Vec<T>, ClientError> {
        query.push(("limit", "500".to_owned()));
        self.rest(segments, query).await
    }

    /// Returns the items of all pages of a list.
    pub(crate) async fn rest<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        mut query: Vec<(&'static str, String)>,
    ) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let asked = query.len();
        loop {
            let page: Page<T> = self.get(segments, &query).await?;
            items.extend(page.items);
            let Some(next) = page.next else {
                return Ok(items);
            };
            query.truncate(asked);
            query.push(("continue", next));
        }
    }
}

async fn log_page(response: Response, has_times: bool) -> Result<LogPage, ClientError> {
    let (offset, end) = (
        header_number(&response, "muster-log-offset"),
        header_number(&response, "muster-log-end"),
    );
    let next = header_number(&response, "muster-log-next-offset");
    let (url, status) = (response.url().to_string(), response.status().as_u16());
    let (Some(offset), Some(end)) = (offset, end) else {
        return Err(ClientError::Decode {
            url,
            status,
            source: "it does not say where the log begins and ends".into(),
        });
    };
    let bytes = response.bytes().await.map_err(unreachable)?;
    if let (true, Some(next_offset)) = (has_times, next) {
        return Ok(LogPage {
            text: String::from_utf8_lossy(&bytes).into_owned(),
            offset,
            next_offset,
            at_end: next_offset >= end || next_offset == offset,
        });
    }
    // An incomplete character at the end belongs to the next part.
    let more = offset + (bytes.len() as u64) < end;
    let cut = match std::str::from_utf8(&bytes) {
        Err(error) if more && error.error_len().is_none() && error.valid_up_to() > 0 => {
            error.valid_up_to()
        }
        _ => bytes.len(),
    };
    let next_offset = offset + cut as u64;
    let text = String::from_utf8_lossy(&bytes[..cut]).into_owned();
    // An empty part before the end would be requested again without end.
    Ok(LogPage {
        text,
        offset,
        next_offset,
        at_end: next_offset >= end || cut == 0,
    })
}

/// Returns the number in a header.
fn header_number(response: &Response, name: &str) -> Option<u64> {
    let value = response.headers().get(name)?;
    value.to_str().ok()?.parse().ok()
}
