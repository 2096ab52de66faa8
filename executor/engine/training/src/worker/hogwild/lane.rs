//! One thread of lock-free training: its memory for a pass, and steps on the parameters as they are
//! at the time.

use super::super::batches::Batches;
use super::super::model::{WorkerModel, by_example};
use super::shared::AtomicArena;
use muster_comm::wire::metadata::StepStats;
use muster_compute::data::Examples;
use muster_compute::model::{Network, ParameterBlock, ParameterRole, Workspace};
use muster_compute::optimizer::{OptimizerConfig, follow};

/// Memory of a thread.
pub struct HogwildThread {
    workspace: Workspace,
    batches: Batches,
    /// Parameters as the thread has read them.
    parameters: Vec<f32>,
    gradients: Vec<f32>,
}

/// Values that all threads share.
pub struct HogwildShared<'a> {
    pub network: &'a Network,
    pub train: &'a Examples,
    pub shared: &'a AtomicArena,
    pub optimizer: &'a OptimizerConfig,
    /// 1 over the targets of a step.
    pub scale: f32,
}

impl HogwildThread {
    pub fn of(model: &WorkerModel) -> Self {
        let parameters = model.network.parameter_count();
        Self {
            workspace: model.network.workspace(model.largest_pass(), 1),
            batches: model.batches.twin(),
            parameters: vec![0.0; parameters],
            gradients: vec![0.0; parameters],
        }
    }

    /// Does `step`, which is number `update` of the optimizer's updates: reads the parameters,
    /// computes their gradients and changes them.
    pub fn step(&mut self, field: &HogwildShared<'_>, step: u64, update: u64) -> StepStats {
        field.shared.read(&mut self.parameters);
        let batch = self.batches.load_now(field.train, step);
        let loss = field.network.loss_and_grad(
            &mut self.workspace,
            &self.parameters,
            &batch,
            &mut self.gradients,
        );
        for block in field.network.blocks() {
            apply(field, block, update, &self.gradients[block.range()]);
        }
        let (loss_sum, correct) = by_example(field.network, loss);
        StepStats {
            loss_sum,
            correct: correct.round() as u64,
            examples: self.batches.examples() as u64,
            ..StepStats::default()
        }
    }
}

fn apply(field: &HogwildShared<'_>, block: &ParameterBlock, update: u64, gradients: &[f32]) {
    let scale = field.scale;
    field.shared.change(
        block.range(),
        gradients,
        |parameters, gradients| match block.role {
            ParameterRole::Statistic => follow(parameters, gradients, scale),
            ParameterRole::Weight | ParameterRole::Bias => {
                // The document's validation admits only update rules without state.
                field
                    .optimizer
                    .update(update, parameters, gradients, &mut [], scale);
            }
        },
    );
}
