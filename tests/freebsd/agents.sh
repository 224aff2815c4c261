# Section 14: an agent's door and its loopback interface. Sourced by run.sh.
# shellcheck shell=sh disable=SC2154,SC2034 # names of run.sh

run_dir=/var/run/colibri

has_vimage() {
	[ "$(sysctl -n kern.features.vimage 2>/dev/null)" = 1 ]
}

# agents ENTRY: the registry, with the agent `one` beside the server `two`.
agents() {
	{
		echo '{"agents": {'
		printf '  "one": %s\n' "$1"
		echo '}, "servers": {'
		printf '  "two": %s\n' "$second"
		echo '}}'
	} >"$etc/external-mcp.json.new"
	chmod 640 "$etc/external-mcp.json.new"
	chgrp colibri "$etc/external-mcp.json.new"
	mv "$etc/external-mcp.json.new" "$etc/external-mcp.json"
}

# agent JAIL KEYS WORD…: the entry of an agent that is the inmate, as the jail sees it, with these words.
agent_program=$inmate
agent() {
	jail_keys=$1
	more=$2
	shift 2
	words=
	for word; do
		words="$words${words:+, }\"$word\""
	done
	printf '{"command": "%s", "args": [%s], "jail": {%s}%s}' "$agent_program" "$words" "$jail_keys" "$more"
}

model=', "model": {"url": "https://api.example", "api": "anthropic"}'

# make_door SESSION: as the daemon makes it; whoever comes is told one line.
make_door() {
	install -d -o colibri -g colibri -m 750 "$run_dir"
	install -d -o colibri -g colibri -m 700 "$run_dir/doors"
	door=$run_dir/doors/$1
	install -d -o colibri -g colibri -m 755 "$door"
	{ echo "build it"; sleep 120; } | nc -lU "$door/colibri.sock" >"$work/asked" 2>/dev/null &
	until_true 20 test -S "$door/colibri.sock"
	chown colibri:colibri "$door/colibri.sock"
	chmod 666 "$door/colibri.sock"
}

no_doors() {
	pkill -f "nc -lU $run_dir/doors" 2>/dev/null
	rm -rf "$run_dir/doors" "$run_dir.aside"
}

# The session to come, with its door.
next_door() {
	next_session=
	new_session
	make_door "$session"
	next_session=$session
}

start_agent() {
	next_door
	start "$1" one
	next_session=
}

run_agent() {
	next_door
	run "" one
	next_session=
}

# refused_door WHAT COMMAND…: a start is refused after the command was run in the door.
refused_door() {
	what=$1
	shift
	next_door
	(cd "$door" && "$@")
	run "" one
	next_session=
	is "$what: refused" 78 "$rc"
	has "$what: by its rule" "rule 'door'" "$err"
	no_doors
}

options_of() {
	mount -p | awk -v at="$1" '$2 == at {print $3, $4}' | tr ', ' '\n\n' | sort | tr '\n' ' ' | sed 's/ $//'
}

section_14() {
echo "# 14 agents"
section_agents
section_agents_doors
section_agents_ways
section_agents_persistent
section_agents_place
section_agents_demo
policy
}

section_agents() {
agents_prepared
agents "$(agent "$one" "" agent)"
run_agent
is "an agent without a model: told through its door, with nothing for input, and no loopback" \
	'input "" told build it loopback false' "$(echo "$out" | tr '\n' ' ' | sed 's/ $//')"
is "what it asked came to the daemon's socket" "what shall I do?" "$(cat "$work/asked")"
is "its end" 0 "$rc"
no_doors
clean "an agent without a model"
if ! has_vimage; then
	agents "$(agent "$one" "$model" agent)"
	run_agent
	has "without VIMAGE an agent with a model is refused" "71 helper: refused by rule 'vimage'" "$rc $err"
	no_doors
	return
fi
agents "$(agent "$one" "$model" agent)"
run_agent
is "an agent with a model: told through its door, and talks to itself on 127.0.0.1" \
	'input "" told build it loopback true' "$(echo "$out" | tr '\n' ' ' | sed 's/ $//')"
no_doors
clean "an agent with a model"
policy
run_agent
is "with a policy without loopback: refused" "77 helper: refused by rule 'network'" "$rc $err"
allow_loopback
no_doors
agents "$(agent "$one, \"user\": \"two\"" "$model" agent)"
run_agent
is "with the uid of a server: refused" "77 helper: refused by rule 'users'" "$rc $err"
no_doors

