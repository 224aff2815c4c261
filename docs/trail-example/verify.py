#!/usr/bin/env python3
"""Verifies a trail as docs/trail.md describes it, with nothing of Colibri's.

    verify.py verify STATE_DIR [--segments DIR] [--archive DIR] [--syslog FILE] [--key FILE]
        [--witness FILE ... [--cosigned FILE ...]]
    verify.py check-proof FILE (--root HEX | --key FILE)

It prints a report as JSON, with the names and the exit statuses of `colibri-mcp trail verify --json`, which tests/trail
holds it against. Needs the Python package `cryptography` for the signatures.
"""

import argparse
import base64
import binascii
import errno
import hashlib
import json
import os
import pathlib
import re
import stat
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

DECIMAL = re.compile(r"0|[1-9][0-9]*", re.ASCII)
LINE = re.compile(rb'\{"hash":"([0-9a-f]{64})","prev":"([0-9a-f]{64})","rec":'
                  rb'(\{"n":(0|[1-9][0-9]{0,19}),"kind":"([^"]*)".*\})\}', re.DOTALL)
NAME = re.compile(r"([0-9]{10,20})-([0-9]{8,20})\.(jsonl|seal)")
HEX = re.compile("[0-9a-f]{64}")
ZEROS = "0" * 64
MOST = 2**64 - 1
MAX_LINE = 2**28  # with its end
MAX_DEPTH = 64
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[][{}]', re.DOTALL)


class Unreadable(Exception):
    """Something that is there but not to be verified: a FIFO, a key that is none; or nothing."""

    def __init__(self, text, status=74):
        super().__init__(text)
        self.status = status

    @classmethod
    def of(cls, error):
        return cls(str(error), {errno.ENOENT: 66, errno.EACCES: 77}.get(error.errno, 74))


def sha256(data):
    return hashlib.sha256(data).digest()


def after(number):
    """One more, where there is one."""
    return min(number + 1, MOST)


def node(left, right):
    return sha256(b"\1" + left + right)


class Tree:
    """The peaks of the tree over so many records."""

    def __init__(self, size=0, peaks=()):
        self.size, self.peaks = size, list(peaks)

    def push(self, leaf):
        n = self.size
        while n & 1:
            leaf = node(self.peaks.pop(), leaf)
            n >>= 1
        self.peaks.append(leaf)
        self.size = after(self.size)

    def __eq__(self, other):
        return (self.size, self.peaks) == (other.size, other.peaks)

    def root(self):
        if not self.peaks:
            return sha256(b"")
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node(peak, root)
        return root


def base64_of(text):
    """The bytes of base64 in its one form, with padding; else None."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64.b64encode(data).decode() == text else None


class Key:
    """`trail.pub`, which has type 1, or a witness's public key, which has type 4."""

    def __init__(self, content, kind=1):
        try:
            text = content.decode().strip()
        except UnicodeDecodeError as error:
            raise Unreadable(f"not a key: {error}", 65) from error
        match = re.fullmatch(r"([^\s+]+)\+(0*[0-9a-fA-F]{1,8})\+(.*)", text, re.DOTALL)
        key = base64_of(match[3]) if match else None
        if not key or key[0] != kind or len(key) != 33:
            raise Unreadable("not a key", 65)
        self.origin, self.id = match[1], int(match[2], 16).to_bytes(4)
        if sha256(self.origin.encode() + b"\n" + key)[:4] != self.id:
            raise Unreadable("its id is not that of the key", 65)
        self.key = Ed25519PublicKey.from_public_bytes(key[1:])

    def signed(self, text, signature):
        signature = base64_of(signature) or b""
        try:
            self.key.verify(signature[4:], text.encode())
            return signature[:4] == self.id
        except InvalidSignature:
            return False

    def cosigned_at(self, text, signatures):
        """The time in the first of the signature lines by which this witness cosigned a checkpoint, or None."""
        start = f"— {self.origin} "
        for line in lines_of(signatures):
            data = base64_of(line.removeprefix(start)) if line.startswith(start) else None
            if not data or len(data) != 76 or data[:4] != self.id:
                continue
            time = int.from_bytes(data[4:12])
            try:
                self.key.verify(data[12:], f"cosignature/v1\ntime {time}\n{text}".encode())
            except InvalidSignature:
                continue
            if time < 2**63:
                return time
        return None


