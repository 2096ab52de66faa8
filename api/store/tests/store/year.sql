-- Rows that a cluster stores in two days: 20 jobs end, and some resources get new names.
create function load_days(d integer) returns void
    language plpgsql
as $$
declare
    t constant timestamptz := timestamptz '2020-01-01Z' + d * interval '2 days';
    red constant uuid := (select id from tenant where name = 'red');
    ann constant uuid := (select id from app_user where tenant_id = red and name = 'ann');
    lasting constant uuid := (select id from node where name = 'node-a');
    spot constant uuid := md5('spot-' || d)::uuid;
    search constant uuid := case when d % 3 = 0 then md5('study-' || d)::uuid end;
    member constant uuid := md5('member-' || d)::uuid;
    ended constant jsonb := '{"phase": "succeeded"}';
begin
    -- Nodes of an autoscaler get a new name every second day.
    insert into node (id, name, state, capacity, first_seen_at, last_seen_at) values (spot, 'spot-' || d, 'up', '{}', t, t);
    update node set state = 'lost' where id = md5('spot-' || d - 1)::uuid;
    insert into node_join (token_sha256, name, created_at, expires_at)
        values (sha256(spot::text::bytea), 'spot-' || d, t, t + interval '1 day');

    insert into priority_class (name, description, lowest, highest, default_priority, roles, tenants)
        values ('urgent', '', 10, 50, 10, '{member}', '{red}') on conflict do nothing;
    insert into app_user (id, tenant_id, name, created_at) values (member, red, 'member-' || d, t);
    insert into api_token (id, tenant_id, user_id, name, access, hash, created_at, expires_at, revoked_at)
        select md5('token-' || d || '-' || n)::uuid, red, member, 'ci', 'member', sha256((d || '-' || n)::bytea), t,
               case n when 1 then t + interval '1 day' end, case n when 2 then t end
        from generate_series(1, 2) n;
    insert into idempotency (tenant_id, key, request_hash, status, body, expires_at)
        select red, d || '-' || n, sha256(n::text::bytea), 201, repeat('b', 300), t + interval '1 day' from generate_series(1, 20) n;
    insert into code_archive (tenant_id, sha256, bytes, created_at, used_at)
        select red, encode(sha256(('code-' || d || '-' || n)::bytea), 'hex'), 1000, t, t from generate_series(1, 5) n;
    insert into secret (tenant_id, name, version, key_id, nonce, ciphertext, created_at, updated_at, updated_by)
        values (red, 'HF_TOKEN', 1, 'a', '', '', t, t, '{"user": "ann"}')
        on conflict (tenant_id, name) do update set version = secret.version + 1, updated_at = excluded.updated_at;
    insert into schedule (tenant_id, name, user_id, cron, time_zone, catch_up, overlap, document, next_at, last, created_at, updated_at)
        values (red, 'nightly', ann, '@daily', 'UTC', 'none', 'allow', '{}', t, '{}', t, t)
        on conflict (tenant_id, name) do update set next_at = excluded.next_at;
    insert into template (tenant_id, name, document, version, created_at, updated_at, updated_by)
        values (red, 'train', '{}', 1, t, t, '{"user": "ann"}')
        on conflict (tenant_id, name) do update set version = template.version + 1, updated_at = excluded.updated_at;
    insert into question (id, tenant_id, asked_at, expires_at, question)
        select md5('question-' || d || '-' || n)::uuid, red, t, t + interval '1 minute', '{}' from generate_series(1, 5) n;
    insert into round (number, at, snapshot, plan, report)
        select d * 10 + n, t, convert_to(repeat(md5(n::text), 60), 'UTF8'), '{}', '{}' from generate_series(1, 10) n;

    if search is not null then
        insert into study (id, tenant_id, created_by, name, labels, document, phase, trials_limit, created_at, finished_at)
            values (search, red, ann, 'study', '{}', '{}', 'finished', 2, t, t);
        insert into study_event (study_id, seq, tenant_id, at, body) select search, n, red, t, '{}' from generate_series(1, 10) n;
    end if;

    -- Submissions are admitted one by one.
    perform muster_admit_job(red, 1000, 50000, 1 << 28);
    insert into job (id, tenant_id, submitted_by, name, labels, priority, spec, intent, phase, state, revision, submitted_at, document_bytes,
                     study_id, trial, origin_job, origin_step)
        select md5('job-' || d || '-' || n)::uuid, red, ann, 'job', '{}', 0, jsonb_build_object('argv', repeat(md5(n::text), 30)), 'run',
               'queued', '{"phase": "queued"}', 1, t, 1000,
               case when n > 18 then search end, case when n > 18 and search is not null then n end,
               case when n = 1 and d > 0 then md5('job-' || d - 1 || '-2')::uuid end, case when n = 1 and d > 0 then 1 end
        from generate_series(1, 20) n;
    update job set phase = 'succeeded', state = ended, finished_at = t where phase = 'queued';
    insert into study_trial (study_id, number, tenant_id, job_id, state, parameters, seed, budget, rung, reports, rungs, created_at)
        select search, n, red, md5('job-' || d || '-' || n)::uuid, 'completed', '{}', 1, 1, 0, '[]', '[]', t
        from generate_series(19, 20) n where search is not null;
    insert into task (id, tenant_id, job_id, revision, role, role_index, node_id, gpus, phase, state, created_at, released_at, log_end)
        select md5('task-' || d || '-' || n)::uuid, red, md5('job-' || d || '-' || n)::uuid, 1, 'worker', 0, spot, '{0}', 'released',
               '{"phase": "released"}', t, t, 1000
        from generate_series(1, 20) n;
    insert into allocation (task_id, gpu_index, node_id, job_id, tenant_id, allocated_at, released_at)
        select md5('task-' || d || '-' || n)::uuid, 0, spot, md5('job-' || d || '-' || n)::uuid, red, t, t from generate_series(1, 20) n;
    insert into task_log (task_id, start_offset, tenant_id, data)
        select md5('task-' || d || '-' || n)::uuid, 0, red, convert_to(repeat('l', 1000), 'UTF8') from generate_series(1, 20) n;
    insert into node_fault (node_id, job_id, task_id, at, fault)
        values (spot, md5('job-' || d || '-1')::uuid, md5('task-' || d || '-1')::uuid, t, '{}');

    insert into progress_sample (job_id, step, tenant_id, revision, at, epoch, loss, accuracy, examples_per_s, steps_per_s, compute_ms,
                                 exchange_ms, data_ms, workers, ps_shards)
        select md5('job-' || d || '-' || n)::uuid, s, red, 1, t, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0
        from generate_series(1, 20) n, generate_series(1, 3) s;
    insert into evaluation (job_id, step, tenant_id, revision, at, epoch, loss, accuracy)
        select md5('job-' || d || '-' || n)::uuid, s, red, 1, t, 0, 0, 0 from generate_series(1, 20) n, generate_series(1, 2) s;
    insert into metric_series (job_id, name, number, tenant_id, revision, width_log2, buckets, points, min_value, max_value, last_step,
                               last_value)
        select md5('job-' || d || '-' || n)::uuid, 'metric-' || s, s, red, 1, 0, 2, 2, 0, 1, 1, 1
        from generate_series(1, 20) n, generate_series(0, 1) s;
    insert into metric_bucket (job_id, series, bucket, tenant_id, revision, points, sum, min_value, max_value, last_step, last_value)
        select md5('job-' || d || '-' || n)::uuid, s, b, red, 1, 1, b, b, b, b, b
        from generate_series(1, 20) n, generate_series(0, 1) s, generate_series(0, 1) b;
    insert into objective_value (job_id, name, step, tenant_id, revision, epoch, value)
        select md5('job-' || d || '-' || n)::uuid, 'f1', s, red, 1, s, 0.5
        from generate_series(1, 20) n, generate_series(1, 2) s;
    insert into job_after (job_id, before_id, tenant_id, condition)
        select md5('job-' || d || '-2')::uuid, md5('job-' || d || '-1')::uuid, red, 'end';
    insert into job_array (job_id, tenant_id, name, parallel, held)
        select md5('job-' || d || '-' || n)::uuid, red, 'folds', 8, false from generate_series(1, 2) n;
    insert into epoch_loss (job_id, epoch, tenant_id, loss_sum, samples)
        select md5('job-' || d || '-' || n)::uuid, 1, red, 0, 1 from generate_series(1, 20) n;
    insert into speed (job_id, workers, ps_shards, tenant_id, steps_per_s, samples)
        select md5('job-' || d || '-' || n)::uuid, 1, 0, red, 1, 1 from generate_series(1, 20) n;
    insert into placed_speed (job_id, gpu_kind, workers, ps_shards, nodes, tenant_id, family, steps_per_s, weight, samples, observed_at)
        select md5('job-' || d || '-' || n)::uuid, 'cpu', 1, 0, 1, red, 'family-' || n, 1, 1, 1, t from generate_series(1, 20) n;
    insert into node_speed (job_id, node_id, gpu_kind, workers, ps_shards, tenant_id, family, steps_per_s, weight, observed_at)
        select md5('job-' || d || '-' || n)::uuid, spot, 'cpu', 1, 0, red, 'family-' || n, 1, 1, t from generate_series(1, 20) n;
    insert into update_time (job_id, gpu_kind, workers, nodes, batch_class, tenant_id, family, batch, update_s, exchange_s, weight, observed_at)
        select md5('job-' || d || '-' || n)::uuid, 'cpu', 1, 1, 28, red, 'family-' || n, 128, 1, 0, 1, t from generate_series(1, 20) n;
    insert into course_noise (job_id, part, tenant_id, family, noise_scale)
        select md5('job-' || d || '-' || n)::uuid, 0, red, 'family-' || n, 100 from generate_series(1, 20) n;
    insert into checkpoint (tenant_id, job_id, step, epoch, revision, path, bytes, manifest_sha256, written_at)
        select red, md5('job-' || d || '-' || n)::uuid, s, 1, 1, 'step-1', 1, 'sum', t
        from generate_series(1, 20) n, generate_series(1, 2) s;
    insert into artifact (job_id, path, tenant_id, object, bytes, sha256, content_type, role, role_index, revision, stored_at)
        select md5('job-' || d || '-' || n)::uuid, 'plots/' || s || '.png', red, md5('object-' || d || '-' || n || '-' || s)::uuid, 1000,
               repeat('a', 64), 'image/png', 'worker', 0, 1, t
        from generate_series(1, 20) n, generate_series(1, 2) s;
    insert into artifact_use (job_id, tenant_id, files, bytes)
        select md5('job-' || d || '-' || n)::uuid, red, 2, 2000 from generate_series(1, 20) n;
    insert into job_volume (job_id, tenant_id) select md5('job-' || d || '-' || n)::uuid, red from generate_series(1, 20) n;
    insert into forecast (job_id, made_at, tenant_id, widen, gpu_s)
        select md5('job-' || d || '-' || n)::uuid, t, red, 1, 1 from generate_series(1, 20) n;
    insert into event (at, tenant_id, job_id, node_id, kind, body)
        select t, red, md5('job-' || d || '-' || n)::uuid, spot, 'note', '{"kind": "note", "message": "told"}'
        from generate_series(1, 20) n, generate_series(1, 5) s;
    insert into event (at, kind, body) select t, 'note', '{"kind": "note", "message": "of the cluster"}' from generate_series(1, 20) n;

    -- Owners delete half of their jobs and studies.
    update job set deleted_at = t
        where id in (select md5('job-' || d - 3 || '-' || n)::uuid from generate_series(2, 18, 2) n);
    if d % 6 = 3 then
        update study set deleted_at = t where id = md5('study-' || d - 6)::uuid;
        update job set deleted_at = t where study_id = md5('study-' || d - 6)::uuid;
        insert into study_order (study_id, tenant_id, at, body) select id, red, t, '{}' from study where id = md5('study-' || d - 6)::uuid;
    end if;
    -- Nodes erase the files.
    update job set erased_at = t where deleted_at is not null and erased_at is null;

    -- Five jobs never end and get another revision every second day.
    insert into job (id, tenant_id, submitted_by, name, labels, priority, spec, intent, phase, state, submitted_at, document_bytes)
        select md5('open-' || n)::uuid, red, ann, 'open', '{}', 0, '{}', 'run', 'running', '{"phase": "running"}', t, 1000
        from generate_series(1, 5) n
        on conflict do nothing;
    insert into job_volume (job_id, tenant_id) select md5('open-' || n)::uuid, red from generate_series(1, 5) n on conflict do nothing;
    update allocation set released_at = t where node_id = lasting and released_at is null;
    update task set phase = 'released', state = '{"phase": "released"}', released_at = t where node_id = lasting and released_at is null;
    update job set revision = d + 1 where phase = 'running';
    insert into task (id, tenant_id, job_id, revision, role, role_index, node_id, gpus, phase, state, created_at)
        select md5('open-' || d || '-' || n)::uuid, red, md5('open-' || n)::uuid, d + 1, 'worker', 0, lasting, array[n], 'running',
               '{"phase": "running"}', t
        from generate_series(1, 5) n;
    -- Remote sessions end within 12 hours.
    delete from remote_session where expires_at < t;
    insert into remote_session (id, tenant_id, job_id, task_id, node_id, rank, action, opened_by, key_sha256, opened_at, expires_at)
        select md5('session-' || d || '-' || n)::uuid, red, md5('open-' || n)::uuid, md5('open-' || d || '-' || n)::uuid, lasting, 0,
               '{"kind": "port", "port": 1}', '{"user": "ann"}', sha256('key'), t, t + interval '12 hours'
        from generate_series(1, 5) n;
    insert into allocation (task_id, gpu_index, node_id, job_id, tenant_id, allocated_at)
        select md5('open-' || d || '-' || n)::uuid, n, lasting, md5('open-' || n)::uuid, red, t from generate_series(1, 5) n;
    insert into task_log (task_id, start_offset, tenant_id, data)
        select md5('open-' || d || '-' || n)::uuid, 0, red, convert_to(repeat('l', 1000), 'UTF8') from generate_series(1, 5) n;
    update job_volume set log_bytes = log_bytes + 1000 where job_id in (select md5('open-' || n)::uuid from generate_series(1, 5) n);
end
$$;
