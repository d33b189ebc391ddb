"""Tests the signature of a release's SHA256SUMS: by packaging/release, by release.yml, and by the commands of docs/install/release.md."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import yaml

from scenes import CHECKOUT, OWN, program_for, ran, RELEASE


def block_with(page, part):
    """Returns the page's only block of shell that contains `part`."""
    (block,) = [block for block in re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if part in block]
    return block


def signed_by_the_workflow(folder, key):
    """Runs the step of release.yml that signs, as GitHub runs it (`bash -e`). Returns its exit code and its output."""
    jobs = yaml.safe_load((CHECKOUT / ".github/workflows/release.yml").read_text())["jobs"]
    (step,) = [step for step in jobs["publish"]["steps"] if step.get("name") == "the sums are signed"]
    assert step["env"] == {"SIGNING_KEY": "${{ secrets.SIGNING_KEY }}"}
    ended = subprocess.run(["bash", "-ec", step["run"]], cwd=folder, env=os.environ | {"SIGNING_KEY": key}, capture_output=True, text=True)
    return ended.returncode, ended.stdout + ended.stderr


def a_signature_is_of_the_sums_alone():
    """The page's commands make a key and verify what packaging/release and the workflow sign. Changed sums and other keys are refused."""
    page = (CHECKOUT / "docs/install/release.md").read_text()
    verify = block_with(page, "-verify kops-agent.pub")
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        shell = lambda script, at, **kwargs: ran("bash", "-euo", "pipefail", "-c", script, cwd=at, **kwargs)
        for name in ["ours", "others"]:
            (folder / name).mkdir()
            shell(block_with(page, "genpkey"), folder / name)
        key, public = folder / "ours/kops-agent.key", folder / "ours/kops-agent.pub"
        secret = key.read_text().splitlines()[1]
        assert key.stat().st_mode & 0o077 == 0
        (folder / "program").write_bytes(program_for(OWN))
        make = [RELEASE, "--kops-version", "none", "--program", f"{OWN}={folder}/program", "--out"]
        said = ran(*make, folder / "plain")
        assert f"{folder}/plain is not signed" in said and not (folder / "plain/SHA256SUMS.sig").exists(), said
        made = subprocess.run([*map(str, make), folder / "signed", "--sign-sums", key], capture_output=True, text=True, check=True)
        assert "SHA256SUMS.sig is the signature" in made.stdout and secret not in made.stdout + made.stderr, made
        ran("diff", "-r", "--exclude", "SHA256SUMS.sig", folder / "plain", folder / "signed")
        assert "SHA256SUMS.sig was not verified" in ran(RELEASE, "check", folder / "signed")
        ran(RELEASE, "copy", folder / "signed", folder / "signed-served")

        # GitHub's release workflow also signs the checksums. Without the secret SIGNING_KEY, the release
        # notes say that the release has no signature.
        for name, given in [("workflow", key.read_text()), ("unsigned", "")]:
            ran("mkdir", folder / name, folder / name / "notes")
            shutil.copytree(folder / "plain", folder / name / "release")
            (folder / name / "notes/notes.md").write_text("Changes\n")
            code, said = signed_by_the_workflow(folder / name, given)
            assert code == 0 and secret not in said, said
            assert (folder / name / "release/SHA256SUMS.sig").exists() == bool(given)
            assert ("has no signature (SHA256SUMS.sig)" in (folder / name / "notes/notes.md").read_text()) != bool(given)
            assert ("::warning::SHA256SUMS is not signed" in said) != bool(given), said
            ran(RELEASE, "check", folder / name / "release")
        code, said = signed_by_the_workflow(folder / "unsigned", "no key")
        assert code != 0, said

        for name in ["signed-served", "workflow/release"]:
            (folder / "downloaded").mkdir()
            for file in [f"kops-agent-linux-{OWN}", "SHA256SUMS", "SHA256SUMS.sig"]:
                shutil.copy(folder / name / file, folder / "downloaded")
            shutil.copy(public, folder / "downloaded")
            assert shell(verify, folder / "downloaded") == f"Verified OK\nkops-agent-linux-{OWN}: OK\n"
            # The downloaded public key belongs to a different signer.
            shutil.copy(folder / "others/kops-agent.pub", folder / "downloaded")
            shell(verify, folder / "downloaded", fails=1)
            shutil.copy(public, folder / "downloaded")
            # If a program and its checksum are replaced, sha256sum passes and only the signature check fails.
            (folder / f"downloaded/kops-agent-linux-{OWN}").write_text("replaced")
            shell("sha256sum kops-agent-linux-* >SHA256SUMS && sha256sum --check --ignore-missing SHA256SUMS", folder / "downloaded")
            shell(verify, folder / "downloaded", fails=1)
            shutil.rmtree(folder / "downloaded")

        # An unusable key is rejected before any file is written. One example is an Ed25519 key, with which
        # openssl cannot sign a digest.
        ran("openssl", "genpkey", "-algorithm", "ed25519", "-out", folder / "ed25519")
        for wrong in [folder / "ed25519", public, folder / "none"]:
            said = ran(*make, folder / "x", "--sign-sums", wrong, fails=1)
            assert f"--sign-sums {wrong}: openssl cannot sign" in said and list(folder.glob(".release*")) == [], said
        assert not (folder / "x").exists()
