//! Caps on what jobs of a tenant may demand in the `preemption` part of their documents.
//! Administrators set them. Documents above a cap are refused at submission, and jobs that were
//! submitted before are treated as if their documents stated the cap.

use crate::spec::{
    AllowedPreemption, FieldError, JobSpec, LONGEST_GRACE_S, LONGEST_MIN_RUNTIME_S,
    LONGEST_TIMEOUT_S, Preemption,
};
use serde::{Deserialize, Deserializer, Serialize};

/// Caps on the `preemption` part of the job documents of a tenant. A field that is left out has no
/// cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantPreemption {
    /// Strictest value of `preemption.allowed`: with `suspend`, jobs may state `suspend` or
    /// `restart`; with `restart` only that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<AllowedPreemption>,
    /// Largest `preemption.min_runtime` in seconds; 0 to 604800.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(maximum = 604_800))]
    pub min_runtime: Option<u32>,
    /// Largest `preemption.grace_s`; 1 to 600.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 600))]
    pub grace_s: Option<u32>,
    /// Largest `preemption.checkpoint_on_request.timeout_s`; 1 to 3600.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1, maximum = 3600))]
    pub timeout_s: Option<u32>,
}

/// Change of a tenant's caps on `preemption`. A field that is left out stays; null removes the cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantPreemptionChange {
    /// Strictest value of `preemption.allowed`.
    #[serde(
        default,
        deserialize_with = "written",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<AllowedPreemption>))]
    pub allowed: Option<Option<AllowedPreemption>>,
    /// Largest `preemption.min_runtime` in seconds; 0 to 604800.
    #[serde(
        default,
        deserialize_with = "written",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, maximum = 604_800))]
    pub min_runtime: Option<Option<u32>>,
    /// Largest `preemption.grace_s`; 1 to 600.
    #[serde(
        default,
        deserialize_with = "written",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 600))]
    pub grace_s: Option<Option<u32>>,
    /// Largest `preemption.checkpoint_on_request.timeout_s`; 1 to 3600.
    #[serde(
        default,
        deserialize_with = "written",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>, minimum = 1, maximum = 3600))]
    pub timeout_s: Option<Option<u32>>,
}

impl TenantPreemption {
    /// Whether no administrator has set a cap.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the caps; `field` is the position of this object in the document.
    ///
    /// # Errors
    /// One [`FieldError`] per value that no job document may have.
    pub fn validate(&self, field: &str) -> Result<(), Vec<FieldError>> {
        let bounds = [
            ("min_runtime", self.min_runtime, 0, LONGEST_MIN_RUNTIME_S),
            ("grace_s", self.grace_s, 1, LONGEST_GRACE_S),
            ("timeout_s", self.timeout_s, 1, LONGEST_TIMEOUT_S),
        ];
        let wrong = bounds.into_iter().filter_map(|(name, value, least, most)| {
            let value = value.filter(|value| !(least..=most).contains(value))?;
            Some(FieldError {
                field: format!("{field}.{name}"),
                value: value.to_string(),
                expected: format!("{least} to {most} seconds, or no value for no cap"),
            })
        });
        refused(wrong.collect())
    }

    /// Checks the `preemption` part of a job (at `field` of its document) against these caps.
    ///
    /// # Errors
    /// One [`FieldError`] per value above the cap of `tenant`.
    pub fn allow(
        &self,
        wanted: &Preemption,
        tenant: &str,
        field: &str,
    ) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        if let Some(strictest) = self.allowed.filter(|strictest| wanted.allowed < *strictest) {
            let right = match strictest {
                AllowedPreemption::Restart => "restart",
                AllowedPreemption::Suspend | AllowedPreemption::Never => "suspend or restart",
            };
            errors.push(FieldError {
                field: format!("{field}.allowed"),
                value: wanted.allowed.as_str().to_owned(),
                expected: format!("{right}: an administrator has set this cap for tenant {tenant}"),
            });
        }
        let request = wanted.checkpoint_on_request;
        let bounds = [
            ("min_runtime", Some(wanted.min_runtime), self.min_runtime),
            ("grace_s", wanted.grace_s, self.grace_s),
            (
                "checkpoint_on_request.timeout_s",
                request.map(|request| request.timeout_s),
                self.timeout_s,
            ),
        ];
        errors.extend(bounds.into_iter().filter_map(|(name, value, most)| {
            let (value, most) = (value?, most?);
            (value > most).then(|| FieldError {
                field: format!("{field}.{name}"),
                value: value.to_string(),
                expected: format!(
                    "at most {most} seconds: an administrator has set this cap for tenant {tenant}"
                ),
            })
        }));
        refused(errors)
    }

    /// Returns the `preemption` part of a document within the caps. With the cap `suspend`, a job
    /// that cannot be suspended may be stopped, because its document could not state `suspend`
    /// either.
    #[must_use]
    pub fn cap(&self, spec: &JobSpec) -> Preemption {
        let mut capped = spec.preemption;
        match self.allowed {
            Some(strictest) if capped.allowed < strictest => {
                capped.allowed = match strictest {
                    AllowedPreemption::Suspend if !spec.may_be_suspended() => {
                        AllowedPreemption::Restart
                    }
                    strictest => strictest,
                };
            }
            _ => {}
        }
        let most = |cap: Option<u32>| cap.unwrap_or(u32::MAX);
        capped.min_runtime = capped.min_runtime.min(most(self.min_runtime));
        capped.grace_s = capped
            .grace_s
            .map(|grace_s| grace_s.min(most(self.grace_s)));
        if let Some(request) = &mut capped.checkpoint_on_request {
            request.timeout_s = request.timeout_s.min(most(self.timeout_s));
        }
        capped
    }
}

