# Sourced by .ci/lint and .ci/packages: `check NAME COMMAND…` runs a check and prints what came of it. At the end `status`
# is 1 if one failed.

status=0
check() {
    local name=$1
    shift
    if "$@"; then
        printf 'ok: %s\n' "$name"
    else
        printf 'FAILED: %s\n' "$name"
        status=1
    fi
}
