# Section linux: programs that were made for Linux, in jails with "abi": "linux". Sourced by run.sh.
# shellcheck shell=sh disable=SC2154,SC2034 # names of run.sh

# BINDIR/linux has what was made for Linux: inmate, linked statically; and if real agents are to be tried, what
# section_linux_agents says.
linux_bin=$bin/linux
linux=', "abi": "linux"'

section_linux() {
echo "# linux: programs that were made for Linux"
if [ ! -x "$linux_bin/inmate" ]; then
	# The guest sets it, which has one and the kernel modules.
	if [ "${REQUIRE_LINUX:-no}" = yes ]; then
		report 1 "there is a program made for Linux" "$linux_bin/inmate"
	else
		skip "programs that were made for Linux" "there is no $linux_bin/inmate"
	fi
	return
fi
section_linux_refused
section_linux_doctor
section_linux_places
section_linux_served
section_linux_ways
section_linux_killed
section_linux_root
section_linux_agents
policy
}

# What a section that runs alone needs: the root of `one` has what Linux programs need, and the policy says so.
linux_root_prepared() {
	install -d "$roots/one/proc" "$roots/one/sys"
	install -m 755 "$linux_bin/inmate" "$roots/one/bin/linux"
	policy
	allow_linux
}

allow_linux() {
	sed -i '' 's/^  "network":/  "abi": ["freebsd", "linux"], "network":/' "$etc/jail-policy.json"
}

# As service linux start does, but for its mounts, which are the host's own.
linux_prepared() {
	linux_root_prepared
	kldload -n linux64 linprocfs linsysfs
	# Built into the guest's kernel.
	kldload -n fdescfs 2>/dev/null
	# A static program need not say what it was made for.
	[ "$(sysctl -n kern.elf64.fallback_brand)" != -1 ] || sysctl kern.elf64.fallback_brand=3 >/dev/null
}

# linux_entry KEYS WORD…: the entry of the inmate that was made for Linux, with these words.
linux_entry() {
	keys=$1
	shift
	words=
	for word; do
		words="$words${words:+, }\"$word\""
	done
	printf '{"command": "/bin/linux", "args": [%s], "jail": {%s}}' "$words" "$one$linux$keys"
}

linux_modules() {
	for module in linux64elf linux_common linprocfs linsysfs; do
		kldstat -q -m "$module" && echo "$module"
	done
}

section_linux_refused() {
linux_root_prepared
policy
registry "$(linux_entry "" facts)" "$second"
run "" one
is "a policy that does not list linux: refused" "77 abi" "$rc $(rule)"
allow_linux
if [ -n "$(linux_modules)" ]; then
	skip "a kernel without linux64" "it is loaded already"
else
	run "" one
	is "a kernel without linux64: refused" "78 linux" "$rc $(rule)"
	asker=as_root
	call "" plan one
	asker=as_caller
	has "it says what to do" "sysrc linux_enable=YES and service linux start" "$err"
	is "and no module was loaded" "" "$(linux_modules)"
	kldload linux64
	run "" one
	is "a kernel without linprocfs: refused" "78 linux" "$rc $(rule)"
	is "and it was not loaded" "linux64elf linux_common" "$(linux_modules | tr '\n' ' ' | sed 's/ $//')"
fi
jail -c name=colibritest path="$roots/persistent" persist ip4=disable ip6=disable >/dev/null
registry "$(printf '{"command": "/bin/sh", "jail": {"name": "colibritest", "user": "one"%s}}' "$linux")" "$second"
run "" one
is "a persistent jail has what its administrator mounts: refused" "77 persistent" "$rc $(rule)"
jail -q -r colibritest
clean "linux: refused"
}

# mounts_below DIRECTORY: what is mounted at and below it, as the jail sees it.
mounts_below() {
	mount -p | awk -v top="$1" 'index($2, top) == 1 {print substr($2, length(top) + 1) "/"}' | sed 's|\(.\)/$|\1|' |
		sort | tr '\n' ' ' | sed 's/ $//'
}

# planted WHAT: the start is refused, and nothing is mounted.
planted() {
	before=$(mount -p)
	run "" one
	is "$1: refused" "78 files" "$rc $(rule)"
	is "$1: nothing was mounted" "$before" "$(mount -p)"
}

