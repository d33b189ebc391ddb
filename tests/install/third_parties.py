"""Tests the third-party licences that come with the programs: each component of a bill of materials must have its licence
there."""

import gzip
import io
import json
import os
import pathlib
import re
import shutil
import tarfile
import tempfile

from scenes import CHECKOUT, OWN, program_for, ran

LICENSES = "third-party-licenses.txt"
# The licence file's headings for components that cargo does not know.
OF_THE_SYSTEM = {"aws-lc": "AWS-LC (", "rust-std": "Rust's standard library (rust-std ", "libgcc": "Runtime library of GCC (libgcc)"} | {
    name: "GNU C Library (glibc)" for name in ["glibc", "libc6-dev", "libc6-dev-amd64-cross", "libc6-dev-arm64-cross"]
}
# Words that the text of each licence contains.
WORDS = {
    "Apache-2.0": "2. Grant of Copyright License. Subject to the terms",
    "BSD-2-Clause": "Redistributions in binary form must reproduce",
    "BSD-3-Clause": "Redistributions in binary form must reproduce",
    "GPL-3.0-or-later WITH GCC-exception-3.1": "GCC RUNTIME LIBRARY EXCEPTION Version 3.1",
    "ISC": "Permission to use, copy, modify, and",
    "LGPL-2.1-or-later": "GNU LESSER GENERAL PUBLIC LICENSE Version 2.1",
    "MIT": "to deal in the Software without restriction",
    "Unicode-3.0": "UNICODE LICENSE V3",
    "Zlib": "The origin of this software must not be misrepresented",
}


def listed_in(text):
    """Returns for each item of the list, in order: its name, its chosen licences, and the numbers of its texts."""
    listed = re.findall(r"^\* (.+?): (.+?)((?: \[\d+\])+)$", text, re.MULTILINE)
    return [(item, licences.split(", under ")[-1].split(" AND "), re.findall(r"\d+", numbers)) for item, licences, numbers in listed]


def unlicensed_in(bill, text):
    """Returns in words which components of a bill do not have the text of their licence in the file."""
    parts = re.split(r"^-{100}\n\[(\d+)\] of .*\n-{100}\n", text, flags=re.MULTILINE)
    texts = dict(zip(parts[1::2], (" ".join(part.split()).replace("// ", "") for part in parts[2::2])))
    listed = listed_in(parts[0])
    wrong = []
    for component in bill["components"]:
        name, version, purl = component["name"], component["version"], component["purl"]
        if purl.startswith("pkg:github/kops-agent/"):
            continue
        mine = [(taken, numbers) for item, taken, numbers in listed if item == f"{name} {version}" or (name in OF_THE_SYSTEM and item.startswith(OF_THE_SYSTEM[name]))]
        if len(mine) != 1:
            wrong.append(f"{name} {version} is there {len(mine)} times")
            continue
        taken, numbers = mine[0]
        own = " ".join(texts.get(number, "") for number in numbers)
        (declared,) = [licence.get("expression") or licence["license"]["id"] for licence in component["licenses"]]
        wrong += [f"{name} {version} has {licence}, which it does not declare" for licence in taken if licence not in declared and name != "rust-std"]
        wrong += [f"{name} {version} has no text of {licence}" for licence in taken if WORDS[licence].lower() not in own.lower()]
    return wrong


def labels_in(text):
    """Returns the SPDX expressions of the program and of the image in the file."""
    return dict(re.findall(r"^(Program|Image): (.+)$", text, re.MULTILINE))


def labels_name_what_is_taken(text):
    """Checks that the labels have each licence that the list chooses, this project's own, and no other."""
    taken = {"Program": {"Apache-2.0"}, "Image": {"Apache-2.0"}}
    for item, licences, _ in listed_in(text):
        for label in ["Image"] if "in the image alone" in item else taken:
            taken[label].update(licences)
    assert {label: set(expression.split(" AND ")) for label, expression in labels_in(text).items()} == taken


