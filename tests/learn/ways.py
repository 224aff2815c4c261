"""What a hostile version of a server would try, from where the server runs: `python3 ways.py FACTS`, a line each.

FACTS is a JSON object of what there is on the host to reach. Each way is tried for real; a line says `open NAME` where it
led to something, else `closed NAME`. It runs with the programs of the base system alone.
"""

import json
import os
import socket
import subprocess
import sys


def read(path):
    with open(path, "rb") as file:
        return bool(file.read(1)) or True


def write(path):
    with open(path, "ab") as file:
        file.write(b"\n")
    return True


def connect(family, address, kind=socket.SOCK_STREAM):
    with socket.socket(family, kind) as one:
        one.settimeout(2)
        one.connect(address)
        if kind == socket.SOCK_DGRAM:
            one.send(b"canary")
            return one.recv(10) == b"seen"
        return True


def through_link(facts):
    link = os.path.join(facts["writable"], "link")
    os.symlink(facts["secrets"][0], link)
    try:
        return read(link)
    finally:
        os.unlink(link)


def hard_link(facts):
    target = os.path.join(facts["writable"], "hard")
    os.link(facts["other_file"], target)
    os.unlink(target)
    return True


def listen(facts):
    """Whether somebody on the host reaches what is listened at here: the host tries while this waits."""
    with socket.create_server(("0.0.0.0", facts["listen_port"])) as server:
        server.settimeout(3)
        print("listening", flush=True)
        server.accept()
        return True


def ways(facts):
    for number, secret in enumerate(facts["secrets"]):
        yield f"read secret {number + 1} ({os.path.basename(secret)})", lambda secret=secret: read(secret)
    yield "read password hashes", lambda: read("/etc/shadow")
    yield "read another file of /etc", lambda: read("/etc/bash.bashrc")
    yield "read another project", lambda: read(facts["other_file"])
    yield "list the home directory", lambda: bool(os.listdir(facts["home"]))
    yield "read a process's environment", lambda: read(f"/proc/{facts['process']}/environ")
    yield "write into another project", lambda: write(facts["other_file"] + ".new")
    yield "write into the system", lambda: write("/usr/lib/colibri-canary")
    yield "write into its own program", lambda: write(os.path.join(facts["program"], "colibri-canary"))
    yield "write a start-up file of the home", lambda: write(os.path.join(facts["home"], ".profile"))
    yield "write where others read", lambda: write(facts["elsewhere"])
    yield "connect to a service on loopback", lambda: connect(socket.AF_INET, ("127.0.0.1", facts["loopback_port"]))
    yield "connect to an address", lambda: connect(socket.AF_INET, (facts["address"], facts["address_port"]))
    yield "send by UDP", lambda: connect(socket.AF_INET, (facts["address"], facts["udp_port"]), socket.SOCK_DGRAM)
    yield "connect to a socket of the host", lambda: connect(socket.AF_UNIX, facts["socket"])
    yield "signal a process of the host", lambda: os.kill(facts["process"], 0) is None
    yield "open a device of the kernel", lambda: os.open("/dev/mem", os.O_RDONLY) >= 0
    yield "follow a link of its own", lambda: through_link(facts)
    yield "link a file of elsewhere", lambda: hard_link(facts)
    yield "start a shell", lambda: subprocess.run(["/bin/sh", "-c", "true"], check=True) is not None
    yield "listen for others", lambda: listen(facts)


def main():
    facts = json.loads(sys.argv[1])
    for name, way in ways(facts):
        try:
            is_open = way()
        except (OSError, subprocess.SubprocessError):
            is_open = False
        print("open" if is_open else "closed", name, flush=True)


if __name__ == "__main__":
    main()
