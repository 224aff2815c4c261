"""Writes a version everywhere it stands, and closes the changelog's unreleased part with it.

usage: version.py VERSION DATE
       version.py NEXT-dev    after a release: what the tree calls itself until NEXT is released
       version.py --check     writes nothing: whether it stands where it should
"""

import pathlib
import re
import sys

check = sys.argv[1:] == ["--check"]
version, date = ("", "") if check else (sys.argv[1:] + [""])[:2]
number = re.search(r'^version = "(.*)"$', pathlib.Path("Cargo.toml").read_text(), re.M).group(1)


def unreleased(number):
    """The changelog's heading for what is not released: before a release it says what that becomes."""
    is_dev = number.endswith("-dev")
    return "## [Unreleased]\n" + (f"\nTo become {number.removesuffix('-dev')}.\n" if is_dev else "")


heading = unreleased(version) if version.endswith("-dev") else f"## [Unreleased]\n\n## [{version}] - {date}\n"
# file, what stands there, what shall stand there; each exactly once.
PLACES = [
    ("Cargo.toml", f'version = "{number}"', f'version = "{version}"'),
    ("port/Makefile", f"DISTVERSION=\t{number}", f"DISTVERSION=\t{version}"),
    ("README.md", f"This is {number}.", f"This is {version}."),
    ("SECURITY.md", f"| {number} | yes |", f"| {version} | yes |"),
    ("CHANGELOG.md", unreleased(number), heading),
]

for file, there, replacement in PLACES:
    path = pathlib.Path(file)
    text, found = re.subn("^" + re.escape(there), lambda _: replacement, path.read_text(), flags=re.M)
    if found != 1:
        sys.exit(f"version.py: {file}: {there!r} stands there {found} times, not once")
    if not check:
        path.write_text(text)
        print(f"wrote {file}")
