#!/bin/sh

# Builds a root for a jailed MCP server, an integration or an agent: FreeBSD's base packages, packages, and a server from
# PyPI or npm if one is named; for programs made for Linux with a Linux system, and with an agent's program. Or makes a place on the host for what a jail is shown of it: a file system of its own.
# Says at the end what to put into external-mcp.json and jail-policy.json.

set -eu

usage()
{
	cat >&2 <<'USAGE'
usage: make-root.sh [-a | -i] [-b base.txz] [-k package]... [-n npm-package | -p pypi-package] root
       make-root.sh -l [-a claude|codex|opencode -f package.tgz] [-b linux.tar.gz] [-k package]... root
       make-root.sh -w uid:gid [-f directory] [-s size] place

  -a                for an agent: the places for its door, its home and its work, and colibri-mcp, which is the bridge to
                    its door and the forwarder to its model
  -a claude|codex|opencode
                    with -l, the agent's program as well, out of the package of npm that has it for Linux (-f)
  -b base.txz       take the base system from this release set instead of base packages (FreeBSD 14)
  -i                for an integration of Colibri's own: colibri-mcp, and the host's resolv.conf if it has one
  -k package        install this package as well; may be given more than once
  -l                for programs that were made for Linux: with -b of a Linux system's tar file, the root is that; else
                    FreeBSD's base, with Rocky Linux 9 in /compat/linux from emulators/linux_base-rl9
  -n npm-package    install Node.js and this server from npm, into /usr/local/mcp of the root
  -p pypi-package   install Python and this server from PyPI, into /usr/local/mcp of the root
  root              absolute path; must not exist yet, or be empty; a good place is
                    /usr/local/libexec/colibri/roots/NAME

  -w uid:gid        make a place to work in instead, of this owner and group: a ZFS dataset where the directory above is
                    ZFS (POOL/colibri/NAME where that is a boot environment), else a UFS in a file beside it, mounted now
                    and at each boot
  -f directory      copy what is in this directory there
  -s size           its size, as truncate(1) and zfs(8) read it; the default is 4G
  place             absolute path; must not exist yet; a good one is /usr/local/colibri/work/NAME
USAGE
	exit 64
}

fail()
{
	echo "make-root.sh: $*" >&2
	exit 1
}

agent=""
linux=""
agent_program=""
integration=""
base=""
packages=""
npm=""
pypi=""
owner=""
from=""
size=""
# -a stands alone, or before the name of an agent, which no root can have: getopts(1) knows no such option.
before=""
for word; do
	shift
	case "${before} ${word}" in
	-*a\ claude | -*a\ codex | -*a\ opencode) agent_program="${word}" ;;
	*) set -- "$@" "${word}" ;;
	esac
	before="${word}"
done
while getopts ab:f:ik:ln:p:s:w: option; do
	case "${option}" in
	a) agent=/usr/local/bin/colibri-mcp ;;
	b) base="${OPTARG}" ;;
	i) integration=/usr/local/bin/colibri-mcp ;;
	k) packages="${packages} ${OPTARG}" ;;
	l) linux=yes ;;
	n) npm="${OPTARG}" ;;
	p) pypi="${OPTARG}" ;;
	f) from="${OPTARG}" ;;
	s) size="${OPTARG}" ;;
	w) owner="${OPTARG}" ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -eq 1 ] || usage
root="$1"

