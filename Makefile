# Everything runs from .venv, which `install` makes; python3.11 and make are all it needs.

PYTHON ?= $(shell for p in python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.installed

# Idle OpenMP threads sleep instead of spinning: much faster when cores are shared.
export OMP_WAIT_POLICY := PASSIVE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test browser coverage mutation lint format bench docs figures gallery dist clean

help: ## list these targets
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/^([a-z]+):.*## (.*)/\1\t\2/' | expand -t 10

install: $(STAMP) ## create .venv with the package, its extras and the tools

# Nothing is compiled that may never be imported: that would take two fifths of the time.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found; set PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[all,dev]'
	@touch $@

demo: install ## the cubic toy: prints a table, writes a figure to demo/
	$(BIN)/density-regression demo --out demo

test: install lint browser ## lint, then the tests, in two processes
	$(BIN)/pytest -n 2 --dist worksteal --durations=15

browser: .browser/.installed ## Chromium and axe-core, for the tests of the page

# Without them those tests are skipped; with CI set they must run.
.browser/.installed: tests/serve/page/install.sh
	@tests/serve/page/install.sh && touch $@ || test -z "$$CI"

coverage: install ## the tests a quarter slower, and the lines that they do not reach
	$(BIN)/pytest -n 2 --dist worksteal --cov --cov-report=term

# The tool stays out of .venv, as nothing else needs it.
mutation: install ## wrong changes that tests beside a module do not notice; an hour for all, or MODULES="heads reach"
	test -d .mutation || $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target .mutation \
		mutmut==3.8.1 libcst==1.9.0
	OMP_NUM_THREADS=1 PYTHONPATH=.mutation $(BIN)/python benchmarks/mutation.py $(MODULES)

lint: install ## style, format, types and the order of the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install ## put the code into shape
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: install ## speed, size, memory: tables and figures in bench/; with DENSITY_REGRESSION_DATA peers and accuracy
	$(BIN)/python benchmarks/latency.py --json bench/latency.json
	$(BIN)/python benchmarks/training.py --json bench/training.json
	$(BIN)/python benchmarks/export.py --json bench/export.json
	$(BIN)/python benchmarks/ensemble.py --json bench/ensemble.json
	$(BIN)/python benchmarks/speed_report.py bench
	@$(BIN)/python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' \
		&& $(BIN)/python benchmarks/depth.py --json bench/depth.json \
		|| echo "Images were not timed: there is no GPU."
ifdef DENSITY_REGRESSION_DATA
	benchmarks/peers/install.sh
	.venv-peers/bin/python benchmarks/peers/run.py --out bench/peers.jsonl
	.venv-peers/bin/python benchmarks/peers/table.py bench/peers.jsonl > bench/peers.md
	$(BIN)/python benchmarks/uci.py
	$(BIN)/python benchmarks/rivals.py
else
	@echo "Peers and UCI were not run: set DENSITY_REGRESSION_DATA to the folder with the data."
endif

gallery: install ## run the examples and write their pages; two need mlflow and skpro, which are not installed
	$(BIN)/python docs/gallery.py

docs: install ## build the site into site/, warnings are errors
	$(BIN)/zensical build --strict

figures: install ## draw the figures of "How it works" anew, into docs/images/how
	for script in idea family tempering members parts awareness collapse rivals; do \
		$(BIN)/python docs/figures/$$script.py || exit 1; done

# The tool stays out of .venv, as nothing else needs it.
dist: install ## wheel and sdist in dist/, installed into empty environments, extras one by one; some minutes
	test -d .hatchling || $(BIN)/pip install --quiet --disable-pip-version-check --target .hatchling hatchling==1.33.0
	rm -rf dist
	PYTHONPATH=.hatchling $(BIN)/python -m hatchling build
	PYTHONPATH=$(CURDIR)/.hatchling $(BIN)/python tests/release/smoke.py dist constraints.txt

clean: ## remove .venv and everything that was made
	rm -rf .venv .venv-peers .mutation .browser .hatchling mutants.json bench demo build dist site htmlcov
	rm -rf .coverage .coverage.* .hypothesis .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests benchmarks examples -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
