"""Drives a guest from outside: its serial console, and QEMU's monitor (QMP). The second argument says what for.

install CONSOLE         logs in as root, who has no password yet, and installs what lies on the second disk
freeze CONSOLE QMP FILE waits until the guest asks for a job, and writes its state to FILE
"""

import json
import socket
import sys
import time


class Console:
    """Text of the guest, and keys for it."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.text = ""

    def until(self, word, seconds=1800):
        """Waits for a word, and forgets what came before its end."""
        end = time.monotonic() + seconds
        while word not in self.text:
            self.socket.settimeout(max(1, end - time.monotonic()))
            try:
                piece = self.socket.recv(4096)
            except TimeoutError:
                piece = b""
            if not piece:
                sys.exit(f"guest: no {word!r} on its console, which ends with:\n{self.text[-1500:]}")
            self.text += piece.decode("ascii", "replace")
        self.text = self.text.split(word, 1)[1]

    def type(self, line):
        # Key by key: a serial port of 16 bytes loses what comes at once.
        for key in line + "\r":
            self.socket.sendall(key.encode())
            time.sleep(0.02)


def monitor(path):
    """A function that runs a command of QMP and returns its answer."""
    link = socket.socket(socket.AF_UNIX)
    link.connect(path)
    lines = link.makefile("rw")
    lines.readline()

    def command(name, **arguments):
        json.dump({"execute": name, "arguments": arguments}, lines)
        lines.write("\n")
        lines.flush()
        while True:
            answer = json.loads(lines.readline())
            if "error" in answer:
                sys.exit(f"guest: {name}: {answer['error']['desc']}")
            if "return" in answer:
                return answer["return"]

    command("qmp_capabilities")
    return command


def install(console):
    console = Console(console)
    console.until("login: ")
    console.type("root")
    console.until("# ")
    console.type("mkdir /var/tmp/guest && tar -xf /dev/vtbd1 -C /var/tmp/guest && sh /var/tmp/guest/install && shutdown -p now")
    console.until("guest: installed")


def freeze(console, qmp, file):
    Console(console).until("guest: ready")
    # What rc(8) started last is still busy.
    time.sleep(15)
    command = monitor(qmp)
    command("migrate-set-parameters", **{"max-bandwidth": 4 << 30})
    command("migrate", uri=f"exec:zstd -q -3 >'{file}'")
    while (status := command("query-migrate")["status"]) != "completed":
        if status == "failed":
            sys.exit("guest: its state cannot be written")
        time.sleep(0.5)
    command("quit")


{"install": install, "freeze": freeze}[sys.argv[1]](*sys.argv[2:])