# Where the mounts go, and what they are; nothing in a root leads them elsewhere.
section_linux_places() {
linux_prepared
registry "$(linux_entry "" ways list=/proc/self read=/proc/self/exe read=/proc/cpuinfo read=/proc/meminfo list=/sys \
	list=/proc/self/fd write=/dev/shm/x write=/tmp/x)" "$second"
run "" one
is "a program made for Linux finds what it looks for" 8 "$(echo "$out" | grep -c WORKED)"
report 0 "each of it" "$out$err"
registry "$(linux_entry "" facts-and-wait)" "$second"
start a one
until_true 60 settled a '^nice'
out=$(cat "$work/a.out")
finish a
is "it runs as the policy's user, with 0, 1, 2 alone" "uid $suid $suid gid $suid $suid groups 0 fds 0 1 2" \
	"$(echo "$out" | grep -E '^(uid|gid|groups|fds) ' | tr '\n' ' ' | sed 's/ $//')"
registry "$(linux_entry "" hang)" "$second"
start a one
until_true 60 settled a ready
top=$state/$(cat "$work/a.session")/root
is "its mounts, each where Linux has it" "/ /dev /dev/fd /dev/shm /proc /sys /tmp" \
	"$(mounts_below "$top")"
is "/proc is read-only, and nothing in it is executed" "linprocfs noexec nosuid ro" "$(options_of "$top/proc")"
is "/sys likewise" "linsysfs noexec nosuid ro" "$(options_of "$top/sys")"
is "/dev/shm has nothing set-user-ID" "nosuid rw tmpfs" "$(options_of "$top/dev/shm")"
is "/dev/shm is no larger than the policy's 2 MiB" 2048 "$(df -k "$top/dev/shm" | awk 'NR == 2 {print $2}')"
facts=$(cat "$state/$(cat "$work/a.session")/record")
is "each of them is in the record" 7 "$(echo "$facts" | grep -c '^mount ')"
finish a
clean "linux: its end"
registry "$(entry "$one$linux" 'ls /dev; [ -L /dev/fd/0 ] && echo link; cd /proc/self && echo here')" "$second"
run "" one
is "a program made for FreeBSD runs beside it" "fd null random shm stderr stdin stdout urandom zero link here" \
	"$(echo "$out$err" | tr '\n' ' ' | sed 's/ $//; s/helper: started.*//')"
registry "$(entry "$one" 'ls /dev; ls /proc')" "$second"
run "" one
is "without abi linux: the six kinds of devices, and nothing in /proc" "fd null random stderr stdin stdout urandom zero" \
	"$(echo "$out" | tr '\n' ' ' | sed 's/ $//')"

registry "$(linux_entry "" facts)" "$second"
for point in proc sys; do
	rmdir "$roots/one/$point"
	planted "no /$point"
	ln -s /etc "$roots/one/$point"
	planted "/$point is a link"
	rm "$roots/one/$point"
	mkdir -m 777 "$roots/one/$point"
	planted "others can write to /$point"
	chmod 755 "$roots/one/$point"
	chown "$suid" "$roots/one/$point"
	planted "/$point is somebody else's"
	chown root "$roots/one/$point"
done
ln -s /etc "$roots/one/compat"
planted "/compat is a link"
rm "$roots/one/compat"
mkdir "$roots/one/compat"
ln -s /etc "$roots/one/compat/linux"
planted "/compat/linux is a link"
rm "$roots/one/compat/linux"
mkdir "$roots/one/compat/linux"
planted "/compat/linux without /proc"
mkdir "$roots/one/compat/linux/proc" "$roots/one/compat/linux/sys"
planted "/compat/linux without /dev"
ln -s /dev "$roots/one/compat/linux/dev"
planted "/dev of /compat/linux is a link"
rm "$roots/one/compat/linux/dev"
mkdir "$roots/one/compat/linux/dev"
install -d "$roots/one/compat/linux/bin"
mv "$roots/one/bin/linux" "$roots/one/compat/linux/bin/"
printf '#!/bin/sh\n' >"$roots/one/bin/linux"
chmod 755 "$roots/one/bin/linux"
registry "$(printf '{"command": "/compat/linux/bin/linux", "args": ["hang"], "jail": {%s}}' "$one$linux")" "$second"
start a one
until_true 60 settled a ready
top=$state/$(cat "$work/a.session")/root
tree_of_linux=/compat/linux
is "with /compat/linux they are there" \
	"/ $tree_of_linux/dev $tree_of_linux/dev/fd $tree_of_linux/dev/shm $tree_of_linux/proc $tree_of_linux/sys /dev /tmp" \
	"$(mounts_below "$top")"
is "and the root's own /dev is FreeBSD's" "fd null random stderr stdin stdout urandom zero" \
	"$(find "$top/dev" -depth 1 | sed 's|.*/||' | sort | tr '\n' ' ' | sed 's/ $//')"
finish a
rm -rf "$roots/one/compat"
clean "linux: places"
}

