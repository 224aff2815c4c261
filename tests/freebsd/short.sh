#!/bin/sh
# The short proof: installs the package by pkg(8) and uses each of its parts once. It starts, checks and reloads the
# service, calls a jailed server, runs a jailed agent and a script, stops the service, and removes the package.
#
# usage: short.sh STAGED
#
# STAGED is what tests/freebsd/stage makes. PKG in the environment is the pkg(8) to use. Needs root, the base system, pkg,
# and a host without Colibri MCP. It leaves the user alice and the logs. Output is TAP 13, each check with what it saw;
# after each step a line says how many seconds it took.

set -u
umask 022
export PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin

staged=${1:?usage: short.sh STAGED}
pkg=${PKG:-pkg}
[ "$(id -u)" = 0 ] || { echo "Bail out! needs root"; exit 1; }
[ "$(uname -s)" = FreeBSD ] || { echo "Bail out! needs FreeBSD"; exit 1; }
[ ! -e /usr/local/etc/colibri ] || { echo "Bail out! /usr/local/etc/colibri is there"; exit 1; }
[ -r "$staged/meta/+MANIFEST" ] || { echo "Bail out! nothing is staged in $staged"; exit 1; }

tree=$(cd "$(dirname "$0")/../.." && pwd)
etc=/usr/local/etc/colibri
client=/usr/local/bin/colibri-mcp
helper=/usr/local/libexec/colibri-jail-helper
roots=/usr/local/libexec/colibri/roots
server_uid=60801
agent_uid=60802
work=$(mktemp -d /var/tmp/colibri-short.XXXXXX)
trap 'rm -rf "$work"' EXIT

. "$tree/tests/freebsd/tap.sh"
. "$tree/tests/freebsd/pkg.sh"
. "$tree/tests/freebsd/root.sh"

# step NAME: ends the step before, and begins this one.
began=$(date +%s)
step_name=
step() {
	now=$(date +%s)
	[ -z "$step_name" ] || echo "# seconds: $step_name $((now - step_began))"
	step_name=$1
	step_began=$now
	echo "# $1"
}

# registry AGENTS: the server demo, and these agents.
registry() {
	cat >"$etc/external-mcp.json" <<-END
	{ "servers": {
	    "demo": { "command": "$client", "args": ["demo-server", "--notes", "/tmp"], "jail": { "path": "$roots/demo" } } },
	  "agents": { $1 } }
	END
}

daemon_pid() {
	pgrep -x colibri-mcpd | head -1
}

# ask_demo: a call of alice's, again while the server starts.
ask_demo() {
	for _ in $(jot 15); do
		answer=$(alice colibri-mcp call demo echo text=from-a-jail)
		case "$answer" in *from-a-jail*) break ;; esac
		sleep 1
	done
	echo "$answer"
}

jailed_uids() {
	ps -axo uid,jid | awk 'NR > 1 && $2 > 0 {print $1}' | sort -u | tr '\n' ' ' | sed 's/ $//'
}

# The flags of the script's process: C says that it is in capability mode.
script_flags() {
	pids=$(pgrep -x colibri-script)
	# shellcheck disable=SC2086 # process ids
	[ -z "$pids" ] || procstat -s $pids 2>/dev/null | awk '$2 == "colibri-script" {print $10}'
}

is_confined() {
	script_flags | grep -q C
}

remains() {
	jls -d name | sed 's/^/jail: /'
	mount -p | grep -i colibri | sed 's/^/mount: /'
	pgrep -lf '/usr/local/.*/colibri-' | sed 's/^/process: /'
	rctl 2>/dev/null | grep colibri- | sed 's/^/rule: /'
	find /var/run/colibri-jail -mindepth 1 -maxdepth 1 -type d 2>/dev/null | sed 's/^/record: /'
}

nothing_remains() {
	[ -z "$(remains)" ]
}

echo "TAP version 13"
echo "# $(uname -srm) $(uname -K) $(uname -U)"

step installation
version=$(version_of "$staged")
mkdir "$work/repository"
# Without compression, which takes long in emulation.
out=$(create "$staged" -f tar)
report $? "pkg create $version" "$out"
out=$("$pkg" add "$work/repository/colibri-mcp-$version.pkg" 2>&1)
report $? "pkg add colibri-mcp-$version" "$out"
has "it made the user and group of port/UIDs" "uid=748(colibri) gid=748(colibri)" "$(id colibri 2>&1)"
has "it made the group of the socket" mcpusers "$(pw groupshow mcpusers 2>&1)"
is "owners and modes are those of the design" "$demanded" "$(owners)"
is "the configuration is the samples" "" \
	"$(for name in external-mcp jail-policy; do cmp "$etc/$name.json" "$etc/$name.json.sample" 2>&1; done)"
out=$("$pkg" check -s colibri-mcp 2>&1)
report $? "pkg check -s" "$out"

