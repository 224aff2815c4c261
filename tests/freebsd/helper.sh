# Section 13: what callers, terminals and files can do to the helper, and teardown from records alone. Sourced by run.sh.
# shellcheck shell=sh disable=SC2154,SC2034 # names of run.sh

root_asks() {
	"$helper" "$@" >"$work/out" 2>"$work/err"
	rc=$?
	err=$(cat "$work/err")
}

# fake_record SESSION: an instance that a killed helper left, with nothing noted yet.
fake_record() {
	install -d -m 700 "$state" "$state/$1" "$state/$1/root"
	mkfifo -m 600 "$state/$1/stop"
	install -m 600 /dev/null "$state/$1/record"
}

# fsid_of PATH: as the kernel's two numbers (mount -v shows the bytes).
fsid_of() {
	hex=$(mount -v | awk -v at="$1" '$3 == at { sub(/.*fsid /, ""); sub(/[^0-9a-f].*/, ""); print }')
	for half in "$(echo "$hex" | cut -c1-8)" "$(echo "$hex" | cut -c9-16)"; do
		n=$((0x$(echo "$half" | sed 's/\(..\)\(..\)\(..\)\(..\)/\4\3\2\1/')))
		[ $n -lt 2147483648 ] || n=$((n - 4294967296))
		printf '%d ' $n
	done
}

alive() {
	ps -p "$1" >/dev/null 2>&1
}

section_13() {
echo "# 13 callers, terminals, files; teardown from records alone"
registry "$(entry "$one" "$echo_script")" "$second"
echo "# marks"
root_asks sweep
for class in colibri-developers colibri-deadbeefdeadbeef; do
	"$inmate" in-class "$class" /bin/sleep 300 &
	person=$!
	until_true 20 eval "ps -o class= -p $person | grep -q colibri-"
	root_asks sweep
	is "sweep" 0 "$rc"
	alive $person
	report $? "a person's process in the login class $class outlives a sweep" "$(ps -o pid,class,command -p $person)"
	kill -9 $person 2>/dev/null
done
for name in a b; do
	next_session=abcdef012$(printf '%07x' $((counter + $$ * 256)))
	start $name one
	until_true 20 started $name
done
next_session=
kill -9 "$(supervisor_of a)"
until_true 20 ended a
root_asks stop --session "$(cat "$work/a.session")"
is "stop of a killed instance" 0 "$rc"
echo whole >>"$work/b.in"
until_true 10 said b whole
report $? "one whose session begins with the same nine digits goes on" "$(cat "$work/b.out")"
is "its processes bear all sixteen digits" "$(cat "$work/b.session")" \
	"$(ps -axo logname,class,command | awk '$2 ~ /^colibri-/ && $3 != "<defunct>" {print $1}' | sort -u)"
finish a
finish b
clean "marks"

echo "# mounts"
session=00000000000000aa
fake_record $session
mount -t tmpfs -o size=1m tmpfs "$state/$session/root"
root_asks sweep
is "a mount that was not noted yet: one sweep" 0 "$rc"
clean "a mount that was not noted"
mkdir -p /mnt
mount -t tmpfs -o size=1m tmpfs /mnt
fake_record $session
echo "mount $(fsid_of /mnt)$state/$session/root" >"$state/$session/record"
root_asks sweep
is "a record with another's mount: swept" 0 "$rc"
is "the mount stays" 1 "$(mount -p | grep -c '[[:space:]]/mnt[[:space:]]')"
umount /mnt
mkdir -p "$roots/shared/project"
chown $suid "$roots/shared/project"
nc -lU "$roots/shared/project/sock" >"$work/told" 2>/dev/null </dev/null &
listener=$!
until_true 10 test -S "$roots/shared/project/sock"
chmod 777 "$roots/shared/project/sock"
registry "$(entry "$one"', "mounts": [{"path": "'"$roots"'/shared/project", "at": "/work", "write": true}]' \
	'ls /work; echo through | nc -w 2 -NU /work/sock 2>&1; echo end')" "$second"
run "" one
has "a host's socket is seen below a mount" sock "$out"
if [ "$(sysctl -n kern.osreldate)" -ge 1500000 ]; then
	is "and nobody in the jail connects to it" "" "$(cat "$work/told")"
else
	skip "and nobody in the jail connects to it" "needs FreeBSD 15"
fi
kill $listener 2>/dev/null
rm -f "$roots/shared/project/sock"
registry "$(entry "$one" "$echo_script")" "$second"
clean "mounts"

echo "# pipes"
digest=$(digest_of one)
mkfifo "$work/fifo"
chmod 666 "$work/fifo"
chmod 711 "$work"
new_session
{ { as_caller /usr/bin/timeout 20 "$helper" run --session "$session" --digest "$digest" one 0<>"$work/fifo"; echo $? >"$work/rc"; } \
	2>&1 1>&3 3>&- | cat >"$work/err"; } 3>&1 | cat >"$work/out"
err=$(cat "$work/err")
is "stdin a FIFO that is open to be written: refused" "64 pipes" "$(cat "$work/rc") $(rule)"
new_session
{ { sleep 5 | as_caller "$helper" run --session "$session" --digest "$digest" one 1>&0; } 2>&1 | cat >"$work/err"; }
err=$(cat "$work/err")
is "stdin and stdout one pipe: refused" pipes "$(rule)"
chmod 700 "$work"
run 'hello\n' one
is "three pipes: served" hello "$out"

echo "# the lock"
if [ -x /usr/bin/lockf ]; then
	lockf -k -s "$state/lock" sleep 60 &
	holder=$!
	sleep 1
	run "" one
	is "a lock that is kept: try later" 75 "$rc"
	is "by its rule" lock "$(rule)"
	kill $holder 2>/dev/null
	pkill -P $holder 2>/dev/null
	wait $holder 2>/dev/null
else
	skip "a lock that is kept" "there is no lockf(1)"
fi

echo "# teardown without a policy"
for policy_is in broken missing; do
	policy
	start a one
	until_true 20 started a
	start b one
	until_true 20 started b
	kill -STOP "$(supervisor_of a)"
	kill -9 "$(supervisor_of b)"
	until_true 20 ended b
	case $policy_is in
	broken) echo '{ nonsense' >"$etc/jail-policy.json" ;;
	missing) rm -f "$etc/jail-policy.json" ;;
	esac
	root_asks sweep
	is "$policy_is: root's sweep" 0 "$rc"
	call "" sweep
	is "$policy_is: the caller's sweep" 78 "$rc"
	call "" stop --all
	[ "$rc" -ne 0 ]
	report $? "$policy_is: stop --all is not the caller's" "$rc $err"
	root_asks stop --all
	is "$policy_is: root's stop --all, one supervisor stopped and one killed" 0 "$rc"
	until_true 15 ended a
	finish a
	finish b
	clean "$policy_is policy"
	is "$policy_is policy: no jail is left" "" "$(our_jails)"
