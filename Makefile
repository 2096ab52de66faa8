# Every target installs what it needs and repeats no work; `make help` lists the targets. Arguments
# for `muster up` and `muster down` are passed in ARGS: make up ARGS="--nodes 4".

.DEFAULT_GOAL := help
.PHONY: help up down build web docs dist doc test test-quick test-traces compare ablations bench bench-search bench-exchange bench-slicing bench-decisions bench-queue bench-forecasts bench-ask bench-studies bench-kills story-chaos story-kubernetes story-scale story-pods story-upgrade story-install trial-live lint fmt openapi
SHELL := /bin/bash

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)$$/\1|\2/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "  make %-14s %s\n", $$1, $$2 }'

up: ARGS ?=
up: build ## start a whole cluster on this machine and train the example job
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && export MUSTER_POSTGRES_BIN && exec target/release/muster up $(ARGS)

down: ## stop the cluster of `make up`
	@exec target/release/muster down $(ARGS)

build: web ## build the programs into target/release, and the web page
	@scripts/ensure-toolchain
	@cargo build --release --locked --bin muster --bin muster-api --bin muster-scheduler --bin muster-operator --bin muster-executor --bin muster-task

web: ## build the web page into web/dist
	@scripts/build-web

dist: web ## write a release with installer, checksums and bill of materials into target/dist
	@scripts/ensure-toolchain
	@scripts/dist

doc: ## check the documentation of the code and write it into target/doc
	@scripts/ensure-toolchain
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --workspace --no-deps --document-private-items

docs: ## build the documents as a site into target/site, with every link checked
	@scripts/build-docs

# Installs what the tests need beside this repository, and sets environment variables for it.
TESTED_WITH = MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && dataset=$$(scripts/ensure-dataset fashion-mnist) && \
	MUSTER_CHROMIUM=$$(scripts/ensure-chromium) && node=$$(scripts/ensure-node) && MUSTER_NVRTC=$$(scripts/ensure-nvrtc) && \
	MUSTER_ONNX_PYTHON=$$(scripts/ensure-onnxruntime) && MUSTER_HELM=$$(scripts/ensure-helm) && \
	MUSTER_KUBERNETES=$$(scripts/ensure-kubernetes || true) && MUSTER_S3_PYTHON=$$(scripts/ensure-s3) && MUSTER_MLFLOW_PYTHON=$$(scripts/ensure-mlflow) && MUSTER_MPIRUN=$$(scripts/ensure-mpi) && \
	MUSTER_REGISTRY=$$(scripts/ensure-registry || true) && \
	MUSTER_TORCH_PYTHON=$$(scripts/ensure-torch --installed || true) && \
	export MUSTER_POSTGRES_BIN MUSTER_CHROMIUM MUSTER_NVRTC MUSTER_ONNX_PYTHON MUSTER_HELM MUSTER_KUBERNETES MUSTER_S3_PYTHON && \
	export MUSTER_MLFLOW_PYTHON MUSTER_MPIRUN MUSTER_REGISTRY MUSTER_TORCH_PYTHON && MUSTER_DATASETS=$$(dirname "$$dataset") && PATH="$$node:$$PATH" && export MUSTER_DATASETS PATH

test: web ## run every test
	@scripts/ensure-toolchain test
	@$(TESTED_WITH) && scripts/run-tests

test-quick: ## run the tests that take seconds, without stories, browser and Kubernetes
	@scripts/ensure-toolchain test
	@scripts/test-python
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && export MUSTER_POSTGRES_BIN && \
	if cargo nextest --version >/dev/null 2>&1; then cargo nextest run --locked --workspace --exclude muster-e2e --profile quick; \
	else cargo test --locked --workspace --exclude muster-e2e --lib --bins; fi

test-traces: ## run the tests of traces that are not part of this repository (MUSTER_TRACES=FOLDER, else ../shared/traces)
	@scripts/ensure-toolchain test
	@$(if $(MUSTER_TRACES),MUSTER_TRACES="$(abspath $(MUSTER_TRACES))") scripts/ignored-tests --run "needs MUSTER_TRACES"

