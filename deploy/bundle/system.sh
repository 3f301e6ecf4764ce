# What this machine has, as the bundle's scripts ask for it. Sourced; $bundle is its folder.

die() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

torch_wanted=2.11

check_machine() {
  [ "$(uname -m)" = x86_64 ] || die "expected an x86-64 machine, got $(uname -m); there is no bundle for it"
  glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //') || glibc=
  case "$glibc" in
    2.*) [ "${glibc#2.}" -ge 34 ] 2>/dev/null ||
      die "expected glibc 2.34 or newer (Ubuntu 22.04, Debian 12), got $glibc; use a newer system or a container of one" ;;
    *) die "expected glibc 2.34 or newer, and this system's C library is another one" ;;
  esac
}

# The folder of torch $torch_wanted in Python $1's packages, or nothing. Without importing it.
torch_of() {
  "$1" - "$torch_wanted" <<'PYTHON' 2>/dev/null || true
import importlib.util, os, re, sys
spec = importlib.util.find_spec("torch")
if spec and spec.submodule_search_locations:
    folder = list(spec.submodule_search_locations)[0]
    text = open(os.path.join(folder, "version.py")).read()
    version = re.search(r"__version__ = '([^']*)'", text).group(1)
    if version.startswith(sys.argv[1] + ".") and os.path.exists(folder + "/lib/libtorch_cpu.so"):
        print(folder)
PYTHON
}

# Sets $torch to the folder of a fitting LibTorch, or to nothing: what LONGHAUL_TORCH names, what
# `install` has fetched, what the Pythons here have.
find_torch() {
  torch=${LONGHAUL_TORCH:-}
  if [ -n "$torch" ]; then
    [ -e "$torch/lib/libtorch_cpu.so" ] ||
      die "LONGHAUL_TORCH=$torch: expected the folder of torch $torch_wanted in a Python's packages; there is no lib/libtorch_cpu.so in it"
    return
  fi
  if [ -e "$bundle/python/torch/lib/libtorch_cpu.so" ]; then
    torch=$bundle/python/torch
    return
  fi
  for python in ${LONGHAUL_PYTHON:-} python3 /usr/bin/python3 /usr/local/bin/python3 /opt/conda/bin/python3; do
    command -v "$python" >/dev/null 2>&1 || continue
    torch=$(torch_of "$python")
    [ -z "$torch" ] || return 0
  done
}