case "${root}" in
*/. | */.. | */./* | */../* | *//* | */ | *[!A-Za-z0-9/._-]*) fail "${root}: use letters, digits, / . _ - and no . or .." ;;
/*) ;;
*) fail "${root}: must be an absolute path" ;;
esac
for name in "${npm}" "${pypi}"; do
	case "${name}" in
	-* | *[!A-Za-z0-9@/._=-]*) fail "${name}: not the name of a package" ;;
	esac
done
if [ -n "${npm}" ] && [ -n "${pypi}" ]; then
	usage
fi
if [ -n "${owner}" ]; then
	[ -z "${agent}${linux}${integration}${base}${packages}${npm}${pypi}" ] || usage
	expr "${owner}" : '[1-9][0-9]*:[1-9][0-9]*$' >/dev/null || fail "${owner}: give two numbers, uid:gid, neither of them 0"
	expr "${size:=4G}" : '[1-9][0-9]*[MGT]$' >/dev/null || fail "${size}: give a number and M, G or T"
	[ -z "${from}" ] || [ -d "${from}" ] || fail "${from}: not a directory"
elif [ -n "${size}" ] || { [ -n "${from}" ] && [ -z "${agent_program}" ]; }; then
	usage
fi
if [ -n "${linux}" ]; then
	# What npm and PyPI install would be for FreeBSD; a Linux system has no packages of pkg(8).
	[ -z "${integration}${npm}${pypi}" ] || usage
	[ -z "${base}" ] || [ -z "${packages}" ] || usage
	[ -n "${base}" ] || packages="${packages} emulators/linux_base-rl9"
fi
if [ -n "${agent_program}" ]; then
	[ -n "${linux}" ] || fail "-a ${agent_program}: its program is made for Linux; give -l"
	[ -f "${from}" ] || fail "-a ${agent_program}: name the npm package of its program with -f; docs/linux-programs.md says how to get it"
fi
[ "$(uname -s)" = FreeBSD ] || fail "this builds roots on FreeBSD, for FreeBSD"
if [ -n "${agent}" ] && [ -n "${integration}" ]; then
	usage
fi
for program in ${agent} ${integration}; do
	[ -x "${program}" ] || fail "${program} is not there: install the package first"
done
[ "$(id -u)" -eq 0 ] || fail "must be run as root: a root's files belong to root"
if [ -e "${root}" ] && [ -n "$(ls -A "${root}")" ]; then
	fail "${root} is not empty"
fi

work=$(mktemp -d -t make-root)
jail="make-root-$$"

# Whatever happens, no jail and no mount is left; a root that is not finished is, for a look at it.
finish()
{
	jail -r "${jail}" 2>/dev/null || true
	if mount -p | awk -v at="${root}/dev" '$2 == at { found = 1 } END { exit !found }'; then
		umount "${root}/dev"
	fi
	rm -rf "${work}"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

umask 022
mkdir -p "${root}"
chmod 755 "${root}"

# The helper refuses what lies below a directory that others could swap; better to hear it now.
directory="${root}"
while :; do
	uid=$(stat -f %u "${directory}")
	mode=$(stat -f %Lp "${directory}")
	if [ "${uid}" -ne 0 ] || [ $((0${mode} & 022)) -ne 0 ]; then
		fail "${directory} must belong to root and be writable by root alone"
	fi
	[ "${directory}" != / ] || break
	directory=$(dirname "${directory}")
done

# A UFS in a file. rc.d/mdconfig and mdconfig2 attach it at boot, check it, and mount it by its line of fstab(5).
make_ufs()
{
	image="${root}.ufs"
	[ ! -e "${image}" ] || fail "${image} is there already: remove it, or choose another place"
	(umask 077 && truncate -s "${size}" "${image}")
	# A number that no line of rc.conf(5) has: the next boot makes the same devices.
	unit=0
	while mdconfig -l -u "md${unit}" >/dev/null 2>&1 || [ -n "$(sysrc -qn "mdconfig_md${unit}")" ]; do
		unit=$((unit + 1))
	done
	mdconfig -a -t vnode -f "${image}" -u "md${unit}"
	newfs -n -U "/dev/md${unit}" >/dev/null
	mount -o nosuid "/dev/md${unit}" "${root}"
	sysrc -q "mdconfig_md${unit}=-t vnode -f ${image}" >/dev/null
	printf '/dev/md%s\t%s\tufs\trw,nosuid,noauto\t0\t0\n' "${unit}" "${root}" >>/etc/fstab
	remove="umount ${root} && mdconfig -d -u ${unit} && sysrc -x mdconfig_md${unit} && rm ${image} &&
  rmdir ${root}, and its line of /etc/fstab"
}

# A ZFS dataset below this one, which is that of the directory above. A boot environment is no place for it: it would be
# cloned, rolled back and destroyed with what is in it.
make_dataset()
{
	above="$1"
	case "${above}" in
	*/ROOT/*)
		above="${above%%/*}/colibri"
		zfs list "${above}" >/dev/null 2>&1 || zfs create -o mountpoint=none "${above}"
		;;
	esac
	dataset="${above}/$(basename "${root}")"
	zfs create -o "mountpoint=${root}" -o "quota=${size}" -o setuid=off "${dataset}"
	remove="zfs destroy ${dataset}"
}

if [ -n "${owner}" ]; then
	if dataset=$(zfs list -H -o name "$(dirname "${root}")" 2>/dev/null); then
		make_dataset "${dataset}"
	else
		make_ufs
	fi
	if [ -n "${from}" ]; then
		tar -C "${from}" -cf - . | tar -C "${root}" -xf -
		chmod -R g+rwX "${root}"
		chown -R -h "${owner}" "${root}"
	fi
	chown "${owner}" "${root}"
	chmod 2770 "${root}"
	cat <<END

${root} is a file system of its own, of ${owner}: who is in group ${owner#*:} works there, too.

external-mcp.json, in the entry's jail:
  "mounts": [{ "path": "${root}", "at": "/work", "write": true }]

jail-policy.json:
  "mounts": [{ "path": "${root}", "owner": ${owner%:*}, "at": "/work", "write": true }]

Then: service colibri_mcp configtest && service colibri_mcp reload
To remove it: ${remove}
END
	exit 0
fi

# By origin: names carry versions. The MCP SDK for Python depends on modules in Rust, which PyPI has no binaries of for
# FreeBSD; the package has them.
[ -z "${npm}" ] || packages="${packages} www/node www/npm"
[ -z "${pypi}" ] || packages="${packages} lang/python3 misc/py-mcp"

# pkg(8) with the host's repositories, the one of base packages turned on. It looks for their keys in the root.
into_root()
{
	pkg --rootdir "${root}" --repo-conf-dir "${work}/repos" -o IGNORE_OSVERSION=yes "$@"
}
# A release set and nothing else needs no package, and so no network.
if [ -z "${base}" ] || [ -n "${packages}" ]; then
	mkdir "${work}/repos"
	for file in /etc/pkg/*.conf /usr/local/etc/pkg/repos/*.conf; do
		[ ! -e "${file}" ] || cp "${file}" "${work}/repos/"
	done
	pkg -N >/dev/null 2>&1 || pkg bootstrap -y
	mkdir -p "${root}/usr/share/keys"
	cp -R /usr/share/keys/ "${root}/usr/share/keys/"
fi

if [ -n "${base}" ]; then
	tar -xpf "${base}" -C "${root}"
elif grep -q '^FreeBSD-base' "${work}"/repos/*.conf; then
	echo 'FreeBSD-base: { enabled: yes }' >"${work}/repos/zz-make-root.conf"
	into_root install -y -r FreeBSD-base FreeBSD-set-minimal-jail
else
	fail "this release has no repository of base packages: fetch base.txz of the release and name it with -b"
fi
if [ -n "${packages}" ]; then
	# Words on purpose: a list of names.
	# shellcheck disable=SC2086
	into_root install -y ${packages}
fi

# A server's installer is third-party code like the server itself: it runs in a jail, with the network, and without
# anything of the host but the root that it is building.
in_jail()
{
	jail -c name="${jail}" path="${root}" host.hostname="${jail}" children.max=0 enforce_statfs=2 \
	    ip4=inherit ip6=inherit command=/usr/bin/env -i HOME=/root \
	    PATH=/sbin:/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin "$@"
}

if [ -n "${npm}${pypi}" ]; then
	cp /etc/resolv.conf "${root}/etc/resolv.conf"
	mkdir -p "${root}/dev"
	mount -t devfs -o ruleset=4 devfs "${root}/dev"
	# A set of rules that is not loaded shows every device.
	[ ! -e "${root}/dev/mem" ] || fail "devfs ruleset 4 is not loaded: service devfs restart"
fi
if [ -n "${npm}" ]; then
	in_jail npm install --global --prefix /usr/local/mcp "${npm}"
fi
if [ -n "${pypi}" ]; then
	in_jail python3 -m venv --system-site-packages /usr/local/mcp
	in_jail /usr/local/mcp/bin/pip install --no-cache-dir "${pypi}"
fi
if [ -n "${npm}${pypi}" ]; then
	umount "${root}/dev"
fi

# Makes a directory of the root if it is missing. A link in somebody's tar file must not lead what is written to the host.
make_place()
{
	above="${root}"
	for part in $(echo "$1" | tr / ' '); do
		above="${above}/${part}"
		[ -d "${above}" ] || mkdir "${above}"
		case "$(realpath "${above}")" in
		"$(realpath "${root}")"/*) ;;
		*) fail "${above} is a link that leads out of the root" ;;
		esac
	done
}

# put FILE DIRECTORY: a copy of a file of the host's. Nothing that is there is replaced.
put()
{
	make_place "$2"
	to="${root}/$2/$(basename "$1")"
	if [ -e "${to}" ] || [ -L "${to}" ]; then
		fail "${to} is there already, and is not this host's"
	fi
	install -m 755 "$1" "${to}"
}

# The helper mounts here; a missing mount point refuses the start.
for place in dev tmp; do
	make_place "${place}"
done
if [ -n "${linux}" ]; then
	tree=""
	[ -n "${base}" ] || tree=compat/linux/
	for place in dev proc sys; do
		make_place "${tree}${place}"
	done
fi
chown root:wheel "${root}/dev" "${root}/tmp"
chmod 755 "${root}/dev"
chmod 1777 "${root}/tmp"

# In a jail the root is read-only, and so nobody misses it: but on the host nobody else may make a directory in it, such
# as in its /var/tmp. Whoever moves one of theirs elsewhere lets out a process of the jail that has it open.
find "${root}" -type d ! -path "${root}/tmp" \( -perm +022 -o ! -user root \) \
    -exec chown root {} + -exec chmod go-w {} +

# An agent's door is mounted at the first; the others are for the entry's HOME, cwd and mounts.
if [ -n "${agent}" ]; then
	# Linux systems have a link there, and no door is mounted behind one.
	make_place var
	[ ! -L "${root}/var/run" ] || rm "${root}/var/run"
	for place in var/run/colibri home/agent work; do
		make_place "${place}"
	done
	make_place usr/local/bin
	rm -f "${root}${agent}"
	put "${agent}" usr/local/bin
	if [ -n "${linux}" ] && [ -n "${base}" ]; then
		# colibri-mcp is FreeBSD's, and so are its libraries.
		for file in /libexec/ld-elf.so.1 $(ldd -f '%p\n' "${agent}"); do
			case "${file}" in
			/*) put "${file}" "$(dirname "${file}")" ;;
			esac
		done
	fi
fi
case "${agent_program}" in
claude) members=package/claude ;;
codex) members='package/vendor/x86_64-unknown-linux-musl/bin/*' ;;
opencode) members=package/bin/opencode ;;
*) members="" ;;
esac
if [ -n "${members}" ]; then
	tar -xf "${from}" -C "${work}" "${members}" || fail "${from} has no ${members}: it is not that package for Linux"
	for file in "${work}"/${members}; do
		[ -f "${file}" ] && [ ! -L "${file}" ] || fail "${from}: ${file##*/} is no file"
		put "${file}" usr/local/bin
		rm "${file}"
	done
	[ -x "${root}/usr/local/bin/${agent_program}" ] || fail "${from} has no program ${agent_program}"
