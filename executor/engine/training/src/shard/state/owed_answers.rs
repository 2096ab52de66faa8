//! Answers to the last step of earlier views that workers have not received yet.

use super::super::tensors::Tensors;
use muster_model::id::TaskId;
use std::sync::{Arc, RwLock};

/// Pending answers of all earlier views.
#[derive(Debug, Default)]
pub struct OwedAnswers(Vec<FormerAnswers>);

/// Source of answers to the last step of an earlier view.
#[derive(Debug)]
pub struct FormerAnswers {
    /// The step after it.
    pub clock: u64,
    pub tensors: Arc<RwLock<Tensors>>,
    pub deltas: Option<Arc<Vec<u8>>>,
    /// Workers without an answer, with the buffers of their pushes.
    pub owed: Vec<(TaskId, Vec<f32>)>,
}

/// Pending answer to one worker.
#[derive(Debug)]
pub struct OwedAnswer {
    pub tensors: Arc<RwLock<Tensors>>,
    pub deltas: Option<Arc<Vec<u8>>>,
    /// Buffer of its push.
    pub buffer: Vec<f32>,
}

impl OwedAnswers {
    pub fn add(&mut self, former: FormerAnswers) {
        self.0.push(former);
    }

    /// Whether `task` is owed the answer after which its next step is `next`.
    pub fn contains(&self, task: TaskId, next: u64) -> bool {
        let mut former = self.0.iter().filter(|former| former.clock == next);
        former.any(|former| former.owed.iter().any(|(owed, _)| *owed == task))
    }

    /// Takes the answer after which the next step of `task` is `next`.
    pub fn take(&mut self, task: TaskId, next: u64) -> Option<OwedAnswer> {
        let mut former = self.0.iter_mut().filter(|former| former.clock == next);
        let found = former.find_map(|former| {
            let at = former.owed.iter().position(|(owed, _)| *owed == task)?;
            let (_, buffer) = former.owed.swap_remove(at);
            Some(OwedAnswer {
                tensors: Arc::clone(&former.tensors),
                deltas: former.deltas.clone(),
                buffer,
            })
        })?;
        self.forget_settled();
        Some(found)
    }

    /// Forgets all answers to `task`.
    pub fn forget(&mut self, task: TaskId) {
        self.forget_if(|_, owed| owed == task);
    }

    /// Forgets the answers to `task` for the steps before `clock`. A worker that pushes `clock` has
    /// received them.
    pub fn forget_until(&mut self, task: TaskId, clock: u64) {
        self.forget_if(|former, owed| former <= clock && owed == task);
    }

    /// Forgets the answers to workers for which `is_settled` is true, given the step after the
    /// answered one and the worker.
    pub fn forget_if(&mut self, is_settled: impl Fn(u64, TaskId) -> bool) {
        for former in &mut self.0 {
            let clock = former.clock;
            former.owed.retain(|(task, _)| !is_settled(clock, *task));
        }
        self.forget_settled();
    }

    fn forget_settled(&mut self) {
        self.0.retain(|former| !former.owed.is_empty());
    }
}
