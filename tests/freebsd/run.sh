#!/bin/sh
# Proves on a FreeBSD kernel what only it can show: jails, mounts, devfs, teardown, resource rules, privilege.
#
# usage: run.sh [--live] BINDIR [SECTION…]
#
# BINDIR holds the built binaries: colibri-jail-helper, colibri-mcpd, colibri-mcp, chibi-mcp-bridge, and inmate, the
# server of the tests; and, if they are to be tried, too, the library's example tools, and linux/inmate, made for Linux.
# Needs root and the base system alone, and uses /usr/local/bin/git if there is one; changes /usr/local/etc/colibri, the
# installed binaries, the rc script and its rc.conf.d(5) file, and puts back what was there. Output is TAP 13, each check
# with what it saw.
# A SECTION is a number from 1 to 15, limits, linux, learn, or mounts; all of them run if none is named. A part of one has
# its name, too: `run.sh BINDIR mounts_refused` calls section_mounts_refused. ROUNDS in the environment is how often section mounts moves
# a directory in each kind of place; the default is 1000. With REQUIRE_ZFS=yes a host without ZFS fails.
# --live: the essentials, as a live image has them: all of /usr/local on a read-only nosuid file system, state on tmpfs,
# mdo mode. With RAISE_SECURELEVEL=yes in the environment at securelevel 3, too, from which only a reboot leads back.

# shellcheck disable=SC2317,SC2329 # functions are called by until_true and traps
set -u
umask 022
export PATH=/sbin:/bin:/usr/sbin:/usr/bin

live=no
[ "${1:-}" = "--live" ] && { live=yes; shift; }
bin=${1:?usage: run.sh [--live] BINDIR [SECTION…]}
shift
[ "$(id -u)" = 0 ] || { echo "Bail out! needs root"; exit 1; }
[ "$(uname -s)" = FreeBSD ] || { echo "Bail out! needs FreeBSD"; exit 1; }

tree=$(cd "$(dirname "$0")/../.." && pwd)
for program in colibri-jail-helper colibri-mcpd colibri-mcp chibi-mcp-bridge inmate; do
	[ -x "$bin/$program" ] || { echo "Bail out! there is no $bin/$program"; exit 1; }
done

work=$(mktemp -d /var/tmp/colibri-test.XXXXXX)
etc=/usr/local/etc/colibri
helper=/usr/local/libexec/colibri-jail-helper
state=/var/run/colibri-jail
roots=/usr/local/colibri-test
daemon=/usr/local/sbin/colibri-mcpd
client=/usr/local/bin/colibri-mcp
script=/usr/local/etc/rc.d/colibri_mcp
rc_conf=/etc/rc.conf.d/colibri_mcp
dir=/var/run/colibri-proof
socket=$dir/colibri.sock
inmate=$roots/bin/inmate
through=
suid=7871
duid=7872

. "$tree/tests/freebsd/tap.sh"
. "$tree/tests/freebsd/root.sh"
. "$tree/tests/freebsd/helper.sh"
. "$tree/tests/freebsd/agents.sh"
. "$tree/tests/freebsd/integrations.sh"
. "$tree/tests/freebsd/mounts.sh"
. "$tree/tests/freebsd/limits.sh"
. "$tree/tests/freebsd/linux.sh"
. "$tree/tests/freebsd/learn.sh"

# The rc script, as the port makes it.
install_service() {
	sed -e 's|%%PREFIX%%|/usr/local|' -e 's|%%ETCDIR%%|/usr/local/etc/colibri|' \
		"$tree/port/files/colibri_mcp.in" >"$script"
	chmod 555 "$script"
}

counter=0
next_session=
new_session() {
	counter=$((counter + 1))
	session=$next_session
	[ -z "$session" ] || return
	session=$(printf '%08x%08x' "$(($$ * 4096 + counter))" "$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')")
}

# digest of an entry: the registry holds each entry on a line of its own, between the key and the last comma; or on
# some, as those that ship, of which the last begins with six blanks and the brace.
digest_of() {
	sed -n -e "/^ *\"$1\": {\$/,/^      }/p" -e "/^ *\"$1\": {./p" "$etc/external-mcp.json" |
		sed -e "1s/^ *\"$1\": //" -e '$s/,$//' | printf '%s' "$(cat)" | sha256 -q
}

json() {
	printf '%s' "$1" | sed 's/\\/\\\\/g; s/"/\\"/g'
}

# entry NAME JAIL SCRIPT: sets the script that a server runs.
entry() {
	printf '{"command": "/bin/sh", "args": ["-c", "%s"], "jail": {%s}}' "$(json "$2")" "$1"
}

# registry ONE TWO: the entries of the two servers.
registry() {
	{
		echo '{"servers": {'
		printf '  "one": %s,\n' "$1"
		printf '  "two": %s\n' "$2"
		echo '}}'
	} >"$etc/external-mcp.json.new"
	chmod 640 "$etc/external-mcp.json.new"
	chgrp colibri "$etc/external-mcp.json.new"
	mv "$etc/external-mcp.json.new" "$etc/external-mcp.json"
}

policy() {
	cat >"$etc/jail-policy.json.new" <<-POLICY
	{ "caller": "colibri", "audit": "best-effort", "servers": ["*"], "max": 60, "max_per_server": 55,
	  "starts_per_minute": 9999, "ephemeral": ["$roots/one", "$roots/two"], "persistent": ["colibritest"],
	  "users": { "one": { "uid": $suid, "gid": $suid }, "two": { "uid": $duid, "gid": $duid } },
	  "network": ["127.0.0.1"],
	  "mounts": [ { "path": "$roots/shared/project", "owner": $suid, "at": "/work", "write": true, "bounded": false } ],
	  "allow": [], "limits": { "processes": ${1:-60}, "open_files": 256, "tmp": "2M" } }
	POLICY
	chmod 600 "$etc/jail-policy.json.new"
	mv "$etc/jail-policy.json.new" "$etc/jail-policy.json"
}

# as_caller COMMAND…: as the daemon's user, with nothing else of this shell.
as_caller() {
	chroot -u colibri -g colibri -G colibri / /usr/bin/env -i "$@"
}

as_root() {
	/usr/bin/env -i "$@"
}

# call INPUT ARGUMENTS…: one call of the helper on pipes, by whom `asker` says; sets rc, out, err.
asker=as_caller
call() {
	input=$1
	shift
	{
		printf '%b' "$input" | {
			{
				$asker "$helper" "$@"
				echo $? >"$work/rc"
			} 2>&1 1>&3 3>&- | cat >"$work/err"
		} 3>&1 | cat >"$work/out"
	}
	rc=$(cat "$work/rc")
	out=$(cat "$work/out")
	err=$(cat "$work/err")
}

# The rule by which the last call was refused.
rule() {
	echo "$err" | sed -n "s/.*refused by rule '\([^']*\)'.*/\1/p"
}

# run INPUT SERVER
run() {
	new_session
	call "$1" run --session "$session" --digest "$(digest_of "$2")" "$2"
}

# start NAME SERVER: an instance that lives until `finish NAME`; what is appended to NAME.in is its input.
start() {
	name=$1
	server=$2
	new_session
	echo "$session" >"$work/$name.session"
	: >"$work/$name.in"
	# What an earlier instance of this name said must not be taken for this one's word.
	rm -f "$work/$name.rc" "$work/$name.feed" "$work/$name.out" "$work/$name.err"
	digest=$(digest_of "$server")
	(
		{
			tail -n +1 -f "$work/$name.in" &
			echo $! >"$work/$name.feed"
			wait
		} | {
			{
				# shellcheck disable=SC2086 # a program and its words
				as_caller $through "$helper" run --session "$(cat "$work/$name.session")" --digest "$digest" "$server"
				echo $? >"$work/$name.rc"
			} 2>&1 1>&3 3>&- | cat >"$work/$name.err"
		} 3>&1 | cat >"$work/$name.out"
	) >/dev/null 2>&1 &
}

started() {
	grep -q 'helper: started' "$work/$1.err" 2>/dev/null
}

said() {
	grep -q "$2" "$work/$1.out" 2>/dev/null
}

# settled NAME WORD: it has said the word, or never will.
settled() {
	said "$1" "$2" || ended "$1"
}

ended() {
	[ -s "$work/$1.rc" ]
}

finish() {
	kill -9 "$(cat "$work/$1.feed")" 2>/dev/null
	until_true 30 ended "$1"
}

devfs_rules() {
	devfs rule -s 4 show 2>/dev/null
}

our_mounts() {
	mount -p | grep "$state" || true
}

our_jails() {
	jls -d name 2>/dev/null | grep '^colibri-' || true
}

our_processes() {
	ps -axo pid,jid,class,command | awk '$3 ~ /^colibri-/ && $4 != "<defunct>"'
}

our_records() {
	find "$state" -mindepth 1 -maxdepth 1 -type d 2>/dev/null | sed 's|.*/||'
}

# Without -d: a jail that the kernel has removed is listed as dying for as long as something refers to it.
live_jails() {
	jls name 2>/dev/null | grep '^colibri-' || true
}

# What an operator would ask whether all is as it was.
host_state() {
	mount -p | sed 's/^/mount: /'
	jls -d jid name path | sed 's/^/jls -d: /'
	rctl 2>/dev/null | sed 's/^/rctl: /'
	ps -axo jid,class | awk 'NR > 1 && ($1 != 0 || $2 ~ /^colibri-/) {print "ps:", $1, $2}'
}

no_live_jail() {
	[ -z "$(live_jails)$(our_processes)" ]
}

nothing_left() {
	[ -z "$(our_mounts)$(our_processes)$(our_records)" ]
}

# At a raised securelevel kldload(8) fails even for what is loaded.
has_mac_do() {
	[ -x /usr/bin/mdo ] && { sysctl -n security.mac.do.enabled || kldload -n mac_do; } >/dev/null 2>&1
}

has_racct() {
	[ "$(sysctl -n kern.racct.enable 2>/dev/null)" = 1 ]
}

# clean WHAT: waits for the end of all, and says what is left.
clean() {
	until_true 5 nothing_left
	is "$1: no mount, process or record is left" "" "$(our_mounts)$(our_processes)$(our_records)"
	has_racct && is "$1: no resource rule is left" "" "$(rctl 2>/dev/null | grep colibri-)"
	return 0
}

