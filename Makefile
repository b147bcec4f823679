# Every target sets up what it needs: the virtual environment, and the control plane's binaries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CHECKED := src tests hack bench examples
# Tests run in so many processes, file by file; each has a control plane of its own. 0: all in one. They wait for a third of
# their time, so three keep two cores busy.
PROCESSES ?= 3
# Tests that need no control plane.
ALONE := tests/sim tests/programs tests/unit
PARALLEL := -n $(PROCESSES) --dist loadfile --no-loadscope-reorder
# Images of CI set it, and then each of the many programs that tests start compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

# Of bench-peers.
OBJECTS ?= 2000
WORKERS ?= 10
ROUNDS ?= 3

FUZZERS := tests/unit/runtime/cache/test_convergence.py tests/unit/runtime/leaderelection/test_model.py \
	tests/unit/runtime/workqueue/test_core.py

# Of histories.
HISTORIES ?= 250

# Of sim.
SEED ?= 1
HOURS ?= 24
DAYS ?= 1

.DEFAULT_GOAL := help

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: $(STAMP) ## Make the virtual environment from the hash-pinned lock

$(STAMP): requirements-dev.txt pyproject.toml
	hack/venv.sh $(PYTHON) $(VENV)
	touch $@

control-plane: venv ## Fetch or build etcd, kube-apiserver and the rest (cached outside the clone)
	$(BIN)/python -m torchctl.testing.assets

object-store: venv ## Build the S3 server under test (cached outside the clone)
	$(BIN)/python -m torchctl.testing.objectstore

demo: venv control-plane ## Run a TorchrunJob to Succeeded on a real control plane with a scripted kubelet
	$(BIN)/python hack/demo.py

test: venv control-plane object-store ## All tests but those on a real node, on the real control plane too, with coverage
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PARALLEL) tests/envtest $(ALONE)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --include='src/torchctl/runtime/*' --fail-under=90
	$(BIN)/coverage report --include='src/torchctl/controllers/*' --fail-under=90

test-versions: venv control-plane ## The core of tests/envtest on every pinned Kubernetes, 1.31 to the newest; a table of what ran
	$(BIN)/python hack/versions.py

test-python: ## Unit tests of runtime, API and coordinator on PYTHON=python3.13 or another, in an environment of its own
	hack/venv.sh $(PYTHON) .venv-$(notdir $(PYTHON))
	.venv-$(notdir $(PYTHON))/bin/pytest $(PARALLEL) tests/unit/runtime tests/unit/api tests/unit/controllers/coordinator

sweep: venv control-plane ## Kill operator, plugin, receiver, companion and launchers at each of their steps; two minutes at rest
	TORCHCTL_SWEEP=all $(BIN)/pytest tests/programs/workspace/test_crashes.py tests/programs/launcher/test_crashes.py
	TORCHCTL_SWEEP=all TORCHCTL_REST_SECONDS=120 $(BIN)/pytest tests/envtest/test_crash_sweep.py tests/envtest/test_native_gangs.py tests/envtest/test_plugin_crashes.py tests/envtest/test_at_rest.py

chaos: venv control-plane ## 200 jobs of all kinds, and 100 that Kueue evicts, while operator, API server and children go away (TORCHCTL_CHAOS_SEED=1)
	TORCHCTL_CHAOS_JOBS=200 $(BIN)/pytest tests/envtest/test_concurrency.py
	TORCHCTL_CHAOS_JOBS=100 TORCHCTL_CHAOS_KINDS='plain admitted' $(BIN)/pytest tests/envtest/test_concurrency.py

sim: venv ## Live through random days of a simulated cluster (SEED=1 HOURS=24 DAYS=1); a failing one is shrunk and kept
	$(BIN)/python -m torchctl.testing.sim --seed $(SEED) --hours $(HOURS) --days $(DAYS)

histories: venv control-plane ## Random histories on the fake API server and Job controller and on the real ones, which have to agree (HISTORIES=250 of each)
	TORCHCTL_FAKE_HISTORIES=$(HISTORIES) TORCHCTL_SIM_HISTORIES=$(HISTORIES) \
		$(BIN)/pytest tests/envtest/test_fake_server.py tests/envtest/test_simulated_jobs.py

fuzz: venv ## Twenty times as many examples of watch, leader election and workqueue, new ones each time
	HYPOTHESIS_PROFILE=thorough $(BIN)/pytest $(PARALLEL) --timeout=3600 $(FUZZERS)

