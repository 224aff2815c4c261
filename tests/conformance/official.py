"""The official conformance suite: where it is, what it scores, and how a run of it ends here."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "interop"))
import harness  # noqa: E402


def package(install):
    return install.modules / "@modelcontextprotocol/conformance"


def scored(install, side, revision):
    """The scenarios that the suite scores of a side for a revision: the list of that name of its requirements."""
    text = (package(install) / "requirements" / f"{revision}.yaml").read_text()
    block = re.search(rf"^{side}:\n((?: *-.*\n|#.*\n|\n)*)", text, re.MULTILINE)[1]
    return re.findall(r"^ *- (\S+)$", block, re.MULTILINE)


def conclude(work, lines, problems):
    """Writes and prints what came of a run, and ends the program as it went."""
    if left := harness.leftovers():
        problems.append(f"processes left: {left}")
    text = "\n".join([*lines, *problems])
    (work / "summary.txt").write_text(text + "\n")
    print(text)
    sys.exit(1 if problems else 0)
