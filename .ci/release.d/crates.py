"""Copies the crates of Cargo.lock, as cargo fetched them and with the right hash, into a directory.

usage: crates.py DIRECTORY
"""

import hashlib
import importlib.machinery
import importlib.util
import pathlib
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("update_crates", "port/update-crates")
port = importlib.util.module_from_spec(importlib.util.spec_from_loader("update_crates", loader))
loader.exec_module(port)

directory = pathlib.Path(sys.argv[1])
directory.mkdir(parents=True)
subprocess.run(["cargo", "fetch", "--locked", "--quiet"], check=True)
files = port.cached()
for name, version, checksum in port.crates():
    crate = f"{name}-{version}.crate"
    if hashlib.sha256(files[crate].read_bytes()).hexdigest() != checksum:
        sys.exit(f"crates.py: {files[crate]} is not what Cargo.lock means")
    shutil.copyfile(files[crate], directory / crate)
