# Section 15: the bridge on loopback, the mirror of notes and git in their jails. Sourced by run.sh.
# shellcheck shell=sh disable=SC2154,SC2034 # names of run.sh

bridge=/usr/local/bin/chibi-mcp-bridge
op=colibri-op
op_uid=7873
other_uid=7874
op_home=$roots/op

# by UID COMMAND…: as this user, with nothing of this shell.
by() {
	uid=$1
	shift
	chroot -u "$uid" -g "$uid" -G "$uid" / /usr/bin/env -i PATH=/bin:/usr/bin "$@"
}

# The bridge's owner, who may reach the service's socket.
by_op() {
	chroot -u "$op_uid" -g "$op_uid" -G "$op_uid,$(id -g colibri)" / /usr/bin/env -i PATH=/bin:/usr/bin \
		COLIBRI_MCP_SOCKET="$socket" COLIBRI_MCP_END_IDLE=5 "$@"
}

by_other() {
	by "$other_uid" "$@"
}

by_root() {
	as_root PATH=/bin:/usr/bin "$@"
}

in_jail() {
	jexec colibritest /usr/sbin/chroot -u "$op_uid" -g "$op_uid" -G "$op_uid" / /usr/bin/env -i PATH=/bin:/usr/bin "$@"
}

listens() {
	grep -q 'listening on' "$work/bridge.err" || [ -s "$work/bridge.rc" ]
}

# bridge_start COMMAND…: a bridge, started by this command; its home is $home.
bridge_start() {
	rm -f "$work/bridge.rc"
	: >"$work/bridge.err"
	{
		"$@" CHIBI_HOME="$home" "$bridge" </dev/null >"$work/bridge.out" 2>"$work/bridge.err"
		echo $? >"$work/bridge.rc"
	} 2>/dev/null &
	until_true 30 listens
	address=$(sed -n 's/^\[mcp-bridge\] listening on //p' "$work/bridge.err")
	bridge_pid=$(lock_says pid)
}

# What the bridge said of connections that it refused, once a minute at most.
refused_by_bridge() {
	sed -n '/refused/{/offered/!p;}' "$work/bridge.err"
}

lock_says() {
	sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p" "$home/mcp-bridge.lock" 2>/dev/null
}

bridge_ended() {
	[ -s "$work/bridge.rc" ]
}

# bridge_end [SIGNAL]
bridge_end() {
	[ -z "$bridge_pid" ] || kill -"${1:-TERM}" "$bridge_pid"
	until_true 30 bridge_ended
}

# request REQUEST COMMAND…: what the bridge answers to this command's client, which closes its half and waits.
request() {
	said=$1
	shift
	printf '%s\n' "$said" | "$@" /usr/bin/nc -N -w 60 "${address%:*}" "${address##*:}" 2>&1
}

called() {
	printf '{"op":"call_tool","server":"%s","tool":"%s","args":%s}' "$1" "$2" "$3"
}

list='{"op":"list_tools"}'
# A question whose answer needs no server, and the answer of a bridge that deals with who asks.
hello='{"op":"hello"}'
served_by='{"error":"unknown op: hello","ok":false}'

no_process_of_op() {
	[ -z "$(pgrep -u "$op_uid")" ]
}

# What of this section would outlive it if it were broken off.
integrations_restored() {
	pgrep -u "$op_uid,60822,60823" | xargs kill -9 2>/dev/null
	ifconfig lo0 inet 127.0.1.5 -alias 2>/dev/null
	[ ! -f "$work/see" ] || xargs sysctl <"$work/see" >/dev/null
}

# What a section that runs alone needs.
integrations_prepared() {
	aside "$bridge"
	install -m 755 "$bin/chibi-mcp-bridge" "$bridge"
	sysctl -e security.bsd.see_other_uids security.bsd.see_other_gids security.bsd.see_jail_proc >"$work/see"
	install -d -o "$op_uid" -g "$op_uid" -m 755 "$op_home"
	home=$op_home/chibi
	install -d -o "$op_uid" -g "$op_uid" -m 700 "$home"
	policy
}

listed() {
	request "$list" by_op >"$work/listed"
	grep -q '"server":"own"' "$work/listed"
}

own_server() {
	cat >"$home/mcp-bridge.toml" <<-TOML
	[servers.own]
	command = "$client"
	args = ["demo-server", "--notes", "$op_home/kept"]
	TOML
	chown "$op_uid:$op_uid" "$home/mcp-bridge.toml"
}

section_15() {
echo "# 15 the bridge, the mirror of notes, git"
integrations_prepared
section_bridge
section_bridge_peers
section_bridge_jails
section_bridge_lock
section_bridge_ends
section_bridge_library
section_notes
section_git
integrations_restored
policy
}

