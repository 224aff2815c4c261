# shellcheck shell=sh

# The server `git`, with a commit that waits, and two tools whose definitions have changed.
before() {
	mkdir "$HOME/fixture" "$XDG_CONFIG_HOME" "$XDG_CONFIG_HOME/colibri" && chmod 700 "$XDG_CONFIG_HOME"/colibri
	definitions First
	server="\"command\": \"$(command -v fixture-server)\", \"args\": [\"--dir\", \"$HOME/fixture\", \"--as\", \"git\"]"
	echo "{ \"servers\": { \"git\": { $server, \"tools\": { \"confirm\": [\"git_commit\"] } } } }" \
		>"$XDG_CONFIG_HOME/colibri/external-mcp.json"
	colibri-mcp server enable git
	colibri-mcp tools git
	for message in first second; do
		(colibri-mcp call git git_commit message=$message </dev/null >"$HOME/$message" 2>&1 &)
	done
	until [ "$(pending | wc -l)" -eq 2 ]; do sleep 0.1; done
	definitions Second
	colibri-mcp server restart git
	colibri-mcp tools git
	touch "$HOME/auth.log"
}

# definitions WORD: the server's tools, described with this word.
definitions() {
	for tool in git_log git_show git_commit; do
		description="$1 description"
		[ $tool != git_commit ] || description=Commits
		printf '{"name": "%s", "description": "%s", "inputSchema": {"type": "object"}}\n' "$tool" "$description"
	done | paste -sd, | sed 's/.*/[&]/' | tr -d '\n' >"$HOME/fixture/git.definitions"
}

# The ids of the calls that wait.
pending() {
	colibri-mcp approvals --json | python3 -c 'import json, sys
for call in json.load(sys.stdin)["approvals"]: print(call["id"])'
}

# calls_during COMMAND…: runs a command, and calls a tool once the trail says that somebody watches.
calls_during() {
	( (until colibri-mcp trail show --all --json | grep -q '"event": *"tap"'; do sleep 0.1; done
	until [ -e "$HOME/watched" ]; do
		colibri-mcp call git git_log </dev/null >/dev/null 2>&1 || break
		sleep 0.1
	done; touch "$HOME/calls-ended") >/dev/null 2>&1 &)
	"$@"
}

after() {
	touch "$HOME/watched"
	until [ -e "$HOME/calls-ended" ]; do sleep 0.1; done
	grep -h . "$HOME/first" "$HOME/second"
	test -s "$HOME/day.html"
}