fi

if [ -n "${integration}" ]; then
	mkdir -p "${root}/usr/local/bin"
	install -m 755 "${integration}" "${root}${integration}"
	# A host without a network has none, and the mirror of notes needs none.
	[ ! -e /etc/resolv.conf ] || cp /etc/resolv.conf "${root}/etc/resolv.conf"
fi

name=$(basename "${root}")
command="/usr/local/bin/NAME-OF-THE-SERVER"
abi_of_entry=""
abi_of_policy=""
if [ -n "${linux}" ]; then
	abi_of_entry=', "abi": "linux"'
	abi_of_policy='"abi": ["freebsd", "linux"], '
fi
if [ -n "${npm}${pypi}" ]; then
	echo "Programs of the server, as the jail sees them:"
	find "${root}/usr/local/mcp/bin" ! -type d ! -name 'python*' ! -name 'pip*' ! -name 'activate*' ! -name 'Activate*' |
		sed "s|^${root}|  |"
	command="/usr/local/mcp/bin/ONE-OF-THEM"
fi
if [ -n "${agent}" ]; then
	cat <<END

${root} is ready for an agent. Entry and policy for Claude Code, Codex, OpenCode and Gemini CLI are in
/usr/local/share/examples/colibri/agents; docs/agents.md${linux:+, docs/linux-programs.md} says the rest.

To remove the root: chflags -R noschg ${root} && rm -rf ${root}
END
	exit 0
fi
if [ -n "${integration}" ]; then
	cat <<END

${root} is ready for an integration. Entries and policies are in
/usr/local/share/examples/colibri/integrations; docs/integrations.md says the rest.

To remove the root: chflags -R noschg ${root} && rm -rf ${root}
END
	exit 0
fi
cat <<END

${root} is ready.

external-mcp.json:
  "${name}": { "command": "${command}", "jail": { "path": "${root}"${abi_of_entry} } }

jail-policy.json, with a uid and a gid that nothing else on this host has:
  ${abi_of_policy}"ephemeral": ["${root}"], "users": { "${name}": { "uid": 60801, "gid": 60801 } }

Then: service colibri_mcp configtest && service colibri_mcp reload
To remove the root: chflags -R noschg ${root} && rm -rf ${root}
END
