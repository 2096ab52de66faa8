-- Checkpoints of users' programs, in the table of those of the built-in engine.

alter table checkpoint
    add column object uuid,
    add column file_count bigint check (file_count >= 1),
    add column metrics jsonb;
comment on table checkpoint is 'Checkpoints of jobs: those of the built-in engine, and those that a user''s program has declared.';
comment on column checkpoint.path is 'Folder, relative to the cluster''s checkpoint root. Of a program: file or folder, relative to the job''s checkpoint folder.';
comment on column checkpoint.manifest_sha256 is 'Hex SHA-256 of its manifest, which holds those of the files. Of a program in a bucket: that of its content; empty in a folder.';
comment on column checkpoint.object is 'Content of a program''s checkpoint in a bucket, a tar file: artifacts/<tenant>/<job>/<object>. Null in a folder and for the built-in engine.';
comment on column checkpoint.file_count is 'Number of files of a program''s checkpoint; null for the built-in engine.';
comment on column checkpoint.metrics is 'Newest values by name that rank 0 of the program had logged; null for the built-in engine.';