loosen
agents "$(agent "$one" "$model" listen)"
start_agent a
until_true 60 settled a ready
tighten
session=$(cat "$work/a.session")
jail=colibri-$session
is "its door is shown read-only, nosuid and noexec" "noexec nosuid nullfs ro" "$(options_of "$state/$session/root/var/run/colibri")"
parameters=$(jls -n -j "$jail" | tr ' ' '\n')
has "the jail has a network stack of its own" "vnet=new" "$(echo "$parameters" | grep '^vnet')"
is "its permissions, where the host's defaults are all on: none but suser" "allow.suser" \
	"$(echo "$parameters" | grep '^allow\.' | grep -v -E '^allow\.([a-z_]+\.)*no[a-z_]+$')"
is "in it there is lo0 alone" lo0 "$(ifconfig -j "$jail" -l)"
is "which has 127.0.0.1 alone of IPv4" "inet 127.0.0.1 netmask 0xff000000" "$(ifconfig -j "$jail" lo0 | grep -w inet | sed 's/^[[:space:]]*//; s/ *$//')"
has "and is up" "<UP," "$(ifconfig -j "$jail" lo0)"
pid=$(our_processes | awk '{print $1}' | head -1)
is "its standard input is /dev/null" "v /dev/null" "$(procstat -hf "$pid" | awk '$3 == 0 {print $4, $NF}')"
is "it has 0, 1, 2 and what it opened itself" "0 1 2" "$(procstat -hf "$pid" | awk '$3 ~ /^[0-2]$/ {print $3}' | sort -n | tr '\n' ' ' | sed 's/ $//')"
is "the supervisor holds the lifeline" "p=2" "$(descriptors "$(supervisor_of a)" | tr ' ' '\n' | grep '^p=')"
finish a
is "the end of the lifeline ends it, though it has no pipe" 143 "$(cat "$work/a.rc")"
no_doors
clean "an agent that listens"
is "no jail is left, dying ones included" "" "$(our_jails)"

for round in 1 2 3 4 5 6; do
	start_agent a
	until_true 60 settled a ready
	[ $((round % 2)) = 0 ] && kill -9 "$(supervisor_of a)"
	finish a
	call "" sweep
	no_doors
done
clean "six agents, half of whose supervisors were killed"
is "no jail of them is left, dying ones included" "" "$(our_jails)"

measure_starts

registry "$(printf '{"command": "%s", "args": ["list", "/var/run/colibri"], "jail": {%s}}' "$inmate" "$one")" "$second"
run_agent
is "a server has no door, though there is one for its session" "list  end" "$(echo "$out" | tr '\n' ' ' | sed 's/ $//')"
no_doors
clean "a server"
}

# What a start, an end and all between cost, in turns: an agent with door and loopback interface, a server without.
measure_starts() {
agent_ns=0
server_ns=0
for _ in 1 2 3 4 5 6 7 8 9 10; do
	agents "$(agent "$one" "$model" agent)"
	next_door
	before=$(date +%s%N)
	run "" one
	agent_ns=$((agent_ns + $(date +%s%N) - before))
	next_session=
	no_doors
	registry "$(printf '{"command": "%s", "args": ["list", "/work"], "jail": {%s}}' "$inmate" "$one")" "$second"
	before=$(date +%s%N)
	run "" one
	server_ns=$((server_ns + $(date +%s%N) - before))
done
report 0 "an agent's run against a server's, of ten each" \
	"$((agent_ns / 10000000)) and $((server_ns / 10000000)) ms: $(echo "scale=2; $agent_ns / $server_ns" | bc)"
}

