"""The one retry of legs that depend on other people's programs.

A leg that is in LISTED may stumble: it is made once more, which is printed. A leg that is not listed fails at its first
fault, and one that stumbled in two of the last three runs fails, too. The outcomes of these runs are kept beside what
tests/interop/install.sh installs, so they hold for one machine.
"""

import json
import os
import pathlib

# The leg, as its run prints it, and why it may stumble.
LISTED = {
    "scripts: codex": "Codex 0.169 now and then ends its turn before the script's answer is there when the machine is busy",
    "interop: ev-sse, progress": "one of four notifications of server-everything by SSE was missing once, on a busy machine",
    "interop: ev-http, progress": "the same over HTTP, once, beside the tests of root; four runs of the pair alone had all four",
}
RUNS = 3


def history_file():
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    directory = os.environ.get("COLIBRI_INTEROP_DIR") or pathlib.Path(cache) / "colibri-interop"
    return pathlib.Path(directory) / "stumbles.json"


def note_outcome(name, stumbled):
    """Keeps the outcome of this run of a leg. Returns in how many of the last runs the leg stumbled."""
    path = history_file()
    history = json.loads(path.read_text()) if path.exists() else {}
    history[name] = [*history.get(name, []), stumbled][-RUNS:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(history, indent=1))
    return sum(history[name])


def attempt(name, leg):
    """What `leg` returns, at the second attempt if it is listed and stumbled."""
    if name not in LISTED:
        return leg()
    try:
        outcome, stumbled = leg(), False
    except Exception as error:
        print(f"{name}: once more ({LISTED[name]}): {error}", flush=True)
        outcome, stumbled = leg(), True
    count = note_outcome(name, stumbled)
    if count > 1:
        raise AssertionError(f"{name} stumbled in {count} of the last {RUNS} runs")
    return outcome
