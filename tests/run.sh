#!/usr/bin/env bash
# Sets up, builds everything, runs all tests. What a test needs and this machine lacks (rights for
# network namespaces, a GPU) makes ctest skip it by name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: tests/run.sh [--full] [--skip-setup]

  --full        also: clang-tidy over all sources, images and a compose cluster (where podman and
                podman-compose are), the bundle between two systems, unit and multiprocess tests under
                AddressSanitizer/UBSan, unit tests under ThreadSanitizer, and every fuzzer for 60 seconds
                (tests/fuzz), a planted defect first; and
                mutations of the coordinator, each of which its simulation must catch
  --skip-setup  do not run deploy/setup.sh first
USAGE
}

full=0
setup=1
for arg in "$@"; do
  case "$arg" in
    --full) full=1 ;;
    --skip-setup) setup=0 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "run.sh: unknown option '$arg'" >&2; usage >&2; exit 2 ;;
  esac
done

# Each part and its seconds. How long each test took is in build/*/junit.xml.
times=()
part=
part_began=0
# step PART: the part before it has ended.
step() {
  [ -z "$part" ] || times+=("$part" "$((SECONDS - part_began))")
  part=$1
  part_began=$SECONDS
  [ -z "$part" ] || printf '\n== %s (%s s so far)\n' "$part" "$SECONDS"
}

if [ "$setup" = 1 ]; then
  step "set up"
  if [ "$full" = 1 ]; then deploy/setup.sh --data --test --dev; else deploy/setup.sh --data --test; fi
fi

# build_and_test PRESET [ctest arguments...]
total=0
failed=0
skipped=0
build_and_test() {
  local preset=$1 log
  shift
  step "build: $preset"
  cmake --preset "$preset" | grep -- '^-- CUDA: ' # whether GPU code is compiled, and why not
  local targets=(all)
  [ "$full" = 0 ] || targets+=(full)
  cmake --build --preset "$preset" --parallel "$(nproc)" --target "${targets[@]}"
  step "test: $preset"
  log=$(mktemp)
  local status=0
  # Two tests to a core: most of them wait half of their time for processes and for links. Those that do not
  # count as two (PROCESSORS), and the longest begin first (COST).
  ctest --preset "$preset" --parallel "$((2 * $(nproc)))" --output-junit "$PWD/build/$preset/junit.xml" "$@" 2>&1 | tee "$log" || status=$?
  # "97% tests passed, 2 tests failed out of 66"
  local counts
  counts=$(sed -n 's/.*tests passed, \([0-9]*\) tests failed out of \([0-9]*\).*/\1 \2/p' "$log" | tail -n 1)
  local bad=${counts% *} all=${counts#* } not_run
  not_run=$(grep -c '\*\*\*Skipped' "$log" || true)
  rm -f "$log"
  [ -n "$counts" ] || { bad=1; all=1; }
  [ "$status" = 0 ] || [ "$bad" != 0 ] || bad=1
  total=$((total + all))
  failed=$((failed + bad))
  skipped=$((skipped + not_run))
}

# lint [tests/lint.sh's arguments...]: counts as one test.
lint() {
  step "lint"
  total=$((total + 1))
  local status=0
  tests/lint.sh "$@" || status=$?
  case "$status" in
    0) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
  esac
}

if [ "$full" = 1 ]; then
  lint --all
  build_and_test release
else
  lint --format-only
  build_and_test release --label-exclude full
fi

if [ "$full" = 1 ]; then
  # gRPC, LibTorch and UCX are not instrumented: tests/support/*.supp name what is theirs.
  # allocator_may_return_null: torch_scope_test asks for more memory than there is, to see the refusal.
  export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
  export LSAN_OPTIONS=suppressions=$PWD/tests/support/lsan.supp
  export TSAN_OPTIONS=suppressions=$PWD/tests/support/tsan.supp:history_size=4:allocator_may_return_null=1
  # Not with another library loaded first, nor where a process must stay small.
  build_and_test asan-ubsan --label-regex 'unit|multiprocess' \
    --exclude-regex '^(faults_clock_steps_test|abuse_test)$'
  # UCX patches libc's mmap when it is loaded, which ThreadSanitizer does not survive.
  export UCX_MEM_EVENTS=n
  # gRPC is not built for it, so its hand-overs look like races; so do those of whole daemons, which
  # talk by gRPC.
  build_and_test tsan --label-regex unit --label-exclude grpc
  step "fuzz"
  cmake --preset fuzz >/dev/null
  cmake --build --preset fuzz --parallel "$(nproc)" --target fuzzers
  # fuzz_for SECONDS PROGRAM CORPUS [libFuzzer's arguments...]: with the kept seeds and words of CORPUS;
  # what is found on the way goes into build/fuzz/corpus.
  fuzz_for() {
    local seconds=$1 program=$2 corpus=$3
    shift 3
    local words=tests/fuzz/dictionaries/$corpus.dict seeds=()
    [ ! -d "tests/fuzz/corpus/$corpus" ] || seeds=("tests/fuzz/corpus/$corpus")
    mkdir -p "build/fuzz/corpus/$corpus"
    [ ! -e "$words" ] || set -- "$@" "-dict=$words"
    "build/fuzz/bin/$program" -max_total_time="$seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
      -artifact_prefix=build/fuzz/ "$@" "build/fuzz/corpus/$corpus" "${seeds[@]}"
  }
  # A planted defect. Where a fuzzer does not find that, it finds no other.
  total=$((total + 1))
  if fuzz_for 60 fuzz_canary canary >build/fuzz/canary.log 2>&1 ||
    ! grep -q 'heap-buffer-overflow.*canary' build/fuzz/canary.log; then
    tail -n 20 build/fuzz/canary.log
    echo "run.sh: expected the fuzzer to find the canary's defect within 60 s; it found none or another one"
    failed=$((failed + 1))
  fi
  for fuzzer in build/fuzz/bin/*_fuzz; do
    total=$((total + 1))
    name=$(basename "$fuzzer")
    fuzz_for 60 "$name" "${name%_fuzz}" || failed=$((failed + 1))
  done
fi

if [ "$full" = 1 ]; then
  step "mutations"
  total=$((total + 1))
  tests/sim/coordinator/mutations/run.sh || failed=$((failed + 1))
fi

step ""
printf '\n== done\n'
[ "$skipped" = 0 ] || echo "Why a test was skipped stands in build/*/Testing/Temporary/LastTest.log."
{
  printf '%-28s %6d s\n' "${times[@]}" "in all" "$SECONDS"
  printf '%d passed, %d failed, %d skipped\n' $((total - failed - skipped)) "$failed" "$skipped"
} | tee build/test_run.txt
[ "$failed" = 0 ]
