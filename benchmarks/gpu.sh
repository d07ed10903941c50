#!/bin/sh
# Everything that needs a GPU, in one command of under 10 minutes, on a machine with no network:
#
#     benchmarks/gpu.sh [--dry] OUT [SECONDS]
#
# runs tests/gpu, tunes for SECONDS (default 150), and compares with cuDNN; writes everything into the folder OUT and prints
# a short table last. It needs python3 with tvmconv's compile extra and a PyTorch that can use the GPU, nvcc and a C compiler.
# The exit status is that of the first step that failed. --dry goes the same way without a GPU: the tests are skipped, the
# CPU is tuned and compared instead, a minute in all, or longer: a step may take ten times its limit.
set -u
dry= patience=1
if [ "${1:-}" = --dry ]; then dry=--dry patience=10; shift; fi
if [ $# -lt 1 ]; then echo "usage: benchmarks/gpu.sh [--dry] OUT [SECONDS]" >&2; exit 2; fi
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
seconds=${2:-150}
cd "$(dirname "$0")/.."
python=python3
if [ -x .venv/bin/python ]; then python=.venv/bin/python; fi
export PYTHONUNBUFFERED=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if ! "$python" -c 'import tvmconv.schedules' 2>/dev/null; then
  # Not installed: lay the packages out as pyproject.toml installs them.
  cp -r tvmconv "$work/tvmconv"
  cp -r schedules tuning_logs "$work/tvmconv"
  export PYTHONPATH="$work:$PWD${PYTHONPATH:+:$PYTHONPATH}"
fi
status=0

# step NAME LIMIT COMMAND...: run a command for LIMIT seconds at most, times the patience; its output goes to OUT/NAME.log.
step() {
  name=$1 limit=$2
  shift 2
  start=$(date +%s)
  timeout $((limit * patience)) "$@" >"$out/$name.log" 2>&1
  code=$?
  echo "$name: exit $code after $(($(date +%s) - start)) s" | tee -a "$out/steps.txt"
  if [ $code -ne 0 ]; then
    tail -n 15 "$out/$name.log"
    if [ $status -eq 0 ]; then status=$code; fi
  fi
}

: >"$out/steps.txt"
suites=benchmarks/suites
step env 30 "$python" -c 'import sys; from tvmconv.cli import main; sys.exit(main(["env"]))'
if [ -n "$dry" ]; then
  target=host sources=conv2d-n1-i16x8x8-o16x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32 choice="--batch 1 --dtype f32"
  compare_seconds=100  # for one problem: a machine that is slow, or busy, builds it for longer than ten
else
  nvidia-smi >"$out/nvidia-smi.txt" 2>&1
  arch=$("$python" -c 'from tvmconv.cuda import survey; g = survey().gpus; print(g[0].architecture if g else "")')
  if [ -z "$arch" ]; then
    "$python" -c 'from tvmconv.cuda import survey; print(survey().obstacle)' >&2
    exit 3
  fi
  target=cuda:sm_$arch choice= compare_seconds=150
  sources="$suites/resnet50.toml $suites/mobilenet_v1.toml $suites/resnext.toml $suites/dcgan.toml $suites/unet.toml"
fi
step tests 150 "$python" -m pytest tests/gpu -q -rs -p no:cacheprovider
# The types and batches take turns, so that each gets a part of the time.
# shellcheck disable=SC2086
step tune $((seconds + 60)) "$python" -m benchmarks.gpu_tune $sources $choice --target "$target" --seconds "$seconds" \
  --records "$work/records"
cat "$work"/records/*/records.jsonl >"$out/records.jsonl" 2>/dev/null
# shellcheck disable=SC2086
step compare $((compare_seconds + 50)) "$python" -m benchmarks.gpu_compare $sources $choice $dry --target "$target" \
  --seconds "$compare_seconds" --records "$work/records" --output "$out/compare.json"

echo
cat "$out/steps.txt"
tail -n 2 "$out/tests.log"
tail -n 25 "$out/compare.log"
exit $status
