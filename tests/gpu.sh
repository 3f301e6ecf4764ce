#!/usr/bin/env bash
# Builds the tests that need a GPU and runs them. The two halves may run on two machines: what the
# first leaves in build/gpu/ needs no packages where it runs, only an NVIDIA driver for CUDA 13 and,
# for the worker, LibTorch (deploy/setup.sh's, or that of the PyTorch that python3 imports).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: tests/gpu.sh [--build-only | --run-only [OPTIONS of gpu_run.py]]

  --build-only  build on a machine with nvcc 13.0 or newer; it needs no GPU. Leaves the programs and
                the libraries they need in build/gpu/, and packed in build/gpu.tar.xz (some 30 MB), to be
                copied with this script
  --run-only    run what is in build/gpu/ or build/gpu.tar.xz, on a machine with GPUs: on one, two and four
                of them, as many as there are, in at most ten minutes. Options: --gpus N, --minutes M,
                --only NAME..., --out FOLDER (tests/gpu_run.py --help)
USAGE
}

build=1
run=1
case "${1:-}" in
  "") ;;
  --build-only) run=0 ;;
  --run-only) build=0 ;;
  -h | --help) usage; exit 0 ;;
  *) echo "gpu.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
esac
[ $# -le 1 ] || [ "$1" = --run-only ] || { usage >&2; exit 2; }
[ $# -eq 0 ] || shift

readonly FROM=build/release
readonly BUNDLE=build/gpu
readonly OPS_TEST=tests/unit/python/ops_test.py
readonly TRAINING=tests/multiprocess/training # runs of real daemons
die() { printf 'gpu.sh: %s\n' "$*" >&2; exit 1; }

# What the programs link, but for the C and C++ libraries, which must be the machine's own, and for
# LibTorch, which is too large to carry.
copy_libraries() {
  local program library
  for program in "$@"; do
    ldd "$program" | sed -n 's|.* => \(/[^ ]*\) .*|\1|p'
  done | sort -u | while read -r library; do
    [[ $library =~ /site-packages/|/lib(c|m|dl|rt|util|pthread|stdc\+\+|gcc_s)\.so ]] ||
      cp -L "$library" "$BUNDLE/lib/"
  done
}

if [ "$build" = 1 ]; then
  found=$(cmake --preset release | grep -- '^-- CUDA: ')
  [[ $found == *": on"* ]] || die "expected nvcc; ${found#-- }"
  cmake --build --preset release --parallel "$(nproc)" --target gpu_tests longhaul_cuda longhaul_torch_cuda longhaul-worker \
    stage_passes longhaul-bench-collective longhaul-codec torch_ops longhaul longhaul-coordinator reference_losses
  rm -rf "$BUNDLE"
  mkdir -p "$BUNDLE/bin" "$BUNDLE/lib"
  cp "$FROM/gpu_tests.txt" "$BUNDLE/"
  cp "$FROM/lib/"liblonghaul_{cuda,torch_cuda,torch_ops}.so "$BUNDLE/lib/"
  cp --parents python/README.md python/longhaul_codecs/*.py "$OPS_TEST" tests/gpu_run.py $TRAINING/*.py tests/support/*.py deploy/runs/*.yaml \
    "$BUNDLE/"
  for script in $(python3 -B -c 'import sys; sys.path.insert(0, "tests"); import gpu_run
print(*{run.split()[0] for runs in gpu_run.RUNS.values() for run in runs})'); do
    (cd "$BUNDLE/$TRAINING" && python3 -B -c "import ${script%.py}") || die "$TRAINING/$script needs a file that is not in $BUNDLE/"
  done
  mapfile -t programs < <(cat "$BUNDLE/gpu_tests.txt" "$FROM/gpu_helpers.txt" | sed "s|^|$FROM/bin/|")
  programs+=("$FROM/bin/longhaul-bench-collective" "$FROM/bin/longhaul-worker" "$FROM/bin/longhaul-codec" "$FROM/bin/stage_passes"
    "$FROM/bin/longhaul" "$FROM/bin/longhaul-coordinator" "$FROM/bin/reference_losses")
  cp "${programs[@]}" "$BUNDLE/bin/"
  strip "$BUNDLE"/bin/*
  copy_libraries "${programs[@]}" "$FROM/lib/liblonghaul_torch_ops.so"
  tar -C "$(dirname "$BUNDLE")" -c gpu | xz -T0 -6 >"$BUNDLE.tar.xz"
  echo "gpu.sh: built $(wc -l <"$BUNDLE/gpu_tests.txt") test programs into $BUNDLE/ ($(du -sh "$BUNDLE" | cut -f1)) and $BUNDLE.tar.xz ($(du -sh "$BUNDLE.tar.xz" | cut -f1))"
fi

if [ "$run" = 1 ]; then
  [ -r "$BUNDLE/gpu_tests.txt" ] || [ ! -r "$BUNDLE.tar.xz" ] || tar -C "$(dirname "$BUNDLE")" -xJf "$BUNDLE.tar.xz"
  [ -r "$BUNDLE/gpu_tests.txt" ] || die "expected $BUNDLE/ or $BUNDLE.tar.xz; run tests/gpu.sh --build-only first, and copy one of them here with this script"
  torch=$(compgen -G "$PWD/.deps/venv/lib/python3*/site-packages/torch/lib" | head -n 1) ||
    torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__) + "/lib")' 2>/dev/null) ||
    die "expected LibTorch; run deploy/setup.sh, or put a python3 with PyTorch 2.11 first in PATH"
  # As users load them; the runner takes LD_LIBRARY_PATH away from what must do without.
  python=python3
  ! .deps/venv/bin/python3 -c 'import torch' 2>/dev/null || python=.deps/venv/bin/python3
  # NCCL lies beside LibTorch, in a package of its own.
  nccl=$(dirname "$(dirname "$torch")")/nvidia/nccl/lib
  export LD_LIBRARY_PATH=$PWD/$BUNDLE/lib:$torch:$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  exec "$python" -B "$BUNDLE/tests/gpu_run.py" "$BUNDLE" "$@"
fi
