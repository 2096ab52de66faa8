//! The custom resources as the operator reads them. What a spec says of a job or a study is kept as it came: the REST interface judges it.

use crate::condition::Condition;
use crate::crd::{GROUP, VERSION};
use crate::job::status::JobStatus;
use crate::study::status::StudyStatus;
use crate::tenant::TenantStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Debug;

/// Objects of this kind get it before anything is done for them, and lose it once nothing is left of that.
pub const FINALIZER: &str = "muster.dev/cancel";
/// Holds the object's uid once something was submitted for it. Not in the status: more people may write that, and whoever names a finished
/// job there must not keep the object from getting its own. With the uid, since manifests are copied with their annotations.
pub const SUBMITTED: &str = "muster.dev/submitted";
/// Who writes statuses, by server-side apply.
pub const MANAGER: &str = "muster-operator";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "S: Status")]
pub struct Object<S> {
    pub api_version: String,
    pub kind: String,
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    /// A status that was written by somebody else may be anything; it is as good as none.
    #[serde(default, deserialize_with = "lenient")]
    pub status: S,
}

pub type TrainingJob = Object<JobStatus>;
pub type Study = Object<StudyStatus>;
pub type Tenant = Object<TenantStatus>;

/// What a kind of object is called.
pub trait Status:
    Debug + Clone + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    const KIND: &'static str;
    const PLURAL: &'static str;
    type Scope;

    fn conditions_mut(&mut self) -> &mut Vec<Condition>;
}

/// Conditions of other types may be set by others.
const OWN: [&str; 8] = [
    "Submitted",
    "Admitted",
    "Suspended",
    "Finished",
    "Complete",
    "Failed",
    "Ready",
    "Misconfigured",
];

impl Status for JobStatus {
    const KIND: &'static str = "TrainingJob";
    const PLURAL: &'static str = "trainingjobs";
    type Scope = NamespaceResourceScope;

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

impl Status for StudyStatus {
    const KIND: &'static str = "Study";
    const PLURAL: &'static str = "studies";
    type Scope = NamespaceResourceScope;

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

impl Status for TenantStatus {
    const KIND: &'static str = "Tenant";
    const PLURAL: &'static str = "tenants";
    type Scope = ClusterResourceScope;

    fn conditions_mut(&mut self) -> &mut Vec<Condition> {
        &mut self.conditions
    }
}

impl<S: Status> Resource for Object<S> {
    type DynamicType = ();
    type Scope = S::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        S::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        S::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<S: Status> Object<S> {
    pub fn name(&self) -> String {
        self.name_any()
    }

    pub fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self) -> bool {
        self.finalizers().iter().any(|name| name == FINALIZER)
    }

    /// Whether something was, whatever has become of it since.
    pub fn was_submitted(&self) -> bool {
        self.annotations()
            .get(SUBMITTED)
            .is_some_and(|uid| *uid == self.uid_text())
    }

    /// Whether the operator itself has written this field of the status. Before the annotation was there, this alone kept an object whose
    /// job was removed from getting another. Whoever else writes the field has it under another name.
    pub fn operator_wrote(&self, field: &str) -> bool {
        let field = format!("f:{field}");
        let mut writers = self.managed_fields().iter();
        writers.any(|writer| {
            let fields = writer.fields_v1.as_ref();
            writer.manager.as_deref() == Some(MANAGER)
                && writer.operation.as_deref() == Some("Apply")
                && fields.is_some_and(|fields| fields.0["f:status"].get(&field).is_some())
        })
    }

    /// `spec.suspend`.
    pub fn wants_to_be_held(&self) -> bool {
        self.spec["suspend"] == true
    }

    /// The status without what others have written into it.
    pub fn own_status(&self) -> S {
        let mut status = self.status.clone();
        status
            .conditions_mut()
            .retain(|condition| OWN.contains(&condition.kind.as_str()));
        status
    }

    pub fn uid_text(&self) -> String {
        self.uid().unwrap_or_default()
    }
}

fn lenient<'de, D: serde::Deserializer<'de>, S: Status>(from: D) -> Result<S, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}
