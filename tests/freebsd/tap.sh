# Checks in TAP 13, each with what it saw: sourced by the scripts beside this file.
# shellcheck shell=sh

number=0
failed=0

# report STATUS WHAT [SEEN]: a check, and what it saw. With BAIL=yes in the environment the first that fails is the last.
report() {
	status=$1
	shift
	number=$((number + 1))
	if [ "$status" -eq 0 ]; then
		echo "ok $number - $1"
	else
		echo "not ok $number - $1"
		failed=$((failed + 1))
	fi
	[ $# -gt 1 ] && printf '%s\n' "${2:-(nothing)}" | sed 's/^/# saw: /' | head -150
	[ "$status" -eq 0 ] || [ "${BAIL:-no}" = no ] || { echo "Bail out! BAIL is set"; exit 1; }
	return 0
}

skip() {
	number=$((number + 1))
	echo "ok $number - $1 # SKIP $2"
}

# is WHAT EXPECTED SEEN
is() {
	[ "$2" = "$3" ]
	report $? "$1" "$3"
}

# has WHAT PATTERN SEEN (a pattern of case)
has() {
	# shellcheck disable=SC2254 # the second argument is a pattern
	case "$3" in *$2*) r=0 ;; *) r=1 ;; esac
	report $r "$1" "$3"
}

lacks() {
	# shellcheck disable=SC2254 # the second argument is a pattern
	case "$3" in *$2*) r=1 ;; *) r=0 ;; esac
	report $r "$1" "$3"
}

# until_true SECONDS COMMAND: looks again every tenth of a second.
until_true() {
	tries=$(($1 * 10))
	shift
	while [ $tries -gt 0 ]; do
		"$@" && return 0
		sleep 0.1
		tries=$((tries - 1))
	done
	return 1
}

# amiss: the facts that doctor's report in JSON on standard input calls bad, but that this kernel is not the latest: what
# a guest is made of is no fault of the host's set-up.
amiss() {
	awk -F '"' '$2 == "fact" {fact = $4; facts++}
		$2 == "outcome" && $4 == "bad" && fact !~ /security advisory/ {print fact}
		END {if (!facts) print "no report"}'
}
