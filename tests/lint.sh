#!/usr/bin/env bash
# Holds the sources against .clang-format and .clang-tidy. Exit codes: 0 clean, 1 not, 2 wrong usage,
# 77 nothing was checked because the tools are missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Another version formats differently, or has other checks. clang-format is Debian 12's; clang-tidy comes from PyPI,
# because Debian's walks through all system headers and takes twice as long.
readonly FORMAT_VERSION=14 TIDY_VERSION=23

usage() {
  cat <<USAGE
usage: tests/lint.sh [--all | --base REV | --format-only] [--jobs N]

  --base REV     clang-tidy over what differs from where this branch left REV, uncommitted and
                 untracked files included; REV is main if nothing is said
  --all          clang-tidy over every source file (about half an hour on two cores)
  --format-only  no clang-tidy
  --jobs N       so many at a time; default: one for every core

clang-format always checks every source file. clang-format must be of version $FORMAT_VERSION and clang-tidy of version
$TIDY_VERSION (deploy/setup.sh --dev brings both); what is missing checks nothing, and the exit code is 77.
USAGE
}

base=main
mode=changed
jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in
    --all) mode=all ;;
    --format-only) mode=format ;;
    --base | --jobs)
      [ $# -ge 2 ] || { echo "lint.sh: $1 needs a value" >&2; exit 2; }
      if [ "$1" = --base ]; then base=$2; else jobs=$2; fi
      shift
      ;;
    -h | --help) usage; exit 0 ;;
    *) echo "lint.sh: unknown option '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
case "$jobs" in
  '' | *[!0-9]* | 0) echo "lint.sh: --jobs: expected a number from 1, got '$jobs'" >&2; exit 2 ;;
esac

# tool NAME VERSION: the program NAME of this version.
tool() {
  local candidate
  for candidate in ".deps/venv/bin/$1" "$1-$2" "$1"; do
    if "$candidate" --version 2>/dev/null | grep -q "version $2\."; then
      echo "$candidate"
      return
    fi
  done
}

format=$(tool clang-format $FORMAT_VERSION)
if [ -z "$format" ]; then
  echo "lint: skipped, because there is no clang-format $FORMAT_VERSION here"
  exit 77
fi
# Untracked files too: they are about to be committed. Not every copy is a checkout.
list() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files --cached --others --exclude-standard -- '*.cc' '*.h' '*.cu' '*.cuh'
  else
    find base cli codec coordinator deploy planner programs proto python run tests transport worker -name '*.cc' -o -name '*.h' -o \
      -name '*.cu' -o -name '*.cuh'
  fi
}
mapfile -t sources < <(list | while read -r file; do if [ -e "$file" ]; then echo "$file"; fi; done)
[ ${#sources[@]} -gt 0 ] || { echo "lint: found no sources" >&2; exit 1; }
bad=0
printf '%s\0' "${sources[@]}" |
  xargs -0 -n 40 -P "$jobs" nice "$format" --dry-run -Werror || bad=1
echo "lint: clang-format looked at ${#sources[@]} files"
[ "$bad" = 0 ] || echo "lint: mend it with: $format -i FILE..." >&2
if [ "$mode" = format ]; then exit "$bad"; fi

tidy=$(tool clang-tidy $TIDY_VERSION)
if [ -z "$tidy" ]; then
  echo "lint: clang-tidy skipped, because there is no version $TIDY_VERSION here"
  [ "$bad" = 0 ] || exit 1
  exit 77
fi
if [ "$mode" = all ]; then
  mapfile -t files < <(printf '%s\n' "${sources[@]}" | grep '\.cc$') # headers come with them
else
  fork=$(git merge-base "$base" HEAD) ||
    { echo "lint.sh: --base: expected a revision with which this branch shares history, got '$base'" >&2; exit 2; }
  mapfile -t files < <(
    { git diff --name-only --diff-filter=d "$fork" -- '*.cc' '*.h'
      git ls-files --others --exclude-standard -- '*.cc' '*.h'; } |
      # A header is read as its includers' command says: by one of them, if there is any.
      while read -r file; do
        includer=
        case "$file" in *.h) includer=$(git grep -l -F "#include \"$file\"" -- '*.cc' | head -n 1 || true) ;; esac
        echo "${includer:-$file}"
      done | sort -u)
fi
if [ ${#files[@]} -gt 0 ]; then
  # Most of the time goes into headers of libraries. So --all looks at the units into which the build joins a
  # target's sources, where it reads those headers once. Two things are weaker there than file by file:
  # misc-unused-using-decls sees no joined source, and the static analyzer follows calls less deeply.
  unity=OFF
  extra=()
  if [ "$mode" = all ]; then
    unity=ON
    extra=("--header-filter=$(sed -n "s/^HeaderFilterRegex: '\(.*\)h\$'/\1(h|cc)$/p" .clang-tidy)"
      --extra-arg={-Wno-deprecated-declarations,-Xclang,-analyzer-opt-analyze-headers,-Xclang,-analyzer-config,-Xclang,mode=shallow})
  fi
  # The compile commands, and the headers that protoc writes.
  cmake --preset release -B build/lint -DLONGHAUL_UNITY=$unity >/dev/null
  cmake --build build/lint --target longhaul_messages longhaul_services >/dev/null
  mkdir -p build/lint/tidy
  printf '%s\n' "${files[@]}" >build/lint/tidy/files
  python3 tests/support/tidy_commands.py build/lint build/lint/tidy <build/lint/tidy/files >build/lint/tidy/inputs
  mapfile -t inputs <build/lint/tidy/inputs
  # check_all CHECKS: reads names of sources. The count of suppressed warnings (system headers) says nothing.
  check_all() {
    tr '\n' '\0' | xargs -0 -r -n 1 -P "$jobs" nice "$tidy" -p build/lint/tidy --quiet "--checks=$1" "${extra[@]}" \
      2> >(grep -v -E '^[0-9]+ warnings? generated\.$|^Suppressed |^Use -header-filter' >&2)
  }
  # suspicious-include: a unit includes sources. The static analyzer takes more than half of the time; it follows the
  # product's code, not that of tests.
  in_tests="^($PWD/build/lint/)?tests/"
  { grep -v -E "$in_tests" build/lint/tidy/inputs || true; } | check_all -bugprone-suspicious-include || bad=1
  { grep -E "$in_tests" build/lint/tidy/inputs || true; } |
    check_all "-bugprone-suspicious-include,-clang-analyzer-*" || bad=1
fi
echo "lint: clang-tidy looked at ${#files[@]} files"
exit "$bad"
