#!/bin/sh
# Walks through the life of the package on a host that has none of it: pkg-create(8) of the predecessor and of this one,
# installation, the manual's first steps, upgrade, deinstallation, all by pkg(8) itself.
#
# usage: package.sh OLD NEW [BASE.TXZ]
#
# OLD and NEW are what tests/freebsd/stage makes, of two versions. BASE.TXZ is the base system of this release, for
# make-root.sh; without it the steps that need a root are skipped. PKG in the environment is the pkg(8) to use.
# Needs root, the base system, pkg, and a host without Colibri MCP. It leaves the user alice, the logs, and the archive
# of the trail in /var/db/colibri-trail. Output is TAP 13, each check with what it saw.

set -u
umask 022
export PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin

old=${1:?usage: package.sh OLD NEW [BASE.TXZ]}
new=${2:?usage: package.sh OLD NEW [BASE.TXZ]}
base=${3:-}
pkg=${PKG:-pkg}
[ "$(id -u)" = 0 ] || { echo "Bail out! needs root"; exit 1; }
[ "$(uname -s)" = FreeBSD ] || { echo "Bail out! needs FreeBSD"; exit 1; }
[ ! -e /usr/local/etc/colibri ] || { echo "Bail out! /usr/local/etc/colibri is there"; exit 1; }
for dir in "$old" "$new"; do
	[ -r "$dir/meta/+MANIFEST" ] || { echo "Bail out! nothing is staged in $dir"; exit 1; }
done

tree=$(cd "$(dirname "$0")/../.." && pwd)
root=/usr/local/libexec/colibri/roots/demo
helper=/usr/local/libexec/colibri-jail-helper
work=$(mktemp -d /var/tmp/colibri-package.XXXXXX)
trap 'rm -rf "$work"' EXIT

. "$tree/tests/freebsd/tap.sh"
. "$tree/tests/freebsd/pkg.sh"

echo "TAP version 13"
echo "# $(uname -srm) $(uname -K) $(uname -U)"

echo "# packages"
pw usershow alice >/dev/null 2>&1 || pw useradd alice -m
before=$(version_of "$old")
after=$(version_of "$new")
mkdir "$work/repository" "$work/repos"
for dir in "$old" "$new"; do
	out=$(create "$dir")
	report $? "pkg create $(version_of "$dir")" "$out"
done
out=$("$pkg" info -R -F "$work/repository/colibri-mcp-$after.pkg" 2>&1)
report $? "pkg reads it" "$(echo "$out" | grep -E '^(name|version|abi|flatsize|users|groups|licenses)')"

echo "# the predecessor, as it is used"
out=$("$pkg" add "$work/repository/colibri-mcp-$before.pkg" 2>&1)
report $? "pkg add colibri-mcp-$before" "$out"
has "users are those of port/UIDs" "uid=748(colibri) gid=748(colibri)" "$(id colibri 2>&1)"
out=$(sysrc colibri_mcp_enable=YES 2>&1 && service colibri_mcp start 2>&1)
report $? "service colibri_mcp start, with the samples alone" "$out"
cat >/usr/local/etc/colibri/jail-policy.json <<-END
	{ "caller": "colibri", "servers": [], "users": {} }
	END
daemon_before=$(pgrep -x colibri-mcpd)

echo "# upgrade"
out=$("$pkg" repo "$work/repository" 2>&1)
report $? "pkg repo" "$out"
echo "here: { url: \"file://$work/repository\", enabled: yes }" >"$work/repos/here.conf"
out=$("$pkg" -o "REPOS_DIR=$work/repos" upgrade -y 2>&1)
report $? "pkg upgrade" "$out"
has "it says what to do" "service colibri_mcp restart" "$out"
is "this version is installed" "$after" "$("$pkg" query %v colibri-mcp)"
out=$("$pkg" check -s colibri-mcp 2>&1)
report $? "pkg check -s" "$out"
is "the service was not touched" "$daemon_before" "$(pgrep -x colibri-mcpd)"
is "nor the changed policy" '{ "caller": "colibri", "servers": [], "users": {} }' \
	"$(cat /usr/local/etc/colibri/jail-policy.json)"
