#!/usr/bin/env python3
"""The official conformance suite, on our fixture server directly and through the daemon.

A leg is one run of the scenarios that a revision of the specification names: against the fixture server itself, or
through the daemon, with a client and a server of the same era or of different ones. As the suite counts, a scenario
passes if none of its checks is a failure, and those that its list of requirements scores are what conformance means.

For each revision a line says how many of these pass directly and through the daemon to a server of that revision.
Through the daemon every check must end no worse than it does directly for a client of that era, to servers of either;
baseline.toml names what is excused. Results: target/conformance/.
"""

import concurrent.futures
import contextlib
import fnmatch
import json
import pathlib
import re
import subprocess
import sys
import tomllib

import official
from official import harness

HERE = pathlib.Path(__file__).resolve().parent

REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
# From bad to good; INFO says no more than that there was nothing to check.
RANKS = {"FAILURE": 0, "WARNING": 1, "SKIPPED": 2, "INFO": 3, "SUCCESS": 3}
SUITE_PATIENCE_S = 300
# The suite waits more than it computes.
LEGS_AT_ONCE = 3


def run_suite(install, directory, era, front):
    """Runs the scenarios of an era over a front that listens for them (adapter.py or forward.py with its arguments);
    scenario → check → the worst status it had, and its message."""
    directory.mkdir()
    listener = subprocess.Popen(
        [sys.executable, HERE / front[0], *front[1:]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=(directory / "front.log").open("wb"), text=True,
    )
    try:
        url = listener.stdout.readline().removeprefix("listening ").strip()
        suite = official.package(install) / "dist/index.js"
        command = [install.node, suite, "server", "--url", url, "--requirements", REVISIONS[era], "-o", directory]
        with (directory / "suite.log").open("wb") as log:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=SUITE_PATIENCE_S)
    finally:
        listener.stdin.close()
        listener.wait(harness.PATIENCE_S)
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


def passes(checks):
    """As the suite counts: a scenario with a check and without a failure."""
    return bool(checks) and all(status != "FAILURE" for status, _ in checks.values())


class Baseline:
    def __init__(self):
        table = tomllib.loads((HERE / "baseline.toml").read_text())
        self.excused = [
            (leg, entry["scenario"], check)
            for entry in table["excused"] for leg in entry["legs"] for check in entry["checks"]
        ]
        self.used = set()

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
    """The problems of a leg."""
    problems = []
    for scenario, checks in reference.items():
        for check, (expected, _) in checks.items():
            got, message = results.get(scenario, {}).get(check, ("FAILURE", "the suite did not come to this check"))
            bad = got == "FAILURE" if results is reference else RANKS[got] < RANKS[expected]
            if bad and not baseline.excuses(leg, scenario, check):
                problems.append(f"{leg}: {scenario}: {check}: {got} (directly {expected}): {message}")
    return problems


def run_direct(install, work, era, fixture):
    """The control, without Colibri. The adapter in front of the fixture drops a connection now and then: a scenario that
    fails has three tries."""
    results = {}
    for attempt in (1, 2, 3):
        again = run_suite(install, work / f"direct-{era}-{attempt}", era, ["adapter.py", fixture, era])
        results = {**again, **{scenario: checks for scenario, checks in results.items() if passes(checks)}}
        if all(passes(checks) for checks in results.values()):
            break
    return results


def main():
    harness.adopt_orphans()
    install = harness.Install()
    work = harness.work_directory("conformance")
    fixture = str(harness.binary("conformance-fixture"))
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(LEGS_AT_ONCE))
        direct, through = {}, {}
        for era in REVISIONS:
            direct[era] = pool.submit(run_direct, install, work, era, fixture)
        for server in REVISIONS:
            directory = work / f"daemon-{server}"
            directory.mkdir()
            entry = {"command": fixture, "args": [server], "prefix": False, "may_ask": harness.ASKS}
            # The suite leaves more calls that wait for an answer behind than a person has forms before them; each keeps a
            # legacy process for as long as a call may take.
            clients = directory / "clients.json"
            everybody = {"gates": ["external-call"], "servers": {"*": ["*"]}}
            clients.write_text(json.dumps({"limits": {"processes_per_user": 32}, "others": everybody}))
            clients.chmod(0o600)
            daemon = stack.enter_context(harness.Daemon(directory, {"fixture": entry}, "--clients", clients))
            for era in REVISIONS:
                front = ["forward.py", str(daemon.socket)]
                through[era, server] = pool.submit(run_suite, install, directory / era, era, front)
        direct = {era: run.result() for era, run in direct.items()}
        through = {pair: run.result() for pair, run in through.items()}
    lines, problems, baseline = [], [], Baseline()
    for era, revision in REVISIONS.items():
        wanted = official.scored(install, "server", revision)

        def count(results, wanted=wanted):
            return sum(passes(results.get(scenario)) for scenario in wanted)

        problems += judge(f"direct {era}", direct[era], direct[era], baseline)
        for server in REVISIONS:
            problems += judge(f"{era} client, {server} server", through[era, server], direct[era], baseline)
        other = next(server for server in REVISIONS if server != era)
        same, mixed = count(through[era, era]), count(through[era, other])
        lines.append(f"conformance {revision}: direct {count(direct[era])}, through {same}, of {len(wanted)}")
        lines.append(f"  to a {other} server: through {mixed}, of {len(wanted)}")
        for server in REVISIONS:
            failed = [scenario for scenario in wanted if not passes(through[era, server].get(scenario))]
            if failed:
                lines.append(f"  through to a {server} server without {', '.join(failed)}")
        besides = [scenario for scenario in direct[era] if scenario not in wanted]
        for leg, results in (("direct", direct[era]), ("through", through[era, era])):
            failed = [scenario for scenario in besides if not passes(results.get(scenario))]
            lines.append(f"  not scored, {leg}: {len(besides) - len(failed)} of {len(besides)}"
                         + (f", without {', '.join(failed)}" if failed else ""))
    problems += [f"baseline.toml excuses what works: {' / '.join(excuse)}" for excuse in baseline.stale()]
    official.conclude(work, lines, problems)


if __name__ == "__main__":
    main()