section_bridge() {
echo "# the bridge"
# An empty home, and no service that could be reached.
bridge_start by "$op_uid" COLIBRI_MCP_SOCKET=
is "a user's bridge listens on 127.0.0.1" "127.0.0.1" "${address%:*}"
is "and nowhere else" "$address" "$(sockstat -46l | awk -v pid="$bridge_pid" '$3 == pid {print $6}')"
is "its lock is its user's alone" "$op_uid 600" "$(stat -f '%u %Lp' "$home/mcp-bridge.lock")"
is "and says where it listens" "$address" "$(lock_says address)"
is "its user is answered" "$served_by" "$(request "$hello" by "$op_uid")"
is "a client that waits for the answer before it closes is answered, too" "$served_by" \
	"$(printf '%s\n' "$hello" | { cat; sleep 5; } | by "$op_uid" /usr/bin/nc -w 60 127.0.0.1 "${address##*:}" 2>&1)"
askers=
for n in $(jot 40); do
	request "$hello" by "$op_uid" >"$work/asker.$n" &
	askers="$askers $!"
done
# shellcheck disable=SC2086 # process ids
wait $askers
is "forty at once are answered" 40 "$(cat "$work"/asker.* | grep -cF "$served_by")"
bridge_end

registry "$served" "$second"
install -d -o "$op_uid" -g "$op_uid" -m 700 "$op_home/kept"
own_server
daemon_start
has "the service serves" hello-there "$(ask one)"
bridge_start by_op
# A list waits for no server that takes its time to start.
until_true 60 listed
out=$(cat "$work/listed")
has "tools of the user's own server, which a private daemon runs" '"server":"own"' "$out"
has "and of the service's, which has a jail" '"server":"one"' "$out"
is "a call of one's own" '{"ok":true,"result":"hello-there"}' "$(request "$(called own echo '{"text":"hello-there"}')" by_op)"
is "a call of the service's" '{"ok":true,"result":"hello-there"}' "$(request "$(called one echo '{"text":"hello-there"}')" by_op)"
has "the service knows who called" "$op_uid" "$("$client" trail show --state-dir "$dir/state" --last 40 2>&1 | grep ' one echo ' | tail -2)"
has "a schema" '"ok":true,"schema":{' "$(request '{"op":"get_schema","server":"own","tool":"echo"}' by_op)"
is "an unknown server" '{"error":"unknown server: nowhere","ok":false}' "$(request "$(called nowhere echo '{}')" by_op)"
is "the private daemon and its server are the user's" "$op_uid" "$(ps -axo uid,command | awk '/colibri-mcpd --private|demo-server --notes .*kept/ && !/awk/ {print $1}' | sort -u)"
is "standard output says nothing" "" "$(cat "$work/bridge.out")"
bridge_end
is "SIGTERM ends it as such" 143 "$(cat "$work/bridge.rc")"
[ ! -e "$home/mcp-bridge.lock" ]
report $? "and takes its lock away" "$(ls "$home")"
daemon_stop
until_true 60 no_process_of_op
is "the private daemon ends by itself: no process of the user's is left" "" "$(pgrep -lf -u "$op_uid")"
rm -rf "${home:?}/mcp-bridge" "$home/mcp-bridge.toml"
clean "the bridge"
}

# Who is served: the kernel's table says whose the other end is.
section_bridge_peers() {
echo "# peers"
bridge_start by "$op_uid"
is "another user's connection is closed without a word" "" "$(request "$hello" by_other)"
has "the bridge says whose it was" "uid $other_uid" "$(refused_by_bridge)"
is "root's is, too" "" "$(request "$hello" by_root)"
is "nobody's is, too" "" "$(request "$hello" by 65534)"
is "and its user is served as before" "$served_by" "$(request "$hello" by "$op_uid")"
bridge_end
bridge_start by "$op_uid"
is "to a new bridge root comes first: refused" "" "$(request "$hello" by_root)"
has "which says so" "uid 0" "$(refused_by_bridge)"
bridge_end
sysctl security.bsd.see_other_uids=0 security.bsd.see_other_gids=0 >/dev/null
bridge_start by "$op_uid"
is "where users do not see each other: another's connection is closed" "" "$(request "$hello" by_other)"
is "the bridge cannot see whose it was, and names nobody" "1 0" \
	"$(refused_by_bridge | wc -l | tr -d ' ') $(refused_by_bridge | grep -c uid)"
is "and sees its own user's" "$served_by" "$(request "$hello" by "$op_uid")"
bridge_end
xargs sysctl <"$work/see" >/dev/null

# A bridge that is stopped accepts nothing, so that what waits for it is in a state that is known.
own_server
bridge_start by "$op_uid" COLIBRI_MCP_END_IDLE=5
has "a note is written" '"ok":true' "$(request "$(called own write_note '{"name":"first","text":"x"}')" by "$op_uid")"
kill -STOP "$bridge_pid"
request "$(called own write_note '{"name":"gone","text":"x"}')" by "$op_uid" >/dev/null &
until_true 20 eval 'netstat -anp tcp | grep "${address##*:}" | grep -q FIN_WAIT_2'
before=$(netstat -anp tcp | awk -v port="${address##*:}" '$0 ~ port {print $6}' | sort | tr '\n' ' ')
pgrep -u "$op_uid" -x nc | xargs kill -9
request "$(called own write_note '{"name":"waits","text":"x"}')" by "$op_uid" >"$work/waits" &
until_true 20 eval '[ "$(netstat -anp tcp | grep "${address##*:}" | grep -c FIN_WAIT_2)" = 2 ]'
after=$(netstat -anp tcp | awk -v port="${address##*:}" '$0 ~ port {print $6}' | sort | tr '\n' ' ')
kill -CONT "$bridge_pid"
until_true 40 test -s "$work/waits"
has "who has half-closed and waits is served" '"ok":true' "$(cat "$work/waits")"
is "who has sent a request and is gone has nothing done" "first waits" "$(ls "$op_home/kept" | sed 's/\..*//' | tr '\n' ' ' | sed 's/ $//')"
is "the bridge says nothing of who is gone" "" "$(refused_by_bridge)"
echo "# states before and after: $before/ $after"
bridge_end
until_true 60 no_process_of_op
rm -rf "${home:?}/mcp-bridge" "$home/mcp-bridge.toml"

home=$work/root-home
install -d -m 700 "$home"
bridge_start as_root
is "root's bridge serves root" "$served_by" "$(request "$hello" by_root)"
is "and nobody else" "" "$(request "$hello" by "$op_uid")"
jail -c name=colibritest path=/ persist ip4=inherit >/dev/null
is "but, as the manual warns, the root of a jail that shares the host's network" "$served_by" "$(request "$hello" jexec colibritest)"
jail -q -r colibritest
has "which the bridge says" "uid $op_uid" "$(refused_by_bridge)"
bridge_end
home=$op_home/chibi
}

section_bridge_jails() {
echo "# the bridge and jails"
bridge_start by "$op_uid"
jail -c name=colibritest path=/ persist ip4=inherit >/dev/null
is "a jail that shares the host's network shares its users' numbers: the same uid is served" "$served_by" "$(request "$hello" in_jail)"
is "its root is not" "" "$(request "$hello" jexec colibritest)"
sysctl security.bsd.see_jail_proc=0 >/dev/null
is "where the host's users do not see into jails it is not served either" "" "$(request "$hello" in_jail)"
xargs sysctl <"$work/see" >/dev/null
jail -q -r colibritest
own=$(ifconfig | awk '$1 == "inet" && $2 !~ /^127/ {print $2; exit}')
bridge_end
if [ -n "$own" ]; then
	jail -c name=colibritest path=/ persist "ip4.addr=$own" >/dev/null
	bridge_start in_jail
	until_true 10 bridge_ended
	is "in a jail without a loopback address it does not start" 1 "$(cat "$work/bridge.rc")"
	has "and names the address that others reach" "$own" "$(cat "$work/bridge.err")"
	[ ! -e "$home/mcp-bridge.lock" ]
	report $? "it leaves no lock" "$(ls "$home")"
	jail -q -r colibritest
else
	skip "a jail without a loopback address" "this host has no other address"
fi
ifconfig lo0 inet 127.0.1.5/32 alias
jail -c name=colibritest path=/ persist ip4.addr=127.0.1.5 >/dev/null
bridge_start in_jail
is "in a jail with a loopback address it listens there" 127.0.1.5 "${address%:*}"
is "and serves its user in the jail" "$served_by" "$(request "$hello" in_jail)"
is "who is outside cannot be seen from there: the same uid on the host is refused" "" "$(request "$hello" by "$op_uid")"
bridge_end
jail -q -r colibritest
ifconfig lo0 inet 127.0.1.5 -alias
if has_vimage; then
	jail -c name=colibritest path=/ persist vnet >/dev/null
	ifconfig -j colibritest lo0 inet 127.0.0.1/8 up
	bridge_start in_jail
	is "in a jail with a network stack of its own it serves its user" "$served_by" "$(request "$hello" in_jail)"
	bridge_end
	jail -q -r colibritest
else
	skip "a jail with a network stack of its own" "no VIMAGE"
fi
}

# left PID TIMESTAMP [ADDRESS]: a lock that another bridge left.
left() {
	printf '{"address":"%s","heartbeat_secs":30,"pid":%s,"started":1,"timestamp":%s}' "${3:-127.0.0.1:9}" "$1" "$2" >"$home/mcp-bridge.lock"
	chown "$op_uid:$op_uid" "$home/mcp-bridge.lock"
}

section_bridge_lock() {
echo "# the lock"
bridge_start by "$op_uid"
first=$bridge_pid
out=$(by "$op_uid" CHIBI_HOME="$home" "$bridge" 2>&1)
is "a second bridge for the same home ends" "1 [mcp-bridge] another bridge runs for this home: process $first, listening on $address" "$? $out"
began=$(lock_says timestamp)
renewed() { [ "$(lock_says timestamp)" != "$began" ]; }
until_true 60 renewed
report $? "the lock is renewed" "$began, $(lock_says timestamp)"
is "by the same bridge" "$first" "$(lock_says pid)"
kill -9 "$first"
until_true 20 bridge_ended
[ -e "$home/mcp-bridge.lock" ]
report $? "SIGKILL leaves the lock" "$(cat "$home/mcp-bridge.lock")"
bridge_start by "$op_uid"
[ "$bridge_pid" != "$first" ]
report $? "which the next bridge replaces" "$first, $bridge_pid"
bridge_end KILL
for stale in "$$ $(date +%s)" "1 $(date +%s)" "999999 $(date +%s)" "$$ 1"; do
	left "${stale% *}" "${stale#* }"
	bridge_start by "$op_uid"
	is "a lock of process ${stale% *}, which is none of the user's or old, is replaced" "$served_by" "$(request "$hello" by "$op_uid")"
	bridge_end
done
by "$op_uid" /bin/sleep 300 &
until_true 10 pgrep -u "$op_uid" -x sleep
left "$(pgrep -u "$op_uid" -x sleep)" "$(date +%s)"
bridge_start by "$op_uid"
is "a lock that looks alive is not" 1 "$(cat "$work/bridge.rc")"
pkill -u "$op_uid" -x sleep
rm -f "$home/mcp-bridge.lock"
ln -s "$work/precious" "$home/mcp-bridge.lock"
echo kept >"$work/precious"
bridge_start by "$op_uid"
is "a link in the lock's place is replaced" "$served_by" "$(request "$hello" by "$op_uid")"
is "and what it leads to is not touched" kept "$(cat "$work/precious")"
bridge_end
# flock(2): of eight at once one stays.
for n in $(jot 8); do
	by "$op_uid" CHIBI_HOME="$home" "$bridge" </dev/null >/dev/null 2>"$work/race.$n" &
done
races() { [ "$(cat "$work"/race.* | grep -c -e 'another bridge runs' -e 'listening on [0-9.:]*$')" -ge 8 ]; }
until_true 60 races
is "of eight bridges at once one stays" "1 7" "$(grep -l '\] listening on' "$work"/race.* | wc -l | tr -d ' ') $(grep -l 'another bridge runs' "$work"/race.* | wc -l | tr -d ' ')"
is "and it is the lock's" "$(lock_says pid)" "$(pgrep -u "$op_uid" -x chibi-mcp-bridge)"
kill "$(lock_says pid)"
until_true 20 no_process_of_op
}

section_bridge_ends() {
echo "# the bridge's end"
for pair in HUP:129 TERM:143 USR1:158 USR2:159 ALRM:142 XCPU:152 PROF:155 ABRT:134; do
	bridge_start by "$op_uid"
	bridge_end "${pair%:*}"
	is "SIG${pair%:*} ends it as such, and it leaves no lock" "${pair#*:} mcp-bridge.lock.guard" "$(cat "$work/bridge.rc") $(ls "$home" | tr '\n' ' ' | sed 's/ $//')"
done
rm -f "$home"/*.core
bridge_start by "$op_uid"
for signal in INFO IO URG CHLD WINCH CONT; do
	kill -"$signal" "$bridge_pid"
done
is "what a terminal's status key sends, and its like, end nothing" "$served_by" "$(request "$hello" by "$op_uid")"
bridge_end
echo 'idle_timeout_minutes = 0.05' >"$home/mcp-bridge.toml"
chown "$op_uid:$op_uid" "$home/mcp-bridge.toml"
bridge_start by "$op_uid"
until_true 60 bridge_ended
is "nobody comes: it ends by itself, and leaves no lock" "0 mcp-bridge.lock.guard mcp-bridge.toml" "$(cat "$work/bridge.rc") $(ls "$home" | tr '\n' ' ' | sed 's/ $//')"
is "no process of the user's is left" "" "$(pgrep -lf -u "$op_uid")"
rm -f "$home/mcp-bridge.toml"
}

# The library that other programs embed, by its example.
section_bridge_library() {
echo "# the library"
if [ ! -x "$bin/tools" ]; then
	skip "the library" "there is no $bin/tools: crates/colibri-client/examples/tools.rs"
	return
fi
install -m 755 "$bin/tools" "$roots/bin/tools"
own_server
tools() {
	by "$op_uid" PATH=relative:/usr/local/bin:/bin CHIBI_HOME="$home" COLIBRI_MCP_END_IDLE=5 "$roots/bin/tools" "$@" 2>&1
}
loaded() {
	tools >"$work/loaded"
	grep -q own_echo "$work/loaded"
}
until_true 60 loaded
out=$(cat "$work/loaded")
has "the library starts a bridge, and lists" "own_echo" "$out"
has "and says how many" "[[]MCP: 4 tools loaded]" "$out"
bridge_pid=$(lock_says pid)
is "the bridge leads a session of its own" "$bridge_pid" "$(ps -o sid= -p "$bridge_pid" | tr -d ' ')"
is "a call through it" hello-there "$(tools mcp://own/echo '{"text": "hello-there"}')"
is "by the same bridge" "$bridge_pid" "$(lock_says pid)"
kill "$bridge_pid"
until_true 60 no_process_of_op
rm -rf "${home:?}/mcp-bridge" "$home/mcp-bridge.toml"
# A stranger who listens where the lock says, of which a process of the user's is told.
by "$op_uid" /bin/sleep 300 &
until_true 10 pgrep -u "$op_uid" -x sleep
by_other /usr/bin/nc -l 127.0.0.1 47881 >"$work/heard" &
until_true 10 eval 'sockstat -4l | grep -q "127.0.0.1:47881"'
left "$(pgrep -u "$op_uid" -x sleep)" "$(date +%s)" 127.0.0.1:47881
out=$(tools mcp://own/echo '{"text": "secret"}')
has "a stranger who listens at the lock's address is not spoken to" "uid $other_uid's" "$out"
is "and hears nothing" "" "$(cat "$work/heard")"
pkill -u "$other_uid" -x nc
pkill -u "$op_uid" -x sleep
rm -f "$home/mcp-bridge.lock"
}

# --- integrations -----------------------------------------------------------------------------------------------------

# shipped_files NAME: registry and policy of etc/NAME.json, as they ship but for this test's directories and addresses
# in place of theirs.
shipped_files() {
	for part in registry policy; do
		sed -n "/^  \"$part\": {\$/,/^  }/p" "$tree/etc/$1.json" | sed \
			-e '1s/.*/{/' -e '$s/.*/}/' -e 's/"disabled": true/"disabled": false/' \
			-e "s|/usr/local/libexec/colibri/roots|$roots|g" -e "s|/usr/local/colibri/work|$places|g" \
			-e "s|/home/op/project|$op_home/project|g" -e "s|/var/db/notes|$roots/vault|g" -e "s|/var/git|$places|g" \
			-e "s/\"owner\": 1001/\"owner\": $op_uid/" -e '/GIT_ORIGIN_TOKEN/d' -e 's/192.0.2.7/127.0.0.1/' \
			-e "s|https://git.example.org/project.git|file://$places/project/origin.git|" >"$work/shipped.$part"
	done
	has_racct || sed -i '' '/"memory"/d' "$work/shipped.policy"
	pgrep -F /var/run/syslog.pid >/dev/null 2>&1 || sed -i '' 's/"require"/"best-effort"/' "$work/shipped.policy"
	install -o root -g colibri -m 640 "$work/shipped.registry" "$etc/external-mcp.json"
	install -m 600 "$work/shipped.policy" "$etc/jail-policy.json"
}

# shipped NAME: an integration's, and its contract.
shipped() {
	shipped_files "integrations/$1"
	install -d -m 755 "$etc/contracts"
	install -m 644 "$tree/etc/contracts/$1.json" "$etc/contracts/$1.json"
}

# built_root -a|-i NAME PROGRAM…: as the manual says, from a base system of the test's own.
built_root() {
	flag=$1
	name=$2
	shift 2
	rm -rf "$work/base" "${roots:?}/$name"
	make_root "$work/base" /bin/sh "$client" "$@"
	mkdir -p "$work/base/var/tmp"
	chmod 1777 "$work/base/var/tmp"
	tar -C "$work/base" -cf "$work/base.txz" .
	mkdir -p "$work/base/var/tmp"
	chmod 1777 "$work/base/var/tmp"
	out=$(sh "$tree/etc/make-root.sh" "$flag" -b "$work/base.txz" "$roots/$name" 2>&1)
	report $? "make-root.sh $flag makes a root of $name" "$out"
	is "in which root alone can make a directory" "$roots/$name/tmp" \
		"$(find "$roots/$name" -type d \( -perm +022 -o ! -user root \))"
	rm -rf "$work/base" "$work/base.txz"
}

# tool SERVER TOOL ARGUMENTS: the answer as JSON, without blanks.
tool() {
	timeout 120 "$client" --socket "$socket" --json call "$1" "$2" --args "$3" 2>&1 | tr -d ' \n'
}

sync_notes() {
	tool notes-mirror notes_sync "{\"strategy\": \"${1:-mirror}\", \"dry_run\": ${2:-false}}"
}

# All that a tree is: names, kinds, modes, owners, links, times, contents.
digest_of_tree() {
	(cd "$1" && find . -exec stat -f '%N %p %u %l %z %m %c' {} + | sort && find . -type f -exec sha256 {} + | sort) | sha256
}

adapter() {
	pgrep -f "^$client integration"
}

events() {
	cat "$dir"/state/trail/* | grep -o "\"$1\"" | sort -u
}

section_notes() {
echo "# the mirror of notes"
built_root -i notes-mirror
mkdir -p "$roots/notes-mirror/work/repository" "$roots/notes-mirror/work/mirror"
install -d -m 755 "$roots/vault"
install -d -o 60823 -g 60823 -m 755 "$roots/vault/project"
docs=$op_home/project/docs
vault=$roots/vault/project
mkdir -p "$docs/sub/.git" "$docs/_vault"
echo one >"$docs/a.md"
echo two >"$docs/sub/b.md"
printf '#!/bin/sh\n' >"$docs/run.sh"
chmod 755 "$docs/run.sh"
echo secret >"$docs/secret.md"
chmod 600 "$docs/secret.md"
echo no >"$docs/sub/.git/config"
echo no >"$docs/_vault/mine.md"
ln -s /etc/passwd "$docs/link.md"
echo twice >"$docs/hard.md"
ln "$docs/hard.md" "$op_home/project/again.md"
mkfifo "$docs/fifo"
chown -R "$op_uid:$op_uid" "$op_home/project"
shipped notes-mirror
rm -rf "$dir"
daemon_start
"$helper" check >"$work/check" 2>&1
report $? "entry and policy as they ship: the helper finds nothing bad" "$(cat "$work/check")"
before=$(digest_of_tree "$op_home/project")
out=$(sync_notes mirror true)
has "a dry run says what would be" '"dry_run":true,"files":3' "$out"
is "and writes nothing" "" "$(ls -A "$vault")"
out=$(sync_notes)
has "a run copies" '"dry_run":false,"files":3*"written":3' "$out"
has "and leaves out links of both kinds, what is out of bounds, FIFOs, what it may not read" \
	'"hard_links":1*"links":1*"out_of_bounds":2,"special":1,"unreadable":1' "$out"
is "what is there" ".colibri-mirror a.md run.sh sub sub/b.md" "$(cd "$vault" && find . -mindepth 1 | sed 's|^\./||' | sort | tr '\n' ' ' | sed 's/ $//')"
is "as it was written" "one two" "$(cat "$vault/a.md" "$vault/sub/b.md" | tr '\n' ' ' | sed 's/ $//')"
is "the adapter's own, and not executable" "60823 60823 644" "$(stat -f '%u %g %Lp' "$vault/run.sh")"
is "the repository's mount is read-only, the mirror's is not" "repository ro,nosuid mirror rw,nosuid" \
	"$(our_mounts | awk '$2 ~ "/work/" {sub(/.*\//, "", $2); print $2, $4}' | sort -r | tr '\n' ' ' | sed 's/ $//')"
server=$(adapter)
is "it runs as its user, in a jail" "60823 yes" "$(ps -o uid= -p "$server" | tr -d ' ') $([ "$(ps -o jid= -p "$server" | tr -d ' ')" -gt 0 ] && echo yes)"
has "what is as it should be is not written again" '"unchanged":3,"written":0' "$(sync_notes)"
echo changed >"$vault/a.md"
echo "somebody's" >"$vault/new.md"
rm "$vault/run.sh"
has "what the vault changed is undone" '"removed":1*"unchanged":1,"written":2' "$(sync_notes)"
is "the repository wins" one "$(cat "$vault/a.md")"
is "and not a byte, time or mode of it has changed" "$before" "$(digest_of_tree "$op_home/project")"
rm "$docs/sub/b.md"
has "add removes nothing" '"removed":0' "$(sync_notes add)"
has "mirror removes what is gone" '"removed":1' "$(sync_notes)"
ln -sf /etc/passwd "$vault/a.md"
passwd=$(sha256 -q /etc/passwd)
has "a link in the vault is replaced" '"written":1' "$(sync_notes)"
is "and not written through" "one $passwd" "$(cat "$vault/a.md") $(sha256 -q /etc/passwd)"

# daemon(8) keeps flock(2) of its file as long as it runs, on the host's side of the mount.
daemon -f -p "$vault/.colibri-mirror" /bin/sleep 300
sleep 1
out=$(sync_notes)
has "another has the lock: refused, by name" '"error":{"code":"NOTES_BUSY","message":"anotherrunofthismirrorhasitslock","transient":true}' "$out"
has "and left to a person" '"deferred":{"task":1}' "$out"
holder=$(cat "$vault/.colibri-mirror")
kill -9 "$(ps -o ppid= -p "$holder")" "$holder"
until_true 20 eval '! ps -p "$holder" >/dev/null'
has "the lock's end is the end of that" '"unchanged":2,"written":0' "$(sync_notes)"
place=$roots/notes-mirror/work/mirror
mv "$place" "$place.aside"
kill -9 "$(adapter)"
until_true 30 nothing_left
lacks "a root without the mirror's place: not started" '"files"' "$(sync_notes)"
root_asks plan notes-mirror
is "by its rule" "78 files" "$rc $(rule)"
mv "$place.aside" "$place"
section_notes_swapped
section_notes_killed
trail=$("$client" trail verify --state-dir "$dir/state" 2>&1)
report $? "the trail of all of it verifies" "$trail"
is "each run is recorded, each further try, and what was given up" '"deferred" "notes_sync" "retry"' \
	"$(for event in deferred notes_sync retry; do events $event; done | tr '\n' ' ' | sed 's/ $//')"
}

# synced PATTERN: a run says so.
synced() {
	sync_notes >"$work/synced"
	grep -q "$1" "$work/synced"
}

mirrored() {
	[ "$(ls "$vault/many" 2>/dev/null | wc -l)" -ge "$1" ]
}

# Somebody swaps a directory for a link, on either side, while it is mirrored.
section_notes_swapped() {
echo "# swapped meanwhile"
until_true 60 synced '"files":2'
echo marker >"$roots/notes-mirror/etc/marker"
echo three >"$docs/sub/c.md"
chown "$op_uid" "$docs/sub/c.md"
"$inmate" swap "$docs/sub" "$work/enough" >"$work/swapped" &
swapper=$!
good=0
for _ in $(jot 30); do
	synced '"structuredContent":{"bytes"' && good=$((good + 1))
done
touch "$work/enough"
wait $swapper
rm "$work/enough"
is "thirty runs while a directory of docs/ is swapped for a link to /etc: all end well" 30 "$good"
[ "$(cat "$work/swapped")" -ge 2000 ]
report $? "it was swapped" "$(cat "$work/swapped") times"
is "nothing was read through the link" "" "$(find "$vault" -name marker)"
has "the next run has all of it" '"files":3' "$(sync_notes)"
while [ ! -e "$work/enough" ]; do
	mv -h "$vault/sub" "$vault/aside"
	ln -s /tmp "$vault/sub"
	rm -f "$vault/sub"
	mv -h "$vault/aside" "$vault/sub"
done 2>/dev/null &
swapper=$!
for _ in $(jot 30); do
	echo "$(date)" >>"$docs/sub/c.md"
	{ sync_notes; echo; } >>"$work/vault-swapped"
	[ -z "$(ls -A "$state"/*/root/tmp)" ] || break
done
touch "$work/enough"
wait $swapper
rm "$work/enough"
is "thirty runs while a directory of the vault is swapped for a link to /tmp: nothing was written through it" "" "$(ls -A "$state"/*/root/tmp)"
report 0 "and what they said" "$(grep -o -e '"error":{.*' -e '"written":[0-9]*' "$work/vault-swapped" | sort | uniq -c)"
rm -rf "$vault/aside"
until_true 60 synced '"files":3'
has "the next run mends it" '"files":3' "$(cat "$work/synced")"
is "so that both are the same" "" "$(diff -r "$docs/sub" "$vault/sub" | grep -v "Only in $docs/sub: .git")"
rm "$docs/sub/c.md"
sync_notes >/dev/null
}

