#!/usr/bin/env bash
# Builds the tests that need a GPU and runs them. The two halves may run on two machines: what the
# first leaves in build/gpu/ needs no packages where it runs, only an NVIDIA driver for CUDA 13 and,
# for the worker, LibTorch (deploy/setup.sh's, or that of the PyTorch that python3 imports).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: tests/gpu.sh [--build-only | --run-only]

  --build-only  build on a machine with nvcc 13.0 or newer; it needs no GPU. Leaves the programs and
                the libraries they need in build/gpu/, to be copied with this script
  --run-only    run what is in build/gpu/, on a machine with a GPU
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
[ $# -le 1 ] || { usage >&2; exit 2; }

readonly FROM=build/release
readonly BUNDLE=build/gpu
readonly OPS_TEST=tests/unit/python/ops_test.py
# Runs of real daemons, and what they need of the tree.
readonly TRAINING=tests/multiprocess/training
readonly RUNS=("slices_test.py losses" "overlap_test.py losses" "replicas_test.py parity")
readonly RUNS_OF_TWO_GPUS=("group_test.py parity" "composition_test.py parity" "composition_test.py compressed")
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
  cp --parents python/README.md python/longhaul_codecs/*.py "$OPS_TEST" $TRAINING/*.py tests/support/*.py deploy/runs/*.yaml "$BUNDLE/"
  for run in "${RUNS[@]}" "${RUNS_OF_TWO_GPUS[@]}"; do
    (cd "$BUNDLE/$TRAINING" && python3 -B -c "import ${run%%.py *}") || die "$TRAINING/${run%% *} needs a file that is not in $BUNDLE/"
  done
  mapfile -t programs < <(cat "$BUNDLE/gpu_tests.txt" "$FROM/gpu_helpers.txt" | sed "s|^|$FROM/bin/|")
  programs+=("$FROM/bin/longhaul-bench-collective" "$FROM/bin/longhaul-worker" "$FROM/bin/longhaul-codec" "$FROM/bin/stage_passes"
    "$FROM/bin/longhaul" "$FROM/bin/longhaul-coordinator" "$FROM/bin/reference_losses")
  cp "${programs[@]}" "$BUNDLE/bin/"
  copy_libraries "${programs[@]}" "$FROM/lib/liblonghaul_torch_ops.so"
  echo "gpu.sh: built $(wc -l <"$BUNDLE/gpu_tests.txt") test programs into $BUNDLE/ ($(du -sh "$BUNDLE" | cut -f1))"
fi

if [ "$run" = 1 ]; then
  [ -r "$BUNDLE/gpu_tests.txt" ] || die "expected $BUNDLE/; run tests/gpu.sh --build-only first, and copy it here with this script"
  torch=$(compgen -G "$PWD/.deps/venv/lib/python3*/site-packages/torch/lib" | head -n 1) ||
    torch=$(python3 -c 'import os, torch; print(os.path.dirname(torch.__file__) + "/lib")' 2>/dev/null) ||
    die "expected LibTorch; run deploy/setup.sh, or put a python3 with PyTorch 2.11 first in PATH"
  export LONGHAUL_REQUIRE_GPU=1 # a machine without one fails
  failed=()
  # As users load them, without LD_LIBRARY_PATH.
  python=python3
  ! .deps/venv/bin/python3 -c 'import torch' 2>/dev/null || python=.deps/venv/bin/python3
  LONGHAUL_TORCH_OPS=$PWD/$BUNDLE/lib/liblonghaul_torch_ops.so \
    "$python" -B "$BUNDLE/$OPS_TEST" "$BUNDLE/bin/longhaul-codec" || failed+=("$OPS_TEST")
  # NCCL lies beside LibTorch, in a package of its own.
  nccl=$(dirname "$(dirname "$torch")")/nvidia/nccl/lib
  export LD_LIBRARY_PATH=$PWD/$BUNDLE/lib:$torch:$nccl${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  while read -r test; do
    "$BUNDLE/bin/$test" || failed+=("$test")
  done <"$BUNDLE/gpu_tests.txt"
  LONGHAUL_TEST_GPUS=$("$python" -c 'import torch; print(torch.cuda.device_count())')
  export LONGHAUL_TEST_GPUS
  runs=("${RUNS[@]}")
  more=0
  if [ "$LONGHAUL_TEST_GPUS" -ge 2 ]; then
    runs+=("${RUNS_OF_TWO_GPUS[@]}")
    # As on machines whose GPUs have no direct links.
    NCCL_P2P_DISABLE=1 "$BUNDLE/bin/group_gpu_test" || failed+=("group_gpu_test without direct links")
    more=1
  else
    printf 'skipped, they need two GPUs: %s\n' "${RUNS_OF_TWO_GPUS[*]}"
  fi
  for run in "${runs[@]}"; do
    read -r script part <<<"$run"
    python3 -B "$BUNDLE/$TRAINING/$script" "$BUNDLE/bin" "$part" || failed+=("$run")
  done
  total=$(($(wc -l <"$BUNDLE/gpu_tests.txt") + 1 + more + ${#runs[@]}))
  printf '%d passed, %d failed%s\n' $((total - ${#failed[@]})) ${#failed[@]} "${failed[*]:+: ${failed[*]}}"
  [ ${#failed[@]} = 0 ]
fi
