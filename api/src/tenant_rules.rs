//! Checks at submission the parts of a document that depend on the tenant: the cluster objects of
//! `pod`, the caps on `preemption`, the priority classes, the code archive, and the secrets.

use crate::auth::Caller;
use crate::clock;
use crate::problem::{ApiError, ProblemKind};
use crate::secret::no_keys;
use crate::state::ApiState;
use muster_model::priority::{self, NO_PRIORITY, PriorityUser};
use muster_model::spec::{Code, FieldError, JobSpec, Pod, Preemption, SecretRef};
use muster_model::study::StudySpec;
use muster_model::text::similar;
use muster_secret::KeyError;
use muster_store::{PgConnection, StoreError, code, priority_class, secret, tenant};

/// Restricted parts of a document.
pub struct RestrictedParts {
    pod: Pod,
    preemption: Preemption,
    priority: StatedPriority,
    code: Option<Code>,
    secrets: Vec<SecretRef>,
    /// Position of the job in the document, with a dot; empty for the job's own document.
    at: &'static str,
    kind: ProblemKind,
}

impl RestrictedParts {
    #[must_use]
    pub fn of_job(spec: &JobSpec) -> Self {
        Self {
            pod: spec.pod.clone(),
            preemption: spec.preemption,
            priority: StatedPriority::of_job(spec),
            code: spec
                .command
                .as_ref()
                .and_then(|command| command.code.clone()),
            secrets: spec
                .command
                .as_ref()
                .map(|command| command.secrets.clone())
                .unwrap_or_default(),
            at: "",
            kind: ProblemKind::InvalidJob,
        }
    }

    /// Returns the parts that all trials of a study have.
    #[must_use]
    pub fn of_study(spec: &StudySpec) -> Self {
        Self {
            pod: spec.pod(),
            preemption: spec.preemption(),
            priority: StatedPriority::of_study(spec),
            code: spec.code(),
            secrets: spec.secrets(),
            at: "job.",
            kind: ProblemKind::InvalidStudy,
        }
    }

