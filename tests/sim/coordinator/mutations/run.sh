#!/usr/bin/env bash
# Shows that the simulation finds bugs: makes each mutation of the state machine (*.patch beside this
# file, its first line says what it breaks) in a copy of the tree, builds only coordinator-sim
# there, and expects a violation within 5,000 seeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../../.."
mutations=$PWD/tests/sim/coordinator/mutations
seeds=${SEEDS:-5000}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$copy"
ln -s "$(readlink -f .deps)" "$copy/.deps"
cd "$copy"
cmake --preset release "$@" >cmake.log 2>&1 ||
  { cat cmake.log >&2; exit 2; }

missed=0
for patch in "$mutations"/*.patch; do
  name=$(basename "$patch" .patch)
  patch --quiet -p1 <"$patch"
  cmake --build --preset release --parallel "${JOBS:-$(nproc)}" --target coordinator-sim >build.log 2>&1 ||
    { cat build.log >&2; exit 2; }
  if build/release/bin/coordinator-sim --count "$seeds" >out.log 2>&1; then
    echo "NOT CAUGHT  $name: $(head -n 1 "$patch")"
    missed=$((missed + 1))
  else
    echo "caught      $name: $(head -n 1 "$patch")"
    grep -E '^seed |check failed|^in the simulation' out.log | cut -c 1-200 | sed 's/^/            /'
  fi
  patch --quiet --reverse -p1 <"$patch"
done
[ "$missed" = 0 ]