# SIGKILL in the middle: of the adapter, of its supervisor, of the daemon.
section_notes_killed() {
echo "# killed in the middle"
# What failed to start is left alone for a while.
until_true 60 synced '"files":2'
mkdir "$docs/many"
(cd "$docs/many" && jot 4000 | split -a 4 -l 1 -)
chmod 644 "$docs/many"/*
chown -R "$op_uid:$op_uid" "$docs/many"
for victim in adapter supervisor daemon; do
	rm -rf "$vault/many"
	sync_notes >"$work/killed" &
	until_true 60 mirrored 100
	case $victim in
	adapter) kill -9 "$(adapter)" ;;
	supervisor) kill -9 "$(pgrep -f 'colibri-jail-helper run --session' | sort -n | tail -1)" ;;
	daemon) kill -9 "$daemon_pid" ;;
	esac
	wait $!
	count=$(ls "$vault/many" | wc -l | tr -d ' ')
	[ "$count" -lt 4000 ]
	report $? "SIGKILL of the $victim in the middle of a run" "$count of 4000 files; $(head -c 300 "$work/killed")"
	until_true 60 nothing_left
	clean "the $victim killed"
	is "the $victim killed: no jail is left" "" "$(live_jails)"
	is "the $victim killed: what is there is whole" "" "$(diff -rq "$docs/many" "$vault/many" 2>&1 | grep -v '^Only in' | head -3)"
	[ $victim != daemon ] || daemon_start
	until_true 60 synced '"files":4002'
	has "the $victim killed: the next run completes it" '"files":4002' "$(cat "$work/synced")"
	is "the $victim killed: all is there, and nothing else" "" "$(diff -rq "$docs/many" "$vault/many" 2>&1 | head -3)"
done
daemon_stop
clean "the mirror of notes"
rm -rf "$docs/many"
}

section_git() {
echo "# git"
built_root -i git
clone=$places/project
mkdir -p "$roots/git$clone"
out=$(sh "$tree/etc/make-root.sh" -w 60822:60811 -s 256M "$clone" 2>&1)
report $? "make-root.sh -w makes a place of the clone" "$out"
mkdir -p "$clone/.git/objects" "$clone/.git/refs" "$clone/.worktrees/claude"
chown -R 60822:60811 "$clone"
chmod 755 "$clone"
shipped git
rm -rf "$dir"
daemon_start
"$helper" check >"$work/check" 2>&1
report $? "entry and policy as they ship: the helper finds nothing bad" "$(cat "$work/check")"
out=$(timeout 60 "$client" --socket "$socket" call git git_log 2>&1)
has "git was forgotten in the root: what an operator reads" "INTEGRATION_UNAVAILABLE: /usr/local/bin/git" "$out"
server=$(adapter)
is "it runs as its user, in a jail" "60822 yes" "$(ps -o uid= -p "$server" | tr -d ' ') $([ "$(ps -o jid= -p "$server" | tr -d ' ')" -gt 0 ] && echo yes)"
is "what it made for the call is gone" "" "$(ls -A "$state"/*/root/tmp)"
out=$(tool git git_push '{"branch": "feature/x", "sha": "0000000000000000000000000000000000000000"}')
has "a push is refused by the contract" '"code":"CONTRACT_DENIED"' "$out"
has "and becomes a task for a person" '"deferred":{"task":' "$out"
is "which is recorded" '"vcs_push_refused"' "$(events vcs_push_refused)"
has "so is a slug that is none" '"code":"CONTRACT_DENIED"' "$(tool git git_worktree_add '{"slug": "../x"}')"
mv "$clone/.git" "$clone/aside"
has "no repository there: said" "INTEGRATION_UNAVAILABLE: $clone/.git" \
	"$(timeout 60 "$client" --socket "$socket" call git git_log 2>&1)"
