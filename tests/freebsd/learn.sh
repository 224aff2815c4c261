# Section learn: colibri-mcp learn below ktrace(1), what it proposes, and the proposal tried in a jail. Sourced by run.sh.
# shellcheck shell=sh disable=SC2154,SC2034 # names of run.sh

# as_learner WORD…: the client, as a user with a home.
as_learner() {
	chroot -u alice -g alice / /usr/bin/env -i PATH="$PATH" NO_COLOR=1 "$client" --socket "$socket" "$@"
}

# A server that is a shell script: one tool reads a note, the other adds to it. Each runs programs of the base system.
learned_server() {
	cat >"$1" <<-'SERVER'
	#!/bin/sh
	text() { answer='{"content":[{"type":"text","text":"'$1'"}]}'; }
	failed='{"content":[{"type":"text","text":"it failed"}],"isError":true}'
	while read -r line; do
		id=$(expr "$line" : '.*"id":\([0-9]*\)')
		case $line in
		*'"initialize"'*) answer='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},
			"serverInfo":{"name":"notes","version":"1"}}' ;;
		*'"tools/list"'*) answer='{"tools":[{"name":"read","inputSchema":{"type":"object"},
			"annotations":{"readOnlyHint":true}},{"name":"add","inputSchema":{"type":"object"}}]}' ;;
		*'"name":"read"'*) read -r note <"$1/note" && text "$note" || answer=$failed ;;
		*'"name":"add"'*) echo more >>"$1/added" && text added || answer=$failed ;;
		*'"server/discover"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32601,"message":"no"}}'; continue ;;
		*) continue ;;
		esac
		echo '{"jsonrpc":"2.0","id":'"$id"',"result":'"$answer"'}' | tr -d '\n\t'
		echo
	done
	SERVER
	chmod 755 "$1"
}

# used SERVER CALLS COMMAND…: a client that uses a server which is learned: its answers are in `said`.
used() {
	learned=$1
	calls=$2
	shift 2
	rm -f "$work/to"
	mkfifo "$work/to"
	: >"$work/said"
	as_learner learn "$learned" --record -- "$@" <"$work/to" >"$work/said" 2>"$work/learn.err" &
	learner=$!
	exec 7>"$work/to"
	trap '' PIPE
	n=0
	{
		echo '"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}'
		echo '"tools/list"'
		echo "$calls"
	} >"$work/requests"
	while read -r request; do
		n=$((n + 1))
		echo "{\"jsonrpc\":\"2.0\",\"id\":$n,\"method\":$request}" >&7
		until_true 30 grep -q "\"id\":$n\b" "$work/said" || break
	done <"$work/requests"
	exec 7>&-
	trap - PIPE
	wait "$learner"
	report $? "learn $learned: a session of $n requests" "$(cat "$work/said" "$work/learn.err")"
	as_learner learn "$learned" --propose --json >"$work/proposal" 2>&1
}

# part KEY NEXT: an object of the proposal.
part() {
	sed -n "s/.*\"$1\":\({.*}\),\"$2\":.*/\1/p" "$work/proposal"
}

section_learn() {
echo "# learn: below ktrace(1)"
pw usershow alice >/dev/null 2>&1 || pw useradd alice -m
notes=/home/alice/notes
install -d -o alice -g alice "$notes"
echo "a line" >"$notes/note"
rm -rf /home/alice/.local
rm -f "$notes/added"
learned_server /usr/local/bin/learned-server
used script '"tools/call","params":{"name":"read","arguments":{}}
"tools/call","params":{"name":"add","arguments":{"text":"x"}}' /usr/local/bin/learned-server "$notes"
seen=$(as_learner learn script --propose 2>&1)
report $? "learn script --propose" "$seen"
for line in "program       /bin/sh " "program       /usr/bin/tr " "program       /bin/expr " "mount, write  $notes "; do
	has "it has seen $line" "$line" "$seen"
done
has "all of it is permitted by what is proposed" " 0 refused" "$seen"
lacks "nothing of it was left unseen" "To know" "$seen"
used native '"tools/call","params":{"name":"write_note","arguments":{"name":"a","text":"b"}}
"tools/call","params":{"name":"read_note","arguments":{"name":"a"}}' "$client" demo-server --notes "$notes"
seen=$(as_learner learn native --propose 2>&1)
report $? "learn native --propose" "$seen"
has "a program of FreeBSD's own: its place" "mount, write  $notes " "$seen"

as_learner learn script --propose --json >"$work/proposal"
install -d "$etc/contracts"
part contract entry >"$etc/contracts/script.json"
make_root "$roots/script" /bin/sh /bin/expr /usr/bin/tr
install -d "$roots/script/usr/local/bin" "$roots/script$notes"
cp /usr/local/bin/learned-server "$roots/script/usr/local/bin/"
out=$(sh "$tree/etc/make-root.sh" -w 60801:60801 -s 64M -f "$notes" "$places/script" 2>&1)
report $? "make-root.sh -w -f: the place, filled" "$out"
adapted() { sed -e "s|/usr/local/libexec/colibri/roots|$roots|g" -e "s|/usr/local/colibri/work|$places|g"; }
{
	printf '{"servers": '
	part entry filter | adapted
	echo '}'
} >"$etc/external-mcp.json"
chgrp colibri "$etc/external-mcp.json"
chmod 640 "$etc/external-mcp.json"
{
	printf '{"caller": "colibri", "audit": "best-effort", "max": 8, "max_per_server": 8, "allow": [], '
	part policy refused | adapted | sed 's/^{//'
} >"$etc/jail-policy.json"
rm -rf "$dir"
daemon_start --learn
chmod 711 "$dir"
chmod 666 "$socket"
out=$(as_learner learn script --try --yes 2>&1)
report $? "learn script --try, against the jail of the proposal" "$out"
has "all that was recorded works there" "Everything that was repeated works" "$out"
has "in a jail" '"jail":{"name":"ephemeral"' "$(servers_json)"
is "and the place was written in there" 2 "$(grep -c more "$places/script/added" 2>&1)"
rm "$places/script/note"
out=$(as_learner learn script --try --yes 2>&1)
is "without the note it fails" 1 $?
has "with the tool and its answer" "read {}: it failed" "$out"
out=$(as_learner learn native --try --yes 2>&1)
has "a server that has no jail yet is not tried" "the daemon has no server native in a jail yet" "$out"
daemon_stop
clean "learn"
places_gone
root_gone script
rm -rf "$etc/contracts/script.json" /usr/local/bin/learned-server
policy
}
