#!/bin/sh
# Networks that cannot be set up are a failure of longhaul-relay-bench ($1), and no reason to be
# skipped; only rights that are missing are.
set -eu
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
printf '#!/bin/sh\necho "no such thing" >&2\nexit 1\n' >"$tools/ip"
chmod +x "$tools/ip"
code=0
output=$(PATH="$tools:$PATH" "$1" --pairs 1 --seconds 0.1 2>&1) || code=$?
echo "$output"
case "$code:$output" in
  1:*"no such thing"*) ;;
  77:*"a local cluster needs more"* | 77:*"packet sockets"*) exit 77 ;;
  *) echo "expected the failure of 'ip' and exit status 1, got $code" >&2; exit 1 ;;
esac
