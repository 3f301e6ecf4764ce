#!/usr/bin/env bash
# Makes the portable bundle of a build: one archive that runs on any x86-64 Linux with glibc 2.34 or
# newer. The same build gives the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: deploy/bundle.sh [--build-dir D] [--out FILE.tar.gz]

  --build-dir D   where the programs are built (default build/release)
  --out FILE      the archive (default out/longhaul-VERSION-x86_64.tar.gz); its checksum goes to
                  FILE.sha256
USAGE
}

build_dir=build/release
out=
while [ $# -gt 0 ]; do
  case "$1" in
    --build-dir | --out)
      [ $# -ge 2 ] || { echo "bundle: $1 needs a value" >&2; exit 2; }
      if [ "$1" = --out ]; then out=$2; else build_dir=$2; fi
      shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "bundle: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
done
for program in longhaul longhaul-coordinator longhaul-worker longhaul-codec longhaul-generate; do
  [ -x "$build_dir/bin/$program" ] || {
    echo "bundle: expected $build_dir/bin/$program; build first: cmake --preset release && cmake --build build/release" >&2
    exit 1
  }
done

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
DESTDIR='' cmake --install "$build_dir" --prefix "$stage/tree" --strip >/dev/null
version=$("$build_dir/bin/longhaul" --version | awk '{print $NF}')
name=longhaul-$version-x86_64
out=${out:-out/$name.tar.gz}
mkdir -p "$(dirname "$out")"
epoch=$(git log -1 --format=%ct 2>/dev/null || echo 0)
python3 deploy/bundle/collect.py --build "$build_dir" --tree "$stage/tree" --name "$name" --version "$version" \
  --epoch "${SOURCE_DATE_EPOCH:-$epoch}" --out "$out"