    /// Whether the document leaves all of them out, so that no rule refuses it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pod.is_empty()
            && self.preemption.is_default()
            && self.priority.is_default()
            && self.code.is_none()
            && self.secrets.is_empty()
    }

    /// Checks the parts in the caller's scope, and returns the priority. No query if they are left
    /// out.
    ///
    /// # Errors
    /// A refusal with one error per object that the tenant may not use, and per value above a cap.
    /// Also for a priority of no class that the caller may use, for a missing code archive, and for
    /// each missing secret.
    pub async fn check(
        &self,
        app: &ApiState,
        conn: &mut PgConnection,
        caller: &Caller,
    ) -> Result<i32, ApiError> {
        if self.is_empty() {
            return Ok(NO_PRIORITY);
        }
        if !self.secrets.is_empty() && !app.secret_keys.is_configured() {
            return Err(no_keys(&KeyError::NotConfigured));
        }
        let mut errors = self.above_caps(conn, caller).await?;
        errors.extend(self.missing_secrets(conn).await?);
        errors.extend(self.missing_code(conn).await?);
        let resolved = self.priority.resolve(conn, caller).await?;
        let resolved = resolved.map_err(|error| errors.push(within(self.at, error)));
        match resolved {
            Ok(priority) if errors.is_empty() => Ok(priority),
            _ => Err(ApiError::of_fields(self.kind, errors)),
        }
    }

    /// Returns an error if the tenant has no such code archive; otherwise records its use.
    async fn missing_code(
        &self,
        conn: &mut PgConnection,
    ) -> Result<Option<FieldError>, StoreError> {
        let Some(Code { archive }) = &self.code else {
            return Ok(None);
        };
        if code::record_use(conn, archive, clock::now()).await? {
            return Ok(None);
        }
        Ok(Some(FieldError {
            field: format!("{}command.code.archive", self.at),
            value: format!("{archive:?}"),
            expected: "an archive that this tenant has uploaded; `muster submit --code FOLDER` uploads one".to_owned(),
        }))
    }

    /// Returns one error per secret that the tenant does not have.
    async fn missing_secrets(
        &self,
        conn: &mut PgConnection,
    ) -> Result<Vec<FieldError>, StoreError> {
        if self.secrets.is_empty() {
            return Ok(Vec::new());
        }
        let known = secret::known(conn).await?;
        let missing = self.secrets.iter().enumerate();
        let missing = missing.filter(|(_, secret)| !known.contains(&secret.name));
        let errors = missing.map(|(index, secret)| {
            let name = &secret.name;
            let hint = similar(name, known.iter().map(String::as_str))
                .map_or_else(String::new, |other| format!("did you mean {other}? "));
            FieldError {
                field: format!("{}command.secrets[{index}].name", self.at),
                value: format!("{name:?}"),
                expected: format!(
                    "a secret of this tenant; {hint}`muster secrets set {name}` stores one"
                ),
            }
        });
        Ok(errors.collect())
    }

    /// Returns one error per object that the tenant may not use, and per value above a cap.
    async fn above_caps(
        &self,
        conn: &mut PgConnection,
        caller: &Caller,
    ) -> Result<Vec<FieldError>, StoreError> {
        if self.pod.is_empty() && self.preemption.is_default() {
            return Ok(Vec::new());
        }
        let found = tenant::get(conn, caller.tenant_id).await?;
        let (pods, caps) = found
            .map(|found| (found.pods, found.preemption))
            .unwrap_or_default();
        let (tenant, at) = (&caller.tenant_name, self.at);
        let mut errors = Vec::new();
        if !self.pod.is_empty() {
            let checked = pods.allow(&self.pod, tenant, &format!("{at}pod"));
            errors.extend(checked.err().into_iter().flatten());
        }
        let checked = caps.allow(&self.preemption, tenant, &format!("{at}preemption"));
        errors.extend(checked.err().into_iter().flatten());
        Ok(errors)
    }
}

/// `priority` and `priority_class` of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedPriority {
    pub number: Option<i32>,
    pub class: Option<String>,
}

impl StatedPriority {
    #[must_use]
    pub fn of_job(spec: &JobSpec) -> Self {
        Self {
            number: spec.priority,
            class: spec.priority_class.clone(),
        }
    }

    fn of_study(spec: &StudySpec) -> Self {
        let (number, class) = spec.priority();
        Self { number, class }
    }

    /// Whether it is the priority that every caller may use.
    fn is_default(&self) -> bool {
        self.class.is_none() && self.number.unwrap_or(NO_PRIORITY) == NO_PRIORITY
    }

    /// Returns the priority, or why the caller may not use it.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn resolve(
        &self,
        conn: &mut PgConnection,
        caller: &Caller,
    ) -> Result<Result<i32, FieldError>, StoreError> {
        self.resolve_for(conn, caller, &caller.tenant_name).await
    }

    /// Returns the priority of a job of `tenant`, or why the caller may not use it.
    ///
    /// # Errors
    /// If the store does not answer.
    pub async fn resolve_for(
        &self,
        conn: &mut PgConnection,
        caller: &Caller,
        tenant: &str,
    ) -> Result<Result<i32, FieldError>, StoreError> {
        if self.is_default() {
            return Ok(Ok(NO_PRIORITY));
        }
        let classes = priority_class::list(conn).await?;
        let access = caller.access;
        let user = PriorityUser { access, tenant };
        let class = self.class.as_deref();
        Ok(priority::resolve(self.number, class, &classes, user))
    }
}

/// Prefixes the field of an error with the position of the job in the document.
#[must_use]
pub fn within(at: &str, error: FieldError) -> FieldError {
    FieldError {
        field: format!("{at}{}", error.field),
        ..error
    }
}
