-- What a study expects of its trials, so that rounds can prefer the promising.

alter table study_trial
    add column expected_gain double precision not null default 0.5 check (expected_gain between 0 and 1);
comment on column study_trial.expected_gain is 'What more time on GPUs is expected to bring beside the study''s other trials: 0 (nothing) to 1; written while it holds a slot.';
