"""Compares pkg-plist with what the port staged, and with the owners and modes that the design demands."""

import pathlib
import re
import stat
import sys

PREFIX = "/usr/local"
SUBSTITUTIONS = {"ETCDIR": "etc/colibri"}

# What the framework lists by itself: USE_RC_SUBR, PORTDOCS, PORTEXAMPLES.
BY_THE_FRAMEWORK = ["etc/rc.d/colibri_mcp", "share/doc/colibri", "share/examples/colibri"]

# What security rests on: owner, group, mode. Changing a line here is changing the design.
DEMANDED = {
    "libexec/colibri-jail-helper": ("root", "colibri", "4550"),
    "etc/colibri/external-mcp.json.sample": ("root", "colibri", "640"),
    "etc/colibri/jail-policy.json.sample": ("root", "wheel", "600"),
    "etc/colibri": ("root", "wheel", "755"),
    "etc/colibri/secrets": ("root", "wheel", "700"),
    "etc/colibri/daemon-secrets": ("root", "colibri", "750"),
    "libexec/colibri": ("root", "wheel", "755"),
    "libexec/colibri/roots": ("root", "wheel", "700"),
    "/var/db/colibri": ("colibri", "colibri", "750"),
}


def entries():
    """(kind, path, owner, group, mode) of each line."""
    for number, line in enumerate(pathlib.Path("port/pkg-plist").read_text().splitlines(), 1):
        line = re.sub(r"%%([A-Z]+)%%", lambda match: SUBSTITUTIONS[match.group(1)], line)
        match = re.fullmatch(r"(?:@([a-z]*)(?:\(([a-z]*),([a-z]*),([0-7]*)\))? )?(\S+)", line)
        if match is None or match.group(1) not in (None, "", "sample", "dir"):
            sys.exit(f"port/pkg-plist:{number}: not understood: {line}")
        kind = match.group(1) or "file"
        yield kind, match.group(5), match.group(2) or "root", match.group(3) or "wheel", match.group(4) or ""


def main():
    stage, users, groups = pathlib.Path(sys.argv[1]), sys.argv[2].split(), sys.argv[3].split()
    problems = []
    top = stage / PREFIX.lstrip("/")

    def staged(path):
        return stage / path.lstrip("/") if path.startswith("/") else top / path

    listed, directories, seen = set(), set(), {}
    for kind, path, owner, group, mode in entries():
        seen[path] = (owner, group, mode)
        place = staged(path.removesuffix(".gz") if path.startswith("share/man/") else path)
        if owner not in ["root", *users]:
            problems.append(f"{path}: {owner} is not in USERS")
        if group not in ["wheel", *groups]:
            problems.append(f"{path}: {group} is not in GROUPS")
        if kind == "dir":
            directories.add(place)
            if not place.is_dir():
                problems.append(f"{path}: a directory that is not staged")
            continue
        listed.add(place)
        if not place.is_file():
            problems.append(f"{path}: listed and not staged")
            continue
        staged_mode = stat.S_IMODE(place.stat().st_mode)
        if staged_mode & 0o7022:
            problems.append(f"{path}: staged with mode {staged_mode:o}; special bits come from pkg-plist alone")
        program = path.split("/")[0] in ("bin", "sbin", "libexec") or path.startswith("etc/periodic/")
        if bool(staged_mode & 0o111) != (program or path.endswith(".sh")):
            problems.append(f"{path}: staged with mode {staged_mode:o}")

    for path, demanded in DEMANDED.items():
        if seen.get(path) != demanded:
            problems.append(f"{path}: pkg-plist says {seen.get(path)}, the design {demanded}")
    for path in stage.rglob("*"):
        if any(top / name in (path, *path.parents) for name in BY_THE_FRAMEWORK):
            continue
        if path.is_file() and path not in listed:
            problems.append(f"/{path.relative_to(stage)}: staged and not listed")
        if path.is_dir() and not any(path.iterdir()) and path not in directories:
            problems.append(f"/{path.relative_to(stage)}: an empty directory that is not listed")

    for name in BY_THE_FRAMEWORK:
        if not (top / name).exists() or (top / name).is_dir() and not any((top / name).iterdir()):
            problems.append(f"{name}: not staged, or empty")

    for name, wanted in (("UIDs", users), ("GIDs", groups)):
        lines = [line.split(":") for line in pathlib.Path("port", name).read_text().splitlines()]
        if [line[0] for line in lines] != wanted:
            problems.append(f"port/{name} must have a line for each of {wanted}")
        if any(int(line[2]) >= 1000 for line in lines):
            problems.append(f"port/{name}: numbers of ports are below 1000")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


main()