supervisor_of() {
	pgrep -P "$(pgrep -f "colibri-jail-helper run --session $(cat "$work/$1.session")" | sort -n | head -1)" -f colibri-jail-helper
}

# The daemon, started as the service's user; what it logs is in daemon.log.
daemon_start() {
	install -d -o colibri -g colibri -m 750 "$dir" "$dir/state"
	rm -f "$socket"
	as_caller "$daemon" --socket "$socket" --state-dir "$dir/state" --external-call "$@" </dev/null \
		>>"$work/daemon.log" 2>&1 &
	until_true 60 test -S "$socket" || { echo "# the daemon did not start:"; sed 's/^/# /' "$work/daemon.log"; }
	daemon_pid=$(pgrep -f "^$daemon --socket $socket")
}

daemon_stop() {
	kill -TERM "$daemon_pid"
	until_true 60 daemon_gone || echo "# the daemon does not end"
}

daemon_gone() {
	! ps -p "$daemon_pid" >/dev/null
}

# ask SERVER: a tool call through the daemon, as any client makes it; again while the server is starting.
ask() {
	for _ in $(jot "${2:-15}"); do
		answer=$(timeout 60 "$client" --socket "$socket" call "$1" echo text=hello-there 2>&1)
		case "$answer" in *hello-there*) break ;; esac
		sleep 1
	done
	echo "$answer"
}

servers() {
	timeout 60 "$client" --socket "$socket" status 2>&1
}

servers_json() {
	timeout 60 "$client" --socket "$socket" --json status 2>&1 | tr -d ' \n'
}

# server_state SERVER: the word for it in `servers`.
server_state() {
	servers_json | sed -n "s/.*\"id\":\"$1\"[^{]*\"state\":\"\([a-z_-]*\)\".*/\1/p"
}

# By ps(1), which shows who has ended without their command, where pgrep(1) finds them: nothing wakes init(8) for a zombie
# whose parent ends after it (exit1 in kern_exit.c), and it is there until another of init's children ends.
demo_servers() {
	ps -axww -o pid,command | awk '/[d]emo-server/ {print $1}'
}

no_server() {
	[ -z "$(demo_servers)$(ps -ww -U colibri -o command= | grep '^sleep')" ] && nothing_left
}

# By the shell's own kill: to start a program takes longer than what is waited for.
watched_gone() {
	for pid in $watched; do
		kill -0 "$pid" 2>/dev/null && return 1
	done
	return 0
}

# The rule of etc/mdo-15.conf, as an operator writes it.
mdo_rule() {
	sysctl "$(sed -n "s/UID/$(id -u colibri)/; s/GID/$(id -g colibri)/g; /^security/p" "$tree/etc/mdo-15.conf")" >/dev/null
}

host_entry() {
	printf '{"command": "/bin/sh", "args": ["-c", "%s"]}' "$(json "$1")"
}

# in_time LIMIT SINCE: whether LIMIT seconds, what the design gives, have not passed. The time in which a machine starts
# ten processes is added, which on hardware is hundredths of a second. What takes part of a limit by design is held
# against another such time in the same run besides: see `ratio`.
# Sets `took`, and `seconds`, which is only the number.
in_time() {
	seconds=$(echo "$(date +%s.%N) - $2" | bc)
	unit=$(date +%s.%N)
	for _ in 1 2 3 4 5 6 7 8 9 10; do /usr/bin/true; done
	unit=$(echo "$(date +%s.%N) - $unit" | bc)
	within=$(echo "$seconds <= $1 + $unit" | bc)
	took="after $seconds s, where ten processes start in $unit s"
	[ "$within" = 1 ]
}

# ratio WHAT MOST PART WHOLE: PART seconds are at most so much of WHOLE seconds.
ratio() {
	[ "$(echo "$3 <= $2 * $4" | bc)" = 1 ]
	report $? "$1" "$3 s, $4 s"
}

# aside FILE: what the test is going to replace, until its end.
replaced=
aside() {
	replaced="$replaced $1"
	[ -e "$1" ] && mv "$1" "$1.before-test"
	return 0
}

put_back() {
	for file in $replaced; do
		rm -rf "$file"
		[ -e "$file.before-test" ] && mv "$file.before-test" "$file"
	done
}

# What new jails may where nobody says otherwise, as an administrator can have set it: all. Put back by `tighten`.
loosen() {
	sysctl -e security.jail | grep -E '(_allowed|raw_sockets|unixiproute_only|enforce_statfs)=' >"$work/jail-defaults"
	sed -E 's/=.*/=1/; s/(unixiproute_only|enforce_statfs)=1/\1=0/' "$work/jail-defaults" | xargs sysctl >/dev/null
}

tighten() {
	[ ! -f "$work/jail-defaults" ] || xargs sysctl <"$work/jail-defaults" >/dev/null
}

