#!/usr/bin/env bash
# Starts a worker for each GPU of this machine, or one on the CPU where there is no GPU, and ends with them. SIGTERM goes
# on to all of them.
#
#   LONGHAUL_COORDINATOR  host:port; of a coordinator with a standby both, with a comma between
#   LONGHAUL_TOKEN_FILE   file with a join token for workers; or LONGHAUL_TOKEN, the token itself
#   LONGHAUL_BUNDLE       archive of longhaul, a path or an https address, where longhaul-worker is not on PATH
#   LONGHAUL_STATE        folder for identities and checkpoints; default: $HOME/longhaul
#   LONGHAUL_NAME         what workers are called, and -N behind it for GPU N; default: the host's name
#   LONGHAUL_SPOT         aws, gcp, azure or auto: workers also end when that cloud takes this machine back (spot_notice.py)
#
# Further arguments are flags of longhaul-worker.
set -euo pipefail

die() { printf 'worker.sh: %s\n' "$*" >&2; exit 1; }

[ -n "${LONGHAUL_COORDINATOR:-}" ] || die "expected the coordinator's host:port in LONGHAUL_COORDINATOR"
state=${LONGHAUL_STATE:-$HOME/longhaul}
name=${LONGHAUL_NAME:-$(hostname)}
mkdir -p "$state"

if ! command -v longhaul-worker >/dev/null; then
  [ -n "${LONGHAUL_BUNDLE:-}" ] || die "expected longhaul-worker on PATH, or an archive of longhaul in LONGHAUL_BUNDLE"
  mkdir -p "$state/programs"
  case "$LONGHAUL_BUNDLE" in
    https://*) curl -fsSL "$LONGHAUL_BUNDLE" | tar -xz -C "$state/programs" --strip-components 1 ;;
    *) tar -xf "$LONGHAUL_BUNDLE" -C "$state/programs" --strip-components 1 ;;
  esac
  "$state/programs/install"
  PATH=$state/programs/bin:$PATH
fi

token=${LONGHAUL_TOKEN_FILE:-}
if [ -z "$token" ]; then
  [ -n "${LONGHAUL_TOKEN:-}" ] || die "expected a join token in LONGHAUL_TOKEN, or the file of one in LONGHAUL_TOKEN_FILE"
  token=$state/token
  (umask 077 && printf '%s\n' "$LONGHAUL_TOKEN" >"$token")
fi
unset LONGHAUL_TOKEN # no program that starts here needs it

gpus=()
if command -v nvidia-smi >/dev/null; then mapfile -t gpus < <(nvidia-smi -L 2>/dev/null | grep -o '^GPU [0-9]*' | tr -dc '0-9\n'); fi

workers=()
start() { # NAME DEVICE FLAGS...
  longhaul-worker --coordinator "$LONGHAUL_COORDINATOR" --token-file "$token" --state-dir "$state/$1" --name "$1" \
    --device "$2" "${@:3}" &
  workers+=($!)
}
if [ ${#gpus[@]} -eq 0 ]; then
  start "$name" cpu "$@"
else
  for gpu in "${gpus[@]}"; do start "$name-$gpu" "cuda:$gpu" "$@"; done
fi
watcher=
trap 'kill -TERM "${workers[@]}" ${watcher:+"$watcher"} 2>/dev/null || true' TERM INT
if [ -n "${LONGHAUL_SPOT:-}" ]; then
  "$(dirname "$0")/spot_notice.py" --cloud "$LONGHAUL_SPOT" kill -TERM "${workers[@]}" &
  watcher=$!
fi

# A signal ends `wait`, not what it waits for.
status=0
for worker in "${workers[@]}"; do
  until wait "$worker" || ! kill -0 "$worker" 2>/dev/null; do :; done
  wait "$worker" || status=$?
done
[ -z "$watcher" ] || kill -TERM "$watcher" 2>/dev/null || true
exit "$status"