# doctor_of FACT: the outcome of this fact, and what is said of it.
doctor_of() {
	"$client" --socket "$socket" --json doctor --root --state-dir "$dir/state" >"$work/doctor" 2>&1
	awk -F '"' -v name="$1" '$2 == "fact" {fact = $4} $2 == "outcome" {outcome = $4}
		$2 == "seen" && index(fact, name) == 1 {print outcome, $4}' "$work/doctor"
}

# What doctor says of a kernel, of rc.conf(5) and of a root that lack something, and of those that do not.
section_linux_doctor() {
linux_root_prepared
registry "$(linux_entry "" mcp)" "$second"
kernel_fact="the kernel runs programs made for Linux"
roots_fact="roots of programs made for Linux"
for module in linsysfs linprocfs linux64; do
	kldunload -n "$module" 2>/dev/null
done
if [ -n "$(linux_modules)" ]; then
	skip "doctor: a kernel without linux64" "it cannot be unloaded"
else
	is "doctor: a kernel without linux64" "bad not loaded, for one: linux64elf, linprocfs, linsysfs" "$(doctor_of "$kernel_fact")"
	has "doctor: it says what to do" "sysrc linux_enable=YES && service linux start" "$(grep -A 3 "$kernel_fact" "$work/doctor")"
	kldload linux64
	is "doctor: a kernel without the file systems" "bad not loaded, for one: linprocfs, linsysfs" \
		"$(doctor_of "$kernel_fact")"
fi
linux_prepared
sysctl kern.elf64.fallback_brand=-1 >/dev/null
has "doctor: programs that do not say what they were made for" "bad kern.elf64.fallback_brand is -1" \
	"$(doctor_of "$kernel_fact")"
sysctl kern.elf64.fallback_brand=3 >/dev/null
cp -p /etc/rc.conf "$work/rc.conf"
sysrc linux_enable=NO >/dev/null
is "doctor: loaded, but not after a boot" "note linux_enable is not YES: they are not there after a boot" \
	"$(doctor_of "$kernel_fact")"
sysrc linux_enable=YES >/dev/null
is "doctor: nothing is wrong with the kernel" "good one" "$(doctor_of "$kernel_fact")"
cp -p "$work/rc.conf" /etc/rc.conf
rmdir "$roots/one/sys"
is "doctor: a root without /sys" "bad one: $roots/one/sys is no directory" "$(doctor_of "$roots_fact")"
mkdir "$roots/one/sys"
is "doctor: a root without a loader" "good one (no loader: only programs that are linked statically)" \
	"$(doctor_of "$roots_fact")"
install -d "$roots/one/lib"
: >"$roots/one/lib/ld-musl-x86_64.so.1"
is "doctor: a root with musl's loader" "good one (/lib/ld-musl-x86_64.so.1)" "$(doctor_of "$roots_fact")"
rm "$roots/one/lib/ld-musl-x86_64.so.1"
clean "linux: doctor"
}