done
policy

echo "# what is inherited"
through="/usr/bin/nice -n 15"
start a one
until_true 20 started a
is "the supervisor's nice is not the caller's" 0 "$(ps -o nice= -p "$(supervisor_of a)" | tr -d ' ')"
is "nor is the server's" 0 "$(ps -axo nice,class | awk '$2 ~ /^colibri-/ {print $1}' | sort -u)"
through=
finish a

echo "# a range of uids"
sed "s/\"one\": { \"uid\": $suid/\"one\": { \"uids\": [60001, 60002]/" "$etc/jail-policy.json" >"$etc/jail-policy.json.new"
chmod 600 "$etc/jail-policy.json.new"
mv "$etc/jail-policy.json.new" "$etc/jail-policy.json"
start a one
until_true 20 started a
start b one
until_true 20 started b
is "each instance has a uid of its own" "60001 60002" "$(ps -axo uid,class | awk '$2 ~ /^colibri-/ {print $1}' | sort -u | tr '\n' ' ' | sed 's/ $//')"
run "" one
is "a third has none" "69 uids" "$rc $(rule)"
finish a
finish b
policy
clean "a range of uids"

section_13_undying
section_13_acl
section_13_service
}

in_vfork() {
	[ "$(ps -o wchan= -p "$1" | tr -d ' ')" = ppwait ]
}

section_13_undying() {
echo "# a process that does not die when it is killed"
session=00000000000000bb
fake_record $session
"$inmate" undying $session &
undying=$!
until_true 20 in_vfork $undying
report $? "it waits in vfork(2)" "$(ps -o pid,class,state,wchan,command -p $undying)"
for verb in "stop --session $session" "stop --all" sweep; do
	# shellcheck disable=SC2086 # words of a request
	root_asks $verb
	is "$verb: no success" "71 teardown" "$rc $(rule)"
	alive $undying
	report $? "$verb: it is there" "$(our_processes)"
	is "$verb: its record stays" $session "$(our_records)"
done
pkill -9 -P $undying
wait $undying 2>/dev/null
root_asks stop --session $session
is "once it can die: a success" 0 "$rc"
clean "undying"
}

