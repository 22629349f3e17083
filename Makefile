# Tidegate: the commands of a checkout. `make help` lists them; ARGS passes options on.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help demo up test test-fast fuzz check format clean clean-data ready ready-dev

FINDER := $(shell command -v python3 || command -v python3.13 || command -v python3.12 || command -v python3.11)
BIN := .venv/bin
PY := $(BIN)/python

# A production-like environment for Django's deployment checks; nothing here is a secret of any installation.
DEPLOYED := TIDEGATE_TLS=1 TIDEGATE_ALLOWED_HOSTS=console.example.com DATABASE_URL=postgresql:///unused \
	VALKEY_URL=redis://unused TIDEGATE_KEY_PEPPER=check-only-0f8b1c6d2e9a4755 \
	TIDEGATE_SECRET_KEY=check-only-Zq7vXw2Lr9TkB4nYh6Js1Fd8Gm3Pc5Ua0EoIiRtN

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: ready ## Everything, with two tenants and a real model, measured and explained
	@exec $(PY) manage.py demo $(ARGS)

up: ready ## PostgreSQL, Valkey and all processes on this machine; Ctrl-C stops them
	@exec $(PY) manage.py up $(ARGS)

# What is compiled once is not compiled again by every process that the tests start.
unexport PYTHONDONTWRITEBYTECODE

QUICK := not torch and not processes and not browser
ALL_CORES := -n logical --dist loadfile

# Exit status 5 of pytest: ARGS chose no test of this half.
test: ready-dev ## The whole test suite: the fast part on all cores, then the rest one by one
	$(PY) -m pytest -m "$(QUICK)" $(ALL_CORES) $(ARGS) || [ $$? -eq 5 ]
	$(PY) -m pytest -m "torch or processes or browser" $(ARGS) || [ $$? -eq 5 ]

test-fast: ready-dev ## Without torch, the database, real processes and a browser; fewer random examples
	TIDEGATE_TEST_EXAMPLES=20 $(PY) -m pytest -m "$(QUICK) and not database" $(ALL_CORES) $(ARGS) || [ $$? -eq 5 ]

fuzz: ready-dev ## Fuzz frames, HTTP and both protocols; TIDEGATE_FUZZ_S seconds each, 300 by default
	TIDEGATE_FUZZ_S=$${TIDEGATE_FUZZ_S:-300} nice -n 15 $(PY) -m pytest tests/fuzz $(ARGS)

check: ready-dev ## Lint, format, types, import contracts, migrations, deployment settings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	DJANGO_SETTINGS_MODULE=tests.settings $(PY) manage.py makemigrations --check --dry-run
	$(DEPLOYED) $(PY) manage.py check --deploy --fail-level WARNING

format: ready-dev ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Everything that can be made again; your data in var/ stays
	rm -rf .venv node_modules static/vendor .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

clean-data: ## Delete var/: databases, artifacts, keys, logs
	rm -rf var

ready:
	@$(if $(FINDER),$(FINDER) deploy/bootstrap.py,echo "Tidegate needs Python 3.11 or newer (python3 is not on PATH)" >&2; exit 1)

ready-dev:
	@$(if $(FINDER),$(FINDER) deploy/bootstrap.py --dev,echo "Tidegate needs Python 3.11 or newer (python3 is not on PATH)" >&2; exit 1)
