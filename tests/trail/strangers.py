#!/usr/bin/env python3
"""What strangers' programs say of the trail: Go's golang.org/x/mod/sumdb (Debian's packages golang-go and
golang-golang-x-mod-dev; sumdb/main.go), and with --aics the packages aics-tlog and aics-witness of PyPI, which need
Python 3.12.

    strangers.py [--seed N] [--trails N] [--tampers N] [--aics PYTHON]

Honest tiles, checkpoints, inclusion proofs and consistency proofs must be accepted by all. Of the tampers (changed
proofs, changed consistency proofs, trails written anew with their own key) ours and Go's must find every one. Needs
target/release (or COLIBRI_BIN_DIR).
"""

import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import run
import tamper

HERE = pathlib.Path(__file__).resolve().parent


class Sumdb:
    """The program in sumdb/main.go: a question a line, an answer a line."""

    def __init__(self, work):
        program, go = work / "sumdb", {**os.environ, "GO111MODULE": "off", "GOPATH": "/usr/share/gocode",
                                       "GOCACHE": str(work / "go"), "GOFLAGS": ""}
        subprocess.run(["go", "build", "-o", program, "./sumdb"], check=True, cwd=HERE, env=go)
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def accepts(self, *question):
        print(*question, sep="\t", file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        if not answer:
            sys.exit(f"sumdb ended at {question}")
        return answer == "true"

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class Published:
    """An honest trail: its tiles, a witness that signed an earlier checkpoint, and proofs of its records."""

    def __init__(self, colibri, place, work):
        self.colibri, self.place = colibri, place
        self.key = place / "trail.pub"
        self.witness, self.cosigned, self.tiles = work / "witness", work / "cosigned", work / "tiles"
        self.trail = tamper.Trail.read(place)
        self.seals = [json.loads(tamper.LINE.fullmatch(line)[3]) for name in self.trail.segments()
                      for line in self.trail.lines(name) if b',"kind":"seal",' in line]

    def say(self, *arguments):
        ran = self.colibri.run(*arguments, "--state-dir", self.place)
        if ran.returncode:
            raise SystemExit(f"{arguments}: {ran.stderr.decode()}")
        return ran.stdout

    def publish(self, random):
        """The checkpoint of one of the seals, cosigned, as the witness's last word."""
        seal = self.seals[random.randrange(len(self.seals))]
        request = b"old 0\n\n" + seal["checkpoint"].encode()
        ran = subprocess.run([self.colibri.program, "trail", "cosign", self.witness, "--log", self.key], input=request,
                             capture_output=True, check=True)
        self.cosigned.write_bytes(ran.stdout)
        self.size = seal["tree_size"]
        self.first = json.loads(tamper.LINE.fullmatch(self.trail.lines(self.trail.segments()[0])[0])[3])["n"]

    def numbers(self):
        return range(self.first, self.size)


def growth(random, text):
    """A consistency proof with one thing changed."""
    lines = text.split("\n")
    empty, what = lines.index(""), random.randrange(4)
    if what == 0:
        at = random.randrange(len(text))
        return text[:at] + random.choice(["0", "a", "", "\n", "="]) + text[at + 1 :]
    if what == 1:
        path = lines[1:empty]
        lines[1:empty] = random.choice([path[1:], path[::-1], path + path[:1], ["A" * 43 + "="] * len(path)])
    elif what == 2:
        at = random.choice([0, empty + 2])
        name, _, number = lines[at].rpartition(" ")
        lines[at] = f"{name} " * bool(name) + str(max(0, int(number) + random.choice([-1, 1, 256])))
    else:
        del lines[random.randrange(len(lines) - 1)]
    return "\n".join(lines)


def anew(random, trail, size):
    """A trail with another record before the one of that number, made anew with its own key."""
    changed = tamper.Trail(trail.files)
    names = changed.segments()
    lines = [(name, at) for name in names for at, line in enumerate(changed.lines(name))
             if (match := tamper.LINE.fullmatch(line)) and b'"tree_size"' not in match[3]
             and json.loads(match[3])["n"] < size]
    if not lines:
        return None
    name, at = lines[random.randrange(len(lines))]
    file = changed.lines(name)
    file[at] = file[at].replace(b'"timestamp":"2', b'"timestamp":"3', 1)
    changed.files[name] = b"".join(file)
    changed.rehash(changed.signer(), True, True)
    return changed


class Campaign:
    def __init__(self, colibri, sumdb):
        self.colibri, self.sumdb = colibri, sumdb
        self.found, self.wrong = collections.Counter(), []

    def expect(self, what, right, *said):
        if all(each == right for each in said):
            self.found[what] += 1
        else:
            self.wrong.append(what)
            print(f"wrong: {what}: {said}", flush=True)

    def honest(self, published, random):
        ours, sumdb, key = self.colibri, self.sumdb, published.key
        for entries in ([], ["--entries"]):
            shutil.rmtree(published.tiles, ignore_errors=True)
            published.say("tiles", published.tiles, *entries)
            self.expect("tiles", True, sumdb.accepts("tiles", key, published.tiles))
        proof = published.place / "proof"
        proof.write_bytes(published.say("proof", "--old", published.size))
        self.expect("growth", True, sumdb.accepts("growth", key, published.cosigned, proof))
        for number in random.sample(published.numbers(), min(8, len(published.numbers()))):
            upto = random.choice([[], ["--checkpoint", published.cosigned]])
            proof.write_bytes(published.say("proof", number, *upto))
            self.expect("proof", True, sumdb.accepts("proof", key, proof),
                        ours.check_proof(proof, key=str(key)) == 0)
        status, report = ours.verify(published.place, witness=published.witness / "witness.pub",
                                     cosigned=published.cosigned)
        self.expect("cosigned", (0, published.size), (status, report["promised_records"]))

    def tamper_proof(self, published, random, work):
        text = published.say("proof", random.choice(published.numbers())).decode()
        file = work / "proof"
        changed = tamper.proof(random, text)
        # What changes neither record, path nor signature is none: the last line end.
        if changed in (text, text[:-1]):
            return False
        file.write_bytes(changed.encode(errors="surrogatepass"))
        self.expect("changed proof", False, self.sumdb.accepts("proof", published.key, file),
                    self.colibri.check_proof(file, key=str(published.key)) == 0)
        return True

    def tamper_growth(self, published, random, work):
        text = published.say("proof", "--old", published.size).decode()
        changed = growth(random, text)
        if changed in (text, text[:-1]):
            return False
        file, witness = work / "growth", work / "witness"
        file.write_text(changed)
        shutil.rmtree(witness, ignore_errors=True)
        shutil.copytree(published.witness, witness)
        ours = self.colibri.run("cosign", witness, file, "--log", published.key).returncode == 0
        self.expect("changed growth", False,
                    self.sumdb.accepts("growth", published.key, published.cosigned, file), ours)
        return True

    def tamper_trail(self, published, random, work):
        changed = anew(random, published.trail, published.size)
        if changed is None:
            return False
        place, tiles, file = work / "anew", work / "anew-tiles", work / "growth"
        changed.write(place)
        shutil.rmtree(tiles, ignore_errors=True)
        for arguments, out in ((["tiles", tiles], None), (["proof", "--old", str(published.size)], file)):
            ran = self.colibri.run(*arguments, "--state-dir", place)
            if ran.returncode:
                raise SystemExit(f"{arguments}: {ran.stderr.decode()}")
            if out:
                out.write_bytes(ran.stdout)
        # In itself it is sound, and its own tiles are right: only who remembers sees it.
        assert self.sumdb.accepts("tiles", published.key, tiles)
        status, report = self.colibri.verify(place, witness=published.witness / "witness.pub",
                                             cosigned=published.cosigned)
        ours = status == 1 and "rewritten" in [fault["kind"] for fault in report["faults"]]
        self.expect("trail made anew", False, not ours,
                    self.sumdb.accepts("growth", published.key, published.cosigned, file))
        return True

    def tamper_tiles(self, published, random, work):
        """By Go's program alone: ours writes tiles, and reads no more of them than it goes on from."""
        files = [path for path in published.tiles.rglob("*") if path.is_file()]
        tiles = work / "tiles"
        shutil.rmtree(tiles, ignore_errors=True)
        shutil.copytree(published.tiles, tiles)
        file = tiles / random.choice(files).relative_to(published.tiles)
        data = bytearray(file.read_bytes())
        at = random.randrange(len(data) - 1)
        data[at] ^= 1 << random.randrange(8)
        file.write_bytes(data)
        # Partial tiles of earlier checkpoints are not read for this one.
        if ".p/" in str(file) and not current(file, tiles, published.sealed):
            return False
        self.expect("changed tile", False, self.sumdb.accepts("tiles", published.key, tiles))
        return True


def current(file, tiles, size):
    level = file.relative_to(tiles / "tile").parts[0]
    return int(file.name) == (size if level == "entries" else size >> 8 * int(level)) % 256


def aics(python, published):
    """Theirs of our cosignature, ours of theirs."""
    return subprocess.run([python, HERE / "aics.py", published.colibri.program, published.place, published.cosigned,
                           published.witness / "witness.pub"], check=True)


def main():
    parser = argparse.ArgumentParser(description="What strangers' programs say of the trail.")
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--trails", type=int, default=12)
    parser.add_argument("--tampers", type=int, default=2000)
    parser.add_argument("--aics", metavar="PYTHON")
    args = parser.parse_args()
    programs = pathlib.Path(os.environ.get("COLIBRI_BIN_DIR", run.REPOSITORY / "target/release")).absolute()
    colibri = run.Colibri(programs / "colibri-mcp")
    with tempfile.TemporaryDirectory(prefix="colibri-strangers-") as work:
        work = pathlib.Path(work)
        campaign = Campaign(colibri, Sumdb(work))
        choice = random.Random(args.seed)
        published = []
        for place in run.make_trails(work / "honest", args.seed, args.trails):
            each = Published(colibri, place, work / f"of-{place.name}")
            each.witness.parent.mkdir()
            # Tiles need a trail from its first record on.
            if each.seals and not each.trail.seals():
                each.publish(choice)
                each.sealed = each.seals[-1]["tree_size"]
                campaign.honest(each, choice)
                published.append(each)
        print(f"honest, of {len(published)} trails: {dict(campaign.found)}")
        campaign.found.clear()
        kinds = [campaign.tamper_proof, campaign.tamper_growth, campaign.tamper_trail]
        done = 0
        while done < args.tampers:
            done += kinds[done % 3](choice.choice(published), choice, work)
        print(f"{sum(campaign.found.values())} of {done} tampers found by both: {dict(campaign.found)}")
        done = 0
        while done < args.tampers // 10:
            done += campaign.tamper_tiles(choice.choice(published), choice, work)
        print(f"{campaign.found['changed tile']} of {done} tampers of tiles found")
        campaign.sumdb.end()
        if args.aics:
            aics(args.aics, published[0])
    print(f"{len(campaign.wrong)} wrong")
    return bool(campaign.wrong)


if __name__ == "__main__":
    sys.exit(main())
