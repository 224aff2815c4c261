"""A trail in memory, and random things that somebody can do to one."""

import base64
import contextlib
import hashlib
import json
import os
import re
import shutil

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LINE = re.compile(rb'\{"hash":"([0-9a-f]{64})","prev":"([0-9a-f]{64})","rec":(.*)\}\n?', re.DOTALL)
FIFO, SYMLINK, DIRECTORY = object(), object(), object()


def sha256(data):
    return hashlib.sha256(data).digest()


class Signer:
    """A key that signs as an installation does."""

    def __init__(self, origin, seed):
        self.origin, self.key = origin, Ed25519PrivateKey.from_private_bytes(seed)
        public = b"\1" + self.key.public_key().public_bytes_raw()
        self.id = sha256(origin.encode() + b"\n" + public)[:4]
        self.public = f"{origin}+{self.id.hex()}+{base64.b64encode(public).decode()}\n"

    @classmethod
    def load(cls, text):
        """`trail.key`, the private half of a signed note's key."""
        origin, _, key = text.strip().removeprefix("PRIVATE+KEY+").split("+", 2)
        return cls(origin, base64.b64decode(key)[1:])

    def sign(self, text):
        return base64.b64encode(self.id + self.key.sign(text.encode())).decode()

    def checkpoint(self, size, root):
        body = f"{self.origin}\n{size}\n{base64.b64encode(root).decode()}\n"
        return f"{body}\n— {self.origin} {self.sign(body)}\n"

    def head(self, records, digest, root):
        text = f"colibri-mcp trail head\n{self.origin}\n{records}\n{digest}\n{root}\n"
        return f"trail-head records={records} hash={digest} root={root} origin={self.origin} sig={self.sign(text)}"


class Tree:
    def __init__(self, size=0, peaks=()):
        self.size, self.peaks = size, list(peaks)

    def push(self, leaf):
        n = self.size
        while n & 1:
            leaf, n = sha256(b"\1" + self.peaks.pop() + leaf), n >> 1
        self.peaks.append(leaf)
        self.size += 1

    def root(self):
        if not self.peaks:
            return sha256(b"")
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = sha256(b"\1" + peak + root)
        return root


class Trail:
    """The files of a state directory: name to bytes, or to what else stands there."""

    def __init__(self, files):
        self.files = dict(files)

    @classmethod
    def read(cls, place):
        return cls({str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()})

    def write(self, place):
        shutil.rmtree(place, ignore_errors=True)
        (place / "trail").mkdir(parents=True)
        for name, content in self.files.items():
            path = place / name
            if content is FIFO:
                os.mkfifo(path)
            elif content is SYMLINK:
                path.symlink_to(place / "elsewhere")
                (place / "elsewhere").write_bytes(b"")
            elif content is DIRECTORY:
                path.mkdir()
            else:
                path.write_bytes(content)

    def segments(self):
        return sorted(name for name, content in self.files.items()
                      if name.endswith(".jsonl") and isinstance(content, bytes))

    def seals(self):
        return sorted(name for name in self.files if name.endswith(".seal"))

    def lines(self, name):
        return self.files[name].splitlines(keepends=True) if b"\r" not in self.files[name] else \
            re.findall(rb"[^\n]*\n|[^\n]+", self.files[name])

    def signer(self):
        return Signer.load(self.files["trail.key"].decode())

    def rehash(self, signer, numbers, states):
        """What somebody can do who has the files and a key: all from some record on is made anew."""
        tree, head, count = None, None, None
        for name in self.segments():
            lines = self.lines(name)
            for at, line in enumerate(lines):
                match = LINE.fullmatch(line)
                try:
                    value = json.loads(match[3]) if match else None
                    if tree is None and value:
                        count, head = value["n"], match[2]
                        tree = Tree(count, [bytes.fromhex(peak) for peak in value["peaks"]])
                except (ValueError, KeyError, TypeError, IndexError, RecursionError):
                    continue
                if not isinstance(value, dict):
                    continue
                rec = match[3]
                if numbers:
                    rec = re.sub(rb'^\{"n":[0-9]+', b'{"n":%d' % count, rec)
                if states and "tree_size" in value:
                    root = tree.root()
                    new = f'"tree_size":{count},"root":"{root.hex()}","head":"{head.decode()}","peaks":' + json.dumps(
                        [peak.hex() for peak in tree.peaks], separators=(",", ":"))
                    rec = re.sub(rb'"tree_size":.*?"peaks":\[[^\]]*\]', lambda _: new.encode(), rec, flags=re.DOTALL)
                    note = json.dumps(signer.checkpoint(count, root), ensure_ascii=False).encode()
                    rec = re.sub(rb'"checkpoint":"(?:[^"\\]|\\.)*"', lambda _: b'"checkpoint":' + note, rec,
                                 flags=re.DOTALL)
                leaf = sha256(b"\0" + head + b"\n" + rec)
                end = b"\n" if line.endswith(b"\n") else b""
                lines[at] = b'{"hash":"%s","prev":"%s","rec":%s}%s' % (leaf.hex().encode(), head, rec, end)
                tree.push(leaf)
                head, count = leaf.hex().encode(), count + 1
            self.files[name] = b"".join(lines)


