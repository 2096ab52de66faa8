-- What a checkpoint consists of and how good it is: large models are in several files, and the best checkpoints stay.

alter table checkpoint
    add column files text[] not null default array['manifest.json', 'model.safetensors', 'optimizer.safetensors', 'SHA256SUMS'],
    add column loss double precision,
    add column accuracy double precision;
comment on column checkpoint.files is 'Names of its files, the manifest and the list of sums among them.';
comment on column checkpoint.loss is 'Test loss at this very step; null when it was not evaluated there.';
comment on column checkpoint.accuracy is 'Share of test examples classified rightly, likewise.';
comment on column checkpoint.retained is 'Still there: spec.checkpoint has not pruned it.';
