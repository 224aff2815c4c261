#!/bin/sh
# Walks through the manual's first steps with what the port stages, on a host that has none of it: installs by pkg-plist
# as pkg(8) would, starts the service with the samples alone, builds a root, serves from it, and deinstalls.
#
# usage: port.sh STAGE [BASE.TXZ]
#
# STAGE is what the port's recipe stages; on Linux, over the stub that .ci/lint uses:
#   bmake -r -C port -m .ci/lint.d WRKSRC=$PWD STAGEDIR=STAGE WRKDIR=WORK BINARIES=DIRECTORY COMPLETER=CLIENT -s stage
# BASE.TXZ is the base system of this release, for make-root.sh; without it the steps that need a root are skipped.
# Needs root, the base system alone, and a host without Colibri MCP. It leaves the user alice, the logs, and the archive
# of the trail in /var/db/colibri-trail. Output is TAP 13, each check with what it saw.

set -u
umask 022
export PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin

stage=${1:?usage: port.sh STAGE [BASE.TXZ]}
base=${2:-}
[ "$(id -u)" = 0 ] || { echo "Bail out! needs root"; exit 1; }
[ "$(uname -s)" = FreeBSD ] || { echo "Bail out! needs FreeBSD"; exit 1; }
[ ! -e /usr/local/etc/colibri ] || { echo "Bail out! /usr/local/etc/colibri is there"; exit 1; }
[ -x "$stage/usr/local/sbin/colibri-mcpd" ] || { echo "Bail out! nothing is staged in $stage"; exit 1; }

tree=$(cd "$(dirname "$0")/../.." && pwd)
root=/usr/local/libexec/colibri/roots/demo
helper=/usr/local/libexec/colibri-jail-helper
work=$(mktemp -d /var/tmp/colibri-port.XXXXXX)
trap 'rm -rf "$work"' EXIT

. "$tree/tests/freebsd/tap.sh"

# plist: KIND PATH OWNER GROUP MODE of each line of pkg-plist, a dash where it says nothing.
plist() {
	{ echo etc/rc.d/colibri_mcp; sed 's|%%ETCDIR%%|etc/colibri|' "$tree/port/pkg-plist"; } |
		awk '{
			kind = "file"; owner = "root"; group = "wheel"; mode = "-"; path = $NF
			if (NF == 2) {
				keyword = $1
				if (match(keyword, /\(.*\)/)) {
					split(substr(keyword, RSTART + 1, RLENGTH - 2), part, ",")
					owner = part[1]; group = part[2]; if (part[3] != "") mode = part[3]
					keyword = substr(keyword, 1, RSTART - 1)
				}
				if (keyword != "@") kind = substr(keyword, 2)
			}
			if (path !~ /^\//) path = "/usr/local/" path
			print kind, path, owner, group, mode
		}'
}