step configuration
pw usershow alice >/dev/null 2>&1 || pw useradd alice -m
out=$(pw groupmod mcpusers -m alice 2>&1)
report $? "pw groupmod mcpusers -m alice" "$out"
make_root "$roots/demo" "$client"
make_root "$roots/worker" /bin/sh /usr/bin/id /usr/bin/sed /usr/bin/tr /sbin/sysctl "$client"
mkdir -p "$roots/worker/var/run/colibri"
# Takes its task, calls a tool, and finishes the task, all by its agent socket.
cat >"$roots/worker/bin/worker" <<-'END'
	colibri=/usr/local/bin/colibri-mcp
	task=$($colibri --json tasks next | tr '\n' ' ')
	number() { echo "$task" | sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p"; }
	answer=$($colibri call demo echo text=from-the-agent)
	$colibri tasks finish "$(number id)" "$(number claim)" "$answer, uid $(id -u), jailed $(sysctl -n security.jail.jailed)"
	END
registry ''
cat >"$etc/jail-policy.json" <<-END
	{ "caller": "colibri", "servers": ["demo", "worker"], "ephemeral": ["$roots/demo", "$roots/worker"],
	  "users": { "demo": { "uid": $server_uid, "gid": $server_uid }, "worker": { "uid": $agent_uid, "gid": $agent_uid } },
	  "limits": { "processes": 64 } }
	END
out=$(sysrc colibri_mcp_enable=YES colibri_mcp_external_call=YES colibri_mcp_write=YES 2>&1)
report $? "sysrc" "$out"

step configtest
out=$(service colibri_mcp configtest 2>&1)
report $? "service colibri_mcp configtest" "$out"
has "the helper has read registry and policy" "demo: good" "$out"

step start
out=$(service colibri_mcp start 2>&1)
report $? "service colibri_mcp start" "$out"
out=$(service colibri_mcp status 2>&1)
report $? "service colibri_mcp status" "$out"
pid=$(daemon_pid)
is "the daemon is not root" colibri "$(ps -o user= -p "$pid")"
is "the socket's directory is for the group" "colibri mcpusers 750" "$(stat -f '%Su %Sg %Lp' /var/run/colibri)"
out=$(alice colibri-mcp status)
report $? "alice: colibri-mcp status" "$out"
out=$(chroot -u 60899 -g 60899 / "$client" --socket /var/run/colibri/colibri.sock status 2>&1)
report $((! $?)) "a user who is not in mcpusers is refused" "$out"

step server
has "alice: colibri-mcp call demo echo" from-a-jail "$(ask_demo)"
is "the server runs in a jail, as the policy's user" "$server_uid" "$(jailed_uids)"

step reload
out=$(alice colibri-mcp agent run worker "'Say hello.'" --follow)
report $((! $?)) "an agent that the registry lacks is refused" "$out"
registry "\"worker\": { \"command\": \"/bin/sh\", \"args\": [\"/bin/worker\"], \"jail\": { \"path\": \"$roots/worker\" },
	\"users\": [\"alice\"], \"tools\": { \"demo\": { \"allow\": [\"echo\"] } } }"
out=$(service colibri_mcp reload 2>&1)
report $? "service colibri_mcp reload" "$out"
has "the daemon has taken over the changed registry" worker "$(alice colibri-mcp agent list)"
cp "$etc/external-mcp.json" "$work/registry"
echo '{"servers": {"demo": {"comand": "/bin/sh"}}}' >"$etc/external-mcp.json"
out=$(service colibri_mcp configtest 2>&1)
report $((! $?)) "configtest fails with a bad registry" "$out"
out=$(service colibri_mcp reload 2>&1)
report $((! $?)) "reload with a bad registry is refused" "$out"
cat "$work/registry" >"$etc/external-mcp.json"
is "the daemon is the same" "$pid" "$(daemon_pid)"

step agent
out=$(alice colibri-mcp agent run worker "'Say hello.'" --follow)
report $? "alice: colibri-mcp agent run worker" "$out"
has "the task has the result of the jailed agent" "from-the-agent, uid $agent_uid, jailed 1" \
	"$(alice colibri-mcp tasks show 1)"

step script
echo 'return [await tools.demo.echo({ text: "from-a-script" }), 6 * 7];' >"$work/script"
chmod 711 "$work"
chmod 644 "$work/script"
out=$(alice colibri-mcp script "$work/script")
has "alice: colibri-mcp script" from-a-script "$out"
has "it has computed" 42 "$out"
echo 'for (;;) {}' >"$work/script"
alice colibri-mcp script "$work/script" >"$work/endless" &
endless=$!
until_true 60 is_confined
is "a script runs in capability mode" C "$(script_flags)"
wait "$endless"
has "its limit of computing ends it" SCRIPT_LIMIT "$(cat "$work/endless")"

step stop
out=$(service colibri_mcp stop 2>&1)
report $? "service colibri_mcp stop" "$out"
until_true 20 nothing_remains
is "no jail, mount, process, resource rule and record is left" "" "$(remains)"
out=$(colibri-mcp trail verify --state-dir /var/db/colibri 2>&1)
report $? "the trail of all of it verifies" "$out"

step deinstallation
out=$("$pkg" delete -y colibri-mcp 2>&1)
report $? "pkg delete" "$out"
is "of the files, changed configuration and roots alone are left" "$etc/external-mcp.json $etc/jail-policy.json " \
	"$(find /usr/local -type f ! -path "$roots/*" | grep -i colibri | sort | tr '\n' ' ')"
is "the helper is gone" "" "$(ls "$helper" 2>/dev/null)"
is "the state is left" "colibri colibri 750" "$(stat -f '%Su %Sg %Lp' /var/db/colibri)"
rm -rf /var/db/colibri "$etc" /usr/local/libexec/colibri
sysrc -x colibri_mcp_enable colibri_mcp_external_call colibri_mcp_write >/dev/null 2>&1
step end
echo "# seconds: all $(($(date +%s) - began))"

echo "1..$number"
exit $((failed > 0))
