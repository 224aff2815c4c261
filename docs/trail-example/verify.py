#!/usr/bin/env python3
"""Verifies a trail as docs/trail.md describes it, with nothing of Colibri's: verify.py DIRECTORY [LOG].

It uses nothing that the page does not say, so that the page is known to say enough. It checks chain, tree, seals and heads, and with
the Python package `cryptography` the signatures too. Where something is wrong it says what and exits with 1.
"""

import base64
import hashlib
import json
import pathlib
import re
import sys

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
except ImportError:
    Ed25519PublicKey = None

LINE = re.compile(rb'{"hash":"([0-9a-f]{64})","prev":"([0-9a-f]{64})","rec":(.*)}\n')


def node(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


def root_of(peaks):
    if not peaks:
        return hashlib.sha256().digest()
    root = peaks[-1]
    for peak in reversed(peaks[:-1]):
        root = node(peak, root)
    return root


def grow(peaks, size, leaf):
    while size & 1:
        leaf = node(peaks.pop(), leaf)
        size >>= 1
    peaks.append(leaf)


def check(holds, what):
    if not holds:
        sys.exit(f"wrong: {what}")


class Key:
    def __init__(self, text):
        self.name, key_id, key = text.strip().split("+", 2)
        self.id, key = bytes.fromhex(key_id), base64.b64decode(key)
        check(hashlib.sha256(self.name.encode() + b"\n" + key).digest()[:4] == self.id, "the key's id")
        self.key = Ed25519PublicKey.from_public_bytes(key[1:]) if Ed25519PublicKey else None

    def check(self, text, signature, what):
        signature = base64.b64decode(signature)
        check(signature[:4] == self.id, f"{what} is signed by another key")
        if self.key:
            try:
                self.key.verify(signature[4:], text.encode())
            except InvalidSignature:
                check(False, f"the signature of {what}")


def main(directory, log=None):
    key = Key((directory / "trail.pub").read_text())
    segments = sorted(directory.glob("*.jsonl"))
    torn = {}
    for path in segments:
        first = LINE.match(path.read_bytes())
        for part in json.loads(first[3]).get("torn", []) if first else []:
            torn[part["segment"]] = part["offset"]
    head, peaks, records, seen = "0" * 64, [], 0, {}
    for path in segments:
        data = path.read_bytes()[: torn.get(path.stem)]
        for number, line in enumerate(data.splitlines(keepends=True)):
            where = f"{path.name} line {number + 1}"
            match = LINE.fullmatch(line)
            check(match, f"{where}: not a line")
            digest, prev, rec = match[1].decode(), match[2].decode(), match[3]
            leaf = hashlib.sha256(b"\0" + prev.encode() + b"\n" + rec).digest()
            record = json.loads(rec)
            check(leaf.hex() == digest, f"{where}: hash")
            check(prev == head and record["n"] == records, f"{where}: does not follow")
            check((number == 0) == (record["kind"] in ("open", "recovered")), f"{where}: opening record")
            if number == 0:
                check(record["format"] == 2, f"{where}: format")
            if "tree_size" in record:
                root = root_of(peaks)
                state = (record["tree_size"], record["root"], record["head"], record["peaks"])
                check(state == (records, root.hex(), head, [peak.hex() for peak in peaks]), f"{where}: state")
            if "checkpoint" in record:
                text, _, signature = record["checkpoint"].rpartition("\n\n")
                body = f"{key.name}\n{records}\n{base64.b64encode(root).decode()}\n"
                check(text + "\n" == body, f"{where}: checkpoint")
                key.check(body, signature.removeprefix(f"— {key.name} "), f"{where}: checkpoint")
            grow(peaks, records, leaf)
            head, records = digest, records + 1
            seen[records] = (head, root_of(peaks).hex())
    heads = re.findall(
        r"trail-head records=(\d+) hash=(\w+) root=(\w+) origin=(\S+) sig=(\S+)",
        log.read_text() if log else (directory / "trail.head").read_text(),
    )
    promised = 0
    for count, digest, root, origin, signature in heads:
        key.check(f"colibri-mcp trail head\n{origin}\n{count}\n{digest}\n{root}\n", signature, "a head")
        check(seen.get(int(count)) == (digest, root), f"a witness saw something else after {count} records")
        promised = max(promised, int(count))
    print(f"{records} records, head {head}, root {root_of(peaks).hex()}, promised to record {promised - 1}")


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:]))
