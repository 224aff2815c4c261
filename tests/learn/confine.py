"""Runs a command in what a proposal leaves, with the means of Linux: `python3 confine.py PARTS COMMAND...`, as root.

PARTS is a JSON object: `parts` of the proposal, `directory`, `network`, and perhaps `env`. The command gets a root of the parts alone,
/tmp and the few devices of a jail of its own, no process of the host, no network where no address is proposed, and no
capability. It stands in for the FreeBSD jail of the same parts; a jail also bounds the number of processes.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile


def run(*words):
    subprocess.run([str(word) for word in words], check=True)


def show(root, path, write):
    at = root / path.relative_to("/")
    if path.is_dir():
        at.mkdir(parents=True, exist_ok=True)
    else:
        at.parent.mkdir(parents=True, exist_ok=True)
        at.touch()
    run("mount", "--bind", path, at)
    run("mount", "-o", "remount,bind,nosuid,nodev" + ("" if write else ",ro"), at)


def inside(facts, command):
    root = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "tmpfs", "none", root)
    # The outer one of two comes first.
    shown = [(pathlib.Path(part["value"]), part["kind"]) for part in facts["parts"]
             if part["kind"] in ("root", "mount", "writable-mount")]
    for path, kind in sorted(shown):
        show(root, path, kind == "writable-mount")
    for name in ("bin", "lib", "lib64", "sbin"):
        if (pathlib.Path("/") / name).is_symlink() and not (root / name).exists():
            (root / name).symlink_to(os.readlink(f"/{name}"))
    for name in ("tmp", "dev", "proc"):
        (root / name).mkdir(exist_ok=True)
    run("mount", "-t", "tmpfs", "none", root / "tmp")
    run("mount", "-t", "proc", "none", root / "proc")
    for name in ("null", "zero", "full", "random", "urandom"):
        (root / "dev" / name).touch()
        run("mount", "--bind", f"/dev/{name}", root / "dev" / name)
    (root / "dev/fd").symlink_to("/proc/self/fd")
    pathlib.Path(root / facts["directory"].lstrip("/")).mkdir(parents=True, exist_ok=True)
    run("mount", "-o", "remount,ro", root)
    os.chroot(root)
    os.chdir(facts["directory"])
    # The base system's setpriv(1), which /usr has: uid 0 owns the files that are shown, and may nothing else.
    os.execv("/usr/bin/setpriv", ["setpriv", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "--", *command])


def main():
    if sys.argv[1] == "--inside":
        inside(json.loads(sys.argv[2]), sys.argv[3:])
    facts = json.loads(sys.argv[1])
    flags = ["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child"] + ([] if facts["network"] else ["--net"])
    words = ["unshare", *flags, "--", "/usr/bin/python3", __file__, "--inside", sys.argv[1], *sys.argv[2:]]
    os.execvpe("unshare", words, {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp", "LANG": "C.UTF-8",
                                  **facts.get("env", {})})


if __name__ == "__main__":
    main()
