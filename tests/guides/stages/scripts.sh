# shellcheck shell=sh

# A server `tracker` with three issues.
before() {
	colibri-mcp add tracker --yes -- "$(command -v python3)" "$STAGES/issues.py"
}

after() { :; }
