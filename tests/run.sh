#!/usr/bin/env bash
# Sets up, builds everything, runs all tests. What a test needs and this machine lacks (rights for
# network namespaces, a GPU) makes ctest skip it by name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# In the order in which they run.
readonly PARTS=(lint release asan-ubsan tsan fuzz mutations quiet)

usage() {
  cat <<'USAGE'
usage: tests/run.sh [--full | --only PART...] [--fuzz-seconds N] [--skip-setup]

Without --full: clang-format, a release build, and its tests but those of the labels `full`, `bench` and `quiet`.
With it, these parts:

  lint        clang-format and clang-tidy over all sources
  release     a release build of everything and all of its tests: also images, a compose cluster (where
              podman and podman-compose are), and the bundle between two systems
  asan-ubsan  unit and multiprocess tests under AddressSanitizer and UndefinedBehaviorSanitizer
  tsan        unit tests under ThreadSanitizer
  fuzz        every fuzzer for 60 seconds or 10,000,000 inputs, a planted defect first
  mutations   defects planted in the coordinator, each of which its simulation must catch
  quiet       limits of time as they are promised, one test after the other: a group that ends, a standby that takes
              over, steps beside their prediction, 50 kills of workers. Other work on the machine makes them fail

  --only PART...  these parts of --full. The table at the end shows what the others did last, and on which commit
  --fuzz-seconds N  how long each fuzzer runs, instead of 60 s; it ends before after 10,000,000 inputs
  --skip-setup    do not run deploy/setup.sh first

A test that this machine cannot run is skipped by name. With LONGHAUL_REQUIRE_ROOT=1 (root, network namespaces) or
LONGHAUL_REQUIRE_GPU=1 in the environment it fails instead. LONGHAUL_TEST_SEED=N repeats the random faults of another run.
USAGE
}

