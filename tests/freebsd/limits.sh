# Section limits: no instance takes more of the kernel than its limits say, and the host works meanwhile. Sourced by
# run.sh.
# shellcheck shell=sh disable=SC2154,SC2034 # names of run.sh

# taker LIMITS ARGUMENT…: an entry whose server is the inmate with these arguments.
taker() {
	printf '{"command": "%s", "args": [' "$inmate"
	limits=$1
	shift
	printf '"%s"' "$1"
	shift
	[ $# -eq 0 ] || printf ', "%s"' "$@"
	printf '], "jail": {%s, "limits": {%s}}}' "$one" "$limits"
}

# clusters WHAT: of the kernel's mbuf clusters, how many there are or what became of requests for them.
clusters() {
	sysctl -n "vm.uma.mbuf_cluster.$1"
}

# refused_requests: for mbufs and clusters, how often none was there.
refused_requests() {
	sysctl -n vm.uma.mbuf.stats.fails vm.uma.mbuf.limit.sleeps vm.uma.mbuf_cluster.stats.fails \
		vm.uma.mbuf_cluster.limit.sleeps vm.uma.mbuf_jumbo_page.stats.fails vm.uma.mbuf_jumbo_page.limit.sleeps |
		tr '\n' ' '
}

# taken RESOURCE: how much of it the inmate `a` got.
taken() {
	sed -n "s/^$1 //p" "$work/a.out"
}

# over_loopback: whether a connection over 127.0.0.1 carries a line, within ten seconds.
over_loopback() {
	nc -4l 127.0.0.1 47872 >"$work/loopback" 2>/dev/null </dev/null &
	listener=$!
	for _ in $(jot 10); do
		echo through | timeout 5 nc -4 -N 127.0.0.1 47872 >/dev/null 2>&1 && break
		sleep 1
	done
	until_true 5 grep -q through "$work/loopback"
	r=$?
	kill "$listener" 2>/dev/null
	wait "$listener" 2>/dev/null
	return $r
}

all_filled() {
	[ "$(grep -c '^filled' "$work/a.out")" = 8 ]
}

section_limits() {
echo "# limits: what an instance takes from the host"
section_limits_known
section_limits_sockets
section_limits_counted
section_limits_instance
section_left_alone
}

section_limits_known() {
registry "$(taker '' facts)" "$second"
run "" one
limits=$(echo "$out" | sed -n 's/^limit //p')
is "every limit that this kernel knows is finite but processor time" "cpu" "$(echo "$limits" | awk '/infinity/ {print $1}')"
is "and the helper knows each: none is shown by its number" "" "$(echo "$limits" | grep '^[0-9]')"
[ "$(echo "$limits" | wc -l)" -ge 15 ]
report $? "they are as many as sys/resource.h has" "$limits"
clean "limits known"
}

section_limits_sockets() {
echo "# eight processes fill the buffers of Unix sockets, at the policy's defaults"
registry "$(taker '' fill-sockets 8)" "$second"
over_loopback
report $? "TCP over 127.0.0.1 works before" "$(cat "$work/loopback")"
refused=$(refused_requests)
before=$(clusters stats.current)
start a one
until_true 120 all_filled
report $? "all eight are at their end" "$(cat "$work/a.out")"
[ "$(clusters stats.current)" -lt $(($(clusters limit.max_items) / 2)) ]
report $? "half of the kernel's mbuf clusters are free" \
	"$(clusters stats.current) of $(clusters limit.max_items) in use, $before before; mbufs $(sysctl -n vm.uma.mbuf.stats.current)"
is "no request for one was refused or waits" "$refused" "$(refused_requests)"
over_loopback
report $? "TCP over 127.0.0.1 works meanwhile" "$(cat "$work/loopback")"
run 'hello\n' two
is "another instance starts and answers meanwhile" hello "$out"
finish a
clean "sockets filled"
given_back() { [ "$(clusters stats.current)" -le $((before + 200)) ]; }
until_true 20 given_back
report $? "all is given back" "$(clusters stats.current) clusters in use, $before before"
}

# What the kernel counts for a user id: some of each, and no more.
section_limits_counted() {
echo "# what is counted for a user id"
sed -i '' 's/"tmp": "2M"/"tmp": "2M", "terminals": 3, "kqueues": 5, "shared_locks": 4, "pipe_buffers": "256K"/' "$etc/jail-policy.json"
registry "$(taker '' take terminals kqueues shared-locks pipes)" "$second"
start a one
until_true 60 settled a '^end'
is "pseudo-terminals" 3 "$(taken terminals)"
is "event queues" 5 "$(taken kqueues)"
is "locks that processes share" 4 "$(taken shared-locks)"
if [ "$(sysctl -n kern.osreldate)" -ge 1500000 ]; then
	[ "$(taken pipes)" -ge 1 ] && [ "$(taken pipes)" -le 64 ]
	report $? "pipes, whose buffers are at least a page, with 256 KiB for all of them" "$(taken pipes)"
else
	skip "pipe buffers" "needs FreeBSD 15"
fi
finish a
registry "$(taker '"terminals": 1, "kqueues": 900' take terminals kqueues)" "$second"
start a one
until_true 60 settled a '^end'
is "the entry lowers the policy's limit, and does not raise it" "1 5" "$(taken terminals) $(taken kqueues)"
finish a
policy
registry "$(taker '' take terminals)" "$second"
start a one
until_true 60 settled a '^end'
is "pseudo-terminals where neither says a number" 32 "$(taken terminals)"
finish a
clean "counted for a user id"
}

# What only resource accounting counts.
section_limits_instance() {
if ! has_racct; then
	skip "shared memory and threads of an instance" "kern.racct.enable is 0"
	return
fi
echo "# what is counted for an instance"
registry "$(taker '"memory": "128M"' take shared-memory)" "$second"
start a one
until_true 120 settled a '^end'
[ "$(taken shared-memory)" -ge 32 ] && [ "$(taken shared-memory)" -le 128 ]
report $? "memory of 128 MiB is also the most of shared memory that nobody maps" "$(taken shared-memory) MiB"
finish a
registry "$(taker '"swap": "64M"' take shared-memory)" "$second"
start a one
until_true 120 settled a '^end'
[ "$(taken shared-memory)" -le 64 ]
report $? "so is swap" "$(taken shared-memory) MiB"
finish a
registry "$(taker '"threads": 20' take threads)" "$second"
start a one
until_true 120 settled a '^end'
is "threads: twenty, the first one included" 19 "$(taken threads)"
finish a
# FreeBSD counts it for nobody; see docs/attacks.md.
registry "$(taker '"memory": "128M"' take large-pages)" "$second"
start a one
until_true 120 settled a '^end'
echo "# shared memory in large pages, which nothing counts: $(taken large-pages) MiB under memory of 128M"
finish a
clean "counted for an instance"
}

not_foreign() {
	! jls -d -j colibri-00000000000000fe name >/dev/null 2>&1
}

# What is not the helper's own, and what it does not take.
section_left_alone() {
echo "# what is left alone, and what is not taken"
registry "$(entry "$one" "$echo_script")" "$second"
jail -c name=colibri-00000000000000fe path="$roots/persistent" persist ip4=disable ip6=disable >/dev/null
root_asks sweep
is "a sweep, beside a jail of somebody else's that is called like ours" 0 "$rc"
root_asks stop --session 00000000000000fe
is "a stop of its name" 0 "$rc"
root_asks stop --all
is "a stop of all" 0 "$rc"
is "that jail is still there" colibri-00000000000000fe "$(jls -j colibri-00000000000000fe name)"
jail -q -r colibri-00000000000000fe
until_true 10 not_foreign
session=00000000000000fd
install -d -m 700 "$state" "$state/$session" "$state/$session/root"
jail -c name=colibri-$session path="$state/$session/root" persist ip4=disable ip6=disable >/dev/null
rmdir "$state/$session/root" "$state/$session"
root_asks sweep
is "one in the helper's own directory, which no record tells of, is swept" "0 " "$rc $(live_jails)"

{ cat "$etc/external-mcp.json"; head -c 900000 /dev/zero | tr '\0' ' '; } >"$etc/external-mcp.json.new"
chmod 640 "$etc/external-mcp.json.new"
chgrp colibri "$etc/external-mcp.json.new"
mv "$etc/external-mcp.json.new" "$etc/external-mcp.json"
root_asks plan one
is "a registry with blanks at its end" 0 "$rc"
"$inmate" rewrite "$etc/external-mcp.json" "$work/enough" >"$work/rewritten" &
writer=$!
changed=none
for _ in $(jot 300); do
	root_asks plan one
	[ "$rc $(rule)" = "78 files" ] && changed=noticed && break
done
touch "$work/enough"
wait $writer
rm "$work/enough"
is "a file that changes while it is read is not taken" noticed "$changed"
root_asks plan one
is "once it rests it is" 0 "$rc"

sed -i '' 's/"max_per_server": 55/"max_per_server": 1/' "$etc/jail-policy.json"
registry "$(entry "$one" "$echo_script")" "$second"
start a one
until_true 30 started a
run "" one
is "a second instance of a server where max_per_server is 1" "69 max_per_server" "$rc $(rule)"
run 'hello\n' two
is "another server starts" hello "$out"
finish a
policy
clean "left alone"
}
