"""Lists what cargo links into the program, for packaging/sbom and packaging/third-party-licenses."""

import json
import pathlib
import re
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/kops-agent/kops-agent"


def fail(what):
    sys.exit(f"packaging/{pathlib.Path(sys.argv[0]).name}: {what}")


def said_by(*command):
    """Runs a command at the top of the checkout, and returns its output."""
    try:
        ended = subprocess.run([str(part) for part in command], cwd=CHECKOUT, capture_output=True, text=True)
    except FileNotFoundError:
        fail(f"{command[0]} is not in PATH, and lists what is linked: packaging/build installs Rust into ${{KOPS_AGENT_CACHE:-~/.cache/kops-agent}}/rust")
    if ended.returncode != 0:
        fail(f"{' '.join(map(str, command))}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def crates_linked(target):
    """Returns the crates that cargo links for a target, as (name, version), each with its dependencies. The first one is the
    program's own crate."""
    tree = said_by(
        *("cargo", "tree", "--locked", "--package", "kops-agent", "--target", target),
        *("--edges", "normal,no-proc-macro", "--prefix", "depth", "--format", "{p}"),
    )
    needs, above = {}, []
    for line in tree.splitlines():
        depth, name, version = re.match(r"(\d+)(\S+) v(\S+)", line).groups()
        crate = (name, version)
        needs.setdefault(crate, set())
        del above[int(depth) :]
        if above:
            needs[above[-1]].add(crate)
        above.append(crate)
    return needs


def packages_for(target):
    """Returns cargo's metadata of each package that may be linked for a target, by (name, version)."""
    metadata = json.loads(said_by("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target))
    return {(package["name"], package["version"]): package for package in metadata["packages"]}


def expression_of(package):
    """Returns the package's licence as an SPDX expression. Older crates write a slash instead of OR."""
    if not package["license"]:
        fail(f"{package['name']} {package['version']} does not say its licence")
    return re.sub(r"\s*/\s*", " OR ", package["license"])