section_13_acl() {
echo "# access control lists"
registry "$(entry "$one" "$echo_script")" "$second"
if [ -x /bin/setfacl ] && { acl_is_there || acl_disk; }; then
	setfacl -m "$acl" "$etc/external-mcp.json"
	run "" one
	is "a list on the registry" "78 files" "$rc $(rule)"
	setfacl -b "$etc/external-mcp.json"
	setfacl -m "$acl" "$etc"
	run "" one
	is "a list on a directory above" 78 "$rc"
	setfacl -b "$etc"
	run 'hello\n' one
	is "without them: served" hello "$out"
else
	skip "access control lists" "no setfacl(1), or no file system with lists"
fi
acl_disk_gone
}

# Whether lists can be set here; which one lets somebody write without the mode showing it.
acl_is_there() {
	for acl in user:nobody:w::allow user:nobody:rw-,mask::r--; do
		: >"$etc/acl"
		setfacl -m "$acl" "$etc/acl" 2>/dev/null && rm -f "$etc/acl" && return 0
	done
	rm -f "$etc/acl"
	return 1
}

# acl_disk: a file system with lists in the place of the configuration, where the host's own has none: UFS on a memory
# disk.
acl_disk() {
	cp -Rp "$etc" "$work/etc"
	unit=$(mdconfig -a -t swap -s 16m) && newfs "/dev/$unit" >/dev/null && mount -o nfsv4acls "/dev/$unit" "$etc" ||
		return 1
	chmod 755 "$etc"
	cp -Rp "$work/etc/" "$etc/"
	acl_is_there
}

acl_disk_gone() {
	[ -z "${unit:-}" ] || { umount "$etc"; mdconfig -d -u "$unit"; } 2>/dev/null
	unit=
}

section_13_service() {
echo "# the service that does not stay up"
pw groupshow mcpusers >/dev/null 2>&1 || pw groupadd mcpusers
install_service
cat >"$rc_conf" <<-CONF
	colibri_mcp_enable=YES
	colibri_mcp_external_call=YES
	colibri_mcp_socket=$socket
	colibri_mcp_state_dir=$dir/state
	CONF
rm -rf "$dir"
out=$(service colibri_mcp configtest 2>&1)
report $? "configtest" "$out"
chmod 4555 "$helper"
out=$(service colibri_mcp configtest 2>&1)
[ $? -ne 0 ]
report $? "configtest: a helper that others may execute" "$out"
chmod 4550 "$helper"
mv "$etc/jail-policy.json" "$etc/aside"
out=$(service colibri_mcp configtest 2>&1)
[ $? -ne 0 ]
report $? "configtest: no policy" "$out"
mv "$etc/aside" "$etc/jail-policy.json"
echo 'colibri_mcp_socket_group=nosuchgroup' >>"$rc_conf"
out=$(service colibri_mcp configtest 2>&1)
[ $? -ne 0 ]
report $? "configtest: no such group" "$out"
sed -i '' '/nosuchgroup/d' "$rc_conf"
out=$(service colibri_mcp start 2>&1)
report $? "start" "$out"
out=$(service colibri_mcp status 2>&1)
report $? "status" "$out"
echo 'colibri_mcp_socket_group=wheel' >>"$rc_conf"
out=$(service colibri_mcp restart 2>&1)
report $? "restart with another group" "$out"
is "the socket's directory is of that group" wheel "$(stat -f %Sg "$dir")"
sed -i '' '/socket_group/d' "$rc_conf"
# Answers --check and nothing else.
cat >"$work/daemon" <<-STUB
	#!/bin/sh
	case "\$*" in *--check*) exit 0 ;; esac
	exit 1
	STUB
mv "$daemon" "$daemon.real"
install -m 755 "$work/daemon" "$daemon"
kill -9 "$(cat /var/run/colibri_mcpd.pid)"
sleep 1
out=$(service colibri_mcp status 2>&1)
[ $? -ne 0 ]
report $? "status: a daemon that daemon(8) starts again and again does not run" "$out"
echo '{ nonsense' >"$etc/jail-policy.json"
out=$(service colibri_mcp stop 2>&1)
report $? "stop, with a broken policy" "$out"
policy
[ -S "$socket" ]
report $? "the killed daemon has left its socket" "$(ls -l "$dir")"
out=$(service colibri_mcp start 2>&1)
[ $? -ne 0 ]
report $? "start beside a stale socket, of a daemon that does not stay up, fails" "$out"
service colibri_mcp stop >/dev/null 2>&1
mv "$daemon.real" "$daemon"
rm -f "$rc_conf"
clean "the service"
}
