#!/usr/bin/env python3
"""Two readers of the trail must say the same: `colibri-mcp trail verify`, and docs/trail-example/verify.py, which was
written from docs/trail.md alone.

    run.py [--seed N] [--trails N] [--tampers N] [--keep DIR]

Makes that many honest trails of random shapes, in which both must find nothing, and that many random tampers of them,
after which both must find the same faults in the same places, the same witnesses, and end with the same exit status.
What they disagree about is kept in DIR. Needs target/release (or COLIBRI_BIN_DIR) and the Python packages of
requirements.txt.
"""

import argparse
import base64
import collections
import importlib.util
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import tamper

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "docs/trail-example"
COMPARED = ["fault_count", "segments", "first_record", "records", "head", "root", "checkpoints", "witnessed_heads",
            "promised_records", "cosigned_by", "vouched_by"]


def stranger():
    spec = importlib.util.spec_from_file_location("verify", EXAMPLE / "verify.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


VERIFY = stranger()


class Colibri:
    def __init__(self, program):
        self.program = program

    def run(self, *arguments):
        return subprocess.run([self.program, "trail", *map(str, arguments)], stdin=subprocess.DEVNULL,
                              capture_output=True, timeout=60)

    def verify(self, place, **files):
        named = [(name, path) for name, paths in files.items() if paths
                 for path in (paths if isinstance(paths, list) else [paths])]
        flags = [flag for name, path in named for flag in (f"--{name}", path)]
        run = self.run("verify", "--json", "--state-dir", place, *flags)
        if run.returncode > 2:
            return run.returncode, {"said": run.stderr.decode()}
        return run.returncode, json.loads(run.stdout)

    def check_proof(self, place, **files):
        flags = [flag for name, value in files.items() if value for flag in (f"--{name}", value)]
        return self.run("check-proof", place, *flags).returncode


def python(place, **files):
    try:
        report, status = VERIFY.verify(place, **files)
        return status, report
    except VERIFY.Unreadable as error:
        return error.status, {"said": str(error)}


def comparable(status, report):
    if status > 2:
        return {"status": status}
    faults = sorted((fault["kind"], fault["segment"] or "", fault["line"] or 0) for fault in report["faults"])
    # Colibri lists the first hundred.
    faults = faults if report["fault_count"] <= 100 else None
    return {"status": status, "faults": faults, **{name: report[name] for name in COMPARED}}


def make_trails(where, seed, count):
    """As the tests of the workspace build it, so that nothing is built twice."""
    cargo = ["cargo", "build", "--quiet", "--locked", "--workspace", "--example", "trails"]
    subprocess.run(cargo, check=True, cwd=REPOSITORY)
    subprocess.run([REPOSITORY / "target/debug/examples/trails", where, str(seed), str(count)], check=True)
    return sorted(where.iterdir())


def example():
    """What the page says of its example."""
    report, status = VERIFY.verify(EXAMPLE, segments=EXAMPLE, syslog=EXAMPLE / "auth.log")
    proof = VERIFY.check_proof_file(EXAMPLE / "record-2.tlog-proof", key=EXAMPLE / "trail.pub")
    page = (EXAMPLE.parent / "trail.md").read_text()
    right = (status, proof, report["records"], len(report["vouched_by"])) == (0, 0, 9, 2)
    return right and all(f"`{report[name][:16]}…`" in page for name in ("head", "root"))


class Campaign:
    def __init__(self, colibri, keep):
        self.colibri, self.keep = colibri, keep
        self.differences = []
        self.kinds, self.statuses, self.changes = collections.Counter(), collections.Counter(), collections.Counter()

    def compare(self, name, place, **files):
        """What both say, if it is the same."""
        ours, theirs = self.colibri.verify(place, **files), python(place, **files)
        one, other = comparable(*ours), comparable(*theirs)
        self.statuses[one["status"]] += 1
        self.kinds.update({kind for kind, _, _ in one.get("faults") or []})
        if one == other:
            return ours
        differ = {key: (one.get(key), other.get(key)) for key in {*one, *other} if one.get(key) != other.get(key)}
        self.differ(name, differ, place, {"colibri": ours, "python": theirs, "files": files})
        return ours

    def differ(self, name, differ, place, said):
        self.differences.append((name, differ))
        print(f"they differ: {name}: {differ}", flush=True)
        if self.keep:
            kept = self.keep / f"{len(self.differences):05}"
            kept.mkdir()
            subprocess.run(["cp", "-a", place, kept], check=True)
            (kept / "said.json").write_text(json.dumps({"name": name, **said}, indent=1, default=str))


def cosign(colibri, choice, place, witnesses):
    """Has two witnesses sign a checkpoint of the trail, the second one only sometimes: their keys, and the checkpoint, as
    the verifiers are told of them; nothing where no seal is."""
    request = witnesses.parent / "request"
    run = colibri.run("proof", "--old", 0, "--state-dir", place)
    if run.returncode:
        return {}
    request.write_bytes(run.stdout)
    note = witnesses / f"{place.name}.cosigned"
    signed = b""
    for name in ("one", "two")[:choice.randint(1, 2)]:
        run = colibri.run("cosign", witnesses / name, request, "--log", place / "trail.pub")
        if run.returncode:
            raise SystemExit(f"{place}: {run.stderr.decode()}")
        signed = signed + run.stdout.rpartition(b"\n\n")[2].split(b"\n")[-2] + b"\n" if signed else run.stdout
    note.write_bytes(signed)
    return {"witness": sorted(witnesses.glob("*/*.pub")), "cosigned": [note]}


def changed(choice, cosigned, work):
    """The same checkpoint, sometimes with another byte somewhere."""
    if not cosigned or choice.random() < 0.7:
        return cosigned
    note = bytearray(cosigned["cosigned"][0].read_bytes())
    note[choice.randrange(len(note))] = choice.choice(b"0aZ+/= \n\xff")
    (work / "changed").write_bytes(note)
    return {**cosigned, "cosigned": [work / "changed"]}


def ways(place, choice, cosigned):
    """How the verifiers are called: with the log, without, on an archive, with a key by name, with cosignatures."""
    log = place / "auth.log"
    return [{"syslog": log}, {"syslog": log}, {"syslog": log}, {}, {"archive": place / "trail"},
            {"syslog": log, "archive": place / "trail"}, cosigned, {"syslog": log, **cosigned}][choice.randrange(8)]


def proofs(campaign, choice, places, rounds, work):
    """Proofs, as they are and changed."""
    found = []
    for place in places:
        for number in range(0, 40, 3):
            run = campaign.colibri.run("proof", number, "--state-dir", place)
            if run.returncode == 0:
                found.append((place, run.stdout.decode()))
    file = work / "proof"
    counts = collections.Counter()
    for round in range(rounds if found else 0):
        place, text = found[choice.randrange(len(found))]
        if round >= len(found) // 4:
            text = tamper.proof(choice, text)
        file.write_bytes(text.encode(errors="surrogatepass"))
        other = found[choice.randrange(len(found))][1].partition("\n\n")[2].split("\n")[2]
        root = base64.b64decode(other).hex() if choice.random() < 0.1 else None
        flags = {"root": root} if root else {"key": str(place / "trail.pub")}
        one = campaign.colibri.check_proof(file, **flags)
        try:
            other = VERIFY.check_proof_file(file, root, None if root else place / "trail.pub")
        except VERIFY.Unreadable as error:
            other = error.status
        counts[one] += 1
        if one != other:
            campaign.differ(f"proof {round}", {"status": (one, other)}, file, {"flags": flags})
    return counts


def main():
    parser = argparse.ArgumentParser(description="Two readers of the trail must say the same.")
    parser.add_argument("--seed", type=int, default=20261123)
    parser.add_argument("--trails", type=int, default=20)
    parser.add_argument("--tampers", type=int, default=300)
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    if args.keep:
        args.keep.mkdir(parents=True)
    programs = pathlib.Path(os.environ.get("COLIBRI_BIN_DIR", REPOSITORY / "target/release")).absolute()
    if not example():
        sys.exit("the example in docs/trail-example is not what docs/trail.md says of it")
    campaign = Campaign(Colibri(programs / "colibri-mcp"), args.keep)
    with tempfile.TemporaryDirectory(prefix="colibri-trail-") as work:
        work = pathlib.Path(work)
        places = make_trails(work / "honest", args.seed, args.trails)
        (work / "witnesses").mkdir()
        draw = random.Random(args.seed)
        cosigned = {place: cosign(campaign.colibri, draw, place, work / "witnesses") for place in places}
        for place in places:
            for files in ({"syslog": place / "auth.log"}, {}, {"archive": place / "trail"}, cosigned[place]):
                status, report = campaign.compare(f"honest {place.name} {list(files)}", place, **files)
                if status not in (0, 2):
                    campaign.differ(f"honest {place.name}", {"wrong": report}, place, {})
        honest = campaign.statuses.copy()
        campaign.statuses.clear()
        trails = [(tamper.Trail.read(place), cosigned[place]) for place in places]
        trails = [(trail, signed) for trail, signed in trails if trail.segments()]
        for number in range(args.tampers):
            choice = random.Random(f"{args.seed} {number}")
            original, signed = trails[choice.randrange(len(trails))]
            trail = tamper.Trail(original.files)
            done = tamper.Tamperer(choice, trail, trails[choice.randrange(len(trails))][0]).tamper()
            campaign.changes.update(done)
            place = work / "tampered"
            trail.write(place)
            campaign.compare(f"tamper {number} {'+'.join(done)}", place, **ways(place, choice, changed(choice, signed, work)))
        checked = proofs(campaign, random.Random(args.seed), places[:10], args.tampers // 10, work)
    print(f"{len(places)} honest trails: exit statuses {dict(sorted(honest.items()))}")
    print(f"{args.tampers} tampers: exit statuses {dict(sorted(campaign.statuses.items()))}")
    for kind, count in campaign.kinds.most_common():
        print(f"  {kind}: in {count}")
    print(f"{sum(checked.values())} proofs: exit statuses {dict(sorted(checked.items()))}")
    print(f"{len(campaign.differences)} differences")
    return bool(campaign.differences)


if __name__ == "__main__":
    sys.exit(main())
