-- The gradient noise scale and AdaScale's gain over the course of a job.

alter table progress_sample add column noise_scale double precision;
alter table progress_sample add column gain double precision;
comment on column progress_sample.noise_scale is 'Gradient noise scale in examples, where several workers sum gradients and it was measured.';
comment on column progress_sample.gain is 'Steps that an update was worth, where the batch grows with the workers; null where an update is a step.';
comment on column progress_sample.compute_ms is 'Per update: forward and backward.';
comment on column progress_sample.exchange_ms is 'Per update: pushing gradients and waiting for new parameters.';
comment on column progress_sample.data_ms is 'Per update: preparing the batch.';
comment on column speed.steps_per_s is 'Running mean over the samples, of updates: a step each, unless the batch grows with the workers.';
