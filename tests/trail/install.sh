#!/bin/sh
# Installs what strangers' programs about the trail need, and prints the Python that has it. Kept between runs like the
# installation of the interoperation tests.
#
# usage: install.sh        the second reader of the trail, pinned in requirements.txt
#        install.sh aics   aics-witness, which needs Python 3.12, and Debian's Go with sumdb
#        install.sh otlp   OpenTelemetry's own definitions
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=${COLIBRI_INTEROP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/colibri-interop}
python=python3
case ${1:-} in
	'') set -- --only-binary :all: --require-hashes -r "$here/requirements.txt" ;;
	aics)
		set -- aics-tlog==0.2.1 aics-witness==0.1.0
		for python in python3.14 python3.13 python3.12; do
			! "$python" --version >/dev/null 2>&1 || break
		done
		if [ "$(id -u)" -eq 0 ]; then
			apt-get update -qq >&2
			DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends golang-go \
				golang-golang-x-mod-dev >&2
		fi
		;;
	otlp) set -- opentelemetry-proto==1.45.2 ;;
	*) sed -n '/^# usage/,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 64 ;;
esac
key=$({ printf '%s\n' "$@"; cat "$here/requirements.txt"; } | sha256sum | cut -c1-16)
dir=$root/trail-$key

if [ ! -e "$dir/complete" ]; then
	rm -rf "$dir"
	"$python" -m venv "$dir"
	"$dir/bin/pip" install --quiet --disable-pip-version-check "$@" >&2
	: >"$dir/complete"
fi
printf '%s\n' "$dir/bin/python"
