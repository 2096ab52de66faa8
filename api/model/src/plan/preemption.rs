//! What the stop of a running job for another job costs.

use crate::id::{JobId, TenantId};
use serde::{Deserialize, Serialize};

/// Cost of a stop for another job, with the jobs that bear and gain it. The times are estimates of
/// the round that decided the stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreemptionCost {
    /// Tenant of the stopped job, which bears the cost.
    pub borne_by: TenantId,
    /// Waiting job that gets the GPUs.
    pub gainer: JobId,
    /// Tenant of that job.
    pub gained_by: TenantId,
    /// GPUs that the stopped job holds.
    pub gpus: u32,
    /// Work since the last known checkpoint, in milliseconds. The job repeats it.
    pub work_ms: u64,
    /// Milliseconds for the stop and for the next start.
    pub restart_ms: u64,
    /// GPU-milliseconds of its remaining run that the other job does not wait for.
    pub gain_gpu_ms: u64,
}

impl PreemptionCost {
    /// Returns the GPU-milliseconds of work that the stop loses.
    #[must_use]
    pub fn work_gpu_ms(&self) -> u64 {
        self.work_ms.saturating_mul(u64::from(self.gpus))
    }

    /// Returns the GPU-milliseconds that the stop costs in all.
    #[must_use]
    pub fn gpu_ms(&self) -> u64 {
        let each_ms = self.work_ms.saturating_add(self.restart_ms);
        each_ms.saturating_mul(u64::from(self.gpus))
    }
}