def read_regular(path):
    """The bytes of a regular file, which alone is read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        raise Unreadable.of(error) from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Unreadable(f"{path} is not a regular file")
    with os.fdopen(fd, "rb") as file:
        return file.read()


class Line:
    """A line that has the form; `state` is what it tells of the trail, if it must and does."""

    def __init__(self, match):
        self.hash, self.prev, self.rec = match[1].decode(), match[2].decode(), match[3]
        self.n, self.kind = int(match[4]), match[5].decode()
        self.leaf = sha256(b"\0" + match[2] + b"\n" + self.rec)
        self.intact = self.leaf.hex() == self.hash
        self.opens = self.kind in ("open", "recovered")
        self.state = State.read(self.rec) if self.opens or self.kind == "seal" else None

    @classmethod
    def parse(cls, line):
        """The line, given without its end, or None."""
        match = LINE.fullmatch(line) if len(line) < MAX_LINE else None
        try:
            return cls(match) if match and int(match[4]) <= MOST else None
        except UnicodeDecodeError:
            return None


class State:
    """What a record tells of the records before it."""

    FIELDS = {"tree_size", "root", "head", "peaks", "format", "previous", "torn", "checkpoint"}

    @classmethod
    def read(cls, rec):
        """The state, or None where none is told."""
        try:
            pairs = read_json(rec)
            if not isinstance(pairs, Pairs):
                return None
            names = [name for name, _ in pairs if name in cls.FIELDS]
            if len(names) != len(set(names)) or not all(is_text(name) for name, _ in pairs):
                return None
            value = dict(pairs)
            state = cls()
            state.size, state.root, state.head = value["tree_size"], value["root"], value["head"]
            state.format, state.previous = value.get("format"), value.get("previous")
            state.checkpoint = value.get("checkpoint")
            state.torn = [Torn.read(entry) for entry in value.get("torn", ())]
            right = is_number(state.size) and (state.format is None or is_number(state.format))
            right = right and is_text(state.root) and is_text(state.head)
            right = right and type(value["peaks"]) is list and type(value.get("torn", [])) is list
            right = right and all(text is None or is_text(text) for text in (state.previous, state.checkpoint))
            right = right and all(HEX.fullmatch(peak) for peak in value["peaks"])
            state.tree = Tree(state.size, map(bytes.fromhex, value["peaks"]))
            right = right and len(state.tree.peaks) == bin(state.size).count("1")
            return state if right and state.tree.root().hex() == state.root else None
        except (ValueError, KeyError, TypeError):
            return None


class Torn:
    """What does not count of a segment."""

    @classmethod
    def read(cls, entry):
        torn = cls()
        if not isinstance(entry, Pairs):
            raise ValueError("an entry of torn")
        names = [name for name, _ in entry]
        if any(names.count(name) != 1 for name in ("segment", "offset", "length")) or not all(map(is_text, names)):
            raise ValueError("an entry of torn")
        value = dict(entry)
        torn.segment, torn.offset, torn.length = value["segment"], value["offset"], value["length"]
        if not (is_text(torn.segment) and is_number(torn.offset) and is_number(torn.length)):
            raise ValueError("an entry of torn")
        return torn


class Pairs(list):
    """The members of a JSON object, in order; a name may be there twice."""


class Fraction(float):
    """A JSON number that is not a whole one, or too large."""


def read_json(data):
    def refuse(text):
        raise ValueError(f"{text} is not JSON")

    def whole(text):
        return int(text) if text.isdigit() and len(text) <= 20 and int(text) <= MOST else Fraction("nan")

    depth = 0
    for token in TOKEN.finditer(data):
        depth += {b"{": 1, b"[": 1, b"}": -1, b"]": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            raise ValueError("nested too deep")
    try:
        return json.loads(data.decode(), object_pairs_hook=Pairs, parse_constant=refuse, parse_int=whole,
                          parse_float=lambda _: Fraction("nan"))
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def is_number(value):
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value):
    """Half of a surrogate pair is no text."""
    return isinstance(value, str) and not any("\ud800" <= c <= "\udfff" for c in value)


class Verifier:
    """One walk over a trail. It keeps what the next line must be, and goes on after a fault as the page says."""

    def __init__(self, key, log, note, archive, cosigned=()):
        self.key, self.log, self.note, self.archive = key, log, note, archive
        self.faults, self.place = [], (None, None)
        self.head, self.next, self.top = ZEROS, 0, 0
        self.tree = Tree()  # None: not known
        self.take, self.after_dropped, self.linked, self.sealed = False, False, True, True
        self.previous, self.first, self.missing = None, None, []
        self.checkpoints, self.agreeing, self.promised = 0, 0, 0
        self.rewritten, self.noted = False, False
        self.cosigned, self.cosigned_by = cosigned, []

    def fault(self, kind, place=None):
        segment, line = place or self.place
        self.faults.append({"kind": kind, "segment": segment, "line": line})

    def run(self, directory):
        segments, dropped = list_files(directory)
        content = {name: read_regular(directory / f"{name}.jsonl") for name in segments}
        torn, last = {}, None
        for name in segments:
            first, end, _ = content[name].partition(b"\n")
            if end:
                last, line = name, Line.parse(first)
                if line and line.intact and line.state:
                    earlier = segments[: segments.index(name)]
                    torn.update({entry.segment: entry for entry in line.state.torn if entry.segment in earlier})
        ordinal = self.run_dropped(directory, segments, dropped)
        for at, name in enumerate(segments):
            self.place = (name, None)
            if ordinal_of(name) == ordinal:
                self.fault("inserted-segment")
            elif ordinal_of(name) != ordinal + 1:
                self.fault("missing-segment")
                self.take = True
            ordinal = ordinal_of(name)
            self.segment(name, content[name], torn.get(name), last is None or at >= segments.index(last))
        self.segments = len(segments)
        self.finish()

    def run_dropped(self, directory, segments, dropped):
        """Looks at the `.seal` files; the ordinal of the last one before the segments."""
        ordinal, size = 0, 0
        for name in dropped:
            self.place = (name, None)
            if segments and ordinal_of(name) > ordinal_of(segments[0]):
                self.fault("missing-segment")
                continue
            if ordinal_of(name) != ordinal + 1:
                self.fault("missing-segment")
            ordinal = ordinal_of(name)
            data = read_regular(directory / f"{name}.seal")
            line = Line.parse(data[:-1]) if data.endswith(b"\n") and data.count(b"\n") == 1 else None
            if not line or not line.intact or not line.state:
                self.fault("bad-seal")
                continue
            if line.state.size != line.n or line.state.size < size or line.state.head != line.prev:
                self.fault("bad-seal")
            self.check_checkpoint(line)
            size, self.head, self.next, self.previous = line.state.size, line.hash, after(line.n), name
            self.sealed, self.tree = line.kind == "seal", line.state.tree
            self.tree.push(line.leaf)
        if ordinal > 0:
            self.after_dropped, self.top = True, self.next
        return ordinal

    def segment(self, name, content, torn, last):
        lines = content[: torn.offset if torn else None].split(b"\n")
        rest = lines.pop()
        for number, line in enumerate(lines, 1):
            self.place = (name, number)
            self.line(line, number == 1)
            if number == 1:
                self.previous = name
        if rest:
            self.place = (name, len(lines) + 1)
        if torn:
            if rest or len(content) < torn.offset:
                self.fault("truncated")
            else:
                self.tail(content[torn.offset :], torn.length, len(lines))
        elif not last:
            if rest:
                self.fault("torn-tail")
                self.linked, self.tree = False, None
            if not self.sealed:
                self.fault("bad-link")

    def tail(self, content, length, number):
        """What does not count: a batch that was refused in the middle may have left whole lines."""
        head, count = self.head, self.next
        for line in content.split(b"\n")[:-1]:
            number += 1
            line = Line.parse(line)
            if not line or not line.intact or line.prev != head or line.n != count:
                self.place = (self.place[0], number)
                return self.fault("damaged-tail")
            head, count = line.hash, after(line.n)
        if len(content) != length:
            self.fault("damaged-tail")

    def line(self, content, first):
        line = Line.parse(content)
        if not line:
            self.fault("malformed-line")
            self.linked, self.tree = False, None
            self.next = after(self.next)
            self.top = max(self.top, self.next)
            return
        if not line.intact:
            self.fault("edited-record")
            self.tree = None
        recovered = self.after_dropped and line.kind == "recovered" and line.n >= self.next
        if self.take or recovered:
            self.top, self.tree = max(self.top, line.n), None
        elif line.n != self.next:
            self.out_of_order(line)
        elif line.prev != self.head and self.linked and line.intact:
            self.fault("bad-link" if first else "edited-record")
            self.tree = None
        self.take = self.after_dropped = False
        self.first = line.n if self.first is None else self.first
        self.linked = line.intact
        self.met(line.n)
        self.check_state(line, first)
        self.head, self.next = line.hash, after(line.n)
        self.top = max(self.top, self.next)
        self.sealed = line.kind == "seal"
        if self.tree and line.intact:
            self.tree.push(line.leaf)
        else:
            self.tree = None
        self.check_heads(line)

    def out_of_order(self, line):
        self.tree = None
        if line.n > self.top:
            self.missing.append((self.top, line.n, self.place))
        elif any(start <= line.n < end for start, end, _ in self.missing):
            self.fault("reordered-record")
        elif line.n < self.top and line.intact:
            self.fault("inserted-record")

    def met(self, n):
        for start, end, place in self.missing:
            if start <= n < end:
                self.missing.remove((start, end, place))
                self.missing += [(*part, place) for part in ((start, n), (n + 1, end)) if part[0] < part[1]]
                return

    def check_state(self, line, first):
        if line.opens != first:
            self.fault("bad-link")
        if not line.opens and line.kind != "seal":
            return
        state = line.state
        if not state:
            self.fault("bad-seal")
            self.tree = None
            return
        if (self.tree and self.tree != state.tree) or state.size != line.n or state.head != line.prev:
            self.fault("bad-seal")
        if line.opens and first:
            if state.format != 2:
                self.fault("bad-link")
            if state.previous != self.previous and line.n > 0:
                self.fault("bad-link")
        self.check_checkpoint(line)
        self.tree = state.tree

    def check_checkpoint(self, line):
        if line.kind != "seal":
            return
        found = open_checkpoint(line.state.checkpoint or "", self.key)
        if found != (line.state.size, line.state.root):
            self.fault("bad-checkpoint")
        elif self.key:
            self.checkpoints += 1

    def check_heads(self, line):
        root = self.tree.root().hex() if self.tree else None

        def agrees(head):
            return head.hash == line.hash and root in (None, head.root)

        if self.note and self.note.records == line.n + 1:
            if agrees(self.note):
                self.noted = True
            else:
                self.fault("rewritten")
        for head in self.log.get(after(line.n), ()):
            if agrees(head):
                self.agreeing += 1
                if not self.rewritten:
                    self.promised = head.records
            else:
                self.differs()
        for records, root_signed, by in self.cosigned:
            if records != line.n + 1 or root is None:
                continue
            if root_signed != root:
                self.differs()
                continue
            self.cosigned_by += [{"witness": name, "records": records, "time": time} for name, time in by]
            if by and not self.rewritten:
                self.promised = records

    def differs(self):
        """A witness saw something else; the first time it is a fault."""
        if not self.rewritten:
            self.rewritten = True
            self.fault("rewritten")

    def finish(self):
        for _, _, place in self.missing:
            self.fault("missing-record", place)
        noted = self.note.records if self.note else 0
        if max(noted, *self.log, *(records for records, _, _ in self.cosigned), 0) > self.top and not self.archive:
            self.fault("truncated")
        self.vouched = [("witness", self.promised)] if self.promised else []
        if self.noted or self.note and noted == 0:
            self.vouched.append(("note", noted))

    def report(self):
        return {
            "faults": self.faults,
            "fault_count": len(self.faults),
            "segments": self.segments,
            "first_record": self.top if self.first is None else self.first,
            "records": self.top,
            "head": self.head,
            "root": self.tree.root().hex() if self.tree else None,
            "checkpoints": self.checkpoints,
            "witnessed_heads": self.agreeing,
            "promised_records": self.promised,
            "cosigned_by": self.cosigned_by,
            "vouched_by": [{"by": by, "records": records} for by, records in self.vouched],
        }

    def status(self):
        if self.faults:
            return 1
        return 0 if self.vouched or self.archive else 2


def ordinal_of(name):
    return int(name.partition("-")[0])


def list_files(directory):
    """The names of the segments, and of those of which only a `.seal` file is left, in order."""
    found = {"jsonl": [], "seal": []}
    try:
        files = os.listdir(directory)
    except OSError as error:
        raise Unreadable.of(error) from error
    for file in files:
        match = NAME.fullmatch(file)
        if match and match[1] == f"{int(match[1]):010}" and match[2] == f"{int(match[2]):08}" \
                and int(match[1]) < MOST and int(match[2]) <= MOST:
            found[match[3]].append((int(match[1]), int(match[2]), file.rpartition(".")[0]))
    names = {kind: [name for *_, name in sorted(files)] for kind, files in found.items()}
    return names["jsonl"], [name for name in names["seal"] if name not in names["jsonl"]]


def lines_of(text):
    """Lines, which may end with a carriage return and a line feed; the last one need not end."""
    *lines, last = text.split("\n")
    return [line.removesuffix("\r") for line in lines] + ([last] if last else [])


def open_checkpoint(note, key):
    """Tree size and root (hex) of a checkpoint, if it has the form and, with a key, is signed by it."""
    text, empty, signatures = note.rpartition("\n\n")
    text += "\n"
    lines = lines_of(text)
    if not empty or len(lines) != 3 or not lines[0] or not DECIMAL.fullmatch(lines[1]) or int(lines[1]) > MOST:
        return None
    root = base64_of(lines[2])
    if root is None or len(root) != 32:
        return None
    if key:
        start = f"— {key.origin} "
        signed = [line.removeprefix(start) for line in lines_of(signatures) if line.startswith(start)]
        if lines[0] != key.origin or not any(key.signed(text, signature) for signature in signed):
            return None
    return int(lines[1]), root.hex()


class Head:
    """What a witness saw."""

    def __init__(self, records, hash, root, origin, signature):
        self.records, self.hash, self.root, self.origin, self.signature = records, hash, root, origin, signature

    @classmethod
    def find(cls, text):
        """The head in a line of a log, or None."""
        fields = re.split("[ \t\n\f\r]+", text.partition("trail-head ")[2].lstrip(" \t\n\f\r"))
        values = []
        for field, name in zip(fields, ("records=", "hash=", "root=", "origin=", "sig=")):
            if not field.startswith(name):
                return None
            values.append(field.removeprefix(name))
        if len(values) < 5 or not DECIMAL.fullmatch(values[0]) or int(values[0]) > MOST \
                or not HEX.fullmatch(values[1]) or not HEX.fullmatch(values[2]):
            return None
        return cls(int(values[0]), *values[1:])

    def counts(self, key):
        text = f"colibri-mcp trail head\n{self.origin}\n{self.records}\n{self.hash}\n{self.root}\n"
        return not key or (self.origin == key.origin and key.signed(text, self.signature))


def read_log(data, key):
    """The heads in a log, by number of records; the same one counts once."""
    heads = {}
    for line in data.split(b"\n"):
        head = Head.find(line.decode(errors="replace"))
        if head and head.counts(key):
            same = heads.setdefault(head.records, [])
            if vars(head) not in map(vars, same):
                same.append(head)
    return heads


def read_file(path):
    """The bytes of a file that somebody named."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise Unreadable.of(error) from error


