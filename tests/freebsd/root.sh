# The root of a jail, made of programs of the host. Sourced by run.sh and short.sh.
# shellcheck shell=sh

# make_root ROOT PROGRAM…: the programs with their libraries, and the mount points.
make_root() {
	root=$1
	shift
	mkdir -p "$root/dev" "$root/tmp" "$root/work" "$root/bin" "$root/etc"
	{
		printf '%s\n' /libexec/ld-elf.so.1 "$@"
		ldd -f '%p\n' "$@" 2>/dev/null
	} | grep '^/' | sort -u | tar --no-fflags -cf - -T - 2>/dev/null | tar -xf - -C "$root"
}
