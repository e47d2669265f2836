# Every target sets up what it needs in .venv: on a fresh machine, `make demo` or `make test` is the first command.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup test lint bench demo reproduce clean

setup: .venv/.ready

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gsure needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=... to a newer one.")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

test: setup
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal  # a process per core; neighbours, which share fixtures, stay together

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python bench/finite_difference.py
	$(BIN)/python bench/floor.py
	$(BIN)/python bench/gaussian.py
	$(BIN)/python bench/first_run.py small
	$(BIN)/python bench/store.py
	$(BIN)/python bench/train.py
	$(BIN)/python bench/sample.py speed
	$(BIN)/python bench/kill.py

demo: setup
	$(BIN)/gsure demo digits
	@echo 'Open demo/report.html in a browser.'

# SCALE=small DATA=folder-of-Fashion-MNIST for the tables of docs/results; every part is kept in work/ and never made twice.
SCALE ?= tiny
RESULTS ?= results
reproduce: setup
	for name in table1 table-colour mri-denoising mri-r4 mri-accelerations mri-masks mri-brains uncertainty generalization independence analytic; do \
	  $(BIN)/gsure reproduce $$name --scale $(SCALE) --out $(RESULTS) $(if $(DATA),--data $(DATA)) || exit 1; done

clean:
	rm -rf .venv build dist *.egg-info src/*.egg-info .pytest_cache .ruff_cache .mypy_cache
