#!/bin/sh
# Installs, by name and pinned version, the servers and clients that the interoperation and conformance tests use, and
# prints the directory. It lies outside the repository and is kept between runs, under a hash of the manifests:
# another version is another directory.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=${COLIBRI_INTEROP_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/colibri-interop}
key=$(cd "$here" && cat package.json package-lock.json requirements*.txt | sha256sum | cut -c1-16)
dir=$root/$key

if [ ! -e "$dir/complete" ]; then
    rm -rf "$dir"
    mkdir -p "$dir"
    cp "$here/package.json" "$here/package-lock.json" "$here/.npmrc" "$dir"
    # --ignore-scripts: nothing that is installed runs before it is called.
    (cd "$dir" && npm ci --ignore-scripts --loglevel=error >&2)
    for list in "$here"/requirements*.txt; do
        name=$(basename "$list" .txt)
        python3 -m venv "$dir/$name"
        "$dir/$name/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: \
            -r "$list" >&2
    done
    : >"$dir/complete"
fi
printf '%s\n' "$dir"
