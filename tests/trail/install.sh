#!/bin/sh
# Installs what the second reader of the trail needs, pinned in requirements.txt, and prints the Python that has it. Kept
# between runs like the installation of the interoperation tests.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=${COLIBRI_INTEROP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/colibri-interop}
dir=$root/trail-$(sha256sum "$here/requirements.txt" | cut -c1-16)

if [ ! -e "$dir/complete" ]; then
    rm -rf "$dir"
    python3 -m venv "$dir"
    "$dir/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
        -r "$here/requirements.txt" >&2
    : >"$dir/complete"
fi
printf '%s\n' "$dir/bin/python"
