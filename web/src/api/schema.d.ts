// Generated from api/openapi.json by `npm run generate`. Do not edit.
export interface paths {
    "/api/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List events, newest first
         * @description Of the tenant's jobs and of the nodes. What happens from now on is in the stream, which begins after the first one's cursor.
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
    "/api/v1/forecasts/accuracy": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Say how often forecasts held
         * @description Of the forecasts of the tenant's jobs that have succeeded: how often the interval held what came. The target is 80 %. A forecast counts
         *     for as long as it was shown, each job counts once, and forecasts that are `unsure` do not count.
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
         * @description The same document in JSON or YAML. A request with an `Idempotency-Key` that comes again within 24 hours gets the answer of the
         *     first, with the header `Idempotency-Replayed: true`, and submits nothing. With `from` the job begins from a checkpoint of another
         *     job of the tenant, its newest if no step is named.
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
         * @description It disappears from lists. Its checkpoints and models are erased within minutes, once no open job begins from them.
         */
        delete: operations["deleteJob"];
        options?: never;
        head?: never;
        /**
         * Change a job's range of workers and its priority
         * @description While it waits or runs. Above a new maximum it shrinks with the next round, or where it must restart once it would come back; below a new minimum it goes on as it is, and grows as soon
         *     as there is room that nobody waits for. With `edits` only if nobody has changed it since. A trial's size is its study's, and with
         *     `batch_rule` `adascale` the minimum stays. Asking for what is so already changes nothing.
         */
        patch: operations["editJob"];
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
         * @description Its tasks stop, and write a checkpoint before. Cancelling again changes nothing.
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
         * @description Those that were pruned too, with their size, their measures and why they stay.
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
         * Let a suspended job go on
         * @description Its workers go on from the step at which they stand still, on the GPUs that they had, as soon as those are free. Of a job that is not
         *     suspended by its owner this changes nothing.
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
         * Say why a job has its size, or why it waits
         * @description Of a waiting job: the nodes, jobs and the quota in its way, and the smallest change that would start it now. Of a running one:
         *     what one worker more would gain beside the gain of whoever would have got the next GPU.
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
         * Say when a job is expected to start and to end
         * @description The scheduler runs its own planner forward from the present state of the cluster, many times, each time with other speeds and
         *     other work left, as far apart as its estimates are unsure. An interval is to hold in eight cases of ten. One that is `unsure` says too
         *     little to be shown as an interval.
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
         * @description The bytes as the task wrote them, standard output and error together. Of a log longer than 16 MiB the newest part is kept.
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
         * @description Server-sent events: `log` (LogPiece) for each piece, `task_end` (LogEnd) where a task has ended and the next one of its place is followed,
         *     and `end` (LogEnd) once nothing can follow. The `id:` of a message says
         *     where the reader stands; who connects again with it as `Last-Event-ID` misses and repeats nothing.
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
    "/api/v1/jobs/{id}/model": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Download a job's final model
         * @description A safetensors file of named tensors. Jobs that have not succeeded have none; their checkpoints can be downloaded.
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
         * @description Its tasks write a checkpoint and give their GPUs back. Pausing again changes nothing.
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
         * @description It is queued again and continues from its newest checkpoint. Resuming a job that is not paused changes nothing.
         */
        post: operations["resumeJob"];
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
         * @description Server-sent events: first `opened` (Opened), then an `event` (EventView) for each entry of its history and `progress`
         *     (ProgressMessage) for new samples. The `id:` of a message says where the reader stands in both; who connects again with it as
         *     `Last-Event-ID` misses and repeats nothing.
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
         * @description Its workers stand still at the end of their step, keep their processes and memory, and give their GPUs to others, until it is continued.
         *     Of a job with `command` all processes are stopped as by SIGSTOP. It is refused of a job that is not running, and of one whose workers do
         *     not wait for each other in every step, and of one whose tasks are pods, since Kubernetes gives what a pod holds to nobody else. Suspending again changes nothing.
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
         * @description All on one page, the newest revision first.
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
         * Whom the token stands for
         * @description With the quota and the limits of the tenant, and what of them is used.
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
         * @description Every tenant sees all nodes and which GPUs are held; whose job holds one only its own tenant and administrators.
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
         * @description It is in no list any more, and its credential is forgotten. Refused while it is up or holds tasks (409). The history of its tasks stays. A
         *     node that joins under the name later is as new. For administrators.
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
         * @description It takes no new task, and its tasks move away with their checkpoints. For administrators.
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
         * @description The answer holds it, and it is stored nowhere. One executor can join with it under this name, instead of with the cluster's join token; it
         *     then speaks for the node in place of the executor before. The node need not exist yet. For administrators.
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
         * Say what the cluster that a machine belongs to says of it
         * @description All of it, in place of what was said before; Muster's operator does so for Kubernetes. An administrator's drain and this stand beside
         *     each other: the node takes work where neither closes it. For administrators.
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
         * @description For a machine that has lost its executor's data folder: the next executor that joins under this name with the cluster's join token binds
         *     its own credential. What the node runs is not touched. For administrators.
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
         * @description Also one that was closed because too many tasks failed there; what was charged to it is forgiven. For administrators.
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
         * Say what would come of a job, without submitting it
         * @description The scheduler runs its real decisions forward from the cluster as it is, with the job and without it, many times, each time with
         *     other speeds and other work left. The intervals hold in eight cases of ten, as far as those of forecasts past did. The tenant's
         *     own jobs that would make way or move are named, those of other tenants are counted.
         */
        post: operations["planJob"];
        delete?: never;
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
         * @description For administrators. Rounds that changed nothing are not kept, nor those older than the scheduler's `keep_rounds_s`.
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
         * Get a round, whole
         * @description For administrators: its snapshot holds the jobs of every tenant. The same snapshot and policy give the same plan and report
         *     again, byte for byte (`muster replay`).
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
    "/api/v1/stream": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow the cluster's changes
         * @description Server-sent events: first `opened` (Opened), then for each entry of the history of the tenant's jobs and of the nodes an
         *     `event` (EventView). The `id:` of a message is a cursor; who connects again with it as `Last-Event-ID` misses and repeats
         *     none of them. Between them comes `progress` (ProgressMessage) with the newest sample of each running job, after `opened` and
         *     whenever it has changed, at most once a second for a job. The whole series is in the job's own stream.
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
         * @description The same document in JSON or YAML. Whatever is wrong with its space, its search or the job of its trials is named field by field.
         *     A request with an `Idempotency-Key` that comes again within 24 hours gets the answer of the first, with the header
         *     `Idempotency-Replayed: true`, and creates nothing.
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
         * Show a study
         * @description With how many trials it has in which state, and the best of them or the Pareto front.
         */
        get: operations["getStudy"];
        put?: never;
        post?: never;
        /**
         * Delete a study that is over
         * @description It disappears from lists, and the jobs of its trials with it. Their checkpoints and models are erased within minutes, once no open job begins from them. What was ordered before
         *     comes first: until the scheduler has taken it in, the study is not deleted.
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
         * @description Of a study without a `job`. Nobody else is given the same trial; one that was lost is told as failed. There are as many at a time
         *     as the study's `concurrency` allows, so there may be none until results are told. An `Idempotency-Key` that comes again within 24
         *     hours gets the same trials, so that an answer that was lost loses none.
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
         * Show the best trial, or the Pareto front, with the checkpoints
         * @description In the order of their creation. A checkpoint's files are downloaded as those of the trial's job.
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
         * End a study
         * @description Its trials stop; what they have measured and their checkpoints stay.
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
         * Give a study more trials
         * @description One that has finished goes on; one that was told to end, even if some of its trials still run, does not. A request with an
         *     `Idempotency-Key` that comes again within 24 hours gets the answer of the first, with the header `Idempotency-Replayed: true`, and
         *     gives nothing more.
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
         * @description No trial starts or trains on to its next rung; those that train, train on as far as they were told to.
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
         * @description They are created in this order, as the study's concurrency allows, and numbered so; what came of them is listed with the study's
         *     trials. Beyond the number of trials that the study may have they wait until it is extended; 10,000 may wait. A request with an
         *     `Idempotency-Key` that comes again within 24 hours gets the answer of the first, with the header `Idempotency-Replayed: true`, and
         *     proposes nothing more.
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
        /** Let a paused study go on */
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
         * Tell what came of trials that were trained outside
         * @description Points of a curve (`running`), results (`finished`) and failures. What was told before, and what is told of a trial that has
         *     ended, changes nothing. A trial that is `finished` has trained to its budget: an earlier `step` is refused, unless it is that of a
         *     rung which has ended. The answer names those of the trials that need not be trained on. With `ask` it brings trials like `ask`, and
         *     comes when there are some; an `Idempotency-Key` is that of asking, since what is told again changes nothing anyway.
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
         * @description With parameters, what each had at the end of its rungs, and its learning curve.
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
         * @description For administrators. `POST /tokens` with its name makes its first user and token.
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
         * @description For administrators, and not that of their own token. Refused while any of its jobs or studies has not ended, or where nobody else could
         *     administer (409, `last-administrator`). Its tokens are refused from now on, by other replicas of this daemon within 5 seconds, and nothing is
         *     begun for it any more. It is in no list; its jobs, their events, logs, curves and checkpoints stay, and nobody else gets its name.
         */
        delete: operations["deleteTenant"];
        options?: never;
        head?: never;
        /**
         * Change a tenant's quota, weight, pods and limits
         * @description For administrators. The next round obeys; jobs above a lowered quota are stopped with a checkpoint. A weight says what share of the cluster is its own while several tenants want more
         *     than there is. What pods may have is asked of jobs and studies that are submitted from now on; those that were keep it. So are limits: what
         *     is open above a lowered one stays open.
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
         * @description Revoked ones too; never their secrets. Administrators may ask for those of another tenant, or of all.
         */
        get: operations["listTokens"];
        put?: never;
        /**
         * Create a token
         * @description The answer holds its secret, which is stored nowhere. Members make tokens for themselves; administrators also for other users
         *     and tenants, and with access `admin`. A member's new token ends no later than the one with which it is made.
         */
        post: operations["createToken"];
        /**
         * Revoke all tokens of a user
         * @description They are refused from now on, by other replicas of this daemon within 5 seconds; so are those that were made with a stolen one of them.
         *     Members may revoke their own, the request's token among them, administrators those of any user. Refused where no administrator could ask
         *     any more (409, `last-administrator`).
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
         * @description It is refused from now on, by other replicas of this daemon within 5 seconds. Members may revoke their own tokens,
         *     administrators any. Revoking again changes nothing. The last token with which an administrator can ask is not revoked (409,
         *     `last-administrator`): make another first.
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
         * @description For administrators. With the number of tokens of each that are neither revoked nor expired.
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
         * Say what more nodes, other quotas or more jobs would change
         * @description For administrators: the answer names jobs of every tenant. Nothing is changed; the cluster as it is is forecast with all the
         *     changes together and without them, by the same dice.
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
         * @description What a token may do.
         * @enum {string}
         */
        Access: "member" | "admin";
        /** @description How often the intervals of forecasts held. */
        AccuracyView: {
            finish: components["schemas"]["HitRate"];
            /**
             * Format: date-time
             * @description Forecasts made since then.
             */
            since: string;
            start: components["schemas"]["HitRate"];
            /**
             * Format: double
             * @description The share that is to hold.
             */
            target: number;
        };
        /** @enum {string} */
        Activation: "relu" | "leaky_relu" | "gelu" | "gelu_tanh" | "sigmoid" | "tanh" | "silu";
        /** @description A user, as of the tenant whose thing it was done to. */
        Actor: {
            /** @description Whether it did so as an administrator on behalf of a tenant that is not its own. */
            as_administrator?: boolean;
            /** @description Its name; of an administrator on behalf of another tenant `NAME@TENANT`, after its own. */
            user: string;
        };
        AddedNodes: {
            /**
             * Format: int32
             * @description Of each; 1 to 64.
             */
            gpus: number;
            /**
             * Format: int32
             * @description 1 to 10,000.
             */
            nodes: number;
        };
        /** @description What becomes of a stopping job once its last task is gone. */
        AfterStop: {
            cause: components["schemas"]["RequeueCause"];
            /** @enum {string} */
            kind: "requeue";
        } | {
            /** @enum {string} */
            kind: "move";
            to: components["schemas"]["Seat"][];
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
         * @description How a sum over all workers goes.
         * @enum {string}
         */
        Algorithm: "auto" | "ring" | "tree" | "halving_doubling" | "butterfly" | "hierarchical" | "nccl";
        /** @description Asks for trials to train outside. */
        Ask: {
            /**
             * Format: int32
             * @description At most so many; 1 to 1000.
             */
            count?: number;
            /**
             * Format: int32
             * @description Wait so long for the first of them; 0 to 20.
             */
            wait_s?: number;
        };
        /** @description What was given out; nobody else gets these trials. */
        Asked: {
            /** @description When it is over, there will be no other trial. */
            phase: components["schemas"]["StudyPhase"];
            trials: components["schemas"]["TrialView"][];
        };
        /**
         * @description What is done to a training image at random, each time anew, in this order. The draw depends on the job's seed, the step and the
         *     image's place in the batch, so it is the same whatever the number of workers, and after a restart. What comes in from outside an
         *     image is 0 after normalisation.
         */
        Augmentation: {
            /** @enum {string} */
            kind: "flip";
            /**
             * Format: float
             * @description How often, above 0 and at most 1.
             */
            share?: number;
        } | {
            /** @enum {string} */
            kind: "crop";
            /**
             * Format: int32
             * @description 1 to half of the smaller side.
             */
            padding: number;
        } | {
            /** @enum {string} */
            kind: "cutout";
            /**
             * Format: int32
             * @description Its side, 1 to the smaller side.
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
        /** @description Workers train on their own between averages of their parameters. `every` is in steps, 1 to 1,000,000. */
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
             * @description Each worker has examples of its own, whose shares of the classes are drawn from a Dirichlet distribution of this
             *     concentration around the whole set's (Hsu, Qi and Brown, 2019), 0.001 to 1,000,000: the smaller, the fewer classes a
             *     worker has. When left out, workers divide every batch among themselves.
             */
            alpha?: number | null;
            /** Format: int32 */
            every: number;
            /** @enum {string} */
            kind: "fedavg";
            /**
             * Format: double
             * @description Of the workers that take part in a round, above 0 and at most 1; one at least.
             */
            share: number;
        };
        /**
         * @description What becomes of the batch when workers come and go.
         * @enum {string}
         */
        BatchRule: "constant" | "adascale";
        /** @description A best trial and the model that it has trained. */
        BestTrialView: {
            checkpoint: components["schemas"]["Written"] | null;
            /** @description The trained model, relative to the checkpoint root; null unless its job has succeeded. */
            model_path: string | null;
            trial: components["schemas"]["TrialView"];
        };
        /** @description A job that holds what is missing, or is stopping to give it up. */
        BlockingJob: {
            /**
             * Format: int32
             * @description GPUs that it holds now.
             */
            held_gpus: number;
            id: components["schemas"]["JobId"];
            /** @description Null for another tenant's job. */
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
             * @description What the job's minimum needs.
             */
            needed_gpus: number;
            /**
             * Format: int32
             * @description What the tenant's other jobs hold.
             */
            used_gpus: number;
        };
        /** @description How far one trial may train. */
        Budget: {
            /** @description Where a command is told how far to train, such as `command.env.EPOCHS`. The built-in engine needs none. */
            field?: string | null;
            /**
             * Format: int64
             * @description In `unit`s; 1 to 1,000,000,000.
             */
            max: number;
            unit?: components["schemas"]["BudgetUnit"];
        };
        /** @enum {string} */
        BudgetUnit: "epochs" | "steps";
        /** @description What a node offers to tasks. */
        Capacity: {
            /** Format: int64 */
            cpu_milli: number;
            driver_suspend?: components["schemas"]["DriverSuspend"] | null;
            /** @description GPUs, or CPU slots that stand for them; index is the position. */
            gpus: components["schemas"]["Gpu"][];
            /** Format: int64 */
            memory_bytes: number;
            /** @description Whether its tasks are pods of their own, which can have what a job's `pod` says; `None`: its executor is too old to say. */
            pods?: boolean | null;
            /** @description Nodes with the same name here are nearer to each other than to others; `None`: nobody said. */
            rack?: string | null;
        };
        /** @description The smallest change that would let the job start now, or of one that never could ([`Wait::is_for_good`]) at all: of those that were tried and do, the first in the order of [`Change::rank`]. */
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
        /** @description When to write checkpoints. A job that stops in order always writes one besides. */
        CheckpointPolicy: {
            /**
             * Format: double
             * @description And every so many minutes; above 0.
             * @default 5
             */
            every_minutes: number | null;
            /**
             * Format: int64
             * @description Every so many steps; 1 or more.
             * @default null
             */
            every_steps: number | null;
            /**
             * Format: int32
             * @description The newest so many stay; 1 to 1000.
             * @default 3
             */
            keep: number;
            /** @default null */
            keep_best: components["schemas"]["KeepBest"] | null;
            /**
             * Format: int64
             * @description And for ever one every so many steps, written whatever the other rules say. 1 or more.
             * @default null
             */
            keep_every_steps: number | null;
        };
        /** @description One checkpoint of a job. */
        CheckpointView: components["schemas"]["Written"] & {
            id: components["schemas"]["CheckpointId"];
            /** @description Why it stays; empty once it is pruned, and for the moment in which it is about to be. */
            kept: components["schemas"]["Kept"][];
            /** @description Still there: the job's checkpoint policy has not pruned it. Its `files` can be downloaded then. */
            retained: boolean;
        };
        /**
         * @description To whom a node is closed.
         * @enum {string}
         */
        Closed: "open" | "to_new" | "to_all";
        /** @description A codec with its settings. */
        CodecConfig: {
            /** @enum {string} */
            kind: "none";
        } | {
            /** @description Whether what rounding loses is added to the next step. */
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
             * @description In standard deviations, above 0; `null` clips nothing.
             */
            clip?: number | null;
            /** @enum {string} */
            kind: "tern_grad";
            scale?: components["schemas"]["TernScale"];
        } | {
            /**
             * Format: int32
             * @description 4 to 8.
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
             * @description Above 0, at most 1.
             */
            density: number;
            /** @enum {string} */
            kind: "top_k";
            /** @description By a threshold from a sample: half the time, and the density about right. */
            sampled?: boolean;
        } | {
            /** @enum {string} */
            kind: "threshold";
            /**
             * Format: float
             * @description Above 0.
             */
            magnitude: number;
        } | {
            /** Format: double */
            density: number;
            /** @enum {string} */
            kind: "dgc";
            /** @description Whether the momentum of what is sent is forgotten, as in the paper: against stale gradients, at the price of pace. */
            masking?: boolean;
            /**
             * Format: float
             * @description From 0 to below 1.
             */
            momentum: number;
            /** Format: int64 */
            warm_up_steps?: number;
        };
        /** @description A codec for all parameters, but for small blocks and named ones. */
        Codecs: {
            codec: components["schemas"]["CodecConfig"];
            /** @description Blocks of fewer numbers, such as biases, stay plain: their bytes do not matter, their errors do. */
            dense_below?: number;
            /** @description The first that matches decides, whatever the block's length. At most 64. */
            layers?: components["schemas"]["LayerCodec"][];
        };
        /**
         * @description A program of the user's own, started once for every worker (and PS shard) of the job, all at one time.
         *
         *     Each of its processes finds in its environment who it is and where the others are; `docs/commands.md` has the list.
         */
        Command: {
            /** @description The program and its arguments, as they are: no shell looks at them. 1 to 256, with 64 KiB together. */
            argv: string[];
            /**
             * @description A program that must end with code 0 on every node within a minute before `argv` is started, such as
             *     `[python3, -c, "import torch"]`. Whether `argv`'s own program is there is looked at in any case.
             */
            check?: string[];
            /** @description With whom the job is done. */
            ends?: components["schemas"]["Ends"];
            /** @description Variables set over those that Muster sets, but for the names in `RESERVED`. At most 256, with 64 KiB together. */
            env?: {
                [key: string]: string;
            };
            /** @description Files that lie in the task's folder when the program starts: by relative path. At most 64, with 64 KiB together. */
            files?: {
                [key: string]: string;
            };
            /**
             * Format: int32
             * @description Processes that only hold parameters, as TensorFlow's `ParameterServerStrategy` has them: they run the same program, get no GPU,
             *     and are stopped once all workers are done. 0 to 64.
             */
            parameter_servers?: number;
            /**
             * Format: int64
             * @description Steps after which the program is expected to be done, by which progress is shown and the time left is estimated. Nothing stops it
             *     there. 1 to 1,000,000,000.
             */
            steps?: number | null;
            /**
             * @description Absolute path of a folder that every node has, where the program is started. A new folder of the task, with `files` in it, when
             *     left out.
             */
            working_dir?: string | null;
        };
        /** @description What is done to gradients before they are sent: `none`, or codecs. */
        Compression: "none" | components["schemas"]["Codecs"];
        /** @description A trial has the parameter only if it has that other one, with one of these values. */
        Condition: {
            is: unknown[];
            /** @description The name of a categorical parameter that stands before this one. */
            parameter: string;
        };
        /** @description When a worker may go on to its next step. */
        Consistency: {
            /**
             * Format: int32
             * @description A step ends without the slowest so many workers' gradients, which are dropped when they come (Chen et al., 2016); then the
             *     result does depend on timing. The mean is over those that counted; the first worker, which leads the others, is always waited
             *     for. 0 to one less than the fewest workers; `parameter_server` only.
             */
            backup?: number;
            /** @enum {string} */
            kind: "bsp";
        } | {
            /**
             * @description A step begins on the parameters that there are, where the bound allows it, while the gradients of the step before still
             *     travel; newer ones take their place as soon as they come (ESSP, Dai et al., 2015).
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
        /** @description Stop when the epoch's mean training loss fell by less than `relative_loss_drop` in each of the last `epochs` epochs. */
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
        /** @description How many tasks of one role a job has, and may have. */
        Count: {
            /** Format: int32 */
            max: number;
            /** Format: int32 */
            min: number;
            /**
             * Format: int32
             * @description Whose process is up.
             */
            running: number;
        };
        /** @description A one-time join token just made. It is shown this once and stored nowhere. */
        CreatedJoinToken: {
            /** Format: date-time */
            expires_at: string;
            node: string;
            /** @description The executor's `--join-token`, for its first session. */
            token: string;
        };
        /** @description A token just made. The secret is shown this once and stored nowhere. */
        CreatedToken: {
            access: components["schemas"]["Access"];
            /** Format: date-time */
            expires_at: string | null;
            id: components["schemas"]["TokenId"];
            name: string;
            /** @description To be sent as `Authorization: Bearer <secret>`. */
            secret: string;
            tenant: string;
            user: string;
        };
        /**
         * @description A user's own files. `path` is relative to the data-set root and stays below it. Of the rows, which are dealt to both in an order
         *     that is the same for every job, `train_examples` are trained on and `test_examples` tested with; 1 to 100,000,000 each.
         */
        DataFiles: {
            /**
             * Format: int32
             * @description Beside the target; 1 to 65,536.
             */
            columns: number;
            /** @enum {string} */
            kind: "csv";
            learn: components["schemas"]["Learn"];
            normalise?: components["schemas"]["Normalisation"] | null;
            path: string;
            /** @description The target's column. */
            target: string;
            /** Format: int32 */
            test_examples: number;
            /** Format: int32 */
            train_examples: number;
        } | {
            /** @description Of images only. */
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
        /** @description What is trained on. */
        Dataset: components["schemas"]["KnownDataset"] | components["schemas"]["DataFiles"];
        /**
         * @description The data sets that the engine knows how to read.
         * @enum {string}
         */
        DatasetName: "fashion-mnist" | "mnist";
        /** @description What follows warm-up. `total_steps` is more than `warmup_steps`. */
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
        /** @description What a round said of a job. */
        DecidedView: {
            /** Format: date-time */
            at: string;
            /**
             * Format: int32
             * @description Sizes at which its speed was measured; 0 is a guess.
             */
            measured_sizes: number;
            /**
             * Format: double
             * @description Seconds saved per share of the cluster by one worker more; null when it may have no more.
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
            /** @description The 80 % interval of `steps_left`: least and most. */
            steps_left_between: number[] | null;
            /**
             * Format: double
             * @description Predicted at its size.
             */
            steps_per_s: number | null;
            /**
             * Format: double
             * @description Seconds to its end at this size.
             */
            time_left_s: number | null;
            /** @description Why it has this size, or waits, in words. */
            why: string;
            /**
             * Format: int32
             * @description Its size after the round.
             */
            workers: number;
        };
        /**
         * @description Which of the published ones.
         * @enum {string}
         */
        DenseNetVariant: "d121" | "bc100";
        /**
         * @description What a rank does at the moment.
         * @enum {string}
         */
        Doing: "working" | "waiting" | "busy" | "standing";
        /** @description Whether the GPUs' driver moves the memory of a program that knows nothing of it to the host, and back. */
        DriverSuspend: {
            /** @description The version of CUDA that the driver is for. */
            cuda: string;
            /** @enum {string} */
            kind: "able";
        } | {
            /** @enum {string} */
            kind: "unable";
            why: string;
        };
        /**
         * @description With whom a job that runs a command is done.
         * @enum {string}
         */
        Ends: "all_workers" | "first_worker";
        Engine: {
            /**
             * Format: int32
             * @description A worker computes its part of a batch in at least so many passes, whose gradients add up before they are sent: memory falls,
             *     the result stays (but for batch normalisation, whose statistics are those of a pass). 1 to 1,024.
             */
            accumulate?: number | null;
            /**
             * Format: int32
             * @description Examples per step over all workers together; it stays the same as workers come and go, unless `batch_rule` says otherwise. 1 to
             *     65,536.
             */
            batch: number;
            /** @description What becomes of the batch when workers come and go. */
            batch_rule?: components["schemas"]["BatchRule"];
            /**
             * Format: double
             * @description The mean gradient of a step is scaled down to this Euclidean norm over all parameters where it is longer (Pascanu, Mikolov and
             *     Bengio, 2013); under `ssp` and `asp`, where a step has no mean, each worker clips the mean gradient of its own part. Above 0.
             */
            clip_norm?: number | null;
            dataset: components["schemas"]["Dataset"];
            /**
             * Format: int32
             * @description So many threads of the one worker train on the same parameters without locks, each a step of its own at a time (Hogwild, Recht et
             *     al., 2011); the result depends on timing. On the CPU, by `sgd` without momentum, `all_reduce` and one worker only. 1 to 64.
             */
            hogwild_threads?: number | null;
            model: components["schemas"]["Model"];
            optimizer: components["schemas"]["Optimizer"];
            precision?: components["schemas"]["Precision"] | null;
            /** @description Of the learning rate; constant when left out. */
            schedule?: components["schemas"]["Schedule"];
            /**
             * Format: int64
             * @description Of initial parameters and data order.
             */
            seed?: number;
        };
        /** @description One pass over the test or validation split. At least one of loss and accuracy is there. */
        Evaluation: {
            /**
             * Format: double
             * @description Share of examples classified rightly, 0 to 1; null of a program that logs none.
             */
            accuracy: number | null;
            /** Format: double */
            epoch: number;
            /**
             * Format: double
             * @description Null of a program that logs none.
             */
            loss: number | null;
            split?: components["schemas"]["Split"];
            /** Format: int64 */
            step: number;
        };
        /** @description When the test split is passed over besides the end of every epoch and of training. */
        EvaluationPolicy: {
            /**
             * Format: int64
             * @description Every so many steps; 1 or more. For epochs that are long, and for targets that are to be met at once.
             * @default null
             */
            every_steps: number | null;
        };
        /** @description One pass over the test or validation split. */
        EvaluationView: components["schemas"]["Evaluation"] & {
            /** Format: date-time */
            at: string;
        };
        /** @description What happened. Stored as JSON with the tenant, the job, the time and a sequence beside it. */
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
            /** @enum {string} */
            kind: "job_edited";
            /** Format: int32 */
            priority: number;
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
            /** @enum {string} */
            kind: "job_stop_requested";
            then: components["schemas"]["AfterStop"];
            why: string;
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
             * @description Likewise.
             */
            accuracy: number | null;
            /** Format: double */
            epoch: number;
            /** @enum {string} */
            kind: "evaluated";
            /**
             * Format: double
             * @description Null of a program that logs none.
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
            /** @description Where a reader that has seen this event stands. */
            cursor: string;
            event: components["schemas"]["Event"];
            job_id: components["schemas"]["JobId"] | null;
            node_id: components["schemas"]["NodeId"] | null;
            tenant_id: components["schemas"]["TenantId"] | null;
        };
        /** @description How workers exchange what they learn. */
        Exchange: {
            /** @description How a sum over all workers goes; `all_reduce` only. */
            algorithm?: components["schemas"]["Algorithm"];
            averaging?: components["schemas"]["Averaging"] | null;
            compression?: components["schemas"]["Compression"];
            consistency?: components["schemas"]["Consistency"];
            /**
             * Format: int32
             * @description A worker whose process stands still for so long while the others wait is held for lost, and they go on without it; a step
             *     may take longer, as its process gives signs of life meanwhile. 2 to 3,600 seconds; `all_reduce` only.
             */
            hung_after_s?: number;
            /**
             * @description Workers on one node add their gradients up in shared memory first, and one of them pushes the sum and shares what comes back: a node
             *     with 8 workers sends and receives an eighth. `bsp` without backup workers, no compression; `parameter_server` only.
             */
            local_aggregation?: boolean;
            /**
             * Format: int32
             * @description Followers that each PS shard has, 0 or 1. With one, the next shard keeps a copy of all it holds, and goes on as it when it is
             *     lost: no step is lost, and nobody starts anew. While there is one shard there is no copy. `parameter_server` only.
             */
            shard_replicas?: number;
            topology?: components["schemas"]["Topology"];
        };
        /** @description Why a node takes no new tasks although nobody has drained it. */
        Excluded: {
            /** Format: date-time */
            at: string;
            /** @description The node itself says so, as for a full disk. It takes tasks again by itself; uncordoning does not change it. */
            by_itself?: boolean;
            why: string;
        };
        /** @description A job's place in the newest round, and what stands in its way. */
        ExplainView: {
            decided: components["schemas"]["DecidedView"] | null;
            /** @description What keeps a waiting job from starting; empty for others. */
            in_the_way: components["schemas"]["InTheWay"];
            job_id: components["schemas"]["JobId"];
            name: string;
            phase: components["schemas"]["JobPhase"];
            waiting: components["schemas"]["WaitingView"] | null;
        };
        /** @description Katib's words; numbers may be written as text, as there. */
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
        /** @description One thing that is wrong with a document. */
        FieldError: {
            /** @description What would be right. */
            expected: string;
            /** @description Path in the document, such as `scale.workers.min`. */
            field: string;
            /** @description The value found, as JSON. */
            value: string;
        };
        /** @description The evidence. */
        Finding: {
            /** @enum {string} */
            kind: "straggler";
            /**
             * Format: int64
             * @description Of a step at the median rate.
             */
            median_us: number;
            /**
             * Format: int64
             * @description Microseconds of its own that it takes for a step, waiting not counted.
             */
            own_us: number;
        } | {
            /** @enum {string} */
            kind: "hang";
            /**
             * Format: int64
             * @description Since it was heard, or since its step changed.
             */
            silent_ms: number;
            /**
             * Format: int64
             * @description Its last step.
             */
            step: number;
        };
        /** @description What was expected of a job at one instant. */
        Forecast: {
            finish: components["schemas"]["Interval"] | null;
            /**
             * Format: double
             * @description GPU-seconds that it will still hold, in the mean; 0 where `unforeseen` says why nobody can tell.
             */
            gpu_s: number;
            /** Format: date-time */
            made_at: string;
            start: components["schemas"]["Interval"] | null;
            unforeseen?: components["schemas"]["Unforeseen"] | null;
        };
        /** @enum {string} */
        Goal: "minimize" | "maximize";
        Gpu: {
            /** Format: int32 */
            index: number;
            kind: components["schemas"]["GpuKind"];
            /** Format: int64 */
            memory_bytes: number;
            /** @description Product name as the driver tells it (`NVIDIA H200`), or `cpu`. */
            model: string;
        };
        /** @enum {string} */
        GpuKind: "cuda" | "cpu_slot";
        /** @description A GPU, or the CPU slot that stands for one. */
        GpuView: {
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
         * @description Which sixteen bits.
         * @enum {string}
         */
        HalfFormat: "f16" | "bf16";
        /** @description Forecasts of jobs that have succeeded since, but for those that are unsure. */
        HitRate: {
            /** Format: int64 */
            forecasts: number;
            /**
             * Format: int64
             * @description Forecasts whose interval held.
             */
            held: number;
            /**
             * Format: int64
             * @description Jobs of these forecasts.
             */
            jobs?: number;
            /**
             * Format: double
             * @description How often a look at a job shows an interval that holds: of each job the share of the time in which the newest forecast held, and of
             *     the jobs the mean, so that each counts once. Null while there are none.
             */
            share: number | null;
        };
        ImaginedJob: {
            /** @description The job document. */
            job: components["schemas"]["JobSpec"];
            /** @description The tenant that would submit it; that of the token when it is left out. */
            tenant?: string | null;
        };
        ImaginedQuota: {
            /**
             * Format: int32
             * @description Null lifts the limit; it must be written, so that a forgotten field does not.
             */
            gpu_quota: number | null;
            /** @description The tenant's name. */
            tenant: string;
        };
        InTheWay: {
            jobs: components["schemas"]["BlockingJob"][];
            /** @description Nodes on which it finds no room, those with most free GPUs first; at most 16. */
            nodes: components["schemas"]["BlockingNode"][];
            quota: components["schemas"]["BlockingQuota"] | null;
        };
        /** @description What a network reads of one example. */
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
         * @description What the user wants of the job; written by the api, obeyed by the next round.
         * @enum {string}
         */
        Intent: "run" | "suspend" | "pause" | "cancel";
        /** @description In eight cases of ten it falls between `p10` and `p90`, in half of them before `p50`. */
        Interval: {
            /** Format: date-time */
            p10: string;
            /** Format: date-time */
            p50: string;
            /** Format: date-time */
            p90: string;
            /** @description The time until `p90` is more than ten times the time until `p10` (five seconds added to both): show `p50` alone, as a guess. */
            unsure?: boolean;
        };
        /** @description What is to become of a job's size and priority; what is left out stays. */
        JobChange: {
            /**
             * Format: int64
             * @description The job's `edits` as they were read: refused if it was changed since.
             */
            edits?: number | null;
            /**
             * Format: int32
             * @description -100 to 100; higher comes first within its tenant.
             */
            priority?: number | null;
            ps_shards?: components["schemas"]["Range"] | null;
            workers?: components["schemas"]["Range"] | null;
        };
        /**
         * Format: uuid
         * @description What was submitted.
         */
        JobId: string;
        /**
         * @description The name of a state without its data; what lists filter by and what SQL stores in its own column.
         * @enum {string}
         */
        JobPhase: "queued" | "starting" | "running" | "suspended" | "stopping" | "paused" | "succeeded" | "failed" | "cancelled";
        JobShift: {
            /** @description It would be stopped for the sake of others. A program of which nobody has seen a checkpoint then begins anew. */
            displaced: boolean;
            finish: components["schemas"]["Interval"] | null;
            /**
             * Format: double
             * @description What it would still hold, in the mean; 0 where `unforeseen` says why nobody can tell.
             */
            gpu_hours: number;
            id: components["schemas"]["JobId"] | null;
            /**
             * Format: double
             * @description Seconds by which its expected end comes later, or earlier if negative; null when there is none in one of the cases, or nobody can tell.
             */
            later_s: number | null;
            name: string;
            start: components["schemas"]["Interval"] | null;
            tenant: string;
            unforeseen?: components["schemas"]["Unforeseen"] | null;
        };
        /** @description A training job as its user describes it: what the built-in engine shall train, or a program of the user's own. */
        JobSpec: {
            checkpoint?: components["schemas"]["CheckpointPolicy"];
            command?: components["schemas"]["Command"] | null;
            engine?: components["schemas"]["Engine"] | null;
            evaluate?: components["schemas"]["EvaluationPolicy"];
            exchange?: components["schemas"]["Exchange"];
            /**
             * @description Its GPUs are its own from its start to its end: it takes no turns with other jobs on them (Slurm's word). For jobs that somebody
             *     waits for; such a job waits until GPUs are free, and nobody is suspended for it.
             */
            exclusive?: boolean;
            from?: components["schemas"]["Origin"] | null;
            labels?: {
                [key: string]: string;
            };
            /** @description 1 to 63 characters of `a-z`, `0-9` and `-`, beginning and ending with a letter or digit. Need not be unique. */
            name: string;
            /** @description What the pods of its tasks are beyond what every task's pod is, such as the user's image; the job then runs only where tasks are pods. */
            pod?: components["schemas"]["Pod"];
            /**
             * Format: int32
             * @description -100 to 100; higher comes first within its tenant.
             */
            priority?: number;
            resources?: components["schemas"]["Resources"];
            /**
             * Format: int32
             * @description Task failures after which the job is started again from its newest checkpoint; 0 to 100.
             */
            retries?: number;
            scale?: components["schemas"]["Scale"];
            /** @description Required with `engine`; a command ends by itself. */
            stop?: components["schemas"]["Stop"];
            /** @description When a rank that holds the others up is replaced. */
            verdicts?: components["schemas"]["Verdicts"];
            version: components["schemas"]["Version"];
        };
        /** @description Where a job stands. Data lives in the variant that needs it. */
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
        /** @description A job as its users see it. */
        JobView: {
            /**
             * Format: int64
             * @description How often its owner has changed it.
             */
            edits?: number;
            /** @description Why it failed; null unless it did. */
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
            /** @description What its users want of it; the next round obeys. */
            intent: components["schemas"]["Intent"];
            labels: {
                [key: string]: string;
            };
            /** @description Why it failed the last time that was charged to its retries, it may be running again; null before the first. */
            last_failure: string | null;
            /** @description Of the final model once the job has succeeded, relative to the checkpoint root. */
            model_path: string | null;
            name: string;
            /** @description The name of `state`, to filter and show by. */
            phase: components["schemas"]["JobPhase"];
            /** Format: int32 */
            priority: number;
            progress: components["schemas"]["ProgressView"] | null;
            ps_shards: components["schemas"]["Count"];
            /**
             * Format: int32
             * @description How often in a row nodes have refused tasks of it, as pods of others were there first. Its start may be refused eight times; from the ninth
             *     on each is charged to its retries. A job that runs as it is and cannot grow is charged nothing.
             */
            put_off?: number;
            /**
             * Format: int64
             * @description Newest step that it can continue from; null before the first checkpoint.
             */
            resume_step: number | null;
            /**
             * Format: int64
             * @description Of its task set: 0 before the first start, one more at every start.
             */
            revision: number;
            /** @description The document as submitted, defaults filled in and later changes made. */
            spec: components["schemas"]["JobSpec"];
            /** Format: date-time */
            started_at: string | null;
            state: components["schemas"]["JobState"];
            /** Format: date-time */
            submitted_at: string;
            /** @description Name of the user who submitted it. */
            submitted_by: string;
            /** @description Name of the tenant that owns it. */
            tenant: string;
            trial: components["schemas"]["TrialRef"] | null;
            waiting: components["schemas"]["WaitingView"] | null;
            workers: components["schemas"]["Count"];
        };
        /** @description The best checkpoints stay, however old they are. */
        KeepBest: {
            by?: components["schemas"]["Measure"];
            /**
             * Format: int32
             * @description So many; 1 to 1000.
             */
            count: number;
        };
        /**
         * @description Why a checkpoint stays.
         * @enum {string}
         */
        Kept: "newest" | "best" | "milestone" | "origin";
        /** @description A data set that is known by name. */
        KnownDataset: {
            augment?: components["schemas"]["Augmentation"][];
            name: components["schemas"]["DatasetName"];
            /**
             * Format: int32
             * @description Use only the first so many test examples.
             */
            test_limit?: number | null;
            /**
             * Format: int32
             * @description Use only the first so many training examples; at least `batch`.
             */
            train_limit?: number | null;
        };
        /** @description GPUs as the cluster's labels have them, all of one kind: the product, or a profile into which it is divided. */
        Labelled: {
            /**
             * Format: int64
             * @description Of one of them; 0 is not known.
             */
            memory_bytes: number;
            /** @description Such as `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`. */
            model: string;
        };
        /** @description One layer. Images are height × width × channels, sequences positions × features. */
        Layer: {
            bias?: boolean;
            /**
             * Format: int32
             * @description Channels that it makes.
             */
            channels: number;
            /**
             * Format: int32
             * @description With as many as channels it is a depthwise convolution.
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
            /** @description None when left out; at most half of the kernel. */
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
            /** @description After the addition. */
            relu?: boolean;
            shortcut?: components["schemas"]["Layer"][];
        } | {
            branches: components["schemas"]["Layer"][][];
            /** @enum {string} */
            kind: "concat";
        };
        /** @description Another codec for some blocks. */
        LayerCodec: {
            /** @description A block's name, in which one `*` stands for anything: `dense1.weight`, `conv*`, `*.bias`. */
            blocks: string;
            codec: components["schemas"]["CodecConfig"];
        };
        /** @description What is to be learnt of each example. */
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
        /** @description What is to become of limits; what is left out stays, and null is the default again. */
        LimitsChange: {
            /**
             * Format: int64
             * @description Checkpoints of one job that are listed; the oldest are forgotten, first those that were pruned.
             */
            job_checkpoints?: number | null;
            /**
             * Format: int64
             * @description Bytes of these events.
             */
            job_event_bytes?: number | null;
            /**
             * Format: int64
             * @description Events of one job that its tasks tell; further ones are dropped, evaluations among them.
             */
            job_events?: number | null;
            /**
             * Format: int64
             * @description Bytes of output that is stored of the tasks of one job; above it the oldest is dropped.
             */
            job_log_bytes?: number | null;
            /**
             * Format: int64
             * @description Points of the series of one job; above it only the newest sample is kept. The default is three weeks with a sample a second.
             */
            job_points?: number | null;
            /**
             * Format: int64
             * @description Bytes of the documents of these jobs, as JSON. The default is 5 KiB for each of the jobs.
             */
            open_job_bytes?: number | null;
            /**
             * Format: int64
             * @description Jobs that have not ended, trials of studies among them. The default is what the scheduler is measured with.
             */
            open_jobs?: number | null;
            /**
             * Format: int64
             * @description Studies that have not finished.
             */
            open_studies?: number | null;
            /**
             * Format: int64
             * @description Tokens that are neither revoked nor expired.
             */
            tokens?: number | null;
            /**
             * Format: int64
             * @description Those of one user.
             */
            user_tokens?: number | null;
        };
        /** @description What counts against the limits now. */
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
        /** @description What a task wrote. */
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
            /** Format: int64 */
            revision: number;
            /** @description `worker-0`, `ps-1`. */
            task: string;
            task_id: components["schemas"]["TaskId"];
            /** @description Bytes that are not UTF-8 are replaced. */
            text: string;
        };
        /** @description Whom the bearer stands for. */
        Me: {
            access: components["schemas"]["Access"];
            /**
             * Format: int32
             * @description GPUs (or CPU slots) that the tenant's jobs may hold at once; null is no limit.
             */
            gpu_quota: number | null;
            /**
             * Format: int32
             * @description GPUs (or CPU slots) that they hold now.
             */
            gpus_in_use?: number;
            /**
             * Format: int32
             * @description Jobs of the tenant that hold any.
             */
            jobs_in_use?: number;
            /** @description Those of the tenant. */
            limits?: components["schemas"]["TenantLimits"];
            tenant: string;
            tenant_id: components["schemas"]["TenantId"];
            token_id: components["schemas"]["TokenId"];
            /** @description What counts against the limits now. */
            used?: components["schemas"]["LimitsUse"];
            user: string;
            user_id: components["schemas"]["UserId"];
        };
        /**
         * @description What an evaluation on the test split measures.
         * @enum {string}
         */
        Measure: "accuracy" | "loss";
        /**
         * @description What has changed of the membership of a node.
         * @enum {string}
         */
        MembershipChange: "join_token_made" | "credential_reset" | "replaced" | "removed";
        /** @enum {string} */
        Metric: "test_accuracy" | "test_loss";
        /** @description A network by its kind. What goes in and comes out follows from the data set. */
        Model: {
            /** @description Widths, input to output; at most 16, each 1 to 16,384. */
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
            /** @description Of the convolutions of stride 2, each 1 to 1,024; 1 to 8. The sides of the image halve evenly at each. */
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
            /** @description Whether the scores are products with the tokens' own table. */
            tied?: boolean;
            /**
             * Format: int32
             * @description 1 to 16,384; `heads` divide it.
             */
            width: number;
        } | {
            /** @description Of each layer, 1 to 16,384; 1 to 16 layers. */
            hidden: number[];
            /** @enum {string} */
            kind: "lstm";
            /**
             * Format: int32
             * @description Of the embedding, 1 to 16,384.
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
            /** @description At most 1,024, those inside others counted too. */
            layers: components["schemas"]["Layer"][];
        };
        /** @description How long a one-time join token shall count. */
        NewJoinToken: {
            /**
             * Format: int64
             * @description Seconds from now, at most 604800 (a week); an hour where it is left out.
             */
            lifetime_s?: number | null;
        };
        /** @description A tenant to create. */
        NewTenant: {
            /**
             * Format: int32
             * @description Null or left out is no limit.
             */
            gpu_quota?: number | null;
            /** @description 1 to 63 characters of `a-z`, `0-9` and `-`, beginning and ending with a letter or digit. Unique. */
            name: string;
            /** @description What the pods of its tasks may have; images and nothing else when left out. */
            pods?: components["schemas"]["TenantPods"];
            /**
             * Format: double
             * @description 0.001 to 1000: its share of the cluster beside the other tenants' weights.
             */
            weight?: number;
        };
        /** @description A token to create. */
        NewToken: {
            /** @description `admin` may be given by administrators only. */
            access?: components["schemas"]["Access"];
            /**
             * Format: date-time
             * @description From here on it is refused; never if left out.
             */
            expires_at?: string | null;
            /** @description 1 to 255 characters. */
            name: string;
            /** @description Name of the tenant it is for; the bearer's if left out. For administrators only. */
            tenant?: string | null;
            /** @description Name of the user it is for, who is created if need be; the bearer if left out. For administrators only. */
            user?: string | null;
        };
        /** @description What happened on it. */
        NodeFault: {
            /** @enum {string} */
            kind: "killed";
            /** Format: int32 */
            signal: number;
        } | {
            /** @enum {string} */
            kind: "straggler";
        } | {
            /** @description The node has not started it in time. */
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
        NodeObstacle: "busy" | "not_enough" | "kept" | "too_small" | "no_pods" | "drained" | "down";
        /** @enum {string} */
        NodeState: "up" | "lost";
        /** @description A node and what runs on each of its GPUs. */
        NodeView: {
            capacity: components["schemas"]["Capacity"];
            /** @description Takes no new task; its tasks move away. */
            drained: boolean;
            excluded: components["schemas"]["Excluded"] | null;
            /**
             * Format: int64
             * @description Version of what it was told to run.
             */
            generation: number;
            /** @description By index. */
            gpus: components["schemas"]["GpuView"][];
            id: components["schemas"]["NodeId"];
            /** Format: date-time */
            last_seen_at: string;
            name: string;
            notice: components["schemas"]["Notice"] | null;
            state: components["schemas"]["NodeState"];
            /**
             * Format: int64
             * @description Tasks that have not ended, of all tenants; PS shards hold no GPU. Older apis do not tell.
             */
            tasks?: number | null;
        };
        /**
         * @description What a bucket is measured by.
         * @enum {string}
         */
        Norm: "largest" | "euclidean";
        /** @description What numbers go through before the network sees them. Of images by channel, of tables by column. */
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
         * @description What the cluster that the machine belongs to, such as Kubernetes, says of it: always all that it says, so that whoever brings the news
         *     need not know the news before. An administrator's drain and this stand beside each other, and neither ends the other.
         */
        Notice: {
            /** @description Who says so: only that speaker says something else later. Whoever says nothing here is an administrator. */
            by?: string | null;
            closed: components["schemas"]["Closed"];
            gpus?: components["schemas"]["Labelled"] | null;
            /** @description Where it stands; counts before what its executor says of that. */
            rack?: string | null;
            /**
             * Format: int32
             * @description So many of its GPUs somebody outside of Muster has; which, nobody knows, as they are only counted.
             */
            taken?: number;
            /** @description Why it is closed, or whose GPUs some of them are, in words. */
            why?: string;
        };
        /** @description A metric and which way is better. */
        Objective: {
            goal: components["schemas"]["Goal"];
            /** @description As trials report it, such as `test_accuracy`. */
            metric: string;
            /**
             * Format: double
             * @description The study is done when a trial reaches it; HyperDrive predicts whether one will. With `reproducible` only the values with which
             *     rungs end count.
             */
            target?: number | null;
        };
        /** @description The job that holds a GPU. Whose it is and which, of another tenant, is shown to administrators only. */
        Occupant: {
            id: components["schemas"]["JobId"] | null;
            name: string | null;
            tenant: string | null;
        };
        /** @description The stream stands. Whoever reads a list after this message and then applies what the stream brings misses nothing. */
        Opened: {
            /** @description Where the stream begins. */
            cursor: string;
            /** @description Only where events after `cursor` were removed for their age: the newest of these. The reader has missed them. */
            forgotten?: string | null;
        };
        /**
         * @description How a gradient changes a parameter. `learning_rate` is above 0 and at most 100; `weight_decay`, 0 to below 1, is an L2 penalty
         *     that is added to the gradient.
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
            /** @description Looks ahead along the momentum (Sutskever et al., 2013), which must be above 0. */
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
             * @description Share of a tensor's norm that a step may move it by; above 0, at most 1.
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
             * @description Of the mean of squares; 0 to below 1.
             */
            rho?: number;
            /** Format: double */
            weight_decay?: number;
        } | {
            /** Format: double */
            beta1?: number;
            /** Format: double */
            beta2?: number;
            /** @description AdamW: parameters decay by themselves, not through the gradient (Loshchilov and Hutter, 2019). */
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
         * @description A checkpoint of another job of the same tenant. The new job takes over parameters, optimizer state and the count of steps, and
         *     trains on by its own document: `stop` counts from where the other job began.
         */
        Origin: {
            /** @description The job whose checkpoint it is. */
            job: components["schemas"]["JobId"];
            /**
             * Format: int64
             * @description Optimizer steps after which it was written. Left out: its newest when the new job is submitted, which is then filled in.
             */
            step?: number | null;
        };
        /** @description How a task ended. */
        Outcome: {
            /** Format: int32 */
            code: number;
            /** @enum {string} */
            kind: "exited";
            /** @description Of one that failed: the last line of its output, cleaned and cut; absent where it wrote nothing. */
            said?: string | null;
        } | {
            /** @enum {string} */
            kind: "signalled";
            /** @description As of one that exited. */
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
            /** @description It was no such order: the driver had taken the program off its GPUs, and this is why it did not give it back. */
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
        /** @description How fast a worker is by its own word, beside the others of its job: what verdicts on stragglers and hangs go by. */
        PaceView: {
            doing: components["schemas"]["Doing"];
            /**
             * Format: date-time
             * @description When it was heard last.
             */
            heard_at: string;
            /**
             * Format: date-time
             * @description When its step last changed.
             */
            moved_at: string;
            /**
             * Format: double
             * @description Its rate as a part of the median of the job's workers; null where fewer than two tell theirs.
             */
            of_median: number | null;
            /**
             * Format: double
             * @description Milliseconds that a step takes it, waiting for others not counted; null where it does not tell.
             */
            own_ms: number | null;
            /**
             * Format: int64
             * @description Steps done, over the job's whole life.
             */
            step: number;
            suspected: components["schemas"]["SuspectedView"] | null;
        };
        /** @description One page of a list. */
        Page_BestTrialView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                checkpoint: components["schemas"]["Written"] | null;
                /** @description The trained model, relative to the checkpoint root; null unless its job has succeeded. */
                model_path: string | null;
                trial: components["schemas"]["TrialView"];
            }[];
        };
        /** @description One page of a list. */
        Page_CheckpointView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: (components["schemas"]["Written"] & {
                id: components["schemas"]["CheckpointId"];
                /** @description Why it stays; empty once it is pruned, and for the moment in which it is about to be. */
                kept: components["schemas"]["Kept"][];
                /** @description Still there: the job's checkpoint policy has not pruned it. Its `files` can be downloaded then. */
                retained: boolean;
            })[];
        };
        /** @description One page of a list. */
        Page_EventView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** Format: date-time */
                at: string;
                /** @description Where a reader that has seen this event stands. */
                cursor: string;
                event: components["schemas"]["Event"];
                job_id: components["schemas"]["JobId"] | null;
                node_id: components["schemas"]["NodeId"] | null;
                tenant_id: components["schemas"]["TenantId"] | null;
            }[];
        };
        /** @description One page of a list. */
        Page_JobView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /**
                 * Format: int64
                 * @description How often its owner has changed it.
                 */
                edits?: number;
                /** @description Why it failed; null unless it did. */
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
                /** @description What its users want of it; the next round obeys. */
                intent: components["schemas"]["Intent"];
                labels: {
                    [key: string]: string;
                };
                /** @description Why it failed the last time that was charged to its retries, it may be running again; null before the first. */
                last_failure: string | null;
                /** @description Of the final model once the job has succeeded, relative to the checkpoint root. */
                model_path: string | null;
                name: string;
                /** @description The name of `state`, to filter and show by. */
                phase: components["schemas"]["JobPhase"];
                /** Format: int32 */
                priority: number;
                progress: components["schemas"]["ProgressView"] | null;
                ps_shards: components["schemas"]["Count"];
                /**
                 * Format: int32
                 * @description How often in a row nodes have refused tasks of it, as pods of others were there first. Its start may be refused eight times; from the ninth
                 *     on each is charged to its retries. A job that runs as it is and cannot grow is charged nothing.
                 */
                put_off?: number;
                /**
                 * Format: int64
                 * @description Newest step that it can continue from; null before the first checkpoint.
                 */
                resume_step: number | null;
                /**
                 * Format: int64
                 * @description Of its task set: 0 before the first start, one more at every start.
                 */
                revision: number;
                /** @description The document as submitted, defaults filled in and later changes made. */
                spec: components["schemas"]["JobSpec"];
                /** Format: date-time */
                started_at: string | null;
                state: components["schemas"]["JobState"];
                /** Format: date-time */
                submitted_at: string;
                /** @description Name of the user who submitted it. */
                submitted_by: string;
                /** @description Name of the tenant that owns it. */
                tenant: string;
                trial: components["schemas"]["TrialRef"] | null;
                waiting: components["schemas"]["WaitingView"] | null;
                workers: components["schemas"]["Count"];
            }[];
        };
        /** @description One page of a list. */
        Page_NodeView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                capacity: components["schemas"]["Capacity"];
                /** @description Takes no new task; its tasks move away. */
                drained: boolean;
                excluded: components["schemas"]["Excluded"] | null;
                /**
                 * Format: int64
                 * @description Version of what it was told to run.
                 */
                generation: number;
                /** @description By index. */
                gpus: components["schemas"]["GpuView"][];
                id: components["schemas"]["NodeId"];
                /** Format: date-time */
                last_seen_at: string;
                name: string;
                notice: components["schemas"]["Notice"] | null;
                state: components["schemas"]["NodeState"];
                /**
                 * Format: int64
                 * @description Tasks that have not ended, of all tenants; PS shards hold no GPU. Older apis do not tell.
                 */
                tasks?: number | null;
            }[];
        };
        /** @description One page of a list. */
        Page_RoundSummaryView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /**
                 * Format: date-time
                 * @description The instant that the round was given as now.
                 */
                at: string;
                /**
                 * Format: int32
                 * @description How many things it decided.
                 */
                decisions: number;
                /** Format: int64 */
                number: number;
                /** @description Name of the policy; null where the round does not tell. */
                policy: string | null;
                totals: components["schemas"]["RoundTotals"] | null;
            }[];
        };
        /** @description One page of a list. */
        Page_StudyView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** @description The best trial, or with several objectives the first 10 of the Pareto front, without their curves; `best` lists all. */
                best: components["schemas"]["TrialView"][];
                /** Format: date-time */
                created_at: string;
                /** @description Name of the user who created it. */
                created_by: string;
                /** @description The document as submitted, defaults filled in. */
                document: components["schemas"]["StudySpec"];
                /**
                 * Format: int64
                 * @description Facts that the search has taken in.
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
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** @description `host:port` of its data plane, once it listens. */
                address: string | null;
                /** Format: date-time */
                created_at: string;
                /** @description Indices of the node's GPUs or CPU slots that it was given. */
                gpus: number[];
                id: components["schemas"]["TaskId"];
                job_id: components["schemas"]["JobId"];
                /** @description `worker-0`, `ps-1`; the same in every revision. */
                name: string;
                node: string;
                node_id: components["schemas"]["NodeId"];
                pace?: components["schemas"]["PaceView"] | null;
                /**
                 * Format: double
                 * @description Its job's rate beside that one, as a part of its rate alone; absent before it was measured. Turns give both together 1.
                 */
                rate_beside?: number | null;
                /**
                 * Format: date-time
                 * @description When it was known to be gone; null while it may hold anything.
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
        Page_TenantView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /**
                 * Format: int32
                 * @description GPUs (or CPU slots) that its jobs may hold at once; null is no limit.
                 */
                gpu_quota: number | null;
                /**
                 * Format: int32
                 * @description GPUs (or CPU slots) that its jobs hold now.
                 */
                gpus_in_use?: number;
                id: components["schemas"]["TenantId"];
                /**
                 * Format: int32
                 * @description Jobs that hold any.
                 */
                jobs_in_use?: number;
                limits?: components["schemas"]["TenantLimits"];
                name: string;
                /** @description What the pods of its tasks may have. */
                pods?: components["schemas"]["TenantPods"];
                /** @description What counts against the limits now. */
                used?: components["schemas"]["LimitsUse"];
                /**
                 * Format: double
                 * @description Its share of the cluster beside the other tenants' weights.
                 */
                weight: number;
            }[];
        };
        /** @description One page of a list. */
        Page_TokenView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                access: components["schemas"]["Access"];
                /** Format: date-time */
                created_at: string;
                /**
                 * Format: date-time
                 * @description Null is never.
                 */
                expires_at: string | null;
                id: components["schemas"]["TokenId"];
                /** @description What its owner calls it. */
                name: string;
                /** Format: date-time */
                revoked_at: string | null;
                /** @description Name of the user's tenant. */
                tenant: string;
                /** @description On whose behalf the bearer acts. */
                user: string;
            }[];
        };
        /** @description One page of a list. */
        Page_TrialView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
            continue: string | null;
            items: {
                /** @description No other trial betters it. */
                best: boolean;
                /**
                 * Format: int64
                 * @description How far it was told to train, in all, in units of the document's budget.
                 */
                budget: number;
                /** Format: date-time */
                created_at: string;
                /** @description Its learning curve, by ascending step, of at most 2048 points; empty where it was not asked for. */
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
                /** @description By name. A parameter whose condition does not hold is missing. */
                parameters: Record<string, never>;
                /**
                 * Format: int32
                 * @description How often its budget was raised.
                 */
                rung: number;
                /** @description What it had at the end of each rung. */
                rungs: components["schemas"]["TrialPoint"][];
                /** Format: int64 */
                seed: number;
                state: components["schemas"]["TrialPhase"];
            }[];
        };
        /** @description One page of a list. */
        Page_UserView: {
            /** @description Give it back as the query parameter `continue` to get the next page; null on the last one. Opaque. */
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
        /** @description A parameter of the search. Its value goes into the field of the job document that `field`, or else `name`, names. */
        Parameter: {
            /** @description For a categorical: any JSON values, whole lists of layers among them. */
            choices?: unknown[] | null;
            feasibleSpace?: components["schemas"]["FeasibleSpace"] | null;
            /** @description Where the value goes, such as `engine.optimizer.learning_rate` or `engine.model.hidden[0]`. */
            field?: string | null;
            /**
             * Format: double
             * @description The largest value; for a number.
             */
            high?: number | null;
            /**
             * @description Search on the log scale of the value itself: between 0.001 and 0.1 as many trials lie below 0.01 as above. (In some other
             *     tools `low` and `high` are exponents then; here they never are.)
             */
            log?: boolean | null;
            /**
             * Format: double
             * @description The smallest value; for a number.
             */
            low?: number | null;
            /** @description 1 to 200 bytes, no two alike. */
            name: string;
            /** @description The choices have an order, so that neighbours are alike. */
            ordered?: boolean | null;
            /**
             * Format: double
             * @description Values are `low`, `low + step`, and so on. Above 0; not with the log scale of a float.
             */
            step?: number | null;
            type: components["schemas"]["ParameterKind"];
            when?: components["schemas"]["Condition"] | null;
        };
        /** @enum {string} */
        ParameterKind: "float" | "int" | "categorical" | "discrete";
        /** @description What would come of a job that was not submitted. */
        PlanView: {
            finish: components["schemas"]["Interval"] | null;
            /**
             * Format: double
             * @description What it would hold over its life, in the mean; 0 where `unforeseen` says why nobody can tell.
             */
            gpu_hours: number;
            /**
             * Format: date-time
             * @description The instant of the cluster's state from which was looked ahead.
             */
            made_at: string;
            /** @description The same of the other tenants' jobs, whose names are theirs. */
            other_jobs: components["schemas"]["ShiftedJobs"];
            /** @description Jobs of the same tenant that would be stopped for it, or end half a minute or more earlier or later; at most 100. */
            own_jobs: components["schemas"]["ShiftedJob"][];
            start: components["schemas"]["Interval"] | null;
            unforeseen?: components["schemas"]["Unforeseen"] | null;
        };
        /**
         * @description What the pods of a job's tasks have beyond what every task's pod has. A job that says anything here runs only on nodes whose tasks are
         *     pods.
         */
        Pod: {
            /**
             * @description The image in which the command runs, such as `registry.example.com/vision/trainer:3.2`; with `engine` it is Muster's own. At most
             *     512 characters.
             * @default null
             */
            image: string | null;
            /**
             * @description Secrets by which the image is pulled, beside those that the cluster's administrator has given every task. At most 16.
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
             * @description What is mounted beside what every task has. At most 32.
             * @default []
             */
            volumes: components["schemas"]["Volume"][];
        };
        /**
         * @description How exact products are on a GPU, and what values between layers are stored as. Parameters, gradients, statistics and updates are f32 always.
         * @enum {string}
         */
        Precision: "f32" | "tf32" | "bf16";
        /** @description Why a request was not carried out (`application/problem+json`). Nothing was changed. */
        Problem: {
            /** @description What was wrong with this request, and what would be right. */
            detail: string;
            /** @description Each thing that is wrong, with the field, the value and what would be right. */
            errors?: components["schemas"]["FieldError"][];
            /** @description `urn:muster:request:<id>`, by which the daemon's log knows the request. */
            instance?: string | null;
            /**
             * Format: int32
             * @description HTTP status.
             */
            status: number;
            /** @description The kind in words. */
            title: string;
            /** @description Stable name of the kind of problem, such as `urn:muster:problem:invalid-job`; programs tell problems apart by it. */
            type: string;
        };
        /**
         * @description New samples of one job. They replace whatever the reader has of steps after `after_step`: a job that went back to a checkpoint
         *     trains those steps again. Evaluations come as events.
         *
         *     A job's own stream brings its whole series. The tenant's stream brings only the newest sample of each running job, at most one
         *     a second, for lists: there `after_step` is the step that it brought before, or 0.
         */
        ProgressMessage: {
            /** Format: int64 */
            after_step: number;
            job_id: components["schemas"]["JobId"];
            /** @description By step; at most 500, thinned evenly when more have come since the reader was here. */
            samples: components["schemas"]["SampleView"][];
        };
        /** @description How far a job is. */
        ProgressView: {
            /**
             * Format: double
             * @description Share of training examples classified rightly, 0 to 1; null of a program that has told none.
             */
            accuracy: number | null;
            /**
             * Format: double
             * @description Null of a program that has told none.
             */
            epoch: number | null;
            /**
             * Format: double
             * @description Seconds to `total_steps` at the present rate; null when the job does not run or its end is not a number of steps.
             */
            eta_s: number | null;
            evaluated_on: components["schemas"]["Split"] | null;
            /**
             * Format: double
             * @description Null of a program that has told none.
             */
            examples_per_s: number | null;
            /**
             * Format: double
             * @description Training loss; null of a program that has logged none.
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
             * @description Of the newest evaluation; null before the first, and of a program that logs none.
             */
            test_accuracy: number | null;
            /**
             * Format: double
             * @description Likewise.
             */
            test_loss: number | null;
            /**
             * Format: int64
             * @description The fewer of `stop.steps` and the steps of `stop.epochs`; null when neither is given.
             */
            total_steps: number | null;
        };
        /** @description Trials that a searcher outside has chosen. */
        Proposal: {
            /** @description 1 to 1000 of them, created in this order. */
            trials: components["schemas"]["ProposedTrial"][];
        };
        ProposedTrial: {
            /** @description A value for each parameter of the space whose condition holds. */
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
             * @description As that of a worker.
             * @default 268435456
             */
            memory_bytes: number;
        };
        /** @description Both ends included; 1 to 1024, or 0 to 0 of what the topology has none of. */
        Range: {
            /** Format: int32 */
            max: number;
            /** Format: int32 */
            min: number;
        };
        /**
         * @description The learning rate of gradients that were computed on old parameters.
         * @enum {string}
         */
        Rate: "constant" | "by_staleness";
        /** @description Who would not begin with a task, though its GPUs were free: pods of others were there first, or the node has less than it was taken for. */
        Refused: {
            /** @description What it said. */
            message: string;
            /** @description The node's name. */
            node: string;
            /**
             * Format: int32
             * @description How often in a row nodes have refused the job's start.
             */
            times: number;
        };
        /**
         * @description What was done about it.
         * @enum {string}
         */
        Remedy: "replaced" | "left_out" | "restarted";
        /**
         * @description Why a job left its GPUs although it wants to go on.
         * @enum {string}
         */
        RequeueCause: "resize" | "preempted" | "over_quota" | "task_failed" | "node_lost";
        /** @description What one task of each role takes of its node. */
        Resources: {
            ps_shard?: components["schemas"]["PsShardResources"];
            worker?: components["schemas"]["WorkerResources"];
        };
        /** @description What came of revoking all tokens of a user. */
        RevokedTokens: {
            /**
             * Format: int64
             * @description Tokens that were not revoked before.
             */
            revoked: number;
        };
        /** @description What the process does in its job. "Worker" never means a daemon or a thread. */
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
        /** @description One line of the list of rounds. */
        RoundSummaryView: {
            /**
             * Format: date-time
             * @description The instant that the round was given as now.
             */
            at: string;
            /**
             * Format: int32
             * @description How many things it decided.
             */
            decisions: number;
            /** Format: int64 */
            number: number;
            /** @description Name of the policy; null where the round does not tell. */
            policy: string | null;
            totals: components["schemas"]["RoundTotals"] | null;
        };
        /** @description GPUs of the nodes that were up, after a round. */
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
        /** @description A round, whole. Its parts are passed on byte for byte as the scheduler wrote them, so that a replay can be compared with them. */
        RoundView: {
            /** Format: date-time */
            at: string;
            /** Format: int64 */
            number: number;
            /** @description What it decided. */
            plan: Record<string, never>;
            /** @description The policy under which it was decided; null in rounds of releases that did not keep it. */
            policy: Record<string, never> | null;
            /** @description Why. */
            report: Record<string, never>;
            /** @description Everything that it knew: nodes, tenants and jobs of one instant. */
            snapshot: Record<string, never>;
        };
        /**
         * @description How a number between two of the format's is rounded.
         * @enum {string}
         */
        Rounding: "nearest" | "stochastic";
        /** @description The best step that a round refused for want of room. */
        RunnerUpView: {
            /**
             * Format: double
             * @description Seconds saved per share of the cluster.
             */
            gain: number;
            job_id: components["schemas"]["JobId"];
            /** @description Null for another tenant's job. */
            name: string | null;
        };
        /** @description All of one kind. */
        SaidOfGpus: {
            /**
             * Format: int64
             * @description Of one of them; 0 is not known.
             */
            memory_bytes: number;
            /** @description Such as `NVIDIA-H100-80GB-HBM3-MIG-1g.10gb`: 1 to 253 characters. */
            model: string;
        };
        /** @description A notice as it is sent. Here alone unknown fields are refused: what is stored is also read by daemons of another release. */
        SaidOfNode: {
            /** @description Who says so: an operator leaves alone what another has said, or an administrator, who says nothing here. */
            by?: string | null;
            closed: components["schemas"]["Closed"];
            gpus?: components["schemas"]["SaidOfGpus"] | null;
            /** @description Where it stands; counts before what its executor says of that. */
            rack?: string | null;
            /**
             * Format: int32
             * @description So many of its GPUs somebody outside of Muster has; jobs get the others.
             */
            taken?: number;
            /** @description Why it is closed, or whose GPUs some of them are, in words: at most 500 characters. */
            why?: string;
        };
        /**
         * @description One point of the training series, sent by the chief worker. Rates and times are means since the point before. A user's program logs
         *     only some of the numbers; the others are null.
         */
        Sample: {
            /**
             * Format: double
             * @description Share of training examples classified rightly since the sample before, 0 to 1.
             */
            accuracy: number | null;
            /**
             * Format: double
             * @description Per update, which is a step unless `gain` says otherwise: forward and backward.
             */
            compute_ms: number | null;
            /**
             * Format: double
             * @description Per update: preparing the batch.
             */
            data_ms: number | null;
            /**
             * Format: double
             * @description Epochs done, fractional.
             */
            epoch: number;
            /**
             * Format: double
             * @description Of the whole job, all workers together.
             */
            examples_per_s: number | null;
            /**
             * Format: double
             * @description Per update: pushing gradients and waiting for new parameters.
             */
            exchange_ms: number | null;
            /**
             * Format: double
             * @description Steps that an update was worth, where the batch grows with the workers (`batch_rule: adascale`).
             */
            gain?: number | null;
            /**
             * Format: double
             * @description Mean training loss per example since the sample before.
             */
            loss: number;
            /**
             * Format: double
             * @description The gradient noise scale in examples (McCandlish et al., 2018), where several workers sum gradients: batches well below it gain
             *     from more examples, those well above do not.
             */
            noise_scale?: number | null;
            /** Format: int32 */
            ps_shards: number;
            /**
             * Format: int64
             * @description Optimizer steps done, over the whole life of the job.
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
        /** @description Between which sizes the scheduler may choose. */
        Scale: {
            /** @description The job runs on 1, 2, 4, 8… workers only, as programs do that divide by two. */
            power_of_two?: boolean;
            ps_shards?: components["schemas"]["Range"] | null;
            workers?: components["schemas"]["Range"];
        };
        /**
         * @description Linear warm-up, then decay. Steps count from the job's beginning and are updates of the parameters: under `ssp` and `asp` each
         *     worker's push is one.
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
             * @description Over the first so many steps the rate rises linearly; the last of them has the whole rate (Goyal et al., 2017).
             * @default 0
             */
            warmup_steps: number;
        };
        /** @description Everything a search depends on, its seed included: the same document and the same events give the same trials. */
        SearchSpec: {
            budget?: components["schemas"]["Budget"];
            /**
             * Format: int32
             * @description Trials that may run at one time; 1 to 1000.
             */
            concurrency?: number;
            /**
             * @description Inequalities between parameters, such as `width * depth <= 4096`; a trial that breaks one is never started. A constraint
             *     that names a parameter which the trial does not have does not apply to it.
             */
            constraints?: string[];
            /**
             * Format: int32
             * @description Failed trials after which the study gives up; 0 to 100,000.
             */
            max_failures?: number;
            /** @description What is sought; with two to four, the study keeps a Pareto front. */
            objectives: components["schemas"]["Objective"][];
            parameters: components["schemas"]["Parameter"][];
            /**
             * @description Results count in the order in which their work was handed out, so that the trials do not depend on which machine was
             *     quicker. A slot may then wait for an older result.
             */
            reproducible?: boolean;
            searcher?: components["schemas"]["Searcher"];
            /** Format: int64 */
            seed?: number;
            stopper?: components["schemas"]["Stopper"];
            /**
             * Format: int32
             * @description Trials that may be created in all; 1 to 100,000.
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
             * @description Draws among which the best is taken; 1 to 10,000.
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
             * @description 4 + 3 ln(parameters) when left out; 4 to 1000.
             */
            population?: number | null;
            /**
             * Format: double
             * @description The first step size, as a share of the range; 0.001 to 1.
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
        /** @description Where one task of a job that moves will be. */
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
         * @description The training series of a job. A job that went back to a checkpoint trains the steps after it again; the series then has only
         *     the newer samples of them.
         */
        SeriesView: {
            /** @description By step; all of them. */
            evaluations: components["schemas"]["EvaluationView"][];
            /** @description By step; thinned evenly to the number asked for. */
            samples: components["schemas"]["SampleView"][];
        };
        Shift: {
            /** Format: double */
            after: number;
            /** Format: double */
            before: number;
        };
        /** @description A job that a change would move. */
        ShiftedJob: {
            /** @description It would be stopped for the sake of others. A program of which nobody has seen a checkpoint then begins anew. */
            displaced: boolean;
            id: components["schemas"]["JobId"];
            /**
             * Format: double
             * @description Seconds by which its expected end comes later, or earlier if negative; null when there is none in one of the cases, or nobody can tell.
             */
            later_s: number | null;
            name: string;
        };
        /** @description How many jobs a change would move. */
        ShiftedJobs: {
            /**
             * Format: int32
             * @description Stopped for the sake of others.
             */
            displaced: number;
            /**
             * Format: int32
             * @description Ending half a minute or more earlier.
             */
            earlier: number;
            /**
             * Format: int32
             * @description Ending half a minute or more later.
             */
            later: number;
        };
        /** @description What one worker asks for and no node has. */
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
        /** @description When the job is done: at the first of these that holds. At least one of `epochs`, `steps`, `wall_minutes`. */
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
             * @description Minutes of training time, waiting not counted.
             * @default null
             */
            wall_minutes: number | null;
        };
        /** @description Budgets are in the units of the search's `budget`, of which every trial gets at most `budget.max`. */
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
             * @description No trial is stopped before it; 0 or more.
             */
            warmup?: number;
        } | {
            /** Format: int32 */
            eta?: number;
            /** @enum {string} */
            kind: "successive_halving";
            /**
             * Format: int64
             * @description The first rung's budget; 1 to `budget.max`.
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
             * @description A trial trains so far before it is judged again; 1 to `budget.max`.
             */
            boundary?: number;
            /**
             * Format: double
             * @description Below this probability to reach the target a trial is hopeless; 0 to 0.5.
             */
            hopeless?: number;
            /** @enum {string} */
            kind: "hyper_drive";
            /**
             * Format: int32
             * @description Curves of fewer points are not judged; 3 to 1000.
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
             * @description Trials that live at one time; 2 to 1000.
             */
            population: number;
            /**
             * Format: double
             * @description The worst and the best that exchange; 0.05 to 0.5.
             */
            quantile?: number;
            /**
             * Format: double
             * @description The probability to draw a parameter anew, where it is not just changed by a fifth; 0 to 1.
             */
            resample?: number;
        };
        /** @description How many more trials. */
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
         * @description Where a study stands, as it is shown.
         * @enum {string}
         */
        StudyPhase: "created" | "running" | "paused" | "closing" | "finished" | "cancelled";
        /** @description A study as its user describes it. */
        StudySpec: {
            /**
             * @description A job document without `version`, `name` and `labels`, which are the study's. Fields that a parameter fills may be left out.
             *     Without it, trials are trained outside: whoever asks for them tells what came of them.
             */
            job?: Record<string, never> | null;
            kind: components["schemas"]["StudyKind"];
            labels?: {
                [key: string]: string;
            };
            /** @description 1 to 55 characters of `a-z`, `0-9` and `-`; trials are called `name-0`, `name-1` and so on. */
            name: string;
            search: components["schemas"]["SearchSpec"];
            version: components["schemas"]["Version"];
        };
        /** @description A study as its users see it. */
        StudyView: {
            /** @description The best trial, or with several objectives the first 10 of the Pareto front, without their curves; `best` lists all. */
            best: components["schemas"]["TrialView"][];
            /** Format: date-time */
            created_at: string;
            /** @description Name of the user who created it. */
            created_by: string;
            /** @description The document as submitted, defaults filled in. */
            document: components["schemas"]["StudySpec"];
            /**
             * Format: int64
             * @description Facts that the search has taken in.
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
        /** @description That a worker looks as if it held the others up. It becomes a verdict when it has for as long as the job's document says. */
        SuspectedView: {
            of: components["schemas"]["Suspicion"];
            /** Format: date-time */
            since: string;
        };
        /** @enum {string} */
        Suspicion: "hang" | "straggler";
        /** @description Stop once an evaluation reaches `value`. */
        Target: {
            metric: components["schemas"]["Metric"];
            /** Format: double */
            value: number;
        };
        /**
         * Format: uuid
         * @description One process of a job, at one revision and attempt.
         */
        TaskId: string;
        /** @description Where a task stands. */
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
            /** @description Indices of the node's GPUs or CPU slots that it was given. */
            gpus: number[];
            id: components["schemas"]["TaskId"];
            job_id: components["schemas"]["JobId"];
            /** @description `worker-0`, `ps-1`; the same in every revision. */
            name: string;
            node: string;
            node_id: components["schemas"]["NodeId"];
            pace?: components["schemas"]["PaceView"] | null;
            /**
             * Format: double
             * @description Its job's rate beside that one, as a part of its rate alone; absent before it was measured. Turns give both together 1.
             */
            rate_beside?: number | null;
            /**
             * Format: date-time
             * @description When it was known to be gone; null while it may hold anything.
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
            /** @description 1 to 1000 of them, taken in in this order. */
            results: components["schemas"]["TrialResult"][];
        };
        /** @description Which of the study's trials should not be trained on, and those that were asked for. */
        TellAnswer: {
            asked?: components["schemas"]["Asked"] | null;
            /** @description Of the trials that were told of, those that the study has stopped by now. */
            stopped: number[];
        };
        /** @description What is to become of a tenant's quota, weight, pods and limits; what is left out stays. */
        TenantChange: {
            /**
             * Format: int32
             * @description Null takes the limit away; it must be written, so that a forgotten field does not.
             */
            gpu_quota?: number | null;
            limits?: components["schemas"]["LimitsChange"] | null;
            pods?: components["schemas"]["TenantPodsChange"] | null;
            /**
             * Format: double
             * @description 0.001 to 1000: its share of the cluster beside the other tenants' weights.
             */
            weight?: number | null;
        };
        /**
         * Format: uuid
         * @description Who owns jobs and quota; on every row of the store.
         */
        TenantId: string;
        /** @description Limits of a tenant. */
        TenantLimits: {
            /**
             * Format: int64
             * @description Checkpoints of one job that are listed; the oldest are forgotten, first those that were pruned.
             */
            job_checkpoints: number;
            /**
             * Format: int64
             * @description Bytes of these events.
             */
            job_event_bytes: number;
            /**
             * Format: int64
             * @description Events of one job that its tasks tell; further ones are dropped, evaluations among them.
             */
            job_events: number;
            /**
             * Format: int64
             * @description Bytes of output that is stored of the tasks of one job; above it the oldest is dropped.
             */
            job_log_bytes: number;
            /**
             * Format: int64
             * @description Points of the series of one job; above it only the newest sample is kept. The default is three weeks with a sample a second.
             */
            job_points: number;
            /**
             * Format: int64
             * @description Bytes of the documents of these jobs, as JSON. The default is 5 KiB for each of the jobs.
             */
            open_job_bytes: number;
            /**
             * Format: int64
             * @description Jobs that have not ended, trials of studies among them. The default is what the scheduler is measured with.
             */
            open_jobs: number;
            /**
             * Format: int64
             * @description Studies that have not finished.
             */
            open_studies: number;
            /**
             * Format: int64
             * @description Tokens that are neither revoked nor expired.
             */
            tokens: number;
            /**
             * Format: int64
             * @description Those of one user.
             */
            user_tokens: number;
        };
        /** @description Nothing but images until an administrator says otherwise. */
        TenantPods: {
            /**
             * @description Claims of volumes that they may mount. At most 256.
             * @default []
             */
            claims: string[];
            /**
             * @description Objects of kind `ConfigMap` that they may mount. At most 256.
             * @default []
             */
            config_maps: string[];
            /**
             * @description Images that its jobs may name, each as it is or by what it begins with, up to a `/` (`registry.example.com/vision/*`), up to a `:` or `@` (any
             *     tag or digest of one image), or within a folder (`registry.example.com/vision/trainer-*`, and no folder below). Any image when empty, as with `*` alone;
             *     that there is to be none, no list says. At most 256.
             * @default []
             */
            images: string[];
            /**
             * @description Secrets that they may mount, take variables from and pull images by. At most 256.
             * @default []
             */
            secrets: string[];
            /**
             * @description As which service account its tasks run, with the account's token; the cluster's own for tasks when left out. It counts from a task's
             *     next start.
             * @default null
             */
            service_account: string | null;
        };
        /** @description A list that is given takes the place of the whole list before; what is left out stays. */
        TenantPodsChange: {
            /** @description Claims of volumes that they may mount. At most 256. */
            claims?: string[] | null;
            /** @description Objects of kind `ConfigMap` that they may mount. At most 256. */
            config_maps?: string[] | null;
            /** @description Images that its jobs may name, as in `TenantPods`; any from now on when empty. At most 256. */
            images?: string[] | null;
            /** @description Secrets that they may mount, take variables from and pull images by. At most 256. */
            secrets?: string[] | null;
            /** @description As which service account its tasks run; null is the cluster's own for tasks, and must be written, so that a forgotten field is not. */
            service_account?: string | null;
        };
        /** @description Means over a tenant's jobs, seconds since submission. */
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
             * @description GPUs (or CPU slots) that its jobs may hold at once; null is no limit.
             */
            gpu_quota: number | null;
            /**
             * Format: int32
             * @description GPUs (or CPU slots) that its jobs hold now.
             */
            gpus_in_use?: number;
            id: components["schemas"]["TenantId"];
            /**
             * Format: int32
             * @description Jobs that hold any.
             */
            jobs_in_use?: number;
            limits?: components["schemas"]["TenantLimits"];
            name: string;
            /** @description What the pods of its tasks may have. */
            pods?: components["schemas"]["TenantPods"];
            /** @description What counts against the limits now. */
            used?: components["schemas"]["LimitsUse"];
            /**
             * Format: double
             * @description Its share of the cluster beside the other tenants' weights.
             */
            weight: number;
        };
        /**
         * @description What a scale of three levels belongs to.
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
             * @description Null is never.
             */
            expires_at: string | null;
            id: components["schemas"]["TokenId"];
            /** @description What its owner calls it. */
            name: string;
            /** Format: date-time */
            revoked_at: string | null;
            /** @description Name of the user's tenant. */
            tenant: string;
            /** @description On whose behalf the bearer acts. */
            user: string;
        };
        /** @enum {string} */
        ToldState: "running" | "finished" | "failed";
        /**
         * @description Where parameters live.
         * @enum {string}
         */
        Topology: "parameter_server" | "all_reduce";
        TrialCounts: {
            /**
             * Format: int32
             * @description None better: 1 once a trial has completed a rung, or the size of the Pareto front.
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
             * @description May be created in all, extensions included.
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
        /** @description What a trial measured. */
        TrialPoint: {
            /**
             * Format: int64
             * @description In units of the budget.
             */
            step: number;
            /** @description One an objective, in their order; null for what is no finite number. */
            values: (number | null)[];
        };
        /** @description A trial of a study. */
        TrialRef: {
            /** Format: int32 */
            number: number;
            /** @description Where the study has it: the job of a `waiting` one has succeeded as far as it was told to train, and may be told to go on. */
            state: components["schemas"]["TrialPhase"];
            study_id: components["schemas"]["StudyId"];
        };
        TrialResult: {
            /** @description Of one that has finished short of what it was told to train: it cannot train any further, and so has completed. */
            exhausted?: boolean;
            state?: components["schemas"]["ToldState"];
            /**
             * Format: int64
             * @description How far the trial has come, in units of the budget. Of a trial that is `finished` at least its budget; only one that failed
             *     needs none.
             */
            step?: number | null;
            /** Format: int32 */
            trial: number;
            /** @description One value for each objective's metric; none of a trial that failed. */
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
            /** @description No other trial betters it. */
            best: boolean;
            /**
             * Format: int64
             * @description How far it was told to train, in all, in units of the document's budget.
             */
            budget: number;
            /** Format: date-time */
            created_at: string;
            /** @description Its learning curve, by ascending step, of at most 2048 points; empty where it was not asked for. */
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
            /** @description By name. A parameter whose condition does not hold is missing. */
            parameters: Record<string, never>;
            /**
             * Format: int32
             * @description How often its budget was raised.
             */
            rung: number;
            /** @description What it had at the end of each rung. */
            rungs: components["schemas"]["TrialPoint"][];
            /** Format: int64 */
            seed: number;
            state: components["schemas"]["TrialPhase"];
        };
        /**
         * @description Why nobody can tell when a job ends.
         * @enum {string}
         */
        Unforeseen: "no_length" | "outlived" | "behind_others" | "other";
        /** @description What is known of a job's use of its GPU, for people. */
        Usage: {
            /**
             * Format: double
             * @description Share of its GPU's time while it was alone there.
             */
            busy_alone?: number | null;
            /**
             * Format: int64
             * @description As last measured; absent where its node cannot tell.
             */
            memory_bytes?: number | null;
            /**
             * Format: int64
             * @description The most so far, earlier starts of the job included.
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
        /** @description A rank was found to hold up the others. */
        Verdict: {
            finding: components["schemas"]["Finding"];
            /**
             * Format: int64
             * @description For so long it was so in every round.
             */
            for_ms: number;
            /** @description The node's name. */
            node: string;
            node_id: components["schemas"]["NodeId"];
            remedy: components["schemas"]["Remedy"];
            role: components["schemas"]["Role"];
            task_id: components["schemas"]["TaskId"];
        };
        /** @description How long a rank may hold the others up. A job of one worker holds nobody up. */
        Verdicts: {
            /**
             * Format: int32
             * @description Seconds that a rank may be silent or stuck while the others wait for it, once that is seen; 0: for ever. When left out, 120 for
             *     `engine`, 1800 for `command`.
             * @default null
             */
            hang_s: number | null;
            /**
             * Format: int32
             * @description Seconds that a rank may stay under half of the median rate; 0: for ever. 60 when left out.
             * @default null
             */
            straggler_s: number | null;
        };
        /** @enum {string} */
        Version: "muster/v1";
        /** @description Something that is mounted at a path of its own. */
        Volume: {
            /** @enum {string} */
            kind: "claim";
            name: string;
            /** @description Where it is mounted: an absolute path. */
            path: string;
            read_only?: boolean;
            /** @description A folder of the volume, by relative path; all of it when left out. */
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
             * @description What may lie in it: bytes, or a text with a unit such as 100Gi; above 0.
             */
            bytes: number;
            /** @enum {string} */
            kind: "scratch";
            path: string;
        } | {
            /**
             * Format: int64
             * @description As of `scratch`.
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
             * @description Queued jobs of the tenant that a round considered when this was written.
             */
            considered: number;
            /** @enum {string} */
            reason: "behind_earlier_jobs";
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
            /**
             * Format: int32
             * @description Of those that one task can have: of parts of GPUs that is one, however many a node has.
             */
            largest_node_gpus: number;
            /** Format: int32 */
            needed_gpus_per_worker: number;
            /** @description Some node has enough, but of parts of GPUs (MIG instances), of which a process sees one. */
            parts?: boolean;
            /** @description Its tasks must be pods (the document's `pod`), and only nodes whose tasks are pods count here. */
            pods?: boolean;
            /** @enum {string} */
            reason: "no_matching_nodes";
        } | {
            /** Format: int32 */
            cluster_gpus: number;
            /** Format: int32 */
            needed_gpus: number;
            /** @enum {string} */
            reason: "exceeds_cluster";
        } | {
            /**
             * Format: int32
             * @description GPUs that no task holds, where the job may run.
             */
            free_gpus: number;
            /** @description The jobs ahead of it first, then the largest holders: those that hold what is missing at least, and more of them up to a handful. */
            held_by: components["schemas"]["JobId"][];
            /**
             * Format: int32
             * @description Those of them that are kept for jobs ahead of it: for a turn, a restart or a gang that waits for the rest of its GPUs.
             */
            kept_gpus?: number;
            /** Format: int32 */
            needed_gpus: number;
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
        /** @description A reason and its remedy. */
        Waiting: {
            /**
             * Format: int32
             * @description Place in the order in which waiting jobs are considered, from 1; 0 before a round has considered it.
             */
            position: number;
            smallest_change?: components["schemas"]["Change"] | null;
            why: components["schemas"]["Wait"];
        };
        /** @description Why a job does not run now. */
        WaitingView: {
            /** @description The same, for programs. */
            detail: components["schemas"]["Waiting"];
            /** @description The reason in a sentence, with its figures. */
            message: string;
            /**
             * Format: int32
             * @description Place among the waiting jobs, from 1; 0 before the first round has seen it.
             */
            position: number;
            /** @description Stable name, such as `WaitingForGpus`. */
            reason: string;
            /** @description The smallest change that would let it start, in words; null when nothing but time helps. */
            smallest_change: string | null;
        };
        /** @description Changes that are imagined, together; at most 32 of each kind. */
        WhatIf: {
            /** @description Nodes like the largest one there is. */
            add_nodes?: components["schemas"]["AddedNodes"][];
            jobs?: components["schemas"]["ImaginedJob"][];
            quotas?: components["schemas"]["ImaginedQuota"][];
        };
        /** @description What would come of changes, beside what is to be expected without them. */
        WhatIfView: {
            /** @description Those that are added, displaced, or moved by half a minute or more; at most 500, the added ones first, then by how far. */
            jobs: components["schemas"]["JobShift"][];
            /**
             * Format: date-time
             * @description The instant of the cluster's state from which was looked ahead.
             */
            made_at: string;
            /** @description Those with jobs whose end is foreseen in both cases. */
            tenants: components["schemas"]["TenantShift"][];
        };
        WorkerResources: {
            /**
             * Format: int64
             * @description Thousandths of a core; 0 to 256,000.
             * @default 100
             */
            cpu_milli: number;
            /**
             * Format: int32
             * @description GPUs (or CPU slots) of one node; 1 to 16.
             * @default 1
             */
            gpus: number;
            /**
             * Format: int64
             * @description Bytes, or a text with a unit such as 16Gi or 500M; 64 MiB to 4 TiB.
             * @default 1073741824
             */
            memory_bytes: number;
        };
        /** @description What the chief reports of a checkpoint that it has written and put into place. */
        Written: {
            /**
             * Format: double
             * @description Share of test examples classified rightly, likewise.
             */
            accuracy?: number | null;
            /** Format: int64 */
            bytes: number;
            /** Format: double */
            epoch: number;
            /** @description Names of its files, the manifest and the list of sums among them. */
            files?: string[];
            /**
             * Format: double
             * @description Test loss at this very step, if it was evaluated there.
             */
            loss?: number | null;
            /** @description Hex SHA-256 of the manifest, which holds those of the files. */
            manifest_sha256: string;
            /** @description Folder, relative to the cluster's checkpoint root. */
            path: string;
            /**
             * Format: int64
             * @description Revision of the job that wrote it.
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
    listEvents: {
        parameters: {
            query?: {
                /** @description Routine events too: starts and stops of tasks, tests, checkpoints. */
                routine?: boolean;
                /** @description Items on the page. */
                limit?: number;
                /** @description `continue` of the page before. */
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
    forecastAccuracy: {
        parameters: {
            query?: {
                /** @description Forecasts made in so many days. */
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
                /** @description Only this job; may be repeated, up to 500 times. */
                id?: components["schemas"]["JobId"][];
                /** @description Only jobs in one of these phases; may be repeated. */
                phase?: components["schemas"]["JobPhase"][];
                /** @description Only jobs with this label, as `key=value`; all of them if repeated. */
                label?: string[];
                /** @description Only jobs of exactly this name. */
                name?: string;
                /** @description Items on the page. */
                limit?: number;
                /** @description `continue` of the page before. */
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
                /** @description Check the document and answer what would be submitted, without submitting it. */
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
            /** @description `dry_run`: the document is right; the id is all zeros and nothing was submitted */
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
            /** @description Changed; the next round obeys */
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
            /** @description Stated; the next round obeys */
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
                /** @description Items on the page. */
                limit?: number;
                /** @description `continue` of the page before. */
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
            /** @description Stated; the next round obeys */
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
                /** @description Only events after this cursor, which may be that of any event or the `continue` of a page. */
                after?: string;
                /** @description The same as `after`. */
                continue?: string;
                /** @description Items on the page. */
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
            /** @description Why */
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
                /** @description Id of a task, or its name (`worker-0`, `ps-1`) in the newest revision. The chief, `worker-0`, if left out. */
                task?: string;
                /** @description The last so many bytes; 65536 if neither this nor `offset` is given. */
                tail_bytes?: number;
                /** @description From this byte on, at most 1 MiB. */
                offset?: number;
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
                    /** @description Bytes that the log has by now */
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
                 * @description Id of a task, or its name (`worker-0`, `ps-1`), which is followed through all revisions to come. The chief, `worker-0`, if
                 *     left out.
                 */
                task?: string;
                /** @description Begin at this byte of the task that is there now; at its last 64 KiB if left out. */
                offset?: number;
            };
            header?: {
                /** @description The id of the last message seen; goes before `offset` */
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
            /** @description Stated; the next round obeys */
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
                /** @description Samples at most; more are thinned evenly, the first and the last kept. */
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
            /** @description Stated; the next round obeys */
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
    followJob: {
        parameters: {
            query?: {
                /** @description Begin after this cursor, or after this message's id; from now on if left out. */
                after?: string;
                /** @description Begin the series after this step; from now on if left out. */
                after_step?: number;
            };
            header?: {
                /** @description The id of the last message seen; goes before `after` */
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
            /** @description Stated; the next round obeys */
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
                /** @description Tasks of earlier revisions too. */
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
            /** @description The bearer */
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
                /** @description Items on the page. */
                limit?: number;
                /** @description `continue` of the page before. */
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
            /** @description Stated; the next round obeys */
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
            /** @description Stated; the next round obeys */
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
            /** @description Stated; the next round obeys */
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
            /** @description What is to be expected */
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
    listRounds: {
        parameters: {
            query?: {
                /** @description Only rounds at or after this time (RFC 3339). */
                since?: string;
                /** @description Items on the page. */
                limit?: number;
                /** @description `continue` of the page before; any number of a round shows those below it. */
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
    followCluster: {
        parameters: {
            query?: {
                /** @description Begin after this cursor; from now on if left out. */
                after?: string;
            };
            header?: {
                /** @description The id of the last message seen; goes before `after` */
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
                /** @description Only studies of exactly this name. */
                name?: string;
                /** @description Items on the page. */
                limit?: number;
                /** @description `continue` of the page before. */
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
                /** @description Check the document and answer what would be created, without creating it. */
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
            /** @description `dry_run`: the document is right; the id is all zeros and nothing was created */
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
                /** @description 1 to 255 visible ASCII characters, chosen by the client; one for each time it asks */
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
            /** @description The trials, perhaps none */
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
                /** @description Items on the page. */
                limit?: number;
                /** @description `continue` of the page before. */
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
            /** @description A page of them; none while no trial has completed a rung */
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
            /** @description Stated; the scheduler obeys */
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
                /** @description `csv`: a line a trial, without curves. `json`: a list of trials with their curves. */
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
            /** @description Stated; the scheduler obeys */
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
            /** @description Stated; the scheduler obeys */
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
            /** @description Kept; the scheduler takes it in */
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
            /** @description Stated; the scheduler obeys */
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
                /** @description With `ask`: 1 to 255 visible ASCII characters, chosen by the client; one for each time it asks */
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
            /** @description Kept; the scheduler takes it in */
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
                /** @description With the learning curve of each. */
                curves?: boolean;
                /** @description Items on the page; with curves never more than 100. */
                limit?: number;
                /** @description `continue` of the page before. */
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
    listTenants: {
        parameters: {
            query?: {
                /** @description Items on the page. */
                limit?: number;
                /** @description `continue` of the page before. */
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
                /** @description Of the tenant of this name; for administrators. The bearer's if left out. */
                tenant?: string;
                /** @description Of all tenants; for administrators. */
                all_tenants?: boolean;
                /** @description Items on the page. */
                limit?: number;
                /** @description `continue` of the page before. */
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
                /** @description Name of the user whose tokens are revoked. */
                user: string;
                /** @description Name of the user's tenant; for administrators. The bearer's if left out. */
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
                /** @description Items on the page. */
                limit?: number;
                /** @description `continue` of the page before. */
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
            /** @description What is to be expected */
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