def read_own(path):
    """A small file of the daemon's, or None where it is not there."""
    try:
        return read_regular(path)[:4096]
    except Unreadable as error:
        if error.status == 66:
            return None
        raise


def read_cosigned(state_dir, key, witness, cosigned):
    """Checkpoints that witnesses signed, by size: records, root, and (name, time) of those whose keys were given."""
    if not witness:
        if cosigned:
            raise Unreadable("--cosigned needs the key of a witness", 64)
        return []
    if not key:
        raise Unreadable("cosignatures cannot be checked without the key of the trail", 64)
    keys = [Key(line, 4) for path in witness for line in read_file(path).split(b"\n") if line.strip()]
    try:
        notes = [read_regular(state_dir / "trail.cosigned")]
    except Unreadable as error:
        if error.status != 66:
            raise
        notes = []
    found = []
    for note in notes + [read_file(path) for path in cosigned]:
        note = note.decode() if is_utf8(note) else ""
        opened = open_checkpoint(note, key)
        if not opened:
            raise Unreadable("not a checkpoint of this trail", 65)
        text, _, signatures = note.rpartition("\n\n")
        times = [(each.origin, each.cosigned_at(text + "\n", signatures)) for each in keys]
        found.append((*opened, [(name, time) for name, time in times if time is not None]))
    return sorted(found, key=lambda each: each[0])


