#!/bin/sh
# Everything that needs a GPU, in one command, on a machine with no network:
#
#     benchmarks/gpu.sh [--dry] [--python PYTHON] [--from FOLDER] [--stage NAME]... OUT [SECONDS]
#
# runs the stages and writes everything into the folder OUT, and all of that into OUT/all.tgz. The exit status is that of the
# first step that failed. It needs a Python (default: the checkout's .venv, else python3) with NumPy, ml_dtypes, pytest, and
# a PyTorch that can use the GPU, and either
#   - TVM, nvcc and a C compiler. Then all stages take under 10 minutes, of which SECONDS (default 150) are for tuning; or
#   - a FOLDER that benchmarks/gpu_prepare.py filled where there is a compiler. Then everything is run from there, and a
#     stage takes SECONDS (default 360) and what the last kernel takes, at most 8 minutes: name those that there is time for.
# The stages:
#   check    every kernel of every algorithm is called once, by itself
#   tests    tests/gpu
#   compare  beside cuDNN; then TF32, and 3-D in bf16
#   tune     the fastest of many candidates; the records go to OUT/records, and are gone on with where they are there
#   tuned    (with --from) compare again, with what the records of OUT/records say
# --dry goes the same way without a GPU: tests are skipped, kernels are called on a driver that does nothing, a CPU is
# tuned and compared instead (without PyTorch it is not compared). A step may then take ten times its limit.
set -u
dry='' patience=1 python='' from='' stages=''
usage() {
  echo "usage: benchmarks/gpu.sh [--dry] [--python PYTHON] [--from FOLDER] [--stage NAME]... OUT [SECONDS]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --dry) dry=--dry patience=10 ;;
    --python | --from | --stage)
      if [ $# -lt 2 ]; then usage; fi
      case $1 in
        --python) python=$2 ;;
        --from) from=$(cd "$2" && pwd) || exit 2 ;;
        --stage)
          case $2 in check | tests | compare | tune | tuned) stages="$stages $2" ;; *) usage ;; esac
          ;;
      esac
      shift
      ;;
    -*) usage ;;
    *) break ;;
  esac
  shift
done
if [ $# -lt 1 ] || [ $# -gt 2 ]; then usage; fi
mkdir -p "$1" || exit 2
out=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")/.." && pwd)
if [ -z "$python" ]; then
  python=python3
  if [ -x "$here/.venv/bin/python" ]; then python=$here/.venv/bin/python; fi
fi
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
export PYTHONUNBUFFERED=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The packages are laid out in $work/code as pyproject.toml installs them, and everything runs there: `python -m` looks in
# the current folder first, where the checkout's own tvmconv lacks its records.
if [ -n "$from" ]; then
  seconds=${2:-360} tests_seconds=420 stages=${stages:-check tests compare tune tuned}
  for stage in code $stages; do
    case $stage in check | tests) part=tests ;; tune | tuned) part=tune ;; *) part=$stage ;; esac
    if [ -d "$work/$part" ]; then continue; fi
    if [ ! -e "$from/$part.tar.xz" ]; then
      echo "$from has no $part.tar.xz, for the stage $stage; python -m benchmarks.gpu_prepare writes it" >&2
      exit 2
    fi
    "$python" -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2])' "$from/$part.tar.xz" "$work" || exit 2
  done
else
  seconds=${2:-150} tests_seconds=150 stages=${stages:-check tests tune compare}
  mkdir "$work/code"
  cp -rL "$here/tvmconv" "$here/benchmarks" "$here/tests" "$here/pyproject.toml" "$work/code"
  cp -r "$here/tuning_logs" "$work/code/tvmconv"
fi
cd "$work/code" || exit 2
export PYTHONPATH="$work/code:$work/code/tests${PYTHONPATH:+:$PYTHONPATH}"
if [ -n "$from" ] && ! "$python" -c 'import filelock, tvm_ffi' 2>/dev/null; then
  PYTHONPATH="$PYTHONPATH:$work/code/wheels"
  if ! "$python" -c 'import filelock, tvm_ffi'; then
    echo "the wheels in $from are not for $("$python" -V); prepare it with --python" >&2
    exit 2
  fi
fi
status=0

# step NAME LIMIT COMMAND...: run a command for LIMIT seconds at most, times the patience; its output goes to OUT/NAME.log.
# It is interrupted then, and so still says what it found.
step() {
  name=$1 limit=$2
  shift 2
  start=$(date +%s)
  timeout --signal=INT --kill-after=15 $((limit * patience)) "$@" >"$out/$name.log" 2>&1
  code=$?
  echo "$name: exit $code after $(($(date +%s) - start)) s" | tee -a "$out/steps.txt"
  if [ $code -ne 0 ]; then
    tail -n 15 "$out/$name.log"
    if [ $status -eq 0 ]; then status=$code; fi
  fi
}

