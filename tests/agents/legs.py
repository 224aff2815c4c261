"""The command line of the runs with real agents, and their legs, one after the other."""

import argparse
import pathlib
import sys
import time
import traceback

from home import Wrong
from retries import attempt

ROOT = pathlib.Path(__file__).resolve().parents[2]


def command_line(doc, names):
    """The arguments: the directories of programs and agents, and some of these names, or all of them."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "target/release")
    parser.add_argument("--agents", type=pathlib.Path, default=ROOT / "target/agents")
    parser.add_argument("agent", nargs="*", choices=[[], *names], help="which; all of them without one")
    arguments = parser.parse_args()
    arguments.bin, arguments.agents = arguments.bin.resolve(), arguments.agents.resolve()
    arguments.agent = arguments.agent or list(names)
    return arguments


def run_legs(legs):
    """Runs each of these functions and prints what it says; ends the program, with 1 if one failed."""
    failed = 0
    run = pathlib.Path(sys.argv[0]).stem
    for name, leg in legs.items():
        before = time.monotonic()
        try:
            print(f"{name}: {attempt(f'{run}: {name}', leg)}; {time.monotonic() - before:.1f} s", flush=True)
        except Exception as error:
            failed += 1
            print(f"{name}: FAILED: {error if isinstance(error, Wrong) else traceback.format_exc()}", flush=True)
    sys.exit(1 if failed else 0)