mv "$clone/aside" "$clone/.git"
daemon_stop
clean "git that is not there"
if [ -x /usr/local/bin/git ]; then
	section_git_there
else
	skip "fetch, worktree, commit, status, diff, log" "there is no /usr/local/bin/git: it is not in the base system"
fi
places_gone
}

# The clone's owner, as the manual has it for a person.
git_of() {
	chroot -u 60822 -g 60811 / /usr/bin/env -i PATH=/usr/local/bin:/bin:/usr/bin HOME=/nonexistent GIT_CONFIG_NOSYSTEM=1 \
		GIT_AUTHOR_NAME=p GIT_AUTHOR_EMAIL=p@example.org GIT_COMMITTER_NAME=p GIT_COMMITTER_EMAIL=p@example.org git "$@" 2>&1
}

section_git_there() {
built_root -i git /usr/local/bin/git
# What origin's side of a fetch is called by.
ln "$roots/git/usr/local/bin/git" "$roots/git/usr/local/bin/git-upload-pack"
mkdir -p "$roots/git$clone"
find "$clone" -mindepth 1 -delete
out=$(git_of init -q -b main "$clone" && git_of -C "$clone" commit -q --allow-empty -m first &&
	git_of init -q --bare -b main "$clone/origin.git" && git_of -C "$clone" push -q "file://$clone/origin.git" main)
report $? "a clone and its origin" "$out"
first=$(git_of -C "$clone" rev-parse main)
daemon_start
has "git_fetch" "\"structuredContent\":{\"branch\":\"origin/main\",\"sha\":\"$first\"}" "$(tool git git_fetch '{}')"
has "git_worktree_add" "\"worktree\":\".worktrees/claude/p0.3.2\"" "$(tool git git_worktree_add '{"slug": "p0.3.2"}')"
worktree=$clone/.worktrees/claude/p0.3.2
is "the worktree is the adapter's, and its group's to write in" "60822 60811 775" "$(stat -f '%u %g %Lp' "$worktree")"
# An agent's file, of another user in the same group.
chroot -u 60812 -g 60811 / /bin/sh -c "umask 002; echo text >'$worktree/new.txt'"
has "git_status" '"changes":?{"path":"new.txt","state":"??"}?' "$(tool git git_status '{"slug": "p0.3.2"}')"
# What would run a program of whoever writes to the repository or the worktree, were it the usual git.
mkdir -p "$clone/.git/hooks"
for hook in pre-commit commit-msg post-commit reference-transaction post-index-change; do
	printf '#!/bin/sh\necho %s >>%s/ran\n' $hook "$clone" >"$clone/.git/hooks/$hook"
	chmod 755 "$clone/.git/hooks/$hook"
done
printf '[core]\n\tfsmonitor = "echo fsmonitor >>%s/ran; false"\n[filter "odd"]\n\tclean = "echo filter >>%s/ran; cat"\n' \
	"$clone" "$clone" >>"$clone/.git/config"
echo '* filter=odd' >"$worktree/.gitattributes"
out=$(tool git git_commit '{"slug": "p0.3.2", "message": "Add it", "paths": ["."]}')
has "git_commit" "\"files\":2,\"parent\":\"$first\"" "$out"
is "no hook, monitor or filter ran" "" "$(cat "$clone/ran" 2>/dev/null)"
git_of -C "$worktree" status >/dev/null
has "which another git runs" fsmonitor "$(cat "$clone/ran" 2>/dev/null)"
git_of -C "$clone" config unset core.fsmonitor
is "git itself says the same" "Agents of project <agents@example.org> Add it" "$(git_of -C "$clone" log -1 --format='%an <%ae> %s' feature/p0.3.2)"
is "and finds the repository whole" "" "$(git_of -C "$clone" fsck --no-progress --no-dangling)"
is "and the worktree clean" "" "$(git_of -C "$worktree" status --porcelain)"
ln -s /tmp "$clone/.worktrees/claude/elsewhere"
has "a link in a worktree's place: refused" '"code":"GIT_REFUSED"' "$(tool git git_worktree_add '{"slug": "elsewhere"}')"
has "git_log" '"subject":"Addit"' "$(tool git git_log '{"slug": "p0.3.2"}')"
echo more >>"$worktree/new.txt"
has "git_diff" '+more' "$(tool git git_diff '{"slug": "p0.3.2"}')"
touch "$clone/.git/worktrees/p0.3.2/index.lock"
has "a lock that is held: refused, by name" '"code":"GIT_BUSY"' "$(tool git git_commit '{"slug": "p0.3.2", "message": "Again", "paths": ["."]}')"
rm -f "$clone/.git/worktrees/p0.3.2/index.lock"
is "each is recorded" '"vcs_branch" "vcs_commit"' "$(for event in vcs_branch vcs_commit; do events $event; done | tr '\n' ' ' | sed 's/ $//')"
kill -9 "$daemon_pid"
until_true 60 nothing_left
clean "git, the daemon killed"
}