def verify(state_dir, segments=None, archive=None, syslog=None, key=None, witness=(), cosigned=()):
    """Report and exit status."""
    own = read_file(key) if key else read_own(state_dir / "trail.pub")
    key = None if own is None else Key(own)
    log = read_log(read_file(syslog), key) if syslog else {}
    note = Head.find((read_own(state_dir / "trail.head") or b"").decode(errors="replace"))
    if note and not note.counts(key):
        note = None
    verifier = Verifier(key, log, note, archive is not None, read_cosigned(state_dir, key, witness, cosigned))
    verifier.run(archive or segments or state_dir / "trail")
    return verifier.report(), verifier.status()


# The data of a leaf: the hash of the record before, a newline, the record.
ENTRY = re.compile(rb"[0-9a-f]{64}\n")
SIGNATURE = re.compile("— ([^ +]+) (.+)")


def has_only_signatures(note):
    """True if all lines below the text of a note are signatures."""
    lines = note.rpartition("\n\n")[2].split("\n")
    matches = [SIGNATURE.fullmatch(line) for line in lines[:-1]]
    return lines[-1] == "" and bool(matches) and all(
        match and not any(c.isspace() for c in match[1]) and len(base64_of(match[2]) or b"") > 4 for match in matches)


def is_utf8(data):
    try:
        return data.decode() is not None
    except UnicodeDecodeError:
        return False


