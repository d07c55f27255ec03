#!/bin/sh
# Measure loading beside training on a machine without a network, in one call:
#
#     benchmarks/training/offline.sh WHEELS [ARGUMENT ...]
#
# WHEELS is the folder that `make training-wheels` has filled, ARGUMENTs are those of `python -m
# benchmarks.training.run`. An environment is made that sees the packages of $PYTHON, which
# must have PyTorch; the wheels are put into it, lmdbio's among them. Then loading is measured, then
# loading beside a training's step, then others' formats, in five minutes together. Tables, JSON and pages go to $OUT
# (training-results), the data, which is made, to $DATA (training-data).
set -eu

[ -d "${1:-}" ] || { echo "usage: $0 WHEELS [ARGUMENT ...]" >&2; exit 64; }
wheels=$(cd "$1" && pwd)
shift
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3} out=${OUT:-training-results} data=${DATA:-training-data}
home=${TMPDIR:-/tmp}/lmdbio-offline.$$
trap 'rm -rf "$home"' EXIT

"$python" -m venv --without-pip "$home"
own=$("$home/bin/python" -c 'import site; print(site.getsitepackages()[0])')
# The machine's packages come behind the wheels', and this folder behind all: its lmdbio is not compiled.
"$python" -c 'import site; print(*site.getsitepackages(), sep="\n")' > "$own/machine.pth"
echo "$root" > "$own/zz-benchmarks.pth"
"$python" -m pip --python "$home/bin/python" install --quiet --disable-pip-version-check \
    --no-index --no-deps --no-compile "$wheels"/*.whl

export PYTHONSAFEPATH=1 PYTHONUNBUFFERED=1
unset PYTHONPATH
mkdir -p "$out"
measure() {
    name=$1
    shift
    status=0
    "$home/bin/python" -m benchmarks.training.run --data "$data" --json "$out/$name.json" \
        --html "$out/$name.html" "$@" > "$out/$name.txt" 2>&1 || status=$?
    cat "$out/$name.txt"
    [ "$status" -le 2 ] || exit "$status"
}
measure loading --rounds 2 --minutes "${LOADING_MINUTES:-2}" "$@"
measure training --step --rounds 2 --minutes "${TRAINING_MINUTES:-1.3}" "$@"
# Their formats take long to write: a small set.
measure peers --ways loader,peers --rounds 1 --mib 48 --minutes "${PEERS_MINUTES:-1.2}"
