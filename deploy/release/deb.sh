#!/usr/bin/env bash
# Makes a Debian package of an unpacked bundle: the bundle in /usr/lib/longhaul, its programs in /usr/bin, units of systemd.
#
# usage: deb.sh BUNDLE_DIR OUT_DIR EPOCH
set -euo pipefail
bundle=$1 out=$2
export SOURCE_DATE_EPOCH=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["version"])' "$bundle/MANIFEST.json")
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
place=/usr/lib/longhaul

mkdir -p "$tree/DEBIAN" "$tree$place" "$tree/usr/bin" "$tree/usr/lib/systemd/system" "$tree/etc/longhaul" \
  "$tree/usr/share/doc/longhaul"
cp -R "$bundle/." "$tree$place/"
for program in "$bundle"/bin/*; do ln -s "../lib/longhaul/bin/$(basename "$program")" "$tree/usr/bin/"; done
for unit in "$bundle"/share/systemd/*; do
  sed -e "s|@BUNDLE@|$place|g" -e "s|@TORCH@|$place/python/torch|g" "$unit" >"$tree/usr/lib/systemd/system/$(basename "$unit")"
done
for daemon in coordinator worker; do
  key=$([ $daemon = coordinator ] && echo listen || echo coordinator)
  printf '# Flags of longhaul-%s, without their dashes (longhaul-%s --help).\n%s: 127.0.0.1:7070\n' $daemon $daemon "$key" \
    >"$tree/etc/longhaul/$daemon.yaml"
  echo "/etc/longhaul/$daemon.yaml" >>"$tree/DEBIAN/conffiles"
done
cat "$bundle/NOTICE" "$bundle/THIRD_PARTY_NOTICES" >"$tree/usr/share/doc/longhaul/copyright"
cp "$here/debian/README.Debian" "$tree/usr/share/doc/longhaul/"
for script in postinst prerm postrm; do install -m 755 "$here/debian/$script" "$tree/DEBIAN/$script"; done
size=$(du -sk --exclude=DEBIAN "$tree" | cut -f1)
sed -e "s/@VERSION@/$version/" -e "s/@SIZE@/$size/" "$here/debian/control" >"$tree/DEBIAN/control"
find "$tree" -type d -exec chmod 755 {} +
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb --root-owner-group -Zzstd -z10 --build "$tree" "$out/longhaul_${version}_amd64.deb" >/dev/null
echo "$out/longhaul_${version}_amd64.deb"
