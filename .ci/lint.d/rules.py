"""Rules of order and spelling for the port's Makefile (Porter's Handbook, chapter 15) and rc scripts (rc.subr(8))."""

import os
import pathlib
import re
import sys

# The order of the handbook, blocks separated by None. A variable that is not here is a spelling error, or belongs here.
ORDER = [
    "PORTNAME", "PORTVERSION", "DISTVERSION", "PORTREVISION", "PORTEPOCH", "CATEGORIES", "MASTER_SITES", None,
    "MAINTAINER", "COMMENT", "WWW", None,
    "LICENSE", "LICENSE_FILE", None,
    "BUILD_DEPENDS", "LIB_DEPENDS", "RUN_DEPENDS", "TEST_DEPENDS", None,
    "USES", "USE_RC_SUBR", None,
    "CARGO_FEATURES", "CARGO_INSTALL_PATH", "CARGO_TEST", "CARGO_ENV", None,
    "USERS", "GROUPS", None,
    "SUB_FILES", "SUB_LIST", None,
    "DOCSDIR", "ETCDIR", "EXAMPLESDIR", "PORTDOCS", "PORTEXAMPLES", None,
    "OPTIONS_DEFINE", "OPTIONS_DEFAULT",
]  # fmt: skip

problems = []


def makefile():
    path = "port/Makefile"
    last, block, gap = -1, None, False
    blocks = {}
    for index, name in enumerate(ORDER):
        if name is not None:
            blocks[name] = ORDER[:index].count(None)
    text = pathlib.Path(path).read_text()
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}"
        if line != line.rstrip():
            problems.append(f"{where}: white space at the end")
        if line.startswith(".if") or line.startswith("post-install"):
            break
        match = re.match(r"([A-Z_]+)=(\t*)(.*)", line)
        if match is None:
            gap = gap or not line
            continue
        name = match.group(1)
        if name not in blocks:
            problems.append(f"{where}: {name} is no variable that this port needs; misspelled?")
            continue
        position = ORDER.index(name)
        if position < last:
            problems.append(f"{where}: {name} stands after {ORDER[last]}; the handbook has it before")
        if block is not None and (blocks[name] != block) != gap:
            problems.append(f"{where}: an empty line stands between blocks, and nowhere else")
        if match.group(3) and not match.group(2):
            problems.append(f"{where}: a tab stands between {name}= and its value")
        last, block, gap = position, blocks[name], False
    comment = re.search(r"^COMMENT=\t(.*)$", text, re.M).group(1)
    if len(comment) > 70 or comment.endswith(".") or re.match(r"(A|An|The) ", comment):
        problems.append(f"{path}: COMMENT has at most 70 characters, no article before and no full stop behind")
    version = re.search(r'^version = "(.*)"$', pathlib.Path("Cargo.toml").read_text(), re.M).group(1)
    if f"DISTVERSION=\t{version}\n" not in text:
        problems.append(f"{path}: DISTVERSION is not {version}, as Cargo.toml has it")
    if not text.endswith("\n.include <bsd.port.mk>\n"):
        problems.append(f"{path}: ends with .include <bsd.port.mk>")
    for number, line in enumerate(pathlib.Path("port/pkg-descr").read_text().splitlines(), 1):
        if len(line) > 80:
            problems.append(f"port/pkg-descr:{number}: longer than 80 characters")


def rc_script(path):
    name = path.name.removesuffix(".in")
    text = path.read_text()
    if not os.access(path, os.X_OK):
        problems.append(f"{path}: not executable")
    marks = ["#!/bin/sh\n", f"# PROVIDE: {name}\n", "# REQUIRE: ", "# KEYWORD: shutdown\n", "\n. /etc/rc.subr\n",
             f'\nname="{name}"\n', "\ndesc=", f'\nrcvar="{name}_enable"\n', "\nload_rc_config $name\n",
             '\nrun_rc_command "$1"\n']  # fmt: skip
    at = 0
    for mark in marks:
        found = text.find(mark, max(at - 1, 0))
        if found < 0:
            problems.append(f"{path}: {mark.strip()!r} is missing, or not in its place")
            continue
        at = found + len(mark)
    if at != len(text):
        problems.append(f"{path}: something follows run_rc_command")
    defaults = dict(re.findall(rf'^: \$\{{({name}_\w+):="(.*)"\}}$', text, re.M))
    described = dict(re.findall(rf'^# ({name}_\w+)="(.*?)"', text, re.M))
    # rc.subr(8) reads these two itself, wherever they are set.
    for variable in sorted(set(defaults) ^ set(described)):
        if variable != f"{name}_svcj":
            problems.append(f"{path}: {variable} has a default and no description, or the reverse")
    for variable in sorted(set(defaults) & set(described)):
        if defaults[variable] != described[variable]:
            problems.append(f"{path}: {variable} is described with another default than it has")
    for variable in set(re.findall(rf"\$\{{?({name}_\w+)", text)) - set(defaults):
        problems.append(f"{path}: {variable} is used and has no default")
    for function in re.findall(r"^(\w+)\(\)", text, re.M):
        if not function.startswith(f"{name}_"):
            problems.append(f"{path}: {function}() could be another script's; call it {name}_{function}")
    commands = re.search(r'^extra_commands="(.*)"$', text, re.M).group(1).split()
    for command in commands:
        if f'\n{command}_cmd="{name}_{command}"\n' not in text:
            problems.append(f"{path}: {command}_cmd is missing")
        if not re.search(rf"^# {command} ", text, re.M):
            problems.append(f"{path}: {command} is not described")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("  ") or line != line.rstrip():
            problems.append(f"{path}:{number}: indented with blanks, or white space at the end")
        if len(line.expandtabs()) > 120:
            problems.append(f"{path}:{number}: longer than 120 characters")


def files():
    """Each of files/ is made by the port, by a name that stands in its Makefile, and names no path of one prefix."""
    text = pathlib.Path("port/Makefile").read_text()
    named = {}
    for variable in ("USE_RC_SUBR", "SUB_FILES"):
        named[variable] = set(re.search(rf"^{variable}=\t+(.*)$", text, re.M).group(1).split())
    there = {path.name for path in pathlib.Path("port/files").iterdir()}
    wanted = {f"{name}.in" for names in named.values() for name in names}
    problems.extend(f"port/files/{name}: not in USE_RC_SUBR or SUB_FILES, or not there" for name in there ^ wanted)
    for name in there & wanted:
        for number, line in enumerate(pathlib.Path("port/files", name).read_text().splitlines(), 1):
            if "/usr/local" in line:
                problems.append(f"port/files/{name}:{number}: %%PREFIX%% or %%ETCDIR%%, not /usr/local")
    for name in named["USE_RC_SUBR"]:
        rc_script(pathlib.Path("port/files", f"{name}.in"))


makefile()
files()
print("\n".join(problems))
sys.exit(1 if problems else 0)
