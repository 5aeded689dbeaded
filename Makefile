# Both `make demo` and `make test` do all the set-up on a fresh machine (Python 3.11+ with venv).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-ck-tile lint benchmark clean

demo: $(VENV)/installed
	$(BIN)/python -m pytest --problem-set forward_smoke

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

# CK Tile's own kernels from public packages, for gfx950; skips, and says why, where the packages cannot be had.
test-ck-tile: $(VENV)/installed-dev
	TILE_ORACLE_CK_TILE=1 $(BIN)/python -m pytest tests/ck_tile -rs $(PYTEST_ARGS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: $(VENV)/installed-dev
	$(BIN)/python -m pytest benchmarks --benchmark-only $(PYTEST_ARGS)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
