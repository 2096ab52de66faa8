//! Custom resources as the operator reads them. The spec of a job or a study stays raw JSON,
//! because the REST interface validates it.

use crate::condition::StatusCondition;
use crate::crd::{GROUP, VERSION};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Debug;

/// Finalizer that an object receives before anything is submitted for it, and loses when that has
/// ended.
pub const FINALIZER: &str = "muster.dev/cancel";
/// Annotation that holds the object's uid once something was submitted for it. It is not part of
/// the status, because more users may write that: naming a finished job there must not keep the
/// object from getting its own. It holds the uid because manifests are copied with their
/// annotations.
pub const SUBMITTED: &str = "muster.dev/submitted";
/// Field manager of status writes by server-side apply.
pub const MANAGER: &str = "muster-operator";

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", bound = "S: ObjectStatus")]
pub struct Object<S> {
    pub api_version: String,
    pub kind: String,
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    /// A status of another writer may have any content; an invalid one counts as empty.
    #[serde(default, deserialize_with = "lenient")]
    pub status: S,
}

/// Names of a kind of object.
pub trait ObjectStatus:
    Debug + Clone + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static
{
    const KIND: &'static str;
    const PLURAL: &'static str;
    type Scope;

    fn conditions_mut(&mut self) -> &mut Vec<StatusCondition>;
}

/// Condition types of the operator; other writers may set other types.
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

impl<S: ObjectStatus> Resource for Object<S> {
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

impl<S: ObjectStatus> Object<S> {
    pub fn name(&self) -> String {
        self.name_any()
    }

    pub fn is_being_deleted(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub fn has_finalizer(&self) -> bool {
        self.finalizers().iter().any(|name| name == FINALIZER)
    }

    /// Whether something was submitted for the object.
    pub fn was_submitted(&self) -> bool {
        self.annotations()
            .get(SUBMITTED)
            .is_some_and(|uid| *uid == self.uid_text())
    }

    /// Whether the operator itself has written this field of the status. Releases before the
    /// annotation relied on it alone to avoid a second submission for an object whose job was
    /// removed. Fields of other writers have another field manager.
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

    /// Whether `spec.suspend` is true.
    pub fn wants_to_be_held(&self) -> bool {
        self.spec["suspend"] == true
    }

    /// Returns the status without the conditions of other writers.
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

fn lenient<'de, D: serde::Deserializer<'de>, S: ObjectStatus>(from: D) -> Result<S, D::Error> {
    let value = Value::deserialize(from)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}