# A server that was made for Linux, behind the daemon; the daemon, the supervisor and both killed.
section_linux_served() {
linux_prepared
registry "$(linux_entry "" mcp)" "$second"
rm -rf "$dir"
daemon_start
has "a server made for Linux answers through the daemon" hello-there "$(ask one)"
has "in a jail of its own" "jid" "$(servers)"
is "with its seven mounts" 7 "$(our_mounts | wc -l | tr -d ' ')"
kill -9 "$daemon_pid"
until_true 30 nothing_left
clean "linux: the daemon killed"
daemon_start
has "the next daemon serves" hello-there "$(ask one)"
kill -9 "$(pgrep -f 'colibri-jail-helper run --session' | sort -n | tail -1)"
until_true 30 nothing_left
clean "linux: the supervisor killed, which the daemon sweeps"
has "and it serves again" hello-there "$(ask one)"
daemon_stop
clean "linux: the daemon ended"
is "no jail is left, dying ones included" "" "$(our_jails)"
}

# Killed at each step, with nobody but a sweep to come after it.
section_linux_killed() {
linux_prepared
registry "$(linux_entry "" stubborn)" "$second"
start a one
until_true 60 settled a ready
kill -9 "$(supervisor_of a)"
until_true 30 ended a
is "the supervisor killed: its mounts are left" 7 "$(our_mounts | wc -l | tr -d ' ')"
call "" sweep
is "a sweep undoes them" "0 " "$rc $err$(our_mounts)"
finish a
clean "linux: a sweep"
start a one
until_true 60 settled a ready
kill -9 "$(supervisor_of a)"
until_true 30 ended a
rm -f "${state:?}/$(cat "$work/a.session")/record"
call "" sweep
call "" sweep
is "without a record, too" "" "$(our_mounts)$(our_processes)"
finish a
clean "linux: no record"
}

# The ways out that every agent has, from a program made for Linux; and those that such a program has alone.
section_linux_ways() {
linux_prepared
agents_prepared
allow_linux
own_ways="change=/proc/sys/fs/inotify/max_user_watches change=/proc/self/exe read=/proc/$$/environ \
	change=/proc/$$/mem list=/proc/$$/fd read=/proc/self/root/etc/rc.conf read=/proc/self/cwd/../../../../etc/rc.conf \
	list=/proc/1/root change=/sys/devices/system/cpu/online write=/sys/written list=/dev/shm/.mountpoint \
	seize=$$ seize=1 memory=$$ memory=1 clone-into-namespaces root-of-own-namespace set-user-id-in-memory \
	set-user-id-copy=/dev/shm/copy other-addresses packet-socket vsyscall-page capabilities privileges-again fill=/dev/shm/big \
	core-if-dumpable kernel-rings abstract=meet key-of-session"
all_ways "$one$linux" /bin/linux "$linux_bin/inmate" "$own_ways"
report 0 "what the host's /proc and /sys look like in the jail" "$(linux_view)"
clean "linux: ways out"
}

# What of linprocfs and linsysfs a jail is shown: docs/attacks.md lists it.
linux_view() {
registry "$(entry "$one$linux" 'cd /proc; ls; for f in mounts partitions modules swaps net/dev net/route cmdline version devices scsi/scsi sysvipc/shm self/mounts self/mountinfo self/status; do echo "== $f"; cat $f 2>&1; done; cd /sys; echo == sys; ls -R . 2>&1')" "$second"
run "" one
echo "$out" | head -120
}

# install(1) keeps the flags of what it copies: ld-elf.so.1 has schg.
root_gone() {
	chflags -R noschg "${roots:?}/$1" 2>/dev/null
	rm -rf "${roots:?}/$1"
}

