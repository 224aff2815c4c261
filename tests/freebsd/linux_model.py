"""The scripted model of tests/agents for a guest: has an agent take its task, call a tool, and finish.

usage: linux_model.py DIR

DIR gets `port`, where it listens on loopback, and `seen`, once the task is finished: the word that the tool answered
with, the keys that came, and what the agent passed on of that answer. model.py of tests/agents lies beside this file.
"""

import json
import pathlib
import re
import sys
import threading

from model import Model

WORD = "echoed-word"
directory = pathlib.Path(sys.argv[1])


def finish():
    said = json.dumps(model.results[0])
    task, claim = (int(re.search(rf'\\*"{key}\\*":\s*(\d+)', said)[1]) for key in ("id", "claim"))
    came = WORD if WORD in json.dumps(model.results[1]) else "nothing"
    (directory / "seen").write_text(f"{came} {' '.join(sorted(set(model.keys)))}\n{json.dumps(model.results[1])}\n")
    return {"task": task, "claim": claim, "result": f"the echo said {came}"}


model = Model([("colibri_next_task", {}), ("two__echo", {"text": WORD}), ("colibri_finish_task", finish)])
(directory / "port.new").write_text(f"{model.server_address[1]}\n")
(directory / "port.new").rename(directory / "port")
threading.Event().wait()
