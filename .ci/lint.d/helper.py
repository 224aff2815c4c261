"""SuspensionReasons the README of the set-user-ID helper against what is built: its dependencies, and the lines that are trusted."""

import pathlib
import re
import subprocess
import sys

README = pathlib.Path("colibri-jail-helper/README.md")
TARGET = "x86_64-unknown-freebsd"
# What of the tree is in the program on FreeBSD.
CRATES = ("colibri-jail-helper", "crates/colibri-registry", "crates/colibri-json", "crates/colibri-text")
# How far below its number in the README a count may be.
SLACK = 100


def dependencies():
    tree = ["cargo", "tree", "--locked", "-p", "colibri-jail-helper", "-e", "normal", "--target", TARGET, "--prefix", "none"]
    lines = subprocess.run(tree, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[0] for line in lines if line.strip()} - {"colibri-jail-helper"}


def features():
    """The features of a crate that the helper's build has on."""
    tree = ["cargo", "tree", "--locked", "-p", "colibri-jail-helper", "-e", "normal,features", "--target", TARGET]
    lines = subprocess.run([*tree, "--prefix", "none"], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r'colibri-[a-z]+ feature "(?!default")([^"]+)"', lines))


def lines_of_code(crate):
    count = 0
    for path in pathlib.Path(crate, "src").rglob("*.rs"):
        if path.name == "tests.rs" or path.name.endswith("linux.rs"):
            continue
        product = path.read_text().split("#[cfg(test)]")[0]
        count += sum(1 for line in product.splitlines() if line.strip() and not line.strip().startswith("//"))
    return count


def main():
    text = README.read_text()
    problems = []
    listed = set(re.findall(r"^\| `([a-z0-9_-]+)` \|", text, re.M))
    real = dependencies()
    problems += [f"{README} does not list {name}" for name in sorted(real - listed)]
    problems += [f"{README} lists {name}, which the helper does not link" for name in sorted(listed - real)]
    # A build of the whole workspace unifies features: one that somebody else switches on would be in the helper too.
    problems += [f"a crate of ours that the helper links has the feature {name}" for name in sorted(features())]
    counted = {crate: lines_of_code(crate) for crate in CRATES}
    counted["in all"] = sum(counted.values())
    for name, count in counted.items():
        found = re.search(rf"^\| {re.escape(name)} \| ([0-9,]+) \|", text, re.M)
        most = int(found.group(1).replace(",", "")) if found else 0
        if not most - SLACK <= count <= most:
            problems.append(f"{README}: {name} has {count:,} trusted lines")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


main()
