#!/bin/sh
# Runs the commands of the guides' pages for FreeBSD as the pages have them, over the package as pkg(8) installs it.
#
# usage: guides.sh STAGED PAGE...
#
# STAGED is what tests/freebsd/stage makes; a PAGE is a script that tests/guides/run.py --extract has printed. The pages
# run in this order, on the same host. PKG in the environment is the pkg(8) to use. Needs root, the base system, pkg, and a
# host without Colibri MCP. It leaves the users and the state. Output is TAP 13; the blocks of all pages have one count.

set -u
umask 022
export PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin

staged=${1:?usage: guides.sh STAGED PAGE...}
shift
pkg=$(realpath "${PKG:?names the pkg(8) to use}")
[ "$(id -u)" = 0 ] || { echo "Bail out! needs root"; exit 1; }
[ "$(uname -s)" = FreeBSD ] || { echo "Bail out! needs FreeBSD"; exit 1; }
[ ! -e /usr/local/etc/colibri ] || { echo "Bail out! /usr/local/etc/colibri is there"; exit 1; }

tree=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d /var/tmp/colibri-guides.XXXXXX)
trap 'rm -rf "$work"' EXIT

. "$tree/tests/freebsd/pkg.sh"
. "$tree/tests/freebsd/root.sh"

# The pages call pkg(8) by its name.
install -d /usr/local/sbin
[ -e /usr/local/sbin/pkg ] || install "$pkg" /usr/local/sbin/pkg
mkdir "$work/repository"
create "$staged" -f tar || { echo "Bail out! no package is made"; exit 1; }
pkg add "$work/repository/colibri-mcp-$(version_of "$staged").pkg" || { echo "Bail out! it is not installed"; exit 1; }
pw usershow alice >/dev/null 2>&1 || pw useradd alice -m
# Where there is no network, a program of ours stands for the server that make-root.sh would bring.
root=/usr/local/libexec/colibri/roots/time
make_root "$root" /usr/local/bin/colibri-mcp
install -d "$root/usr/local/mcp/bin"
mv "$root/usr/local/bin/colibri-mcp" "$root/usr/local/mcp/bin/mcp-server-time"

mkdir "$work/here"
for page; do
	page=$(realpath "$page")
	(cd "$work/here" && sh "$page" </dev/null)
done >"$work/tap" 2>&1

# A page's own counts are left out; one that ended before its last block lacks some.
awk -v asked=$# '/^TAP version/ { next }
	/^1\.\./ { planned += substr($0, 4); pages++; next }
	/^not ok / { failed++ }
	/^(not )?ok [0-9]/ { sub(/ok [0-9]+/, "ok " ++number) }
	{ print }
	END {
		print "1.." planned
		exit failed > 0 || number != planned || pages != asked || !number
	}' "$work/tap"