def check_proof(data, root=None, key=None):
    """Exit status: 0 where the proof holds, 1 where it does not; raises where it is none."""
    try:
        head, empty, checkpoint = data.decode().partition("\n\n")
    except UnicodeDecodeError as error:
        raise Unreadable("not a proof: it is no text", 65) from error
    lines = head.split("\n")
    if not empty or len(lines) < 3 or lines[0] != "c2sp.org/tlog-proof@v1" or not lines[1].startswith("extra ") \
            or not lines[2].startswith("index "):
        raise Unreadable("not a proof", 65)
    entry, index = base64_of(lines[1].removeprefix("extra ")), lines[2].removeprefix("index ")
    steps = [base64_of(line) for line in lines[3:]]
    if entry is None or not ENTRY.match(entry) or not is_utf8(entry) or not DECIMAL.fullmatch(index) \
            or int(index) > MOST or not all(step is not None and len(step) == 32 for step in steps):
        raise Unreadable("not a proof", 65)
    opened = open_checkpoint(checkpoint, None)
    if opened is None or not has_only_signatures(checkpoint):
        return 1
    index, last = int(index), opened[0] - 1
    if index > last:
        raise Unreadable("not a proof: its index is beyond the tree", 65)
    # From the leaf upwards; the last node of a level that has no sibling goes up as it is.
    digest = sha256(b"\0" + entry)
    while last:
        if index & 1 or index < last:
            if not steps:
                raise Unreadable("not a proof: its path is too short", 65)
            sibling = steps.pop(0)
            digest = node(sibling, digest) if index & 1 else node(digest, sibling)
        index, last = index >> 1, last >> 1
    if steps:
        raise Unreadable("not a proof: its path is too long", 65)
    holds = digest.hex() == opened[1]
    holds = holds and (root is None or root.strip() == digest.hex())
    holds = holds and (key is None or open_checkpoint(checkpoint, key) == opened)
    return 0 if holds else 1


