# Both `make demo` and `make test` do all the set-up on a fresh machine (Python 3.11+ with venv).
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Where it is set, every process compiles every module anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-kernels test-versions test-ck-tile pool installed lint docs benchmark faults mutants gpu-kit clean

demo: $(VENV)/installed
	$(BIN)/python -m pytest --problem-set forward_smoke --allow no-baseline

# worksteal: a worker begins with a half of the tests in their order, so that what a module shares is made once.
# test, test-slow and test-kernels are all tests together. test-kernels has the slow ones of the shipped kernels: they run
# on the CPU, on emulated GPUs and in Triton's interpreter.
KERNEL_TESTS := tests/kernels tests/triton/test_shipped_pool.py
test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" $(PYTEST_ARGS)

test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow $(KERNEL_TESTS:%=--ignore=%) $(PYTEST_ARGS)

test-kernels: $(VENV)/installed-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow $(KERNEL_TESTS) $(PYTEST_ARGS)

# CK Tile's own kernels from public packages, for gfx950; skips, and says why, where the packages cannot be had.
test-ck-tile: $(VENV)/installed-dev
	TILE_ORACLE_CK_TILE=1 $(BIN)/python -m pytest tests/ck_tile -rs $(PYTEST_ARGS)

# Compiles the whole default pool of convolutions for a GPU, and for gfx9 a sample of the GEMMs. Fails when a kernel
# that the rules allow spills, uses scratch memory, needs too much LDS or does not compile and, for gfx9, when the
# verifier finds a missing wait. Binaries are kept in POOL_CACHE, so it is short the next time.
POOL_ARCH ?= gfx950
# POOL_ARCH=gfx942 or gfx90a compiles a sample: the set tiny in bf16, 48 kernels.
POOL_SAMPLED := $(filter gfx942 gfx90a,$(POOL_ARCH))
POOL_SET ?= $(if $(POOL_SAMPLED),tiny,default)
POOL_DTYPES ?= bf16 $(if $(POOL_SAMPLED),,fp16) $(if $(filter gfx950,$(POOL_ARCH)),fp32)
POOL_CACHE ?= .pool-cache
POOL_CHECKS ?= --facts $(if $(filter gfx%,$(POOL_ARCH)),--verify)
# GEMMs of the set default, of every type and layout, chosen at random; POOL_GEMMS=10000 compiles them all.
POOL_GEMMS ?= $(if $(POOL_SAMPLED),24,60)

pool: $(VENV)/installed-dev
	for dtype in $(POOL_DTYPES); do \
	  $(BIN)/tile-oracle pool list --arch $(POOL_ARCH) --kernel-set $(POOL_SET) --dtype $$dtype $(POOL_CHECKS) --build-dir $(POOL_CACHE) || [ $$? = 3 ] || exit 1; \
	done
	$(if $(filter gfx%,$(POOL_ARCH)),$(BIN)/tile-oracle pool list --op gemm --arch $(POOL_ARCH) $(POOL_CHECKS) --sample $(POOL_GEMMS) --build-dir $(POOL_CACHE) || [ $$? = 3 ])

# A session, two workers, a replay and a training with the lowest versions of the dependencies that pyproject.toml
# allows, and with the newest. VERSIONS=lowest or newest: one of them.
test-versions:
	$(PYTHON) -m tools.tested_versions $(VERSIONS)

# What a release would be: wheels for Linux on x86-64 and aarch64 with the compiled native selector, and one for any
# platform, which compiles it when it is first needed. Each is installed into a new environment in build/installed, where
# the checkout cannot be reached, and what the documentation promises is run there. INSTALLED_EXTRAS="triton fleet" also
# runs what takes longer.
INSTALLED_EXTRAS ?= triton
installed: $(VENV)/installed-dev
	rm -rf build/installed
	$(BIN)/python -m tests.installed.environment build/installed $(INSTALLED_EXTRAS)
	TILE_ORACLE_INSTALLED=build/installed $(BIN)/python -m pytest tests/installed -n 2 --dist worksteal -rs $(PYTEST_ARGS)

# What a machine with an NVIDIA GPU, and without a compiler, needs to measure the figures of benchmarks/gpu.
gpu-kit: $(VENV)/installed-dev
	$(BIN)/python benchmarks/gpu/make_kit.py gpu-kit $(KIT_ARGS)

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.budgets
	$(BIN)/zizmor --offline --quiet .github

# The documentation as a site in build/site. A warning is an error.
docs: $(VENV)/installed-docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html -c docs/site . build/site

benchmark: $(VENV)/installed-dev
	$(BIN)/python -m pytest benchmarks --benchmark-only $(PYTEST_ARGS)

# Every fault campaign in full: hours. FAULTS_ARGS: e.g. --share 0.01, or --only kills (docs/reliability.md).
faults: $(VENV)/installed-dev
	$(BIN)/python -m tools.faults $(FAULTS_ARGS)

# Small errors in judging, records and measuring, one at a time: how many the tests of the room find, and which they
# do not. Not a part of any test run. MUTANTS_ARGS: e.g. --rooms judge --count 100 --seed 2.
mutants: $(VENV)/installed-dev
	$(BIN)/python -m tools.mutants $(MUTANTS_ARGS)

# uv takes a fifth of pip's time; where it cannot be had, or cannot reach what pip is configured for, pip installs.
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python -e $(1) 2>/dev/null || \
  $(BIN)/python -m pip install --quiet --disable-pip-version-check -e $(1)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/installed: pyproject.toml | $(BIN)/python
	$(call INSTALL,.)
	touch $@

$(VENV)/installed-docs: pyproject.toml | $(BIN)/python
	$(call INSTALL,".[docs]")
	touch $@ $(VENV)/installed

$(VENV)/installed-dev: pyproject.toml | $(BIN)/python
	$(call INSTALL,".[dev]")
	touch $@ $(VENV)/installed

clean:
	rm -rf $(VENV) .pool-cache gpu-kit .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
