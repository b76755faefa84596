#!/usr/bin/env bash
# Builds a Debian package of rota with dpkg-deb: the binary, the units and the examples
# of deploy/systemd, and completion for bash.
#
#   deploy/debian/build.sh [ROTA [FOLDER]]
#
# ROTA is the static binary (bin/rota), which has rota-init, the first process of containers, beside it; the package is written into FOLDER (bin) and
# its name is printed. The package enables and starts nothing: a server or an agent needs
# its /etc/rota/server.env or agent.env first. An upgrade restarts no process, so that an
# operator can restart one server after the other.
set -euo pipefail
cd "$(dirname "$0")/../.."

rota=$(realpath "${1:-bin/rota}")
out=${2:-bin}
# What comes after a tag is newer than it, what is to become one is older.
version=$("$rota" version | awk 'NR == 2 { print $1 }' | sed -E 's/^v//; s/-([0-9]+)-g([0-9a-f]+)/+\1.g\2/; s/(\+[^-]*)-dirty$/\1+dirty/; s/-dirty$/+0.dirty/; s/-/~/g')
# Without a tag, it is what "git describe" knows: a hash, which says nothing of the order.
if [[ ! $version =~ ^[0-9]+\.[0-9] ]]; then
	version=0+$(date -u -d "@${SOURCE_DATE_EPOCH:-$(stat -c %Y "$rota")}" +%Y%m%d%H%M%S).$version
fi
arch=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
umask 022
chmod 0755 "$root"

install -D -m 0755 "$rota" "$root/usr/bin/rota"
install -D -m 0755 "$(dirname "$rota")/rota-init" "$root/usr/bin/rota-init"
for unit in server agent; do
	install -D -m 0644 "deploy/systemd/rota-$unit.service" "$root/usr/lib/systemd/system/rota-$unit.service"
	sed -i 's|/usr/local/bin/rota|/usr/bin/rota|' "$root/usr/lib/systemd/system/rota-$unit.service"
	install -D -m 0644 "deploy/systemd/$unit.env.example" "$root/usr/share/doc/rota/examples/$unit.env"
done
install -D -m 0644 LICENSE "$root/usr/share/doc/rota/copyright"
install -D -m 0644 deploy/systemd/README.md "$root/usr/share/doc/rota/README.md"
install -d "$root/usr/share/bash-completion/completions" "$root/DEBIAN"
"$rota" completion bash > "$root/usr/share/bash-completion/completions/rota"
install -d -m 0750 "$root/etc/rota"

cat > "$root/DEBIAN/control" <<EOF
Package: rota
Version: $version
Architecture: $arch
Maintainer: rota <rota@localhost>
Installed-Size: $(du -sk "$root/usr" | cut -f1)
Depends: adduser
Section: admin
Priority: optional
Description: Replicated scheduling service for clusters of reinforcement learning
 Servers replicate every decision, agents on the machines carry them out. The package
 has the server, the agent, the gateway and the command line, in one binary.
EOF

cat > "$root/DEBIAN/postinst" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
	adduser --system --group --quiet --home /var/lib/rota --no-create-home rota
	chgrp rota /etc/rota
	if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
fi
EOF
cat > "$root/DEBIAN/prerm" <<'EOF'
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
	systemctl disable --now rota-server rota-agent 2> /dev/null || true
fi
EOF
chmod 0755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm"

file=$out/rota_${version}_$arch.deb
dpkg-deb --root-owner-group --build "$root" "$file" > /dev/null
echo "$file"