restore() {
	trap - EXIT INT TERM
	tighten
	[ -x "$script" ] && [ -f "$rc_conf" ] && service colibri_mcp stop >/dev/null 2>&1
	pgrep -f "^$daemon --socket $dir" | xargs kill -9 2>/dev/null
	for feed in "$work"/*.feed; do
		[ -f "$feed" ] && kill -9 "$(cat "$feed")" 2>/dev/null
	done
	pkill -9 -f "^$inmate undying"
	sleep 1
	"$helper" sweep >/dev/null 2>&1
	jail -q -r colibritest >/dev/null 2>&1
	integrations_restored
	places_gone
	umount "$roots/persistent/dev" 2>/dev/null
	umount "$dir/state" 2>/dev/null
	umount "$dir" 2>/dev/null
	if [ "$live" = yes ]; then
		umount /usr/local
	else
		rm -rf "$roots"
	fi
	rm -rf "$work" "$dir"
	put_back
}

# --- installation -----------------------------------------------------------------------------------------------------

echo "TAP version 13"
echo "# $(uname -srm) $(uname -K) $(uname -U)"
echo "# $(sysctl -n kern.version | head -1)"
echo "# racct: $(sysctl -n kern.racct.enable 2>/dev/null || echo none)"
trap 'restore; exit 1' INT TERM
trap restore EXIT
pw groupshow colibri >/dev/null 2>&1 || pw groupadd colibri
pw usershow colibri >/dev/null 2>&1 || pw useradd colibri -g colibri -d /nonexistent -s /usr/sbin/nologin
aside "$rc_conf"
if [ "$live" = yes ]; then
	# Over what is installed: the medium of a live image, written now and read-only later.
	mkdir -p /usr/local
	kldload -n tmpfs 2>/dev/null
	mount -t tmpfs -o nosuid,size=512m tmpfs /usr/local || { echo "Bail out! no tmpfs"; exit 1; }
else
	for file in "$etc" "$helper" "$daemon" "$client" "$script"; do
		aside "$file"
	done
fi
mkdir -p /usr/local/libexec /usr/local/sbin /usr/local/bin /usr/local/etc/rc.d /etc/rc.conf.d "$roots/shared" "$roots/bin"
install -m 755 "$bin/inmate" "$inmate"
install -m 755 "$bin/colibri-mcpd" "$daemon"
install -m 755 "$bin/colibri-mcp" "$client"
install -d -m 755 "$etc"
install -d -m 700 "$etc/secrets"
install -o root -g colibri -m 4550 "$bin/colibri-jail-helper" "$helper"
kldload -n nullfs tmpfs 2>/dev/null
make_root "$roots/one" /bin/sh /bin/cat /bin/ls /bin/sleep /bin/ps /bin/dd /bin/rm /usr/bin/nc /usr/bin/id /sbin/mount /usr/bin/procstat "$inmate" "$client"
make_root "$roots/two" /bin/sh /bin/cat /bin/ls /bin/sleep
make_root "$roots/persistent" /bin/sh /bin/cat /bin/ls /bin/sleep /usr/bin/id "$inmate" "$client"
policy

one='"path": "'$roots/one'"'
two='"path": "'$roots/two'"'
echo_script='while read -r line; do echo "$line"; done'
second=$(entry "$two" "$echo_script")
served=$(entry "$one" "exec $client demo-server --notes /tmp")
# A tree that ignores all that can be ignored.
stubborn='trap "" TERM HUP INT; (trap "" TERM HUP INT; sleep 600 & sleep 600) & sleep 600 & echo ready; while :; do sleep 1; done'
hosted=$(host_entry "exec $client demo-server --notes /tmp")

# --- live image -------------------------------------------------------------------------------------------------------

live_image() {
echo "# live image: /usr/local read-only and nosuid, state on tmpfs, mdo mode"
before=$(host_state)
install_service
registry "$served" "$hosted"
mount -u -o ro,nosuid /usr/local
is "/usr/local is a read-only nosuid file system" "ro,nosuid" "$(mount -p | awk '$2 == "/usr/local" {print $4}')"
out=$(touch /usr/local/written 2>&1)
has "nothing can be written there" "Read-only file system" "$out"
if [ "${RAISE_SECURELEVEL:-no}" = yes ]; then
	kldload -n mac_do 2>/dev/null
	sysctl kern.securelevel=3 >/dev/null
	is "securelevel" 3 "$(sysctl -n kern.securelevel)"
	out=$(kldload fdescfs 2>&1)
	has "no module can be loaded any more" "Operation not permitted" "$out"
else
	skip "securelevel 3" "only with RAISE_SECURELEVEL=yes: it stays until a reboot"
fi
run "" one
is "nosuid: refused as a matter of the system" 71 "$rc"
is "nosuid: by its rule" identity "$(rule)"
if has_mac_do; then
	live_mdo
else
	skip "mdo mode" "no mac_do here"
fi
clean "live"
is "no jail is left, dying ones included" "" "$(our_jails)"
mount -u -o rw,nosuid /usr/local
is "mount -p, jls -d, rctl, ps -axo jid,class say what they said before" "$before" "$(host_state)"
}

live_mdo() {
rules=$(sysctl -n security.mac.do.rules)
mdo_rule
install -d -o colibri -g colibri -m 750 "$dir"
mkdir -p "$dir/state"
mount -t tmpfs -o size=64m tmpfs "$dir/state"
daemon_start --priv-mode mdo
out=$(ask one)
has "mdo: a call is answered from a jail" hello-there "$out"
out=$(servers)
has "mdo: the server has a jail" "jid" "$out"
is "mdo: three mounts" 3 "$(our_mounts | wc -l | tr -d ' ')"
lacks "mdo: a server on the host does not answer" hello-there "$(ask two 2)"
is "mdo: it is blocked" blocked "$(server_state two)"
kill -9 "$daemon_pid"
until_true 30 no_server
is "mdo: nothing is left after kill -9 of the daemon" "" "$(demo_servers)$(our_mounts)$(our_processes)$(our_records)"
daemon_start --priv-mode mdo
has "mdo: the next daemon serves" hello-there "$(ask one)"
supervisor=$(pgrep -f 'colibri-jail-helper run --session' | sort -n | tail -1)
kill -9 "$supervisor"
until_true 30 nothing_left
clean "mdo: the helper killed, which the daemon sweeps"
daemon_stop
sysctl security.mac.do.rules="$rules" >/dev/null
daemon_start --priv-mode mdo
out=$(ask one 2)
lacks "mdo without its rule: no server" hello-there "$out"
daemon_stop
umount "$dir/state"
rm -rf "$dir"

# As after a boot: what is in /var is a new tmpfs, and nothing is in it.
echo "# the service, with nothing in /var"
mkdir -p "$dir"
mount -t tmpfs -o size=64m tmpfs "$dir"
socket=$dir/run/colibri.sock
pw groupshow mcpusers >/dev/null 2>&1 || pw groupadd mcpusers
cat >"$rc_conf" <<-CONF
	colibri_mcp_enable=YES
	colibri_mcp_external_call=YES
	colibri_mcp_priv_mode=mdo
	colibri_mcp_socket=$socket
	colibri_mcp_state_dir=$dir/state
	CONF
mdo_rule
out=$(service colibri_mcp start 2>&1)
report $? "service start" "$out"
is "it made its directories" "colibri mcpusers 750 colibri colibri 750" \
	"$(stat -f '%Su %Sg %Lp' "$dir/run" "$dir/state" | tr '\n' ' ' | sed 's/ $//')"
has "service: a call is answered from a jail" hello-there "$(ask one)"
out=$("$client" --socket "$socket" --json doctor --root --priv-mode mdo --state-dir "$dir/state" 2>&1)
is "doctor --root --priv-mode mdo finds nothing bad" "" "$(echo "$out" | amiss)"
[ "$(echo "$out" | grep -c '"outcome": "good"')" -ge 10 ]
report $? "and ten facts or more good" "$out"
out=$("$client" --socket "$socket" --json doctor --root --state-dir "$dir/state" 2>&1)
is "doctor --root for priv mode helper finds something bad" 1 $?
has "doctor: the state will not outlive the boot" tmpfs "$(echo "$out" | grep '"seen"')"
has "doctor: nosuid" nosuid "$(echo "$out" | grep -A 1 '"bad"' | grep '"seen"')"
out=$(service colibri_mcp restart 2>&1)
report $? "service restart" "$out"
has "service: a call is answered after it" hello-there "$(ask one)"
out=$(service colibri_mcp stop 2>&1)
report $? "service stop" "$out"
sysctl security.mac.do.rules="$rules" >/dev/null
umount "$dir"
}

if [ "$live" = yes ]; then
	live_image
	echo "1..$number"
	exit $((failed > 0))
fi

# --- 1: ephemeral and persistent jail ---------------------------------------------------------------------------------

section_1() {
echo "# 1 ephemeral and persistent jail"
registry "$(entry "$one" "$echo_script")" "$second"
run 'hello\n' one
is "ephemeral: the server answers" hello "$out"
is "ephemeral: exit status 0" 0 "$rc"
has "ephemeral: the started line" "helper: started jid=[1-9]" "$err"
clean "ephemeral"

for pair in "exit 0:0" "exit 1:1" "exit 77:77" "exit 127:127" "exit 255:255" 'kill -9 $$:137' 'kill -15 $$:143' 'kill -ABRT $$:134'; do
	registry "$(entry "$one" "${pair%:*}")" "$second"
	run "" one
	is "exact status of '${pair%:*}'" "${pair##*:}" "$rc"
done

# Listeners that anybody may reach, and a look at them that the host passes and the jail must not.
mkdir -p /var/run/colibri-test
nc -4kl 47871 >/dev/null 2>&1 &
listeners=$!
nc -6kl 47871 >/dev/null 2>&1 &
listeners="$listeners $!"
nc -klU /var/run/colibri-test/colibri.sock >/dev/null 2>&1 &
listeners="$listeners $!"
addresses="127.0.0.1 ::1 $(ifconfig | awk '($1 == "inet" && $2 !~ /^127/) || ($1 == "inet6" && $2 !~ /^(::1|fe80)/) {print $2}' | tr '\n' ' ')"
knock='for a in '$addresses'; do nc -z -w 2 $a 47871 && echo "REACHED $a"; done'
look='for p in /var/run/colibri-test/colibri.sock /usr/local/etc/colibri /root /etc/rc.conf; do [ -e $p ] && echo "SAW $p"; done'
on_host() { chroot -u "$suid" -g "$suid" / /bin/sh -c "$knock; $look" 2>&1; }
reachable() { [ "$(on_host | grep -c -e REACHED -e SAW)" = $(($(echo "$addresses" | wc -w) + 4)) ]; }
until_true 20 reachable
report $? "the same user on the host reaches and sees all that the next checks are about" "$(on_host)"
registry "$(entry "$one" "id -u; id -g; id -G; $knock; $look; "'mount; ls /dev; ls /dev/fd; echo x >/written && echo WROTE; echo x >/tmp/t && echo tmp; dd if=/dev/zero of=/tmp/big bs=64k count=64 2>&1; rm /tmp/big; echo end; read -r line')" "$second"
start a one
until_true 60 said a '^end'
out=$(cat "$work/a.out")
mounted=$(our_mounts | sed "s|$state/[0-9a-f]*|…|")
finish a
is "the user is the policy's, and has no other group" "$suid $suid" "$(echo "$out" | head -3 | tr '\n' ' ' | sed 's/ *$//')"
is "no network: 127.0.0.1, ::1, the host's addresses" "" "$(echo "$out" | grep REACHED)"
is "the host's files and the daemon's socket are not there" "" "$(echo "$out" | grep SAW)"
has "mounts, seen from inside: a read-only, nosuid root" "on / (nullfs, local, nosuid, read-only" "$(echo "$out" | grep ' on ')"
has "mounts, seen from the host: nullfs" "nullfs ro,nosuid" "$(echo "$mounted" | tr -s '\t' ' ' | sort)"
is "mounts, seen from the host: nullfs, devfs, tmpfs, and no other" "devfs nullfs tmpfs" "$(echo "$mounted" | awk '{print $3}' | sort | tr '\n' ' ' | sed 's/ $//')"
lacks "the root is read-only" WROTE "$(echo "$out" | grep -e WROTE -e written)"
has "/tmp is writable" tmp "$(echo "$out" | grep '^tmp')"
has "/tmp is no larger than the policy's 2 MiB" "No space left" "$(echo "$out" | grep -e space -e transferred)"
has "it came to the end" end "$out"
registry "$(entry "$one, \"ip4\": [\"127.0.0.1\"]" "$knock; echo end")" "$second"
run "" one
is "an address that entry and policy agree on is there: what listens on it is reached" "REACHED 127.0.0.1" "$(echo "$out" | head -1)"
lacks "and no address of the other family" "::" "$out"
# shellcheck disable=SC2086 # process ids
kill $listeners 2>/dev/null
rm -rf /var/run/colibri-test
registry "$(entry "$one" 'ls /dev')" "$second"
run "" one
is "the six kinds of devices" "fd null random stderr stdin stdout urandom zero" "$(echo "$out" | tr '\n' ' ' | sed 's/ $//')"

jail -c name=colibritest path="$roots/persistent" persist ip4=disable ip6=disable >/dev/null
registry "$(entry '"name": "colibritest", "root_path": "'$roots/persistent'", "user": "one"' 'id -u; while read -r line; do echo "$line"; done')" "$second"
run 'hello\n' one
is "persistent: the server answers, as the policy's user" "$suid hello" "$(echo "$out" | tr '\n' ' ' | sed 's/ $//')"
has "persistent: the jail's own id" "started jid=$(jls -j colibritest jid)" "$err"
is "persistent: the jail is still there" colibritest "$(jls -j colibritest name)"
clean "persistent"
registry "$(entry '"name": "colibritest", "root_path": "/elsewhere", "user": "one"' "$echo_script")" "$second"
run "" one
is "persistent: another path is refused" 77 "$rc"
is "persistent: by its rule" root_path "$(rule)"
registry "$(entry '"path": "'$roots/persistent'"' "$echo_script")" "$second"
run "" one
is "a root that policy does not list is refused" 77 "$rc"
jail -q -r colibritest
registry "$(entry '"name": "colibritest", "user": "one"' "$echo_script")" "$second"
run "" one
is "a jail that does not run: try later" 75 "$rc"
jail -c name=colibritest path="$roots/one" persist ip4=disable ip6=disable >/dev/null
registry "$(entry "$one" "$echo_script")" "$second"
run "" one
is "a live jail with the same root is refused" 77 "$rc"
jail -q -r colibritest
if has_mac_do; then
	jail -c name=colibritest path="$roots/persistent" persist ip4=disable ip6=disable mac.do=inherit >/dev/null
	registry "$(entry '"name": "colibritest", "user": "one"' "$echo_script")" "$second"
	run "" one
	is "a persistent jail that inherits the host's mac.do is refused" "77 mac.do" "$rc $(rule)"
	jail -q -r colibritest
else
	skip "a persistent jail that inherits mac.do" "no mac_do here"
fi
}

# --- 2: two instances -------------------------------------------------------------------------------------------------

section_2() {
echo "# 2 two instances of one entry"
before=$(host_state)
registry "$(entry "$one" 'echo mine >/tmp/mine; echo ready; while read -r line; do eval "$line"; done')" "$second"
start a one
until_true 20 said a ready
start b one
until_true 20 said b ready
is "two jails" 2 "$(our_jails | wc -l | tr -d ' ')"
is "three mounts each" 6 "$(our_mounts | wc -l | tr -d ' ')"
meanwhile=$(host_state)
for tool in "mount" "jls -d" "ps"; do
	has "$tool shows both while they run" "$(cat "$work/b.session" | head -c 9)" "$(echo "$meanwhile" | grep "^$tool: .*$(head -c 9 "$work/b.session")")"
done
has_racct && has "rctl shows both while they run" "maxproc:deny=60" "$(echo "$meanwhile" | grep '^rctl: .*colibri-')"
finish a
is "the first one's end" 0 "$(cat "$work/a.rc")"
echo 'ls /dev/null /tmp/mine && cat /tmp/mine && echo whole' >>"$work/b.in"
until_true 10 said b whole
has "the second keeps its own /dev and /tmp" whole "$(cat "$work/b.out")"
finish b
clean "two instances"
is "no jail is left, dying ones included" "" "$(our_jails)"
is "mount -p, jls -d, rctl, ps -axo jid,class say what they said before" "$before" "$(host_state)"
}

# --- 3: devfs rules ---------------------------------------------------------------------------------------------------

section_3() {
echo "# 3 devfs rules"
saved=$(devfs_rules)
devfs rule -s 4 delset 2>/dev/null
is "the system's rule set 4 is empty" "" "$(devfs_rules)"
registry "$(entry "$one" 'ls /dev')" "$second"
run "" one
is "without the system's rule set: the six kinds" "fd null random stderr stdin stdout urandom zero" "$(echo "$out" | tr '\n' ' ' | sed 's/ $//')"
[ -n "$saved" ] && echo "$saved" | sed 's/^[0-9]* /rule -s 4 add /' | while read -r rule; do
	# shellcheck disable=SC2086 # words of a rule
	devfs $rule 2>/dev/null
done
is "the system's rule set is there again" "$saved" "$(devfs_rules)"
clean "devfs"
}

# --- 4: planted files -------------------------------------------------------------------------------------------------

section_4() {
echo "# 4 planted files"
registry "$(entry "$one" 'id -u')" "$second"
for point in tmp dev; do
	rmdir "$roots/one/$point"
	ln -s /etc "$roots/one/$point"
	before=$(mount -p)
	run "" one
	is "$point is a link to /etc: refused" 78 "$rc"
	is "$point is a link to /etc: nothing was mounted" "$before" "$(mount -p)"
	rm "$roots/one/$point"
	mkdir "$roots/one/$point"
done
printf 'root:*:0:0::0:0:r:/root:/bin/sh\none:*:0:0::0:0:planted:/:/bin/sh\nmcp0:*:0:0::0:0:planted:/:/bin/sh\n' >"$roots/one/etc/master.passwd"
printf 'root:*:0:0:r:/root:/bin/sh\none:*:0:0:planted:/:/bin/sh\nmcp0:*:0:0:planted:/:/bin/sh\n' >"$roots/one/etc/passwd"
printf 'passwd: marker\ngroup: marker\n' >"$roots/one/etc/nsswitch.conf"
mkdir -p "$roots/one/usr/lib"
echo broken >"$roots/one/usr/lib/nss_marker.so.1"
registry "$(entry "$one" 'id -u; id -g')" "$second"
run "" one
is "a planted user database and nsswitch.conf: no effect" "$suid $suid" "$(echo "$out" | tr '\n' ' ' | sed 's/ $//')"
rm -rf "$roots/one/etc" "$roots/one/usr/lib/nss_marker.so.1"
clean "planted files"
}

# --- 5: descriptors ---------------------------------------------------------------------------------------------------

section_5() {
echo "# 5 descriptors"
registry "$(entry "$one" 'echo ready; read -r line')" "$second"
start a one
until_true 20 said a ready
pid=$(our_processes | awk '{print $1}' | head -1)
is "procstat -f of the server: 0, 1, 2 alone" "0 1 2" "$(procstat -hf "$pid" | awk '$3 ~ /^[0-9]+$/ {print $3}' | sort -n | tr '\n' ' ' | sed 's/ $//')"
supervisor=$(supervisor_of a)
[ "$(ps -o rss= -p "$supervisor" | tr -d ' ')" -lt 4096 ]
report $? "the supervisor's resident memory is under 4 MiB" "$(ps -o rss= -p "$supervisor") KiB"
has "the program's ABI version is known to the kernel" 1[45] "$(procstat -b "$supervisor" | awk 'NR == 2 {print $3}')"
finish a
sleep 1
# Nothing of the helper's may be in the way of a host server's try but its own rules: it is of the right user and group.
mkdir -p "$dir" && install -d -o colibri -g colibri -m 750 "$dir/told"
kldload -n mac_do 2>/dev/null
registry "$served" "$(host_entry "for try in '$helper sweep' '/usr/bin/mdo -i -u root -- /usr/bin/id -u' '/usr/bin/id -un'; do \$try >$dir/told/out 2>&1; echo \"\$? \$(cat $dir/told/out)\" >>$dir/told/all; done; exec $client demo-server --notes /tmp")"
daemon_start
out=$(ask two)
has "a host server answers through the daemon" hello-there "$out"
told=$(cat "$dir/told/all" 2>/dev/null)
has "it runs as the daemon's user" "0 colibri" "$told"
has "a host server executing the helper is refused" "71 helper: refused by rule 'identity'" "$told"
has "a host server executing mdo is refused" "mdo: " "$told"
lacks "a host server executing mdo does not become root" "0 0" "$told"
server=$(pgrep -f "^$client demo-server" | head -1)
is "descriptors of a host server: 0, 1, 2 alone" "0 1 2" "$(procstat -hf "$server" | awk '$3 ~ /^[0-9]+$/ {print $3}' | sort -n | tr '\n' ' ' | sed 's/ $//')"
as_caller /usr/bin/truss -p "$daemon_pid" >"$work/truss" 2>&1 </dev/null &
tracer=$!
until_true 10 test -s "$work/truss"
kill "$tracer" 2>/dev/null
has "the daemon cannot be traced by its own user" "Operation not permitted" "$(cat "$work/truss")"
daemon_stop
until_true 10 no_server
is "the daemon's end is its servers' end" "" "$(demo_servers)"
clean "descriptors"
}

# --- 6: ptrace from a persistent jail ---------------------------------------------------------------------------------

section_6() {
echo "# 6 a persistent jail's root that traces"
jail -c name=colibritest path="$roots/persistent" persist ip4=disable ip6=disable >/dev/null
registry "$(entry '"name": "colibritest", "user": "one"' 'exit 7')" "$second"
jexec -l colibritest "$inmate" trace /tmp/enough >"$work/trace" 2>&1 &
tracer=$!
until_true 30 grep -q tracing "$work/trace"
for _ in $(jot 5); do jexec -l colibritest /bin/sleep 0.5; done
digest=$(digest_of one)
for n in $(jot 200); do
	{
		: | {
			as_caller "$helper" run --session "$(printf '%016x' $((counter * 65536 + n)))" --digest "$digest" one
			echo $? >>"$work/traced.rc"
		} 2>&1 1>&3 3>&- | cat >>"$work/traced.err"
	} 3>&1 | cat
done
touch "$roots/persistent/tmp/enough"
until_true 30 grep -q '^end' "$work/trace"
kill "$tracer" 2>/dev/null
wait "$tracer" 2>/dev/null
is "200 starts beside a tracer: every one ends as it should" "200 7" "$(sort "$work/traced.rc" | uniq -c | awk '{print $1, $2}')"
has "the tracer works: what root starts there by jexec(8) is traced" "attached *sleep" "$(cat "$work/trace")"
refused=$(sed -n 's/^refused //p' "$work/trace")
[ "${refused:-0}" -ge 100 ]
report $? "the tracer saw the instances' processes, and was refused" "$refused processes"
is "no process of an instance was ever traced" "" "$(grep '^attached' "$work/trace" | grep -v -e '/bin/sleep$' -e '/usr/sbin/jexec$')"
rm -f "$roots/persistent/tmp/enough"
jail -q -r colibritest
clean "traced"
}

# --- 7: killed --------------------------------------------------------------------------------------------------------

section_7() {
echo "# 7 killed"
for kind in willing stubborn; do
	before='' && [ $kind = stubborn ] && before='trap "" TERM HUP INT; (trap "" TERM HUP INT; sleep 600 & sleep 600) & '
	registry "$(entry "$one" "$before exec $client demo-server --notes /tmp")" "$(host_entry "$before exec $client demo-server --notes /tmp")"
	daemon_start
	has "daemon, $kind servers: the jailed one answers" hello-there "$(ask one)"
	has "daemon, $kind servers: the one on the host answers" hello-there "$(ask two)"
	if [ $kind = willing ]; then
		has "colibri-mcp status shows the network of a jail" "network none" "$(servers | tr -s ' \n' '  ')"
		out=$(servers_json)
		has "the same in JSON: its name and jid" "\"jail\":\"$(our_jails)\"" "$out"
		has "and its number of processes" '"count":1' "$out"
	fi
	watched="$(demo_servers) $(pgrep -u "colibri,$suid" -x sleep)"
	before=$(date +%s.%N)
	kill -9 "$daemon_pid"
	until_true 60 watched_gone && in_time 2 "$before"
	# shellcheck disable=SC2086 # process ids
	report $? "kill -9 of the daemon: its $kind servers, $(echo $watched | wc -w | tr -d ' ') processes, are gone within 2 s" "$took"
	abandoned=$seconds
	until_true 30 no_server
	is "daemon killed, $kind servers: no other process of theirs is left" "" "$(demo_servers)$(pgrep -u colibri -x sleep)"
	clean "daemon killed, $kind servers"
done
registry "$(entry "$one" "(sleep 600 & sleep 600) & exec $client demo-server --notes /tmp")" "$hosted"
daemon_start
has "daemon: the jailed server answers" hello-there "$(ask one)"
supervisor=$(pgrep -f 'colibri-jail-helper run --session' | sort -n | tail -1)
before=$(date +%s.%N)
kill -9 "$supervisor"
until_true 60 nothing_left && in_time 5 "$before"
report $? "helper killed under the daemon, which sweeps by itself within 5 s" "$took"
clean "helper killed under the daemon"
has "daemon: the server answers again" hello-there "$(ask one)"
supervisor=$(pgrep -f 'colibri-jail-helper run --session' | sort -n | tail -1)
kill -STOP "$daemon_pid"
kill -9 "$supervisor" "$daemon_pid"
sleep 1
echo "# both killed, left: $(our_mounts | wc -l) mounts, $(our_processes | wc -l) processes, $(our_records | wc -l) records"
before=$(date +%s.%N)
daemon_start
until_true 60 nothing_left && in_time 5 "$before"
report $? "daemon and helper killed: the next daemon sweeps within 5 s, its start included" "$took"
clean "daemon and helper killed: the next daemon's sweep"
daemon_stop
mount -t devfs -o ruleset=4 devfs "$roots/persistent/dev"
jail -c name=colibritest path="$roots/persistent" persist ip4=disable ip6=disable >/dev/null
registry "$(entry '"name": "colibritest", "user": "one"' "(sleep 600 & sleep 600) & exec $client demo-server --notes /tmp")" "$second"
daemon_start
has "daemon: a server in a persistent jail answers" hello-there "$(ask one)"
out=$(servers_json)
has "colibri-mcp status shows the persistent jail's name and jid" "\"jail\":\"colibritest\",\"jid\":$(jls -j colibritest jid)," "$out"
has "and counts the processes of one server in it" '"count":3' "$out"
supervisor=$(pgrep -f 'colibri-jail-helper run --session' | sort -n | tail -1)
inside=$(our_processes)
before=$(date +%s.%N)
kill -9 "$supervisor"
until_true 60 nothing_left && in_time 5 "$before"
report $? "helper killed in a persistent jail with detached grandchildren: the daemon's sweep ends them within 5 s" \
	"$took; were there: $inside"
is "the persistent jail itself stays" colibritest "$(jls -j colibritest name)"
clean "helper killed in a persistent jail"
daemon_stop
jail -q -r colibritest
umount "$roots/persistent/dev"
section_lifeline
section_helper_killed
section_callers_means
section_sweep
}

section_lifeline() {
registry "$(entry "$one" "$stubborn")" "$second"
start a one
until_true 20 said a ready
before=$(date +%s.%N)
finish a
in_time 5 "$before"
report $? "the lifeline's end ends a tree that ignores TERM within 5 s: grace, TERM, KILL" "$took"
# One second by design, half of it grace and half TERM, where the lifeline alone has three, two and one.
[ -z "${abandoned:-}" ] || ratio "a daemon that was killed leaves such a tree two thirds of that time at most" 0.67 "$abandoned" "$seconds"
is "by SIGKILL" 137 "$(cat "$work/a.rc")"
clean "lifeline"
}

section_helper_killed() {
echo "# the helper killed"
registry "$(entry "$one" "$stubborn")" "$second"
for kind in ephemeral persistent; do
	if [ $kind = persistent ]; then
		jail -c name=colibritest path="$roots/persistent" persist ip4=disable ip6=disable >/dev/null
		registry "$(entry '"name": "colibritest", "user": "one"' "$stubborn")" "$second"
	fi
	start a one
	until_true 20 said a ready
	supervisor=$(supervisor_of a)
	main=$(pgrep -P "$supervisor" | head -1)
	kill -9 "$supervisor"
	until_true 10 ended a
	is "$kind: the supervisor's signal is relayed" 137 "$(cat "$work/a.rc")"
	# init(8), whose child it is then, may take its time over a dead one.
	main_gone() { case "$(ps -o state= -p "$main")" in "" | Z*) return 0 ;; *) return 1 ;; esac; }
	until_true 10 main_gone
	report $? "$kind: the server's own process dies with it, without a sweep" "$main"
	if [ $kind = ephemeral ]; then
		until_true 10 no_live_jail
		is "ephemeral: the kernel removed the jail, and its processes" "" "$(live_jails)$(our_processes)"
	fi
	call "" sweep
	is "$kind: sweep says that all is clean" "0 " "$rc $err"
	clean "$kind: supervisor killed, then swept"
	kill -9 "$(cat "$work/a.feed")" 2>/dev/null
done
jail -q -r colibritest
}

section_callers_means() {
echo "# what a caller can do without kill(2)"
registry "$(entry "$one" 'echo ready; while read -r line; do echo "$line"; done')" "$second"
start a one
until_true 20 said a ready
outer=$(pgrep -f "colibri-jail-helper run --session $(cat "$work/a.session")" | sort -n | head -1)
kill -9 "$outer"
echo "still here" >>"$work/a.in"
until_true 10 said a "still here"
has "the outer process killed, as closing a pdfork(2) descriptor does: no effect" "still here" "$(cat "$work/a.out")"
finish a
clean "outer killed"
through="$inmate timer 4"
start a one
through=
until_true 20 said a ready
sleep 6
echo "still here" >>"$work/a.in"
until_true 10 said a "still here"
has "an interval timer of 4 s, set before: no effect after 6 s" "still here" "$(cat "$work/a.out")"
finish a
clean "interval timer"
through="$inmate pdfork $roots/bin/now"
start a one
through=
until_true 20 said a ready
outer=$(pgrep -f "^$helper run --session $(cat "$work/a.session")" | sort -n | head -1)
touch "$roots/bin/now"
outer_gone() { ! ps -p "$outer" >/dev/null; }
until_true 10 outer_gone
is "a pdfork(2) descriptor closed: the outer process is gone" "" "$(ps -o pid= -p "$outer")"
echo "still here" >>"$work/a.in"
until_true 10 said a "still here"
has "a pdfork(2) descriptor closed: the server serves on" "still here" "$(cat "$work/a.out")"
finish a
rm -f "$roots/bin/now"
clean "pdfork"
}

section_sweep() {
echo "# sweep while starts run"
# The limit is also one of all processes of the uid: five and twenty instances with three each.
policy 200
registry "$(entry "$one" '(sleep 600 & sleep 600) & echo ready; while read -r line; do echo "$line"; done')" "$second"
for n in $(jot 5); do
	start "d$n" one
done
for n in $(jot 5); do
	until_true 60 said "d$n" ready
done
for n in $(jot 20); do
	start "s$n" one
done
# Five of those that are there die while twenty others are being made.
for n in $(jot 5); do
	kill -9 "$(supervisor_of "d$n")"
	call "" sweep
	[ "$rc" = 0 ] || break
done
is "five sweeps during twenty starts, each after a supervisor was killed" "0 " "$rc $err"
dead=
for n in $(jot 5); do
	dead="$dead$(mount -p | grep "$(cat "$work/d$n.session")")$(jls name | grep "$(cat "$work/d$n.session")")"
	dead="$dead$(our_processes | grep "colibri-$(head -c 9 "$work/d$n.session") ")"
	dead="$dead$(our_records | grep "$(cat "$work/d$n.session")")"
done
is "the dead are gone" "" "$dead"
alive=0
for n in $(jot 20); do
	until_true 60 said "s$n" ready
	echo alive >>"$work/s$n.in"
	until_true 20 said "s$n" alive && alive=$((alive + 1))
done
is "no live instance was swept" 20 "$alive"
for n in $(jot 20); do kill -9 "$(cat "$work/s$n.feed")"; done
for n in $(jot 20); do until_true 60 ended "s$n"; done
is "each ended as it should" "20 0" "$(cat "$work"/s*.rc | sort | uniq -c | awk '{print $1, $2}')"
for n in $(jot 5); do kill -9 "$(cat "$work/d$n.feed")" 2>/dev/null; done
clean "sweep while starts run"
policy
}

# --- 8: fork bomb and memory hog --------------------------------------------------------------------------------------

section_8() {
echo "# 8 fork bomb and memory hog"
policy 30
registry "$(entry "$one" "exec $inmate forkbomb")" "$second"
start a one
until_true 60 said a children
count=$(our_processes | wc -l | tr -d ' ')
[ "$count" -ge 20 ] && [ "$count" -le 30 ]
report $? "a fork bomb gets no further than its limit of 30" "$count processes; it says: $(cat "$work/a.out")"
run 'hello\n' two
is "another server answers meanwhile" hello "$out"
finish a
clean "fork bomb"
policy
if has_racct; then
	registry "$(entry "$one, \"limits\": {\"memory\": \"256M\"}" "exec $inmate hog")" "$second"
	start a one
	until_true 60 said a held
	held=$(sed -n 's/^held //p' "$work/a.out")
	[ "${held:-9999}" -lt 256 ]
	report $? "a memory hog gets less than its limit of 256 MiB" "$held MiB"
	run 'hello\n' two
	is "another server answers beside a memory hog" hello "$out"
	finish a
else
	registry "$(entry "$one, \"limits\": {\"memory\": \"256M\"}" 'exit 0')" "$second"
	run "" one
	is "a limit of an instance without RACCT is refused" 78 "$rc"
	is "by its rule" racct "$(rule)"
fi
clean "memory hog"
}

# --- 9: mount sources -------------------------------------------------------------------------------------------------

section_9() {
echo "# 9 mount sources swapped"
mkdir -p "$roots/shared/project"
touch "$roots/shared/project/mine"
chown -R "$suid" "$roots/shared"
registry "$(entry "$one, \"mounts\": [{\"path\": \"$roots/shared/project\", \"at\": \"/work\", \"write\": true}]" 'ls /work')" "$second"
run "" one
is "a shown directory" mine "$out"
clean "a shown directory"
"$inmate" swap "$roots/shared/project" "$work/enough" >"$work/rounds" &
swapper=$!
wrong=0
refused=0
for _ in $(jot 30); do
	run "" one
	case "$rc:$out" in
	0:mine) ;;
	78:) refused=$((refused + 1)) ;;
	*) wrong=$((wrong + 1)) && echo "# $rc $out $err" ;;
	esac
done
touch "$work/enough"
wait $swapper
rm "$work/enough"
is "swapped $(cat "$work/rounds") times during thirty starts, $refused of them refused: never another directory" 0 "$wrong"
clean "swapped sources"
}

# --- 10: ways to root, hostile requests -------------------------------------------------------------------------------

section_10() {
section_requests
section_sudo
section_service
}

section_requests() {
echo "# 10 requests"
registry "$(entry "$one" "$echo_script")" "$second"
for request in "" "--" "run" "plan ../x" "plan 0" "stop --session x" "run --session 0 --digest 0 one"; do
	# shellcheck disable=SC2086 # words of a request
	call "" $request
	is "'$request' is a usage error" 64 "$rc"
done
new_session
call "" run --session "$session" --digest "$(printf '%064d' 0)" one
is "another digest: try later" 75 "$rc"
is "by its rule" digest "$(rule)"
for request in "plan one" check "stop --all"; do
	# shellcheck disable=SC2086 # words of a request
	call "" $request
	is "'$request' is root's alone" "77 helper: refused by rule 'root'" "$rc $err"
done
asker=as_root
chmod 664 "$etc/external-mcp.json"
call "" plan one
is "a registry that a group may write" 78 "$rc"
chmod 640 "$etc/external-mcp.json"
call "" plan one
is "plan" 0 "$rc"
has "plan shows ids and place" '"uid": 7871' "$out"
call "" check
is "check" 0 "$rc"
asker=as_caller
for refusal in \
	'ephemeral:"path": "'"$roots"'/persistent"' \
	'persistent:"name": "notlisted"' \
	'users:'"$one"', "user": "nobody"' \
	'network:'"$one"', "ip4": "inherit"' \
	'network:'"$one"', "ip4": ["10.0.2.15"]' \
	'mounts:'"$one"', "mounts": [{"path": "/etc", "at": "/work"}]' \
	'allow:'"$one"', "allow": ["raw_sockets"]'; do
	registry "$(entry "${refusal#*:}" "$echo_script")" "$second"
	run "" one
	is "policy refuses '${refusal#*:}' by its rule alone" "77 helper: refused by rule '${refusal%%:*}'" "$rc $err"
done
asker=as_root
for bad in "$one"', "exec.prestart": "/bin/sh"' "$one"', "ip4": ["em0|127.0.0.1"]' '"path": "/usr/local/../etc"' "$one"', "user": "0:0"'; do
	registry "$(entry "$bad" "$echo_script")" "$second"
	call "" plan one
	is "a registry with '$bad' is a bad file" "78 registry" "$rc $(rule)"
done
asker=as_caller
registry "$(entry "$one" "$echo_script")" "$second"
rc=$(chroot -u nobody -g colibri / "$helper" sweep >/dev/null 2>"$work/err"; echo $?)
is "a wrong uid in the right group" 77 "$rc"
err=$(chroot -u colibri -g nobody / "$helper" sweep 2>&1)
has "a right uid in the wrong group: not started" "Permission denied" "$err"
if [ -x /usr/bin/limits ]; then
	out=$(as_root /usr/bin/limits -H -f 0 -t 1 -n 16 "$helper" plan one 2>&1)
	has "limits on file size, CPU time and descriptors, set before: no effect" '"uid": 7871' "$out"
fi
if has_mac_do; then
	rules=$(sysctl -n security.mac.do.rules)
	mdo_rule
	chmod u-s "$helper"
	new_session
	digest=$(digest_of one)
	{ printf 'hello\n' | as_caller /usr/bin/mdo -i -u root -- "$helper" run --session "$session" --digest "$digest" one \
		2>&1 1>&3 3>&- | cat >"$work/err"; } 3>&1 | cat >"$work/out"
	is "mdo mode: the server answers" hello "$(cat "$work/out")"
	has "mdo mode: started" "helper: started" "$(cat "$work/err")"
	chmod u+s "$helper"
	sysctl security.mac.do.rules="$rules" >/dev/null
	clean "mdo mode"
else
	skip "mdo mode" "no mac_do here"
fi
}

section_sudo() {
echo "# sudo mode"
if [ ! -x /usr/local/bin/sudo ]; then
	skip "sudo mode" "there is no /usr/local/bin/sudo: it is not in the base system"
	return
fi
has "a sudo is installed" sudo "$(/usr/local/bin/sudo --version 2>&1 | head -1)"
aside /usr/local/etc/sudoers
aside /usr/local/etc/sudoers.d
mkdir -p /usr/local/etc/sudoers.d
sed 's|%%PREFIX%%|/usr/local|' "$tree/port/files/sudoers.in" >/usr/local/etc/sudoers.d/colibri
chmod 440 /usr/local/etc/sudoers.d/colibri
echo '@includedir /usr/local/etc/sudoers.d' >/usr/local/etc/sudoers
chmod 440 /usr/local/etc/sudoers
registry "$served" "$hosted"
chmod 550 "$helper"
new_session
digest=$(digest_of one)
err=$(as_caller /usr/local/bin/sudo -n -- /usr/bin/id 2>&1)
report $((! $?)) "sudo: the line that ships lets the caller run nothing else" "$err"
err=$(as_caller /usr/local/bin/sudo -n -- "$helper" sweep 2>&1)
is "sudo: the helper reaches root" 0 $?
is "sudo: it is silent about the line that ships" "" "$err"
for mode in sudo helper; do
	daemon_start --priv-mode $mode
	has "priv mode $mode, a helper that is not setuid: a call is answered from a jail through sudo" hello-there "$(ask one)"
	has "priv mode $mode: a sudo stands above the helper" "/usr/local/bin/sudo -n -- $helper run" "$(ps -axww -o user,command | grep "[s]udo -n")"
	has "priv mode $mode: it has a jail" "jid" "$(servers)"
	has "priv mode $mode: a server on the host answers" hello-there "$(ask two)"
	before=$(date +%s.%N)
	kill -9 "$daemon_pid"
	until_true 60 no_server && in_time 2 "$before"
	report $? "priv mode $mode: kill -9 of the daemon ends all of it within 2 s" "$took $(demo_servers)"
	clean "priv mode $mode"
done
out=$("$client" --socket "$socket" --json doctor --root --priv-mode sudo --state-dir "$dir/state" 2>&1)
has "doctor --root --priv-mode sudo reaches root" '"good"' "$(echo "$out" | grep -A 2 'reaches root')"
rm -f /usr/local/etc/sudoers.d/colibri
daemon_start --priv-mode sudo
lacks "sudo without its line: no answer" hello-there "$(ask one 2)"
is "the server has failed" failed "$(server_state one)"
daemon_stop
chmod 4550 "$helper"
clean "sudo mode"
}

# doctor on a host where everything is as it must be, and where one thing is not. Needs the running service.
section_doctor() {
out=$("$client" --socket "$socket" --json doctor --root --state-dir "$dir/state" 2>&1)
is "doctor --root on a prepared host finds nothing bad" "" "$(echo "$out" | amiss)"
[ "$(echo "$out" | grep -c '"outcome": "good"')" -ge 10 ]
report $? "and ten facts or more good" "$out"
case "$(uname -r)" in
15.1-RELEASE | 15.1-RELEASE-p[123])
	has "doctor names the patch level that this kernel needs" "15.1-RELEASE-p4" "$(echo "$out" | grep 'is open to')" ;;
*) skip "doctor names the patch level that this kernel needs" "$(uname -r) is patched, or not known" ;;
esac
doctor() { "$client" --socket "$socket" --json doctor --root --state-dir "$dir/state" 2>&1; }
# wrong_facts NUMBER WHAT: doctor's status is 1, and so many facts are bad, each with a remedy.
wrong_facts() {
	out=$(doctor)
	is "doctor --root: $2" "1 $1" "$? $(echo "$out" | amiss | wc -l | tr -d ' ')"
	is "doctor --root: it says of each what to do" "$(echo "$out" | grep -c '"outcome": "bad"')" \
		"$(echo "$out" | grep -A 2 '"outcome": "bad"' | grep -c '"do"')"
	echo "$out" | amiss | sed 's/^/# bad: /'
}
chmod 4555 "$helper"
wrong_facts 1 "a helper that others may execute"
chmod 4550 "$helper"
install -d "$roots/one/spool"
chmod 1777 "$roots/one/spool"
wrong_facts 1 "a root in which others may make a directory"
rmdir "$roots/one/spool"
rmdir "$roots/one/tmp"
# The helper refuses it as well.
wrong_facts 2 "a root without tmp"
mkdir "$roots/one/tmp"
out=$(doctor)
is "doctor --json: no fact is bad" "" "$(echo "$out" | amiss)"
if [ "$(sysctl -n vm.pmap.pg_ps_enabled 2>/dev/null)" = 1 ]; then
	has "doctor notes what no limit counts" '"note"' "$(echo "$out" | grep -A 1 'no large pages')"
else
	skip "doctor notes what no limit counts" "this kernel has no large pages"
fi
}

section_service() {
echo "# the service"
pw groupshow mcpusers >/dev/null 2>&1 || pw groupadd mcpusers
install_service
cat >"$rc_conf" <<-CONF
	colibri_mcp_enable=YES
	colibri_mcp_external_call=YES
	colibri_mcp_host_servers=YES
	colibri_mcp_socket=$socket
	colibri_mcp_state_dir=$dir/state
	CONF
rm -rf "$dir"
rm -f "$etc/clients.json"
registry "$served" "$hosted"
out=$(service colibri_mcp status 2>&1)
is "service status before: not running" 1 $?
out=$(service colibri_mcp start 2>&1)
report $? "service start" "$out"
out=$(service colibri_mcp status 2>&1)
report $? "service status" "$out"
is "pid files belong to root alone" "root 600 root 600" "$(stat -f '%Su %Lp' /var/run/colibri_mcp.pid /var/run/colibri_mcpd.pid | tr '\n' ' ' | sed 's/ $//')"
is "the daemon is not root" colibri "$(ps -o user= -p "$(cat /var/run/colibri_mcpd.pid)")"
is "the socket's directory is for the group" "colibri mcpusers 750" "$(stat -f '%Su %Sg %Lp' "$dir")"
has "service: a call is answered from a jail" hello-there "$(ask one)"
has "service: a call is answered from the host" hello-there "$(ask two)"
section_doctor
out=$(service colibri_mcp configtest 2>&1)
report $? "service configtest" "$out"
pid=$(cat /var/run/colibri_mcpd.pid)
registry "$served" "$second"
out=$(service colibri_mcp reload 2>&1)
report $? "service reload" "$out"
reloaded() { servers | grep '^ *two' | grep -q jail; }
reloaded
report $? "reload: the new registry is in force when it ends" "$(servers)"
is "reload: the same daemon" "$pid" "$(cat /var/run/colibri_mcpd.pid)"
good=$(cat "$etc/external-mcp.json")
echo '{"servers": {"one": {"comand": "/bin/sh"}}}' >"$etc/external-mcp.json"
out=$(service colibri_mcp configtest 2>&1)
[ $? -ne 0 ]
report $? "configtest with a bad file fails" "$out"
out=$(service colibri_mcp reload 2>&1)
[ $? -ne 0 ]
report $? "reload with a bad file is refused" "$out"
out=$(service colibri_mcp restart 2>&1)
[ $? -ne 0 ]
report $? "restart with a bad file is refused" "$out"
is "the daemon goes on" "$pid" "$(cat /var/run/colibri_mcpd.pid)"
has "and serves" hello-there "$(ask one)"
echo "$good" >"$etc/external-mcp.json"
out=$(service colibri_mcp restart 2>&1)
report $? "service restart" "$out"
[ "$pid" != "$(cat /var/run/colibri_mcpd.pid)" ]
report $? "restart: another daemon" "$pid, $(cat /var/run/colibri_mcpd.pid)"
has "restart: it serves" hello-there "$(ask one)"
pid=$(cat /var/run/colibri_mcpd.pid)
kill -9 "$pid"
another() { now=$(cat /var/run/colibri_mcpd.pid 2>/dev/null) && [ -n "$now" ] && [ "$now" != "$pid" ] && [ -S "$socket" ] && ask one | grep -q hello-there; }
until_true 40 another
report $? "the daemon killed: daemon(8) starts it again, and it serves" "$pid, $(cat /var/run/colibri_mcpd.pid 2>/dev/null)"
pid=$(cat /var/run/colibri_mcpd.pid)
kill -9 "$(cat /var/run/colibri_mcp.pid)"
out=$(service colibri_mcp status 2>&1)
report $? "daemon(8) killed: the service runs, since the daemon serves" "$out"
has "status names the daemon" "$pid" "$out"
has "it serves" hello-there "$(ask one)"
out=$(service colibri_mcp restart 2>&1)
report $? "daemon(8) killed: restart" "$out"
[ "$pid" != "$(cat /var/run/colibri_mcpd.pid)" ]
report $? "another daemon serves" "$pid, $(cat /var/run/colibri_mcpd.pid)"
kill -9 "$(cat /var/run/colibri_mcp.pid)"
out=$(service colibri_mcp stop 2>&1)
report $? "daemon(8) killed: stop" "$out"
clean "daemon(8) killed"
out=$(service colibri_mcp start 2>&1)
report $? "service start after it" "$out"
section_service_environment
echo 'colibri_mcp_svcj=YES' >>"$rc_conf"
out=$(service colibri_mcp restart 2>&1)
report $((! $?)) "a service jail is refused" "$out"
sed -i '' '/svcj/d' "$rc_conf"
out=$(service colibri_mcp stop 2>&1)
report $? "service stop" "$out"
clean "service stop"
is "stop leaves no daemon" "" "$(pgrep -f "$daemon")"
is "stop leaves no jail" "" "$(our_jails)"
trail=$("$client" trail verify --state-dir "$dir/state" 2>&1)
report $? "the trail of all of it verifies" "$trail"
rm -f "$rc_conf"
}

# The priv mode in the daemon's environment holds, unless the variable says otherwise.
section_service_environment() {
if ! has_mac_do; then
	skip "COLIBRI_JAIL_PRIV_MODE in colibri_mcp_env" "no mac_do here"
	return
fi
rules=$(sysctl -n security.mac.do.rules)
mdo_rule
# The service does not start with a helper that is not setuid, unless that becomes root another way.
chmod u-s "$helper"
out=$(service colibri_mcp configtest 2>&1)
report $((! $?)) "a helper that is not setuid: refused" "$out"
cp "$rc_conf" "$work/rc_conf"
echo 'colibri_mcp_env="COLIBRI_JAIL_PRIV_MODE=mdo"' >>"$rc_conf"
out=$(service colibri_mcp configtest 2>&1)
report $? "COLIBRI_JAIL_PRIV_MODE=mdo in colibri_mcp_env: not refused" "$out"
out=$(service colibri_mcp restart 2>&1)
report $? "restart" "$out"
has "a call is answered from a jail, which it reaches by mdo(1)" hello-there "$(ask one)"
echo 'colibri_mcp_priv_mode=helper' >>"$rc_conf"
out=$(service colibri_mcp configtest 2>&1)
report $((! $?)) "colibri_mcp_priv_mode=helper besides: that counts" "$out"
cp "$work/rc_conf" "$rc_conf"
chmod u+s "$helper"
sysctl security.mac.do.rules="$rules" >/dev/null
out=$(service colibri_mcp restart 2>&1)
report $? "restart without all that" "$out"
}

# --- 11: hardening ----------------------------------------------------------------------------------------------------

descriptors() {
	procstat -hf "$1" | awk '$3 ~ /^[0-9]+$/ {print $4}' | sort | uniq -c | awk '{print $2 "=" $1}' | tr '\n' ' '
}

section_11() {
echo "# 11 hardening: what an instance has, each of its lines"
mkdir -p "$roots/shared/project"
chown -R "$suid" "$roots/shared"
memory=
has_racct && memory='"memory": "512M", '
hardened() {
	printf '{"command": "%s", "args": ["facts-and-wait"], "env": {"COLOUR": "blue"}, "cwd": "/tmp", "jail": {%s, ' "$inmate" "$one"
	printf '"mounts": [{"path": "%s", "at": "/work", "write": %s}], ' "$roots/shared/project" "$1"
	printf '"limits": {%s"open_files": 64, "file_size": "8M"}}}' "$memory"
}
registry "$(hardened true)" "$second"
rm -rf "$state"
loosen
through="$inmate burdened"
start a one
through=
until_true 60 settled a '^end'
tighten
session=$(cat "$work/a.session")
# The kernel lets no data segment be larger than its own limit for all.
address_space='1099511627776 1099511627776' swap='17179869184 17179869184'
data_segment="$(sysctl -n kern.maxdsiz) $(sysctl -n kern.maxdsiz)"
if has_racct; then
	address_space='536870912 536870912'
	swap=$address_space
	data_segment=$address_space
fi
# A kernel shows the effective group in the list to programs that were linked before 15. A program may ask for a larger
# stack than the soft limit gives.
is "what the server is told of itself, all of it" "uid $suid $suid
gid $suid $suid
groups 0
fds 0 1 2
limit cpu infinity infinity
limit fsize 8388608 8388608
limit data $data_segment
limit stack (its own) 67108864
limit core 0 0
limit rss $address_space
limit memlock 65536 65536
limit nproc 60 60
limit nofile 64 64
limit sbsize 16777216 16777216
limit as $address_space
limit npts 32 32
limit swap $swap
limit kqueues 1024 1024
limit umtx 1024 1024
limit pipebuf 16777216 16777216
umask 2
blocked 0
ignored 0
timer 0 0
leader true
nice 0
no_new_privs 1
traceable -1
death signal 9
class colibri-$session
env COLOUR=blue
env HOME=/tmp
env LANG=C.UTF-8
env PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin
cwd /tmp
end" "$(sed -E '/^ls /d; s/^groups 1$/groups 0/; s/^(limit stack) [0-9]+/\1 (its own)/' "$work/a.out")"
supervisor=$(supervisor_of a)
outer=$(ps -o ppid= -p "$supervisor" | tr -d ' ')
parameters=$(jls -n -j "colibri-$session" | tr ' ' '\n')
is "the jail's permissions where the host's defaults are all on: none but suser" "allow.suser" \
	"$(echo "$parameters" | grep '^allow\.' | grep -v -E '^allow\.([a-z_]+\.)*no[a-z_]+$')"
is "its other parameters" "children.max=0 enforce_statfs=2 ip4=disable ip6=disable sysvmsg=disable sysvsem=disable sysvshm=disable" \
	"$(echo "$parameters" | grep -E '^(children.max|enforce_statfs|ip[46]|sysv[a-z]*)=' | sort | tr '\n' ' ' | sed 's/ $//')"
has_mac_do && has "mac.do is off in it" "mac.do=disable" "$(echo "$parameters" | grep '^mac.do')"
is "its mounts and their options" "nullfs $state/$session/root ro,nosuid
devfs $state/$session/root/dev rw
tmpfs $state/$session/root/tmp rw,nosuid
nullfs $state/$session/root/work rw,nosuid" "$(our_mounts | awk '{print $3, $2, $4}')"
is "its /dev" "ls /dev fd null random stderr stdin stdout urandom zero" "$(grep '^ls /dev' "$work/a.out")"
is "its /tmp is of 2 MiB" 2048 "$(df -k "$state/$session/root/tmp" | awk 'NR == 2 {print $2}')"
is "its /tmp is everybody's, and sticky" 1777 "$(stat -f '%Mp%Lp' "$state/$session/root/tmp")"
has_racct && is "its resource rules" "$(
	for rule in maxproc:deny=60 nthr:deny=4096 swapuse:deny=536870912 vmemoryuse:deny=536870912; do
		echo "loginclass:colibri-$session:$rule"
	done | tr '\n' ' ' | sed 's/ $//')" \
	"$(rctl | grep "$session" | sort | tr '\n' ' ' | sed 's/ $//')"
is "the caller's umask of 0777 has no effect on the record" "700 700 600 600 600" \
	"$(cd "$state" && stat -f %Lp . "$session" "$session/record" "$session/stop" lock | tr '\n' ' ' | sed 's/ $//')"
is "supervisor and server lead sessions of their own" "$supervisor yes" \
	"$(ps -o sid= -p "$supervisor" | tr -d ' ') $(grep -q 'leader true' "$work/a.out" && echo yes)"
is "the helper's directory is /, not the caller's" "/ /" \
	"$(for process in "$outer" "$supervisor"; do procstat -hf "$process" | awk '$3 == "cwd" {print $NF}'; done | tr '\n' ' ' | sed 's/ $//')"
lacks "no descriptor of the caller's is open in the supervisor" /var/tmp "$(procstat -hf "$supervisor")"
is "the outer process holds no pipe" "v=3" "$(descriptors "$outer" | sed 's/ $//')"
is "the supervisor holds the lifeline and a copy of stderr, and no stdout" "p=2" "$(descriptors "$supervisor" | tr ' ' '\n' | grep '^p=')"
for process in "$outer" "$supervisor"; do
	has "no debugger may trace the helper's processes" "disabled" "$(proccontrol -m trace -q -p "$process" 2>&1)"
done
for signal in HUP INT QUIT PIPE ALRM TSTP TTIN TTOU USR1 USR2 XFSZ; do
	kill -$signal "$supervisor" "$outer"
done
kill -TERM "$outer"
sleep 1
is "signals that a terminal could send change nothing" "$outer $supervisor" "$(ps -o pid= -o state= -p "$outer,$supervisor" | awk '$2 !~ /[TZ]/ {print $1}' | sort -n | tr '\n' ' ' | sed 's/ $//')"
has "nor do they end the server" "$session" "$(jls name)"
call "" run --session "$session" --digest "$(digest_of one)" one
is "a session that is there already: try later" 75 "$rc"
kill -TERM "$supervisor"
until_true 30 ended a
is "SIGTERM to the supervisor is the order to end" 143 "$(cat "$work/a.rc")"
clean "hardening"
kill -9 "$(cat "$work/a.feed")" 2>/dev/null

registry "$(hardened false)" "$second"
start a one
until_true 60 settled a '^end'
has "a directory shown for reading is read-only and nosuid" "nullfs $state/$(cat "$work/a.session")/root/work ro,nosuid" "$(our_mounts | awk '{print $3, $2, $4}')"
finish a
clean "shown for reading"
section_hardened_start
section_hardened_sweep
}

# What refuses a start.
section_hardened_start() {
mkdir -p "$roots/shared/project"
rm -f "$roots/shared/project"/*
chown -R "$suid" "$roots/shared"
registry "$(entry "$one" "$echo_script")" "$second"
new_session
err=$( (as_caller "$helper" run --session "$session" --digest "$(digest_of one)" one </dev/null; echo "status $?") 2>&1 | cat)
is "a standard input that is no pipe is refused" "pipes status 64" "$(rule) $(echo "$err" | grep status)"
for path in "$roots" "$roots/one/bin"; do
	jail -c name=colibritest path="$path" persist ip4=disable ip6=disable >/dev/null
	run "" one
	is "a live jail at $path: refused" "77 helper: refused by rule 'jail path'" "$rc $err"
	jail -q -r colibritest
done
for wrong in "chown 1" "chmod g+w"; do
	$wrong "$roots/one"
	run "" one
	is "after '$wrong' of the root: refused" 78 "$rc"
	chown 0 "$roots/one"
	chmod 755 "$roots/one"
done
chown colibri "$etc/external-mcp.json"
run "" one
is "a registry that is not root's: refused" 78 "$rc"
chown root "$etc/external-mcp.json"
mount -t tmpfs tmpfs "$roots/one/work"
run "" one
is "a root with something mounted below it: refused" 78 "$rc"
umount "$roots/one/work"
# The helper's own set of devfs rules, 0xc011, with a rule of somebody else's in it.
devfs rule -s 49169 add 100 path mem unhide
run "" one
is "a /dev that shows memory: refused" 71 "$rc"
devfs rule -s 49169 del 100
chmod 755 "$state"
run "" one
is "a state directory that others may read: refused" 78 "$rc"
chmod 700 "$state"
if [ -S /var/run/log ] && pgrep -F /var/run/syslog.pid >/dev/null 2>&1; then
	policy
	sed -i '' 's/"audit": "best-effort"/"audit": "require"/' "$etc/jail-policy.json"
	service syslogd onestop >/dev/null 2>&1
	run "" one
	is "no syslogd, and the policy requires one: refused" 71 "$rc"
	service syslogd onestart >/dev/null 2>&1
	until_true 20 test -S /var/run/log
	run 'heard\n' one
	is "with syslogd it starts" heard "$out"
	policy
else
	skip "the policy requires a syslogd" "none runs here"
fi
run 'hello\n' one
is "with all of that undone it starts" hello "$out"
nc -lkU "$roots/shared/project/socket" >/dev/null 2>&1 &
listener=$!
until_true 20 test -S "$roots/shared/project/socket"
chmod 777 "$roots/shared/project/socket"
talk='nc -N -U %s/socket </dev/null && echo REACHED'
# shellcheck disable=SC2059 # the format is above
has "a socket in a shown directory: the same user on the host reaches it" REACHED \
	"$(chroot -u "$suid" -g "$suid" / /bin/sh -c "$(printf "$talk" "$roots/shared/project")" 2>&1)"
# shellcheck disable=SC2059
registry "$(entry "$one, \"mounts\": [{\"path\": \"$roots/shared/project\", \"at\": \"/work\", \"write\": true}]" \
	"ls /work; $(printf "$talk" /work)")" "$second"
run "" one
is "the server sees it, and does not reach it" socket "$out"
kill "$listener"
rm -f "$roots/shared/project/socket"
clean "refused starts"
}

# What a sweep, and the end of others, leaves alone; and what outlives a parent.
section_hardened_sweep() {
registry "$(entry "$one" 'echo ready; while read -r line; do echo "$line"; done')" "$second"
new_session
sh -c '{ sleep 6113 | "$0" mortal "$1" run --session "$2" --digest "$3" one 2>&1 1>&3 3>&- | cat >&2; } 3>&1 | cat >"$4"' \
	"$inmate" "$helper" "$session" "$(digest_of one)" "$work/mortal.out" 2>/dev/null &
: >>"$work/mortal.out"
until_true 60 grep -q ready "$work/mortal.out"
outer=$(pgrep -f "^$helper run --session $session" | sort -n | head -1)
kill -9 "$(ps -o ppid= -p "$outer" | tr -d ' ')"
sleep 2
is "root's helper outlives its parent, though the death signal was set before" "$outer" "$(pgrep -f "^$helper run --session $session" | sort -n | head -1)"
pkill -9 -f '^sleep 6113'
clean "outlived its parent"

"$inmate" in-class colibri-developers /bin/sleep 600 &
person=$!
start a one
until_true 60 settled a ready
next_session=$(head -c 9 "$work/a.session")fffffff
start b one
next_session=
until_true 60 settled b ready
kill -9 "$(supervisor_of b)"
until_true 30 ended b
call "" sweep
is "a sweep" "0 " "$rc $err"
is "a login class of a person's that begins as ours do is left alone" "$person" "$(ps -o pid= -p "$person" | tr -d ' ')"
kill -9 "$person" 2>/dev/null
echo "still here" >>"$work/a.in"
until_true 10 said a "still here"
has "so is an instance whose session begins as the swept one's" "still here" "$(cat "$work/a.out")"
kill -9 "$(cat "$work/b.feed")" 2>/dev/null
finish a
jail -c name=colibritest path="$roots/persistent" persist ip4=disable ip6=disable >/dev/null
registry "$(entry '"name": "colibritest", "user": "one"' '(sleep 600 & sleep 600) & echo ready; read -r line')" "$second"
start a one
until_true 60 settled a ready
kill -9 "$(supervisor_of a)"
until_true 30 ended a
rm -rf "${state:?}/$(cat "$work/a.session")"
call "" sweep
is "what no record tells of any more is swept all the same" "0 " "$rc $err$(our_processes)"
kill -9 "$(cat "$work/a.feed")" 2>/dev/null
clean "sweep"
jail -q -r colibritest
}

# --- 12: cost ---------------------------------------------------------------------------------------------------------

plainly() {
	echo hello | /bin/sh -c "$echo_script" | cat
}

by_helper() {
	counter=$((counter + 1))
	{ echo hello | as_caller "$helper" run --session "$(printf '%016x' "$counter")" --digest "$digest" one 2>&1 1>&3 3>&- | cat; } 3>&1 | cat
}

by_hand() {
	at=$work/by-hand
	mkdir -p "$at"
	mount -t nullfs -o ro,nosuid "$roots/one" "$at"
	mount -t devfs -o ruleset=4 devfs "$at/dev"
	mount -t tmpfs -o nosuid,size=2m tmpfs "$at/tmp"
	echo hello | jail -c path="$at" ip4=disable ip6=disable command=/bin/sh -c "$echo_script" | cat
	umount "$at/tmp" "$at/dev" "$at"
}

section_12() {
echo "# 12 what a start costs"
registry "$(entry "$one" "$echo_script")" "$second"
digest=$(digest_of one)
has "the helper answers" hello "$(by_helper)"
has "so does jail(8)" hello "$(by_hand)"
plainly_ns=0 by_hand_ns=0 by_helper_ns=0
# In turn, so that what else the machine does falls on all three.
for _ in 1 2 3 4 5 6 7 8 9 10; do
	for way in plainly by_hand by_helper; do
		before=$(date +%s%N)
		$way >/dev/null 2>&1
		eval "${way}_ns=\$((${way}_ns + $(date +%s%N) - before))"
	done
done
[ "$by_helper_ns" -le $((by_hand_ns * 2)) ]
report $? "start, answer and teardown take at most twice what jail(8) and mount(8) take by hand" \
	"by the helper $((by_helper_ns / 10000000)) ms, by hand $((by_hand_ns / 10000000)) ms, without a jail $((plainly_ns / 10000000)) ms: $(
		echo "scale=2; $by_helper_ns / $by_hand_ns; $by_helper_ns / $plainly_ns" | bc | tr '\n' ' ')"
clean "cost"
}

# --- all --------------------------------------------------------------------------------------------------------------

[ $# -gt 0 ] || set -- 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 limits linux learn mounts
for section; do
	"section_$section"
done
echo "1..$number"
exit $((failed > 0))