# What make-root.sh -l makes of a Linux system's tar file and of a package; and that nothing in one leads to the host.
section_linux_root() {
linux_prepared
system=$work/system
package=$work/npm/package/vendor/x86_64-unknown-linux-musl/bin
mkdir -p "$system/bin" "$system/usr/lib" "$system/var" "$package"
install -m 755 "$linux_bin/inmate" "$system/bin/own"
install -m 755 "$linux_bin/inmate" "$package/codex"
ln -s usr/lib "$system/lib"
ln -s /run "$system/var/run"
tar -C "$system" -czf "$work/system.tgz" .
tar -C "$work/npm" -czf "$work/codex.tgz" package
out=$(sh "$tree/etc/make-root.sh" -l -a codex -f "$work/codex.tgz" -b "$work/system.tgz" "$roots/codex" 2>&1)
report $? "make-root.sh -l -a codex makes a root" "$out"
is "in which root alone can make a directory" "$roots/codex/tmp" \
	"$(find "$roots/codex" -type d \( -perm +022 -o ! -user root \))"
sed -i '' "s|\"ephemeral\": \[|&\"$roots/codex\", |" "$etc/jail-policy.json"
in_codex='"path": "'$roots/codex'", "user": "one", "abi": "linux"'
registry "$(printf '{"command": "/usr/local/bin/codex", "args": ["euid"], "jail": {%s}}' "$in_codex")" "$second"
run "" one
is "its program runs" "$suid" "$out"
registry "$(printf '{"command": "/usr/local/bin/colibri-mcp", "args": ["--version"], "jail": {%s}}' "$in_codex")" "$second"
run "" one
has "so does FreeBSD's colibri-mcp" "colibri-mcp " "$out$err"
agents "$(printf '{"command": "/usr/local/bin/codex", "args": ["agent"], "jail": {%s}}' "$in_codex")"
agents_prepared
allow_linux
sed -i '' "s|\"ephemeral\": \[|&\"$roots/codex\", |" "$etc/jail-policy.json"
run_agent
has "and finds its door" "told build it" "$out$err"
no_doors
root_gone codex
sh "$tree/etc/make-root.sh" -l -a codex -f "$work/system.tgz" -b "$work/system.tgz" "$roots/codex" >"$work/said" 2>&1
is "what is not the package is refused" 1 $?
root_gone codex
for link in dev tmp proc sys var usr/local; do
	rm -rf "$work/hostile" "$work/aimed"
	mkdir -p "$work/hostile/usr" "$work/aimed"
	chmod 755 "$work/aimed"
	ln -s "$work/aimed" "$work/hostile/$link"
	tar -C "$work/hostile" -czf "$work/hostile.tgz" .
	sh "$tree/etc/make-root.sh" -l -a codex -f "$work/codex.tgz" -b "$work/hostile.tgz" "$roots/codex" >"$work/said" 2>&1
	is "a tar file whose /$link leads to the host: refused, and nothing is written there" "1 755" \
		"$? $(stat -f %Lp "$work/aimed")$(ls "$work/aimed")"
	root_gone codex
done
rm -rf "$work/hostile" "$work/aimed" "$system" "$work/npm"
clean "linux: roots"
}

# Real agents, as npm has them for Linux, if BINDIR/linux has: codex.tgz, claude.tgz or opencode.tgz, the package;
# root.tgz, a Linux system with a shell and musl's loader; model.tgz, one with python3, for the scripted model.
section_linux_agents() {
for name in codex claude opencode; do
	if [ -f "$linux_bin/$name.tgz" ]; then
		linux_agent "$name"
	else
		skip "$name's own program, from task to result" "there is no $linux_bin/$name.tgz"
	fi
done
}

