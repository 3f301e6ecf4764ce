#!/usr/bin/env bash
# Shows that the simulations find bugs: makes each mutation (*.patch beside this file, its first line says
# what it breaks) in a copy of the tree, builds only the simulation that has to catch it there, and expects a
# violation within SEEDS seeds. The first line names that simulation, as in "[lead-sim] The witness ..."; without
# a name it is coordinator-sim, and [pair] is its part with two coordinators. [lead_space_test] has no seeds: it
# searches a space whole. A mutation is caught when a checker says so, not when the simulation ends in another
# way: by a signal, an exception or the time limit. Prints a table. Fails where a mutation is not caught, or does
# not apply or build any more.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: tests/sim/coordinator/mutations/run.sh [MUTATION...] [-- CMAKE_ARGUMENT...]

  MUTATION  names of patches without .patch; none: all
  SEEDS=N   environment: how many seeds may pass before a mutation counts as not caught (5000; lead-sim: 10 N)
  JOBS=N    environment: processes side by side (all cores)
  SCRATCH=F environment: make the copy in this folder and keep it, so that the next time builds little
  LIMIT=N   environment: seconds that the simulation of a mutation may take (1800)
USAGE
}

cd "$(dirname "${BASH_SOURCE[0]}")/../../../.."
mutations=$PWD/tests/sim/coordinator/mutations
seeds=${SEEDS:-5000}
jobs=${JOBS:-$(nproc)}
names=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --) shift; break ;;
    -*) echo "run.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
    *)
      [ -e "$mutations/$1.patch" ] || { echo "run.sh: there is no mutation '$1' in $mutations" >&2; exit 2; }
      names+=("$1") ;;
  esac
  shift
done
if [ ${#names[@]} = 0 ]; then
  for patch in "$mutations"/*.patch; do names+=("$(basename "$patch" .patch)"); done
fi

if [ -n "${SCRATCH:-}" ]; then
  mkdir -p "$SCRATCH"
  copy=$(readlink -f "$SCRATCH")
else
  copy=$(mktemp -d)
  trap 'rm -rf "$copy"' EXIT
fi
# Only what differs, also from what a mutation left: the build goes by times.
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  cmp -s "$file" "$copy/$file" || cp --parents --no-dereference "$file" -t "$copy"
done
ln -sfn "$(readlink -f .deps)" "$copy/.deps"
cd "$copy"

stale=0
for name in "${names[@]}"; do
  patch --dry-run --silent -p1 <"$mutations/$name.patch" >stale.log && continue
  stale=$((stale + 1))
  echo "run.sh: mutation $name does not apply any more; make it anew from the code as it is:" >&2
  sed 's/^/  /' stale.log >&2
done
[ "$stale" = 0 ] || exit 2

# The simulation that has to catch a mutation.
level() {
  local named
  named=$(sed -nE '1s/^\[([a-z_-]+)\] .*/\1/p' "$mutations/$1.patch")
  echo "${named:-coordinator-sim}"
}
# The program of a simulation.
program() {
  if [ "$1" = pair ]; then echo coordinator-sim; else echo "$1"; fi
}
build() { # WHAT SIMULATION
  cmake --build --preset release --parallel "$jobs" --target "$(program "$2")" >build.log 2>&1 && return
  tail -n 40 build.log >&2
  echo "run.sh: $1 does not build" >&2
  return 1
}
# The exit code of a simulation when a checker has found a violation, and the code of one that does not build.
readonly violation=3 unbuilt=build
sim() { # SIMULATION SEEDS
  local arguments=(--count "$2" --jobs "$jobs")
  [ "$1" != pair ] || arguments+=(--only pair)
  [ "$1" != lead_space_test ] || arguments=(--gtest_fail_fast)
  timeout "${LIMIT:-1800}" "build/release/bin/$(program "$1")" "${arguments[@]}" >out.log 2>&1 && return
  local code=$?
  # A test program has no exit code of its own for a violation.
  if [ "$1" = lead_space_test ] && [ "$code" = 1 ]; then return "$violation"; else return "$code"; fi
}
# What the checkers said, or a check of the state machine itself; nothing where neither did.
finding() {
  grep -E '^seed [0-9]+: |check failed|^ +Which is: "' out.log | head -n 1 |
    sed -E 's/^seed [0-9]+: |^ +Which is: //' | cut -c 1-120 || true
}

# Each file by itself: a mutation touches one of them.
cmake --preset release -DLONGHAUL_UNITY=OFF "$@" >cmake.log 2>&1 || { cat cmake.log >&2; exit 2; }
for one in $(for name in "${names[@]}"; do level "$name"; done | sort -u); do
  build "the tree without a mutation" "$one" || exit 2
  sim "$one" 200 || { tail -n 3 out.log >&2; echo "run.sh: $one finds a violation without any mutation" >&2; exit 2; }
done

missed=0
printf '%-40s %-15s %8s %8s  %s\n' mutation simulation seed seconds what
for name in "${names[@]}"; do
  patch --quiet -p1 <"$mutations/$name.patch"
  level=$(level "$name")
  begin=$(date +%s.%N)
  code=0
  : >out.log
  # A simulation of seats alone takes a hundredth of the time of one of the whole coordinator.
  [ "$level" = lead-sim ] && most=$((10 * seeds)) || most=$seeds
  if build "mutation $name" "$level"; then
    begin=$(date +%s.%N)
    sim "$level" "$most" || code=$?
  else
    code="$unbuilt"
  fi
  what=$(finding)
  if [ "$code" = "$violation" ] && [ -n "$what" ]; then
    seed=$(sed -nE 's/^(in the simulation of )?seed ([0-9]+).*/\2/p' out.log | head -n 1)
    [ "$level" != lead_space_test ] || seed=-
  else
    seed=MISSED
    missed=$((missed + 1))
    what=$(head -n 1 "$mutations/$name.patch")
    case "$code" in
      0) ;;
      "$unbuilt") what="it does not build; make it anew from the code as it is: $what" ;;
      *) what="the simulation ended with code $code, and no checker said why: $what" ;;
    esac
  fi
  seconds=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f", b - a }')
  printf '%-40s %-15s %8s %8s  %s\n' "$name" "$level" "${seed:-?}" "$seconds" "$what"
  patch --quiet --reverse -p1 <"$mutations/$name.patch"
done
[ "$missed" = 0 ] || echo "run.sh: $missed mutations were not caught within $seeds seeds; the simulation lost its sight of them" >&2
[ "$missed" = 0 ]