# What pkg(8) does with the lines of pkg-plist: directories, files, samples.
install_package() {
	plist | while read -r kind path owner group mode; do
		case "$path" in */man/*.gz) gzip -k "$stage${path%.gz}" ;; esac
		[ "$mode" != - ] || mode=$(stat -f %Lp "$stage$path")
		case "$kind" in
		dir) install -d -o "$owner" -g "$group" -m "$mode" "$path" ;;
		file | sample)
			mkdir -p "$(dirname "$path")"
			install -o "$owner" -g "$group" -m "$mode" "$stage$path" "$path"
			[ "$kind" = file ] || [ -e "${path%.sample}" ] || cp -p "$path" "${path%.sample}"
			;;
		esac
	done
	for dir in doc examples; do
		mkdir -p /usr/local/share/$dir
		cp -R "$stage/usr/local/share/$dir/colibri" /usr/local/share/$dir/
	done
}

# What is there, in the form of plist, to be compared with it.
installed() {
	plist | while read -r kind path owner group mode; do
		[ "$mode" != - ] && mode=$(stat -f %OLp "$path") && mode=$(printf %o $((0$(stat -f %p "$path") & 07777)))
		echo "$kind $path $(stat -f '%Su %Sg' "$path") $mode"
	done
}

# As pkg(8) deinstalls: files; samples' copies that nobody changed; directories that are empty then.
deinstall_package() {
	sh "$tree/port/pkg-deinstall" colibri-mcp DEINSTALL
	echo "pkg-deinstall: $?"
	plist | while read -r kind path _; do
		case "$kind" in
		sample)
			! cmp -s "$path" "${path%.sample}" || rm -f "${path%.sample}"
			rm -f "$path"
			;;
		file) rm -f "$path" ;;
		esac
	done
	rm -rf /usr/local/share/doc/colibri /usr/local/share/examples/colibri
	plist | while read -r kind path _; do
		[ "$kind" != dir ] || rmdir "$path" 2>/dev/null
	done
}

alice() {
	su -l alice -c "$*" 2>&1
}

echo "TAP version 13"
echo "# $(uname -srm) $(uname -K) $(uname -U)"

echo "# install"
while IFS=: read -r name _ gid _; do
	pw groupshow "$name" >/dev/null 2>&1 || pw groupadd "$name" -g "$gid"
done <"$tree/port/GIDs"
while IFS=: read -r name _ uid gid _ _ _ comment home shell; do
	pw usershow "$name" >/dev/null 2>&1 || pw useradd "$name" -u "$uid" -g "$gid" -c "$comment" -d "$home" -s "$shell"
done <"$tree/port/UIDs"
pw usershow alice >/dev/null 2>&1 || pw useradd alice -m
report $? "users as in port/UIDs and port/GIDs" "$(id colibri; pw groupshow mcpusers)"
install_package
is "owners and modes are those of pkg-plist" "$(plist)" "$(installed)"
is "the samples' copies have them too" "root colibri 640 root wheel 600" \
	"$(stat -f '%Su %Sg %Lp' /usr/local/etc/colibri/external-mcp.json /usr/local/etc/colibri/jail-policy.json | tr '\n' ' ' | sed 's/ $//')"

echo "# getting started 1: start it, read-only"
out=$(pw groupmod mcpusers -m alice 2>&1 && sysrc colibri_mcp_enable=YES 2>&1)
report $? "pw groupmod mcpusers -m alice; sysrc colibri_mcp_enable=YES" "$out"
out=$(service colibri_mcp start 2>&1)
report $? "service colibri_mcp start, with the samples alone" "$out"
out=$(alice colibri-mcp status)
report $? "alice: colibri-mcp status" "$out"
is "both gates are closed" "write closed external-call closed" \
	"$(echo "$out" | sed -n 's/^\(.*\) gate  *\([a-z]*\).*/\1 \2/p' | tr '\n' ' ' | sed 's/ $//')"
out=$(alice colibri-mcp servers)
report $? "alice: colibri-mcp servers" "$out"
for editor in zed cursor windsurf claude-code; do
	out=$(alice colibri-mcp connect $editor)
	report $? "alice: colibri-mcp connect $editor" "$out"
done
out=$(alice colibri-mcp doctor)
report $? "alice: colibri-mcp doctor" "$out"
out=$(colibri-mcp doctor --root 2>&1)
report $? "colibri-mcp doctor --root finds nothing bad" "$out"

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
	out=$(alice colibri-mcp servers)
	report $? "alice: colibri-mcp servers" "$out"
	for _ in $(jot 20); do
		out=$(alice colibri-mcp tools demo)
		case "$out" in *echo*) break ;; esac
		sleep 1
	done
	has "alice: colibri-mcp tools demo" echo "$out"
	out=$(alice colibri-mcp call demo echo text=from-a-jail)
	has "alice: colibri-mcp call demo echo" from-a-jail "$out"
	has "it runs in a jail" "colibri-" "$(jls)"
	out=$(colibri-mcp demo 2>&1)
	report $? "colibri-mcp demo, as root" "$out"
	has "the demo ran its server in a jail" "in a jail, and every" "$(echo "$out" | grep '^2')"
	out=$(colibri-mcp doctor --root 2>&1)
	report $? "colibri-mcp doctor --root finds nothing bad" "$out"
fi

echo "# logs"
out=$(newsyslog -CN 2>&1 && service syslogd reload 2>&1)
report $? "newsyslog -CN && service syslogd reload" "$out"
out=$(service colibri_mcp reload 2>&1)
report $? "service colibri_mcp reload, with the daemon that was there before" "$out"
"$helper" sweep
until_true 20 test -s /var/log/colibri-mcp.log
has "the daemon's log has a file of its own" "registry reloaded" "$(tail -5 /var/log/colibri-mcp.log 2>&1)"
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
out=$(deinstall_package 2>&1)
has "pkg-deinstall" "pkg-deinstall: 0" "$out"
is "no daemon is left" "" "$(pgrep -lf colibri-mcpd)"
is "no jail, dying ones included, and no mount is left" "" "$(jls -d name)$(mount -p | grep colibri)"
is "of the files, changed configuration alone is left" \
	"$([ -z "$base" ] || printf '%s ' /usr/local/etc/colibri/external-mcp.json /usr/local/etc/colibri/jail-policy.json)" \
	"$(find /usr/local -type f ! -path "$root/*" | grep -i colibri | sort | tr '\n' ' ')"
is "the state is left" "colibri colibri 750" "$(stat -f '%Su %Sg %Lp' /var/db/colibri)"

echo "# what the message at removal says"
out=$( (rm -r /var/db/colibri /usr/local/etc/colibri
	pw userdel colibri; pw groupdel mcpusers
	[ ! -e /usr/local/libexec/colibri ] ||
		{ chflags -R noschg /usr/local/libexec/colibri && rm -r /usr/local/libexec/colibri; }) 2>&1)
is "it works as written" "" "$out"
is "nothing of the name is left" "" "$(find /usr/local /var/db -iname '*colibri*' ! -name colibri-trail 2>/dev/null | tr '\n' ' ')$(pw usershow colibri 2>/dev/null)"
sysrc -x colibri_mcp_enable colibri_mcp_external_call >/dev/null 2>&1

echo "1..$number"
exit $((failed > 0))
