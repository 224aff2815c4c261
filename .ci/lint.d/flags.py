"""Compares the flags and commands that --help shows with those that the manual pages describe. Both ways."""

import pathlib
import re
import subprocess
import sys

MAN = pathlib.Path("docs/man")
COMMON = {"help", "version"}


def help_text(*command):
    return subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout


def flags_of(text):
    return set(re.findall(r"^\s+(?:-\w, )?--([a-z][a-z-]*)", text, re.M))


# Commands that programs start, or few people need, which the help does not show and the pages describe all the same.
HIDDEN = {"ssh-gate", "door", "integration", "script", "record", "replay", "otlp", "completions", "learn"}


def commands_of(text):
    """The commands of a help text, whose groups of them end where the options begin."""
    groups = text.split("\nOptions:", 1)[0].split("Usage:", 1)[-1]
    return set(re.findall(r"^  ([a-z][a-z-]*)  ", groups, re.M))


def subcommands(program, path=()):
    """Every command and command of a command, with its help."""
    text = help_text(program, *path)
    yield path, text
    hidden = HIDDEN if program.endswith("/colibri-mcp") and not path else set()
    for name in sorted((commands_of(text) | hidden) - {"help"}):
        yield from subcommands(program, (*path, name))


def described(page, program):
    """The flags that a page has an item for, and all words that it marks as commands."""
    source = (MAN / page).read_text()
    flags = set()
    for line in re.findall(r"^\.(?:It|Op|Nm)?\s*Fl (.*)$|^\.It .*\bFl (.*)$", source, re.M):
        flags.update(re.findall(r"(?:^|\s)-([a-z][a-z-]*)", " ".join(line)))
    for line in re.findall(r"^\.It .*", source, re.M):
        flags.update(re.findall(r"\bFl -([a-z][a-z-]*)", line))
    commands = set(re.findall(r"^\.(?:It )?Cm ([a-z][a-z-]*)", source, re.M))
    return flags, commands


def main():
    binaries = pathlib.Path(sys.argv[1])
    problems = []
    for name, page in (("colibri-mcpd", "colibri-mcpd.8"), ("colibri-mcp", "colibri-mcp.1"),
                       ("chibi-mcp-bridge", "chibi-mcp-bridge.1")):
        flags, commands = described(page, name)
        real_flags, real_commands = set(COMMON), {"help"}
        for path, text in subcommands(str(binaries / name)):
            real_flags |= flags_of(text)
            real_commands |= set(path)
        problems += [f"{page} does not describe --{flag}" for flag in sorted(real_flags - flags)]
        problems += [f"{page} describes --{flag}, which {name} does not know" for flag in sorted(flags - real_flags)]
        if name == "colibri-mcp":
            problems += [f"{page} does not describe the command {word}" for word in sorted(real_commands - commands)]
            items = set(re.findall(r"^\.It Cm ([a-z][a-z-]*)", (MAN / page).read_text(), re.M))
            problems += [f"{page} describes {word}, which is no command" for word in sorted(items - real_commands)]
    # The helper prints no help to be read: its forms are one constant.
    source = pathlib.Path("colibri-jail-helper/src/request.rs").read_text()
    usage = re.search(r'USAGE: &str = "(.*?)";', source, re.S).group(1)
    flags, commands = described("colibri-jail-helper.8", "colibri-jail-helper")
    real_flags = set(re.findall(r"--([a-z]+)", usage))
    real_commands = {form.split()[0] for form in re.sub(r"\\\n\s*", "", usage).split(" | ") if not form.startswith("--")}
    if flags != real_flags:
        problems.append(f"colibri-jail-helper.8 has the flags {sorted(flags)}, the helper {sorted(real_flags)}")
    if not real_commands <= commands:
        problems.append(f"colibri-jail-helper.8 lacks {sorted(real_commands - commands)}")
    # The keys of the two files, from the readers.
    keys = []
    for file, constant in (("entry", "ENTRY_KEYS"), ("jail", "JAIL_KEYS"), ("agent", "AGENT_KEYS"), ("ssh", "SSH_KEYS")):
        registry = pathlib.Path(f"crates/colibri-registry/src/{file}.rs").read_text()
        keys += re.findall(r'"([a-z_0-9]+)"', re.search(rf"{constant}: .*?\];", registry, re.S).group(0))
    for file in ("oauth_key", "model"):
        reader = pathlib.Path(f"colibri-mcpd/src/registry/{file}.rs").read_text()
        keys += re.findall(r'"([a-z_]+)"', re.search(r"const KEYS: .*?\];", reader, re.S).group(0))
    problems += missing_keys("external-mcp.json.5", keys)
    policy = pathlib.Path("colibri-jail-helper/src/policy.rs").read_text()
    found = re.search(r"root\.object\(&\[(.*?)\]\)", policy, re.S).group(1)
    problems += missing_keys("jail-policy.json.5", re.findall(r'"([a-z_]+)"', found))
    pages = {"clients.json.5": ["clients", "rule_scope", "limits"], "colibri-contract.5": ["contract", "answer_contract"]}
    for page, files in pages.items():
        sources = [pathlib.Path(f"crates/colibri-policy/src/{file}.rs").read_text() for file in files]
        text = "".join(source.split("#[cfg(test)]")[0] for source in sources)
        found = re.findall(r"(?:KEYS|TERM): [^=]*= &?\[(.*?)\];|(?:root\(\)|value)\s*\.object\(&\[(.*?)\]\)", text, re.S)
        problems += missing_keys(page, re.findall(r'"([a-z_]+)"', " ".join(one + other for one, other in found)))
    hosts = pathlib.Path("crates/colibri-policy/src/hosts.rs").read_text().split("#[cfg(test)]")[0]
    found = re.findall(r'HOST_KEYS: [^=]*= &\[(.*?)\];|object\(&\[(.*?)\]\)', hosts, re.S)
    problems += missing_keys("hosts.json.5", re.findall(r'"([a-z_]+)"', " ".join(one + other for one, other in found)))
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


def missing_keys(page, keys):
    source = (MAN / page).read_text()
    items = set()
    for line in re.findall(r"^\.It Va (.*)$", source, re.M):
        items.update(word.strip(",") for word in line.split())
    problems = [f"{page} does not describe the key {key}" for key in keys if key not in items]
    return problems + [f"{page} describes {item}, which is no key" for item in sorted(items - {",", ""} - set(keys))]


main()