OTHER = Signer("colibri-mcp/trail/ffeeddccbbaa9988", b"\5" * 32)

# Pairs that change the text of a record: what is looked for, and what stands there then.
NUMBERS = [lambda n: n + b".0", lambda n: b"0" + n, lambda n: n + b"e0", lambda n: b"-" + n, lambda n: b'"' + n + b'"',
           lambda n: b"18446744073709551616", lambda n: b"+" + n, lambda n: b"null", lambda n: n + b"0",
           lambda n: b"18446744073709551615", lambda n: b"1e400", lambda n: b"NaN", lambda n: b"-0", lambda n: b"true",
           lambda n: b"%d" % (int(n) + 1), lambda n: b"%d" % max(0, int(n) - 1), lambda n: b"[" + n + b"]"]
TEXTS = [b"\\ud800", b"\\u00e9", "é".encode(), b"\xff", b"\xc0\x80", b"\\n", b"\n", b"\t", b"\0", b"\\u0000", b"\\/",
         b"\\x", b"\x7f", b"\xed\xa0\x80", b"\\ud83d\\ude00", b"\xe2\x80\xa8", b'\\"', b'"', b"\\", b"\xef\xbb\xbf"]
WHITE = [b" ", b"\t", b"\r", b"\n", b"\0", b"\x0b", b"\xc2\xa0", b"\x0c"]
FIELDS = rb"tree_size|root|head|peaks|previous|format|checkpoint|torn"
KINDS = [b"open", b"recovered", b"seal", b"exit", b"event", b"none", b""]
HOSTILE = [b"[" * 200 + b"]" * 200, b"{}", b"[]", b"null", b"", b"1", b'"text"', b'{"n":0}', b"{" * 3,
           b"[" * 120 + b"]" * 120, b"[" * 63 + b"]" * 63, b"[" * 64 + b"]" * 64, b"[" * 2000 + b"]" * 2000,
           b"Infinity", b"[1,]", b'{"a":1,}', b"1" * 5000, b"1" * 400 + b"e-400", b"tru", b"'a'"]


def one(random, items):
    return items[random.randrange(len(items))]


def substitute(random, text, pattern, new):
    """One of the places where the pattern is, changed."""
    found = list(re.finditer(pattern, text, re.DOTALL))
    if not found:
        return text
    match = one(random, found)
    return text[: match.start()] + new(match) + text[match.end() :]