is "owners and modes are those of the design" "$demanded" "$(owners)"
is "of the predecessor's files none is left" "" \
	"$("$pkg" query -F "$work/repository/colibri-mcp-$before.pkg" %Fp | while read -r path; do
		[ ! -e "$path" ] || "$pkg" which -q "$path" >/dev/null || echo "$path"
	done)"
out=$(service colibri_mcp restart 2>&1)
report $? "service colibri_mcp restart" "$out"
out=$("$pkg" -o "REPOS_DIR=$work/repos" upgrade -y 2>&1)
has "nothing is left to upgrade" "up to date" "$out"

echo "# getting started 1: start it, read-only"
out=$(pw groupmod mcpusers -m alice 2>&1)
report $? "pw groupmod mcpusers -m alice" "$out"
out=$(alice colibri-mcp status)
report $? "alice: colibri-mcp status" "$out"
is "both gates are closed" "write closed external-call closed" \
	"$(echo "$out" | sed -n 's/^\(.*\) gate  *\([a-z]*\).*/\1 \2/p' | tr '\n' ' ' | sed 's/ $//')"
out=$(alice colibri-mcp status)
report $? "alice: colibri-mcp status" "$out"
for editor in zed cursor windsurf claude-code; do
	out=$(alice colibri-mcp connect $editor --yes)
	report $? "alice: colibri-mcp connect $editor" "$out"
	out=$(alice colibri-mcp connect $editor --remove --yes)
	report $? "alice: colibri-mcp connect $editor --remove" "$out"
done
is "alice: colibri-mcp doctor finds nothing bad" "" "$(alice colibri-mcp --json doctor 2>&1 | amiss)"
is "colibri-mcp doctor --root finds nothing bad" "" "$(colibri-mcp --json doctor --root 2>&1 | amiss)"

if [ -z "$base" ]; then
	skip "getting started 2 to 4" "no base.txz was named"
else
	echo "# getting started 2: a root"
	out=$(sh /usr/local/libexec/colibri/make-root.sh -b "$base" "$root" 2>&1)
	report $? "make-root.sh -b base.txz $root" "$out"
	is "dev and tmp of the root" "root 755 root 1777" \
		"$(for point in dev tmp; do echo "$(stat -f %Su "$root/$point") $(printf %o $((0$(stat -f %p "$root/$point") & 07777)))"; done | tr '\n' ' ' | sed 's/ $//')"
	is "no mount and no jail is left of it" "" "$(mount -p | grep "$root")$(jls name | grep make-root)"
	install -m 555 /usr/local/bin/colibri-mcp "$root/usr/local/bin/colibri-mcp" 2>/dev/null ||
		{ mkdir -p "$root/usr/local/bin" && install -m 555 /usr/local/bin/colibri-mcp "$root/usr/local/bin/colibri-mcp"; }

	echo "# getting started 3 and 4: what you want, what root allows; check, open the gate, go"
	cat >/usr/local/etc/colibri/external-mcp.json <<-END
	{ "servers": {
	  "demo": {
	    "command": "/usr/local/bin/colibri-mcp", "args": ["demo-server", "--notes", "/tmp"],
	    "jail": { "path": "$root" } } } }
	END
	cat >/usr/local/etc/colibri/jail-policy.json <<-END
	{ "caller": "colibri",
	  "servers": ["demo"],
	  "ephemeral": ["$root"],
	  "users": { "demo": { "uid": 60801, "gid": 60801 } },
	  "limits": { "processes": 64 } }
	END
	out=$("$helper" check 2>&1)
	is "colibri-jail-helper check" "demo: good" "$out"
	sysrc colibri_mcp_external_call=YES >/dev/null
	out=$(service colibri_mcp configtest 2>&1)
	report $? "service colibri_mcp configtest" "$out"
	out=$(service colibri_mcp restart 2>&1)
	report $? "service colibri_mcp restart" "$out"
	out=$(alice colibri-mcp status)
	report $? "alice: colibri-mcp status" "$out"
	for _ in $(jot 20); do
		out=$(alice colibri-mcp tools demo)
		case "$out" in *echo*) break ;; esac
		sleep 1
	done
	has "alice: colibri-mcp tools demo" echo "$out"
	out=$(alice colibri-mcp call demo echo text=from-a-jail)
	has "alice: colibri-mcp call demo echo" from-a-jail "$out"
	has "it runs in a jail" "colibri-" "$(jls)"
	"$helper" stop --all
	colibri-mcp demo >"$work/demo" 2>&1 &
	until_true 120 eval '[ -n "$(jls name)" ] || ! kill -0 $! 2>/dev/null'
	has "the demo runs its server in a jail" "colibri-" "$(jls name)"
	wait $!
	report $? "colibri-mcp demo, as root" "$(cat "$work/demo")"
	is "colibri-mcp doctor --root finds nothing bad" "" "$(colibri-mcp --json doctor --root 2>&1 | amiss)"
