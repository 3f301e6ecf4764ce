#!/bin/sh
# In the first stage of deploy/Containerfile: what goes into the images, to /parts/coordinator and
# /parts/worker.
set -eu
bundle=$1 cuda=$2 torch=$3
cd /src
say() { printf 'parts: %s\n' "$*"; }

if [ "$bundle" = none ]; then
  say "building"
  apt-get update -qq
  toolkit=
  [ "$cuda" = 0 ] || toolkit=--cuda-toolkit
  deploy/setup.sh $toolkit
  cmake --preset release
  cmake --build --preset release --target longhaul longhaul-coordinator longhaul-worker longhaul-codec \
    longhaul-generate
  [ "$cuda" = 0 ] || cmake --build --preset release --target longhaul_cuda longhaul_torch_cuda
  bundle=out/bundle.tar.gz
  deploy/bundle.sh --out "$bundle"
  # The build has brought LibTorch; its CPU part is the same.
  [ "$torch" != none ] || [ "$cuda" != 0 ] || torch=$(echo .deps/venv/lib/python3*/site-packages/torch)
fi
mkdir -p /parts/bundle
tar -xf "$bundle" --strip-components 1 -C /parts/bundle

# Everything that the given programs open: the libraries of the bundle are beside them already.
libraries() { ldd "$@" | awk '$2 == "=>" && $3 ~ "^/" { print $3 } $1 ~ "^/.*ld-linux" { print $1 }' | sort -u; }

say "coordinator"
root=/parts/coordinator
mkdir -p $root/opt/longhaul/bin $root/opt/longhaul/lib $root/etc $root/tmp $root/var/lib/longhaul $root/var/lib/longhaul-join
chmod 1777 $root/tmp
# A new volume takes this mode: whoever the coordinator runs as begins a folder of its own there.
chown 1000:1000 $root/var/lib/longhaul $root/var/lib/longhaul-join
chmod 1777 $root/var/lib/longhaul
for program in longhaul longhaul-coordinator; do
  cp "/parts/bundle/bin/$program" $root/opt/longhaul/bin/
  libraries "/parts/bundle/bin/$program"
done | sort -u | while read -r library; do
  case "$library" in
    /parts/bundle/*) cp "$library" $root/opt/longhaul/lib/ ;;
    *) mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library" ;;
  esac
done
for part in licences MANIFEST.json LICENSE NOTICE THIRD_PARTY_NOTICES sbom.cdx.json; do
  cp -R "/parts/bundle/$part" $root/opt/longhaul/
done
# The run time of C and C++, which an image from scratch needs besides and a bundle does not carry.
for package in libc6 libstdc++6 libgcc-s1; do
  cp -L "/usr/share/doc/$package/copyright" "$root/opt/longhaul/licences/$package"
  printf '%s %s\n    in this image alone: licences/%s\n' "$package" "$(dpkg-query -W -f='${Version}' $package)" $package
done >>$root/opt/longhaul/THIRD_PARTY_NOTICES
printf 'root:x:0:0::/:\nlonghaul:x:1000:1000::/var/lib/longhaul:\n' >$root/etc/passwd
printf 'root:x:0:\nlonghaul:x:1000:\n' >$root/etc/group
printf 'hosts: files dns\n' >$root/etc/nsswitch.conf

say "worker"
root=/parts/worker
mkdir -p $root/opt/torch $root/opt/longhaul
cp -R /parts/bundle/. $root/opt/longhaul/
rm -f $root/opt/longhaul/share/pip.whl
mkdir -p $root/opt/longhaul/images
cp deploy/images/worker-entry deploy/images/worker-health $root/opt/longhaul/images/
if [ "$torch" = none ]; then
  command -v python3 >/dev/null || { apt-get update -qq && apt-get install -qq -y --no-install-recommends python3 >/dev/null; }
  set -- "torch==2.11.0"
  [ "$cuda" != 0 ] || set -- --no-deps "$@" "nvidia-cuda-runtime==13.0.*" "nvidia-cuda-cupti==13.0.*"
  python3 /parts/bundle/share/pip.whl/pip --disable-pip-version-check --no-input -q install \
    --root-user-action=ignore --no-compile --no-cache-dir --target /parts/python "$@"
  torch=/parts/python/torch
else
  torch=/src/$torch
fi
if [ "$cuda" = 0 ]; then
  # The CPU part alone: what the worker opens of torch and of what lies beside it.
  LD_LIBRARY_PATH=$torch/lib ldd /parts/bundle/libexec/longhaul-worker >/parts/opened
  ! grep "not found" /parts/opened >&2 || { say "$torch lacks what longhaul-worker needs (above)" >&2; exit 1; }
  awk -v beside="$(dirname "$torch")/" 'index($3, beside) == 1 { print $3 }' /parts/opened | sort -u |
    while read -r library; do
      mkdir -p $root/opt/torch/lib
      cp -L "$library" $root/opt/torch/lib/
    done
else
  cp -R "$torch"/. $root/opt/torch/
  [ ! -d "$(dirname "$torch")/nvidia" ] || cp -R "$(dirname "$torch")/nvidia" $root/opt/
fi
# Licences of the packages.
for package in "$(dirname "$torch")"/torch-*.dist-info "$(dirname "$torch")"/nvidia_*.dist-info; do
  [ -d "$package/licenses" ] || continue
  mkdir -p "$root/opt/longhaul/licences/$(basename "$package" .dist-info)"
  cp -R "$package/licenses/." "$root/opt/longhaul/licences/$(basename "$package" .dist-info)/"
done