allow_loopback() {
	sed -i '' 's/"network": \["127.0.0.1"\]/"network": ["127.0.0.1", "loopback"]/' "$etc/jail-policy.json"
}

# What a section that runs alone needs.
agents_prepared() {
	case "$replaced" in *" $run_dir"*) ;; *) aside "$run_dir" ;; esac
	policy
	allow_loopback
	for root in one two persistent; do
		install -d -m 755 "$roots/$root/var" "$roots/$root/var/run" "$roots/$root/var/run/colibri"
	done
}

into_link() {
	mv "$door" "$run_dir/aside"
	ln -s "$1" "$door"
}

# owned NAME COMMAND…: what it makes is the daemon's.
owned() {
	made=$1
	shift
	"$@"
	chown -h colibri:colibri "$made"
}

section_agents_doors() {
agents_prepared
agents "$(agent "$one" "" agent)"
refused_door "no door" rm -rf "$run_dir/doors"
refused_door "a door that is a link to /etc" into_link /etc
rm -rf "$run_dir/aside"
refused_door "a door that is a link to a good one" into_link "$run_dir/aside"
rm -rf "$run_dir/aside"
refused_door "a door of root's" chown root .
refused_door "a door of another's" chown "$suid" .
refused_door "a door that others may write to" chmod 777 .
refused_door "a door with a file in it" owned file touch file
refused_door "a door with a directory in it" owned directory mkdir directory
refused_door "a door with a FIFO in it" owned fifo mkfifo fifo
refused_door "a door with a link to a socket in it" owned link ln -s colibri.sock link
refused_door "a door with a socket of root's" chown root colibri.sock
refused_door "a door with nine sockets" sh -c 'for n in 1 2 3 4 5 6 7 8; do ln colibri.sock $n.sock; done'
rmdir "$roots/one/var/run/colibri"
run_agent
is "a root without the door's place: refused" 78 "$rc"
no_doors
ln -s /tmp "$roots/one/var/run/colibri"
run_agent
is "a root in which the door's place is a link: refused" 78 "$rc"
no_doors
rm "$roots/one/var/run/colibri"
mkdir "$roots/one/var/run/colibri"
run_agent
has "without all that it is told through its door" "told build it" "$out"
no_doors
clean "doors"
}

# The ways out that FreeBSD has; docs/attacks.md lists them. What came of each is told.
section_agents_ways() {
agents_prepared
all_ways "$one" "$inmate" "$inmate" ""
clean "ways out"
}

# all_ways JAIL PROGRAM COPY MORE: they are tried by the program at this path in the jail, of which COPY is another copy,
# and MORE ways after them.
all_ways() {
keys=$model
has_vimage || keys=
mkdir -p /var/run/colibri-test
nc -4kl 47871 >/dev/null 2>&1 &
listeners=$!
nc -6kl 47871 >/dev/null 2>&1 &
listeners="$listeners $!"
nc -klU /var/run/colibri-test/other.sock >/dev/null 2>&1 &
listeners="$listeners $!"
own=$(ifconfig | awk '$1 == "inet" && $2 !~ /^127/ {print $2; exit}')
install -m 4755 "$3" "$roots/one/bin/as-root"
agent_program=$2
# shellcheck disable=SC2086 # words
agents "$(agent "$1" "$keys" ways connect=127.0.0.1:47871 connect=[::1]:47871 "connect=${own:-192.0.2.1}:47871" raw-socket \
	change-network talk=/var/run/colibri-test/other.sock talk=/var/run/colibri/doors/0123456789abcdef/colibri.sock \
	talk=/var/run/log listen-in-door unlink-in-door rename-in-door link-in-door write=/var/run/colibri/own \
	list=/proc/1 "kill=$$" "stop=$$" "trace=$$" kill=1 kill=-1 write=/written read=/etc/rc.conf \
	"read=$etc/external-mcp.json" "list=$state" chroot out-by-directory file-by-handle device-node read=/dev/mem read=/dev/bpf \
	read=/dev/klog read=/dev/tty push-into-terminal mount unmount=/var/run/colibri unmount=/tmp new-confinement join-others become-root \
	root-group set-user-id=/bin/as-root raise-limit load-module set-clock set-hostname "shared-memory=$$" core-dump $4)"
agent_program=$inmate
run_agent
is "no way out of an agent's jail works" "" "$(echo "$out" | grep -e WORKED)"
is "all of them were tried" "$((46 + $(echo "$4" | wc -w))) end" "$(echo "$out" | grep -c ': ') $(echo "$out" | tail -1)"
report 0 "and what came of each" "$out"
[ -S "$door/colibri.sock" ]
report $? "the door is as it was" "$(ls -l "$door")"
# shellcheck disable=SC2086 # process ids
kill $listeners 2>/dev/null
rm -rf /var/run/colibri-test "$roots/one/bin/as-root"
no_doors
}

