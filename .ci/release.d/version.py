"""Writes a version everywhere it stands, and closes the changelog's unreleased part with it.

usage: version.py VERSION DATE
       version.py --check     writes nothing: whether it stands where it should
"""

import pathlib
import re
import sys

check = sys.argv[1:] == ["--check"]
version, date = ("", "") if check else sys.argv[1:]
number = re.escape(re.search(r'^version = "(.*)"$', pathlib.Path("Cargo.toml").read_text(), re.M).group(1))

# file, what stands there, what shall stand there; each exactly once.
PLACES = [
    ("Cargo.toml", rf'^version = "{number}"$', f'version = "{version}"'),
    ("port/Makefile", rf"^DISTVERSION=\t{number}$", f"DISTVERSION=\t{version}"),
    ("README.md", r"^This is [0-9.]+[0-9](, before its first release)?\.", f"This is {version}."),
    ("SECURITY.md", r"^\| (`main` \(to become [0-9.]+\)|[0-9.]+) \| yes \|$", f"| {version} | yes |"),
    ("CHANGELOG.md", r"^## \[Unreleased\]\n(\nTo become [0-9.]+\.\n)?", f"## [Unreleased]\n\n## [{version}] - {date}\n"),
]  # fmt: skip

for file, pattern, replacement in PLACES:
    path = pathlib.Path(file)
    text, found = re.subn(pattern, replacement, path.read_text(), flags=re.M)
    if found != 1:
        sys.exit(f"version.py: {file}: {pattern} stands there {found} times, not once")
    if not check:
        path.write_text(text)
        print(f"wrote {file}")
