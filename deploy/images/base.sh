#!/usr/bin/env bash
# A base image of Debian 12 for deploy/Containerfile where no registry is reached: from the
# distribution's archive. Needs root, podman and debootstrap.
#
# usage: deploy/images/base.sh [NAME]    (default localhost/debian:12)
set -euo pipefail
name=${1:-localhost/debian:12}
die() { printf 'base: %s\n' "$*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "debootstrap needs root"
for program in podman debootstrap; do
  command -v "$program" >/dev/null || die "$program is not installed (apt-get install $program)"
done
if podman image exists "$name"; then
  echo "base: $name is there"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
debootstrap --variant=minbase bookworm "$folder/root" >"$folder/log" 2>&1 ||
  { tail -n 5 "$folder/log" >&2; die "debootstrap failed"; }
rm -rf "$folder"/root/var/cache/apt/archives/*.deb "$folder"/root/var/lib/apt/lists/*
tar -C "$folder/root" -c . | podman import --quiet - "$name" >/dev/null
echo "base: $name, $(podman image inspect --format '{{.Size}}' "$name" | awk '{ printf "%.0f MB", $1 / 1e6 }')"
