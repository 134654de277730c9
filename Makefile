# Two commands matter: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test docs lint check format client clean

help:
	@echo "make demo          web site, worker, coordinator and four CPU agents; prints a URL (Ctrl-C stops)"
	@echo "make demo CHECK=1  the same without a terminal: verifies the answer against transformers, then exits"
	@echo "make test          the test suite"
	@echo "make docs          the documentation, to be read at docs/_build/html/index.html"
	@echo "make client        the Python client anew, after a change of the REST API"
	@echo "make check         format, lint, import contracts, types, tests (what CI runs)"

$(STAMP): pyproject.toml setup.py constraints.txt $(shell find planner -name "*.c")
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "HelixWeb needs Python 3.11 or newer; $(PYTHON) is older. Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 2; }
	@echo "Setting up $(VENV) (once; torch is the large part) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable '.[agent,postgres,dev,docs]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/python -m helixweb.demo $(if $(CHECK),--check) $(if $(PORT),--port $(PORT))

test: $(STAMP)
	@$(BIN)/pytest $(TESTS)

docs: $(STAMP)
	@$(BIN)/python -m sphinx -W -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

check: lint
	$(MAKE) --no-print-directory test

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

client: $(STAMP)
	@$(BIN)/python manage.py spectacular --format openapi-json | $(BIN)/python -m helixweb.client.generator

clean:
	rm -rf $(VENV) var build *.egg-info