# linux_agent NAME: as docs/linux-programs.md has it, in front of a scripted model.
linux_agent() {
linux_prepared
agents_prepared
make_root "$roots/two" "$client"
out=$(sh "$tree/etc/make-root.sh" -l -a "$1" -f "$linux_bin/$1.tgz" -b "$linux_bin/root.tgz" "$roots/$1" 2>&1)
report $? "make-root.sh -l -a $1 makes a root of npm's program" "$out"
rm -f "$linux_bin/$1.tgz"
uid=$(sed -n 's/.*"uid": \([0-9]*\).*/\1/p' "$tree/etc/agents/$1.json")
out=$(sh "$tree/etc/make-root.sh" -w "$uid:$uid" -s 64M "$places/project" 2>&1)
report $? "make-root.sh -w makes its place" "$out"
shipped_files "agents/$1"
sed -i '' -e "s|\"ephemeral\": \[|&\"$roots/two\", |" -e 's/"servers": \[.*\]/"servers": ["*"]/' \
	-e "s|\"users\": {|&\"two\": {\"uid\": $duid, \"gid\": $duid}, |" -e 's/"require"/"best-effort"/' \
	-e 's/"max_per_server": 1,/"max_per_server": 8,/' "$etc/jail-policy.json"
own_user='"path": "'$roots/$1'", "user": "'$1'", "abi": "linux"'
cp "$etc/external-mcp.json" "$work/entry"
registry "$(printf '{"command": "/usr/local/bin/%s", "args": ["--version"], "env": {"HOME": "/tmp"}, "jail": {%s}}' "$1" "$own_user")" "$second"
# It has more time than what reads no input is given.
start a one
until_true 300 ended a
is "$1 --version" 0 "$(cat "$work/a.rc")"
report 0 "what it says" "$(cat "$work/a.out" "$work/a.err")"
finish a
mkdir "$work/model"
tar -C "$work/model" -xf "$linux_bin/model.tgz"
cp "$tree/tests/freebsd/linux_model.py" "$tree/tests/agents/model.py" "$work/model/"
chroot "$work/model" /usr/bin/python3 /linux_model.py / >"$work/model.log" 2>&1 &
scripted=$!
until_true 120 test -s "$work/model/port"
report $? "the scripted model listens" "$(cat "$work/model.log")"
key=sk-colibri-test-0123456789abcdef
secret=$(sed -n 's/.*{"secret": "\([a-z]*\)"}}.*/\1/p' "$work/entry")
install -d -g colibri -m 750 "$etc/daemon-secrets"
printf '%s' "$key" >"$etc/daemon-secrets/$secret"
chgrp colibri "$etc/daemon-secrets/$secret"
chmod 440 "$etc/daemon-secrets/$secret"
# The emulator takes its time: nothing of what waits for what is under test.
sed -e "1s|{|{ \"servers\": {\"two\": {\"command\": \"$client\", \"args\": [\"demo-server\", \"--notes\", \"/tmp\"], \"jail\": {$two}}},|" \
	-e "s|\"url\": \"https://[^\"]*\"|\"url\": \"http://127.0.0.1:$(cat "$work/model/port")\", \"allow_addresses\": [\"loopback\"]|" \
	-e 's|"tools": {"git": .*|"tools": {"two": {"allow": ["*"]}},|' -e 's|"users": \[\]|"users": ["root"]|' \
	-e 's|^ *"exec",|&"--model=gpt-5", "-c", "mcp_servers.colibri.startup_timeout_sec=300",|' \
	-e 's|"ANTHROPIC_API_KEY"|"MCP_TIMEOUT": "300000", &|' \
	-e 's|\\"enabled\\": true|&, \\"timeout\\": 300000|' "$work/entry" >"$work/entry.new"
install -o root -g colibri -m 640 "$work/entry.new" "$etc/external-mcp.json"
rm -rf "$dir"
install -d -o colibri -g colibri -m 750 "$run_dir"
kept_socket=$socket
socket=$run_dir/colibri.sock
daemon_start --write --learn --timeout 300000
as_person() { /usr/bin/env -i PATH="$PATH" HOME=/root NO_COLOR=1 "$client" --socket "$socket" "$@" 2>&1; }
task=$(as_person tasks create "Echo a word and say what came back" --json | tr -d ' \n' | grep -o '"id":[0-9]*' | head -1 | tr -dc 0-9)
as_person agent run "$1" --task "$task" --follow >"$work/followed" &
following=$!
until_true 300 eval 'in_a_jail "$uid" || ! alive "$following"'
in_a_jail "$uid"
report $? "it runs in a jail" "$(ps -axo uid,jid,command | awk '$2 > 0' | cut -c 1-150)"
wait "$following"
is "$1: from task to result" 0 "$?"
report 0 "what it said" "$(cat "$work/followed")"
has "the task is done" '"status":"done"' "$(as_person tasks show "$task" --json | tr -d ' \n')"
has "with what the tool answered, and the model was asked with the key" "echoed-word" "$(cat "$work/model/seen" 2>&1)"
has "which the relay added" "$key" "$(cat "$work/model/seen" 2>&1)"
report 0 "what it asked of linux(4) in vain" "$(dmesg | sed -n 's/^linux: jid [0-9]* pid [0-9]* //p' | sort -u)"
tail -n 40 "$work/daemon.log" | sed 's/^/# daemon: /'
daemon_stop
kill "$scripted"
socket=$kept_socket
no_doors
clean "$1"
places_gone
root_gone "$1"
rm -rf "$work/model"
}
