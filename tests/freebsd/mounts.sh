# Section mounts: what a jail is shown of the host is the root of a file system of its own, and nothing leads out of
# that; nor out of the jail's own root. Sourced by run.sh. shellcheck shell=sh disable=SC2154,SC2034 # names of run.sh

# What make-root.sh makes places in: root's, whatever other sections give away.
places=$roots/places
# Beside them, in their file system: where a rename leads out to.
away=$roots/away

# shown MORE: policy and entry with $place at /work, of which the policy says MORE; the server climbs.
shown() {
	policy
	sed "s|\"mounts\": .*|\"mounts\": [ { \"path\": \"$place\", \"owner\": $suid, \"at\": \"/work\", \"write\": true$1 } ],|" \
		"$etc/jail-policy.json" >"$work/policy"
	install -m 600 "$work/policy" "$etc/jail-policy.json"
	registry "$(entry "$one, \"mounts\": [{\"path\": \"$place\", \"at\": \"/work\", \"write\": true}]" "$(climber /work)")" "$second"
}

# climber DIRECTORY: the script of a server, on a line for JSON. It goes down below DIRECTORY, waits for the move,
# climbs, and looks for what is on the host alone, from the root of that file system.
climber() {
	printf '%s' "while read -r round; do cd $1/in/deep/er || exit 1; echo \"open \$round\"; read -r go; n=0;" \
		' while [ $n -lt 20 ]; do cd -P .. 2>/dev/null || break; n=$((n + 1)); done;' \
		' if [ -e usr/local/etc/colibri ] || [ -e etc/colibri ]; then echo "out $round"; else echo "held $round"; fi; cd /; done'
}

# climb ROUNDS: in the jail of `a`, a directory below $place is kept open while uid $mover moves it on the host, each
# round anew: out of the place, and elsewhere within it, in turns. Sets `out`: how often what was open led to the
# host's root.
climb() {
	out=0
	round=0
	install -d -m 1777 "$away"
	while [ $round -lt "$1" ]; do
		round=$((round + 1))
		by "$mover" /bin/mkdir -p "$place/in/deep/er" "$place/aside"
		echo "$round" >>"$work/a.in"
		until_true 20 said a "open $round\$"
		to=$away/deep
		[ $((round % 2)) = 1 ] || to=$place/aside/deep
		by "$mover" /bin/mv "$place/in/deep" "$to"
		echo go >>"$work/a.in"
		until_true 20 said a "[dt] $round\$"
		said a "out $round\$" && out=$((out + 1))
		by "$mover" /bin/rm -rf "$to" "$place/in" "$place/aside"
	done
}

begin_climbing() {
	start a one
	until_true 60 started a
	report $? "it starts" "$(cat "$work/a.err")"
}

section_mounts() {
echo "# mounts: the way out of a mount"
section_mounts_refused
section_mounts_root
section_mounts_places
}

# What is refused, and that it is a way out.
section_mounts_refused() {
place=$places/plain
mkdir -p "$places/view" "$roots/one/work"
install -d -o "$suid" -g "$suid" "$place"
shown ''
run "" one
is "a plain directory is refused" "78 files" "$rc $(rule)"
mount -t nullfs "$place" "$places/view"
place=$places/view
shown ''
run "" one
is "a view of one (nullfs) is refused" "78 files" "$rc $(rule)"
umount "$places/view"
place=$places/plain
mover=$suid
shown ', "bounded": false'
has "plan shows that the risk is taken" '"bounded": false' "$("$helper" plan one)"
begin_climbing
climb 3
finish a
[ "$out" -gt 0 ]
report $? "what is refused is a way out: with \"bounded\": false $out of 3 moves led to the host's root" "$(tail -n 3 "$work/a.out")"
clean "a plain directory"
rm -rf "$places" "$away"
}

# The jail's own root, where somebody with an account on the host can make a directory in it.
section_mounts_root() {
echo "# the way out of the root"
place=$roots/one/var/tmp
mover=$duid
mkdir -p "$place"
policy
registry "$(entry "$one" "$(climber /var/tmp)")" "$second"
for wrong in 1777 775 757; do
	chmod $wrong "$place"
	run "" one
	is "a root with a /var/tmp of mode $wrong is refused" "78 files" "$rc $(rule)"
done
chmod 755 "$place"
chown "$mover" "$place"
run "" one
is "a root with a /var/tmp of somebody else's is refused" "78 files" "$rc $(rule)"
chown root "$place"
begin_climbing
chmod 1777 "$place"
climb 3
finish a
[ "$out" -gt 0 ]
report $? "what is refused is a way out: once others may write there $out of 3 moves led to the host's root" "$(tail -n 3 "$work/a.out")"
rmdir "$place"
ln -s /tmp "$place"
run "" one
is "a link to /tmp, which is covered, is not" 0 "$rc"
rm "$place"
rmdir "$roots/one/var" 2>/dev/null
rm -rf "$away"
clean "the root"
}

section_mounts_places() {
echo "# places"
section_place_ufs
section_place_zfs
}

