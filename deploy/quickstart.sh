#!/usr/bin/env bash
# From a fresh checkout to a comparison: sets the machine up, builds, starts four workers on slow
# links, trains the same small model without and with compression, and prints what it brought.
# Leaves nothing running.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: deploy/quickstart.sh [options]

  --text FILE     train on this text (default: the licence texts of this machine)
  --rate RATE     of every worker's link, each way (default 10mbit)
  --steps N       steps of both runs (default 64)
  --skip-setup    do not run deploy/setup.sh
  --skip-build    use the programs in build/release (or --build-dir) as they are
  --build-dir D   where the programs are built (default build/release)

Needs root or sudo, for network namespaces and link rates. After set-up and build it takes about
three minutes on two cores. Results are kept in out/quickstart/.
USAGE
}

text=
rate=10mbit
steps=64
skip_setup=0
skip_build=0
build_dir=build/release
# Seconds that each part has taken, "skipped" where it was left out. As root the script goes on with those of
# its first half (--spent).
setup_time=skipped
build_time=skipped
while [ $# -gt 0 ]; do
  case "$1" in
    --text | --rate | --steps | --build-dir | --spent)
      [ $# -ge 2 ] || { echo "quickstart: $1 needs a value" >&2; exit 2; }
      case "$1" in
        --text) text=$2 ;;
        --rate) rate=$2 ;;
        --steps) steps=$2 ;;
        --build-dir) build_dir=$2 ;;
        --spent) read -r setup_time build_time <<<"$2" ;;
      esac
      shift 2 ;;
    --skip-setup) skip_setup=1; shift ;;
    --skip-build) skip_build=1; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "quickstart: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
done

# Steps between which speed and bytes are taken: after the first ones, before the first validation.
readonly first_step=2 last_step=7
readonly cluster=quickstart
readonly out=out/quickstart

say() { printf '\n== %s\n' "$*" >&2; }
die() { printf 'quickstart: %s\n' "$*" >&2; exit 1; }

case "$steps" in
  '' | *[!0-9]*) die "--steps: expected a number, got '$steps'" ;;
esac
[ "$steps" -ge 16 ] || die "--steps: expected at least 16, got $steps"
if [ -n "$text" ]; then
  [ -r "$text" ] || die "cannot read the text '$text'"
  text=$(realpath "$text")
fi

# Before minutes of building, not after them.
if [ "$(id -u)" = 0 ]; then
  unshare --mount --net true 2>/dev/null ||
    die "this root has no rights for network namespaces; in a container, start it with docker run --privileged"
else
  command -v sudo >/dev/null ||
    die "needs root or sudo, for network namespaces (tests/run.sh needs neither: it skips the tests that do)"
fi

if [ "$skip_setup" = 0 ]; then
  say "1/5 packages and LibTorch"
  began=$SECONDS
  deploy/setup.sh >&2
  setup_time=$((SECONDS - began))
fi

if [ "$skip_build" = 0 ]; then
  say "2/5 building the programs in $build_dir"
  began=$SECONDS
  cmake --preset release -B "$build_dir" >/dev/null
  ninja -C "$build_dir" -j "$(nproc)" longhaul longhaul-coordinator longhaul-worker >&2
  build_time=$((SECONDS - began))
fi
longhaul=$(realpath -m "$build_dir/bin/longhaul")
[ -x "$longhaul" ] || die "$longhaul is not there; leave --skip-build out"

if [ "$(id -u)" != 0 ]; then
  again=(--rate "$rate" --steps "$steps" --build-dir "$build_dir" --skip-setup --skip-build
    --spent "$setup_time $build_time")
  [ -z "$text" ] || again+=(--text "$text")
  say "going on as root, for network namespaces (sudo)"
  exec sudo "$PWD/deploy/quickstart.sh" "${again[@]}"
fi

# Whatever happens from here on, the cluster goes.
children=()
clean_up() {
  trap '' INT TERM
  [ ${#children[@]} = 0 ] || kill "${children[@]}" 2>/dev/null || true
  "$longhaul" cluster down --name "$cluster" >/dev/null || true
  [ -z "${SUDO_UID:-}" ] || [ ! -d out ] || chown -R "$SUDO_UID:${SUDO_GID:-}" out
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

runs_began=$SECONDS
say "3/5 four workers on links of $rate"
"$longhaul" cluster down --name "$cluster" >/dev/null
# Its standard output says what to do next with the cluster: not here.
"$longhaul" cluster up --name "$cluster" --workers 4 --rate "$rate" >/dev/null
mapfile -t access < <("$longhaul" cluster status --name "$cluster" --json |
  python3 deploy/quickstart_report.py access)
[ "${#access[@]}" = 4 ] || die "the cluster has no coordinator"

rm -rf "$out"
mkdir -p "$out"
overrides=(--set "train.steps=$steps")
texts=(/usr/share/common-licenses/*-[0-9]*)
if [ -n "$text" ]; then
  overrides+=(--set "data.text=['$text']")
  texts=("$text")
fi

# train LABEL [--set KEY=VALUE]...: one run, watched to its end. The measurement goes on beside it.
train() {
  local label=$1 id measuring watching
  shift
  id=$("$longhaul" submit "${access[@]}" deploy/runs/quickstart.yaml "${overrides[@]}" \
    --set "name=quickstart-$label" "$@")
  {
    python3 deploy/quickstart_report.py measure --program "$longhaul" --cluster "$cluster" \
      --run "$id" --first "$first_step" --last "$last_step" --out "$out/$label.bytes.json"
    if [ "$label" = none ]; then
      "$longhaul" cluster link all --name "$cluster" --rate unlimited
    fi
  } &
  measuring=$!
  # Beside the script, so that a signal ends the script at once and not after the run.
  "$longhaul" watch "$id" "${access[@]}" &
  watching=$!
  children=("$measuring" "$watching")
  wait "$watching"
  wait "$measuring" || die "the run ended before its speed could be measured"
  children=()
  "$longhaul" steps "$id" "${access[@]}" --json >"$out/$label.steps.jsonl"
}

say "4/5 training with codec none: steps 1 to $last_step on links of $rate for its speed, the rest with the links' rate lifted for its loss"
train none --set links.forward=none --set links.backward=none
"$longhaul" cluster link all --name "$cluster" --rate "$rate"
say "5/5 training with the codecs that the plan chooses for links of $rate"
train default

# "12 s", or that it was skipped.
took() { [ "$1" = skipped ] && echo skipped || echo "$1 s"; }
print_times() {
  local runs=$((SECONDS - runs_began))
  printf '  Time: set-up %s, build %s, runs %s s; %s s in all\n' "$(took "$setup_time")" "$(took "$build_time")" \
    "$runs" "$((${setup_time/skipped/0} + ${build_time/skipped/0} + runs))"
}

good=0
python3 deploy/quickstart_report.py table --folder "$out" --rate "$rate" \
  --first "$first_step" --last "$last_step" --run deploy/runs/quickstart.yaml -- "${texts[@]}" |
  tee "$out/report.txt" || good=$?
print_times | tee -a "$out/report.txt"
exit "$good"