full=0
setup=1
fuzz_seconds=60
wanted=()
while [ $# -gt 0 ]; do
  case "$1" in
    --full) full=1; wanted=("${PARTS[@]}") ;;
    --only)
      full=1
      while [ $# -gt 1 ] && [[ $2 != -* ]]; do
        [[ " ${PARTS[*]} " == *" $2 "* ]] ||
          { echo "run.sh: --only: expected one of ${PARTS[*]}, got '$2'" >&2; exit 2; }
        wanted+=("$2")
        shift
      done
      [ ${#wanted[@]} -gt 0 ] || { echo "run.sh: --only: expected parts: ${PARTS[*]}" >&2; exit 2; } ;;
    --fuzz-seconds)
      fuzz_seconds=${2:-}
      [[ $fuzz_seconds =~ ^[1-9][0-9]*$ ]] ||
        { echo "run.sh: --fuzz-seconds: expected a number of seconds from 1, got '$fuzz_seconds'" >&2; exit 2; }
      shift ;;
    --skip-setup) setup=0 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "run.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
[ "$full" = 1 ] || wanted=(lint release)

# Counts of the part that runs.
passed=0
failed=0
skipped=0

# count STATUS: one test more, by its exit code.
count() {
  case "$1" in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
  esac
}

# build PRESET TARGETS...: a part returns where this fails, because `set -e` does not hold in a part.
build() {
  printf -- '-- building %s (%s s so far)\n' "$1" "$SECONDS"
  cmake --preset "$1" | grep -- '^-- CUDA: ' || true # whether GPU code is compiled, and why not
  cmake --build --preset "$1" --parallel "$(nproc)" --target "${@:2}"
}

# run_tests PRESET [ctest's arguments...]
run_tests() {
  local preset=$1 log status=0 at_once=$((6 * $(nproc))) junit=junit
  shift
  printf -- '-- testing %s (%s s so far)\n' "$preset" "$SECONDS"
  log=$(mktemp)
  # Six tests to a core, because most of them wait for processes and for links half of their time, and RESOURCE_LOCKs
  # hold those apart that fill the cores. The longest begin first (COST). How long each took is in junit.xml.
  # Under sanitizers they compute instead of waiting.
  [ "$preset" = release ] || at_once=$(nproc)
  [ "$part" != quiet ] || { at_once=1; junit=junit_quiet; }
  ctest --preset "$preset" --parallel "$at_once" --output-junit "$PWD/build/$preset/$junit.xml" "$@" 2>&1 | tee "$log" || status=$?
  # "97% tests passed, 2 tests failed out of 66"
  local counts
  counts=$(sed -n 's/.*tests passed, \([0-9]*\) tests failed out of \([0-9]*\).*/\1 \2/p' "$log" | tail -n 1)
  local bad=${counts% *} all=${counts#* } not_run
  not_run=$(grep -c '\*\*\*Skipped' "$log" || true)
  rm -f "$log"
  [ -n "$counts" ] || { bad=1; all=1; }
  [ "$status" = 0 ] || [ "$bad" != 0 ] || { bad=1; all=$((all + 1)); }
  passed=$((passed + all - bad - not_run))
  failed=$((failed + bad))
  skipped=$((skipped + not_run))
}

part_lint() {
  local status=0
  if [ "$full" = 1 ]; then tests/lint.sh --all || status=$?; else tests/lint.sh --format-only || status=$?; fi
  count "$status"
}

part_release() {
  if [ "$full" = 1 ]; then
    build release all full || return
    run_tests release --label-exclude quiet
  else
    build release all || return
    run_tests release --label-exclude 'full|bench|quiet'
  fi
}

# gRPC, LibTorch and UCX are not instrumented: tests/support/*.supp name what is theirs.
# allocator_may_return_null: torch_scope_test asks for more memory than there is, to see the refusal.
readonly ASAN=detect_leaks=1:allocator_may_return_null=1
readonly LSAN=suppressions=$PWD/tests/support/lsan.supp

part_asan-ubsan() {
  local -x ASAN_OPTIONS=$ASAN LSAN_OPTIONS=$LSAN
  build asan-ubsan all full || return
  run_tests asan-ubsan --label-regex 'unit|multiprocess' \
    --exclude-regex '^(faults_(clock_steps|hung|repeated)_test|upgrade_test|abuse_(strangers|slow|links|insiders)_test|abuse_ports_.*)$' # another library first; must stay small
}

# UCX patches libc's mmap when it is loaded, which ThreadSanitizer does not survive. gRPC is not built for it, so
# its hand-overs look like races; so do those of whole daemons, which talk by gRPC.
part_tsan() {
  local -x TSAN_OPTIONS=suppressions=$PWD/tests/support/tsan.supp:history_size=4:allocator_may_return_null=1
  local -x UCX_MEM_EVENTS=n
  build tsan tsan_tests || return
  run_tests tsan --label-regex tsan --label-exclude full
}

# fuzz_for SECONDS PROGRAM CORPUS: with the kept seeds and words of CORPUS; what is found on the way goes into
# build/fuzz/corpus.
fuzz_for() {
  local words=tests/fuzz/dictionaries/$3.dict arguments=("build/fuzz/corpus/$3")
  [ ! -d "tests/fuzz/corpus/$3" ] || arguments+=("tests/fuzz/corpus/$3")
  mkdir -p "build/fuzz/corpus/$3"
  [ ! -e "$words" ] || arguments+=("-dict=$words")
  "build/fuzz/bin/$2" -max_total_time="$1" -runs=10000000 -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
    -artifact_prefix=build/fuzz/ "${arguments[@]}"
}

part_fuzz() {
  local -x ASAN_OPTIONS=$ASAN LSAN_OPTIONS=$LSAN
  build fuzz fuzzers || return
  # A planted defect. Where a fuzzer does not find that, it finds no other.
  if fuzz_for 60 fuzz_canary canary >build/fuzz/canary.log 2>&1 ||
    ! grep -q 'heap-buffer-overflow.*canary' build/fuzz/canary.log; then
    tail -n 20 build/fuzz/canary.log
    echo "run.sh: expected the fuzzer to find the canary's defect within 60 s; it found none or another one"
    count 1
  else
    count 0
  fi
  # One to a core. Each leaves its log and its exit code.
  local fuzzer name status running=0
  for fuzzer in build/fuzz/bin/*_fuzz; do
    name=$(basename "$fuzzer")
    (
      status=0
      fuzz_for "$fuzz_seconds" "$name" "${name%_fuzz}" >"build/fuzz/$name.log" 2>&1 || status=$?
      echo "$status" >"build/fuzz/$name.status"
    ) &
    running=$((running + 1))
    if [ "$running" -ge "$(nproc)" ]; then wait -n; running=$((running - 1)); fi
  done
  wait
  for fuzzer in build/fuzz/bin/*_fuzz; do
    name=$(basename "$fuzzer")
    status=$(cat "build/fuzz/$name.status")
    count "$status"
    echo "$name: exit code $status, $(grep -o 'stat::number_of_executed_units.*' "build/fuzz/$name.log" || true)"
    [ "$status" = 0 ] || tail -n 40 "build/fuzz/$name.log"
  done
}

part_mutations() {
  local status=0
  tests/sim/coordinator/mutations/run.sh || status=$?
  count "$status"
}

part_quiet() {
  build release all full || return
  run_tests release --label-regex quiet
}

if [ "$setup" = 1 ]; then
  if [ "$full" = 1 ]; then deploy/setup.sh --data --test --dev; else deploy/setup.sh --data --test; fi
fi
mkdir -p build/parts
commit=$(git describe --always --dirty 2>/dev/null || echo "no checkout")
[ "$full" = 1 ] || rm -f build/parts/*
all_passed=0 all_failed=0 all_skipped=0
for part in "${wanted[@]}"; do
  printf '\n== %s (%s s so far)\n' "$part" "$SECONDS"
  began=$SECONDS passed=0 failed=0 skipped=0
  # A part that cannot be built fails, and the next one runs.
  "part_$part" || count 1
  all_passed=$((all_passed + passed)) all_failed=$((all_failed + failed)) all_skipped=$((all_skipped + skipped))
  printf '%-12s %6d s  %4d passed, %d failed, %d skipped  (%s)\n' "$part" $((SECONDS - began)) "$passed" "$failed" \
    "$skipped" "$commit" >"build/parts/$part"
done

printf '\n== done in %s s\n' "$SECONDS"
echo "Why a test was skipped stands in build/*/Testing/Temporary/LastTest.log."
for part in "${PARTS[@]}"; do
  [ ! -e "build/parts/$part" ] || cat "build/parts/$part"
done | tee build/test_run.txt
printf '%d passed, %d failed, %d skipped\n' "$all_passed" "$all_failed" "$all_skipped"
[ "$all_failed" = 0 ]