# In a persistent jail, where every process sees the door.
section_agents_persistent() {
agents_prepared
jail -c name=colibritest path="$roots/persistent" persist ip4=disable ip6=disable >/dev/null
place=$roots/persistent/var/run/colibri
persistent='"name": "colibritest", "user": "one"'
agents "$(agent "$persistent" "" agent)"
run_agent
has "persistent: an agent is told through its door" "told build it" "$out"
no_doors
clean "persistent: its end"
is "persistent: the door is gone, and the jail is not" "colibritest" "$(jls -j colibritest name)$(options_of "$place")"
agents "$(agent "$persistent" "" hang)"
start_agent a
until_true 60 settled a ready
is "persistent: shown read-only, nosuid and noexec" "noexec nosuid nullfs ro" "$(options_of "$place")"
before=$(mount -p)
run_agent
has "persistent: a second agent at a time is refused" "75 helper: refused by rule 'door'" "$rc $err"
is "persistent: and changed no mount" "$before" "$(mount -p)"
finish a
no_doors
clean "persistent: the first one's end"
start_agent a
until_true 60 settled a ready
kill -9 "$(supervisor_of a)"
until_true 30 ended a
call "" sweep
is "persistent: a sweep after the supervisor was killed" 0 "$rc"
is "persistent: the door is gone" "" "$(options_of "$place")"
finish a
no_doors
clean "persistent: killed"
start_agent a
until_true 60 settled a ready
kill -9 "$(supervisor_of a)"
until_true 30 ended a
# The record is lost; its directory has the door mounted on it, which a sweep has to find by itself.
rm -f "${state:?}/$(cat "$work/a.session")/record"
call "" sweep
call "" sweep
is "persistent: the door goes without a record, too" "" "$(options_of "$place")$(our_mounts)"
finish a
no_doors
clean "persistent: no record"
mount -t tmpfs tmpfs "$place"
run_agent
has "persistent: something is mounted at the door's place: refused" "78 helper: refused by rule 'door'" "$rc $err"
umount "$place"
no_doors
mv "$place" "$place.aside"
ln -s /etc "$place"
before=$(mount -p)
run_agent
is "persistent: a link at the door's place: refused" 78 "$rc"
is "persistent: and nothing was mounted" "$before" "$(mount -p)"
rm "$place"
mv "$place.aside" "$place"
no_doors
jail -q -r colibritest
clean "persistent"
}

# in_a_jail UID: whether a process of this user runs in one.
in_a_jail() {
	ps -axo uid,jid | awk -v uid="$1" '$1 == uid && $2 > 0 {found = 1} END {exit !found}'
}