class Tamperer:
    """Does one thing to a trail; says what."""

    def __init__(self, random, trail, other):
        self.random, self.trail, self.other = random, trail, other
        self.files = trail.files

    def segment(self):
        return one(self.random, self.trail.segments())

    def line(self):
        """A segment, its lines, and the place of one."""
        name = self.segment()
        lines = self.trail.lines(name) or [b""]
        return name, lines, self.random.randrange(len(lines))

    def put(self, name, lines):
        self.files[name] = b"".join(lines)

    def edit(self, pattern, new):
        """A place in a line of the trail."""
        places = [(name, at) for name in self.trail.segments()
                  for at, line in enumerate(self.trail.lines(name)) if re.search(pattern, line, re.DOTALL)]
        if places:
            name, at = one(self.random, places)
            lines = self.trail.lines(name)
            lines[at] = substitute(self.random, lines[at], pattern, new)
            self.put(name, lines)

    def bytes_of(self, names):
        names = [name for name in names if isinstance(self.files.get(name), bytes) and self.files[name]]
        if not names:
            return None, b"", 0
        name = one(self.random, names)
        return name, bytearray(self.files[name]), self.random.randrange(len(self.files[name]))

    def flip(self, names=None):
        name, content, at = self.bytes_of(names or self.trail.segments())
        if name:
            content[at] ^= 1 << self.random.randrange(8)
            self.files[name] = bytes(content)

    def cut_out(self):
        name, content, at = self.bytes_of(self.trail.segments())
        if name:
            del content[at : at + self.random.choice([1, 1, 2, 30, 500])]
            self.files[name] = bytes(content)

    def put_in(self):
        name, content, at = self.bytes_of(self.trail.segments())
        if name:
            content[at:at] = self.random.choice([self.random.randbytes(1), one(self.random, WHITE), b"\n", b"\r\n"])
            self.files[name] = bytes(content)

    def truncate(self):
        name, content, at = self.bytes_of(self.trail.segments())
        if name:
            self.files[name] = bytes(content[:at])

    def truncate_between(self):
        name, lines, at = self.line()
        self.put(name, lines[:at])

    def truncate_all(self):
        name, lines, at = self.line()
        for later in [each for each in self.files if each.startswith("trail/") and each > name]:
            del self.files[later]
        self.put(name, lines[:at] + self.random.choice([[], [lines[at][: self.random.randrange(len(lines[at]) + 1)]]]))

    def drop_lines(self):
        name, lines, at = self.line()
        del lines[at : at + self.random.choice([1, 1, 1, 2, 5])]
        self.put(name, lines)

    def double_line(self):
        name, lines, at = self.line()
        lines.insert(self.random.randrange(len(lines) + 1), lines[at])
        self.put(name, lines)

    def swap_lines(self):
        name, lines, at = self.line()
        other, others, to = self.line()
        if name == other:
            lines[at], lines[to] = lines[to], lines[at]
        else:
            lines[at], others[to] = others[to], lines[at]
            self.put(other, others)
        self.put(name, lines)

    def splice(self):
        name, lines, at = self.line()
        others = self.other.lines(one(self.random, self.other.segments()))
        start = self.random.randrange(len(others)) if others else 0
        lines[at : at + self.random.randrange(3)] = others[start : start + 1 + self.random.randrange(4)]
        self.put(name, lines)

    def say_else(self):
        self.edit(rb'"(uid|connection|result|operation|tool|error_code|event)":("[^"]*"|[0-9]+)',
                  lambda match: b'"%s":%s' % (match[1], one(self.random, [b'"SUCCESS"', b"0", b'"other"', b"{}"])))

    def number(self):
        key = one(self.random, [rb"n", rb"n", rb"tree_size", rb"format", rb"offset", rb"length", rb"uid", rb"enter",
                                rb"latency_ms"])
        self.edit(rb'("%s":)([0-9]+)' % key, lambda match: match[1] + one(self.random, NUMBERS)(match[2]))

    def escape(self):
        self.edit(rb'(?<=[a-z_0-9])"', lambda match: one(self.random, TEXTS) + match[0])

    def white(self):
        name, lines, at = self.line()
        white = one(self.random, WHITE)
        spot = self.random.choice([rb'(?<=")[:,]', rb"[{}]", rb"\n", rb"^", rb'"rec":', rb"\}\n?$"])
        lines[at] = substitute(self.random, lines[at], spot, lambda match: self.random.choice(
            [white + match[0], match[0] + white]))
        self.put(name, lines)

    def double_key(self):
        self.edit(rb'"(%s|n|kind|timestamp)":("[^"]*"|[0-9]+|\[\])' % FIELDS,
                  lambda match: match[0] + b',"%s":%s' % (match[1], self.random.choice(
                      [match[2], b"1", b'"seal"', b"null", b"[]", b'"%s"' % (b"0" * 64)])))

    def double_envelope(self):
        self.edit(rb'"(hash|prev)":"[0-9a-f]*"', lambda match: self.random.choice(
            [match[0] + b"," + match[0], b"", match[0].upper(), match[0].replace(b'":"', b'": "')]))

    def rename_key(self):
        self.edit(rb'"(%s|n|kind|timestamp|offset|segment)"(?=:)' % FIELDS,
                  lambda match: self.random.choice([b'"x"', b'"\\u00%02x%s"' % (match[1][0], match[1][1:]),
                                                    match[0].upper()]))

    def more(self):
        self.edit(rb'"kind":"(open|recovered|seal)"',
                  lambda match: match[0] + b',"more":' + one(self.random, HOSTILE))

    def remove_key(self):
        value = rb'"(?:[^"\\]|\\.)*"|[0-9]+|\[[^\]]*\]'
        self.edit(rb',"(%s|kind|timestamp)":(%s)' % (FIELDS, value), lambda match: b"")

    def kind(self):
        self.edit(rb'"kind":"[a-z]*"', lambda match: b'"kind":"%s"' % one(self.random, KINDS))

    def hostile(self):
        self.edit(rb'(?<=:)("[^"]*"|[0-9]+|\[\])(?=[,}])', lambda match: one(self.random, HOSTILE))

    def hostile_rec(self):
        self.edit(rb'(?<="rec":).*(?=\})', lambda match: one(self.random, HOSTILE))

    def order(self):
        self.edit(rb'\{("n":[0-9]+),("kind":"[a-z]*")', lambda match: b"{" + match[2] + b"," + match[1])

    def digest(self):
        self.edit(rb"[0-9a-f]{64}", lambda match: self.random.choice(
            [match[0].upper(), b"0" * 64, match[0][1:], match[0] + b"0", match[0][::-1],
             sha256(match[0]).hex().encode()]))

    def state(self):
        def new(match):
            value = json.loads(b"{" + match[0] + b"}")
            field = self.random.choice(["tree_size", "root", "head", "peaks"])
            value[field] = {
                "tree_size": value["tree_size"] + self.random.choice([-1, 1, 8]),
                "root": sha256(match[0]).hex(), "head": sha256(match[0]).hex(),
                "peaks": self.random.choice([value["peaks"][1:], value["peaks"] + ["00" * 32], value["peaks"][::-1],
                                             ["ab"], [1], value["peaks"][0:1] * 2]),
            }[field]
            return json.dumps(value, separators=(",", ":")).encode()[1:-1]
        self.edit(rb'"tree_size":[0-9]+,"root":"[^"]*","head":"[^"]*","peaks":\[[^\]]*\]', new)

    def checkpoint(self):
        own = self.trail.signer()
        signer = self.random.choice([own, OTHER, Signer(own.origin, b"\6" * 32), Signer(OTHER.origin, b"\7" * 32)])

        def new(match):
            text = json.loads(match[1])
            lines = text.split("\n")
            what = self.random.randrange(10)
            if what < 3 and len(lines) > 2 and lines[1].isdecimal():
                size = int(lines[1]) + self.random.choice([0, 0, 1, -1])
                text = signer.checkpoint(max(size, 0), self.random.choice([base64.b64decode(lines[2]), b"\3" * 32]))
            elif what == 3:
                text = text.removesuffix("\n") + self.random.choice(["", "\r"])
            elif what == 4:
                text += self.random.choice(["\n", f"— {OTHER.origin} {OTHER.sign('x')}\n", "x", "— x y\n", "\0"])
            elif what == 5:
                text = text.replace("—", self.random.choice(["-", "–", "— "]))
            elif what == 6:
                text = text.replace("=\n", self.random.choice(["\n", "==\n", "=\r\n", " =\n", "=\n\n"]), 1)
            elif what == 7:
                size = self.random.choice([f"\n0{lines[1]}\n", f"\n+{lines[1]}\n", "\n"])
                text = text.replace(f"\n{lines[1]}\n", size, 1)
            elif what == 8:
                text = text.replace("\n\n", "\nextension\n\n")
            else:
                at = self.random.randrange(len(text))
                text = text[:at] + self.random.choice("aA0+/ \n=") + text[at + 1 :]
            return b'"checkpoint":' + json.dumps(text, ensure_ascii=self.random.random() < 0.5).encode()
        self.edit(rb'"checkpoint":("(?:[^"\\]|\\.)*")', new)

    def previous(self):
        names = [name[6:-6] for name in self.trail.segments()] + ["0000000099-20261121", "", "../x"]
        self.edit(rb'"previous":("[^"]*"|null)',
                  lambda match: b'"previous":' + json.dumps(one(self.random, names)).encode())

    def torn(self):
        names = [name[6:-6] for name in self.trail.segments()] + ["0000000099-20261121"]
        name = one(self.random, names)
        size = len(self.files.get(f"trail/{name}.jsonl", b""))
        offset = self.random.choice([0, size, size // 2, size + 7, max(0, size - 13)])
        entry = {"segment": name, "offset": offset, "length": self.random.choice([size - offset, 0, 13])}
        # Arrays that some readers take for objects, now and then.
        entry = self.random.choice([entry, entry, entry, list(entry.values()), list(entry.items())])
        text = json.dumps([entry] * self.random.choice([1, 1, 2]), separators=(",", ":")).encode()
        if self.random.random() < 0.5:
            self.edit(rb'"torn":\[[^\]]*\]',
                      lambda match: b'"torn":' + self.random.choice([text, b"[]", b"{}", b"[1]"]))
        else:
            self.edit(rb'"kind":"(open|recovered|seal)"', lambda match: match[0] + b',"torn":' + text)

    def tail(self):
        name = self.segment()
        line = (self.trail.lines(name) or [b""])[-1]
        self.files[name] += self.random.choice([
            b'{"hash":"', line[: len(line) // 2], line, line.rstrip(b"\n"), b"\n", b"\0" * 40, b"garbage", b"{", b"}\n",
            b" ", b'{"hash":"' + b"0" * 5000, b"\r\n", b'{"hash":"zz'])

    def last_newline(self):
        name = self.segment()
        self.files[name] = self.files[name].removesuffix(b"\n")

    def crlf(self):
        name, lines, at = self.line()
        if self.random.random() < 0.5:
            lines[at] = lines[at].replace(b"\n", b"\r\n")
        else:
            lines = [line.replace(b"\n", b"\r\n") for line in lines]
        self.put(name, lines)

    def empty(self):
        if self.random.random() < 0.5:
            self.files[self.segment()] = b""
        else:
            self.add_segment(b"")

    def add_segment(self, content):
        last = one(self.random, self.trail.segments())
        ordinal = int(last[6:16]) + self.random.choice([1, 1, 2, 0, 5])
        day = self.random.choice([last[17:25], "20000101", "99991231", "00000000"])
        self.files[f"trail/{ordinal:010}-{day}.jsonl"] = content

    def foreign_segment(self):
        self.add_segment(self.files[self.segment()] if self.random.random() < 0.5
                         else self.other.files[one(self.random, self.other.segments())])

    def remove_segment(self):
        name = self.segment()
        del self.files[name]
        if self.random.random() < 0.3:
            for earlier in [each for each in self.trail.segments() if each < name]:
                del self.files[earlier]

    def remove_all(self):
        for name in [each for each in self.files if each.startswith("trail/")]:
            if self.random.random() < 0.9:
                del self.files[name]

    def rename_segment(self):
        name = self.segment()
        content = self.files.pop(name)
        self.add_segment(content) if self.trail.segments() and self.random.random() < 0.6 else self.files.update(
            {name.replace(name[17:25], "20301231"): content})

    def swap_segments(self):
        name, other = self.segment(), self.segment()
        self.files[name], self.files[other] = self.files[other], self.files[name]

    def strange_name(self):
        name = self.segment()
        new = self.random.choice([
            "trail/notes.jsonl", "trail/0000000001.jsonl", name + "~", "trail/" + name[6:].upper(),
            "trail/0" + name[6:], "trail/18446744073709551615-20261121.jsonl",
            "trail/00000000001-20261121.jsonl", "trail/10000000001-20261121.jsonl", name.replace(".jsonl", ".JSONL"),
            "trail/0000000000-20261121.jsonl", "trail/99999999999999999999-20261121.jsonl", name.replace("-", "_"),
            "trail/0000000001-120261121.jsonl"])
        self.files[new] = self.files.pop(name) if self.random.random() < 0.5 else self.files[name]

    def no_file(self):
        name = self.random.choice(
            self.trail.segments() + self.trail.seals() + ["trail.head", "trail.pub", "trail/0000000099-20261121.jsonl"])
        self.files[name] = self.random.choice([FIFO, SYMLINK, DIRECTORY])

    def key(self):
        public = self.files["trail.pub"]
        if self.random.random() < 0.2:
            del self.files["trail.pub"]
        else:
            self.files["trail.pub"] = self.random.choice([
                OTHER.public.encode(), b"", b"garbage", public.strip(), public.replace(b"+", b"-"), public + b"\n\n",
                *(public.replace(b"+", b"+" + more, 1) for more in (b"1", b"1" * 200, b"00")),
                public.replace(b"\n", b"\r\n"), b" " + public, public + public, public[:-3] + b"\n", public + b"\xff"])
            if self.random.random() < 0.3:
                self.flip(["trail.pub"])

    def seen(self):
        """What heads can name: how many records there are after each line, its hash and the root."""
        tree, found = None, []
        for name in self.trail.segments():
            for line in self.trail.lines(name):
                match = LINE.fullmatch(line)
                try:
                    value = json.loads(match[3]) if match else None
                    if tree is None:
                        tree = Tree(value["n"], [bytes.fromhex(peak) for peak in value["peaks"]])
                    if match:
                        tree.push(bytes.fromhex(match[1].decode()))
                        found.append((tree.size, match[1].decode(), tree.root().hex()))
                except (ValueError, KeyError, TypeError, IndexError, RecursionError):
                    continue
        return found or [(0, "0" * 64, sha256(b"").hex())]

    def a_head(self):
        own = self.trail.signer()
        signer = self.random.choice([own, own, own, own, OTHER, Signer(own.origin, b"\6" * 32)])
        count, digest, root = one(self.random, self.seen())
        what = self.random.randrange(9)
        if what == 0:
            count += self.random.choice([1, 1000, -1, 2**63])
        elif what == 1:
            digest = sha256(digest.encode()).hex()
        elif what == 2:
            root = sha256(root.encode()).hex()
        elif what == 3:
            count, digest, root = 0, "0" * 64, sha256(b"").hex()
        text = signer.head(max(count, 0), digest, root)
        spoil = self.random.randrange(16)
        if spoil == 0:
            text = text.replace("records=", self.random.choice(["records=0", "records=+", "records= ", "records=-"]))
        elif spoil == 1:
            text = text[: self.random.randrange(len(text))]
        elif spoil == 2:
            text = text.replace(" ", self.random.choice(["  ", "\t"]), 1 + self.random.randrange(4))
        elif spoil == 3:
            text += self.random.choice([" more", "\r", " trail-head", ",", " " + signer.head(0, "0" * 64, root), "\0"])
        elif spoil == 4:
            at = self.random.randrange(len(text))
            text = text[:at] + self.random.choice("aA0+/ =.é") + text[at + 1 :]
        elif spoil == 5:
            text = self.random.choice(["x", "trail-head ", "trail-head records=1 ", "\0", "é "]) + text
        return text

    def log(self):
        lines = self.files["auth.log"].decode().splitlines()
        text = self.random.choice(["Nov 21 22:31:00 host colibri-mcpd[1]: ", "", "<38>"]) + self.a_head()
        what = self.random.randrange(6)
        if what == 0:
            lines = [text]
        elif what == 1 and lines:
            del lines[self.random.randrange(len(lines))]
        elif what == 2 and lines:
            lines.append(one(self.random, lines))
        else:
            lines.insert(self.random.randrange(len(lines) + 1), text)
        end = self.random.choice(["\n", "\n", "\n", "\n", "\r\n"])
        self.files["auth.log"] = (end.join(lines) + self.random.choice([end, ""])).encode()
        if self.random.random() < 0.1:
            self.flip(["auth.log"])

    def note(self):
        what = self.random.randrange(5)
        if what == 0:
            self.files.pop("trail.head", None)
        elif what == 1:
            self.files["trail.head"] = self.random.choice([b"", b"\n", b"garbage\n", b"\xff\xfe", b"trail-head\n"])
        elif what == 2 and "trail.head" in self.files:
            self.flip(["trail.head"])
        elif what == 3:
            self.files["trail.head"] = (self.a_head() + "\n" + self.a_head() + "\n").encode()
        else:
            self.files["trail.head"] = (self.a_head() + self.random.choice(["\n", ""])).encode()

    def seal_file(self):
        seals = self.trail.seals()
        names = [name.replace(".jsonl", ".seal") for name in self.trail.segments()]
        what = self.random.randrange(7)
        states = [line for name in self.trail.segments() for line in self.trail.lines(name) if b'"tree_size"' in line]
        content = self.random.choice(
            [one(self.random, states) if states else b"", b"", b"garbage\n", b"\n", *states[:1]])
        if seals and what < 3:
            name = one(self.random, seals)
            if what == 0:
                del self.files[name]
            elif what == 1:
                self.flip([name])
            else:
                old = self.files[name]
                self.files[name] = self.random.choice(
                    [old + old, old.strip(), content, b"", old.replace(b"\n", b"\r\n"), old[:-20], old + b"x",
                     re.sub(rb'"n":[0-9]+', b'"n":3', old), re.sub(rb'"tree_size":[0-9]+', b'"tree_size":3', old)])
        elif what == 3:
            self.files[one(self.random, names)] = content
        elif what == 4:
            ordinal = self.random.choice([0, 1, 2, 7, 99])
            self.files[f"trail/{ordinal:010}-20260101.seal"] = content
        else:
            # As retention does it, by hand: of some of the oldest only the last state is left.
            for name in self.trail.segments()[: 1 + self.random.randrange(3)]:
                kept = [line for line in self.trail.lines(name) if b'"tree_size"' in line]
                if kept and self.random.random() < 0.9:
                    self.files[name.replace(".jsonl", ".seal")] = kept[-1]
                if len(self.trail.segments()) > 1:
                    del self.files[name]

    def anew(self):
        signer = self.random.choice([self.trail.signer(), self.trail.signer(), OTHER])
        numbers, states = self.random.random() < 0.7, self.random.random() < 0.7
        # A state that is none any more ends it: what comes before is made anew.
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError, OverflowError):
            self.trail.rehash(signer, numbers, states)

    CHANGES = [flip, flip, cut_out, put_in, truncate, truncate_between, truncate_all, drop_lines, double_line,
               swap_lines, splice, say_else, number, number, escape, white, double_key, double_envelope, rename_key,
               remove_key, kind, hostile, hostile_rec, more, order, digest, state, checkpoint, previous, torn, torn, tail,
               last_newline, crlf, empty, foreign_segment, remove_segment, remove_all, rename_segment, swap_segments,
               strange_name, no_file, key, log, log, note, seal_file, seal_file]

    def tamper(self):
        """One to three changes, now and then all hashes anew; their names."""
        done = []
        for _ in range(self.random.choice([1, 1, 1, 1, 2, 3])):
            if not self.trail.segments():
                break
            change = one(self.random, self.CHANGES)
            change(self)
            done.append(change.__name__)
            # What is no file any more, or is not there, cannot be changed further.
            if change in (Tamperer.no_file, Tamperer.key):
                break
        if self.random.random() < 0.4 and self.trail.segments():
            self.anew()
            done.append("anew")
        return done


def proof(random, text):
    """A proof with one thing changed."""
    lines, what = text.split("\n"), random.randrange(6)
    empty = lines.index("")
    if what == 0:
        at = random.randrange(len(text))
        return text[:at] + random.choice(["0", "a", "", "\n", "=", "\ud800", "é"]) + text[at + 1 :]
    if what == 1:
        del lines[random.randrange(len(lines))]
    elif what == 2:
        lines.insert(random.randrange(len(lines) + 1), random.choice(["", "extra AAAA", "index 1", "A" * 43 + "=", "x"]))
    elif what == 3:
        path = lines[3:empty]
        lines[3:empty] = random.choice([path[1:], path[::-1], path + path[:1], [each[:-1] for each in path]])
    elif what == 4:
        at = random.choice([2, empty + 2])
        name, _, number = lines[at].rpartition(" ")
        number = str(max(0, int(number) + random.choice([-1, 1, 8, 2**64])))
        lines[at] = f"{name} {random.choice([number, number, '0' + number])}" if name else number
    else:
        record = base64.b64decode(lines[1].removeprefix("extra ")).decode()
        record = random.choice([record.replace("SUCCESS", "FAIL"), record + " ", record.replace('"n":', '"n": '),
                                record[1:], record.replace("\n", " ", 1)])
        lines[1] = "extra " + base64.b64encode(record.encode()).decode()
    return "\n".join(lines)