compare: LOAD ?= 1.0
compare: POLICIES ?= muster,muster-fixed,tiresias,optimus
compare: POLLUX = scheduler/lab/traces/pollux
compare: ## policies side by side on the published workloads of Pollux (LOAD=2.0 for another load, POLICIES=muster,pollux for others)
	@scripts/ensure-toolchain
	@cargo run --release --locked --quiet --bin muster -- compare --profiles $(POLLUX) --workload $(POLLUX)/workloads-$(LOAD)/*.csv.zst \
		--cluster 16x4 --policy $(POLICIES)

ablations: TRACES ?= ../shared/traces
ablations: POLLUX = scheduler/lab/traces/pollux
ablations: LESS = muster,muster-alone,muster-no-placement,muster-no-exploration,muster-fixed
ablations: ## worth of each input of muster; with Sia's traces (TRACES=FOLDER) also on several GPU kinds
	@scripts/ensure-toolchain
	@for load in 1.0 2.0; do \
		cargo run --release --locked --quiet --bin muster -- compare --profiles $(POLLUX) \
			--workload $(POLLUX)/workloads-$$load/*.csv.zst --cluster 16x4 --policy $(LESS) || exit 1; done
	@if [ ! -d "$(TRACES)/sia" ]; then echo "left out: several GPU kinds, because $(TRACES)/sia does not exist; set TRACES"; else \
	for trace in philly saturn; do \
		cargo run --release --locked --quiet --bin muster -- compare --profiles "$(TRACES)/sia" --rules sia \
			--workload "$(TRACES)"/sia/workloads-$$trace/workload-[123].csv --cluster aws:6x4,dgx-ext:2x8,rtx:3x8 \
			--policy $(LESS),muster-no-kinds || exit 1; done; fi

bench: PEERS ?=
# Benchmarks that take a quarter of an hour or a whole cluster have separate targets.
bench: BENCHES = checkpoint collectives compression compute control_plane ddp decision_times decisions elasticity exchange gpu peers plan policies round
bench: ## compare with the limits of this machine and, with PEERS=1, with PyTorch (5 GB)
	@scripts/ensure-toolchain
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && dataset=$$(scripts/ensure-dataset fashion-mnist) && \
	MUSTER_TORCH_PYTHON=$$(scripts/ensure-torch $(if $(PEERS),,--installed) || true) && \
	export MUSTER_POSTGRES_BIN MUSTER_TORCH_PYTHON && MUSTER_DATASETS=$$(dirname "$$dataset") cargo bench --locked --workspace $(addprefix --bench ,$(BENCHES))

bench-exchange: ARGS ?=
bench-exchange: ## time, examples and bytes to an accuracy, for each consistency and codec (ARGS="bsp one_bit seeds=3" selects some and averages)
	@scripts/ensure-toolchain
	@dataset=$$(scripts/ensure-dataset fashion-mnist) && MUSTER_DATASETS=$$(dirname "$$dataset") cargo bench --locked -p muster-training --bench convergence -- $(ARGS)

bench-slicing: ## cost of time slices (a hundred of a running job) and their benefit for short jobs behind a long one, compared with FIFO
	@scripts/ensure-toolchain
	cargo nextest run --locked -p muster-training --test jobs --run-ignored only --no-capture hundred_time_slices_are_measured
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && export MUSTER_POSTGRES_BIN && \
	cargo build --release --locked --bin muster --bin muster-api --bin muster-scheduler --bin muster-executor --bin muster-task && \
	cargo bench --locked -p muster-e2e --bench turns

bench-decisions: ## decision times of the policy muster against their goals, from 64 to 100,000 GPUs
	@scripts/ensure-toolchain
	@cargo bench --locked -p muster-core --bench decisions -- 64 2048 100000 && \
	cargo bench --locked -p muster-lab --bench decision_times

bench-queue: ARGS ?=
bench-queue: ## cost of a long queue: time of one job, jobs per second, rounds, memory (ARGS=50000 sets the length)
	@scripts/ensure-toolchain
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && export MUSTER_POSTGRES_BIN && \
	cargo build --release --locked --bin muster --bin muster-api --bin muster-scheduler --bin muster-executor --bin muster-task && \
	MUSTER_LOG=info,muster_scheduler::round=debug cargo bench --locked -p muster-e2e --bench queue -- $(ARGS)

bench-forecasts: ARGS ?=
bench-forecasts: ## share of 80 % intervals of ends and starts that hold, over a few hundred short jobs (ARGS=120 sets the seconds)
	@scripts/ensure-toolchain
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && dataset=$$(scripts/ensure-dataset fashion-mnist) && export MUSTER_POSTGRES_BIN && \
	cargo build --release --locked --bin muster --bin muster-api --bin muster-scheduler --bin muster-executor --bin muster-task && \
	MUSTER_DATASETS=$$(dirname "$$dataset") cargo bench --locked -p muster-e2e --bench forecasts -- $(ARGS)

bench-search: ## compare the searchers of studies with Optuna's, on functions and on real trainings (from PyPI, with PyTorch, 5 GB)
	@scripts/ensure-toolchain
	@dataset=$$(scripts/ensure-dataset fashion-mnist) && MUSTER_OPTUNA_PYTHON=$$(scripts/ensure-optuna) && export MUSTER_OPTUNA_PYTHON && \
	cargo bench --locked -p muster-search --bench against_optuna && \
	MUSTER_DATASETS=$$(dirname "$$dataset") cargo bench --locked -p muster-training --bench searches -- optuna

bench-ask: ## compare ask and tell by REST with Optuna's storage, at 10,000 trials in Postgres (from PyPI, with PyTorch, 5 GB)
	@scripts/ensure-toolchain
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && dataset=$$(scripts/ensure-dataset fashion-mnist) && \
	MUSTER_OPTUNA_PYTHON=$$(scripts/ensure-optuna) && export MUSTER_POSTGRES_BIN MUSTER_OPTUNA_PYTHON && \
	cargo build --release --locked --bin muster --bin muster-api --bin muster-scheduler --bin muster-executor --bin muster-task && \
	MUSTER_DATASETS=$$(dirname "$$dataset") cargo bench --locked -p muster-e2e --bench ask_tell

bench-studies: ARGS ?=
bench-studies: ## benefit of early stopping and evolution on real trainings (ARGS="stoppers 1 2" selects some)
	@scripts/ensure-toolchain
	@dataset=$$(scripts/ensure-dataset fashion-mnist) && MUSTER_DATASETS=$$(dirname "$$dataset") cargo bench --locked -p muster-training --bench searches -- $(ARGS)

trial-live: ARGS ?=
trial-live: ## a published workload on real daemons at 60 times real time, beside its simulation, in about 25 minutes (ARGS="rate=30 jobs=20")
	@scripts/ensure-toolchain
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && export MUSTER_POSTGRES_BIN && \
	cargo build --release --locked --bin muster --bin muster-api --bin muster-scheduler --bin muster-executor --bin muster-task --bin muster-played-task && \
	cargo bench --locked -p muster-e2e --bench trial -- $(ARGS)

bench-kills: ## compare a study of 60 trainings whose scheduler is killed 50 times with an undisturbed one
	@scripts/ensure-toolchain
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && dataset=$$(scripts/ensure-dataset fashion-mnist) && \
	cargo build --locked --bin muster --bin muster-api --bin muster-scheduler --bin muster-executor --bin muster-task && \
	export MUSTER_POSTGRES_BIN && MUSTER_DATASETS=$$(dirname "$$dataset") cargo nextest run --locked -p muster-e2e --test stories --run-ignored only --no-capture studies_killed::

story-chaos: MINUTES ?= 30
story-chaos: SEED ?=
story-chaos: ## run a whole cluster with random faults and a hostile tenant (MINUTES=5 for a shorter run, SEED=7 for other faults); needs root
	@scripts/ensure-toolchain
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && dataset=$$(scripts/ensure-dataset fashion-mnist) && \
	cargo build --locked --workspace --bins && \
	export MUSTER_POSTGRES_BIN && MINUTES=$(MINUTES) SEED=$(SEED) MUSTER_DATASETS=$$(dirname "$$dataset") \
	cargo nextest run --locked --workspace --test chaos --run-ignored all --no-capture

story-kubernetes: ## run 200 jobs by kubectl while the operator is killed, its connections are cut and the API server is restarted
	@scripts/ensure-toolchain
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && MUSTER_HELM=$$(scripts/ensure-helm) && MUSTER_KUBERNETES=$$(scripts/ensure-kubernetes) && \
	export MUSTER_POSTGRES_BIN MUSTER_HELM MUSTER_KUBERNETES && cargo build --locked --workspace --bins && \
	cargo nextest run --locked --workspace --test stories --run-ignored only --no-capture kubernetes_chaos::

story-scale: ## run 200 jobs by kubectl on 200 changing Kubernetes nodes with 1,600 GPUs; measure cost and delay of each change
	@scripts/ensure-toolchain
	@MUSTER_POSTGRES_BIN=$$(scripts/ensure-postgres) && MUSTER_HELM=$$(scripts/ensure-helm) && MUSTER_KUBERNETES=$$(scripts/ensure-kubernetes) && \
	export MUSTER_POSTGRES_BIN MUSTER_HELM MUSTER_KUBERNETES && cargo build --release --locked --workspace --bins && \
	cargo nextest run --release --locked --workspace --test stories --run-ignored only --no-capture kubernetes_scale::

story-pods: ARGS ?=
story-pods: web ## run every story that supports it with its tasks as pods on a real API server (ARGS="job_survives_kill_of_postgres job_survives_kill_of_executor" selects some)
	@scripts/ensure-toolchain test
	@$(TESTED_WITH) && cargo build --locked --workspace --bins && scripts/story-pods $(ARGS)

# The revision before the newest migration, so that the upgrade runs a migration.
story-upgrade: FROM ?= $(shell git log -1 --diff-filter=A --format=%h -- migrations)~1
story-upgrade: ## upgrade from another revision (FROM=HEAD~20) to this one while a job trains, with the migrations between them
	@scripts/ensure-toolchain
	cargo build --locked --workspace --bins
	@scripts/test-chart upgrade $(FROM)

story-install: FROM ?=
story-install: ## install, upgrade (FROM=HEAD~20: from another revision), roll back and uninstall the chart by helm on a real API server; needs root
	@scripts/ensure-toolchain
	cargo build --locked --workspace --bins
	@scripts/test-chart install $(FROM)

lint: ## run rustfmt, clippy, the checks of dependencies, import cycles, documents, language and site, tsc and eslint
	@scripts/ensure-toolchain lint
	@scripts/build-web --packages
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@scripts/check-law
	@scripts/check-cycles
	@scripts/check-docs
	@scripts/check-prose
	@scripts/build-docs
	@PATH="$$(scripts/ensure-node):$$PATH" scripts/lint-web

fmt: ## format the Rust code and the web page
	@scripts/ensure-toolchain lint
	@scripts/build-web --packages
	cargo fmt
	@PATH="$$(scripts/ensure-node):$$PATH" npm --prefix web run --silent format

openapi: ## generate api/openapi.json from the code, and from it the web page's client and docs/reference/rest.md
	@scripts/ensure-toolchain
	@scripts/build-web --packages
	cargo run --locked --quiet --bin muster-api -- openapi >target/openapi.json
	@mv target/openapi.json api/openapi.json
	@PATH="$$(scripts/ensure-node):$$PATH" npm --prefix web run --silent generate
	@scripts/rest-reference
