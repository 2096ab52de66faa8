# Every target installs what it needs, as root or not, and says in one line what is missing when it cannot.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
PROGRAMS := muster-cli muster-api muster-scheduler muster-executor muster-engine
WEB_SOURCES := $(shell find web -path web/node_modules -prune -o -path web/dist -prune -o -type f -print 2>/dev/null)

.PHONY: help up down build web test test-web bench lint fmt openapi

help: ## Say what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

up: build ## Run a whole cluster on this machine and train the example job: make up ARGS="--nodes 4"
	@bin=$$(scripts/ensure-postgres) && MUSTER_POSTGRES_BIN="$$bin" exec target/release/muster up $(ARGS)

down: ## Stop it from elsewhere
	@target/release/muster down $(ARGS)

build: web ## Build the programs (release) and the web page
	@scripts/ensure-cc
	cargo build --release --locked $(addprefix -p ,$(PROGRAMS))

web: web/dist/index.html ## Build the web page

web/dist/index.html: $(WEB_SOURCES)
	@node=$$(scripts/ensure-node) && cd web && export PATH="$$node:$$PATH" && npm ci --no-audit --no-fund --loglevel=error && npm run build
	@touch $@

test: web ## Run every test
	@scripts/ensure-cc
	@bin=$$(scripts/ensure-postgres) && data=$$(scripts/ensure-dataset fashion-mnist) && chromium=$$(scripts/ensure-chromium) && \
	export MUSTER_POSTGRES_BIN="$$bin" MUSTER_DATASETS="$$(dirname "$$data")" MUSTER_CHROMIUM="$$chromium" && \
	cargo build --locked $(addprefix -p ,$(PROGRAMS)) && \
	if cargo nextest --version >/dev/null 2>&1; then cargo nextest run --locked --workspace; else cargo test --locked --workspace; fi
	@$(MAKE) --no-print-directory test-web

test-web: web ## Run the page's own tests
	@node=$$(scripts/ensure-node) && cd web && export PATH="$$node:$$PATH" && npm test

bench: web ## Measure what is promised, as ratios to the limit of this machine
	@scripts/ensure-cc
	@bin=$$(scripts/ensure-postgres) && data=$$(scripts/ensure-dataset fashion-mnist) && \
	export MUSTER_POSTGRES_BIN="$$bin" MUSTER_DATASETS="$$(dirname "$$data")" && cargo bench --locked --workspace --benches

lint: web ## Formatting, clippy, the page's types and style
	@scripts/ensure-cc
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check bans licenses; fi
	@node=$$(scripts/ensure-node) && cd web && export PATH="$$node:$$PATH" && npm run lint

fmt: ## Format the Rust code
	cargo fmt --all

openapi: ## Write api/openapi.json from the code, and the page's types from it
	cargo run --locked -p muster-api -- openapi > api/openapi.json
	@node=$$(scripts/ensure-node) && cd web && export PATH="$$node:$$PATH" && npm run generate
