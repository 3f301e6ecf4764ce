#!/usr/bin/env bash
# Makes the files of a release out of a build, and prints how large they are: the portable bundle, a Debian package, a Python
# wheel, an inventory of all that they contain, checksums. The same build gives the same bytes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: deploy/release.sh [--build-dir D] [--out DIR]

  --build-dir D  where everything is built (default build/release): cmake --preset release && cmake --build --preset release
                 --target all torch_ops
  --out DIR      default: out/release-VERSION

A build with nvcc gives files for machines with and without GPUs. Images: deploy/images/build.sh --build-dir D [--cuda].
USAGE
}

build_dir=build/release
out=
while [ $# -gt 0 ]; do
  case "$1" in
    --build-dir | --out)
      [ $# -ge 2 ] || { echo "release: $1 needs a value" >&2; exit 2; }
      if [ "$1" = --out ]; then out=$2; else build_dir=$2; fi
      shift 2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "release: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
done
die() { printf 'release: %s\n' "$*" >&2; exit 1; }
command -v dpkg-deb >/dev/null || die "expected dpkg-deb, and found none; this needs Debian or Ubuntu"
[ -x "$build_dir/bin/longhaul" ] || die "expected $build_dir/bin/longhaul; build first (deploy/release.sh --help)"
[ -e "$build_dir/lib/liblonghaul_torch_ops.so" ] ||
  die "expected $build_dir/lib/liblonghaul_torch_ops.so, for the wheel; build the target torch_ops"

version=$("$build_dir/bin/longhaul" --version | awk '{ print $NF }')
wanted=$(sed -n 's/^project(longhaul VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
[ "$version" = "$wanted" ] || die "CMakeLists.txt has version $wanted, and $build_dir/bin/longhaul $version; build again"
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
out=${out:-out/release-$version}
mkdir -p "$out"
[ -z "$(ls -A "$out")" ] || die "expected an empty folder $out, so that its checksums are of this release alone"

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
deploy/bundle.sh --build-dir "$build_dir" --out "$out/longhaul-$version-x86_64.tar.gz" >/dev/null
rm "$out/longhaul-$version-x86_64.tar.gz.sha256" # SHA256SUMS has it
mkdir "$stage/bundle"
tar -xf "$out/longhaul-$version-x86_64.tar.gz" -C "$stage/bundle" --strip-components 1
python3 deploy/release/wheel.py --bundle "$stage/bundle" --out "$out" --epoch "$epoch" >/dev/null
deploy/release/deb.sh "$stage/bundle" "$out" "$epoch" >/dev/null
cp "$stage/bundle/sbom.cdx.json" "$out/longhaul-$version.cdx.json"
cp "$stage/bundle/THIRD_PARTY_NOTICES" "$out/"
(cd "$out" && sha256sum -- * >SHA256SUMS)
gpu=without
[ ! -e "$stage/bundle/lib/liblonghaul_cuda.so" ] || gpu=with
printf 'longhaul %s, %s GPU code, in %s:\n' "$version" $gpu "$out"
(cd "$out" && stat -c '%s %n' -- *) | awk '{ printf "  %8.1f MB  %s\n", $1 / 1e6, $2 }'