impl TenantPreemptionChange {
    /// Whether the change is empty.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the caps after the change.
    #[must_use]
    pub fn of(&self, set: TenantPreemption) -> TenantPreemption {
        TenantPreemption {
            allowed: self.allowed.unwrap_or(set.allowed),
            min_runtime: self.min_runtime.unwrap_or(set.min_runtime),
            grace_s: self.grace_s.unwrap_or(set.grace_s),
            timeout_s: self.timeout_s.unwrap_or(set.timeout_s),
        }
    }
}

fn refused(errors: Vec<FieldError>) -> Result<(), Vec<FieldError>> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

/// Without this function, serde reads null as a missing field.
fn written<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(lines: &str) -> JobSpec {
        let text = format!(
            r#"{{ "version": "muster/v1", "name": "a", "command": {{ "argv": ["sh"] }}, {lines} }}"#
        );
        serde_json::from_str(&text).expect("a document")
    }

    const STRICT: &str = r#""preemption": { "allowed": "never", "min_runtime": 900, "grace_s": 300,
        "checkpoint_on_request": { "timeout_s": 600 } }"#;

    fn caps() -> TenantPreemption {
        TenantPreemption {
            allowed: Some(AllowedPreemption::Suspend),
            min_runtime: Some(600),
            grace_s: Some(60),
            timeout_s: Some(120),
        }
    }

    #[test]
    fn value_above_a_cap_is_refused_by_name() {
        let strict = spec(STRICT).preemption;
        let errors = caps().allow(&strict, "red", "preemption");
        let errors = errors.expect_err("refused").into_iter();
        let errors: Vec<String> = errors.map(|error| error.to_string()).collect();
        let cap = "an administrator has set this cap for tenant red";
        let expected = [
            format!("preemption.allowed is never; expected suspend or restart: {cap}"),
            format!("preemption.min_runtime is 900; expected at most 600 seconds: {cap}"),
            format!("preemption.grace_s is 300; expected at most 60 seconds: {cap}"),
            format!(
                "preemption.checkpoint_on_request.timeout_s is 600; expected at most 120 seconds: {cap}"
            ),
        ];
        assert_eq!(errors, expected);
        assert_eq!(
            TenantPreemption::default().allow(&strict, "red", "p"),
            Ok(())
        );
        let within = caps().cap(&spec(STRICT));
        assert_eq!(caps().allow(&within, "red", "preemption"), Ok(()));
    }

    #[test]
    fn earlier_document_is_treated_as_if_it_stated_the_cap() {
        let capped = caps().cap(&spec(STRICT));
        assert_eq!(capped.allowed, AllowedPreemption::Suspend);
        assert_eq!((capped.min_runtime, capped.grace_s), (600, Some(60)));
        let request = capped.checkpoint_on_request.expect("declared");
        assert_eq!(request.timeout_s, 120);
        // A job that cannot be suspended makes room by a restart.
        let exclusive = spec(&format!(r#""exclusive": true, {STRICT}"#));
        assert_eq!(caps().cap(&exclusive).allowed, AllowedPreemption::Restart);
        // A cap demands nothing.
        let plain = spec(r#""priority": 0"#);
        assert_eq!(caps().cap(&plain), Preemption::default());
    }

    #[test]
    fn change_keeps_what_is_left_out_and_null_removes_a_cap() {
        let change = r#"{ "allowed": null, "grace_s": 30 }"#;
        let change: TenantPreemptionChange = serde_json::from_str(change).expect("a change");
        let changed = change.of(caps());
        let expected = TenantPreemption {
            allowed: None,
            grace_s: Some(30),
            ..caps()
        };
        assert_eq!(changed, expected);
        let wrong = TenantPreemption {
            timeout_s: Some(0),
            ..caps()
        };
        let errors = wrong.validate("preemption").expect_err("refused");
        assert_eq!(errors[0].field, "preemption.timeout_s");
    }
}
