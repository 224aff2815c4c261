#!/usr/bin/env python3
"""The official conformance suite, on our fixture server directly and through the daemon.

A leg is one run of the scenarios that a revision of the specification requires: against the fixture server itself
("direct legacy", "direct modern"), or through the daemon, with a client and a server of the same era or of different
ones ("legacy client, modern server"). Through the daemon every check must end no worse than it does directly for a
client of that era. baseline.toml names what is not judged and what is excused. Results: target/conformance/.
"""

import fnmatch
import json
import pathlib
import re
import subprocess
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))
import harness  # noqa: E402

REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
# From bad to good; INFO says no more than that there was nothing to check.
RANKS = {"FAILURE": 0, "WARNING": 1, "SKIPPED": 2, "INFO": 3, "SUCCESS": 3}
SUITE_PATIENCE_S = 300


def run_suite(install, directory, era, adapter_arguments):
    """Runs the scenarios of an era behind an adapter; scenario → check → the worst status it had, and its message."""
    directory.mkdir()
    adapter = subprocess.Popen(
        [sys.executable, HERE / "adapter.py", *adapter_arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(directory / "adapter.log").open("wb"), text=True,
    )
    try:
        url = adapter.stdout.readline().removeprefix("listening ").strip()
        suite = install.modules / "@modelcontextprotocol/conformance/dist/index.js"
        command = [install.node, suite, "server", "--url", url, "--requirements", REVISIONS[era], "-o", directory]
        with (directory / "suite.log").open("wb") as log:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=SUITE_PATIENCE_S)
    finally:
        adapter.stdin.close()
        adapter.wait(harness.PATIENCE_S)
    results = {}
    for path in sorted(directory.glob("server-*/checks.json")):
        scenario = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.*", path.parent.name)[1]
        checks = results.setdefault(scenario, {})
        for check in json.loads(path.read_text()):
            status, before = check["status"], checks.get(check["id"])
            if before is None or RANKS[status] < RANKS[before[0]]:
                checks[check["id"]] = (status, check.get("errorMessage", ""))
    if not results:
        sys.exit(f"the suite gave no results: {(directory / 'suite.log').read_text()[-2000:]}")
    return results


class Baseline:
    def __init__(self):
        table = tomllib.loads((HERE / "baseline.toml").read_text())
        self.unjudged = [pattern for entry in table["unjudged"] for pattern in entry["scenarios"]]
        self.excused = [
            (leg, entry["scenario"], check)
            for entry in table["excused"] for leg in entry["legs"] for check in entry["checks"]
        ]
        self.used = set()

    def judges(self, scenario):
        return not any(fnmatch.fnmatch(scenario, pattern) for pattern in self.unjudged)

    def excuses(self, leg, scenario, check):
        """Whether a check may fail in a leg; remembers which excuse was needed."""
        for excuse in self.excused:
            if all(fnmatch.fnmatch(value, pattern) for value, pattern in zip((leg, scenario, check), excuse, strict=True)):
                self.used.add(excuse)
                return True
        return False

    def stale(self):
        return [excuse for excuse in self.excused if excuse not in self.used]


def judge(leg, results, reference, baseline):
    """The problems of a leg, and how many of its checks were as they should be."""
    problems, good = [], 0
    for scenario, checks in reference.items():
        if not baseline.judges(scenario):
            continue
        for check, (expected, _) in checks.items():
            got, message = results.get(scenario, {}).get(check, ("FAILURE", "the suite did not come to this check"))
            if RANKS[got] >= RANKS["SUCCESS"] or (results is not reference and RANKS[got] >= RANKS[expected]):
                good += 1
            elif results is reference and got != "FAILURE":
                good += 1
            elif not baseline.excuses(leg, scenario, check):
                problems.append(f"{leg}: {scenario}: {check}: {got} (directly {expected}): {message}")
    return problems, good


def main():
    harness.adopt_orphans()
    install = harness.Install()
    work = harness.work_directory("conformance")
    baseline, problems, summary = Baseline(), [], []
    fixture = str(harness.binary("conformance-fixture"))

    def close(leg, results, reference):
        new, good = judge(leg, results, reference, baseline)
        problems.extend(new)
        summary.append(f"{leg}: {good} checks good, {len(new)} problems")
        print(summary[-1], flush=True)

    direct = {}
    for era in REVISIONS:
        direct[era] = run_suite(install, work / f"direct-{era}", era, ["--", fixture, era])
        close(f"direct {era}", direct[era], direct[era])
    for server_era in REVISIONS:
        directory = work / f"daemon-{server_era}"
        directory.mkdir()
        registry = {"fixture": {"command": fixture, "args": [server_era], "prefix": False}}
        with harness.Daemon(directory, registry) as daemon:
            for era in REVISIONS:
                leg = f"{era} client, {server_era} server"
                results = run_suite(install, directory / era, era, ["--socket", str(daemon.socket)])
                close(leg, results, direct[era])
    problems += [f"baseline.toml excuses what works: {' / '.join(excuse)}" for excuse in baseline.stale()]
    if left := harness.leftovers():
        problems.append(f"processes left: {left}")
    (work / "summary.txt").write_text("\n".join([*summary, *problems]) + "\n")
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
