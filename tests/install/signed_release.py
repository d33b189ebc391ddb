"""A release with packages, and their repositories: what is in them, and that nothing installs from one that was changed."""

import io
import os
import pathlib
import re
import tarfile

from package_roots import ran, root

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent.parent
MOZILLAS = pathlib.Path("/usr/share/ca-certificates/mozilla")


def authorities_of(image):
    """The certificates that an image of one architecture has, sorted."""
    with tarfile.open(image) as layout:
        layers = [content for member in layout if (content := layout.extractfile(member).read()).startswith(b"\x1f\x8b")]
    (layer,) = layers
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        bundle = files.extractfile("etc/ssl/certs/ca-certificates.crt").read()
    return sorted(re.findall(rb"-----BEGIN.+?-----END CERTIFICATE-----\n", bundle, re.DOTALL))


def released(folder, agent):
    """A release with its packages, and their repositories signed by a key of the test's own."""
    environment = os.environ | {"GNUPGHOME": str(folder / "gnupg")}
    (folder / "gnupg").mkdir(mode=0o700)
    for address in ["test@example.invalid", "two@example.invalid", "two@example.invalid"]:
        ran("gpg", "--batch", "--yes", "--quiet", "--passphrase", "", "--quick-generate-key", address, "rsa3072", "sign", "never", env=environment)

    def keys_of(*named):
        listed = ran("gpg", "--batch", "--quiet", "--with-colons", *named, env=environment)
        return re.findall(r"^fpr:+([0-9A-F]+):$", listed, re.MULTILINE)

    one, other = keys_of("--list-secret-keys", "two@example.invalid")
    release = [CHECKOUT / "packaging/release", "--kops-version", "1.36.0", "--program", f"amd64={agent}", "--packages"]
    try:
        assert "no secret key" in ran(*release, "--out", folder / "x", "--sign", "other@example.invalid", env=environment, may_fail=True)
        said = ran(*release, "--out", folder / "x", "--sign", "two@example.invalid", env=environment, may_fail=True)
        assert "gpg has 2 secret keys that are two@example.invalid" in said and one in said and other in said, said
        packages = folder / "new"
        repositories = [CHECKOUT / "packaging/repositories", "--packages", packages, "--out", folder / "of-one", "--key", one]
        ran(*repositories, env=environment)
        assert keys_of("--show-keys", folder / "of-one/kops-agent.asc") == [one]
        # An authority that the builder's machine alone trusts.
        (folder / "bundle").write_text("-----BEGIN CERTIFICATE-----\nevil\n-----END CERTIFICATE-----\n")
        command = f'mount --bind {folder}/bundle /etc/ssl/certs/ca-certificates.crt; umask 077; exec "$0" "$@"'
        ran("unshare", "--mount", "sh", "-euc", command, *release, "--out", folder / "served", "--sign", "test@example.invalid", env=environment)
    finally:
        ran("gpgconf", "--kill", "gpg-agent", env=environment)
    for file in (folder / "served").rglob("*"):
        assert file.stat().st_mode & 0o044 == 0o044, file
    assert authorities_of(folder / "served/kops-agent-image.tar") == sorted(file.read_bytes() for file in MOZILLAS.glob("*.crt"))
    assert "\nValid-Until: " in (folder / "served/apt/dists/stable/InRelease").read_text()
    assert not (folder / "x").exists()
    return folder / "served"


def made_once_more(folder, release):
    """What shows that packages are of their programs says so of this release, and of none that has more files or fewer."""
    again = [CHECKOUT / "tests/install/repackaged"]
    assert "made once more, are the same" in ran(*again, release)

    def sum_up(spoilt):
        listed = sorted(str(file.relative_to(spoilt)) for file in spoilt.rglob("*") if file.is_file() and file.name != "SHA256SUMS")
        (spoilt / "SHA256SUMS").write_text(ran("sha256sum", *listed, cwd=spoilt))

    for spoil in [
        lambda spoilt: (spoilt / "evil.deb").write_bytes(b"x"),
        lambda spoilt: ((spoilt / "evil.deb").write_bytes(b"x"), sum_up(spoilt)),
        lambda spoilt: (next(spoilt.glob("*.deb")).unlink(), sum_up(spoilt)),
    ]:
        spoilt = folder / "spoilt"
        ran("cp", "-a", release, spoilt)
        spoil(spoilt)
        said = ran(*again, spoilt, may_fail=True)
        assert "are the same" not in said, said
        ran("rm", "-r", spoilt)


def repositories(apt, dnf, served):
    """Both package managers install from what is signed, and from nothing that was changed since."""
    source = "deb [signed-by=/served/kops-agent.asc] file:///served/apt stable main"
    by_apt = f"echo '{source}' >/etc/apt/sources.list; rm -rf /etc/apt/sources.list.d; apt-get update && apt-get install -y kops-agent-controller && kops-agent --version"
    repo = "[k]\nname=k\nbaseurl=file:///served/rpm\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file:///served/kops-agent.asc\n"
    by_dnf = f"mkdir -p /etc/yum.repos.d; rm -f /etc/yum.repos.d/*; printf '{repo}' >/etc/yum.repos.d/k.repo; dnf -q -y install kops-agent-controller && kops-agent --version"
    spoilt = {
        apt: [
            "echo >>/served/apt/dists/stable/main/binary-amd64/Packages; gzip -f -k /served/apt/dists/stable/main/binary-amd64/Packages",
            "echo >>$(ls /served/apt/pool/main/kops-agent_*.deb)",
        ],
        dnf: ["echo '<!-- -->' >>/served/rpm/repodata/repomd.xml", "echo >>$(ls /served/rpm/kops-agent-[0-9]*.rpm)"],
    }
    for lower, install in [(apt, by_apt), (dnf, by_dnf)]:
        with root(lower) as machine:
            ran("cp", "-R", served, machine.folder / "upper/served")
            assert "kops-agent" in machine.run(install)
        for spoil in spoilt[lower]:
            with root(lower) as machine:
                ran("cp", "-R", served, machine.folder / "upper/served")
                machine.run(spoil)
                machine.run(install, may_fail=True)
                assert not machine.has("usr/bin/kops-agent"), f"{install} installed what was changed: {spoil}"