check: lint types ## Before each commit: lint, types, and the tests of rules with fewer random examples
	HYPOTHESIS_PROFILE=quick $(BIN)/pytest $(PARALLEL) tests/unit

unit: venv ## All tests without a control plane: rules, programs on loopback, simulated days
	$(BIN)/pytest $(PARALLEL) $(ALONE)

node: venv control-plane ## Fetch what a real node needs, and install Debian packages for it; needs root
	hack/node/install.sh
	$(BIN)/python -m torchctl.testing.assets --group node
	$(BIN)/python -m torchctl.testing.node.training

e2e: node ## Real kubelet, real torchrun; needs root
	$(BIN)/pytest tests/e2e

bench-node: node ## Seconds that people wait on the real node: new code, uploads beside kubectl cp (as e2e)
	$(BIN)/pytest -s tests/e2e/measure_people.py

test-kai: kai-bin venv control-plane ## KAI-Scheduler's own programs place the pods: KAI_BIN=dir holds them (docs/testing.md)
	TORCHCTL_KAI_BIN=$(abspath $(KAI_BIN)) TORCHCTL_KAI_CRDS=$(abspath $(KAI_BIN))/crds \
		$(BIN)/pytest tests/kai tests/envtest/test_kai_contract.py

kai-bin:
	@test -n "$(KAI_BIN)" || { echo "make test-kai KAI_BIN=dir: say where KAI's programs are, see docs/testing.md" >&2; exit 2; }

test-volcano: volcano-bin venv control-plane ## Volcano's own programs place the pods: VOLCANO_BIN=dir holds them (docs/testing.md)
	TORCHCTL_VOLCANO_BIN=$(abspath $(VOLCANO_BIN)) TORCHCTL_VOLCANO_CRDS=$(abspath $(VOLCANO_BIN))/crds \
		$(BIN)/pytest tests/volcano tests/envtest/test_volcano_contract.py

volcano-bin:
	@test -n "$(VOLCANO_BIN)" || { echo "make test-volcano VOLCANO_BIN=dir: say where Volcano's programs are, see docs/testing.md" >&2; exit 2; }

test-kueue: kueue-bin venv control-plane ## Kueue's own manager admits the Jobs: KUEUE_BIN=dir holds it (docs/testing.md)
	TORCHCTL_KUEUE_BIN=$(abspath $(KUEUE_BIN)) TORCHCTL_KUEUE_CRDS=$(abspath $(KUEUE_BIN))/crds \
		$(BIN)/pytest tests/kueue tests/envtest/test_kueue_contract.py

kueue-bin:
	@test -n "$(KUEUE_BIN)" || { echo "make test-kueue KUEUE_BIN=dir: say where Kueue's manager is, see docs/testing.md" >&2; exit 2; }

image: venv ## Build the operator's image as an OCI archive, without a container engine (root, debootstrap)
	$(BIN)/python hack/image.py --output dist/torchctl-image.tar

lint: venv ## Style, formatting and the layers of the architecture
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/lint-imports

types: venv ## mypy --strict over sources and tests
	$(BIN)/mypy src tests hack bench

fmt: venv ## Format, and fix what can be fixed
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

manifests: venv ## Generate config/ and docs/reference/ from the API's models and tables
	$(BIN)/python hack/manifests.py

drift: venv ## Fail when a generated file differs from what generates it
	$(BIN)/python hack/manifests.py --check

bench: venv control-plane ## Measure latency, requests, memory and decoding, beside a peer and an earlier version
	$(BIN)/python -m bench

bench-peers: venv control-plane ## Measure controller-runtime, kopf and torchctl.runtime in turns (OBJECTS=2000 WORKERS=10 ROUNDS=3)
	$(BIN)/python -m bench.peers --objects $(OBJECTS) --workers $(WORKERS) --rounds $(ROUNDS)

lock: ## Pin the development dependencies again, with hashes
	hack/lock.sh

clean: ## Remove what was made in the clone (cached binaries stay in the user's cache)
	rm -rf $(VENV) .venv-* .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache dist build

.PHONY: help venv control-plane object-store demo test fuzz check test-versions sweep chaos sim histories unit node e2e bench-node test-kai kai-bin test-volcano volcano-bin test-kueue kueue-bin image lint types fmt manifests drift bench bench-peers lock clean
