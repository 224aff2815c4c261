"""Changes of the sources that some test must notice, in tables: a block is

    NAME: what notices, then for each edit
    @ FUNCTION, or CONSTANT with a list, in whatever file
    - what stands there, exactly once in the function (the sign is taken off), and
    + what stands there instead.
"""

import re
import shutil
import sys


class Mutation:
    """A block of a table: a name, what notices, and edits, each of a function or of a constant's list."""

    def __init__(self, block):
        head, *edits = re.split(r"^@ ", block, flags=re.M)
        self.name, self.noticed_by = head.strip().split(": ", 1)
        self.edits = []
        for edit in edits:
            function, *lines = edit.rstrip("\n").split("\n")
            old = "\n".join(line[1:] for line in lines if line.startswith("-"))
            new = "\n".join(line[1:] for line in lines if line.startswith("+"))
            self.edits.append((function, old, new))

    def apply(self, directories, other_system):
        """Changes the sources, but those named after another system, and returns what stood in the files before."""
        before = {}
        for function, old, new in self.edits:
            body = rf"^( *)[a-z() ]*(?:fn {function}\b.*?^\1}}|const {function}\b.*?^\1\];)$"
            found = [
                (path, match, path.read_text())
                for directory in directories
                for path in directory.rglob("*.rs")
                if other_system not in path.name
                for match in re.finditer(body, path.read_text(), re.M | re.S)
                if old in match[0]
            ]
            if len(found) != 1 or found[0][1][0].count(old) != 1:
                sys.exit(f"{self.name}: mend the table: in one {function} this must stand, once:\n{old}")
            path, match, text = found[0]
            before.setdefault(path, text)
            path.write_text(text[: match.start()] + match[0].replace(old, new) + text[match.end() :])
        return before


def table(path):
    text = "\n".join(line for line in path.read_text().split("\n") if not line.startswith("#"))
    return [Mutation(block) for block in re.split(r"\n\n+", text.strip("\n"))]


def copy_tree(tree, to, changed):
    """Copies the sources. What is in the directories `changed` is built anew: the last run left mutants of it."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(tree, to, ignore=shutil.ignore_patterns("target", ".git", "fuzz"), symlinks=True)
    for directory in changed:
        for path in (to / directory).rglob("*.rs"):
            path.touch()
    return to


def restore(before):
    for path, text in before.items():
        path.write_text(text)
