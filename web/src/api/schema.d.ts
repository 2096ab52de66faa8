// Generated from api/openapi.json by `npm run generate`. Do not edit.
export interface paths {
    "/api/v1/code/{sha256}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show a code archive
         * @description 404 if the tenant has no archive of this name; a client then uploads it.
         */
        get: operations["getCode"];
        /**
         * Upload a code archive
         * @description The body is a zstd-compressed tar file of files, folders and symbolic links, and the path names
         *     its SHA-256. Documents refer to it in `command.code.archive`. An upload of a stored archive
         *     replaces it. Archives that no job or study names are removed a week after their last use.
         */
        put: operations["putCode"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/code/{sha256}/archive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Download a code archive
         * @description A zstd-compressed tar file.
         */
        get: operations["downloadCode"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List events, newest first
         * @description Events of the tenant's jobs and of the nodes. A stream that begins after the first event's
         *     cursor continues the list.
         */
        get: operations["listEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/families": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List what is known of the tenant's families of jobs
         * @description Jobs of a family take equally long for a step on equal GPUs. The speeds by GPU kind and
         *     placement are used for all later jobs of the family. The family with the newest measured job
         *     comes first.
         */
        get: operations["listFamilies"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/families/{family}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Forget what is known of a family of jobs
         * @description The speeds by GPU kind and placement of all its jobs are deleted. Running jobs keep
         *     their own speeds by size; later jobs start as those of an unknown family. The jobs themselves
         *     stay.
         */
        delete: operations["forgetFamily"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/forecasts/accuracy": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the accuracy of forecasts
         * @description Share of the forecasts of the tenant's succeeded jobs whose interval was right. The target is 80
         *     %. A forecast counts for the time in which it was the newest, each job counts once, and
         *     forecasts marked `unsure` do not count.
         */
        get: operations["forecastAccuracy"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List jobs, newest first */
        get: operations["listJobs"];
        put?: never;
        /**
         * Submit a job
         * @description The document may be JSON or YAML. A request that is repeated with the same `Idempotency-Key`
         *     within 24 hours gets the answer of the first one, with the header `Idempotency-Replayed: true`,
         *     and submits nothing. With `from` the job starts from a checkpoint of another job of the tenant,
         *     by default from the newest.
         */
        post: operations["submitJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a job */
        get: operations["getJob"];
        put?: never;
        post?: never;
        /**
         * Delete a job that has ended
         * @description The job disappears from lists. Its checkpoints and models are erased within minutes, once no
         *     open job starts from them.
         */
        delete: operations["deleteJob"];
        options?: never;
        head?: never;
        /**
         * Change a job's size range and priority
         * @description Allowed while the job waits or runs. Above a new maximum a running job shrinks in the next
         *     scheduling round; a job that must restart for that does so once it can be placed again at once.
         *     Below a new minimum the job continues at its size. It grows into GPUs that no job of the same or
         *     a higher priority waits for.
         *
         *     With priority classes, a new priority must lie in the range of the job's class, or without one
         *     in the range of a class that the caller may use. `priority_class` gives the job another class. A
         *     number alone removes a class that was deleted.
         *
         *     With `edits`, the change is refused if the job was changed since. The size of a trial cannot be
         *     changed, and with `batch_rule` `adascale` the minimum cannot. A change without effect is
         *     accepted.
         */
        patch: operations["editJob"];
        trace?: never;
    };
    "/api/v1/jobs/{id}/artifacts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List a job's artifacts
         * @description Files that its program has written to `MUSTER_OUTPUT_DIR` or has logged with MLflow, by path.
         *     They are deleted with the job.
         */
        get: operations["listArtifacts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/artifacts/archive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Download all artifacts of a job
         * @description A tar file with the artifacts by path. The connection is aborted if one of them cannot be read:
         *     a complete file ends with two blocks of zeros.
         */
        get: operations["downloadArtifacts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/artifacts/content": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Download an artifact */
        get: operations["downloadArtifact"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel a job
         * @description Its tasks write a checkpoint and stop. A repeated request changes nothing.
         */
        post: operations["cancelJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/checkpoints": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List a job's checkpoints, newest first
         * @description Includes pruned checkpoints of the built-in engine. Each has its size, its measures and the
         *     reasons why it is retained. Checkpoints of programs have `file_count` and `metrics`.
         */
        get: operations["listCheckpoints"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/checkpoints/{step}/archive": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Download a checkpoint of a program
         * @description A tar file with its files. Their paths are relative to the job's checkpoint folder.
         */
        get: operations["downloadCheckpointArchive"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/checkpoints/{step}/files/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Download a file of a checkpoint */
        get: operations["downloadCheckpointFile"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/continue": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Continue a suspended job
         * @description Its workers resume from the step at which they were suspended, on the same GPUs, as soon as
         *     these are free. A request for a job that its owner has not suspended changes nothing.
         */
        post: operations["continueJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List a job's events, oldest first */
        get: operations["listJobEvents"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/explain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Explain a job's size, or why it waits
         * @description For a waiting job: the nodes, jobs and quota that keep it from starting, and the smallest change
         *     that would start it now. For a running job: the gain of one additional worker, compared with
         *     that of the job that would get the next GPU.
         */
        get: operations["explainJob"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/forecast": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the forecast of a job's start and end
         * @description The scheduler simulates its own decisions from the present state of the cluster many times.
         *     Speeds and remaining work vary by the uncertainty of its estimates. An interval should be right
         *     in eight of ten cases. An interval marked `unsure` is too wide to be shown.
         */
        get: operations["forecastJob"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/logs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read a task's log
         * @description The output of the task, standard output and standard error together. Of a log longer than 16 MiB
         *     the newest part is stored.
         */
        get: operations["readLog"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/logs/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow a task's log
         * @description Server-sent events: `log` (LogPiece) for each piece, `task_end` (LogEnd) when a task has ended
         *     and the stream follows its successor, and `end` (LogEnd) when nothing can follow. The `id:` of a
         *     message is the position of the reader. A client that reconnects with it as `Last-Event-ID`
         *     receives each piece exactly once.
         */
        get: operations["followLog"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the metrics of a job
         * @description All metrics that its program has logged, by name, on one page.
         */
        get: operations["listJobMetrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/metrics/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Export metrics of a job
         * @description One line per point: name, step, last, mean, min, max and the number of values.
         */
        get: operations["exportJobMetrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/metrics/points": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the points of metrics of a job
         * @description Names that the job has not logged are left out. A point covers 2^k steps; after a restart from a
         *     checkpoint the values of repeated steps replace the earlier ones.
         */
        get: operations["getJobMetricPoints"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/model": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Download a job's final model
         * @description A safetensors file of named tensors. Only a job that has succeeded has one; checkpoints of other
         *     jobs can be downloaded.
         */
        get: operations["downloadModel"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause a job
         * @description Its tasks write a checkpoint and release their GPUs. A repeated request changes nothing.
         */
        post: operations["pauseJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/progress": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a job's training series */
        get: operations["getJobProgress"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume a paused job
         * @description The job is queued again and continues from its newest checkpoint. A request for a job that is
         *     not paused changes nothing.
         */
        post: operations["resumeJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Open a remote session in a running task
         * @description Runs a command, connects to a port of the task, or copies files. The request has the headers
         *     `Connection: Upgrade` and `Upgrade: muster-remote`. After 101, both sides exchange frames: one
         *     byte for the kind, four for the length (big endian, at most 64 KiB), the data. Kinds: 1 input,
         *     2 end of input, 3 output, 4 standard error, 5 end of output, 6 size of the terminal, 7 started,
         *     8 ended (JSON of `RemoteEnd`), 9 alive (each side sends it every 15 s), 10 bytes of input that
         *     the program has taken (a client has at most 256 KiB of input that was not taken).
         *
         *     For members of the job's tenant, if an administrator has set `interactive` of the tenant. The
         *     history of the job shows each session. 409 if the task does not run, or if its node refuses; for
         *     a pod, the refusal names the `kubectl` command.
         */
        post: operations["openRemoteSession"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow a job
         * @description Server-sent events. The first message is `opened` (Opened). Each entry of the job's history is
         *     an `event` (EventView), and new samples are `progress` (ProgressMessage). The `id:` of a message
         *     is the position of the reader in both. A client that reconnects with it as `Last-Event-ID`
         *     receives each entry and sample exactly once.
         */
        get: operations["followJob"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/suspend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Suspend a running job
         * @description Its workers stop at the end of their step, keep their processes and memory, and release their
         *     GPUs until the job is continued. All processes of a `command` are stopped as by SIGSTOP.
         *
         *     Refused for a job that is not running, and for a job whose workers do not wait for each other in
         *     every step. Also refused if the tasks are pods, because Kubernetes does not release the
         *     resources of a pod. A repeated request changes nothing.
         */
        post: operations["suspendJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/jobs/{id}/tasks": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List a job's tasks
         * @description All tasks on one page, the newest revision first.
         */
        get: operations["listTasks"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/me": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get the user, tenant and token of the caller
         * @description With the quota and the limits of the tenant and their use.
         */
        get: operations["getMe"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List nodes by name
         * @description Every tenant sees all nodes and which GPUs are held. The job that holds a GPU is shown only to
         *     its own tenant and to administrators.
         */
        get: operations["listNodes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a node */
        get: operations["getNode"];
        put?: never;
        post?: never;
        /**
         * Remove a node
         * @description The node disappears from lists and its credential is deleted. Refused while it is up or holds
         *     tasks (409). The history of its tasks stays. A node that joins under the name later is a new
         *     node. For administrators.
         */
        delete: operations["removeNode"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/drain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Drain a node
         * @description The node takes no new task, and its tasks move away with their checkpoints. For administrators.
         */
        post: operations["drainNode"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/join-tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Create a one-time join token
         * @description The token is in the answer only. One executor can join with it under this name, instead of with
         *     the cluster's join token. It then replaces the node's earlier executor. The node need not exist
         *     yet. For administrators.
         */
        post: operations["createJoinToken"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/notice": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Report what the cluster manager says about a machine
         * @description The notice replaces the earlier one. Muster's operator sends it for Kubernetes. It is
         *     independent of an administrator's drain: the node takes tasks if neither closes it. For
         *     administrators.
         */
        put: operations["noticeNode"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/reset": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Reset a node's credential
         * @description For a machine that has lost its executor's data folder. The next executor that joins under this
         *     name with the cluster's join token gets a new credential. Running tasks are not affected. For
         *     administrators.
         */
        post: operations["resetNode"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/nodes/{name}/uncordon": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Let a drained node take tasks again
         * @description Also ends the exclusion of a node with too many failures and clears the charges. For
         *     administrators.
         */
        post: operations["uncordonNode"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/plan": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Predict the effects of a job without submitting it
         * @description The scheduler simulates its real decisions from the present state of the cluster, with and
         *     without the job, many times with varied speeds and remaining work. The intervals are right in
         *     eight of ten cases, as far as earlier forecasts were. Affected jobs of the tenant are named;
         *     those of other tenants are counted.
         */
        post: operations["planJob"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/priority-classes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List priority classes by name
         * @description Administrators see all classes. Members see those that they may use, and of the tenants of a
         *     class only their own.
         */
        get: operations["listPriorityClasses"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/priority-classes/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Create or replace a priority class
         * @description For administrators; at most 64 classes. While no class exists, any job may have any priority.
         *     With the first class, a priority other than 0 must lie in the range of a class that the caller
         *     may use. Open jobs and studies keep their numbers.
         */
        put: operations["setPriorityClass"];
        post?: never;
        /**
         * Delete a priority class
         * @description For administrators. Open jobs and studies keep their numbers and the name of the class. After
         *     the last class, any job may have any priority again.
         */
        delete: operations["deletePriorityClass"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rounds": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the scheduler's rounds, newest first
         * @description For administrators. Rounds without changes are not stored. Rounds older than the scheduler's
         *     `keep_rounds_s` are removed.
         */
        get: operations["listRounds"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/rounds/{number}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a complete round
         * @description For administrators, because its snapshot contains the jobs of every tenant. The same snapshot
         *     and policy give the same plan and report again, byte for byte (`muster replay`).
         */
        get: operations["getRound"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the tenant's schedules
         * @description By name.
         */
        get: operations["listSchedules"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a schedule */
        get: operations["getSchedule"];
        /**
         * Create or replace a schedule
         * @description The job's document is checked as at a submission; errors of the kind `invalid-job` name its
         *     fields. The jobs belong to the caller. A local time that the clock leaves out runs at the next
         *     instant, and a repeated one once; with `*` in the hours the times follow the real time. The
         *     first planned time is after the request. A paused schedule stays paused. An administrator that
         *     acts for another tenant cannot store schedules, because the jobs belong to a user of the tenant.
         */
        put: operations["setSchedule"];
        post?: never;
        /**
         * Delete a schedule
         * @description Its jobs stay.
         */
        delete: operations["deleteSchedule"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{name}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause a schedule
         * @description It submits nothing until it is resumed. Its jobs continue.
         */
        post: operations["pauseSchedule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{name}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume a schedule
         * @description The first planned time is after the request: times of the pause are not caught up.
         */
        post: operations["resumeSchedule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/schedules/{name}/run": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Submit a job of a schedule now
         * @description Also while the schedule is paused, and without its rule for overlaps. The job belongs to the
         *     caller. The planned times do not change.
         */
        post: operations["runSchedule"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/secrets": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the tenant's secrets
         * @description By name, without their values.
         */
        get: operations["listSecrets"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/secrets/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Create or replace a secret
         * @description The value is encrypted before it is stored, and no route returns it. Programs whose document
         *     names the secret in `command.secrets` receive it when they start; a new version reaches the next
         *     start. 501 `no-secret-key` if the cluster has no key.
         */
        put: operations["setSecret"];
        post?: never;
        /**
         * Delete a secret
         * @description Refused while open jobs or studies name it (409 `secret-in-use`), unless `force=true`.
         */
        delete: operations["deleteSecret"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow the cluster's changes
         * @description Server-sent events. The first message is `opened` (Opened). Each entry of the history of the
         *     tenant's jobs and of the nodes is an `event` (EventView). The `id:` of a message is a cursor. A
         *     client that reconnects with it as `Last-Event-ID` receives each entry exactly once.
         *
         *     In between, `progress` (ProgressMessage) contains the newest sample of each running job, after
         *     `opened` and after each change, at most once a second per job. The stream of a job contains its
         *     whole series.
         */
        get: operations["followCluster"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List studies, newest first */
        get: operations["listStudies"];
        put?: never;
        /**
         * Create a study
         * @description The document may be JSON or YAML. Each error of the search space, the search or the trials' job
         *     names its field. A request that is repeated with the same `Idempotency-Key` within 24 hours gets
         *     the answer of the first one, with the header `Idempotency-Replayed: true`, and creates nothing.
         */
        post: operations["createStudy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Get a study
         * @description With the number of trials in each state, and the best trial or the Pareto front.
         */
        get: operations["getStudy"];
        put?: never;
        post?: never;
        /**
         * Delete a study that has ended
         * @description The study disappears from lists, together with the jobs of its trials. Their checkpoints and
         *     models are erased within minutes, once no open job starts from them. The request is refused
         *     while an earlier order of the study waits for the scheduler.
         */
        delete: operations["deleteStudy"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}/ask": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Ask for trials to train outside
         * @description For a study without a `job`. Each trial is handed out once; report a trial whose trainer was
         *     lost as `failed`. At most `concurrency` trials are handed out at a time, so the answer may
         *     contain none until results are reported. A request that is repeated with the same
         *     `Idempotency-Key` within 24 hours gets the same trials, so that no trial is lost with an answer.
         */
        post: operations["askStudy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}/best": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the best trial, or the Pareto front, with checkpoints
         * @description In the order of creation. The files of a checkpoint can be downloaded from the trial's job.
         */
        get: operations["getBestTrials"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel a study
         * @description Its trials stop; their results and checkpoints stay.
         */
        post: operations["cancelStudy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}/export": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Export all trials of a study */
        get: operations["exportStudy"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}/extend": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Extend a study by more trials
         * @description A finished study continues; a cancelled study does not, even if some of its trials still run. A
         *     request that is repeated with the same `Idempotency-Key` within 24 hours gets the answer of the
         *     first one, with the header `Idempotency-Replayed: true`, and adds nothing.
         */
        post: operations["extendStudy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause a study
         * @description No trial starts, and none continues to its next rung. Running trials train to the end of their
         *     rung.
         */
        post: operations["pauseStudy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}/propose": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Propose trials to a study whose searcher is `external`
         * @description Trials are created and numbered in this order, within the study's `concurrency`. The list of the
         *     study's trials contains their results. Proposals beyond the study's number of trials wait until
         *     it is extended; at most 10,000 wait. A request that is repeated with the same `Idempotency-Key`
         *     within 24 hours gets the answer of the first one, with the header `Idempotency-Replayed: true`,
         *     and proposes nothing.
         */
        post: operations["proposeTrials"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume a paused study */
        post: operations["resumeStudy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}/tell": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Report results of trials that were trained outside
         * @description Results are points of a curve (`running`), final values (`finished`) and failures. A repeated
         *     result, or one of a trial that has ended, changes nothing. A `finished` trial has trained to its
         *     budget. An earlier `step` is refused unless it is that of a completed rung or `exhausted` is
         *     true. The answer lists the trials that should stop.
         *
         *     With `ask`, the answer also contains further trials, and is sent once there are some. The
         *     `Idempotency-Key` then applies to `ask`; repeated results have no effect anyway.
         */
        post: operations["tellStudy"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/studies/{id}/trials": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List a study's trials, in the order of their creation
         * @description With their parameters, the values at the end of their rungs, and their learning curves.
         */
        get: operations["listTrials"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/templates": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the tenant's templates
         * @description By name.
         */
        get: operations["listTemplates"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/templates/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Get a template */
        get: operations["getTemplate"];
        /**
         * Create or replace a template
         * @description If each parameter has a default or choices, the job document with these values must be valid;
         *     errors of the kind `invalid-job` name its fields. Secrets, code and other objects of the tenant
         *     are checked at each submission.
         */
        put: operations["setTemplate"];
        post?: never;
        /**
         * Delete a template
         * @description Its jobs stay.
         */
        delete: operations["deleteTemplate"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/templates/{name}/submit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Submit a job from a template
         * @description The job has the filled document and the label `template=NAME`. Unknown and missing parameters,
         *     and values of another type, are refused (422 `invalid-body`). The filled document is checked as
         *     by `POST /jobs`.
         */
        post: operations["submitTemplate"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List tenants by name
         * @description For administrators.
         */
        get: operations["listTenants"];
        put?: never;
        /**
         * Create a tenant
         * @description For administrators. `POST /tokens` with its name creates its first user and token.
         */
        post: operations["createTenant"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tenants/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Delete a tenant
         * @description For administrators; not the tenant of their own token. Refused while one of its jobs or studies
         *     has not ended, or if no other administrator would remain (409, `last-administrator`). Its tokens
         *     are refused from now on, by other API servers within 5 seconds, and nothing new starts for it.
         *     It disappears from lists. Its jobs, events, logs, curves and checkpoints stay, and its name is
         *     not given to another tenant.
         */
        delete: operations["deleteTenant"];
        options?: never;
        head?: never;
        /**
         * Change a tenant's quota, weight, pods, limits, caps on preemption, families and remote sessions
         * @description For administrators. Takes effect in the next scheduling round: jobs above a lowered quota stop
         *     with a checkpoint. The weight is the tenant's share of a full cluster relative to other tenants.
         *     `pods` applies to later submissions; jobs and studies that were submitted before keep their
         *     pods. Work that is open above a lowered limit stays open. `preemption` caps what job documents
         *     demand: later documents above a cap are refused, and earlier ones count as if they stated it.
         *     `shares_families` applies to forecasts and decisions within seconds. `interactive` applies to
         *     new remote sessions at once, and ends open ones within 30 s if it is false.
         */
        patch: operations["changeTenant"];
        trace?: never;
    };
    "/api/v1/tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List the tenant's tokens, newest first
         * @description Includes revoked tokens, without secrets. Administrators may list those of another tenant, or of
         *     all.
         */
        get: operations["listTokens"];
        put?: never;
        /**
         * Create a token
         * @description The secret is in the answer only. Members create tokens for themselves; administrators also for
         *     other users and tenants, and with access `admin`. The token of a member expires no later than
         *     the token that creates it.
         */
        post: operations["createToken"];
        /**
         * Revoke all tokens of a user
         * @description The tokens are refused from now on, by other API servers within 5 seconds. This includes tokens
         *     that were created with a stolen one. Members may revoke their own tokens, including that of the
         *     request; administrators those of any user. Refused if no administrator's token would remain
         *     (409, `last-administrator`).
         */
        delete: operations["revokeTokensOfUser"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/tokens/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Revoke a token
         * @description The token is refused from now on, by other API servers within 5 seconds. Members may revoke
         *     their own tokens, administrators all. A repeated request changes nothing. The last token of an
         *     administrator is not revoked (409, `last-administrator`): create another one first.
         */
        delete: operations["revokeToken"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/users": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List users by tenant and name
         * @description For administrators. With the number of tokens of each user that are neither revoked nor expired.
         */
        get: operations["listUsers"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/v1/what-if": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Predict the effects of more nodes, other quotas or more jobs
         * @description For administrators, because the answer names jobs of every tenant. Nothing is changed. The
         *     cluster is simulated with all changes together and without them, with the same random numbers.
         */
        post: operations["whatIf"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * @description Rights of a token.
         * @enum {string}
         */
        Access: "member" | "admin";
        /** @description How often the intervals of forecasts were right. */
        AccuracyView: {
            finish: components["schemas"]["HitRate"];
            /**
             * Format: date-time
             * @description Start of the period; earlier forecasts do not count.
             */
            since: string;
            start: components["schemas"]["HitRate"];
            /**
             * Format: double
             * @description Share of intervals that should be right.
             */
            target: number;
        };
        /** @enum {string} */
        Activation: "relu" | "leaky_relu" | "gelu" | "gelu_tanh" | "sigmoid" | "tanh" | "silu";
        /** @description User, as the tenant whose object was changed sees it. */
        Actor: {
            /** @description Whether the user acted as an administrator for a tenant other than its own. */
            as_administrator?: boolean;
            /**
             * @description Name of the user. An administrator that acts for another tenant has `NAME@TENANT`, with
             *     its own tenant.
             */
            user: string;
        };
        AddedNodes: {
            /**
             * Format: int32
             * @description GPUs of each node; 1 to 64.
             */
            gpus: number;
            /**
             * Format: int32
             * @description 1 to 10,000.
             */
            nodes: number;
        };
        /** @description A job of the same tenant that must end first. */
        After: {
            job: components["schemas"]["JobId"];
            on?: components["schemas"]["AfterEnd"];
        };
        /**
         * @description The end that lets the waiting job start.
         * @enum {string}
         */
        AfterEnd: "success" | "end";
        /** @description Next state of a stopping job once its last task has exited. */
        AfterStop: {
            cause: components["schemas"]["RequeueCause"];
            /** @enum {string} */
            kind: "requeue";
        } | {
            /** @enum {string} */
            kind: "move";
            to: components["schemas"]["Seat"][];
            /**
             * Format: int64
             * @description Unix ms at which the reservation ends; the job then returns to the queue. `None` if the
             *     destination does not depend on other jobs.
             */
            until_unix_ms?: number | null;
        } | {
            /** @enum {string} */
            kind: "pause";
        } | {
            /** @enum {string} */
            kind: "succeed";
        } | {
            /** @enum {string} */
            kind: "fail";
            reason: string;
        } | {
            /** @enum {string} */
            kind: "cancel";
        };
        /**
         * @description Algorithm of the sum over all workers.
         * @enum {string}
         */
        Algorithm: "auto" | "ring" | "tree" | "halving_doubling" | "butterfly" | "hierarchical" | "nccl";
        /**
         * @description How a job may make room for another job, strictest value first.
         * @enum {string}
         */
        AllowedPreemption: "never" | "suspend" | "restart";
        /** @description Membership of a job in an array with a limit. */
        ArrayMember: {
            /**
             * @description Name of the array, unique in the tenant: 1 to 63 characters of `a-z`, `0-9` and `-`. Jobs of
             *     the same name belong together.
             */
            name: string;
            /**
             * Format: int32
             * @description Maximum number of the array's jobs that run or are ready to run at the same time; 1 to
             *     10,000. Further ones wait in the order of their submission.
             */
            parallel: number;
        };
        /** @description A file that a program of the job has written. */
        ArtifactView: {
            /** Format: int64 */
            bytes: number;
            /** @description According to the ending of the path. */
            content_type: string;
            /** @description Names separated by `/`. */
            path: string;
            /**
             * Format: int64
             * @description Revision of the job's task set at that time.
             */
            revision: number;
            /** @description Task that has written it last. */
            role: components["schemas"]["Role"];
            sha256: string;
            /**
             * Format: date-time
             * @description When it was stored.
             */
            stored_at: string;
        };
        /** @description Request for trials to train outside. */
        Ask: {
            /**
             * Format: int32
             * @description Maximum number of trials; 1 to 1000.
             */
            count?: number;
            /**
             * Format: int32
             * @description Seconds to wait for the first trial; 0 to 20.
             */
            wait_s?: number;
        };
        /** @description Trials that were handed out; no other caller gets them. */
        Asked: {
            /** @description State of the study. Once it has ended, no further trials follow. */
            phase: components["schemas"]["StudyPhase"];
            trials: components["schemas"]["TrialView"][];
        };
        /**
         * @description Random change of training images, new in each step, in the given order. The random numbers
         *     depend on the job's seed, the step and the place in the batch only. They are the same for any
         *     number of workers and after a restart. Pixels from outside an image are 0 after normalisation.
         */
        Augmentation: {
            /** @enum {string} */
            kind: "flip";
            /**
             * Format: float
             * @description Probability; above 0, at most 1.
             */
            share?: number;
        } | {
            /** @enum {string} */
            kind: "crop";
            /**
             * Format: int32
             * @description Pixels, 1 to half of the smaller side.
             */
            padding: number;
        } | {
            /** @enum {string} */
            kind: "cutout";
            /**
             * Format: int32
             * @description Side of the square, 1 to the smaller side of the image.
             */
            size: number;
        } | {
            /**
             * Format: float
             * @description Above 0, below 1.
             */
            by: number;
            /** @enum {string} */
            kind: "contrast";
        };
        /**
         * @description Workers train alone between averages of their parameters. `every` is the number of steps between
         *     two averages, 1 to 1,000,000.
         */
        Averaging: {
            /** Format: int32 */
            every: number;
            /** @enum {string} */
            kind: "local_sgd";
        } | {
            /** Format: int32 */
            every: number;
            /** @enum {string} */
            kind: "easgd";
            /**
             * Format: double
             * @description Share of their distance, above 0 and at most 1.
             */
            rho: number;
        } | {
            /** Format: int32 */
            every: number;
            /** @enum {string} */
            kind: "sma";
            /**
             * Format: double
             * @description 0 to below 1.
             */
            momentum: number;
        } | {
            /** Format: int32 */
            every: number;
            /** @enum {string} */
            kind: "bmuf";
            /**
             * Format: double
             * @description 0 to below 1.
             */
            momentum: number;
        } | {
            /** Format: int32 */
            every: number;
            /** @enum {string} */
            kind: "gossip";
        } | {
            /**
             * Format: double
             * @description Each worker has its own examples. Its class shares follow a Dirichlet distribution of
             *     this concentration around those of the whole data set (Hsu, Qi and Brown, 2019). 0.001
             *     to 1,000,000; smaller values give a worker fewer classes. If left out, workers divide
             *     every batch.
             */
            alpha?: number | null;
            /** Format: int32 */
            every: number;
            /** @enum {string} */
            kind: "fedavg";
            /**
             * Format: double
             * @description Share of the workers that take part in a round, above 0 and at most 1; at least one
             *     worker.
             */
            share: number;
        };
        /**
         * @description Rule by which the batch of an update changes during a job.
         * @enum {string}
         */
        BatchRule: "constant" | "adascale" | "goodput";
        /** @description A predicted batch. */
        BatchView: {
            detail: components["schemas"]["PredictedBatch"];
            /** @description The batch and its effect, as text. */
            message: string;
        };
        /** @description A best trial and its trained model. */
        BestTrialView: {
            checkpoint: components["schemas"]["Written"] | null;
            /**
             * @description Path of the trained model, relative to the checkpoint root; null unless its job has
             *     succeeded.
             */
            model_path: string | null;
            trial: components["schemas"]["TrialView"];
        };
        /** @description A job that holds missing GPUs, or is stopping to release them. */
        BlockingJob: {
            /**
             * Format: int32
             * @description GPUs that it holds now.
             */
            held_gpus: number;
            id: components["schemas"]["JobId"];
            /** @description Null for a job of another tenant. */
            name: string | null;
        };
        BlockingNode: {
            /** Format: int32 */
            free_gpus: number;
            /** Format: int32 */
            gpus: number;
            name: string;
            why: components["schemas"]["NodeObstacle"];
        };
        BlockingQuota: {
            /** Format: int32 */
            gpu_quota: number;
            /**
             * Format: int32
             * @description GPUs that the job's minimum needs.
             */
            needed_gpus: number;
            /**
             * Format: int32
             * @description GPUs that the tenant's other jobs hold.
             */
            used_gpus: number;
        };
        /** @description How far one trial trains at most. */
        Budget: {
            /**
             * @description Field in which a command gets its budget, such as `command.env.EPOCHS`. The built-in engine
             *     needs none.
             */
            field?: string | null;
            /**
             * Format: int64
             * @description In units of `unit`; 1 to 1,000,000,000.
             */
            max: number;
            unit?: components["schemas"]["BudgetUnit"];
        };
        /** @enum {string} */
        BudgetUnit: "epochs" | "steps";
        /** @description Capacity of a node for tasks. */
        Capacity: {
            /** Format: int64 */
            cpu_milli: number;
            driver_suspend?: components["schemas"]["DriverSuspend"] | null;
            /** @description GPUs, or CPU slots in place of them; the index is the position. */
            gpus: components["schemas"]["Gpu"][];
            images?: components["schemas"]["ImageSupport"] | null;
            isolation?: components["schemas"]["TaskIsolation"] | null;
            /** @description Labels of the executor's configuration. */
            labels?: {
                [key: string]: string;
            };
            /** Format: int64 */
            memory_bytes: number;
            /**
             * @description Whether tasks run as pods, as `pod` of a job's document requires. Null: the executor is too
             *     old to report it.
             */
            pods?: boolean | null;
            /** @description Nodes of the same rack are nearer to each other than to others. Null: unknown. */
            rack?: string | null;
        };
        /**
         * @description Rule for planned times at which no API server ran.
         * @enum {string}
         */
        CatchUp: "none" | "latest";
        /**
         * @description The smallest change that would let the job start now. For a job that can never start: the
         *     smallest change after which it can. It is the first of the changes that were tried and suffice.
         *     A resume or a short wait comes first, then an uncordoned node, then changes by the job's owner.
         *     A larger quota follows, then changes at the cost of other jobs, a long wait, and new machines.
         */
        Change: {
            /** @enum {string} */
            change: "lower_min_workers";
            /** Format: int32 */
            to: number;
        } | {
            /** @enum {string} */
            change: "lower_gpus_per_worker";
            /** Format: int32 */
            to: number;
        } | {
            /** @enum {string} */
            change: "allow_nodes";
            constraint: components["schemas"]["UnmetConstraint"];
            gpu_model: string;
        } | {
            /** Format: int32 */
            by_gpus: number;
            /** @enum {string} */
            change: "raise_quota";
        } | {
            /** @enum {string} */
            change: "add_gpus";
            /** Format: int32 */
            gpus: number;
        } | {
            /** @enum {string} */
            change: "uncordon_node";
            name: string;
        } | {
            /** @enum {string} */
            change: "resume";
        } | {
            /** @enum {string} */
            change: "raise_priority";
            /** @description Priority class of the job, whose range holds the number. */
            class?: string | null;
            /** Format: int32 */
            to: number;
        } | {
            /** @enum {string} */
            change: "end_job";
            job: components["schemas"]["JobId"];
            name: string;
        } | {
            /** @enum {string} */
            change: "wait";
            ended: components["schemas"]["JobId"][];
            /** Format: int64 */
            until_unix_ms: number;
        };
        /**
         * Format: uuid
         * @description One checkpoint of a job.
         */
        CheckpointId: string;
        /**
         * @description How a program is asked for a checkpoint before it is stopped. It answers by the report of a
         *     checkpoint. Each process finds the request at `GET /muster/v1/stopping` and in the file
         *     `MUSTER_CHECKPOINT_REQUEST`, in addition to the signal.
         */
        CheckpointOnRequest: {
            /** @default null */
            signal: components["schemas"]["RequestSignal"] | null;
            /**
             * Format: int32
             * @description Maximum seconds from the request to the report, after which the job is stopped without
             *     one; 1 to 3600.
             * @default 60
             */
            timeout_s: number;
        };
        /**
         * @description When checkpoints are written and which ones stay. A job that stops in order always writes one
         *     more.
         */
        CheckpointPolicy: {
            /**
             * Format: double
             * @description Number of minutes after which a checkpoint is written, in addition to `every_steps`; above
             *     0.
             * @default 5
             */
            every_minutes: number | null;
            /**
             * Format: int64
             * @description Number of steps between checkpoints; 1 or more.
             * @default null
             */
            every_steps: number | null;
            /**
             * @description Only for commands: names of files or folders in the checkpoint folder that are checkpoints,
             *     such as `checkpoint-*`. `*` stands for any characters and `?` for one.
             * @default null
             */
            files: string | null;
            /**
             * Format: int32
             * @description Number of newest checkpoints that stay; 1 to 1000.
             * @default 3
             */
            keep: number;
            /** @default null */
            keep_best: components["schemas"]["KeepBest"] | null;
            /**
             * Format: int64
             * @description One checkpoint every this number of steps stays for ever, and is written in addition to the
             *     other rules. 1 or more.
             * @default null
             */
            keep_every_steps: number | null;
        };
        /** @description One checkpoint of a job. */
        CheckpointView: components["schemas"]["Written"] & {
            /**
             * Format: int64
             * @description Number of files of a program's checkpoint, which is downloaded as one archive. Absent for
             *     the built-in engine.
             */
            file_count?: number | null;
            id: components["schemas"]["CheckpointId"];
            /** @description Why it is retained; empty once it is pruned or is about to be. */
            kept: components["schemas"]["Kept"][];
            /** @description Newest values that rank 0 of a program had logged, by name. */
            metrics?: {
                [key: string]: number;
            };
            /**
             * @description Whether it still exists: the job's checkpoint policy has not pruned it. Its `files` can then
             *     be downloaded.
             */
            retained: boolean;
        };
        /**
         * @description How far a node is closed.
         * @enum {string}
         */
        Closed: "open" | "to_new" | "to_all";
        /** @description Code of a program: an archive that a client has uploaded (`PUT /code/{sha256}`). */
        Code: {
            /**
             * @description SHA-256 of an archive of this tenant, as 64 hexadecimal digits. `muster run` and `muster
             *     submit --code` upload a folder and set it.
             */
            archive: string;
        };
        /** @description A stored code archive. */
        CodeView: {
            /**
             * Format: int64
             * @description Size of the archive.
             */
            bytes: number;
            /**
             * Format: date-time
             * @description When it was uploaded.
             */
            created_at: string;
            sha256: string;
        };
        /** @description A codec with its settings. */
        CodecConfig: {
            /** @enum {string} */
            kind: "none";
        } | {
            /** @description Whether the rounding error is added to the gradient of the next step. */
            feedback?: boolean;
            format: components["schemas"]["HalfFormat"];
            /** @enum {string} */
            kind: "half";
            rounding?: components["schemas"]["Rounding"];
        } | {
            /** @enum {string} */
            kind: "one_bit";
        } | {
            /**
             * Format: float
             * @description Clipping in standard deviations, above 0; `null` clips nothing.
             */
            clip?: number | null;
            /** @enum {string} */
            kind: "tern_grad";
            scale?: components["schemas"]["TernScale"];
        } | {
            /**
             * Format: int32
             * @description Bits per number, 4 to 8.
             */
            bits?: number;
            /** @description Numbers that share a norm: a power of two from 64 to 65,536. */
            bucket?: number;
            /** @enum {string} */
            kind: "qsgd";
            norm?: components["schemas"]["Norm"];
        } | {
            /**
             * Format: double
             * @description Share of the numbers that are sent; above 0, at most 1.
             */
            density: number;
            /** @enum {string} */
            kind: "top_k";
            /**
             * @description Finds the threshold from a sample. This takes half the time; the density is then
             *     approximate.
             */
            sampled?: boolean;
        } | {
            /** @enum {string} */
            kind: "threshold";
            /**
             * Format: float
             * @description Smallest magnitude that is sent; above 0.
             */
            magnitude: number;
        } | {
            /** Format: double */
            density: number;
            /** @enum {string} */
            kind: "dgc";
            /**
             * @description Whether the momentum of sent numbers is cleared, as in the paper. This limits the effect
             *     of stale gradients and costs convergence speed.
             */
            masking?: boolean;
            /**
             * Format: float
             * @description 0 to below 1.
             */
            momentum: number;
            /** Format: int64 */
            warm_up_steps?: number;
        };
        /** @description A codec for all parameters except small blocks and named ones. */
        Codecs: {
            codec: components["schemas"]["CodecConfig"];
            /**
             * @description Blocks of fewer numbers, such as biases, are sent as they are: they have few bytes, and
             *     their errors matter.
             */
            dense_below?: number;
            /** @description Rules for named blocks of any length; the first match decides. At most 64. */
            layers?: components["schemas"]["LayerCodec"][];
        };
        /**
         * @description A user's program. It is started once for each worker and each parameter server of the job, all
         *     at the same time.
         *
         *     The environment of each process names its rank and the addresses of the others
         *     (`docs/commands.md`).
         */
        Command: {
            /** @description The program and its arguments, without a shell. 1 to 256 texts, at most 64 KiB together. */
            argv: string[];
            /**
             * @description Check that must end with code 0 within a minute on every node before `argv` is started, such
             *     as `[python3, -c, "import torch"]`. The program of `argv` is always searched for.
             */
            check?: string[];
            code?: components["schemas"]["Code"] | null;
            elastic?: components["schemas"]["Elastic"] | null;
            /** @description Which processes must end before the job has succeeded. */
            ends?: components["schemas"]["Ends"];
            /**
             * @description Environment variables. They replace those that Muster sets, except for reserved names such
             *     as `RANK` and `MASTER_ADDR`. At most 256, with at most 64 KiB together.
             */
            env?: {
                [key: string]: string;
            };
            /**
             * @description Files in the task's folder when the program starts, by relative path. They replace files of
             *     `code`. At most 64, with at most 64 KiB together.
             */
            files?: {
                [key: string]: string;
            };
            git?: components["schemas"]["GitSource"] | null;
            /**
             * @description Files and folders of the task's working folder that are kept as artifacts. They are links
             *     into `$MUSTER_OUTPUT_DIR`. A name with `/` at its end, or without an extension, is a folder.
             *     At most 32.
             */
            keep?: string[];
            /**
             * @description Metrics that are read from lines that worker 0 prints: for each name a regular expression,
             *     whose first group is the number. An empty one finds `NAME: NUMBER` and `NAME=NUMBER` in any
             *     case. The name `step` finds the step of the values. At most 32, of at most 512 bytes.
             * @example {
             *       "loss": "Loss: ([0-9.]+)"
             *     }
             */
            metrics?: {
                [key: string]: string;
            };
            /**
             * Format: int32
             * @description Number of processes that only hold parameters, as in TensorFlow's `ParameterServerStrategy`.
             *     They run the same program without a GPU and are stopped once all workers have ended. 0 to
             *     64.
             */
            parameter_servers?: number;
            python?: components["schemas"]["PythonEnvironment"] | null;
            /**
             * @description Secrets of the tenant that the program receives as environment variables or files. Their
             *     values are not part of the document. At most 64.
             */
            secrets?: components["schemas"]["SecretRef"][];
            /**
             * Format: int64
             * @description Expected number of steps, for progress and estimates. It does not stop the program. 1 to
             *     1,000,000,000.
             */
            steps?: number | null;
            /**
             * @description Working folder of the program: an absolute path that exists on every node. Default: a new
             *     folder of the task, which contains `code` and `files`.
             */
            working_dir?: string | null;
        };
        /** @description What is done to gradients before they are sent: `none`, or codecs. */
        Compression: "none" | components["schemas"]["Codecs"];
        /** @description Compute capability of an NVIDIA GPU: major and minor version, such as 8.0. */
        ComputeCapability: string;
        /** @description A trial has the parameter only if another parameter has one of these values. */
        Condition: {
            is: unknown[];
            /** @description Name of a categorical parameter that precedes this one. */
            parameter: string;
        };
        /** @description When a worker may begin its next step. */
        Consistency: {
            /**
             * Format: int32
             * @description Number of workers without which a step may end (Chen et al., 2016). Their late gradients
             *     are dropped, so the result depends on timing. The mean covers the gradients that
             *     counted. The coordinator (rank 0 worker) is always waited for. 0 to one less than
             *     `scale.workers.min`; only with `parameter_server`.
             */
            backup?: number;
            /** @enum {string} */
            kind: "bsp";
        } | {
            /**
             * @description Where the bound allows it, a step begins on the present parameters while the gradients
             *     of the last step still travel. Newer parameters replace them on arrival (ESSP, Dai et
             *     al., 2015).
             */
            eager?: boolean;
            /** @enum {string} */
            kind: "ssp";
            rate?: components["schemas"]["Rate"];
            /**
             * Format: int32
             * @description 1 to 64 steps.
             */
            staleness: number;
        } | {
            /** @enum {string} */
            kind: "asp";
            rate?: components["schemas"]["Rate"];
        };
        /**
         * @description Stop when the epoch's mean training loss fell by less than `relative_loss_drop` in each of the
         *     last `epochs` epochs.
         */
        Convergence: {
            /**
             * Format: int64
             * @description 1 to 100.
             */
            epochs: number;
            /**
             * Format: double
             * @description Above 0 and below 1.
             */
            relative_loss_drop: number;
        };
        /** @description Number of tasks of one role. */
        Count: {
            /** Format: int32 */
            max: number;
            /** Format: int32 */
            min: number;
            /**
             * Format: int32
             * @description Tasks whose process runs.
             */
            running: number;
        };
        /** @description A new one-time join token. It is shown only here; the store keeps only its hash. */
        CreatedJoinToken: {
            /** Format: date-time */
            expires_at: string;
            node: string;
            /** @description Value of the executor's `--join-token` for its first session. */
            token: string;
        };
        /** @description A new token. The secret is shown only here; the store keeps only its hash. */
        CreatedToken: {
            access: components["schemas"]["Access"];
            /** Format: date-time */
            expires_at: string | null;
            id: components["schemas"]["TokenId"];
            name: string;
            /** @description Secret for the header `Authorization: Bearer <secret>`. */
            secret: string;
            tenant: string;
            user: string;
        };
        /**
         * @description The user's files. `path` is relative to the data-set root and stays below it. `train_examples`
         *     and `test_examples` are drawn from the rows in an order that is the same for every job; 1 to
         *     100,000,000 each.
         */
        DataFiles: {
            /**
             * Format: int32
             * @description Number of columns besides the target; 1 to 1,048,576.
             */
            columns: number;
            /** @enum {string} */
            kind: "csv";
            learn: components["schemas"]["Learn"];
            normalise?: components["schemas"]["Normalisation"] | null;
            path: string;
            /** @description Name of the target column. */
            target: string;
            /** Format: int32 */
            test_examples: number;
            /** Format: int32 */
            train_examples: number;
        } | {
            /** @description Only for images. */
            augment?: components["schemas"]["Augmentation"][];
            input: components["schemas"]["Input"];
            /** @description Name of the inputs. */
            inputs?: string;
            /** @enum {string} */
            kind: "arrays";
            learn: components["schemas"]["Learn"];
            normalise?: components["schemas"]["Normalisation"] | null;
            path: string;
            /** @description Name of the targets. */
            targets?: string;
            /** Format: int32 */
            test_examples: number;
            /** Format: int32 */
            train_examples: number;
        } | {
            /** @enum {string} */
            kind: "text";
            /**
             * Format: int32
             * @description Bytes of a piece; 1 to 65,536.
             */
            length: number;
            path: string;
            /** Format: int32 */
            test_examples: number;
            /** Format: int32 */
            train_examples: number;
        } | {
            augment?: components["schemas"]["Augmentation"][];
            /**
             * Format: int32
             * @description 1 (grey) or 3 (colour).
             */
            channels?: number;
            /**
             * Format: int32
             * @description 2 to 65,536.
             */
            classes: number;
            /**
             * Format: int32
             * @description Pixels; 1 to 4,096.
             */
            height: number;
            /** @enum {string} */
            kind: "images";
            normalise?: components["schemas"]["Normalisation"] | null;
            path: string;
            /** Format: int32 */
            test_examples: number;
            /** Format: int32 */
            train_examples: number;
            /** Format: int32 */
            width: number;
        };
        /** @description Training and test data. */
        Dataset: components["schemas"]["KnownDataset"] | components["schemas"]["DataFiles"];
        /**
         * @description Data sets that the engine can read by name.
         * @enum {string}
         */
        DatasetName: "fashion-mnist" | "mnist";
        /** @description Course of the rate after warm-up. `total_steps` is larger than `warmup_steps`. */
        Decay: {
            /** @enum {string} */
            kind: "constant";
        } | {
            /**
             * Format: double
             * @description 0 to 1.
             */
            floor?: number;
            /** @enum {string} */
            kind: "cosine";
            /** Format: int64 */
            total_steps: number;
        } | {
            /** Format: int64 */
            every_steps: number;
            /** Format: double */
            factor: number;
            /** @enum {string} */
            kind: "step";
        } | {
            /** @enum {string} */
            kind: "polynomial";
            /**
             * Format: double
             * @description Above 0, at most 10; 1 is a straight line.
             */
            power?: number;
            /** Format: int64 */
            total_steps: number;
        };
        /** @description Decision of a round about a job. */
        DecidedView: {
            /** Format: date-time */
            at: string;
            batch: components["schemas"]["BatchView"] | null;
            /**
             * Format: int32
             * @description Number of sizes at which its speed was measured; with 0 the prediction is a guess.
             */
            measured_sizes: number;
            /**
             * Format: double
             * @description Seconds saved per share of the cluster by one additional worker; null if it can have no
             *     more.
             */
            next_worker_gain: number | null;
            /** Format: int32 */
            ps_shards: number;
            /** Format: int64 */
            round: number;
            runner_up: components["schemas"]["RunnerUpView"] | null;
            /**
             * Format: double
             * @description Mean relative error of the speed model at those sizes.
             */
            speed_error: number | null;
            /** Format: double */
            steps_left: number | null;
            /** @description The 80 % interval of `steps_left`: lower and upper bound. */
            steps_left_between: number[] | null;
            /**
             * Format: double
             * @description Predicted steps per second at its size.
             */
            steps_per_s: number | null;
            /**
             * Format: double
             * @description Seconds until its end at this size.
             */
            time_left_s: number | null;
            /** @description Why the job has this size, or waits, as text. */
            why: string;
            /**
             * Format: int32
             * @description Number of workers after the round.
             */
            workers: number;
        };
        /**
         * @description Published variants of DenseNet.
         * @enum {string}
         */
        DenseNetVariant: "d121" | "bc100";
        /**
         * @description Activity of a rank.
         * @enum {string}
         */
        Doing: "working" | "waiting" | "busy" | "standing";
        /** @description Whether the GPU driver can move the memory of an unmodified program to the host and back. */
        DriverSuspend: {
            /** @description CUDA version of the driver. */
            cuda: string;
            /** @enum {string} */
            kind: "able";
        } | {
            /** @enum {string} */
            kind: "unable";
            why: string;
        };
        /**
         * @description Launcher of a program that changes the number of its workers by itself.
         * @enum {string}
         */
        Elastic: "torchrun";
        /**
         * @description Which processes must end before a job with a command has succeeded.
         * @enum {string}
         */
        Ends: "all_workers" | "first_worker";
        Engine: {
            /**
             * Format: int32
             * @description Smallest number of passes in which a worker computes its part of a batch; their gradients
             *     add up before they are sent. Memory falls. The result stays the same, except for batch
             *     normalisation, whose statistics cover one pass. 1 to 1,024.
             */
            accumulate?: number | null;
            /**
             * Format: int32
             * @description Examples per step over all workers together. It does not change with the number of workers,
             *     unless `batch_rule` says so. 1 to 65,536.
             */
            batch: number;
            /** @description Rule by which the batch of an update changes during the job. */
            batch_rule?: components["schemas"]["BatchRule"];
            /**
             * Format: double
             * @description Largest Euclidean norm of the mean gradient of a step over all parameters; a longer gradient
             *     is scaled down (Pascanu, Mikolov and Bengio, 2013). Under `ssp` and `asp` a step has no
             *     mean, so each worker clips its own mean gradient. Above 0.
             */
            clip_norm?: number | null;
            dataset: components["schemas"]["Dataset"];
            /**
             * Format: int32
             * @description Number of threads of the one worker that share parameters without locks, each with its own
             *     step (Hogwild, Recht et al., 2011). The result depends on timing. Only on the CPU, with
             *     `sgd` without momentum, `all_reduce` and one worker. 1 to 64.
             */
            hogwild_threads?: number | null;
            /**
             * Format: int32
             * @description Largest batch with `batch_rule: goodput`, which requires it. More than `batch`, at most
             *     65,536.
             */
            max_batch?: number | null;
            model: components["schemas"]["Model"];
            optimizer: components["schemas"]["Optimizer"];
            precision?: components["schemas"]["Precision"] | null;
            /** @description Course of the learning rate. Default: constant. */
            schedule?: components["schemas"]["Schedule"];
            /**
             * Format: int64
             * @description Seed of the initial parameters and of the order of the data.
             */
            seed?: number;
        };
        /** @description One pass over the test or validation split. At least one of loss and accuracy is given. */
        Evaluation: {
            /**
             * Format: double
             * @description Share of examples classified correctly, 0 to 1. Null if the program does not log it.
             */
            accuracy: number | null;
            /** Format: double */
            epoch: number;
            /**
             * Format: double
             * @description Null if the program does not log it.
             */
            loss: number | null;
            split?: components["schemas"]["Split"];
            /** Format: int64 */
            step: number;
        };
        /** @description Evaluations on the test split in addition to the end of every epoch and of training. */
        EvaluationPolicy: {
            /**
             * Format: int64
             * @description Number of steps between evaluations; 1 or more. Useful for long epochs, and for targets that
             *     should end training at once.
             * @default null
             */
            every_steps: number | null;
        };
        /** @description One pass over the test or validation split. */
        EvaluationView: components["schemas"]["Evaluation"] & {
            /** Format: date-time */
            at: string;
        };
        /**
         * @description Entry of the history. It is stored as JSON with the tenant, the job, the time and a sequence
         *     number.
         */
        Event: {
            /** @enum {string} */
            kind: "job_submitted";
            name: string;
        } | {
            by?: components["schemas"]["Actor"] | null;
            intent: components["schemas"]["Intent"];
            /** @enum {string} */
            kind: "intent_changed";
        } | {
            by?: components["schemas"]["Actor"] | null;
            /** Format: int64 */
            edits: number;
            /** @description Priority class before, if the change replaced or removed it. */
            former_priority_class?: string | null;
            /** @enum {string} */
            kind: "job_edited";
            /** Format: int32 */
            priority: number;
            /** @description Priority class; absent if the job has none, and in histories of older releases. */
            priority_class?: string | null;
            ps_shards?: components["schemas"]["Range"] | null;
            workers: components["schemas"]["Range"];
        } | {
            /** @enum {string} */
            kind: "job_state_changed";
            /** Format: int64 */
            revision: number;
            state: components["schemas"]["JobState"];
        } | {
            /** @enum {string} */
            kind: "job_placed";
            nodes: string[];
            /** Format: int32 */
            ps_shards: number;
            /** Format: int64 */
            revision: number;
            why: string;
            /** Format: int32 */
            workers: number;
        } | {
            /**
             * Format: int32
             * @description Maximum seconds for which the job's program is first asked for a checkpoint; absent if
             *     it is not asked.
             */
            asks_s?: number | null;
            /** @enum {string} */
            kind: "job_stop_requested";
            then: components["schemas"]["AfterStop"];
            why: string;
        } | {
            /** @enum {string} */
            kind: "checkpoint_request_ended";
            result: components["schemas"]["RequestResult"];
            /** Format: int64 */
            waited_ms: number;
        } | {
            /** @enum {string} */
            kind: "job_turned";
            suspended: boolean;
            why: string;
        } | {
            /** @enum {string} */
            kind: "job_waits";
            waiting: components["schemas"]["Waiting"];
        } | {
            /** @enum {string} */
            kind: "task_state_changed";
            node_id: components["schemas"]["NodeId"];
            role: components["schemas"]["Role"];
            state: components["schemas"]["TaskState"];
            task_id: components["schemas"]["TaskId"];
        } | {
            /** @enum {string} */
            kind: "task_failed";
            message: string;
            role: components["schemas"]["Role"];
            task_id: components["schemas"]["TaskId"];
        } | {
            /** Format: int64 */
            from_step: number;
            /** @enum {string} */
            kind: "resumed";
        } | {
            /** @enum {string} */
            kind: "resized";
            /** Format: int64 */
            pause_ms: number;
            /** Format: int32 */
            ps_shards: number;
            /** Format: int64 */
            step: number;
            /** Format: int32 */
            workers: number;
        } | {
            /** @enum {string} */
            kind: "peer_gone";
            /** Format: int64 */
            step: number;
            task_id: components["schemas"]["TaskId"];
        } | {
            /** @enum {string} */
            kind: "rank_judged";
            verdict: components["schemas"]["Verdict"];
        } | {
            finding: components["schemas"]["IdleFinding"];
            /** @enum {string} */
            kind: "job_idle";
        } | {
            /** @enum {string} */
            kind: "job_active";
        } | {
            checkpoint: components["schemas"]["Written"];
            /** @enum {string} */
            kind: "checkpoint_written";
        } | {
            /** @enum {string} */
            kind: "checkpoint_pruned";
            /** Format: int64 */
            step: number;
        } | {
            /**
             * Format: double
             * @description Null if the program does not log it.
             */
            accuracy: number | null;
            /** Format: double */
            epoch: number;
            /** @enum {string} */
            kind: "evaluated";
            /**
             * Format: double
             * @description Null if the program does not log it.
             */
            loss: number | null;
            split?: components["schemas"]["Split"];
            /** Format: int64 */
            step: number;
        } | {
            /** @enum {string} */
            kind: "training_finished";
            model_path: string;
            reason: string;
            /** Format: int64 */
            step: number;
        } | {
            /** @enum {string} */
            kind: "note";
            message: string;
        } | {
            /** @enum {string} */
            kind: "node_state_changed";
            name: string;
            state: components["schemas"]["NodeState"];
        } | {
            drained: boolean;
            /** @enum {string} */
            kind: "node_drained";
            name: string;
        } | {
            fault: components["schemas"]["NodeFault"];
            /** @enum {string} */
            kind: "node_faulted";
            name: string;
        } | {
            excluded: boolean;
            /** @enum {string} */
            kind: "node_excluded";
            name: string;
            why: string;
        } | {
            /** @enum {string} */
            kind: "node_noticed";
            name: string;
            notice: components["schemas"]["Notice"];
        } | {
            by?: components["schemas"]["Actor"] | null;
            change: components["schemas"]["MembershipChange"];
            /** @enum {string} */
            kind: "node_membership";
            name: string;
        } | {
            by: components["schemas"]["Actor"];
            /** @enum {string} */
            kind: "secret_set";
            name: string;
            /** Format: int64 */
            version: number;
        } | {
            by: components["schemas"]["Actor"];
            /** @enum {string} */
            kind: "secret_deleted";
            name: string;
            /** Format: int64 */
            version: number;
        } | {
            by: components["schemas"]["Actor"];
            /** @enum {string} */
            kind: "template_set";
            name: string;
            /** Format: int64 */
            version: number;
        } | {
            by: components["schemas"]["Actor"];
            /** @enum {string} */
            kind: "template_deleted";
            name: string;
            /** Format: int64 */
            version: number;
        } | {
            by?: components["schemas"]["Actor"] | null;
            change: components["schemas"]["ScheduleChange"];
            /** @enum {string} */
            kind: "schedule_changed";
            name: string;
        } | {
            /** @enum {string} */
            kind: "job_scheduled";
            /**
             * Format: date-time
             * @description The planned time; absent if a user ran the schedule at once.
             */
            planned_at?: string | null;
            schedule: string;
        } | {
            /** @enum {string} */
            kind: "schedule_skipped";
            name: string;
            /** Format: date-time */
            planned_at: string;
            reason: string;
        } | {
            job_id: components["schemas"]["JobId"];
            /** @enum {string} */
            kind: "after_failed";
            name: string;
            phase: components["schemas"]["JobPhase"];
        } | {
            action: components["schemas"]["RemoteAction"];
            by: components["schemas"]["Actor"];
            /** @enum {string} */
            kind: "remote_session_opened";
            role: components["schemas"]["Role"];
            session: components["schemas"]["RemoteSessionId"];
        } | {
            by: components["schemas"]["Actor"];
            /** Format: int64 */
            duration_ms: number;
            end: components["schemas"]["RemoteEnd"];
            /**
             * Format: int64
             * @description Bytes of input for the program, or for the port.
             */
            input_bytes: number;
            /** @enum {string} */
            kind: "remote_session_ended";
            /**
             * Format: int64
             * @description Bytes of output, with those of standard error.
             */
            output_bytes: number;
            role: components["schemas"]["Role"];
            session: components["schemas"]["RemoteSessionId"];
        } | {
            by: components["schemas"]["Actor"];
            /** Format: int64 */
            duration_ms: number;
            end: components["schemas"]["RemoteEnd"];
            /** Format: int64 */
            input_bytes: number;
            /** @enum {string} */
            kind: "port_connection_ended";
            /** Format: int64 */
            output_bytes: number;
            /** Format: int32 */
            port: number;
            role: components["schemas"]["Role"];
            session: components["schemas"]["RemoteSessionId"];
        } | {
            by?: components["schemas"]["Actor"] | null;
            job_id: components["schemas"]["JobId"];
            /** @enum {string} */
            kind: "job_deleted";
        } | {
            body: Record<string, never>;
            /** @enum {string} */
            kind: "unknown";
            of: string;
        };
        /** @description One entry of the history. */
        EventView: {
            /** Format: date-time */
            at: string;
            /** @description Position of a reader that has seen this event. */
            cursor: string;
            /** @description The reason, or what follows from the event; null if the message says all. */
            detail: string | null;
            /** @description The event in machine-readable form. */
            event: components["schemas"]["Event"];
            job_id: components["schemas"]["JobId"] | null;
            /** @description The event as text, without a period. */
            message: string;
            node_id: components["schemas"]["NodeId"] | null;
            tenant_id: components["schemas"]["TenantId"] | null;
            waiting?: components["schemas"]["WaitingView"] | null;
        };
        /** @description How workers exchange gradients or parameters. */
        Exchange: {
            /** @description Algorithm of the sum over all workers; only with `all_reduce`. */
            algorithm?: components["schemas"]["Algorithm"];
            averaging?: components["schemas"]["Averaging"] | null;
            compression?: components["schemas"]["Compression"];
            consistency?: components["schemas"]["Consistency"];
            /**
             * Format: int32
             * @description Seconds without a sign of life after which a worker is declared lost while others wait for
             *     it; the others continue without it. A long step does not count, because the process still
             *     gives signs of life. 2 to 3,600; only with `all_reduce`.
             */
            hung_after_s?: number;
            /**
             * @description Workers of one node sum their gradients in shared memory. One of them pushes the sum and
             *     distributes the answer, so a node with 8 workers sends and receives an eighth of the data.
             *     Only with `parameter_server`, `bsp` without backup workers, and no compression.
             */
            local_aggregation?: boolean;
            /**
             * Format: int32
             * @description Number of replicas of each PS shard, 0 or 1. With 1, the next shard keeps a replica and
             *     continues as the lost shard, so that no step is lost and no task restarts. A single shard
             *     has no replica. Only with `parameter_server`.
             */
            shard_replicas?: number;
            topology?: components["schemas"]["Topology"];
        };
        /** @description Why a node takes no new tasks although it is not drained. */
        Excluded: {
            /** Format: date-time */
            at: string;
            /**
             * @description Whether the node excludes itself, for example because its disk is full. It then takes tasks
             *     again by itself, and uncordoning has no effect.
             */
            by_itself?: boolean;
            why: string;
        };
        /** @description State of a job in the newest round, and what keeps it from starting. */
        ExplainView: {
            decided: components["schemas"]["DecidedView"] | null;
            /** @description Obstacles to the start of a waiting job; empty for other jobs. */
            in_the_way: components["schemas"]["InTheWay"];
            job_id: components["schemas"]["JobId"];
            name: string;
            phase: components["schemas"]["JobPhase"];
            waiting: components["schemas"]["WaitingView"] | null;
        };
        /** @description Mean speed of a family on one GPU kind and placement. */
        FamilySpeedView: {
            /** @description Model of the GPUs, as the driver names it. */
            gpu_kind: string;
            /**
             * Format: int64
             * @description Number of jobs in the mean.
             */
            jobs: number;
            /**
             * Format: int32
             * @description Number of nodes on which the workers were.
             */
            nodes: number;
            /**
             * Format: date-time
             * @description Time of the newest sample.
             */
            observed_at: string;
            /** Format: int32 */
            ps_shards: number;
            /**
             * Format: int64
             * @description Number of samples, however old.
             */
            samples: number;
            /**
             * Format: double
             * @description Steps per second; updates if the batch grows with the workers.
             */
            steps_per_s: number;
            /**
             * Format: double
             * @description Weight in samples; it halves in seven days.
             */
            weight: number;
            /** Format: int32 */
            workers: number;
        };
        /** @description What is known of the speeds of a family of jobs. */
        FamilyView: {
            /** @description Key of the family. */
            family: string;
            /**
             * Format: int64
             * @description Number of jobs with measurements.
             */
            jobs: number;
            /** @description Speeds by GPU kind and placement, ordered by kind and size. */
            speeds: components["schemas"]["FamilySpeedView"][];
            /** @description Short description, from the document of the newest job. Several families may share it. */
            title: string;
        };
        /** @description The range in Katib's form. Numbers may be written as text, as in Katib. */
        FeasibleSpace: {
            /**
             * @description `uniform` or `logUniform`.
             * @default null
             */
            distribution: string | null;
            /** @default null */
            list: unknown[] | null;
            max?: unknown;
            min?: unknown;
            step?: unknown;
        };
        /** @description One error of a document. */
        FieldError: {
            /** @description The expected value. */
            expected: string;
            /** @description Path in the document, such as `scale.workers.min`. */
            field: string;
            /** @description The value found, as JSON. */
            value: string;
        };
        /** @description Evidence of a verdict. */
        Finding: {
            /** @enum {string} */
            kind: "straggler";
            /**
             * Format: int64
             * @description Microseconds per step at the median rate.
             */
            median_us: number;
            /**
             * Format: int64
             * @description Microseconds of the rank's own time per step, without waiting.
             */
            own_us: number;
        } | {
            /** @description That of the rank that became idle last. */
            idle: components["schemas"]["Idleness"];
            /**
             * Format: int64
             * @description Milliseconds for which all were idle.
             */
            idle_ms: number;
            /** @enum {string} */
            kind: "idle";
        } | {
            /** @enum {string} */
            kind: "hang";
            /**
             * Format: int64
             * @description Milliseconds since its last report or since the last change of its step.
             */
            silent_ms: number;
            /**
             * Format: int64
             * @description Last step of the rank.
             */
            step: number;
        };
        /** @description GPUs of one model on nodes that one constraint of the job excludes. */
        ForbiddenGpus: {
            /** @description The constraint; the first one if several exclude the nodes. */
            by: components["schemas"]["UnmetConstraint"];
            gpu_model: string;
            /** Format: int32 */
            gpus: number;
        };
        /** @description Forecast of a job at one time. */
        Forecast: {
            finish: components["schemas"]["Interval"] | null;
            /**
             * Format: double
             * @description Mean GPU-seconds that the job will still hold; 0 if `unforeseen` is given.
             */
            gpu_s: number;
            /** Format: date-time */
            made_at: string;
            start: components["schemas"]["Interval"] | null;
            unforeseen?: components["schemas"]["Unforeseen"] | null;
        };
        /** @description Code of a program: a commit of a git repository, which each task checks out. */
        GitSource: {
            /** @description Id of the commit: 40 hexadecimal digits, or 64 in a repository with SHA-256. */
            commit: string;
            /**
             * @description Name of one of the command's `secrets` that is the password for `https://`, such as an
             *     access token.
             */
            secret?: string | null;
            /** @description Address of the repository: `https://`, `ssh://` or `file://`, at most 2048 bytes. */
            url: string;
        };
        /**
         * @description Direction of a better value.
         * @enum {string}
         */
        Goal: "minimize" | "maximize";
        Gpu: {
            compute_capability?: components["schemas"]["ComputeCapability"] | null;
            /** Format: int32 */
            index: number;
            kind: components["schemas"]["GpuKind"];
            /** Format: int64 */
            memory_bytes: number;
            /**
             * @description Product name that the driver reports (`NVIDIA H200`). For CPU slots the name that the
             *     executor's configuration gives them, by default `cpu`.
             */
            model: string;
        };
        /**
         * @description What is known of the use of an idle task's GPUs.
         * @enum {string}
         */
        GpuEvidence: "absent" | "unused" | "unknown";
        /** @enum {string} */
        GpuKind: "cuda" | "cpu_slot";
        /** @description A GPU, or a CPU slot in place of one. */
        GpuView: {
            compute_capability?: components["schemas"]["ComputeCapability"] | null;
            guest?: components["schemas"]["Occupant"] | null;
            /** Format: int32 */
            index: number;
            job: components["schemas"]["Occupant"] | null;
            kind: components["schemas"]["GpuKind"];
            /** Format: int64 */
            memory_bytes: number;
            model: string;
            task_id: components["schemas"]["TaskId"] | null;
        };
        /**
         * @description Format of 16 bits.
         * @enum {string}
         */
        HalfFormat: "f16" | "bf16";
        /** @description Forecasts of jobs that have succeeded since, without those marked as unsure. */
        HitRate: {
            /** Format: int64 */
            forecasts: number;
            /**
             * Format: int64
             * @description Forecasts whose interval contained the actual time.
             */
            held: number;
            /**
             * Format: int64
             * @description Jobs of these forecasts.
             */
            jobs?: number;
            /**
             * Format: double
             * @description Share of the time in which the newest forecast of a job was right, as a mean over jobs: each
             *     job counts once. Null without jobs.
             */
            share: number | null;
        };
        /** @description Idleness of a whole job, as a round has found it. */
        IdleFinding: {
            /**
             * Format: int64
             * @description Milliseconds of idleness after which the interactive job ends; absent for other jobs, and
             *     while the use of GPUs is unknown.
             */
            ends_after_ms?: number | null;
            /**
             * Format: int64
             * @description Milliseconds for which all tasks were idle.
             */
            for_ms: number;
            idle: components["schemas"]["Idleness"];
            /** @description The task that became idle last. */
            role: components["schemas"]["Role"];
        };
        /** @description Idleness of a program. */
        IdleView: {
            /**
             * Format: date-time
             * @description Time at which the interactive job ends without use; absent for other jobs.
             */
            ends_at?: string | null;
            /** @description The evidence, such as "no output for 41 min, no CPU or GPU use for 31 min". */
            evidence: string;
            /**
             * Format: date-time
             * @description Time of the last activity.
             */
            since: string;
        };
        /** @description Idleness of a task. Times are Unix milliseconds of the control plane. */
        Idleness: {
            /**
             * Format: int32
             * @description Highest CPU use of a measurement since then, in thousandths of a core.
             */
            cpu_milli?: number;
            gpu?: components["schemas"]["GpuEvidence"];
            /**
             * Format: int64
             * @description Time of the last logged metric.
             */
            metric_ms?: number | null;
            /**
             * Format: int64
             * @description Time of the last output.
             */
            output_ms?: number | null;
            /**
             * Format: int64
             * @description Time of the newest report, up to which the task was idle.
             */
            reported_ms?: number;
            /**
             * Format: int64
             * @description Time at which a remote session last carried data.
             */
            session_ms?: number | null;
            /**
             * Format: int64
             * @description Time of the last activity of any kind.
             */
            since_ms: number;
        };
        /** @description Whether process tasks of a node can run in images. */
        ImageSupport: {
            /** @enum {string} */
            kind: "able";
        } | {
            /** @enum {string} */
            kind: "unable";
            why: string;
        };
        ImaginedJob: {
            /** @description The job document. */
            job: components["schemas"]["JobSpec"];
            /** @description Tenant that would submit the job. Default: that of the token. */
            tenant?: string | null;
        };
        ImaginedQuota: {
            /**
             * Format: int32
             * @description Null removes the limit. The field is required.
             */
            gpu_quota: number | null;
            /** @description Name of the tenant. */
            tenant: string;
        };
        InTheWay: {
            jobs: components["schemas"]["BlockingJob"][];
            /** @description Nodes that have no room for the job, those with most free GPUs first; at most 16. */
            nodes: components["schemas"]["BlockingNode"][];
            quota: components["schemas"]["BlockingQuota"] | null;
        };
        /** @description Input of a network for one example. */
        Input: {
            /** Format: int32 */
            channels: number;
            /** Format: int32 */
            height: number;
            /** @enum {string} */
            kind: "image";
            /** Format: int32 */
            width: number;
        } | {
            /** Format: int32 */
            columns: number;
            /** @enum {string} */
            kind: "row";
        } | {
            /** @enum {string} */
            kind: "tokens";
            /** Format: int32 */
            length: number;
            /** Format: int32 */
            vocabulary: number;
        };
        /**
         * @description State of the job that its user wants. It takes effect in the next scheduling round.
         * @enum {string}
         */
        Intent: "run" | "suspend" | "pause" | "cancel";
        /**
         * @description A program that a user works in, such as a notebook. The job ends as succeeded after a time
         *     without use. It is `exclusive`. Only with `command`, and with one worker.
         */
        Interactive: {
            /**
             * Format: double
             * @description Minutes without output, metric, use of CPU or GPU, and data of a remote session, after
             *     which the job ends; 0.1 to 10080.
             * @default 60
             */
            idle_minutes: number;
        };
        /**
         * @description Interval of a predicted time. It falls between `p10` and `p90` in eight of ten cases, and before
         *     `p50` in half of them.
         */
        Interval: {
            /** Format: date-time */
            p10: string;
            /** Format: date-time */
            p50: string;
            /** Format: date-time */
            p90: string;
            /**
             * @description Whether the interval is too wide to be useful: `p90` is more than ten times as far away as
             *     `p10`, with five seconds added to both. Show only `p50`, as a guess.
             */
            unsure?: boolean;
        };
        /** @description Change of a job's size range and priority. A field that is left out stays. */
        JobChange: {
            /**
             * Format: int64
             * @description The `edits` of the job as read before. The change is refused if the job was changed since.
             */
            edits?: number | null;
            /**
             * Format: int32
             * @description -100 to 100. It acts over all tenants: jobs of a higher priority are served first.
             */
            priority?: number | null;
            /** @description Name of a priority class. Without `priority` the job gets the default of the class. */
            priority_class?: string | null;
            ps_shards?: components["schemas"]["Range"] | null;
            workers?: components["schemas"]["Range"] | null;
        };
        /**
         * Format: uuid
         * @description One submitted job.
         */
        JobId: string;
        /**
         * @description Name of a state without its data, by which lists filter.
         * @enum {string}
         */
        JobPhase: "queued" | "starting" | "running" | "suspended" | "stopping" | "paused" | "succeeded" | "failed" | "cancelled";
        JobShift: {
            /**
             * @description Whether it would be stopped for other jobs. A program without a known checkpoint would start
             *     from the beginning.
             */
            displaced: boolean;
            finish: components["schemas"]["Interval"] | null;
            /**
             * Format: double
             * @description Mean GPU-hours that it would still hold; 0 if `unforeseen` is given.
             */
            gpu_hours: number;
            id: components["schemas"]["JobId"] | null;
            /**
             * Format: double
             * @description Seconds by which its expected end would be later; earlier if negative. Null if one of the
             *     two ends cannot be predicted.
             */
            later_s: number | null;
            name: string;
            start: components["schemas"]["Interval"] | null;
            tenant: string;
            unforeseen?: components["schemas"]["Unforeseen"] | null;
        };
        /** @description A training job: something for the built-in engine to train, or a user's program. */
        JobSpec: {
            /** @description Jobs of the tenant that must end before this one starts, at most 16. */
            after?: components["schemas"]["After"][];
            array?: components["schemas"]["ArrayMember"] | null;
            checkpoint?: components["schemas"]["CheckpointPolicy"];
            command?: components["schemas"]["Command"] | null;
            engine?: components["schemas"]["Engine"] | null;
            evaluate?: components["schemas"]["EvaluationPolicy"];
            exchange?: components["schemas"]["Exchange"];
            /**
             * @description The job never shares its GPUs and takes no time slices. It starts once GPUs are free: no
             *     other job is suspended for it, and it is neither suspended nor stopped for a job of equal or
             *     lower priority. It can still be stopped, for example for a job of higher priority.
             */
            exclusive?: boolean;
            from?: components["schemas"]["Origin"] | null;
            interactive?: components["schemas"]["Interactive"] | null;
            labels?: {
                [key: string]: string;
            };
            /**
             * @description 1 to 63 characters of `a-z`, `0-9` and `-`. It begins and ends with a letter or digit. Names
             *     need not be unique.
             */
            name: string;
            /**
             * @description Image, mounts and secrets of its tasks. With an image the job runs only on nodes that can
             *     run images. With cluster objects it runs only on nodes whose tasks are pods.
             */
            pod?: components["schemas"]["Pod"];
            /** @description Whether and when the job makes room for other jobs. */
            preemption?: components["schemas"]["Preemption"];
            /**
             * Format: int32
             * @description -100 to 100. It acts over all tenants: jobs of a higher priority are served first. Quotas
             *     still apply. Default: that of `priority_class`, or 0. If the installation has priority
             *     classes, a number other than 0 must lie in the range of a class.
             */
            priority?: number | null;
            /** @description Name of a priority class of the installation. `priority` must lie in its range. */
            priority_class?: string | null;
            resources?: components["schemas"]["Resources"];
            /**
             * Format: int32
             * @description Task failures after which the job restarts from its newest checkpoint; 0 to 100.
             */
            retries?: number;
            scale?: components["schemas"]["Scale"];
            /** @description When training ends. Required with `engine`; a command ends by itself. */
            stop?: components["schemas"]["Stop"];
            /** @description When a slow or hung rank is replaced. */
            verdicts?: components["schemas"]["Verdicts"];
            version: components["schemas"]["Version"];
        };
        /** @description State of a job. */
        JobState: {
            /** @enum {string} */
            phase: "queued";
        } | {
            /** @enum {string} */
            phase: "starting";
        } | {
            /** @enum {string} */
            phase: "running";
        } | {
            /** @enum {string} */
            phase: "suspended";
        } | {
            /** @enum {string} */
            phase: "stopping";
            then: components["schemas"]["AfterStop"];
        } | {
            /** @enum {string} */
            phase: "paused";
        } | {
            /** @enum {string} */
            phase: "succeeded";
        } | {
            /** @enum {string} */
            phase: "failed";
            reason: string;
        } | {
            /** @enum {string} */
            phase: "cancelled";
        };
        /** @description A job. */
        JobView: {
            /**
             * Format: int64
             * @description Number of changes of its document.
             */
            edits?: number;
            /** @description Why the job failed; null unless it did. */
            failure: string | null;
            /**
             * Format: int32
             * @description Restarts charged to `spec.retries`.
             */
            failures: number;
            /** Format: date-time */
            finished_at: string | null;
            forecast: components["schemas"]["Forecast"] | null;
            id: components["schemas"]["JobId"];
            idle?: components["schemas"]["IdleView"] | null;
            /** @description State that its users want; takes effect in the next scheduling round. */
            intent: components["schemas"]["Intent"];
            labels: {
                [key: string]: string;
            };
            /**
             * @description Reason of the last failure that was charged to its retries, also while the job runs again.
             *     Null before the first.
             */
            last_failure: string | null;
            /** @description Path of the final model, relative to the checkpoint root; null unless the job has succeeded. */
            model_path: string | null;
            name: string;
            /** @description Name of `state`. */
            phase: components["schemas"]["JobPhase"];
            /** Format: int32 */
            priority: number;
            /**
             * @description Name of the priority class that its document states; null without one. The job keeps its
             *     number if the class is changed or deleted.
             */
            priority_class: string | null;
            progress: components["schemas"]["ProgressView"] | null;
            ps_shards: components["schemas"]["Count"];
            /**
             * Format: int32
             * @description Number of consecutive refusals of its tasks by nodes, for example because other pods hold
             *     the resources. Eight refusals of a start are free; each further one is charged to its
             *     retries. A running job whose growth is refused is charged nothing.
             */
            put_off?: number;
            /**
             * Format: int64
             * @description Step of the newest checkpoint from which it can continue; null before the first.
             */
            resume_step: number | null;
            /**
             * Format: int64
             * @description Revision of its task set: 0 before the first start, +1 at every start and every resize in
             *     place.
             */
            revision: number;
            /** @description The document as submitted, with defaults filled in and later changes applied. */
            spec: components["schemas"]["JobSpec"];
            /** Format: date-time */
            started_at: string | null;
            state: components["schemas"]["JobState"];
            /** Format: date-time */
            submitted_at: string;
            /** @description Name of the user that submitted it. */
            submitted_by: string;
            /** @description Name of the tenant that owns it. */
            tenant: string;
            trial: components["schemas"]["TrialRef"] | null;
            waiting: components["schemas"]["WaitingView"] | null;
            workers: components["schemas"]["Count"];
        };
        /** @description The best checkpoints stay, however old they are. */
        KeepBest: {
            /** @description Only for the built-in engine. */
            by?: components["schemas"]["Measure"];
            /**
             * Format: int32
             * @description Number of checkpoints; 1 to 1000. Default: 1.
             */
            count?: number;
            goal?: components["schemas"]["Goal"] | null;
            /** @description Only for commands, with `goal`: any metric that rank 0 logs. */
            metric?: string | null;
        };
        /**
         * @description Why a checkpoint is retained.
         * @enum {string}
         */
        Kept: "newest" | "best" | "milestone" | "origin";
        /** @description A data set that is known by name. */
        KnownDataset: {
            augment?: components["schemas"]["Augmentation"][];
            name: components["schemas"]["DatasetName"];
            /**
             * Format: int32
             * @description Use only the first test examples.
             */
            test_limit?: number | null;
            /**
             * Format: int32
             * @description Use only the first examples; at least `batch`.
             */
            train_limit?: number | null;
        };
        /**
         * @description Comparison of a label with a condition's values.
         * @enum {string}
         */
        LabelOperator: "in" | "not_in" | "exists" | "not_exists";
        /** @description GPUs according to the cluster's labels, all of one kind: the product, or a MIG profile. */
        Labelled: {
            compute_capability?: components["schemas"]["ComputeCapability"] | null;
            /**
             * Format: int64
             * @description Memory of one GPU; 0 is unknown.
             */
            memory_bytes: number;
            /** @description Product name, such as `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`. */
            model: string;
        };
        /** @description One layer. Images are height × width × channels, sequences positions × features. */
        Layer: {
            bias?: boolean;
            /**
             * Format: int32
             * @description Output channels.
             */
            channels: number;
            /**
             * Format: int32
             * @description Divides both channel counts. With as many groups as channels the convolution is
             *     depthwise.
             */
            groups?: number;
            kernel?: components["schemas"]["Sides"];
            /** @enum {string} */
            kind: "conv";
            padding?: components["schemas"]["Sides"] | null;
            relu?: boolean;
            stride?: components["schemas"]["Sides"];
        } | {
            /** Format: int32 */
            channels: number;
            /** @enum {string} */
            kind: "conv_pool";
        } | {
            /** @enum {string} */
            kind: "dense";
            relu?: boolean;
            /** Format: int32 */
            width: number;
        } | {
            kernel?: components["schemas"]["Sides"];
            /** @enum {string} */
            kind: "max_pool";
            /** @description Default: none. At most half of the kernel. */
            padding?: components["schemas"]["Sides"];
            stride?: components["schemas"]["Sides"] | null;
        } | {
            kernel?: components["schemas"]["Sides"];
            /** @enum {string} */
            kind: "average_pool";
            padding?: components["schemas"]["Sides"];
            stride?: components["schemas"]["Sides"] | null;
        } | {
            /** @enum {string} */
            kind: "global_average_pool";
        } | {
            /** @enum {string} */
            kind: "batch_norm";
            relu?: boolean;
        } | {
            function: components["schemas"]["Activation"];
            /** @enum {string} */
            kind: "activation";
        } | {
            /** @enum {string} */
            kind: "dropout";
            /** Format: float */
            share: number;
        } | {
            /** @enum {string} */
            kind: "layer_norm";
        } | {
            /** Format: int32 */
            factor: number;
            /** @enum {string} */
            kind: "upsample";
        } | {
            /** @enum {string} */
            kind: "embedding";
            /** Format: int32 */
            width: number;
        } | {
            /** @enum {string} */
            kind: "positions";
        } | {
            bias?: boolean;
            /** @enum {string} */
            kind: "project";
            /** Format: int32 */
            width: number;
        } | {
            /** Format: int32 */
            heads: number;
            /** @enum {string} */
            kind: "attention";
        } | {
            /** Format: int32 */
            hidden: number;
            /** @enum {string} */
            kind: "lstm";
        } | {
            /** Format: int32 */
            hidden: number;
            /** @enum {string} */
            kind: "gru";
        } | {
            /** @enum {string} */
            kind: "flatten";
        } | {
            /** @enum {string} */
            kind: "reshape";
            shape: number[];
        } | {
            /** @enum {string} */
            kind: "residual";
            layers: components["schemas"]["Layer"][];
            /** @description ReLU after the addition. */
            relu?: boolean;
            shortcut?: components["schemas"]["Layer"][];
        } | {
            branches: components["schemas"]["Layer"][][];
            /** @enum {string} */
            kind: "concat";
        };
        /** @description Another codec for some blocks. */
        LayerCodec: {
            /** @description Name of a block. One `*` matches any text: `dense1.weight`, `conv*`, `*.bias`. */
            blocks: string;
            codec: components["schemas"]["CodecConfig"];
        };
        /** @description Target of each example. */
        Learn: {
            /** Format: int32 */
            classes: number;
            /** @enum {string} */
            kind: "classes";
        } | {
            /** @enum {string} */
            kind: "values";
            /** Format: int32 */
            values: number;
        };
        /** @description Change of limits. A field that is left out stays; null restores the default. */
        LimitsChange: {
            /**
             * Format: int64
             * @description Maximum bytes of the artifacts of all jobs.
             */
            artifact_bytes?: number | null;
            /**
             * Format: int64
             * @description Maximum bytes of stored code archives. Unused ones are removed.
             */
            code_bytes?: number | null;
            /**
             * Format: int64
             * @description Maximum number of GPUs and CPU slots of interactive jobs that have not ended. The default
             *     limits nothing in practice.
             */
            interactive_gpus?: number | null;
            /**
             * Format: int64
             * @description Maximum bytes of the artifacts of one job.
             */
            job_artifact_bytes?: number | null;
            /**
             * Format: int64
             * @description Maximum number of artifacts of one job.
             */
            job_artifacts?: number | null;
            /**
             * Format: int64
             * @description Maximum number of listed checkpoints of one job. The oldest are removed from the list,
             *     pruned ones first.
             */
            job_checkpoints?: number | null;
            /**
             * Format: int64
             * @description Maximum bytes of these events.
             */
            job_event_bytes?: number | null;
            /**
             * Format: int64
             * @description Maximum number of events that the tasks of one job report, including evaluations. Later ones
             *     are dropped.
             */
            job_events?: number | null;
            /**
             * Format: int64
             * @description Maximum bytes of stored output of the tasks of one job; above it the oldest output is
             *     removed.
             */
            job_log_bytes?: number | null;
            /**
             * Format: int64
             * @description Maximum number of points in the series of one job; above it only the newest sample is kept.
             *     The default is three weeks at one sample per second.
             */
            job_points?: number | null;
            /**
             * Format: int64
             * @description Maximum bytes of the documents of these jobs, as JSON. The default is about 5 KiB per job.
             */
            open_job_bytes?: number | null;
            /**
             * Format: int64
             * @description Maximum number of jobs that have not ended, including trials of studies. The default is the
             *     load with which the scheduler is measured.
             */
            open_jobs?: number | null;
            /**
             * Format: int64
             * @description Maximum number of studies that have not finished.
             */
            open_studies?: number | null;
            /**
             * Format: int64
             * @description Maximum number of schedules.
             */
            schedules?: number | null;
            /**
             * Format: int64
             * @description Maximum number of stored secrets.
             */
            secrets?: number | null;
            /**
             * Format: int64
             * @description Maximum number of stored templates.
             */
            templates?: number | null;
            /**
             * Format: int64
             * @description Maximum number of tokens that are neither revoked nor expired.
             */
            tokens?: number | null;
            /**
             * Format: int64
             * @description Maximum number of such tokens of one user.
             */
            user_tokens?: number | null;
        };
        /** @description Current use of the limits. */
        LimitsUse: {
            /** Format: int64 */
            open_job_bytes: number;
            /** Format: int64 */
            open_jobs: number;
            /** Format: int64 */
            open_studies: number;
            /** Format: int64 */
            tokens: number;
        };
        /** @description Why a log ends. */
        LogEnd: {
            reason: string;
        };
        /** @description Output of a task. */
        LogPiece: {
            /**
             * Format: int64
             * @description Bytes of the task's log up to the end of this piece.
             */
            next_offset: number;
            /**
             * Format: int64
             * @description Bytes of the task's log before this piece.
             */
            offset: number;
            /**
             * Format: date-time
             * @description Time at which the scheduler received the first byte of this piece. Absent if a release that
             *     records no times has stored it.
             */
            received_at?: string | null;
            /** Format: int64 */
            revision: number;
            /** @description `worker-0`, `ps-1`. */
            task: string;
            task_id: components["schemas"]["TaskId"];
            /** @description Bytes that are not UTF-8 are replaced. */
            text: string;
        };
        /** @description User, tenant and token of the caller. */
        Me: {
            access: components["schemas"]["Access"];
            /**
             * Format: int32
             * @description Maximum number of GPUs or CPU slots that the tenant's jobs hold at one time; null: no limit.
             */
            gpu_quota: number | null;
            /**
             * Format: int32
             * @description GPUs or CPU slots that they hold now.
             */
            gpus_in_use?: number;
            /**
             * Format: int32
             * @description Jobs of the tenant that hold at least one.
             */
            jobs_in_use?: number;
            /** @description Limits of the tenant. */
            limits?: components["schemas"]["TenantLimits"];
            tenant: string;
            tenant_id: components["schemas"]["TenantId"];
            token_id: components["schemas"]["TokenId"];
            /** @description Current use of the limits. */
            used?: components["schemas"]["LimitsUse"];
            user: string;
            user_id: components["schemas"]["UserId"];
        };
        /**
         * @description Measure of an evaluation on the test split.
         * @enum {string}
         */
        Measure: "accuracy" | "loss";
        /**
         * @description Change of a node's membership.
         * @enum {string}
         */
        MembershipChange: "join_token_made" | "credential_reset" | "replaced" | "removed";
        /** @description Values of a metric within equally many steps. */
        MetricBucketView: {
            /**
             * Format: double
             * @description The newest value.
             */
            last: number;
            /** Format: double */
            max: number;
            /** Format: double */
            mean: number;
            /** Format: double */
            min: number;
            /**
             * Format: int64
             * @description Step of the newest value.
             */
            step: number;
            /**
             * Format: int64
             * @description Number of logged values.
             */
            values: number;
        };
        /** @description Series of one metric. */
        MetricSeriesView: {
            /**
             * Format: int64
             * @description Width of a bucket in steps, a power of two. It grows with the series. A point may cover more
             *     steps, because nodes merge values that come faster than they report.
             */
            bucket_steps: number;
            name: string;
            /** @description Ordered by step. */
            points: components["schemas"]["MetricBucketView"][];
        };
        /** @description One metric that the job's program has logged. */
        MetricView: {
            /**
             * Format: double
             * @description The newest value.
             */
            last: number;
            /**
             * Format: int64
             * @description Step of the newest value.
             */
            last_step: number;
            /** Format: double */
            max: number;
            /** Format: double */
            min: number;
            /** @description Name as the program logs it. */
            name: string;
            /**
             * Format: int64
             * @description Number of logged values.
             */
            values: number;
        };
        /** @description A network. The data set determines its input and output. */
        Model: {
            /** @description Widths from input to output; at most 16, each 1 to 16,384. */
            hidden: number[];
            /** @enum {string} */
            kind: "mlp";
        } | {
            /** @description Output channels; 1 to 8 convolutions, each 1 to 1,024. */
            channels: number[];
            /** @description Widths; at most 8, each 1 to 16,384. */
            dense: number[];
            /** @enum {string} */
            kind: "cnn";
        } | {
            /** @enum {string} */
            kind: "lenet5";
        } | {
            /** @enum {string} */
            kind: "alexnet";
        } | {
            batch_norm?: boolean;
            /**
             * Format: int32
             * @description 11, 13, 16 or 19.
             */
            depth: number;
            /** @enum {string} */
            kind: "vgg";
        } | {
            /** @enum {string} */
            kind: "googlenet";
        } | {
            /**
             * Format: int32
             * @description 18, 34, 50, 101 or 152.
             */
            depth: number;
            /** @enum {string} */
            kind: "resnet";
        } | {
            /** @enum {string} */
            kind: "densenet";
            variant: components["schemas"]["DenseNetVariant"];
        } | {
            /**
             * @description Channels of the convolutions of stride 2; 1 to 8, each 1 to 1,024. The sides of the
             *     image halve evenly at each.
             */
            channels: number[];
            /**
             * Format: int32
             * @description Numbers in the middle, 1 to 16,384.
             */
            code: number;
            /** @enum {string} */
            kind: "autoencoder";
        } | {
            /**
             * Format: int32
             * @description 1 to 128.
             */
            blocks: number;
            /**
             * Format: float
             * @description 0 to below 1.
             */
            dropout?: number;
            /** Format: int32 */
            heads: number;
            /** @enum {string} */
            kind: "gpt";
            /** @description Whether the scores use the embedding's own table. */
            tied?: boolean;
            /**
             * Format: int32
             * @description 1 to 16,384; a multiple of `heads`.
             */
            width: number;
        } | {
            /** @description Width of each layer, 1 to 16,384; 1 to 16 layers. */
            hidden: number[];
            /** @enum {string} */
            kind: "lstm";
            /**
             * Format: int32
             * @description Width of the embedding, 1 to 16,384.
             */
            width: number;
        } | {
            hidden: number[];
            /** @enum {string} */
            kind: "gru";
            /** Format: int32 */
            width: number;
        } | {
            goal?: components["schemas"]["Goal"];
            /** @enum {string} */
            kind: "layers";
            /** @description At most 1,024, including nested ones. */
            layers: components["schemas"]["Layer"][];
        };
        /** @description Request for a one-time join token. */
        NewJoinToken: {
            /**
             * Format: int64
             * @description Seconds from now, at most 604800 (a week). Default: an hour.
             */
            lifetime_s?: number | null;
        };
        /** @description Session to open in a task. */
        NewRemoteSession: {
            action: components["schemas"]["RemoteAction"];
            /**
             * Format: int32
             * @description Rank of the worker, or of the process of a command.
             */
            rank?: number;
        };
        /** @description Value of a secret. */
        NewSecret: {
            /** @description 1 byte to 64 KiB of UTF-8 without NUL. */
            value: string;
        };
        /** @description A tenant to create. */
        NewTenant: {
            /**
             * Format: int32
             * @description Null or left out: no limit.
             */
            gpu_quota?: number | null;
            /**
             * @description Whether its members may open remote sessions (`muster exec`, `port-forward`, `cp`) in the
             *     tasks of its jobs. Default: false.
             */
            interactive?: boolean;
            /**
             * @description 1 to 63 characters of `a-z`, `0-9` and `-`. It begins and ends with a letter or digit.
             *     Unique.
             */
            name: string;
            /** @description Cluster objects that the pods of its tasks may use. Default: any image and nothing else. */
            pods?: components["schemas"]["TenantPods"];
            /** @description Caps on what its jobs may demand in `preemption`. Default: none. */
            preemption?: components["schemas"]["TenantPreemption"];
            /**
             * @description Whether measured speeds of its job families count for equal families of other tenants that
             *     share, and theirs for its own. Default: false.
             */
            shares_families?: boolean;
            /**
             * Format: double
             * @description 0.001 to 1000: share of the cluster relative to the weights of other tenants.
             */
            weight?: number;
        };
        /** @description A token to create. */
        NewToken: {
            /** @description Only administrators may create tokens with `admin`. */
            access?: components["schemas"]["Access"];
            /**
             * Format: date-time
             * @description Time from which it is refused. Default: never.
             */
            expires_at?: string | null;
            /** @description 1 to 255 characters. */
            name: string;
            /** @description Name of its tenant. Default: that of the caller. For administrators only. */
            tenant?: string | null;
            /**
             * @description Name of its user; the user is created if necessary. Default: the caller. For administrators
             *     only.
             */
            user?: string | null;
        };
        /** @description Fault on a node. */
        NodeFault: {
            /** @enum {string} */
            kind: "killed";
            /** Format: int32 */
            signal: number;
        } | {
            /** @enum {string} */
            kind: "straggler";
        } | {
            /** @description Whether the node failed to start the task in time. */
            at_start?: boolean;
            /** @enum {string} */
            kind: "hang";
        } | {
            /** Format: int32 */
            gpu: number;
            /** @enum {string} */
            kind: "xid";
            /** Format: int64 */
            xid: number;
        } | {
            /** Format: int64 */
            errors: number;
            /** Format: int32 */
            gpu: number;
            /** @enum {string} */
            kind: "uncorrected_memory";
        } | {
            /** Format: int32 */
            gpu: number;
            /** @enum {string} */
            kind: "driver_lost";
        };
        /**
         * Format: uuid
         * @description One machine with an executor.
         */
        NodeId: string;
        /**
         * @description Why a node takes no worker of the job.
         * @enum {string}
         */
        NodeObstacle: "busy" | "not_enough" | "kept" | "no_cpu_or_memory" | "too_small" | "forbidden" | "no_pods" | "no_images" | "drained" | "down";
        /** @description Condition on one label of a node. */
        NodeRequirement: {
            /** @description Key of the label. */
            key: string;
            operator: components["schemas"]["LabelOperator"];
            /** @description 1 to 64 values for `in` and `not_in`; none for the other operators. */
            values?: string[];
        };
        /** @description Measured speed of a node relative to the typical node of its GPU kind. */
        NodeSpeed: {
            /**
             * Format: int32
             * @description Number of jobs that were measured on the node.
             */
            jobs: number;
            /**
             * Format: int32
             * @description Speed in percent of the typical node of the kind, 50 to 200. It compares jobs of the same
             *     families on this node and on others.
             */
            percent: number;
        };
        /** @enum {string} */
        NodeState: "up" | "lost";
        /** @description A node and the use of each of its GPUs. */
        NodeView: {
            capacity: components["schemas"]["Capacity"];
            /** @description Takes no new task; its tasks move away. */
            drained: boolean;
            excluded: components["schemas"]["Excluded"] | null;
            /**
             * Format: int64
             * @description Version of its assignment.
             */
            generation: number;
            /** @description Ordered by index. */
            gpus: components["schemas"]["GpuView"][];
            id: components["schemas"]["NodeId"];
            /** Format: date-time */
            last_seen_at: string;
            name: string;
            notice: components["schemas"]["Notice"] | null;
            speed?: components["schemas"]["NodeSpeed"] | null;
            state: components["schemas"]["NodeState"];
            /**
             * Format: int64
             * @description Number of tasks of all tenants that have not ended; PS shards hold no GPU. Absent in answers
             *     of older API servers.
             */
            tasks?: number | null;
        };
        /**
         * @description Norm of a bucket.
         * @enum {string}
         */
        Norm: "largest" | "euclidean";
        /** @description Transformation of the inputs: per channel for images, per column for tables. */
        Normalisation: {
            /** @enum {string} */
            kind: "none";
        } | {
            /** @enum {string} */
            kind: "measured";
        } | {
            /** @enum {string} */
            kind: "min_max";
        } | {
            /** @enum {string} */
            kind: "given";
            mean: number[];
            /** @description Above 0. */
            std: number[];
        };
        /**
         * @description Report of a cluster manager such as Kubernetes about the machine. A notice is always complete
         *     and replaces the earlier one. It is independent of an administrator's drain.
         */
        Notice: {
            /** @description Sender of the notice. Only the same sender may replace it. Absent: an administrator. */
            by?: string | null;
            closed: components["schemas"]["Closed"];
            gpus?: components["schemas"]["Labelled"] | null;
            /** @description Labels of the machine in its cluster. They precede the executor's labels. */
            labels?: {
                [key: string]: string;
            };
            /** @description Rack of the node. It precedes the executor's setting. */
            rack?: string | null;
            /**
             * Format: int32
             * @description Number of GPUs that pods outside Muster hold. Which GPUs is unknown: they are only counted.
             */
            taken?: number;
            /** @description Why the node is closed, or what holds some of its GPUs. */
            why?: string;
        };
        /** @description A metric and its goal. */
        Objective: {
            goal: components["schemas"]["Goal"];
            /**
             * @description Name under which trials report it: a metric that every job has, such as `test_accuracy`, or
             *     one that the trials' program logs, such as `val/f1`.
             */
            metric: string;
            /**
             * Format: double
             * @description The study finishes when a trial reaches this value; `hyper_drive` predicts whether a trial
             *     will. With `reproducible`, only values at the end of rungs count.
             */
            target?: number | null;
        };
        /** @description The job that holds a GPU. Details of a job of another tenant are shown to administrators only. */
        Occupant: {
            id: components["schemas"]["JobId"] | null;
            name: string | null;
            tenant: string | null;
        };
        /**
         * @description The stream is open. A reader that reads a list after this message and then applies the messages
         *     of the stream misses nothing.
         */
        Opened: {
            /** @description Position at which the stream begins. */
            cursor: string;
            /**
             * @description Cursor of the newest event after `cursor` that retention has removed; the reader has missed
             *     these events. Absent if there are none.
             */
            forgotten?: string | null;
        };
        /**
         * @description Update rule. `learning_rate` is above 0 and at most 100. `weight_decay`, 0 to below 1, is an L2
         *     penalty that is added to the gradient.
         */
        Optimizer: {
            /** @enum {string} */
            kind: "sgd";
            /**
             * Format: double
             * @description Above 0, at most 100.
             */
            learning_rate: number;
            /**
             * Format: double
             * @description 0 to below 1.
             */
            momentum?: number;
            /** @description Nesterov momentum (Sutskever et al., 2013); `momentum` must be above 0. */
            nesterov?: boolean;
            /** Format: double */
            weight_decay?: number;
        } | {
            /** @enum {string} */
            kind: "lars";
            /** Format: double */
            learning_rate: number;
            /** Format: double */
            momentum?: number;
            /**
             * Format: double
             * @description Share of a tensor's norm by which a step may change it; above 0, at most 1.
             */
            trust?: number;
            /** Format: double */
            weight_decay?: number;
        } | {
            /** Format: double */
            epsilon?: number;
            /** @enum {string} */
            kind: "adagrad";
            /** Format: double */
            learning_rate: number;
            /** Format: double */
            weight_decay?: number;
        } | {
            /** Format: double */
            epsilon?: number;
            /** @enum {string} */
            kind: "rmsprop";
            /** Format: double */
            learning_rate: number;
            /** Format: double */
            momentum?: number;
            /**
             * Format: double
             * @description Decay rate of the mean of squares; 0 to below 1.
             */
            rho?: number;
            /** Format: double */
            weight_decay?: number;
        } | {
            /** Format: double */
            beta1?: number;
            /** Format: double */
            beta2?: number;
            /** @description AdamW: the decay is not part of the gradient (Loshchilov and Hutter, 2019). */
            decoupled?: boolean;
            /** Format: double */
            epsilon?: number;
            /** @enum {string} */
            kind: "adam";
            /** Format: double */
            learning_rate: number;
            /** Format: double */
            weight_decay?: number;
        };
        /**
         * @description A checkpoint of another job of the same tenant. The new job starts with its parameters,
         *     optimizer state and step count, and follows its own document. `stop` includes the steps of the
         *     other job. The checkpoint folder of a command contains that checkpoint when the command starts.
         */
        Origin: {
            /** @description Job that wrote the checkpoint. */
            job: components["schemas"]["JobId"];
            /**
             * Format: int64
             * @description Step of the checkpoint. Default: the newest one when the new job is submitted; the step is
             *     then filled in.
             */
            step?: number | null;
        };
        /** @description How a task ended. */
        Outcome: {
            /** Format: int32 */
            code: number;
            /** @enum {string} */
            kind: "exited";
            /**
             * @description Last line of the output of a failed process, cleaned and cut; absent if it wrote
             *     nothing.
             */
            said?: string | null;
        } | {
            /** @enum {string} */
            kind: "signalled";
            /** @description Last line of the output, as in `exited`. */
            said?: string | null;
            /** Format: int32 */
            signal: number;
        } | {
            /** @enum {string} */
            kind: "launch_failed";
            message: string;
        } | {
            /** @enum {string} */
            kind: "lease_expired";
        } | {
            /** @enum {string} */
            kind: "node_lost";
        } | {
            /** @enum {string} */
            kind: "never_started";
        } | {
            /**
             * @description Set if no stop was requested: the driver had moved the program off its GPUs and did not
             *     restore it, for this reason.
             */
            driver?: string | null;
            killed: boolean;
            /** @enum {string} */
            kind: "stopped";
        } | {
            /** @enum {string} */
            kind: "out_of_memory";
        } | {
            /** @enum {string} */
            kind: "evicted";
            message: string;
            reason: string;
        };
        /**
         * @description Rule for planned times at which the last job has not ended.
         * @enum {string}
         */
        Overlap: "allow" | "skip";
        /**
         * @description Activity and own step time of a worker, compared with the other workers of its job. Verdicts on
         *     stragglers and hangs use it.
         */
        PaceView: {
            doing: components["schemas"]["Doing"];
            /**
             * Format: date-time
             * @description Time of its newest report.
             */
            heard_at: string;
            /**
             * Format: date-time
             * @description Time of the last change of its step.
             */
            moved_at: string;
            /**
             * Format: double
             * @description Its rate divided by the median of the job's workers; null if fewer than two report theirs.
             */
            of_median: number | null;
            /**
             * Format: double
             * @description Milliseconds of its own per step, without waiting for others; null if it does not report
             *     them.
             */
            own_ms: number | null;
            /**
             * Format: int64
             * @description Steps done over the whole life of the job.
             */
            step: number;
            suspected: components["schemas"]["SuspectedView"] | null;
        };
        /** @description One page of a list. */
        Page_ArtifactView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** Format: int64 */
                bytes: number;
                /** @description According to the ending of the path. */
                content_type: string;
                /** @description Names separated by `/`. */
                path: string;
                /**
                 * Format: int64
                 * @description Revision of the job's task set at that time.
                 */
                revision: number;
                /** @description Task that has written it last. */
                role: components["schemas"]["Role"];
                sha256: string;
                /**
                 * Format: date-time
                 * @description When it was stored.
                 */
                stored_at: string;
            }[];
        };
        /** @description One page of a list. */
        Page_BestTrialView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                checkpoint: components["schemas"]["Written"] | null;
                /**
                 * @description Path of the trained model, relative to the checkpoint root; null unless its job has
                 *     succeeded.
                 */
                model_path: string | null;
                trial: components["schemas"]["TrialView"];
            }[];
        };
        /** @description One page of a list. */
        Page_CheckpointView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: (components["schemas"]["Written"] & {
                /**
                 * Format: int64
                 * @description Number of files of a program's checkpoint, which is downloaded as one archive. Absent for
                 *     the built-in engine.
                 */
                file_count?: number | null;
                id: components["schemas"]["CheckpointId"];
                /** @description Why it is retained; empty once it is pruned or is about to be. */
                kept: components["schemas"]["Kept"][];
                /** @description Newest values that rank 0 of a program had logged, by name. */
                metrics?: {
                    [key: string]: number;
                };
                /**
                 * @description Whether it still exists: the job's checkpoint policy has not pruned it. Its `files` can then
                 *     be downloaded.
                 */
                retained: boolean;
            })[];
        };
        /** @description One page of a list. */
        Page_EventView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** Format: date-time */
                at: string;
                /** @description Position of a reader that has seen this event. */
                cursor: string;
                /** @description The reason, or what follows from the event; null if the message says all. */
                detail: string | null;
                /** @description The event in machine-readable form. */
                event: components["schemas"]["Event"];
                job_id: components["schemas"]["JobId"] | null;
                /** @description The event as text, without a period. */
                message: string;
                node_id: components["schemas"]["NodeId"] | null;
                tenant_id: components["schemas"]["TenantId"] | null;
                waiting?: components["schemas"]["WaitingView"] | null;
            }[];
        };
        /** @description One page of a list. */
        Page_FamilyView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** @description Key of the family. */
                family: string;
                /**
                 * Format: int64
                 * @description Number of jobs with measurements.
                 */
                jobs: number;
                /** @description Speeds by GPU kind and placement, ordered by kind and size. */
                speeds: components["schemas"]["FamilySpeedView"][];
                /** @description Short description, from the document of the newest job. Several families may share it. */
                title: string;
            }[];
        };
        /** @description One page of a list. */
        Page_JobView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /**
                 * Format: int64
                 * @description Number of changes of its document.
                 */
                edits?: number;
                /** @description Why the job failed; null unless it did. */
                failure: string | null;
                /**
                 * Format: int32
                 * @description Restarts charged to `spec.retries`.
                 */
                failures: number;
                /** Format: date-time */
                finished_at: string | null;
                forecast: components["schemas"]["Forecast"] | null;
                id: components["schemas"]["JobId"];
                idle?: components["schemas"]["IdleView"] | null;
                /** @description State that its users want; takes effect in the next scheduling round. */
                intent: components["schemas"]["Intent"];
                labels: {
                    [key: string]: string;
                };
                /**
                 * @description Reason of the last failure that was charged to its retries, also while the job runs again.
                 *     Null before the first.
                 */
                last_failure: string | null;
                /** @description Path of the final model, relative to the checkpoint root; null unless the job has succeeded. */
                model_path: string | null;
                name: string;
                /** @description Name of `state`. */
                phase: components["schemas"]["JobPhase"];
                /** Format: int32 */
                priority: number;
                /**
                 * @description Name of the priority class that its document states; null without one. The job keeps its
                 *     number if the class is changed or deleted.
                 */
                priority_class: string | null;
                progress: components["schemas"]["ProgressView"] | null;
                ps_shards: components["schemas"]["Count"];
                /**
                 * Format: int32
                 * @description Number of consecutive refusals of its tasks by nodes, for example because other pods hold
                 *     the resources. Eight refusals of a start are free; each further one is charged to its
                 *     retries. A running job whose growth is refused is charged nothing.
                 */
                put_off?: number;
                /**
                 * Format: int64
                 * @description Step of the newest checkpoint from which it can continue; null before the first.
                 */
                resume_step: number | null;
                /**
                 * Format: int64
                 * @description Revision of its task set: 0 before the first start, +1 at every start and every resize in
                 *     place.
                 */
                revision: number;
                /** @description The document as submitted, with defaults filled in and later changes applied. */
                spec: components["schemas"]["JobSpec"];
                /** Format: date-time */
                started_at: string | null;
                state: components["schemas"]["JobState"];
                /** Format: date-time */
                submitted_at: string;
                /** @description Name of the user that submitted it. */
                submitted_by: string;
                /** @description Name of the tenant that owns it. */
                tenant: string;
                trial: components["schemas"]["TrialRef"] | null;
                waiting: components["schemas"]["WaitingView"] | null;
                workers: components["schemas"]["Count"];
            }[];
        };
        /** @description One page of a list. */
        Page_MetricSeriesView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /**
                 * Format: int64
                 * @description Width of a bucket in steps, a power of two. It grows with the series. A point may cover more
                 *     steps, because nodes merge values that come faster than they report.
                 */
                bucket_steps: number;
                name: string;
                /** @description Ordered by step. */
                points: components["schemas"]["MetricBucketView"][];
            }[];
        };
        /** @description One page of a list. */
        Page_MetricView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /**
                 * Format: double
                 * @description The newest value.
                 */
                last: number;
                /**
                 * Format: int64
                 * @description Step of the newest value.
                 */
                last_step: number;
                /** Format: double */
                max: number;
                /** Format: double */
                min: number;
                /** @description Name as the program logs it. */
                name: string;
                /**
                 * Format: int64
                 * @description Number of logged values.
                 */
                values: number;
            }[];
        };
        /** @description One page of a list. */
        Page_NodeView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                capacity: components["schemas"]["Capacity"];
                /** @description Takes no new task; its tasks move away. */
                drained: boolean;
                excluded: components["schemas"]["Excluded"] | null;
                /**
                 * Format: int64
                 * @description Version of its assignment.
                 */
                generation: number;
                /** @description Ordered by index. */
                gpus: components["schemas"]["GpuView"][];
                id: components["schemas"]["NodeId"];
                /** Format: date-time */
                last_seen_at: string;
                name: string;
                notice: components["schemas"]["Notice"] | null;
                speed?: components["schemas"]["NodeSpeed"] | null;
                state: components["schemas"]["NodeState"];
                /**
                 * Format: int64
                 * @description Number of tasks of all tenants that have not ended; PS shards hold no GPU. Absent in answers
                 *     of older API servers.
                 */
                tasks?: number | null;
            }[];
        };
        /** @description One page of a list. */
        Page_PriorityClass: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /**
                 * Format: int32
                 * @description Priority of jobs whose documents state only the class.
                 */
                default: number;
                description: string;
                /**
                 * Format: int32
                 * @description Highest priority of its jobs.
                 */
                highest: number;
                /**
                 * Format: int32
                 * @description Lowest priority of its jobs.
                 */
                lowest: number;
                name: string;
                /** @description Access of the tokens that may use it. Administrators may use every class. */
                roles: components["schemas"]["Access"][];
                /**
                 * @description Names of the tenants whose jobs may have it; empty: all. A member sees only its own tenant
                 *     here.
                 */
                tenants: string[];
            }[];
        };
        /** @description One page of a list. */
        Page_RoundSummaryView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /**
                 * Format: date-time
                 * @description Time of the round.
                 */
                at: string;
                /**
                 * Format: int32
                 * @description Number of its decisions.
                 */
                decisions: number;
                /** Format: int64 */
                number: number;
                /** @description Name of the policy; null if the round does not contain it. */
                policy: string | null;
                totals: components["schemas"]["RoundTotals"] | null;
            }[];
        };
        /** @description One page of a list. */
        Page_ScheduleView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** Format: date-time */
                created_at: string;
                document: components["schemas"]["ScheduleDocument"];
                last: components["schemas"]["ScheduleRun"] | null;
                last_job: components["schemas"]["JobId"] | null;
                name: string;
                /** @description The next planned times, at most 5; empty while it is paused. */
                next: components["schemas"]["PlannedTime"][];
                /** @description User that stored it last; its jobs belong to this user. */
                owner: string;
                paused: components["schemas"]["SchedulePause"] | null;
                /** Format: date-time */
                updated_at: string;
            }[];
        };
        /** @description One page of a list. */
        Page_SecretView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** Format: date-time */
                created_at: string;
                name: string;
                /**
                 * Format: int64
                 * @description Number of open jobs whose document names it.
                 */
                open_jobs: number;
                /**
                 * Format: int64
                 * @description Number of open studies whose document names it.
                 */
                open_studies: number;
                /**
                 * Format: date-time
                 * @description Time of the present version.
                 */
                updated_at: string;
                /** @description Author of the present version. */
                updated_by: components["schemas"]["Actor"];
                /**
                 * Format: int64
                 * @description 1, and one more with each replacement.
                 */
                version: number;
            }[];
        };
        /** @description One page of a list. */
        Page_StudyView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /**
                 * @description The best trial, or with several objectives the first 10 of the Pareto front, without their
                 *     curves. `GET /studies/{id}/best` lists all.
                 */
                best: components["schemas"]["TrialView"][];
                /** Format: date-time */
                created_at: string;
                /** @description Name of the user that created it. */
                created_by: string;
                /** @description The document as submitted, with defaults filled in. */
                document: components["schemas"]["StudySpec"];
                /**
                 * Format: int64
                 * @description Number of facts that the search has read.
                 */
                events: number;
                /** Format: date-time */
                finished_at: string | null;
                id: components["schemas"]["StudyId"];
                labels: {
                    [key: string]: string;
                };
                name: string;
                phase: components["schemas"]["StudyPhase"];
                /** @description Name of the tenant that owns it. */
                tenant: string;
                trials: components["schemas"]["TrialCounts"];
            }[];
        };
        /** @description One page of a list. */
        Page_TaskView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** @description `host:port` of its data plane, once it listens. */
                address: string | null;
                /** Format: date-time */
                created_at: string;
                /** @description Indices of the node's GPUs or CPU slots that are assigned to the task. */
                gpus: number[];
                id: components["schemas"]["TaskId"];
                idle?: components["schemas"]["IdleView"] | null;
                job_id: components["schemas"]["JobId"];
                /** @description `worker-0`, `ps-1`; the same in every revision. */
                name: string;
                node: string;
                node_id: components["schemas"]["NodeId"];
                /** @description How it ended, as text; null while it may hold resources. */
                outcome: string | null;
                pace?: components["schemas"]["PaceView"] | null;
                /**
                 * Format: double
                 * @description Rate of its job beside that one, divided by its rate alone; absent before it is measured. By
                 *     time slices both parts would add up to 1.
                 */
                rate_beside?: number | null;
                /**
                 * Format: date-time
                 * @description Time at which its exit was recorded; null while it may hold resources.
                 */
                released_at: string | null;
                /** Format: int64 */
                revision: number;
                role: components["schemas"]["Role"];
                shared_with?: components["schemas"]["JobId"] | null;
                state: components["schemas"]["TaskState"];
                usage?: components["schemas"]["Usage"] | null;
            }[];
        };
        /** @description One page of a list. */
        Page_TemplateView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** Format: date-time */
                created_at: string;
                document: components["schemas"]["TemplateDocument"];
                name: string;
                /**
                 * Format: date-time
                 * @description Time of the present version.
                 */
                updated_at: string;
                /** @description Author of the present version. */
                updated_by: components["schemas"]["Actor"];
                /**
                 * Format: int64
                 * @description 1, and one more with each replacement.
                 */
                version: number;
            }[];
        };
        /** @description One page of a list. */
        Page_TenantView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /**
                 * Format: int32
                 * @description Maximum number of GPUs or CPU slots that its jobs hold at one time; null: no limit.
                 */
                gpu_quota: number | null;
                /**
                 * Format: int32
                 * @description GPUs or CPU slots that its jobs hold now.
                 */
                gpus_in_use?: number;
                id: components["schemas"]["TenantId"];
                /** @description Whether its members may open remote sessions in the tasks of its jobs. */
                interactive?: boolean;
                /**
                 * Format: int32
                 * @description Jobs that hold at least one.
                 */
                jobs_in_use?: number;
                limits?: components["schemas"]["TenantLimits"];
                name: string;
                /** @description Cluster objects that the pods of its tasks may use. */
                pods?: components["schemas"]["TenantPods"];
                /** @description Caps on what its jobs may demand in `preemption`. */
                preemption?: components["schemas"]["TenantPreemption"];
                /**
                 * @description Whether measured speeds of its job families count for equal families of other tenants that
                 *     share, and theirs for its own.
                 */
                shares_families?: boolean;
                /** @description Current use of the limits. */
                used?: components["schemas"]["LimitsUse"];
                /**
                 * Format: double
                 * @description Share of the cluster relative to the weights of other tenants.
                 */
                weight: number;
            }[];
        };
        /** @description One page of a list. */
        Page_TokenView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                access: components["schemas"]["Access"];
                /** Format: date-time */
                created_at: string;
                /**
                 * Format: date-time
                 * @description Null: never.
                 */
                expires_at: string | null;
                id: components["schemas"]["TokenId"];
                /** @description Name that its owner gave it. */
                name: string;
                /** Format: date-time */
                revoked_at: string | null;
                /** @description Name of the user's tenant. */
                tenant: string;
                /** @description Name of the user for which its bearer acts. */
                user: string;
            }[];
        };
        /** @description One page of a list. */
        Page_TrialView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** @description Whether no other trial improves on it. */
                best: boolean;
                /**
                 * Format: int64
                 * @description Total budget of the trial so far, in units of the document's budget.
                 */
                budget: number;
                /** Format: date-time */
                created_at: string;
                /** @description Its learning curve by ascending step, at most 2048 points; empty if it was not requested. */
                curve: components["schemas"]["TrialPoint"][];
                /** Format: date-time */
                ended_at: string | null;
                /** @description Why it failed; null unless it did. */
                failure: string | null;
                from: components["schemas"]["TrialSource"] | null;
                job_id: components["schemas"]["JobId"] | null;
                job_phase: components["schemas"]["JobPhase"] | null;
                /**
                 * Format: int32
                 * @description From 0, in the order of creation.
                 */
                number: number;
                outcome: components["schemas"]["TrialPoint"] | null;
                /** @description By name. A parameter whose condition does not hold is absent. */
                parameters: Record<string, never>;
                /**
                 * Format: int32
                 * @description Number of times that its budget was raised.
                 */
                rung: number;
                /** @description Values at the end of each rung. */
                rungs: components["schemas"]["TrialPoint"][];
                /** Format: int64 */
                seed: number;
                state: components["schemas"]["TrialPhase"];
            }[];
        };
        /** @description One page of a list. */
        Page_UserView: {
            /** @description Value of the query parameter `continue` for the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** Format: date-time */
                created_at: string;
                id: components["schemas"]["UserId"];
                /** @description Unique within the tenant. */
                name: string;
                /** @description Name of the tenant. */
                tenant: string;
                /**
                 * Format: int64
                 * @description Tokens that are neither revoked nor expired.
                 */
                tokens: number;
            }[];
        };
        /**
         * @description A parameter of the search. Its value is written into the field of the job document that `field`
         *     names, by default `name`.
         */
        Parameter: {
            /** @description For categorical parameters: any JSON values, also whole lists of layers. */
            choices?: unknown[] | null;
            feasibleSpace?: components["schemas"]["FeasibleSpace"] | null;
            /**
             * @description Field of the job document for the value, such as `engine.optimizer.learning_rate` or
             *     `engine.model.hidden[0]`.
             */
            field?: string | null;
            /**
             * Format: double
             * @description The largest value; for numbers.
             */
            high?: number | null;
            /**
             * @description Search on the log scale of the value: as many trials between 0.001 and 0.01 as between 0.01
             *     and 0.1. `low` and `high` are values, never exponents as in some other tools.
             */
            log?: boolean | null;
            /**
             * Format: double
             * @description The smallest value; for numbers.
             */
            low?: number | null;
            /** @description 1 to 200 bytes, unique. */
            name: string;
            /** @description The choices have an order, so that neighbours are similar. */
            ordered?: boolean | null;
            /**
             * Format: double
             * @description Values are `low`, `low + step` and so on. Above 0; not with the log scale of a float.
             */
            step?: number | null;
            type: components["schemas"]["ParameterKind"];
            when?: components["schemas"]["Condition"] | null;
        };
        /** @enum {string} */
        ParameterKind: "float" | "int" | "categorical" | "discrete";
        /** @enum {string} */
        ParameterType: "string" | "int" | "float" | "bool";
        /** @description Effects of a job that was not submitted. */
        PlanView: {
            finish: components["schemas"]["Interval"] | null;
            /**
             * Format: double
             * @description Mean GPU-hours that it would hold over its life; 0 if `unforeseen` is given.
             */
            gpu_hours: number;
            /**
             * Format: date-time
             * @description Time of the cluster state on which the forecast is based.
             */
            made_at: string;
            /** @description The same for jobs of other tenants, without names. */
            other_jobs: components["schemas"]["ShiftedJobs"];
            /**
             * @description Jobs of the same tenant that would be stopped for it, or end at least half a minute earlier
             *     or later; at most 100.
             */
            own_jobs: components["schemas"]["ShiftedJob"][];
            start: components["schemas"]["Interval"] | null;
            unforeseen?: components["schemas"]["Unforeseen"] | null;
        };
        /** @description A time at which a schedule submits a job. */
        PlannedTime: {
            /** Format: date-time */
            at: string;
            /** @description The same time in the time zone of the schedule, such as `2026-03-29 03:00 CEST`. */
            local: string;
        };
        /**
         * @description Settings of the pods of a job's tasks. With `image` alone, or with volumes of the kinds
         *     `scratch` and `memory` beside it, the job also runs on nodes that start processes in images.
         *     With anything else it runs only on nodes whose tasks are pods.
         */
        Pod: {
            /**
             * @description Image in which the command runs, such as `registry.example.com/vision/trainer:3.2`. With
             *     `engine` the image is Muster's. At most 512 characters.
             * @default null
             */
            image: string | null;
            /**
             * @description Secrets with which the image is pulled, in addition to those of every task. At most 16.
             * @default []
             */
            pull_secrets: string[];
            /**
             * @description Variables whose values are keys of secrets. At most 64.
             * @default {}
             */
            secret_env: {
                [key: string]: components["schemas"]["SecretKey"];
            };
            /**
             * @description Additional mounts. At most 32.
             * @default []
             */
            volumes: components["schemas"]["Volume"][];
        };
        /**
         * @description Precision of products on a GPU and storage type of values between layers. Parameters, gradients,
         *     statistics and updates are always f32.
         * @enum {string}
         */
        Precision: "f32" | "tf32" | "bf16";
        /**
         * @description Batch with the most progress at the size and place of a job, as a round predicted it for the
         *     beginning of the remaining work. The coordinator may choose another one.
         */
        PredictedBatch: {
            /**
             * Format: int32
             * @description Batch in examples over all workers.
             */
            batch: number;
            /**
             * Format: int32
             * @description Smallest batch of the job (`engine.batch`). A step is an update with it.
             */
            smallest_batch: number;
            /**
             * Format: double
             * @description Progress in steps per second with `smallest_batch`.
             */
            smallest_steps_per_s: number;
            /**
             * Format: double
             * @description Progress in steps per second with `batch`.
             */
            steps_per_s: number;
        };
        /**
         * @description Whether and when the job makes room for other jobs. Its owner's orders, a drained node and a
         *     lowered quota stop it in any case.
         */
        Preemption: {
            /** @default restart */
            allowed: components["schemas"]["AllowedPreemption"];
            /** @default null */
            checkpoint_on_request: components["schemas"]["CheckpointOnRequest"] | null;
            /**
             * Format: int32
             * @description Seconds from the request to stop until the job's processes are killed; 1 to 600. Default:
             *     the cluster's grace.
             * @default null
             */
            grace_s: number | null;
            /**
             * Format: int32
             * @description Seconds that the job runs after each start and each resumption before it makes room for
             *     another job; 0 to 604800.
             * @default 0
             */
            min_runtime: number;
        };
        /** @description A range of job priorities, with the roles and tenants that may use it. */
        PriorityClass: {
            /**
             * Format: int32
             * @description Priority of jobs whose documents state only the class.
             */
            default: number;
            description: string;
            /**
             * Format: int32
             * @description Highest priority of its jobs.
             */
            highest: number;
            /**
             * Format: int32
             * @description Lowest priority of its jobs.
             */
            lowest: number;
            name: string;
            /** @description Access of the tokens that may use it. Administrators may use every class. */
            roles: components["schemas"]["Access"][];
            /**
             * @description Names of the tenants whose jobs may have it; empty: all. A member sees only its own tenant
             *     here.
             */
            tenants: string[];
        };
        /** @description A class without its name, to create or replace. */
        PriorityClassDocument: {
            /**
             * Format: int32
             * @description Priority of jobs whose documents state only the class; `lowest` to `highest`. Default: the
             *     number of the range that is nearest to 0.
             */
            default?: number | null;
            /** @description At most 255 characters, for users. */
            description?: string;
            /**
             * Format: int32
             * @description Highest priority of its jobs; `lowest` to 100.
             */
            highest: number;
            /**
             * Format: int32
             * @description Lowest priority of its jobs; -100 to 100.
             */
            lowest: number;
            /**
             * @description Access of the tokens that may use it; at least one. Default: `member`. Administrators may
             *     use every class.
             */
            roles?: components["schemas"]["Access"][];
            /** @description Names of the tenants whose jobs may have it; at most 256. Default: all. */
            tenants?: string[];
        };
        /** @description Why a request was not carried out (`application/problem+json`). Nothing was changed. */
        Problem: {
            /** @description The error of this request, and the expected values. */
            detail: string;
            /** @description One entry per error, with the field, its value and the expected value. */
            errors?: components["schemas"]["FieldError"][];
            /** @description `urn:muster:request:<id>`, by which the log of the API server identifies the request. */
            instance?: string | null;
            /**
             * Format: int32
             * @description HTTP status.
             */
            status: number;
            /** @description Title of the kind. */
            title: string;
            /**
             * @description Stable name of the kind of problem, such as `urn:muster:problem:invalid-job`. Programs
             *     should use it to distinguish problems.
             */
            type: string;
        };
        /**
         * @description New samples of one job. They replace all samples of steps after `after_step` that the reader
         *     has: a job that restarts from a checkpoint repeats those steps. Evaluations arrive as events.
         *
         *     The stream of a job contains its whole series. The stream of a tenant contains only the newest
         *     sample of each running job, at most one per second, for lists. There `after_step` is the step of
         *     the last message, or 0.
         */
        ProgressMessage: {
            /** Format: int64 */
            after_step: number;
            job_id: components["schemas"]["JobId"];
            /** @description Ordered by step; at most 500. Thinned evenly if more have arrived since the last message. */
            samples: components["schemas"]["SampleView"][];
        };
        /** @description Progress of a job. */
        ProgressView: {
            /**
             * Format: double
             * @description Share of training examples classified correctly, 0 to 1; null if the program has not
             *     reported it.
             */
            accuracy: number | null;
            /**
             * Format: double
             * @description Null if the program has not reported it.
             */
            epoch: number | null;
            /**
             * Format: double
             * @description Seconds until `total_steps` at the present rate. Null if the job does not run, or if its end
             *     is not a number of steps.
             */
            eta_s: number | null;
            evaluated_on: components["schemas"]["Split"] | null;
            /**
             * Format: double
             * @description Null if the program has not reported it.
             */
            examples_per_s: number | null;
            /**
             * Format: double
             * @description Steps that an update is worth, with the batch rules `adascale` and `goodput`.
             */
            gain?: number | null;
            /**
             * Format: double
             * @description Training loss; null if the program has not logged it.
             */
            loss: number | null;
            /** Format: date-time */
            sampled_at: string | null;
            /** Format: int64 */
            step: number;
            /**
             * Format: double
             * @description Null before the first sample.
             */
            steps_per_s: number | null;
            /**
             * Format: double
             * @description From the newest evaluation; null before the first, and if the program does not log it.
             */
            test_accuracy: number | null;
            /**
             * Format: double
             * @description From the newest evaluation; null before the first, and if the program does not log it.
             */
            test_loss: number | null;
            /**
             * Format: int64
             * @description The smaller of `stop.steps` and the steps of `stop.epochs`; null if neither is given.
             */
            total_steps: number | null;
        };
        /** @description Trials that a searcher outside has chosen. */
        Proposal: {
            /** @description 1 to 1000 trials, created in this order. */
            trials: components["schemas"]["ProposedTrial"][];
        };
        ProposedTrial: {
            /** @description One value for each parameter of the space whose condition holds. */
            parameters: Record<string, never>;
        };
        PsShardResources: {
            /**
             * Format: int64
             * @default 100
             */
            cpu_milli: number;
            /**
             * Format: int64
             * @description Bytes, or a text with a unit such as 16Gi or 500M; 64 MiB to 4 TiB.
             * @default 268435456
             */
            memory_bytes: number;
        };
        /** @description Python environment of a program. It is made once for each node and equal requirements. */
        PythonEnvironment: {
            /**
             * @description File of the program's code or `files`: requirements for pip, such as `requirements.txt`, or
             *     a lock file, `uv.lock` beside its `pyproject.toml` or `pylock.toml`. Packages of the node's
             *     `python3` stay visible, except with a lock file.
             */
            requirements: string;
        };
        /** @description Both bounds are included. 1 to 1024; 0 to 0 for shards that the topology does not have. */
        Range: {
            /** Format: int32 */
            max: number;
            /** Format: int32 */
            min: number;
        };
        /**
         * @description Learning rate for gradients that were computed on old parameters.
         * @enum {string}
         */
        Rate: "constant" | "by_staleness";
        /**
         * @description Refusal of a task whose GPUs were free: other pods hold the resources, or the node has less than
         *     its capacity says.
         */
        Refused: {
            /** @description Reason that the node reported. */
            message: string;
            /** @description Name of the node. */
            node: string;
            /**
             * Format: int32
             * @description Number of consecutive refusals of the job's start.
             */
            times: number;
        };
        /**
         * @description Remedy of a verdict.
         * @enum {string}
         */
        Remedy: "replaced" | "left_out" | "restarted";
        /** @description Purpose of a session. */
        RemoteAction: {
            /** @description Program and arguments: at most 256, with 16 KiB together. The history shows them. */
            command: string[];
            /** @enum {string} */
            kind: "exec";
            terminal?: components["schemas"]["Terminal"] | null;
        } | {
            /** @enum {string} */
            kind: "port";
            /** Format: int32 */
            port: number;
        } | {
            /** @enum {string} */
            kind: "read";
            /** @description Relative to the working folder of the program, or absolute. */
            path: string;
        } | {
            /** @enum {string} */
            kind: "write";
            /**
             * @description Target, relative to the working folder of the program, or absolute. An existing folder
             *     receives the entries of the archive. Otherwise the first entry gets this name.
             */
            path: string;
        };
        /** @description End of a session. */
        RemoteEnd: {
            /** Format: int32 */
            code: number;
            /** @enum {string} */
            kind: "exited";
        } | {
            /** @enum {string} */
            kind: "signalled";
            /** Format: int32 */
            signal: number;
        } | {
            /** @enum {string} */
            kind: "closed";
        } | {
            /** @enum {string} */
            kind: "client_gone";
        } | {
            /** @enum {string} */
            kind: "failed";
            message: string;
        };
        /**
         * Format: uuid
         * @description One remote session in a task.
         */
        RemoteSessionId: string;
        /** @description Result of a request to a user's program for a checkpoint. */
        RequestResult: {
            /** @enum {string} */
            kind: "reported";
            /** Format: int64 */
            step: number;
        } | {
            /** @enum {string} */
            kind: "ended";
        } | {
            /** @enum {string} */
            kind: "timed_out";
        };
        /**
         * @description Signal that asks a program for a checkpoint.
         * @enum {string}
         */
        RequestSignal: "USR1" | "USR2" | "HUP";
        /**
         * @description Why a job left its GPUs and returned to the queue.
         * @enum {string}
         */
        RequeueCause: "resize" | "preempted" | "over_quota" | "task_failed" | "node_lost";
        /** @description Resources of one task of each role. */
        Resources: {
            ps_shard?: components["schemas"]["PsShardResources"];
            worker?: components["schemas"]["WorkerResources"];
        };
        /** @description Result of revoking all tokens of a user. */
        RevokedTokens: {
            /**
             * Format: int64
             * @description Number of tokens that were revoked by this request.
             */
            revoked: number;
        };
        /** @description Role of a task in its job. */
        Role: {
            /** @enum {string} */
            kind: "worker";
            /** Format: int32 */
            rank: number;
        } | {
            /** Format: int32 */
            index: number;
            /** @enum {string} */
            kind: "ps_shard";
        };
        /** @description One entry of the list of rounds. */
        RoundSummaryView: {
            /**
             * Format: date-time
             * @description Time of the round.
             */
            at: string;
            /**
             * Format: int32
             * @description Number of its decisions.
             */
            decisions: number;
            /** Format: int64 */
            number: number;
            /** @description Name of the policy; null if the round does not contain it. */
            policy: string | null;
            totals: components["schemas"]["RoundTotals"] | null;
        };
        /** @description GPUs of the nodes that are up, after a round. */
        RoundTotals: {
            /** Format: int32 */
            free_gpus: number;
            /** Format: int32 */
            gpus: number;
            /** Format: int32 */
            held_gpus: number;
            /** Format: int32 */
            waiting_jobs: number;
        };
        /**
         * @description A complete round. Its parts are passed on byte for byte, so that a replay can be compared with
         *     them.
         */
        RoundView: {
            /** Format: date-time */
            at: string;
            /** Format: int64 */
            number: number;
            /** @description Decisions of the round. */
            plan: Record<string, never>;
            /** @description Policy settings of the round; null in rounds of releases that did not store them. */
            policy: Record<string, never> | null;
            /** @description Reasons of the decisions. */
            report: Record<string, never>;
            /** @description Input of the round: nodes, tenants and jobs at one time. */
            snapshot: Record<string, never>;
        };
        /**
         * @description Rounding of a number to the 16-bit format.
         * @enum {string}
         */
        Rounding: "nearest" | "stochastic";
        /** @description The best change that a round rejected because no capacity was left. */
        RunnerUpView: {
            /**
             * Format: double
             * @description Seconds saved per share of the cluster.
             */
            gain: number;
            job_id: components["schemas"]["JobId"];
            /** @description Null for a job of another tenant. */
            name: string | null;
        };
        /** @description GPUs of one kind. */
        SaidOfGpus: {
            compute_capability?: components["schemas"]["ComputeCapability"] | null;
            /**
             * Format: int64
             * @description Memory of one GPU; 0 is unknown.
             */
            memory_bytes: number;
            /** @description Product name, such as `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`: 1 to 253 characters. */
            model: string;
        };
        /**
         * @description Notice about a node. Only here unknown fields are refused, because daemons of other releases
         *     read the stored form.
         */
        SaidOfNode: {
            /**
             * @description Sender of the notice. Absent: an administrator. An operator replaces only notices that it
             *     sent itself.
             */
            by?: string | null;
            closed: components["schemas"]["Closed"];
            gpus?: components["schemas"]["SaidOfGpus"] | null;
            /**
             * @description Labels of the machine, to which jobs can refer in `node_selector`; at most 256. They precede
             *     the executor's labels.
             */
            labels?: {
                [key: string]: string;
            };
            /** @description Rack of the node. It precedes the executor's setting. */
            rack?: string | null;
            /**
             * Format: int32
             * @description Number of GPUs that pods outside Muster hold; jobs get the others.
             */
            taken?: number;
            /** @description Why the node is closed, or what holds some of its GPUs; at most 500 characters. */
            why?: string;
        };
        /**
         * @description One point of the training series, reported by the coordinator (rank 0 worker). Rates and times
         *     are means since the last point. A user's program logs only some of the numbers; the others are
         *     null.
         */
        Sample: {
            /**
             * Format: double
             * @description Share of training examples classified correctly since the last sample, 0 to 1.
             */
            accuracy: number | null;
            /**
             * Format: double
             * @description Milliseconds of forward and backward pass per update. An update is one step unless `gain` is
             *     given.
             */
            compute_ms: number | null;
            /**
             * Format: double
             * @description Milliseconds per update for preparing the batch.
             */
            data_ms: number | null;
            /**
             * Format: double
             * @description Epochs done, fractional.
             */
            epoch: number;
            /**
             * Format: double
             * @description Examples per second of all workers together.
             */
            examples_per_s: number | null;
            /**
             * Format: double
             * @description Milliseconds per update for pushing gradients and waiting for new parameters.
             */
            exchange_ms: number | null;
            /**
             * Format: double
             * @description Steps that an update is worth, with the batch rules `adascale` and `goodput`.
             */
            gain?: number | null;
            /**
             * Format: double
             * @description Mean training loss per example since the last sample.
             */
            loss: number;
            /**
             * Format: double
             * @description Gradient noise scale in examples (McCandlish et al., 2018), if several workers sum
             *     gradients. A batch well below it gains from more examples; a batch well above it does not.
             */
            noise_scale?: number | null;
            /** Format: int32 */
            ps_shards: number;
            /**
             * Format: int64
             * @description Optimizer steps done over the whole life of the job.
             */
            step: number;
            /** Format: double */
            steps_per_s: number;
            /** Format: int32 */
            workers: number;
        };
        /** @description One point of the training series. */
        SampleView: components["schemas"]["Sample"] & {
            /** Format: date-time */
            at: string;
        };
        /** @description Sizes between which the scheduler may choose. */
        Scale: {
            /** @description The job runs on 1, 2, 4, 8… workers only. */
            power_of_two?: boolean;
            ps_shards?: components["schemas"]["Range"] | null;
            workers?: components["schemas"]["Range"];
        };
        /**
         * @description Linear warm-up, then decay. Steps are updates of the parameters and count from the start of the
         *     job. Under `ssp` and `asp` each push of a worker is one update.
         */
        Schedule: {
            /**
             * @default {
             *       "kind": "constant"
             *     }
             */
            decay: components["schemas"]["Decay"];
            /**
             * Format: int64
             * @description Steps over which the rate rises linearly; the last of them has the full rate (Goyal et al.,
             *     2017).
             * @default 0
             */
            warmup_steps: number;
        };
        /**
         * @description A change of a schedule, for the history.
         * @enum {string}
         */
        ScheduleChange: "stored" | "paused" | "resumed" | "deleted";
        /** @description A schedule as users write it. */
        ScheduleDocument: {
            catch_up?: components["schemas"]["CatchUp"];
            /**
             * @description Minute, hour, day of the month, month and day of the week, such as `0 3 * * mon-fri`; or
             *     `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`.
             */
            cron: string;
            /** @description Document of each job. */
            job: components["schemas"]["JobSpec"];
            overlap?: components["schemas"]["Overlap"];
            /** @description IANA name of a time zone, such as `Europe/Berlin`. */
            time_zone?: string;
        };
        /**
         * @description Why a schedule submits nothing.
         * @enum {string}
         */
        SchedulePause: "by_user" | "owner_without_token";
        ScheduleResult: {
            job: components["schemas"]["JobId"];
            /** @enum {string} */
            kind: "submitted";
        } | {
            /** @enum {string} */
            kind: "skipped";
            reason: string;
        } | {
            /** @enum {string} */
            kind: "refused";
            reason: string;
        };
        /** @description Result of a planned time. */
        ScheduleRun: {
            /**
             * Format: date-time
             * @description When the API server came to it.
             */
            at: string;
            /**
             * Format: date-time
             * @description The planned time.
             */
            planned_at: string;
            result: components["schemas"]["ScheduleResult"];
        };
        /** @description Schedule of a tenant. */
        ScheduleView: {
            /** Format: date-time */
            created_at: string;
            document: components["schemas"]["ScheduleDocument"];
            last: components["schemas"]["ScheduleRun"] | null;
            last_job: components["schemas"]["JobId"] | null;
            name: string;
            /** @description The next planned times, at most 5; empty while it is paused. */
            next: components["schemas"]["PlannedTime"][];
            /** @description User that stored it last; its jobs belong to this user. */
            owner: string;
            paused: components["schemas"]["SchedulePause"] | null;
            /** Format: date-time */
            updated_at: string;
        };
        /**
         * @description Everything on which a search depends, including its seed. The same document and the same events
         *     give the same trials.
         */
        SearchSpec: {
            budget?: components["schemas"]["Budget"];
            /**
             * Format: int32
             * @description Maximum number of trials that run at the same time; 1 to 1000.
             */
            concurrency?: number;
            /**
             * @description Inequalities between parameters, such as `width * depth <= 4096`. A trial that breaks one is
             *     never started. A constraint does not apply to a trial that lacks one of its parameters.
             */
            constraints?: string[];
            /**
             * Format: int32
             * @description Number of failed trials after which the study gives up; 0 to 100,000.
             */
            max_failures?: number;
            /** @description One to four metrics. With two or more, the study keeps a Pareto front. */
            objectives: components["schemas"]["Objective"][];
            parameters: components["schemas"]["Parameter"][];
            /**
             * @description Results count in the order in which their work was handed out, so the trials do not depend
             *     on the speed of the machines. A slot may then wait for an older result.
             */
            reproducible?: boolean;
            searcher?: components["schemas"]["Searcher"];
            /** Format: int64 */
            seed?: number;
            stopper?: components["schemas"]["Stopper"];
            /**
             * Format: int32
             * @description Maximum number of trials in total; 1 to 100,000.
             */
            trials: number;
        };
        Searcher: {
            /** @enum {string} */
            kind: "grid";
        } | {
            /** @enum {string} */
            kind: "random";
        } | {
            /** @enum {string} */
            kind: "external";
        } | {
            /** @enum {string} */
            kind: "sobol";
        } | {
            /**
             * Format: int32
             * @description Draws of which the best is taken; 1 to 10,000.
             */
            candidates?: number;
            /** @enum {string} */
            kind: "tpe";
            /**
             * Format: int32
             * @description Sobol points before the first estimate; 1 to 10,000.
             */
            startup?: number;
        } | {
            /** @enum {string} */
            kind: "gp";
            /**
             * Format: int32
             * @description Sobol points before the first fit; 1 to 10,000.
             */
            startup?: number;
        } | {
            /** @enum {string} */
            kind: "cma_es";
            /**
             * Format: int32
             * @description 4 to 1000. Default: 4 + 3 ln(parameters).
             */
            population?: number | null;
            /**
             * Format: double
             * @description First step size as a share of the range; 0.001 to 1.
             */
            sigma?: number;
        } | {
            /** @enum {string} */
            kind: "evolution";
            /**
             * Format: int32
             * @description 2 to 10,000.
             */
            population?: number;
            /**
             * Format: int32
             * @description 1 to `population`.
             */
            tournament?: number;
        };
        /** @description Destination of one task of a migrating job. */
        Seat: {
            /** @description Indices of the node's GPUs or CPU slots. */
            gpus: number[];
            node: components["schemas"]["NodeId"];
            role: components["schemas"]["Role"];
        };
        /** @description One value of a secret. */
        SecretKey: {
            key: string;
            /** @description Name of the secret. */
            secret: string;
        };
        /**
         * @description A secret of the tenant (`PUT /secrets/{name}`) that the program receives, by default as an
         *     environment variable of the secret's name. At most one of `env` and `file` is given.
         */
        SecretRef: {
            /** @description Another environment variable. */
            env?: string | null;
            /** @description File of this name in the folder `$MUSTER_SECRETS_DIR`, in place of a variable. */
            file?: string | null;
            /** @description Name of a secret of this tenant. `muster secrets set NAME` stores one. */
            name: string;
        };
        /** @description Answer to `PUT /secrets/{name}`. */
        SecretVersion: {
            name: string;
            /** Format: date-time */
            updated_at: string;
            /**
             * Format: int64
             * @description 1 for a new secret.
             */
            version: number;
        };
        /** @description Secret of a tenant, without its value. */
        SecretView: {
            /** Format: date-time */
            created_at: string;
            name: string;
            /**
             * Format: int64
             * @description Number of open jobs whose document names it.
             */
            open_jobs: number;
            /**
             * Format: int64
             * @description Number of open studies whose document names it.
             */
            open_studies: number;
            /**
             * Format: date-time
             * @description Time of the present version.
             */
            updated_at: string;
            /** @description Author of the present version. */
            updated_by: components["schemas"]["Actor"];
            /**
             * Format: int64
             * @description 1, and one more with each replacement.
             */
            version: number;
        };
        /**
         * @description The training series of a job. After a restart from a checkpoint the job repeats the steps after
         *     it; the series then contains only their newer samples.
         */
        SeriesView: {
            /** @description Ordered by step; all of them. */
            evaluations: components["schemas"]["EvaluationView"][];
            /** @description Ordered by step; thinned evenly to the requested number. */
            samples: components["schemas"]["SampleView"][];
        };
        Shift: {
            /** Format: double */
            after: number;
            /** Format: double */
            before: number;
        };
        /** @description A job whose expected times a change would shift. */
        ShiftedJob: {
            /**
             * @description Whether it would be stopped for other jobs. A program without a known checkpoint would start
             *     from the beginning.
             */
            displaced: boolean;
            id: components["schemas"]["JobId"];
            /**
             * Format: double
             * @description Seconds by which its expected end would be later; earlier if negative. Null if one of the
             *     two ends cannot be predicted.
             */
            later_s: number | null;
            name: string;
        };
        /** @description Number of jobs that a change would affect. */
        ShiftedJobs: {
            /**
             * Format: int32
             * @description Stopped for other jobs.
             */
            displaced: number;
            /**
             * Format: int32
             * @description Ending at least half a minute earlier.
             */
            earlier: number;
            /**
             * Format: int32
             * @description Ending at least half a minute later.
             */
            later: number;
        };
        /** @description Resource of which one worker needs more than any node has. */
        Short: {
            /** Format: int64 */
            largest_node_bytes: number;
            /** Format: int64 */
            needed_bytes: number;
            /** @enum {string} */
            of: "memory";
        } | {
            /** Format: int64 */
            largest_node_milli: number;
            /** Format: int64 */
            needed_milli: number;
            /** @enum {string} */
            of: "cpu";
        };
        /** @description Height and width: one number for both, or `[height, width]`. */
        Sides: number | number[];
        /**
         * @description Data on which an evaluation was made.
         * @enum {string}
         */
        Split: "test" | "validation";
        /**
         * @description When training ends: at the first of these conditions. At least one of `epochs`, `steps` and
         *     `wall_minutes` is required.
         */
        Stop: {
            /** @default null */
            convergence: components["schemas"]["Convergence"] | null;
            /**
             * Format: int64
             * @default null
             */
            epochs: number | null;
            /**
             * Format: int64
             * @default null
             */
            steps: number | null;
            /** @default null */
            target: components["schemas"]["Target"] | null;
            /**
             * Format: double
             * @description Minutes of training time, without waiting.
             * @default null
             */
            wall_minutes: number | null;
        };
        /**
         * @description Rule that decides how far each trial trains. Budgets are in the unit of the search's `budget`,
         *     of which a trial gets at most `budget.max`.
         */
        Stopper: {
            /** @enum {string} */
            kind: "none";
        } | {
            /** @enum {string} */
            kind: "median";
            /**
             * Format: int32
             * @description Trials that must have ended before any is stopped; 1 to 10,000.
             */
            startup?: number;
            /**
             * Format: int64
             * @description Step before which no trial is stopped; 0 or more.
             */
            warmup?: number;
        } | {
            /** Format: int32 */
            eta?: number;
            /** @enum {string} */
            kind: "successive_halving";
            /**
             * Format: int64
             * @description Budget of the first rung; 1 to `budget.max`.
             */
            min?: number;
        } | {
            /** Format: int32 */
            eta?: number;
            /** @enum {string} */
            kind: "hyperband";
            /** Format: int64 */
            min?: number;
        } | {
            /** Format: int32 */
            eta?: number;
            /** @enum {string} */
            kind: "asha";
            /** Format: int64 */
            min?: number;
        } | {
            /**
             * Format: int64
             * @description Budget after which a trial is judged again; 1 to `budget.max`.
             */
            boundary?: number;
            /**
             * Format: double
             * @description Probability of reaching the target below which a trial is hopeless; 0 to 0.5.
             */
            hopeless?: number;
            /** @enum {string} */
            kind: "hyper_drive";
            /**
             * Format: int32
             * @description Smallest number of points of a curve that is judged; 3 to 1000.
             */
            min_points?: number;
        } | {
            /**
             * Format: int64
             * @description Budget between two comparisons; 1 to `budget.max`.
             */
            interval: number;
            /** @enum {string} */
            kind: "pbt";
            /**
             * Format: int32
             * @description Number of trials in the population; 2 to 1000.
             */
            population: number;
            /**
             * Format: double
             * @description Share of the worst trials that are replaced, and of the best that replace them; 0.05 to
             *     0.5.
             */
            quantile?: number;
            /**
             * Format: double
             * @description Probability that a parameter is drawn anew instead of changed by a fifth; 0 to 1.
             */
            resample?: number;
        };
        /** @description Number of additional trials. */
        StudyExtension: {
            /**
             * Format: int32
             * @description 1 to 100,000.
             */
            trials: number;
        };
        /**
         * Format: uuid
         * @description One search over parameters.
         */
        StudyId: string;
        /** @enum {string} */
        StudyKind: "study";
        /**
         * @description State of a study.
         * @enum {string}
         */
        StudyPhase: "created" | "running" | "paused" | "closing" | "finished" | "cancelled";
        /** @description A study: a search over the parameters of a job. */
        StudySpec: {
            /**
             * @description A job document without `version`, `name` and `labels`, which are those of the study. Fields
             *     of parameters may be left out. Without `job`, a program outside trains the trials and
             *     reports the results.
             */
            job?: Record<string, never> | null;
            kind: components["schemas"]["StudyKind"];
            labels?: {
                [key: string]: string;
            };
            /** @description 1 to 55 characters of `a-z`, `0-9` and `-`. Trials are named `name-0`, `name-1` and so on. */
            name: string;
            search: components["schemas"]["SearchSpec"];
            version: components["schemas"]["Version"];
        };
        /** @description A study. */
        StudyView: {
            /**
             * @description The best trial, or with several objectives the first 10 of the Pareto front, without their
             *     curves. `GET /studies/{id}/best` lists all.
             */
            best: components["schemas"]["TrialView"][];
            /** Format: date-time */
            created_at: string;
            /** @description Name of the user that created it. */
            created_by: string;
            /** @description The document as submitted, with defaults filled in. */
            document: components["schemas"]["StudySpec"];
            /**
             * Format: int64
             * @description Number of facts that the search has read.
             */
            events: number;
            /** Format: date-time */
            finished_at: string | null;
            id: components["schemas"]["StudyId"];
            labels: {
                [key: string]: string;
            };
            name: string;
            phase: components["schemas"]["StudyPhase"];
            /** @description Name of the tenant that owns it. */
            tenant: string;
            trials: components["schemas"]["TrialCounts"];
        };
        /**
         * @description Suspicion against a worker that seems to hold up the others. It becomes a verdict after the time
         *     in the job's document.
         */
        SuspectedView: {
            of: components["schemas"]["Suspicion"];
            /** Format: date-time */
            since: string;
        };
        /** @enum {string} */
        Suspicion: "hang" | "straggler";
        /** @description Stop once `metric` reaches `value`. */
        Target: {
            goal?: components["schemas"]["Goal"] | null;
            /**
             * @description `test_accuracy` or `test_loss`, which evaluations measure, or for a command any metric that
             *     it logs, such as `val/f1`.
             */
            metric: string;
            /**
             * Format: double
             * @description For `test_accuracy` above 0 and at most 1, for `test_loss` above 0.
             */
            value: number;
        };
        /**
         * Format: uuid
         * @description One start of a process of a job, at one revision.
         */
        TaskId: string;
        /** @description What separates process tasks of different tenants on a node. */
        TaskIsolation: {
            /** @enum {string} */
            kind: "tenant_users";
            /**
             * @description Why tasks share `/tmp` and see the processes of other tenants. Null: they have a `/tmp`
             *     of their own and see only their tenant's processes.
             */
            shared_view?: string | null;
        } | {
            /** @enum {string} */
            kind: "shared_user";
        } | {
            /** @enum {string} */
            kind: "executor_user";
        };
        /** @description State of a task. */
        TaskState: {
            /** @enum {string} */
            phase: "assigned";
        } | {
            /** @enum {string} */
            phase: "running";
        } | {
            /** @enum {string} */
            phase: "suspending";
        } | {
            /** @enum {string} */
            phase: "suspended";
        } | {
            /** @enum {string} */
            phase: "stopping";
        } | {
            /** @enum {string} */
            phase: "ending";
        } | {
            outcome: components["schemas"]["Outcome"];
            /** @enum {string} */
            phase: "released";
        };
        /** @description One process of a job. */
        TaskView: {
            /** @description `host:port` of its data plane, once it listens. */
            address: string | null;
            /** Format: date-time */
            created_at: string;
            /** @description Indices of the node's GPUs or CPU slots that are assigned to the task. */
            gpus: number[];
            id: components["schemas"]["TaskId"];
            idle?: components["schemas"]["IdleView"] | null;
            job_id: components["schemas"]["JobId"];
            /** @description `worker-0`, `ps-1`; the same in every revision. */
            name: string;
            node: string;
            node_id: components["schemas"]["NodeId"];
            /** @description How it ended, as text; null while it may hold resources. */
            outcome: string | null;
            pace?: components["schemas"]["PaceView"] | null;
            /**
             * Format: double
             * @description Rate of its job beside that one, divided by its rate alone; absent before it is measured. By
             *     time slices both parts would add up to 1.
             */
            rate_beside?: number | null;
            /**
             * Format: date-time
             * @description Time at which its exit was recorded; null while it may hold resources.
             */
            released_at: string | null;
            /** Format: int64 */
            revision: number;
            role: components["schemas"]["Role"];
            shared_with?: components["schemas"]["JobId"] | null;
            state: components["schemas"]["TaskState"];
            usage?: components["schemas"]["Usage"] | null;
        };
        /** @description Results of trials that were trained outside. */
        Tell: {
            ask?: components["schemas"]["Ask"] | null;
            /** @description 1 to 1000 results, read in this order. */
            results: components["schemas"]["TrialResult"][];
        };
        /** @description Trials that should stop, and the requested trials. */
        TellAnswer: {
            asked?: components["schemas"]["Asked"] | null;
            /** @description Reported trials that the study has stopped by now. */
            stopped: number[];
        };
        /** @description A template as users write it. */
        TemplateDocument: {
            /** @description Text for users, at most 1000 characters. */
            description?: string;
            /**
             * @description Job document in which `${NAME}` stands for a parameter, and `$${` for `${`. A string that is
             *     only `${NAME}` becomes a value of the parameter's type.
             */
            job: Record<string, never>;
            /** @description At most 64; each must occur in `job`. */
            parameters?: components["schemas"]["TemplateParameter"][];
        };
        /** @description A parameter of a template. */
        TemplateParameter: {
            /** @description Allowed values; empty: all of the type. At most 100. */
            choices?: unknown[];
            /** @description Value if a submission gives none. Without it the parameter is required. */
            default?: unknown;
            /** @description Text for users. */
            description?: string;
            /** @description 1 to 63 characters of `a-z`, `0-9` and `_`, beginning with a letter. */
            name: string;
            type: components["schemas"]["ParameterType"];
        };
        /** @description Body of `POST /templates/{name}/submit`. */
        TemplateValues: {
            /** @description Values of parameters by name; those with a default may be left out. */
            parameters?: Record<string, never>;
        };
        /** @description Template of a tenant. */
        TemplateView: {
            /** Format: date-time */
            created_at: string;
            document: components["schemas"]["TemplateDocument"];
            name: string;
            /**
             * Format: date-time
             * @description Time of the present version.
             */
            updated_at: string;
            /** @description Author of the present version. */
            updated_by: components["schemas"]["Actor"];
            /**
             * Format: int64
             * @description 1, and one more with each replacement.
             */
            version: number;
        };
        /**
         * @description Change of a tenant's quota, weight, pods, limits, caps on preemption, sharing of families and
         *     remote sessions. A field that is left out stays.
         */
        TenantChange: {
            /**
             * Format: int32
             * @description Null removes the limit; a field that is left out stays.
             */
            gpu_quota?: number | null;
            /**
             * @description Whether its members may open remote sessions (`muster exec`, `port-forward`, `cp`) in the
             *     tasks of its jobs.
             */
            interactive?: boolean | null;
            limits?: components["schemas"]["LimitsChange"] | null;
            pods?: components["schemas"]["TenantPodsChange"] | null;
            preemption?: components["schemas"]["TenantPreemptionChange"] | null;
            /** @description Whether measured speeds of its job families are shared with the other tenants that share. */
            shares_families?: boolean | null;
            /**
             * Format: double
             * @description 0.001 to 1000: share of the cluster relative to the weights of other tenants.
             */
            weight?: number | null;
        };
        /**
         * Format: uuid
         * @description Owner of jobs and quota; a column of every row of the store.
         */
        TenantId: string;
        /** @description Limits of a tenant. */
        TenantLimits: {
            /**
             * Format: int64
             * @description Maximum bytes of the artifacts of all jobs.
             */
            artifact_bytes: number;
            /**
             * Format: int64
             * @description Maximum bytes of stored code archives. Unused ones are removed.
             */
            code_bytes: number;
            /**
             * Format: int64
             * @description Maximum number of GPUs and CPU slots of interactive jobs that have not ended. The default
             *     limits nothing in practice.
             */
            interactive_gpus: number;
            /**
             * Format: int64
             * @description Maximum bytes of the artifacts of one job.
             */
            job_artifact_bytes: number;
            /**
             * Format: int64
             * @description Maximum number of artifacts of one job.
             */
            job_artifacts: number;
            /**
             * Format: int64
             * @description Maximum number of listed checkpoints of one job. The oldest are removed from the list,
             *     pruned ones first.
             */
            job_checkpoints: number;
            /**
             * Format: int64
             * @description Maximum bytes of these events.
             */
            job_event_bytes: number;
            /**
             * Format: int64
             * @description Maximum number of events that the tasks of one job report, including evaluations. Later ones
             *     are dropped.
             */
            job_events: number;
            /**
             * Format: int64
             * @description Maximum bytes of stored output of the tasks of one job; above it the oldest output is
             *     removed.
             */
            job_log_bytes: number;
            /**
             * Format: int64
             * @description Maximum number of points in the series of one job; above it only the newest sample is kept.
             *     The default is three weeks at one sample per second.
             */
            job_points: number;
            /**
             * Format: int64
             * @description Maximum bytes of the documents of these jobs, as JSON. The default is about 5 KiB per job.
             */
            open_job_bytes: number;
            /**
             * Format: int64
             * @description Maximum number of jobs that have not ended, including trials of studies. The default is the
             *     load with which the scheduler is measured.
             */
            open_jobs: number;
            /**
             * Format: int64
             * @description Maximum number of studies that have not finished.
             */
            open_studies: number;
            /**
             * Format: int64
             * @description Maximum number of schedules.
             */
            schedules: number;
            /**
             * Format: int64
             * @description Maximum number of stored secrets.
             */
            secrets: number;
            /**
             * Format: int64
             * @description Maximum number of stored templates.
             */
            templates: number;
            /**
             * Format: int64
             * @description Maximum number of tokens that are neither revoked nor expired.
             */
            tokens: number;
            /**
             * Format: int64
             * @description Maximum number of such tokens of one user.
             */
            user_tokens: number;
        };
        /**
         * @description Cluster objects that the pods of a tenant's tasks may use. By default any image and nothing
         *     else.
         */
        TenantPods: {
            /**
             * @description Volume claims that jobs may mount. At most 256.
             * @default []
             */
            claims: string[];
            /**
             * @description ConfigMaps that jobs may mount. At most 256.
             * @default []
             */
            config_maps: string[];
            /**
             * @description Images that jobs may name: a full name or a prefix with `*`. A prefix ends with `/`
             *     (`registry.example.com/vision/*`), with `:` or `@` (any tag or digest of one image), or
             *     within a folder (`registry.example.com/vision/trainer-*`, without deeper folders). An empty
             *     list allows any image, as `*` does; no list forbids all images. At most 256.
             * @default []
             */
            images: string[];
            /**
             * @description Secrets that jobs may mount, read variables from and pull images with. At most 256.
             * @default []
             */
            secrets: string[];
            /**
             * @description Service account of the tasks, whose token they get; the cluster's default for tasks if left
             *     out. A change takes effect at a task's next start.
             * @default null
             */
            service_account: string | null;
        };
        /**
         * @description Change of the cluster objects that a tenant's pods may use. A given list replaces the whole
         *     earlier list; a list that is left out stays.
         */
        TenantPodsChange: {
            /** @description Volume claims that jobs may mount. At most 256. */
            claims?: string[] | null;
            /** @description ConfigMaps that jobs may mount. At most 256. */
            config_maps?: string[] | null;
            /** @description Images that jobs may name, as in `TenantPods`; an empty list allows any image. At most 256. */
            images?: string[] | null;
            /** @description Secrets that jobs may mount, read variables from and pull images with. At most 256. */
            secrets?: string[] | null;
            /**
             * @description Service account of the tasks. Null selects the cluster's default for tasks; a field that is
             *     left out stays.
             */
            service_account?: string | null;
        };
        /**
         * @description Caps on the `preemption` part of the job documents of a tenant. A field that is left out has no
         *     cap.
         */
        TenantPreemption: {
            /** @default null */
            allowed: components["schemas"]["AllowedPreemption"] | null;
            /**
             * Format: int32
             * @description Largest `preemption.grace_s`; 1 to 600.
             * @default null
             */
            grace_s: number | null;
            /**
             * Format: int32
             * @description Largest `preemption.min_runtime` in seconds; 0 to 604800.
             * @default null
             */
            min_runtime: number | null;
            /**
             * Format: int32
             * @description Largest `preemption.checkpoint_on_request.timeout_s`; 1 to 3600.
             * @default null
             */
            timeout_s: number | null;
        };
        /** @description Change of a tenant's caps on `preemption`. A field that is left out stays; null removes the cap. */
        TenantPreemptionChange: {
            allowed?: components["schemas"]["AllowedPreemption"] | null;
            /**
             * Format: int32
             * @description Largest `preemption.grace_s`; 1 to 600.
             */
            grace_s?: number | null;
            /**
             * Format: int32
             * @description Largest `preemption.min_runtime` in seconds; 0 to 604800.
             */
            min_runtime?: number | null;
            /**
             * Format: int32
             * @description Largest `preemption.checkpoint_on_request.timeout_s`; 1 to 3600.
             */
            timeout_s?: number | null;
        };
        /** @description Means over a tenant's jobs, in seconds since their submission. */
        TenantShift: {
            jct_s: components["schemas"]["Shift"] | null;
            /** Format: int32 */
            jobs: number;
            tenant: string;
            wait_s: components["schemas"]["Shift"] | null;
        };
        TenantView: {
            /**
             * Format: int32
             * @description Maximum number of GPUs or CPU slots that its jobs hold at one time; null: no limit.
             */
            gpu_quota: number | null;
            /**
             * Format: int32
             * @description GPUs or CPU slots that its jobs hold now.
             */
            gpus_in_use?: number;
            id: components["schemas"]["TenantId"];
            /** @description Whether its members may open remote sessions in the tasks of its jobs. */
            interactive?: boolean;
            /**
             * Format: int32
             * @description Jobs that hold at least one.
             */
            jobs_in_use?: number;
            limits?: components["schemas"]["TenantLimits"];
            name: string;
            /** @description Cluster objects that the pods of its tasks may use. */
            pods?: components["schemas"]["TenantPods"];
            /** @description Caps on what its jobs may demand in `preemption`. */
            preemption?: components["schemas"]["TenantPreemption"];
            /**
             * @description Whether measured speeds of its job families count for equal families of other tenants that
             *     share, and theirs for its own.
             */
            shares_families?: boolean;
            /** @description Current use of the limits. */
            used?: components["schemas"]["LimitsUse"];
            /**
             * Format: double
             * @description Share of the cluster relative to the weights of other tenants.
             */
            weight: number;
        };
        /** @description Terminal of a session. */
        Terminal: {
            /** @description Value of the variable `TERM`. */
            name: string;
            size: components["schemas"]["TerminalSize"];
        };
        TerminalSize: {
            /** Format: int32 */
            columns: number;
            /** Format: int32 */
            rows: number;
        };
        /**
         * @description Numbers that share one scale.
         * @enum {string}
         */
        TernScale: "group" | "block";
        /**
         * Format: uuid
         * @description A bearer token; the secret itself is never stored.
         */
        TokenId: string;
        /** @description A token without its secret. */
        TokenView: {
            access: components["schemas"]["Access"];
            /** Format: date-time */
            created_at: string;
            /**
             * Format: date-time
             * @description Null: never.
             */
            expires_at: string | null;
            id: components["schemas"]["TokenId"];
            /** @description Name that its owner gave it. */
            name: string;
            /** Format: date-time */
            revoked_at: string | null;
            /** @description Name of the user's tenant. */
            tenant: string;
            /** @description Name of the user for which its bearer acts. */
            user: string;
        };
        /** @enum {string} */
        ToldState: "running" | "finished" | "failed";
        /**
         * @description Where the parameters are.
         * @enum {string}
         */
        Topology: "parameter_server" | "all_reduce";
        TrialCounts: {
            /**
             * Format: int32
             * @description Number of trials that no other one improves on: 1 once a trial has completed a rung, or the
             *     size of the Pareto front.
             */
            best: number;
            /** Format: int32 */
            completed: number;
            /** Format: int32 */
            created: number;
            /** Format: int32 */
            failed: number;
            /**
             * Format: int32
             * @description Maximum number of trials, including extensions.
             */
            limit: number;
            /** Format: int32 */
            running: number;
            /** Format: int32 */
            stopped: number;
            /** Format: int32 */
            stopping: number;
            /** Format: int32 */
            waiting: number;
        };
        /** @enum {string} */
        TrialPhase: "running" | "waiting" | "stopping" | "completed" | "stopped" | "failed";
        /** @description Measured values of a trial. */
        TrialPoint: {
            /**
             * Format: int64
             * @description In units of the budget.
             */
            step: number;
            /**
             * @description One value per objective, in the order of the objectives; null for a number that is not
             *     finite.
             */
            values: (number | null)[];
        };
        /** @description A trial of a study. */
        TrialRef: {
            /** Format: int32 */
            number: number;
            /**
             * @description State of the trial. The job of a `waiting` trial has succeeded at the end of its rung and
             *     may be continued.
             */
            state: components["schemas"]["TrialPhase"];
            study_id: components["schemas"]["StudyId"];
        };
        TrialResult: {
            /** @description For a finished trial that did not reach its budget: it cannot train further and is complete. */
            exhausted?: boolean;
            state?: components["schemas"]["ToldState"];
            /**
             * Format: int64
             * @description Progress of the trial in units of the budget; at least its budget if `finished`. Optional
             *     only for a failed trial.
             */
            step?: number | null;
            /** Format: int32 */
            trial: number;
            /** @description One value for each objective's metric; none for a failed trial. */
            values?: {
                [key: string]: number;
            };
        };
        /** @description A checkpoint of another trial. */
        TrialSource: {
            /**
             * Format: int64
             * @description In units of the budget.
             */
            step: number;
            /** Format: int32 */
            trial: number;
        };
        /** @description One trial. */
        TrialView: {
            /** @description Whether no other trial improves on it. */
            best: boolean;
            /**
             * Format: int64
             * @description Total budget of the trial so far, in units of the document's budget.
             */
            budget: number;
            /** Format: date-time */
            created_at: string;
            /** @description Its learning curve by ascending step, at most 2048 points; empty if it was not requested. */
            curve: components["schemas"]["TrialPoint"][];
            /** Format: date-time */
            ended_at: string | null;
            /** @description Why it failed; null unless it did. */
            failure: string | null;
            from: components["schemas"]["TrialSource"] | null;
            job_id: components["schemas"]["JobId"] | null;
            job_phase: components["schemas"]["JobPhase"] | null;
            /**
             * Format: int32
             * @description From 0, in the order of creation.
             */
            number: number;
            outcome: components["schemas"]["TrialPoint"] | null;
            /** @description By name. A parameter whose condition does not hold is absent. */
            parameters: Record<string, never>;
            /**
             * Format: int32
             * @description Number of times that its budget was raised.
             */
            rung: number;
            /** @description Values at the end of each rung. */
            rungs: components["schemas"]["TrialPoint"][];
            /** Format: int64 */
            seed: number;
            state: components["schemas"]["TrialPhase"];
        };
        /**
         * @description Why the end of a job cannot be predicted.
         * @enum {string}
         */
        Unforeseen: "no_length" | "outlived" | "behind_others" | "other";
        /**
         * @description The first constraint that a node does not meet, in the order of the variants.
         * @enum {string}
         */
        UnmetConstraint: "exclude_nodes" | "node_selector" | "gpu_kinds" | "gpu_memory" | "compute_capability";
        /** @description GPU use of a job, for users. */
        Usage: {
            /**
             * Format: double
             * @description Share of its GPU's time while it was alone there.
             */
            busy_alone?: number | null;
            /**
             * Format: int64
             * @description Newest measurement of its memory; absent if its node cannot measure it.
             */
            memory_bytes?: number | null;
            /**
             * Format: int64
             * @description Peak of its memory, including earlier starts of the job.
             */
            peak_bytes?: number | null;
        };
        /**
         * Format: uuid
         * @description A person or a service account of one tenant.
         */
        UserId: string;
        /** @description A user of a tenant. */
        UserView: {
            /** Format: date-time */
            created_at: string;
            id: components["schemas"]["UserId"];
            /** @description Unique within the tenant. */
            name: string;
            /** @description Name of the tenant. */
            tenant: string;
            /**
             * Format: int64
             * @description Tokens that are neither revoked nor expired.
             */
            tokens: number;
        };
        /** @description Finding that a rank held up the others, and its remedy. */
        Verdict: {
            finding: components["schemas"]["Finding"];
            /**
             * Format: int64
             * @description Milliseconds for which every round made this finding.
             */
            for_ms: number;
            /** @description Name of the node. */
            node: string;
            node_id: components["schemas"]["NodeId"];
            remedy: components["schemas"]["Remedy"];
            role: components["schemas"]["Role"];
            task_id: components["schemas"]["TaskId"];
        };
        /** @description How long a rank may hold up the others, and how long a program may be idle. */
        Verdicts: {
            /**
             * Format: int32
             * @description Seconds, after its detection, for which a rank may be silent or stuck while the others wait
             *     for it; 0: unlimited. Default: 120 with `engine`, 1800 with `command`. Also the seconds
             *     for which all workers of a `command` may be idle, with any number of workers: without
             *     output, metric, and use of CPU or GPU. The job is then flagged; it restarts only if the
             *     document sets this field.
             * @default null
             */
            hang_s: number | null;
            /**
             * Format: int32
             * @description Seconds for which a rank may stay below half of the median rate; 0: unlimited. Default: 60.
             * @default null
             */
            straggler_s: number | null;
        };
        /** @enum {string} */
        Version: "muster/v1";
        /** @description A mount at a path of its own. */
        Volume: {
            /** @enum {string} */
            kind: "claim";
            name: string;
            /** @description Absolute path of the mount. */
            path: string;
            read_only?: boolean;
            /** @description Folder of the volume, as a relative path. Default: the whole volume. */
            sub_path?: string | null;
        } | {
            /** @enum {string} */
            kind: "secret";
            name: string;
            path: string;
        } | {
            /** @enum {string} */
            kind: "config_map";
            name: string;
            path: string;
        } | {
            /**
             * Format: int64
             * @description Limit in bytes, or a text with a unit such as 100Gi; above 0.
             */
            bytes: number;
            /** @enum {string} */
            kind: "scratch";
            path: string;
        } | {
            /**
             * Format: int64
             * @description Limit in bytes, or a text with a unit such as 100Gi; above 0.
             */
            bytes: number;
            /** @enum {string} */
            kind: "memory";
            path: string;
        };
        Wait: {
            /** @enum {string} */
            reason: "not_considered";
        } | {
            /**
             * Format: int32
             * @description Queued jobs of the tenant that the round considered.
             */
            considered: number;
            /** @enum {string} */
            reason: "behind_earlier_jobs";
        } | {
            jobs: components["schemas"]["JobId"][];
            /** @enum {string} */
            reason: "waiting_for_jobs";
        } | {
            /** Format: int32 */
            limit: number;
            /** @enum {string} */
            reason: "waiting_for_array";
        } | {
            /** @enum {string} */
            reason: "suspended";
        } | {
            /** Format: int32 */
            needed_gpus: number;
            /** Format: int32 */
            quota_gpus: number;
            /** @enum {string} */
            reason: "waiting_for_quota";
            /** Format: int32 */
            used_gpus: number;
        } | {
            /** Format: int32 */
            needed_gpus: number;
            /** Format: int32 */
            quota_gpus: number;
            /** @enum {string} */
            reason: "exceeds_max_quota";
        } | {
            /** @description GPUs of open nodes that the job's constraints exclude. */
            forbidden?: components["schemas"]["ForbiddenGpus"][];
            /**
             * @description Whether the job's tasks run in an image (`pod.image` of the document), so that only
             *     nodes that can run images count.
             */
            image?: boolean;
            /**
             * Format: int32
             * @description Largest number of GPUs of one node that one task can use. On a node with GPU parts (MIG
             *     instances) this is 1.
             */
            largest_node_gpus: number;
            /** Format: int32 */
            needed_gpus_per_worker: number;
            /**
             * @description Whether some node has enough GPU parts (MIG instances). A process can use only one of
             *     them.
             */
            parts?: boolean;
            /**
             * @description Whether the job's tasks must be pods (`pod` of the document), so that only nodes with
             *     pods count.
             */
            pods?: boolean;
            /** @enum {string} */
            reason: "no_matching_nodes";
        } | {
            /**
             * Format: int32
             * @description GPUs of the nodes where the job may run.
             */
            cluster_gpus: number;
            /** @description GPUs of open nodes that the job's constraints exclude. */
            forbidden?: components["schemas"]["ForbiddenGpus"][];
            /** Format: int32 */
            needed_gpus: number;
            /** @enum {string} */
            reason: "exceeds_cluster";
        } | {
            /** @description Free GPUs on nodes that the job's constraints exclude. */
            forbidden?: components["schemas"]["ForbiddenGpus"][];
            /**
             * Format: int32
             * @description GPUs that no task holds, on nodes where the job may run.
             */
            free_gpus: number;
            /**
             * @description Jobs that hold GPUs: first the jobs that precede it, then the largest holders. The list
             *     covers at least the missing GPUs and has a few more jobs.
             */
            held_by: components["schemas"]["JobId"][];
            /**
             * Format: int32
             * @description Free GPUs that are reserved for jobs that precede it: for a time slice, a restart or a
             *     gang that waits for further GPUs.
             */
            kept_gpus?: number;
            /** Format: int32 */
            needed_gpus: number;
            /**
             * Format: int32
             * @description Further GPUs that no task holds, but on which suspended programs keep memory. The job
             *     starts there only if it is known to fit (`resources.worker.gpu_memory_bytes`).
             */
            occupied_gpus?: number;
            /** @enum {string} */
            reason: "waiting_for_gpus";
        } | {
            /** Format: int32 */
            free_gpus: number;
            /** Format: int32 */
            needed_gpus: number;
            /** @enum {string} */
            reason: "topology_placement_failed";
            short?: components["schemas"]["Short"] | null;
        } | {
            /** @description Whether these nodes could not hold all workers even if they were empty. */
            exceeds_cluster?: boolean;
            /**
             * Format: int64
             * @description Largest free memory of one node.
             */
            largest_free_bytes: number;
            /**
             * Format: int64
             * @description Largest free CPU of one node.
             */
            largest_free_milli: number;
            /**
             * Format: int64
             * @description Memory of one worker.
             */
            needed_bytes: number;
            /**
             * Format: int64
             * @description CPU of one worker in thousandths of a core.
             */
            needed_milli: number;
            /**
             * Format: int32
             * @description Nodes that take tasks and on which the job may run.
             */
            nodes: number;
            /** @enum {string} */
            reason: "waiting_for_cpu_and_memory";
            /** Format: int32 */
            workers: number;
        } | {
            jobs: components["schemas"]["JobId"][];
            /** @enum {string} */
            reason: "waiting_for_preempted_workloads";
        } | {
            /** @enum {string} */
            reason: "backing_off";
            refused?: components["schemas"]["Refused"] | null;
            /** Format: int64 */
            until_unix_ms: number;
        };
        /** @description Reason for waiting and its remedy. */
        Waiting: {
            /**
             * Format: int32
             * @description Position among the waiting jobs, from 1; 0 before the first round has considered the job.
             */
            position: number;
            smallest_change?: components["schemas"]["Change"] | null;
            why: components["schemas"]["Wait"];
        };
        /** @description Why a job does not run. */
        WaitingView: {
            /** @description The same in machine-readable form. */
            detail: components["schemas"]["Waiting"];
            /** @description Whether waiting does not help: the job, its tenant's quota or the cluster must change. */
            for_good: boolean;
            /** @description The reason as text, with its figures. */
            message: string;
            /**
             * Format: int32
             * @description Position among the waiting jobs, from 1; 0 before the first round has considered it.
             */
            position: number;
            /** @description Stable name, such as `WaitingForGpus`. */
            reason: string;
            /** @description The smallest change that would let the job start, as text; null if only time helps. */
            smallest_change: string | null;
        };
        /** @description Assumed changes, which apply together; at most 32 of each kind. */
        WhatIf: {
            /** @description Additional nodes like the largest present one. */
            add_nodes?: components["schemas"]["AddedNodes"][];
            jobs?: components["schemas"]["ImaginedJob"][];
            quotas?: components["schemas"]["ImaginedQuota"][];
        };
        /** @description Effects of changes, compared with the forecast without them. */
        WhatIfView: {
            /**
             * @description Jobs that are added, displaced, or shifted by at least half a minute; at most 500. Added
             *     jobs come first, then by the size of the shift.
             */
            jobs: components["schemas"]["JobShift"][];
            /**
             * Format: date-time
             * @description Time of the cluster state on which the forecasts are based.
             */
            made_at: string;
            /** @description Tenants with jobs whose end can be predicted in both cases. */
            tenants: components["schemas"]["TenantShift"][];
        };
        WorkerResources: {
            /** @default null */
            compute_capability: components["schemas"]["ComputeCapability"] | null;
            /**
             * Format: int64
             * @description Thousandths of a core; 0 to 256,000. Default: the node's cores are divided by its GPUs or
             *     slots; placement counts 100. Without GPUs: 1,000.
             * @default null
             */
            cpu_milli: number | null;
            /**
             * @description Names of nodes on which the job does not run; at most 64.
             * @default []
             */
            exclude_nodes: string[];
            /**
             * @description GPU models on which the job runs; at most 16. A pattern consists of words that follow one
             *     another in the model's name, regardless of case; `*` stands for any characters of a word.
             *     Example: `H100`. A pattern for a GPU part contains `MIG`. The model of CPU slots is `cpu`.
             *     Empty: all models of the best class that the cluster has (GPUs, else GPU parts, else CPU
             *     slots).
             * @default []
             */
            gpu_kinds: string[];
            /**
             * Format: int64
             * @description Minimum memory of each GPU: bytes, or a text with a unit such as 40Gi; up to 4 TiB.
             * @default null
             */
            gpu_memory_bytes: number | null;
            /**
             * Format: int32
             * @description GPUs or CPU slots of one node; 0 to 16, at most 1 with `engine`. With 0 the workers hold
             *     only CPU and memory of any node that takes tasks, and see no GPU. `scale.workers` is then a
             *     fixed size.
             * @default 1
             */
            gpus: number;
            /**
             * Format: int64
             * @description Bytes, or a text with a unit such as 16Gi or 500M; 64 MiB to 4 TiB. Default: the node's
             *     memory is divided by its GPUs or slots; placement counts 1 GiB. Without GPUs: 1 GiB.
             * @default null
             */
            memory_bytes: number | null;
            /**
             * @description Conditions on the labels of the nodes; all must hold. At most 16.
             * @default []
             */
            node_selector: components["schemas"]["NodeRequirement"][];
        };
        /** @description Report of the coordinator about a complete checkpoint. */
        Written: {
            /**
             * Format: double
             * @description Share of test examples that were classified correctly at this step, if it was evaluated
             *     there.
             */
            accuracy?: number | null;
            /** Format: int64 */
            bytes: number;
            /** Format: double */
            epoch: number;
            /**
             * @description Names of its files, including the manifest and the list of checksums. Empty for a user's
             *     program.
             */
            files?: string[];
            /**
             * Format: double
             * @description Test loss at this step, if it was evaluated there.
             */
            loss?: number | null;
            /**
             * @description Hex SHA-256 of the manifest, which contains the checksums of the files. Of a user's program
             *     in a bucket: that of its archive; empty in a folder.
             */
            manifest_sha256: string;
            /**
             * @description Folder, relative to the cluster's checkpoint root. Of a user's program: file or folder,
             *     relative to the job's checkpoint folder.
             */
            path: string;
            /**
             * Format: int64
             * @description Revision of the job that wrote the checkpoint.
             */
            revision: number;
            /** Format: int64 */
            step: number;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    getCode: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description SHA-256 of the archive */
                sha256: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The archive is stored */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CodeView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    putCode: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description SHA-256 of the body as 64 hexadecimal digits */
                sha256: string;
            };
            cookie?: never;
        };
        /** @description The archive, at most 128 MiB by default */
        requestBody: {
            content: {
                "application/octet-stream": number[];
            };
        };
        responses: {
            /** @description Stored */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CodeView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    downloadCode: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description SHA-256 of the archive */
                sha256: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file */
            200: {
                headers: {
                    /** @description Hex SHA-256 of the file */
                    "Muster-Sha256"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": number[];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listEvents: {
        parameters: {
            query?: {
                /** @description Include routine events: starts and stops of tasks, evaluations, checkpoints. */
                routine?: boolean;
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of the history */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_EventView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listFamilies: {
        parameters: {
            query?: {
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of families */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_FamilyView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    forgetFamily: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Key of the family */
                family: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Forgotten */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    forecastAccuracy: {
        parameters: {
            query?: {
                /** @description Number of days: only forecasts made in this time count. */
                days?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Hit rates */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AccuracyView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listJobs: {
        parameters: {
            query?: {
                /** @description Only jobs with this id; may be repeated up to 500 times. */
                id?: components["schemas"]["JobId"][];
                /** @description Only jobs in this phase; may be repeated for several phases. */
                phase?: components["schemas"]["JobPhase"][];
                /** @description Only jobs with this label, as `key=value`; may be repeated to require several labels. */
                label?: string[];
                /** @description Only jobs with exactly this name. */
                name?: string;
                /** @description Only jobs whose id, without hyphens, ends with these hexadecimal digits. */
                short_id?: string;
                /** @description Only jobs that the user of this name has submitted. */
                user?: string;
                /** @description Only jobs submitted at this time or later. */
                submitted_since?: string;
                /** @description Whether to include jobs that are trials of studies. */
                trials?: boolean;
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of the tenant's jobs */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    submitJob: {
        parameters: {
            query?: {
                /** @description Check the document and answer with the job, without submitting it. */
                dry_run?: boolean;
            };
            header?: {
                /** @description 1 to 255 visible ASCII characters, chosen by the client; one for each submission */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        /** @description The job document, version `muster/v1` */
        requestBody: {
            content: {
                "application/json": components["schemas"]["JobSpec"];
                "application/yaml": components["schemas"]["JobSpec"];
            };
        };
        responses: {
            /** @description `dry_run`: the document is valid; the id is all zeros and nothing was submitted */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description Submitted */
            201: {
                headers: {
                    /** @description Path of the job */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The job */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    editJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["JobChange"];
            };
        };
        responses: {
            /** @description Changed; takes effect in the next scheduling round */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listArtifacts: {
        parameters: {
            query?: {
                /** @description Only artifacts whose path begins with this text, such as `plots/`. */
                prefix?: string;
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of its artifacts */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_ArtifactView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    downloadArtifacts: {
        parameters: {
            query?: {
                /** @description Only artifacts whose path begins with this text, such as `plots/`. */
                prefix?: string;
            };
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/x-tar": number[];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    downloadArtifact: {
        parameters: {
            query: {
                /** @description Path of the artifact. */
                path: string;
                /** @description Only this number of bytes from the beginning. */
                first_bytes?: number;
            };
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file */
            200: {
                headers: {
                    /** @description Hex SHA-256 of the whole file; absent with `first_bytes` */
                    "Muster-Sha256"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": number[];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    cancelJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted; takes effect in the next scheduling round */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listCheckpoints: {
        parameters: {
            query?: {
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of its checkpoints */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_CheckpointView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    downloadCheckpointArchive: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
                /** @description Step of the checkpoint */
                step: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The tar file */
            200: {
                headers: {
                    /** @description Hex SHA-256 of the tar file, if the cluster keeps checkpoints in a bucket */
                    "Muster-Sha256"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": number[];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    downloadCheckpointFile: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
                /** @description Step of the checkpoint */
                step: number;
                /** @description One of the checkpoint's `files` */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file */
            200: {
                headers: {
                    /** @description Hex SHA-256 of the file, when its manifest states it */
                    "Muster-Sha256"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": number[];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    continueJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted; takes effect in the next scheduling round */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listJobEvents: {
        parameters: {
            query?: {
                /** @description Only events after this cursor: that of any event, or the `continue` of a page. */
                after?: string;
                /** @description Same as `after`. */
                continue?: string;
                /** @description Items per page. */
                limit?: number;
            };
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of its history */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_EventView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    explainJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The explanation */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ExplainView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    forecastJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The newest forecast; null before the first, and once the job has ended */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Forecast"] | null;
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    readLog: {
        parameters: {
            query?: {
                /**
                 * @description Id of a task, or its name (`worker-0`, `ps-1`) in the newest revision. Default: `worker-0`,
                 *     the coordinator.
                 */
                task?: string;
                /** @description Number of last bytes. Default: 65536 if `offset` is not given either. */
                tail_bytes?: number;
                /** @description First byte; the answer has at most 1 MiB. */
                offset?: number;
                /**
                 * @description Time (RFC 3339) from which on the output is read, instead of `offset` or `tail_bytes`. It is
                 *     the time at which the scheduler received the output, usually within a second of its print.
                 */
                since?: string;
                /**
                 * @description `true`: each line begins with the time (RFC 3339, UTC, milliseconds) at which it was
                 *     received, or `-` if it is not known, and a space. Offsets count bytes without these times.
                 */
                timestamps?: boolean;
            };
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A part of the log */
            200: {
                headers: {
                    /** @description Present length of the log in bytes */
                    "Muster-Log-End"?: number;
                    /** @description `offset` of the part that follows */
                    "Muster-Log-Next-Offset"?: number;
                    /** @description Bytes of the log before this part */
                    "Muster-Log-Offset"?: number;
                    /** @description Id of the task */
                    "Muster-Log-Task"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": string;
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    followLog: {
        parameters: {
            query?: {
                /**
                 * @description Id of a task, or its name (`worker-0`, `ps-1`). A name is followed through all later
                 *     revisions. Default: `worker-0`, the coordinator.
                 */
                task?: string;
                /** @description First byte of the present task's log. Default: its last 64 KiB. */
                offset?: number;
            };
            header?: {
                /** @description Id of the last received message; precedes `offset` */
                "Last-Event-ID"?: string | null;
            };
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream that ends with the job */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listJobMetrics: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Its metrics */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_MetricView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    exportJobMetrics: {
        parameters: {
            query?: {
                /** @description Name of a metric; may be repeated. Default: all metrics of the job. */
                name?: string[];
            };
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/csv": string;
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getJobMetricPoints: {
        parameters: {
            query: {
                /** @description Name of a metric; repeated for up to 10 metrics. */
                name: string[];
                /** @description Maximum number of points of each metric. Neighbouring points of a longer series are merged. */
                max_points?: number;
            };
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Their series, in the order of the names */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_MetricSeriesView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    downloadModel: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file */
            200: {
                headers: {
                    /** @description Hex SHA-256 of the file, when its manifest states it */
                    "Muster-Sha256"?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": number[];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    pauseJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted; takes effect in the next scheduling round */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getJobProgress: {
        parameters: {
            query?: {
                /** @description Only samples after this step. */
                after_step?: number;
                /**
                 * @description Maximum number of samples; a longer series is thinned evenly, with its first and last sample
                 *     kept.
                 */
                max_points?: number;
            };
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Its samples and evaluations */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SeriesView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    resumeJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted; takes effect in the next scheduling round */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    openRemoteSession: {
        parameters: {
            query?: never;
            header: {
                /** @description `muster-remote` */
                Upgrade: string;
            };
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewRemoteSession"];
            };
        };
        responses: {
            /** @description The connection carries frames from here on */
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    followJob: {
        parameters: {
            query?: {
                /** @description Begin after this cursor or id of a message. Default: now. */
                after?: string;
                /** @description Begin the series after this step. Default: now. */
                after_step?: number;
            };
            header?: {
                /** @description Id of the last received message; precedes `after` */
                "Last-Event-ID"?: string | null;
            };
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream that ends only when the job is deleted */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    suspendJob: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted; takes effect in the next scheduling round */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listTasks: {
        parameters: {
            query?: {
                /** @description Include tasks of earlier revisions. */
                all?: boolean;
            };
            header?: never;
            path: {
                /** @description The job */
                id: components["schemas"]["JobId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Its tasks */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_TaskView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getMe: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The caller */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Me"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listNodes: {
        parameters: {
            query?: {
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of the cluster's nodes */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_NodeView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getNode: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the node */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The node */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    removeNode: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the node */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Removed */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    drainNode: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the node */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted; takes effect in the next scheduling round */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    createJoinToken: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the node */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewJoinToken"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedJoinToken"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    noticeNode: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the node */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SaidOfNode"];
            };
        };
        responses: {
            /** @description Accepted; takes effect in the next scheduling round */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    resetNode: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the node */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Reset */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    uncordonNode: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the node */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted; takes effect in the next scheduling round */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    planJob: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** @description The job document, version `muster/v1` */
        requestBody: {
            content: {
                "application/json": components["schemas"]["JobSpec"];
                "application/yaml": components["schemas"]["JobSpec"];
            };
        };
        responses: {
            /** @description The predicted effects */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PlanView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listPriorityClasses: {
        parameters: {
            query?: {
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of classes */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_PriorityClass"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    setPriorityClass: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the class: 1 to 63 characters of a-z, 0-9 and '-' */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PriorityClassDocument"];
            };
        };
        responses: {
            /** @description Created or replaced */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PriorityClass"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deletePriorityClass: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the class */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listRounds: {
        parameters: {
            query?: {
                /** @description Only rounds at or after this time (RFC 3339). */
                since?: string;
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page; any round number lists the rounds below it. */
                continue?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of rounds */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_RoundSummaryView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getRound: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Number of the round */
                number: number;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The round */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RoundView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listSchedules: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All schedules */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_ScheduleView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getSchedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the schedule */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The schedule */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduleView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    setSchedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the schedule: 1 to 63 characters of a-z, 0-9 and '-' */
                name: string;
            };
            cookie?: never;
        };
        /** @description Times, rules and the job's document */
        requestBody: {
            content: {
                "application/json": components["schemas"]["ScheduleDocument"];
                "application/yaml": components["schemas"]["ScheduleDocument"];
            };
        };
        responses: {
            /** @description Created or replaced */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduleView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteSchedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the schedule */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    pauseSchedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the schedule */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Paused, perhaps before */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduleView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    resumeSchedule: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the schedule */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Resumed, perhaps before */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ScheduleView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    runSchedule: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters, chosen by the client; one for each submission */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description Name of the schedule */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Submitted */
            201: {
                headers: {
                    /** @description Path of the job */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listSecrets: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All secrets */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_SecretView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    setSecret: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the secret */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewSecret"];
            };
        };
        responses: {
            /** @description Created or replaced */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SecretVersion"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteSecret: {
        parameters: {
            query?: {
                /**
                 * @description Delete the secret although open jobs or studies name it. Their programs fail at their next
                 *     start.
                 */
                force?: boolean;
            };
            header?: never;
            path: {
                /** @description Name of the secret */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    followCluster: {
        parameters: {
            query?: {
                /** @description Begin after this cursor. Default: now. */
                after?: string;
            };
            header?: {
                /** @description Id of the last received message; precedes `after` */
                "Last-Event-ID"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A stream that does not end by itself */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/event-stream": string;
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listStudies: {
        parameters: {
            query?: {
                /** @description Only studies with exactly this name. */
                name?: string;
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of the tenant's studies */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_StudyView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    createStudy: {
        parameters: {
            query?: {
                /** @description Check the document and answer with the study, without creating it. */
                dry_run?: boolean;
            };
            header?: {
                /** @description 1 to 255 visible ASCII characters, chosen by the client; one for each study */
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        /** @description The study document, version `muster/v1` */
        requestBody: {
            content: {
                "application/json": components["schemas"]["StudySpec"];
                "application/yaml": components["schemas"]["StudySpec"];
            };
        };
        responses: {
            /** @description `dry_run`: the document is valid; the id is all zeros and nothing was created */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StudyView"];
                };
            };
            /** @description Created */
            201: {
                headers: {
                    /** @description Path of the study */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StudyView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getStudy: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The study */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StudyView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteStudy: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    askStudy: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters, chosen by the client; one for each request for trials */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Ask"];
            };
        };
        responses: {
            /** @description The trials; the list may be empty */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Asked"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getBestTrials: {
        parameters: {
            query?: {
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of trials; empty until a trial has completed a rung */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_BestTrialView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    cancelStudy: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted; the scheduler carries it out shortly after */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StudyView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    exportStudy: {
        parameters: {
            query?: {
                /** @description `csv`: one line per trial, without curves. `json`: a list of trials with their curves. */
                format?: string;
            };
            header?: never;
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The file */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/csv": string;
                    "application/json": components["schemas"]["TrialView"][];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    extendStudy: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters, chosen by the client; one for each extension */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["StudyExtension"];
            };
        };
        responses: {
            /** @description Accepted; the scheduler carries it out shortly after */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StudyView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    pauseStudy: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted; the scheduler carries it out shortly after */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StudyView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    proposeTrials: {
        parameters: {
            query?: never;
            header?: {
                /** @description 1 to 255 visible ASCII characters, chosen by the client; one for each proposal */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Proposal"];
            };
        };
        responses: {
            /** @description Stored; the scheduler reads it shortly after */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StudyView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    resumeStudy: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Accepted; the scheduler carries it out shortly after */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StudyView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    tellStudy: {
        parameters: {
            query?: never;
            header?: {
                /** @description With `ask`: 1 to 255 visible ASCII characters, chosen by the client; one for each request for trials */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Tell"];
            };
        };
        responses: {
            /** @description Stored; the scheduler reads it shortly after */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TellAnswer"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listTrials: {
        parameters: {
            query?: {
                /** @description Only trials in this state. */
                state?: components["schemas"]["TrialPhase"];
                /** @description Include the learning curve of each trial. */
                curves?: boolean;
                /** @description Items per page; with curves at most 100. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path: {
                /** @description The study */
                id: components["schemas"]["StudyId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of its trials */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_TrialView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listTemplates: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description All templates */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_TemplateView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    getTemplate: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the template */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The template */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TemplateView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    setTemplate: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the template: 1 to 63 characters of a-z, 0-9 and '-' */
                name: string;
            };
            cookie?: never;
        };
        /** @description Parameters and the job document */
        requestBody: {
            content: {
                "application/json": components["schemas"]["TemplateDocument"];
                "application/yaml": components["schemas"]["TemplateDocument"];
            };
        };
        responses: {
            /** @description Created or replaced */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TemplateView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteTemplate: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the template */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    submitTemplate: {
        parameters: {
            query?: {
                /** @description Check the document and answer with the job, without submitting it. */
                dry_run?: boolean;
            };
            header?: {
                /** @description 1 to 255 visible ASCII characters, chosen by the client; one for each submission */
                "Idempotency-Key"?: string | null;
            };
            path: {
                /** @description Name of the template */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TemplateValues"];
            };
        };
        responses: {
            /** @description `dry_run`: the filled document is valid; the id is all zeros and nothing was submitted */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description Submitted */
            201: {
                headers: {
                    /** @description Path of the job */
                    Location?: string;
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JobView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listTenants: {
        parameters: {
            query?: {
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of tenants */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_TenantView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    createTenant: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewTenant"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    deleteTenant: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the tenant */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Deleted */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    changeTenant: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description Name of the tenant */
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["TenantChange"];
            };
        };
        responses: {
            /** @description Changed */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["TenantView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listTokens: {
        parameters: {
            query?: {
                /** @description Name of the tenant; for administrators. Default: that of the caller. */
                tenant?: string;
                /** @description Tokens of all tenants; for administrators. */
                all_tenants?: boolean;
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of tokens */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_TokenView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    createToken: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewToken"];
            };
        };
        responses: {
            /** @description Created */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedToken"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    revokeTokensOfUser: {
        parameters: {
            query: {
                /** @description Name of the user. */
                user: string;
                /** @description Name of the user's tenant; for administrators. Default: that of the caller. */
                tenant?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Revoked */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RevokedTokens"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    revokeToken: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                /** @description The token */
                id: components["schemas"]["TokenId"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Revoked */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    listUsers: {
        parameters: {
            query?: {
                /** @description Items per page. */
                limit?: number;
                /** @description Value of `continue` of the last page. */
                continue?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description A page of users */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Page_UserView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
    whatIf: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["WhatIf"];
            };
        };
        responses: {
            /** @description The predicted effects */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["WhatIfView"];
                };
            };
            /** @description A refusal */
            default: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
        };
    };
}
