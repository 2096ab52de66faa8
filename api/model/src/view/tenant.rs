//! Requests and responses of tenants, tokens and users.

use crate::id::{TenantId, TokenId, UserId};
use crate::tenant::{
    Access, EQUAL_WEIGHT, LimitsChange, LimitsUse, TenantLimits, TenantPods, TenantPodsChange,
    TenantPreemption, TenantPreemptionChange,
};
use serde::{Deserialize, Deserializer, Serialize};
use time::OffsetDateTime;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantView {
    pub id: TenantId,
    pub name: String,
    /// Maximum number of GPUs or CPU slots that its jobs hold at one time; null: no limit.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub gpu_quota: Option<u32>,
    /// Share of the cluster relative to the weights of other tenants.
    pub weight: f64,
    /// Cluster objects that the pods of its tasks may use.
    #[serde(default, skip_serializing_if = "TenantPods::is_default")]
    pub pods: TenantPods,
    /// Caps on what its jobs may demand in `preemption`.
    #[serde(default, skip_serializing_if = "TenantPreemption::is_default")]
    pub preemption: TenantPreemption,
    /// Whether measured speeds of its job families count for equal families of other tenants that
    /// share, and theirs for its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_families: bool,
    /// Whether its members may open remote sessions in the tasks of its jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interactive: bool,
    /// GPUs or CPU slots that its jobs hold now.
    #[serde(default)]
    pub gpus_in_use: u32,
    /// Jobs that hold at least one.
    #[serde(default)]
    pub jobs_in_use: u32,
    #[serde(default)]
    pub limits: TenantLimits,
    /// Current use of the limits.
    #[serde(default)]
    pub used: LimitsUse,
}

/// A tenant to create.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewTenant {
    /// 1 to 63 characters of `a-z`, `0-9` and `-`. It begins and ends with a letter or digit.
    /// Unique.
    pub name: String,
    /// Null or left out: no limit.
    #[serde(default)]
    pub gpu_quota: Option<u32>,
    /// 0.001 to 1000: share of the cluster relative to the weights of other tenants.
    #[serde(default = "equal_weight")]
    #[cfg_attr(feature = "schema", schema(minimum = 0.001, maximum = 1000))]
    pub weight: f64,
    /// Cluster objects that the pods of its tasks may use. Default: any image and nothing else.
    #[serde(default, skip_serializing_if = "TenantPods::is_default")]
    pub pods: TenantPods,
    /// Caps on what its jobs may demand in `preemption`. Default: none.
    #[serde(default, skip_serializing_if = "TenantPreemption::is_default")]
    pub preemption: TenantPreemption,
    /// Whether measured speeds of its job families count for equal families of other tenants that
    /// share, and theirs for its own. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_families: bool,
    /// Whether its members may open remote sessions (`muster exec`, `port-forward`, `cp`) in the
    /// tasks of its jobs. Default: false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interactive: bool,
}

/// Change of a tenant's quota, weight, pods, limits, caps on preemption, sharing of families and
/// remote sessions. A field that is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantChange {
    /// Null removes the limit; a field that is left out stays.
    #[serde(
        default,
        deserialize_with = "written",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>))]
    pub gpu_quota: Option<Option<u32>>,
    /// 0.001 to 1000: share of the cluster relative to the weights of other tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0.001, maximum = 1000))]
    pub weight: Option<f64>,
    /// Cluster objects that the pods of its tasks may use, list by list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<TenantPodsChange>,
    /// Limits, one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsChange>,
    /// Caps on what its jobs may demand in `preemption`, one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<TenantPreemptionChange>,
    /// Whether measured speeds of its job families are shared with the other tenants that share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shares_families: Option<bool>,
    /// Whether its members may open remote sessions (`muster exec`, `port-forward`, `cp`) in the
    /// tasks of its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interactive: Option<bool>,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TokenView {
    pub id: TokenId,
    /// Name that its owner gave it.
    pub name: String,
    /// Name of the user for which its bearer acts.
    pub user: String,
    /// Name of the user's tenant.
    pub tenant: String,
    pub access: Access,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Null: never.
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub expires_at: Option<OffsetDateTime>,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub revoked_at: Option<OffsetDateTime>,
}

/// A token to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewToken {
    /// 1 to 255 characters.
    pub name: String,
    /// Only administrators may create tokens with `admin`.
    #[serde(default = "member")]
    pub access: Access,
    /// Name of its user; the user is created if necessary. Default: the caller. For administrators
    /// only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Name of its tenant. Default: that of the caller. For administrators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Time from which it is refused. Default: never.
    #[serde(
        default,
        with = "time::serde::rfc3339::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_at: Option<OffsetDateTime>,
}

/// A new token. The secret is shown only here; the store keeps only its hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct CreatedToken {
    pub id: TokenId,
    pub name: String,
    pub user: String,
    pub tenant: String,
    pub access: Access,
    #[serde(with = "time::serde::rfc3339::option")]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub expires_at: Option<OffsetDateTime>,
    /// Secret for the header `Authorization: Bearer <secret>`.
    pub secret: String,
}

/// Result of revoking all tokens of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RevokedTokens {
    /// Number of tokens that were revoked by this request.
    pub revoked: u64,
}

/// A user of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct UserView {
    pub id: UserId,
    /// Unique within the tenant.
    pub name: String,
    /// Name of the tenant.
    pub tenant: String,
    /// Tokens that are neither revoked nor expired.
    pub tokens: u64,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
}

/// User, tenant and token of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Me {
    pub tenant_id: TenantId,
    pub tenant: String,
    pub user_id: UserId,
    pub user: String,
    pub token_id: TokenId,
    pub access: Access,
    /// Maximum number of GPUs or CPU slots that the tenant's jobs hold at one time; null: no limit.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub gpu_quota: Option<u32>,
    /// GPUs or CPU slots that they hold now.
    #[serde(default)]
    pub gpus_in_use: u32,
    /// Jobs of the tenant that hold at least one.
    #[serde(default)]
    pub jobs_in_use: u32,
    /// Limits of the tenant.
    #[serde(default)]
    pub limits: TenantLimits,
    /// Current use of the limits.
    #[serde(default)]
    pub used: LimitsUse,
}

fn member() -> Access {
    Access::Member
}

fn equal_weight() -> f64 {
    EQUAL_WEIGHT
}

/// Without this function, serde reads null as a missing field.
fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