# make_place PATH ARGUMENT…: as the manual says.
make_place() {
	place=$1
	shift
	out=$(sh "$tree/etc/make-root.sh" -w "$suid:$suid" -s 64M "$@" "$place" 2>&1)
	report $? "make-root.sh -w makes a place: $place" "$out"
	is "it is of its owner and group, who both work there" "$suid $suid 2770" "$(stat -f '%u %g %Mp%Lp' "$place")"
}

# hold KIND: nothing that its owner moves lets a server out of $place.
hold() {
	mover=$suid
	shown ''
	begin_climbing
	for who in 0 "$suid"; do
		by "$who" /bin/mv "$place" "$away.place" 2>/dev/null
		is "$1: uid $who cannot move the place itself" "1 yes" "$? $([ -d "$place" ] && [ ! -e "$away.place" ] && echo yes)"
	done
	climb "${ROUNDS:-1000}"
	finish a
	is "$1: moves that led out, of ${ROUNDS:-1000}" 0 "$out"
	is "$1: all of them were tried" "${ROUNDS:-1000}" "$(grep -c '^held ' "$work/a.out")"
	clean "a place ($1)"
}

# again_at_boot KIND SHUTDOWN BOOT: after these commands the place is as it was.
again_at_boot() {
	echo text >"$place/file"
	before=$(stat -f '%u %g %Mp%Lp' "$place")
	out=$(eval "$2" 2>&1)
	[ ! -e "$place/file" ]
	report $? "$1: a shutdown takes it away" "$out"
	out=$(eval "$3" 2>&1)
	is "$1: a boot brings it back as it was" "$before text" "$(stat -f '%u %g %Mp%Lp' "$place") $(cat "$place/file" 2>/dev/null)"
	printf '%s\n' "$out" | sed 's/^/# /'
	rm -f "$place/file"
}

section_place_ufs() {
install -d -o "$duid" "$work/project/sub"
echo text >"$work/project/sub/file"
chmod 600 "$work/project/sub/file"
make_place "$places/ufs" -f "$work/project"
is "with -f it has the project, which is theirs" "$suid $suid 660 text" \
	"$(stat -f '%u %g %Lp' "$place/sub/file") $(cat "$place/sub/file")"
rm -rf "$place/sub" "$work/project"
unit=$(mount -p | awk -v at="$place" '$2 == at {sub("/dev/md", "", $1); print $1}')
# rc.d/mdconfig is for files of the root file system, rc.d/mdconfig2 for all others.
again_at_boot ufs "service mdconfig2 stop md$unit; service mdconfig stop md$unit" \
	"service mdconfig start md$unit; service mdconfig2 start md$unit"
is "ufs: nosuid, as it was made" "ufs rw,nosuid" "$(mount -p | awk -v at="$place" '$2 == at {print $3, $4}')"
hold ufs
places_gone
}

section_place_zfs() {
if ! command -v zpool >/dev/null || ! kldload -n zfs 2>/dev/null; then
	# The guest sets it, whose kernel has the module.
	if [ "${REQUIRE_ZFS:-no}" = yes ]; then
		report 1 "there is ZFS" "$(command -v zpool) $(kldload zfs 2>&1)"
	else
		skip "a place in ZFS" "there is none on this host"
	fi
	return
fi
pool_made
make_place "$places/pool/zfs"
is "zfs: it is a dataset below that of the directory above" "colibritest/zfs $place 64M off" \
	"$(zfs list -H -o name,mountpoint,quota,setuid colibritest/zfs | tr '\t' ' ')"
again_at_boot zfs "zpool export colibritest" "zpool import -d /var/tmp colibritest"
hold zfs
# As bsdinstall(8) makes it: /usr/local is in the boot environment.
zfs create -o mountpoint=none colibritest/ROOT
zfs create -o "mountpoint=$places/environment" colibritest/ROOT/default
make_place "$places/environment/zfs"
is "zfs: in a boot environment it is none of that" "colibritest/ROOT colibritest/ROOT/default" \
	"$(zfs list -H -o name -r colibritest/ROOT | tr '\n' ' ' | sed 's/ $//')"
is "zfs: but below colibri of its pool" "colibritest/colibri/zfs $place" "$(zfs list -H -o name,mountpoint colibritest/colibri/zfs | tr '\t' ' ')"
places_gone
}

pool_made() {
	mkdir -p "$places"
	truncate -s 256M /var/tmp/colibri-pool
	zpool create -m "$places/pool" colibritest /var/tmp/colibri-pool
}

# Takes away all places below this test's directory, and what brings them back at boot.
places_gone() {
	mount -p | awk -v below="$roots/" 'index($2, below) == 1 && $1 ~ "^/dev/md" {print $1, $2}' | while read -r device at; do
		umount "$at"
		mdconfig -d -u "${device#/dev/md}"
		sysrc -x "mdconfig_${device#/dev/}" >/dev/null
		rm -f "$at.ufs"
	done
	! grep -q "[[:space:]]$roots/" /etc/fstab || sed -i '' "\\|[[:space:]]$roots/|d" /etc/fstab
	if [ -f /var/tmp/colibri-pool ]; then
		zpool destroy -f colibritest
		rm -f /var/tmp/colibri-pool
	fi
	rm -rf "$places" "$away"
}
