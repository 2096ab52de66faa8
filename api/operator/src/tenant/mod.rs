//! `Tenant`: conversion between the object and the tenant.

mod reconcile;
pub mod status;

pub use reconcile::reconcile;
pub use status::{TenantObject, TenantStatus};