# The sources that are compared and, without a FOLDER, tuned; with --dry one problem, on the CPU.
suites=benchmarks/suites
sources="$suites/resnet50.toml $suites/mobilenet_v1.toml $suites/resnext.toml $suites/dcgan.toml $suites/unet.toml"
: >"$out/steps.txt"
step env 60 "$python" -c 'import sys; from tvmconv.cli import main; sys.exit(main(["env"]))'
if [ -n "$dry" ]; then
  kind=dry target=host sources=conv2d-n1-i16x8x8-o16x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32 choice="--batch 1 --dtype f32"
else
  nvidia-smi >>"$out/env.log" 2>&1
  arch=$("$python" -c 'from tvmconv.runtime.cuda.gpus import survey; g = survey().gpus; print(g[0].architecture if g else "")')
  if [ -z "$arch" ]; then
    "$python" -c 'from tvmconv.runtime.cuda.gpus import survey; print(survey().obstacle)' >&2
    exit 3
  fi
  kind=gpu target=cuda:sm_$arch choice=
  # With the instructions that these GPUs alone have.
  if [ "$arch" = 90 ]; then target=cuda:sm_90a; fi
fi

# Where kernels that are checked and tested are: of the FOLDER, or compiled now, once for both.
kernels() {
  if [ -d "$work/tests" ] || [ -n "$dry" ]; then return; fi
  mkdir "$work/tests"
  step build 150 "$python" -c 'import sys; from pathlib import Path
from gpu_kernels import target_of_gpu, write_kernels
write_kernels(Path(sys.argv[1]), target_of_gpu())' "$work/tests"
}

check() {
  kernels
  if [ ! -d "$work/tests" ]; then return; fi
  driver=
  if [ -n "$dry" ]; then
    mkdir -p "$work/driver"
    cc -shared -fPIC -DARCHITECTURES=90 -DVERSION=13000 -DINIT=0 -Wl,-soname,libcuda.so.1 tests/fake_driver.c \
      -o "$work/driver/libcuda.so.1" || exit 2
    driver=$work/driver:
  fi
  step check 120 env "LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:-}" "$python" -m benchmarks.gpu_check "$work/tests" $dry \
    --output "$out/check.json"
}

tests() {
  kernels
  step tests "$tests_seconds" "$python" -m pytest tests/gpu -q -rs -p no:cacheprovider --kernels "$work/tests"
  tail -n 2 "$out/tests.log"
}

# beside_cudnn NAME SECONDS ARGUMENTS...: time the kernels of a bundle, or of kernels built now, beside cuDNN.
beside_cudnn() {
  name=$1 limit=$2
  shift 2
  if [ -n "$dry" ] && ! "$python" -c 'import torch' 2>/dev/null; then
    echo "$name: left out of this dry run, for PyTorch is not installed" | tee -a "$out/steps.txt"
    return
  fi
  step "$name" $((limit + 40)) "$python" -m benchmarks.gpu_compare "$@" $dry --seconds "$limit" --output "$out/$name.json"
  tail -n 25 "$out/$name.log"
}

compare() {
  # shellcheck disable=SC2086
  if [ -z "$from" ]; then
    beside_cudnn compare 150 $sources $choice --target "$target" --records "$out/records"
  elif [ -n "$dry" ]; then
    beside_cudnn compare 60 $sources $choice --bundle "$work/compare/dry.bundle"
  else
    beside_cudnn compare $((seconds / 2)) $sources --bundle "$work/compare/default.bundle"
    beside_cudnn tf32 $((seconds / 6)) $sources --math tf32 --dtype f32 --bundle "$work/compare/tf32.bundle"
    beside_cudnn video $((seconds / 3)) "$suites/gpu/video_vae.toml" --batch 1 --dtype bf16 \
      --bundle "$work/compare/default.bundle"
  fi
}

tune() {
  # shellcheck disable=SC2086
  if [ -z "$from" ]; then
    # The types and batches take turns, so that each gets a part of the time.
    step tune $((seconds + 60)) "$python" -m benchmarks.gpu_tune $sources $choice --target "$target" --seconds "$seconds" \
      --records "$out/records"
  else
    if [ -d "$work/tune/records" ] && [ ! -d "$out/records" ]; then cp -r "$work/tune/records" "$out/records"; fi
    step tune $((seconds + 100)) "$python" -m benchmarks.gpu_tune --candidates "$work/tune/$kind" \
      --seconds "$seconds" --records "$out/records"
  fi
  tail -n 25 "$out/tune.log"
}

tuned() {
  if [ -z "$from" ]; then
    echo "the stage tuned is for --from FOLDER: without it, compare takes what tune recorded" >&2
    exit 2
  fi
  step bundle 60 "$python" -m benchmarks.gpu_tuned "$work/tune/$kind" "$out/records" "$work/tuned.bundle"
  beside_cudnn tuned "$seconds" --bundle "$work/tuned.bundle"
}

for stage in $stages; do
  $stage
  # Everything in one file, where few files can be taken back: the trials of tuning are a file a problem.
  (cd "$out" && find . -type f ! -name all.tgz | tar -czf "$work/all.tgz" -T - && mv "$work/all.tgz" .)
done
echo
cat "$out/steps.txt"
exit $status
