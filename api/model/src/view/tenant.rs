//! Tenants, tokens and the bearer, as sent and answered.

use crate::id::{TenantId, TokenId, UserId};
use crate::tenant::{
    Access, EQUAL_WEIGHT, LimitsChange, LimitsUse, TenantLimits, TenantPods, TenantPodsChange,
};
use serde::{Deserialize, Deserializer, Serialize};
use time::OffsetDateTime;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantView {
    pub id: TenantId,
    pub name: String,
    /// GPUs (or CPU slots) that its jobs may hold at once; null is no limit.
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub gpu_quota: Option<u32>,
    /// Its share of the cluster beside the other tenants' weights.
    pub weight: f64,
    /// What the pods of its tasks may have.
    #[serde(default, skip_serializing_if = "TenantPods::is_default")]
    pub pods: TenantPods,
    /// GPUs (or CPU slots) that its jobs hold now.
    #[serde(default)]
    pub gpus_in_use: u32,
    /// Jobs that hold any.
    #[serde(default)]
    pub jobs_in_use: u32,
    #[serde(default)]
    pub limits: TenantLimits,
    /// What counts against the limits now.
    #[serde(default)]
    pub used: LimitsUse,
}

/// A tenant to create.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct NewTenant {
    /// 1 to 63 characters of `a-z`, `0-9` and `-`, beginning and ending with a letter or digit. Unique.
    pub name: String,
    /// Null or left out is no limit.
    #[serde(default)]
    pub gpu_quota: Option<u32>,
    /// 0.001 to 1000: its share of the cluster beside the other tenants' weights.
    #[serde(default = "equal_weight")]
    #[cfg_attr(feature = "schema", schema(minimum = 0.001, maximum = 1000))]
    pub weight: f64,
    /// What the pods of its tasks may have; images and nothing else when left out.
    #[serde(default, skip_serializing_if = "TenantPods::is_default")]
    pub pods: TenantPods,
}

/// What is to become of a tenant's quota, weight, pods and limits; what is left out stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantChange {
    /// Null takes the limit away; it must be written, so that a forgotten field does not.
    #[serde(
        default,
        deserialize_with = "written",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u32>))]
    pub gpu_quota: Option<Option<u32>>,
    /// 0.001 to 1000: its share of the cluster beside the other tenants' weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 0.001, maximum = 1000))]
    pub weight: Option<f64>,
    /// What the pods of its tasks may have, list by list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<TenantPodsChange>,
    /// Its limits, one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsChange>,
}

/// A token without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TokenView {
    pub id: TokenId,
    /// What its owner calls it.
    pub name: String,
    /// On whose behalf the bearer acts.
    pub user: String,
    /// Name of the user's tenant.
    pub tenant: String,
    pub access: Access,
    #[serde(with = "time::serde::rfc3339")]
    pub created_at: OffsetDateTime,
    /// Null is never.
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
    /// `admin` may be given by administrators only.
    #[serde(default = "member")]
    pub access: Access,
    /// Name of the user it is for, who is created if need be; the bearer if left out. For administrators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Name of the tenant it is for; the bearer's if left out. For administrators only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// From here on it is refused; never if left out.
    #[serde(
        default,
        with = "time::serde::rfc3339::option",
        skip_serializing_if = "Option::is_none"
    )]
    pub expires_at: Option<OffsetDateTime>,
}

/// A token just made. The secret is shown this once and stored nowhere.
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
    /// To be sent as `Authorization: Bearer <secret>`.
    pub secret: String,
}

/// What came of revoking all tokens of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RevokedTokens {
    /// Tokens that were not revoked before.
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

/// Whom the bearer stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Me {
    pub tenant_id: TenantId,
    pub tenant: String,
    pub user_id: UserId,
    pub user: String,
    pub token_id: TokenId,
    pub access: Access,
    /// GPUs (or CPU slots) that the tenant's jobs may hold at once; null is no limit.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schema(required = true))]
    pub gpu_quota: Option<u32>,
    /// GPUs (or CPU slots) that they hold now.
    #[serde(default)]
    pub gpus_in_use: u32,
    /// Jobs of the tenant that hold any.
    #[serde(default)]
    pub jobs_in_use: u32,
    /// Those of the tenant.
    #[serde(default)]
    pub limits: TenantLimits,
    /// What counts against the limits now.
    #[serde(default)]
    pub used: LimitsUse,
}

fn member() -> Access {
    Access::Member
}

fn equal_weight() -> f64 {
    EQUAL_WEIGHT
}

/// Without this serde takes null for a missing field.
fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}
