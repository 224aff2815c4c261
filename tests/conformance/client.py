#!/usr/bin/env python3
"""The official conformance suite's client scenarios, with the daemon as the client of the suite's servers: driver.py makes
an entry with a `url` of each, and calls through the socket.

For each revision a line says how many of the scenarios pass that the revision scores. Those that it does not score have to
pass too, but for those below. Results: target/conformance-client/.
"""

import os
import pathlib
import re
import subprocess
import sys

import official
from official import harness

HERE = pathlib.Path(__file__).resolve().parent

REVISIONS = ["2025-11-25", "2026-07-28"]
# What is not there, and why that is all right.
ABSENT = {
    "auth/dpop": "tokens are bound to a key by an extension that the specification does not ask for",
    "auth/dpop-nonce": "the same",
    "auth/wif-jwt-bearer": "a workload's own identity, by an extension that the specification does not ask for",
}
PATIENCE_S = 600
SCENARIO_MS = "90000"


def run(install, log, *arguments):
    """Runs the suite; what it printed."""
    command = [
        install.node, official.package(install) / "dist/index.js", "client",
        "--command", f"{sys.executable} {HERE / 'driver.py'}", "--timeout", SCENARIO_MS,
        "-o", log.with_suffix(""), *arguments,
    ]
    with log.open("wb") as out:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, timeout=PATIENCE_S)
    return log.read_text(errors="replace")


def main():
    harness.adopt_orphans()
    install = harness.Install()
    work = harness.work_directory("conformance-client")
    os.environ.setdefault("COLIBRI_BIN_DIR", str(harness.REPOSITORY / "target/release"))
    lines, problems = [], []
    for revision in REVISIONS:
        said = run(install, work / f"{revision}.log", "--requirements", revision)
        summary = said.partition("=== SUITE SUMMARY ===")[2].partition("\nTotal:")[0]
        results = {name: mark == "✓" for mark, name in re.findall(r"^([✓✗]) (\S+): ", summary, re.MULTILINE)}
        wanted = official.scored(install, "client", revision)
        for name in sorted(name for name in {*results, *wanted} if not results.get(name) and name not in ABSENT):
            problems.append(f"{revision}: {name} failed")
        problems += [f"{revision}: {name} passes: it is absent no more" for name in ABSENT if results.get(name)]
        passed = sum(results.get(name, False) for name in wanted)
        besides = [name for name in results if name not in wanted]
        good = [name for name in besides if results[name]]
        lines.append(f"conformance client {revision}: {passed} of {len(wanted)}")
        lines.append(f"  not scored: {len(good)} of {len(besides)}")
    official.conclude(work, lines, problems)


if __name__ == "__main__":
    main()
