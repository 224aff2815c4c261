"""Prints a CycloneDX 1.6 list of what the programs are built of: linked, and run at the build.

usage: sbom.py VERSION TARGET
"""

import datetime
import json
import os
import subprocess
import sys
import tomllib
import uuid

version, target = sys.argv[1:]
PROGRAMS = ["colibri-mcpd", "colibri-mcp", "chibi-mcp-bridge", "colibri-script", "colibri-jail-helper"]

command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
metadata = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
with open("Cargo.lock", "rb") as file:
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.load(file)["package"]}


def needed(identity):
    """What a package needs but for its tests."""
    for dependency in nodes[identity]["deps"]:
        if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"]):
            yield dependency["pkg"]


todo = [identity for identity in metadata["workspace_members"] if packages[identity]["name"] in PROGRAMS]
programs, seen = list(todo), set(todo)
while todo:
    for identity in needed(todo.pop()):
        if identity not in seen:
            seen.add(identity)
            todo.append(identity)


def reference(identity):
    package = packages[identity]
    return f"pkg:cargo/{package['name']}@{package['version'].replace('+', '%2B')}"


def component(identity):
    package = packages[identity]
    entry = {
        "type": "application" if identity in programs else "library",
        "bom-ref": reference(identity),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(identity),
    }
    if package["license"]:
        # Older manifests write a slash for OR.
        entry["licenses"] = [{"expression": package["license"].replace("/", " OR ").replace("  ", " ")}]
    checksum = checksums[package["name"], package["version"]]
    if checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return entry


order = sorted(seen, key=reference)
time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
components = [component(identity) for identity in order]
whole = {
    "type": "application", "bom-ref": "colibri-mcp", "name": "colibri-mcp", "version": version,
    "licenses": [{"expression": "BSD-2-Clause"}],
}  # fmt: skip
bom = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"colibri-mcp {version} {json.dumps(components)}").urn,
    "version": 1,
    "metadata": {
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "component": whole,
        "properties": [{"name": "target", "value": target}],
    },
    "components": components,
    "dependencies": [{"ref": "colibri-mcp", "dependsOn": sorted(map(reference, programs))}]
    + [{"ref": reference(identity), "dependsOn": sorted(set(map(reference, needed(identity))))} for identity in order],
}
json.dump(bom, sys.stdout, indent=1, sort_keys=False)
print()
