# Section mounts: what a jail is shown of the host is the root of a file system of its own, and nothing leads out of that.
# Sourced by run.sh.
# shellcheck shell=sh disable=SC2154,SC2034 # names of run.sh

# mounts_policy MORE: the policy, with one mount, of which it says MORE.
mounts_policy() {
	policy
	sed "s|\"mounts\": .*|\"mounts\": [ { \"path\": \"$place\", \"owner\": $suid, \"at\": \"/work\", \"write\": true$1 } ],|" \
		"$etc/jail-policy.json" >"$work/policy"
	install -m 600 "$work/policy" "$etc/jail-policy.json"
}

# climb ROUNDS: in the jail, a directory below the mount is kept open while its owner moves it out of the source on the
# host, each round anew; says how often what was open led to the host's root.
climb() {
	registry "$(entry "$one, \"mounts\": [{\"path\": \"$place\", \"at\": \"/work\", \"write\": true}]" "$climber")" "$second"
	start a one
	until_true 60 started a
	report $? "it starts" "$(cat "$work/a.err")"
	out=0
	round=0
	while [ $round -lt "$1" ]; do
		round=$((round + 1))
		mkdir -p "$place/in/deep/er" "$away"
		chown -R "$suid" "$place/in"
		echo "$round" >>"$work/a.in"
		until_true 20 said a "open $round"
		mv "$place/in/deep" "$away/deep" 2>/dev/null || rm -rf "$place/in/deep"
		echo go >>"$work/a.in"
		until_true 20 eval "tail -n 1 '$work/a.out' | grep -q ' $round\$'"
		tail -n 1 "$work/a.out" | grep -q '^out ' && out=$((out + 1))
		rm -rf "$away/deep" "$place/in"
	done
	finish a
}

# In the jail: goes down, waits for the move, climbs, and looks for what is on the host alone. One line, for JSON.
climber='while read -r round; do cd /work/in/deep/er || exit 1; echo "open $round"; read -r go; n=0;'
climber="$climber"' while [ $n -lt 20 ]; do cd -P .. 2>/dev/null || break; n=$((n + 1)); done;'
climber="$climber"' if [ -e usr/local/etc/colibri ]; then echo "out $round"; else echo "held $round"; fi; cd /; done'

section_mounts() {
echo "# mounts: the way out of a mount"
away=/var/tmp/colibri-away
place=$roots/shared/plain
mkdir -p "$place" "$roots/one/work"
chown "$suid:$suid" "$place"
mounts_policy ''
registry "$(entry "$one, \"mounts\": [{\"path\": \"$place\", \"at\": \"/work\", \"write\": true}]" "$climber")" "$second"
start a one
until_true 60 ended a
has "a plain directory is refused" "not the root of a file system of its own" "$(cat "$work/a.err")"
mkdir -p "$roots/shared/view"
mount -t nullfs "$place" "$roots/shared/view"
place=$roots/shared/view
mounts_policy ''
registry "$(entry "$one, \"mounts\": [{\"path\": \"$place\", \"at\": \"/work\", \"write\": true}]" "$climber")" "$second"
start a one
until_true 60 ended a
has "a view of one (nullfs) is refused" "not the root of a file system of its own" "$(cat "$work/a.err")"
umount "$roots/shared/view"
place=$roots/shared/plain
mounts_policy ', "bounded": false'
climb 3
[ "$out" -gt 0 ]
report $? "what is refused is a way out: with \"bounded\": false $out of 3 moves led to the host's root" "$(tail -n 3 "$work/a.out")"
has "plan shows that the risk is taken" '"bounded": false' "$("$helper" plan one)"
rm -rf "$roots/shared/plain" "$away"
for kind in ufs zfs; do
	place=$roots/shared/$kind
	case $kind in
	ufs)
		out=$(sh "$tree/etc/make-root.sh" -w "$suid:$suid" -s 64M "$place" 2>&1)
		;;
	zfs)
		if ! command -v zpool >/dev/null || ! kldload -n zfs 2>/dev/null; then
			skip "a ZFS dataset" "no ZFS on this host"
			continue
		fi
		truncate -s 256M /var/tmp/colibri-pool
		zpool create -m "$roots/shared/pool" colibritest /var/tmp/colibri-pool
		place=$roots/shared/pool/$kind
		out=$(sh "$tree/etc/make-root.sh" -w "$suid:$suid" -s 64M "$place" 2>&1)
		;;
	esac
	report $? "make-root.sh -w makes a place ($kind)" "$out"
	is "of its owner and group, who both work there" "$suid $suid 2770" "$(stat -f '%u %g %OMp%OLp' "$place" | sed 's/ 0*\([1-9]\)/ \1/g')"
	mounts_policy ''
	climb "${ROUNDS:-1000}"
	is "a $kind of its own: moves that led out, of ${ROUNDS:-1000}" 0 "$out"
	is "and all of them were tried" "${ROUNDS:-1000}" "$(grep -c '^held ' "$work/a.out")"
	clean "the place ($kind)"
	case $kind in
	ufs)
		unit=$(mount -p | awk -v at="$place" '$2 == at {sub("/dev/md", "", $1); print $1}')
		has "it is mounted at each boot" "/dev/md$unit	$place	ufs	rw,nosuid,noauto" "$(cat /etc/fstab)"
		umount "$place" && mdconfig -d -u "$unit" && sysrc -x "mdconfig_md$unit" >/dev/null
		sed -i '' "\\|$place|d" /etc/fstab
		rm -rf "$place" "$place.ufs"
		;;
	zfs)
		zpool destroy colibritest
		rm -f /var/tmp/colibri-pool
		;;
	esac
done
}