# An agent that ships, and its place, by the manual: what it writes a person of its group changes, and it goes on with
# that.
section_agents_place() {
agents_prepared
if ! has_vimage; then
	skip "an agent that ships, in its place" "no VIMAGE"
	return
fi
built_root -a gemini "$inmate" /bin/cat
install -d "$roots/gemini/usr/local/mcp/bin" "$work/project"
# In the place of Gemini CLI, which needs a network: it adds a line to each file.
cat >"$roots/gemini/usr/local/mcp/bin/gemini" <<-'AGENT'
	#!/bin/sh
	for file in /work/ours /work/theirs; do
	    [ ! -e "$file" ] || echo agent >>"$file" || exit 3
	done
	[ -e /work/new ] || echo agent >/work/new
	AGENT
chmod 755 "$roots/gemini/usr/local/mcp/bin/gemini"
echo person >"$work/project/ours"
chown -R "$op_uid:$op_uid" "$work/project"
chmod 600 "$work/project/ours"
out=$(sh "$tree/etc/make-root.sh" -w 60814:60814 -s 64M -f "$work/project" "$places/project" 2>&1)
report $? "make-root.sh -w -f makes a place of a project" "$out"
shipped_files agents/gemini
run_shipped_agent
is "the agent that ships, by the policy that ships: it has written" "0 60814 60814 664" "$rc $(stat -f '%u %g %Lp' "$places/project/new" 2>&1)"
# A person: of the group, with the manual's umask, and of no other right.
person() { chroot -u "$op_uid" -g "$op_uid" -G "$op_uid,60814" / /bin/sh -c "umask 002; $*" 2>&1; }
is "a person of its group changes that, and makes a file beside it" "" \
	"$(person "echo person >>$places/project/new && echo person >$places/project/theirs")"
run_shipped_agent
is "the agent changes what was copied, and what the person made" "0 person agent agent, person agent" \
	"$rc $(words_in "$places/project/ours"), $(words_in "$places/project/theirs")"
is "and the person what the agent wrote" "agent person" "$(words_in "$places/project/new")"
is "somebody else does not even see it" 1 "$(by "$other_uid" /bin/ls "$places/project" >/dev/null 2>&1; echo $?)"
clean "an agent in its place"
rm -rf "$work/project" "${roots:?}/gemini"
places_gone
policy
}

words_in() {
	tr '\n' ' ' <"$1" | sed 's/ $//'
}

run_shipped_agent() {
	next_door
	run "" gemini
	next_session=
	no_doors
}

# A real agent behind the real daemon: from a task to its result, with its model behind the relay.
section_agents_demo() {
agents_prepared
has_vimage || return
for root in one two; do make_root "$roots/$root" "$client"; done
cat >"$etc/external-mcp.json" <<REGISTRY
{ "servers": { "demo": { "command": "$client", "args": ["demo-server", "--notes", "/tmp"],
    "jail": { "path": "$roots/two", "user": "two" } } },
  "agents": { "demo-agent": { "command": "$client", "args": ["door", "--", "$client", "demo-agent"],
    "jail": { "path": "$roots/one", "user": "one" }, "events": "claude",
    "model": { "url": "http://127.0.0.1:47999", "api": "anthropic", "allow_addresses": ["loopback"],
      "headers": { "x-api-key": "the-demos-own-key-which-no-agent-sees" } },
    "tools": { "demo": { "allow": ["write_note"] } } } } }
REGISTRY
/usr/bin/env -i PATH="$PATH" HOME=/root TMPDIR=/var/tmp "$client" demo agent >"$work/demo" 2>&1 &
demo=$!
until_true 120 eval 'in_a_jail "$suid" || ! alive "$demo"'
in_a_jail "$suid"
report $? "the agent runs in a jail" "$(ps -axo uid,jid,command | awk '$2 > 0')"
wait "$demo"
is "from task to result: its model was asked with the key, and the trail verifies" 0 "$?"
report 0 "what it shows" "$(cat "$work/demo")"
is "no door is left" "" "$(ls "$run_dir/doors" 2>/dev/null)"
/usr/bin/env -i PATH="$PATH" HOME=/root TMPDIR=/var/tmp "$client" demo >"$work/demo" 2>&1 &
demo=$!
until_true 120 eval 'in_a_jail "$duid" || ! alive "$demo"'
in_a_jail "$duid"
report $? "demo: its server runs in a jail" "$(ps -axo uid,jid,command | awk '$2 > 0')"
wait "$demo"
is "demo: all of it is as it says" 0 "$?"
report 0 "what it shows" "$(cat "$work/demo")"
clean "an agent behind the daemon"
}
