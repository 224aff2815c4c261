"""Compares Cargo.lock and fuzz/Cargo.lock with a copy of RustSec's database (https://github.com/rustsec/advisory-db).

usage: advisories.py [DATABASE]
       advisories.py --test

DATABASE is the directory that has `crates/`. Without it $COLIBRI_ADVISORY_DB names it, else the place of cargo-audit's copy,
$CARGO_HOME/advisory-db, is tried. Where none lies nothing is checked, and that is said. An advisory that only informs
(an unmaintained crate) is printed and is no failure.
"""

import os
import pathlib
import re
import sys
import tomllib

LOCKS = ("Cargo.lock", "fuzz/Cargo.lock")
SYSTEMS = {"freebsd", "linux"}


def parse(version):
    """A version as a key that sorts as semver.org (11) has it; what is not given is 0."""
    core, _, pre = version.strip().split("+")[0].partition("-")
    numbers = [int(part) for part in core.split(".")]
    key = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre.split(".") if part]
    return (*numbers, *[0] * (3 - len(numbers))), (0, key) if pre else (1, [])


def limits(comparator):
    """The lowest version of a comparator, and the lowest above it: either may be None."""
    operator, text = re.fullmatch(r"\s*(\^|~|>=|<=|>|<|=)?\s*([0-9][^\s]*)\s*", comparator).groups()
    given = len(text.split("-")[0].split("+")[0].split("."))
    (major, minor, patch), _ = parse(text)
    if operator in ("^", None):
        next_ = (major + 1, 0, 0) if major or given == 1 else (0, minor + 1, 0) if minor or given == 2 else (0, 0, patch + 1)
        return ">=", text, next_
    if operator == "~":
        return ">=", text, (major + 1, 0, 0) if given == 1 else (major, minor + 1, 0)
    return operator, text, None


def fits(version, requirement):
    """Whether a version meets all comparators of a requirement: `>= 1.2, < 2`."""
    for comparator in requirement.split(","):
        operator, text, below = limits(comparator)
        one, other = parse(version), parse(text)
        holds = {">=": one >= other, ">": one > other, "<": one < other, "<=": one <= other, "=": one == other}
        if not holds[operator] or below is not None and one[0] >= below:
            return False
    return True


def advisories(database, name):
    """The advisories about a crate, with the versions that they are not about."""
    for path in sorted((database / "crates" / name).glob("RUSTSEC-*.md")):
        data = tomllib.loads(path.read_text().split("```toml\n", 1)[1].split("\n```", 1)[0])
        versions = data.get("versions", {})
        systems = data.get("affected", {}).get("os", SYSTEMS)
        if "withdrawn" not in data["advisory"] and set(systems) & SYSTEMS:
            yield data["advisory"], versions.get("patched", []) + versions.get("unaffected", [])


def main(database):
    packages = set()
    for lock in LOCKS:
        locked = tomllib.loads(pathlib.Path(lock).read_text())["package"]
        packages |= {(package["name"], package["version"]) for package in locked if "source" in package}
    affected = []
    for name, version in sorted(packages):
        for advisory, others in advisories(database, name):
            if any(fits(version, requirement) for requirement in others):
                continue
            informs = advisory.get("informational")
            print(f"{advisory['id']}: {name} {version}" + (f" ({informs})" if informs else ""))
            if not informs:
                affected.append(name)
    newest = max((path.stat().st_mtime for path in database.glob("crates/*/*.md")), default=None)
    if newest is None:
        sys.exit(f"advisories.py: {database} has no advisories: is it a copy of RustSec's database?")
    print(f"{len(packages)} packages compared with {database}: {len(affected)} affected")
    sys.exit(1 if affected else 0)


def test():
    for version, requirement, expected in (
        ("1.2.3", ">= 1.2.3", True), ("1.2.2", ">= 1.2.3", False), ("1.2.3", "^1.2.4", False), ("1.9.0", "^1.2.4", True),
        ("2.0.0", "^1.2.4", False), ("0.3.4", "^0.3.1", True), ("0.4.0", "^0.3.1", False), ("1.2.9", "~1.2.3", True),
        ("1.3.0", "~1.2.3", False), ("1.5.0", ">= 1.2, < 2", True), ("2.1.0", ">= 1.2, < 2", False), ("0.5.0", "< 0.6.0", True),
        ("1.0.0-rc.1", "< 1.0.0", True), ("1.0.0", "> 1.0.0-rc.1", True), ("1.0.0-rc.10", "> 1.0.0-rc.2", True),
        ("1.0.0+build", "= 1.0.0", True), ("0.0.4", "^0.0.3", False),
    ):  # fmt: skip
        assert fits(version, requirement) == expected, (version, requirement)


if sys.argv[1:] == ["--test"]:
    test()
else:
    home = os.environ.get("CARGO_HOME") or os.path.expanduser("~/.cargo")
    named = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("COLIBRI_ADVISORY_DB")
    place = pathlib.Path(named or f"{home}/advisory-db")
    if not place.is_dir() and not named:
        print(f"not checked: advisories, since no copy of RustSec's database lies in {place} (or $COLIBRI_ADVISORY_DB)")
    elif not place.is_dir():
        sys.exit(f"advisories.py: {place} is no directory")
    else:
        main(place)
