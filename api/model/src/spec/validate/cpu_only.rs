//! Rules of a job whose workers use no GPUs.

use super::Errors;
use crate::spec::{JobSpec, Precision, Range};

const NO_GPUS: &str = "left out: workers with resources.worker.gpus: 0 use no GPU";

impl JobSpec {
    /// Checks what a job without GPUs cannot have. Its workers are bounded by their CPU and memory,
    /// which every document states.
    pub(super) fn check_cpu_only(&self, errors: &mut Errors) {
        let worker = &self.resources.worker;
        if worker.gpus > 0 {
            return;
        }
        let Range { min, max } = self.scale.workers;
        errors.check(
            "scale.workers.max",
            &max,
            min == max,
            &format!("min ({min}): a job with resources.worker.gpus: 0 has a fixed size"),
        );
        errors.check(
            "resources.worker.gpu_kinds",
            &format!("{} entries", worker.gpu_kinds.len()),
            worker.gpu_kinds.is_empty(),
            NO_GPUS,
        );
        if let Some(bytes) = worker.gpu_memory_bytes {
            errors.check("resources.worker.gpu_memory_bytes", &bytes, false, NO_GPUS);
        }
        if let Some(least) = worker.compute_capability {
            errors.check(
                "resources.worker.compute_capability",
                &least,
                false,
                NO_GPUS,
            );
        }
        errors.check(
            "exclusive",
            &self.exclusive,
            !self.exclusive,
            "false: a job with resources.worker.gpus: 0 has no GPUs that it could share",
        );
        let engine = self.engine.as_ref();
        let precision = engine.and_then(|engine| engine.precision);
        if let Some(precision) = precision {
            errors.check(
                "engine.precision",
                &format!("{precision:?}").to_lowercase(),
                precision == Precision::F32,
                "left out, or f32: workers with resources.worker.gpus: 0 compute on CPUs, always in f32",
            );
        }
    }
}