def home_of_cargo(folder):
    """Makes a home of cargo at another path, with links to the content of this machine's home of cargo. Returns its folder of sources,
    in which each crate is a link."""
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    sources = folder / "registry/src"
    sources.mkdir(parents=True)
    for name in ["config.toml", "registry/index", "registry/cache"]:
        if (home / name).exists():
            (folder / name).symlink_to(home / name)
    for registry in (home / "registry/src").iterdir():
        (sources / registry.name).mkdir()
        for crate in registry.iterdir():
            (sources / registry.name / crate.name).symlink_to(crate)
    return sources


def each_component_has_its_licence_beside_it(programs):
    """Each component of a bill has its licence, and a missing licence is named. The same commit makes the same file in any
    place."""
    make = "packaging/third-party-licenses"
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        ran(CHECKOUT / make, "--out", folder / "one")
        text = (folder / "one").read_text()
        ran("git", "clone", "--quiet", CHECKOUT, folder / "another-place")
        ran("cp", "-a", CHECKOUT / "packaging", folder / "another-place")
        sources = home_of_cargo(folder / "cargo")
        environment = os.environ | {"CARGO_HOME": str(folder / "cargo"), "LC_ALL": "C", "PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo"}
        environment.pop("CARGO_TARGET_DIR", None)
        ran(folder / "another-place" / make, "--out", folder / "two", env=environment)
        assert text == (folder / "two").read_text(), "the same commit makes the same bytes"
        for place in [CHECKOUT, os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"), pathlib.Path.home()]:
            assert f"{place}/" not in text, place
        labels_name_what_is_taken(text)
        for architecture, program in programs.items():
            ran(CHECKOUT / "packaging/sbom", "--architecture", architecture, "--program", program, "--out", folder / "bill")
            bill = json.loads((folder / "bill").read_text())
            assert unlicensed_in(bill, text) == [], unlicensed_in(bill, text)
            # Self-test: finds a missing component, and a component with the licence text of another component.
            (number,) = re.findall(r"^\* subtle .+ \[(\d+)\]$", text, re.MULTILINE)
            assert unlicensed_in(bill, re.sub(r"^\* subtle .+\n", "", text, flags=re.MULTILINE)) != []
            assert unlicensed_in(bill, re.sub(rf"^\[{number}\] of ", "[0] of ", text, flags=re.MULTILINE)) != []
        # If a licence names its authors, each crate needs its own text of the licence. A missing text is an error, and
        # the message names the crate.
        (subtle,) = sources.glob("*/subtle-2*")
        real = os.readlink(subtle)
        subtle.unlink()
        shutil.copytree(real, subtle, ignore=shutil.ignore_patterns("LICENSE*"))
        said = ran(CHECKOUT / make, "--out", folder / "x", env=environment, fails=1)
        assert re.search(r"subtle 2\.\S+ has no text of BSD-3-Clause", said) and not (folder / "x").exists(), said
        # The image contains the licence file even if packaging/image is called without --licenses.
        (folder / "program").write_bytes(program_for(OWN))
        (folder / "bundle").write_text("-----BEGIN CERTIFICATE-----\n")
        ran(CHECKOUT / "packaging/image", "--out", folder / "image.tar", "--program", f"{OWN}={folder}/program", "--ca-bundle", folder / "bundle")
        assert licenses_of_image(folder / "image.tar") == [text.encode()]
        (folder / "none").write_text("Apache License\n")
        said = ran(CHECKOUT / "packaging/image", "--out", folder / "x", "--program", f"{OWN}={folder}/program", "--ca-bundle", folder / "bundle", "--licenses", folder / "none", fails=1)
        assert "has no line `Image: …`" in said and not (folder / "x").exists(), said


def licenses_of_image(image):
    """Returns the file of licences of each architecture in an image."""
    found = []
    with tarfile.open(image) as layout:
        for layer in [content for member in layout if (content := layout.extractfile(member).read()).startswith(b"\x1f\x8b")]:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer))) as files:
                found.append(files.extractfile(f"usr/share/doc/kops-agent/{LICENSES}").read())
    return found
