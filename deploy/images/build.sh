#!/usr/bin/env bash
# Builds the images with podman and prints how large they are and what they consist of.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
  cat <<'USAGE'
usage: deploy/images/build.sh [--base IMAGE] [--build-dir D [--torch DIR]] [--cuda] [--prefix P]

  --base IMAGE   what to build on (default docker.io/library/debian:12; deploy/images/base.sh makes one
                 where no registry is reached)
  --build-dir D  take the programs that are built there (cmake --preset release), as a bundle, instead
                 of building them in the image
  --torch DIR    take LibTorch's CPU part from this folder of torch instead of PyPI
  --cuda         the worker with torch's CUDA libraries and GPU code
  --prefix P     of the images' names (default localhost/longhaul-)
USAGE
}

base=docker.io/library/debian:12
build_dir=
torch=
cuda=0
prefix=localhost/longhaul-
while [ $# -gt 0 ]; do
  case "$1" in
    --base | --build-dir | --torch | --prefix)
      [ $# -ge 2 ] || { echo "build.sh: $1 needs a value" >&2; exit 2; }
      case "$1" in
        --base) base=$2 ;;
        --build-dir) build_dir=$2 ;;
        --torch) torch=$2 ;;
        --prefix) prefix=$2 ;;
      esac
      shift 2 ;;
    --cuda) cuda=1; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "build.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
done
command -v podman >/dev/null || { echo "build.sh: podman is not installed (apt-get install podman)" >&2; exit 1; }

context=.
arguments=(--build-arg "BASE=$base" --build-arg "CUDA=$cuda")
if [ -n "$build_dir" ]; then
  # A context of the bundle alone, so that nothing is built again.
  context=$(mktemp -d)
  trap 'rm -rf "$context"' EXIT
  mkdir "$context/deploy"
  cp -R deploy/Containerfile deploy/images "$context/deploy/"
  deploy/bundle.sh --build-dir "$build_dir" --out "$context/bundle.tar.gz"
  # Nothing here is worth a cache, which would stay on the disk.
  arguments+=(--build-arg BUNDLE=bundle.tar.gz --layers=false)
  if [ -n "$torch" ]; then
    # With what lies beside it: the libraries that torch itself looks for there.
    site=$(dirname "$torch")
    LD_LIBRARY_PATH=$torch/lib ldd "$build_dir/bin/longhaul-worker" |
      awk -v site="$site/" 'index($3, site) == 1 { print substr($3, length(site) + 1) }' |
      while read -r library; do
        mkdir -p "$context/site/$(dirname "$library")"
        cp -L "$site/$library" "$context/site/$library"
      done
    for package in "$site"/torch-*.dist-info "$site"/nvidia_*.dist-info; do
      [ ! -d "$package/licenses" ] || { mkdir -p "$context/site/$(basename "$package")" && cp -R "$package/licenses" "$context/site/$(basename "$package")/"; }
    done
    arguments+=(--build-arg TORCH=site/torch)
  fi
fi

for target in coordinator worker; do
  # chroot: works in a container, too, and where user namespaces are not allowed.
  podman build --quiet --isolation chroot --network host --format docker "${arguments[@]}" --target "$target" \
    --tag "$prefix$target" --file "$context/deploy/Containerfile" "$context" >/dev/null
done
for target in coordinator worker; do
  image=$prefix$target
  podman image inspect --format '{{.Size}}' "$image" |
    awk -v image="$image" '{ printf "%s: %.1f MB\n", image, $1 / 1e6 }'
  [ "$(id -u)" = 0 ] || continue # what it consists of: podman mounts images for root alone
  mounted=$(podman image mount "$image")
  for part in opt/torch opt/nvidia opt/longhaul/lib opt/longhaul/bin opt/longhaul/libexec \
    opt/longhaul/licences usr var etc lib lib64; do
    [ -d "$mounted/$part" ] && [ ! -L "$mounted/$part" ] || continue
    du -sb "$mounted/$part" | awk -v part="/$part" '$1 >= 1e4 { printf "  %8.1f MB  %s\n", $1 / 1e6, part }'
  done
  podman image unmount "$image" >/dev/null
done
