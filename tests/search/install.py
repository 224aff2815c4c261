#!/usr/bin/env python3
"""Installs the servers of servers.json and prints the directory where they are.

It lies outside the repository and is kept between runs, under a hash of servers.json: another version is another
directory. Each server has a directory of its own; what it depends on is nothing newer than the file's `newest`.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE_S = 900


def directory():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    root = pathlib.Path(os.environ.get("COLIBRI_SEARCH_DIR") or pathlib.Path(cache) / "colibri-search")
    return root / hashlib.sha256((HERE / "servers.json").read_bytes()).hexdigest()[:16]


def program(where, name, server):
    """The installed program of a server."""
    return where / name / ("bin" if "pypi" in server else "node_modules/.bin") / server["program"]


def run(where, *words):
    done = subprocess.run(words, cwd=where, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=PATIENCE_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stdout[-2000:]}")


def install(where, pip, newest, name, server):
    if "pypi" in server:
        run(where, sys.executable, "-m", "venv", "--without-pip", name)
        run(where, pip, "--python", f"{name}/bin/python", "install", "--quiet", "--disable-pip-version-check",
            "--only-binary", ":all:", "--uploaded-prior-to", newest, server["pypi"])
    else:
        (where / name).mkdir()
        (where / name / "package.json").write_text('{"private": true}')
        # --ignore-scripts: nothing that is installed runs before it is called.
        run(where / name, "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error",
            f"--before={newest}", server["npm"])
    if not program(where, name, server).exists():
        raise RuntimeError(f"{name}: no program {program(where, name, server)}")


def main():
    wanted = json.loads((HERE / "servers.json").read_text())
    where = directory()
    if not (where / "complete").exists():
        shutil.rmtree(where, ignore_errors=True)
        where.mkdir(parents=True)
        # A pip that knows --uploaded-prior-to.
        run(where, sys.executable, "-m", "venv", "pip")
        pip = where / "pip/bin/pip"
        run(where, pip, "install", "--quiet", "--disable-pip-version-check", f"pip=={wanted['pip']}")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = [pool.submit(install, where, pip, wanted["newest"], *one) for one in wanted["servers"].items()]
            for one in runs:
                one.result()
        (where / "complete").touch()
    print(where)


if __name__ == "__main__":
    main()
