//! Reconciliation of `Tenant` objects: quota, weight, pod permissions and limits are applied and
//! compared again every 120 s. A tenant is never removed.

use crate::clock;
use crate::context::OperatorContext;
use crate::error::Error;
use crate::job::document::refusal;
use crate::rejection::ObjectRejection;
use crate::resource::ObjectStatus as _;
use crate::tenant::status::{TenantObject, TenantStatus, status};
use kube::runtime::controller::Action;
use muster_client::{Client, ClientError};
use muster_model::tenant::{
    LimitsChange, LimitsSet, TenantLimits, TenantPods, TenantPreemption, TenantPreemptionChange,
};
use muster_model::view::{NewTenant, TenantChange, TenantView};
use serde::Deserialize as _;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// Interval of the comparison, because the tenant may be changed in Muster.
const LOOK: Duration = Duration::from_secs(120);

/// Content of `spec`.
#[derive(Debug, Clone, Default, PartialEq)]
struct DesiredTenant {
    /// `None` is no limit.
    gpu_quota: Option<u32>,
    /// `None` leaves it unchanged.
    weight: Option<f64>,
    /// `None` leaves them unchanged, unless the object has stated them before.
    pods: Option<TenantPods>,
    /// Limits that are not named stay unchanged.
    limits: LimitsChange,
    /// Caps that are not named stay unchanged.
    preemption: TenantPreemptionChange,
    /// `None` leaves it unchanged.
    shares_families: Option<bool>,
    /// `None` leaves it unchanged.
    interactive: Option<bool>,
}

/// Reconciles a tenant once.
///
/// # Errors
/// If Kubernetes or Muster does not answer; the next reconciliation continues.
pub async fn reconcile(
    object: Arc<TenantObject>,
    context: Arc<OperatorContext>,
) -> Result<Action, Error> {
    let began = clock::monotonic();
    let done = compare(&object, &context).await;
    context.metrics.reconciled(TenantStatus::KIND, began, &done);
    done
}

async fn compare(object: &TenantObject, context: &OperatorContext) -> Result<Action, Error> {
    if object.is_being_deleted() {
        return Ok(Action::await_change());
    }
    let client = context.tenants.admin()?;
    let mut before = context.before(object);
    let mut is_said = before.pods;
    let (id, refused) = match wanted(&object.spec) {
        Err(refused) => (None, Some(refused)),
        Ok(mut wanted) => {
            is_said = wanted.pods.is_some();
            if is_said && !before.pods {
                before.pods = true;
                context.write_status(object, &before).await?;
            }
            if before.pods {
                // The object stated permissions before and no longer does.
                wanted.pods.get_or_insert_default();
            }
            match carry_out(&client, &object.name(), wanted).await {
                Ok(tenant) => (Some(tenant.id), None),
                Err(error) => match refusal(&error) {
                    Some(refused) => {
                        is_said = before.pods;
                        (None, Some(refused))
                    }
                    None => return Err(Error::muster("the tenant was not changed")(error)),
                },
            }
        }
    };
    let generation = object.metadata.generation;
    let mut status = status(&before, generation, id, refused.as_ref(), clock::now());
    status.pods = is_said;
    if status != before {
        context.write_status(object, &status).await?;
    }
    if id.is_some() && before.tenant_id != id {
        context.tenants.was_created(&object.name());
    }
    context.backoff.succeeded(&object.uid_text());
    Ok(Action::requeue(LOOK))
}

async fn carry_out(
    client: &Client,
    name: &str,
    wanted: DesiredTenant,
) -> Result<TenantView, ClientError> {
    let tenants = client.tenants().await?;
    let found = tenants.into_iter().find(|tenant| tenant.name == name);
    let Some(found) = found else {
        let new = NewTenant {
            name: name.to_owned(),
            gpu_quota: wanted.gpu_quota,
            weight: wanted.weight.unwrap_or(muster_model::tenant::EQUAL_WEIGHT),
            pods: wanted.pods.unwrap_or_default(),
            preemption: wanted.preemption.of(TenantPreemption::default()),
            shares_families: wanted.shares_families.unwrap_or(false),
            interactive: wanted.interactive.unwrap_or(false),
        };
        let created = client.create_tenant(&new).await?;
        let change = TenantChange {
            limits: changed(&wanted.limits, &created.limits),
            ..TenantChange::default()
        };
        return match change.limits {
            None => Ok(created),
            Some(_) => client.change_tenant(name, &change).await,
        };
    };
    let weight = wanted.weight.unwrap_or(found.weight);
    let pods = wanted.pods.unwrap_or_else(|| found.pods.clone());
    let limits = changed(&wanted.limits, &found.limits);
    let caps = wanted.preemption.of(found.preemption) != found.preemption;
    // Values are stored as sent, so they can be compared exactly.
    let is_same = found.gpu_quota == wanted.gpu_quota && found.weight == weight;
    let shares_families = wanted.shares_families;
    let shares_families = shares_families.filter(|shares| *shares != found.shares_families);
    let interactive = wanted.interactive;
    let interactive = interactive.filter(|wanted| *wanted != found.interactive);
    let has_flags = shares_families.is_none() && interactive.is_none();
    if is_same && found.pods == pods && limits.is_none() && !caps && has_flags {
        return Ok(found);
    }
    let change = TenantChange {
        gpu_quota: Some(wanted.gpu_quota),
        weight: Some(weight),
        // A server of the previous release does not know the field, so it is sent only if it
        // changes.
        pods: (found.pods != pods).then(|| pods.into()),
        limits,
        preemption: caps.then_some(wanted.preemption),
        shares_families,
        interactive,
    };
    client.change_tenant(name, &change).await
}

/// Returns the change that applies the named limits; `None` if they already apply.
fn changed(wanted: &LimitsChange, found: &TenantLimits) -> Option<LimitsChange> {
    let named = wanted.of(LimitsSet::from(*found)).or_default();
    (named != *found).then_some(*wanted)
}

/// # Errors
/// If the schema of an older release has accepted a field that this release rejects.
fn wanted(spec: &Value) -> Result<DesiredTenant, ObjectRejection> {
    let pods = match spec.get("pods") {
        None => None,
        Some(pods) => Some(
            TenantPods::deserialize(pods).map_err(|error| ObjectRejection {
                reason: "InvalidDocument",
                message: format!("spec.pods: {error}"),
            })?,
        ),
    };
    let limits = match spec.get("limits") {
        None => LimitsChange::default(),
        Some(limits) => LimitsChange::deserialize(limits).map_err(|error| ObjectRejection {
            reason: "InvalidDocument",
            message: format!("spec.limits: {error}"),
        })?,
    };
    let preemption = match spec.get("preemption") {
        None => TenantPreemptionChange::default(),
        Some(caps) => {
            TenantPreemptionChange::deserialize(caps).map_err(|error| ObjectRejection {
                reason: "InvalidDocument",
                message: format!("spec.preemption: {error}"),
            })?
        }
    };
    Ok(DesiredTenant {
        gpu_quota: spec["quota"]["gpus"]
            .as_u64()
            .map(|gpus| u32::try_from(gpus).unwrap_or(u32::MAX)),
        weight: spec["weight"].as_f64(),
        pods,
        limits,
        preemption,
        shares_families: spec["sharesFamilies"].as_bool(),
        interactive: spec["interactive"].as_bool(),
    })
}
