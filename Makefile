# Set-up happens once, whenever pyproject.toml changes: every target below runs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT := out
EXAMPLE := $(BIN)/python examples/cluster_and_project.py
METRIC := --metric 'seconds ([0-9.]+)'

.DEFAULT_GOAL := help
.PHONY: help setup run test lint fmt typecheck bench bench-lpcl eval-extract eval-docs bench-extract fuzz fuzz-walk wheel-check corpus-check corpus-table clean

help: ## Show this help
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 18

setup: $(READY) ## Create .venv and install everything into it

$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "syspilot needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev --group examples
	touch $(READY)

run: $(READY) ## The main path on real input: contracts from three releases, then doctor, tune and run on an example
	$(BIN)/syspilot synth numexpr==2.14.2 joblib==1.6.0 threadpoolctl==3.8.0 --out $(OUT)/contracts
	$(BIN)/syspilot synth --explain numexpr.threads --out $(OUT)/contracts
	$(BIN)/syspilot doctor $(METRIC) --contracts $(OUT)/contracts --state $(OUT)/state --report $(OUT)/doctor.html --exit-zero -- $(EXAMPLE)
	$(BIN)/syspilot tune $(METRIC) --contracts $(OUT)/contracts --state $(OUT)/state --report $(OUT)/tune.html --export env --exit-zero -- $(EXAMPLE)
	$(BIN)/syspilot run --state $(OUT)/state -- $(EXAMPLE)
	@echo "reports: $(OUT)/doctor.html $(OUT)/tune.html"

test: $(READY) ## All tests, the linters and the type checker
	$(MAKE) lint typecheck
	$(BIN)/python -m pytest

lint: $(READY) ## Check style, layers of imports, and the shipped contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	PYTHONPATH=. $(BIN)/lint-imports
	$(MAKE) corpus-check

fmt: $(READY) ## Rewrite code and contracts in canonical form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/lpcl fmt corpus

typecheck: $(READY) ## mypy, strict
	$(BIN)/mypy

bench: $(READY) ## Speed of extraction, and what doctor costs the application
	$(BIN)/python evaluation/bench.py

bench-lpcl: $(READY) ## Speed of reading LPCL, beside HCL and YAML
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group bench
	$(BIN)/python evaluation/bench_lpcl.py

eval-extract: $(READY) ## Score extraction against hand-written lists: GOLD=DIR (default: ../shared/gold)
	$(BIN)/python evaluation/eval_extract.py $(if $(GOLD),--gold $(GOLD))

eval-docs: $(READY) ## How much of what real documentation sites say is found on them
	$(BIN)/python -m evaluation.eval_docs $(if $(GOLD),--gold $(GOLD))

bench-extract: $(READY) ## Speed and memory of extraction, beside ripgrep and semgrep
	$(BIN)/python -m evaluation.bench_extract

fuzz-walk: $(READY) ## Feed the walkers with damaged real files
	$(BIN)/python -m evaluation.fuzz_walk --seed $$(date +%s)

fuzz: $(READY) ## Look for texts that break the language, among a million
	$(BIN)/python -m evaluation.fuzz --cases 1000000 --seed $$(date +%s)

wheel-check: $(READY) ## Build the wheel, install it in a fresh environment, and use it from another folder
	$(BIN)/python -m pytest tests/test_wheel.py

corpus-check: $(READY) ## Check every shipped contract and its evidence
	$(BIN)/lpcl check corpus
	$(BIN)/lpcl fmt --check corpus

corpus-table: $(READY) ## Write the table of contracts into docs/corpus.md
	$(BIN)/lpcl corpus corpus --into docs/corpus.md

clean: ## Remove what was built; the downloads' cache stays
	rm -rf $(VENV) $(OUT) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
