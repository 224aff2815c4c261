# shellcheck shell=sh

# A PostgreSQL of the place's own, and of FreeBSD what the page uses.
before() {
	for programs in /usr/lib/postgresql/*/bin; do PATH=$programs:$PATH; done
	export PATH PGDATA="$HOME/data" PGHOST="$HOME" PGUSER=postgres PGPORT
	PGPORT=$(python3 -c 'import socket
with socket.create_server(("127.0.0.1", 0)) as free: print(free.getsockname()[1])')
	initdb --no-sync --auth=trust --username=postgres --encoding=UTF8 --locale=C >/dev/null
	printf "unix_socket_directories = '%s'\nport = %s\nfsync = off\n" "$PGHOST" "$PGPORT" >>"$PGDATA/postgresql.conf"
	# Who comes over the network needs the page's line.
	sed -i '/^host/d' "$PGDATA/pg_hba.conf"
	pg_ctl -w -l "$HOME/log" -o '-c listen_addresses=' start >/dev/null
	mkdir "$HOME/alpha"
}

sysrc() { eval "${1%%=*}=\${1#*=}"; }

# shellcheck disable=SC2154 # sysrc sets what the page names
service() {
	case "$*" in
	"postgresql restart") pg_ctl -w -l "$HOME/log" -o '' restart >/dev/null ;;
	"colibri_mcp restart") daemon "$colibri_mcp_host" "$colibri_mcp_board" ;;
	*) echo "service $*?" >&2 && false ;;
	esac
}

# daemon HOST BOARD: starts a host's daemon, in a directory of the host's name.
daemon() {
	mkdir -p "$HOME/$1" && chmod 700 "$HOME/$1"
	echo '{"servers": {}}' >"$HOME/$1/external-mcp.json"
	echo '{"hosts": {}}' >"$HOME/$1/hosts.json"
	(colibri-mcpd --write --host "$1" --board "$2" --socket "$HOME/$1/socket" --state-dir "$HOME/$1/state" \
		--external-config "$HOME/$1/external-mcp.json" --hosts "$HOME/$1/hosts.json" >"$HOME/$1/log" 2>&1 &
		echo $! >"$HOME/$1/pid")
	shows "the board is there" "$HOME/$1/log"
}

# shows TEXT FILE: waits until the text stands in the file.
shows() {
	for _ in $(seq 300); do
		grep -q "$1" "$2" && return
		sleep 0.1
	done
	cat "$2"
	false
}

# The other two hosts come to the board, and all know a task of the first as alpha's word.
after() {
	for host in beta gamma; do
		install -d -m 700 "$HOME/$host" "$HOME/$host/board"
		install -m 600 ca.crt $host.crt $host.key "$HOME/$host/board"
		daemon $host "$(echo "$colibri_mcp_board" | sed "s/alpha/$host/g")" || return
	done
	[ "$(psql -Atc "SELECT nspowner::regrole FROM pg_namespace WHERE nspname = 'colibri'" colibri)" = colibri ] || return
	key=$(cat "$HOME/alpha/state/trail.pub")
	me=$(id -un)@alpha
	for host in beta gamma; do
		echo "{\"hosts\": {\"alpha\": {\"key\": \"$key\", \"persons\": [\"$me\"]}}}" >"$HOME/$host/hosts.json"
		colibri-mcp --socket "$HOME/$host/socket" server reload || return
	done
	# The page's last command makes claims of before worthless, which takes effect now.
	for _ in $(seq 30); do
		colibri-mcp --socket "$HOME/alpha/socket" call colibri colibri_create_task title=hello description=there && break
		sleep 0.5
	done
	for host in beta gamma; do
		colibri-mcp --socket "$HOME/$host/socket" tasks | grep "hello  from $me; its person has no" || return
	done
	# The daemons first: they would wait for the database.
	for pid in "$HOME"/*/pid; do kill "$(cat "$pid")"; done
	for host in alpha beta gamma; do
		while [ -e "$HOME/$host/socket" ]; do sleep 0.1; done
	done
	pg_ctl -w stop >/dev/null
}