def check_proof_file(file, root=None, key=None):
    """Exit status."""
    key = Key(read_file(key)) if key else None
    return check_proof(read_file(file), root, key)


def main():
    parser = argparse.ArgumentParser(description="Verifies a trail as docs/trail.md describes it.")
    actions = parser.add_subparsers(dest="action", required=True)
    action = actions.add_parser("verify")
    action.add_argument("state_dir", type=pathlib.Path)
    for flag in ("--segments", "--archive", "--syslog", "--key"):
        action.add_argument(flag, type=pathlib.Path)
    for flag in ("--witness", "--cosigned"):
        action.add_argument(flag, type=pathlib.Path, action="append", default=[])
    action = actions.add_parser("check-proof")
    action.add_argument("file", type=pathlib.Path)
    against = action.add_mutually_exclusive_group(required=True)
    against.add_argument("--root")
    against.add_argument("--key", type=pathlib.Path)
    args = parser.parse_args()
    try:
        if args.action == "check-proof":
            return check_proof_file(args.file, args.root, args.key)
        report, status = verify(args.state_dir, args.segments, args.archive, args.syslog, args.key,
                                args.witness, args.cosigned)
        print(json.dumps(report, indent=2))
        return status
    except Unreadable as error:
        print(error, file=sys.stderr)
        return error.status


if __name__ == "__main__":
    sys.exit(main())