fi

echo "# logs"
size_of() {
	stat -f %z "$1" 2>/dev/null || echo 0
}
out=$(newsyslog -CN 2>&1 && service syslogd reload 2>&1)
report $? "newsyslog -CN && service syslogd reload" "$out"
log=/var/log/colibri-mcp.log
size=$(size_of $log)
grew() { [ "$(size_of $log)" -gt "$size" ]; }
out=$(service colibri_mcp reload 2>&1)
report $? "service colibri_mcp reload, with the daemon that was there before" "$out"
"$helper" sweep
until_true 20 grew
report $? "the daemon's log has a file of its own, in which it says so" "$(tail -5 $log 2>&1)"
until_true 20 test -s /var/log/colibri-audit.log
has "so has the audit log" "event=" "$(tail -5 /var/log/colibri-audit.log 2>&1)"
has "newsyslog knows both" "colibri-audit" "$(newsyslog -nv 2>&1 | grep colibri)"
service colibri_mcp restart >/dev/null 2>&1
cat >/etc/periodic.conf.port <<-'END'
	daily_colibri_trail_enable="YES"
	daily_colibri_trail_logs="/var/log/colibri-mcp.log"
	daily_colibri_trail_archive="/var/db/colibri-trail"
	END
[ -e /etc/periodic.conf ] || { mv /etc/periodic.conf.port /etc/periodic.conf; made_periodic=yes; }
out=$(sh /usr/local/etc/periodic/daily/490.colibri-trail 2>&1)
report $? "periodic(8): the trail verifies, and is archived" "$out"
has "it verifies against heads in the log" "promise *witnessed" "$out"
[ "${made_periodic:-}" = yes ] && rm -f /etc/periodic.conf
rm -f /etc/periodic.conf.port

echo "# deinstall"
out=$("$pkg" delete -y colibri-mcp 2>&1)
report $? "pkg delete" "$out"
has "it says what remains" "$(sed -n '/type: remove/,/^EOM/p' "$tree/port/files/pkg-message.in" | sed -n 3p)" "$out"
is "no daemon is left" "" "$(pgrep -lf colibri-mcpd)"
is "no jail, dying ones included, and no mount is left" "" "$(jls -d name)$(mount -p | grep colibri)"
is "of the files, changed configuration alone is left" \
	"$([ -z "$base" ] || printf '%s ' /usr/local/etc/colibri/external-mcp.json)/usr/local/etc/colibri/jail-policy.json " \
	"$(find /usr/local -type f ! -path "$root/*" | grep -i colibri | sort | tr '\n' ' ')"
is "the state is left" "colibri colibri 750" "$(stat -f '%Su %Sg %Lp' /var/db/colibri)"

echo "# what the message at removal says"
out=$( (rm -rf /var/db/colibri /usr/local/etc/colibri
	pw userdel colibri; pw groupdel mcpusers
	[ ! -e /usr/local/libexec/colibri ] ||
		{ chflags -R noschg /usr/local/libexec/colibri && rm -r /usr/local/libexec/colibri; }) 2>&1)
is "it works as written" "" "$out"
is "nothing of the name is left" "" "$(find /usr/local /var/db -iname '*colibri*' ! -name colibri-trail 2>/dev/null | tr '\n' ' ')$(pw usershow colibri 2>/dev/null)"
sysrc -x colibri_mcp_enable colibri_mcp_external_call >/dev/null 2>&1

echo "1..$number"
exit $((failed > 0))
