# A package that tests/freebsd/stage prepared, and what it installs. Sourced by package.sh and short.sh.
# shellcheck shell=sh disable=SC2154,SC2034 # names of package.sh and short.sh

version_of() {
	sed -n 's/^version: "\(.*\)"/\1/p' "$1/meta/+MANIFEST"
}

# create STAGED [OPTION…]: its package, in a repository of its own.
create() {
	staged=$1
	shift
	"$pkg" -o "PLIST_KEYWORDS_DIR=$(realpath "$staged")/Keywords" create "$@" -m "$staged/meta" -p "$staged/plist" \
		-r "$staged/stage" -o "$work/repository" 2>&1
}

# What security rests on: owner, group, mode.
owners() {
	for path in etc/colibri etc/colibri/daemon-secrets etc/colibri/secrets etc/colibri/external-mcp.json \
		etc/colibri/jail-policy.json libexec/colibri-jail-helper libexec/colibri/roots; do
		mode=$(printf %o $((0$(stat -f %p "/usr/local/$path") & 07777)))
		echo "$path $(stat -f '%Su %Sg' "/usr/local/$path") $mode"
	done
	stat -f '%N %Su %Sg %Lp' /var/db/colibri
}
demanded="etc/colibri root wheel 755
etc/colibri/daemon-secrets root colibri 750
etc/colibri/secrets root wheel 700
etc/colibri/external-mcp.json root colibri 640
etc/colibri/jail-policy.json root wheel 600
libexec/colibri-jail-helper root colibri 4550
libexec/colibri/roots root wheel 700
/var/db/colibri colibri colibri 750"

alice() {
	su -l alice -c "$*" 2>&1
}
