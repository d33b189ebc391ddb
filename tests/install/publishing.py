"""Tests what is made from a commit and a program: releases as mirrors serve them, packages, and images."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

import yaml

from scenes import CHECKOUT, IMAGE, KOPS, Mirror, OTHER, OWN, program_for, programs_without, ran, RELEASE

# Variables that change a program if they reach cargo, a build script or a compiler. tests/install/reproducible sets these
# variables too.
CHANGE_PROGRAMS = """
    AR AWS_LC_SYS_CFLAGS AWS_LC_SYS_NO_ASM CARGO_BUILD_RUSTC CARGO_BUILD_RUSTFLAGS CARGO_INCREMENTAL CARGO_PROFILE_RELEASE_OPT_LEVEL CC CFLAGS COMPILER_PATH CPATH C_INCLUDE_PATH
    GCC_EXEC_PREFIX HOST_CFLAGS LDFLAGS LD_LIBRARY_PATH LIBRARY_PATH RUSTC RUSTC_BOOTSTRAP RUSTFLAGS TARGET_CC TARGET_CFLAGS
""".split()


def a_release_is_built_by_the_rust_that_is_named():
    """rustup-init is only run if it has the known sum. A release is built by the Rust that the commit names, whatever else names
    one."""
    (channel,) = re.findall(r'^channel = "(.+)"', (CHECKOUT / "rust-toolchain.toml").read_text(), re.MULTILINE)
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        programs = programs_without(folder / "programs", "cargo", "curl", "rustc", "rustup")
        scripts = {
            "curl": f"while [ $1 != --output ]; do shift; done; printf '#!/bin/sh\\ntouch {folder}/run\\n' >$2; echo $3 >{folder}/asked",
            "rustup": f"case $* in 'run stable rustc --version') echo rustc 1.999.0;; 'run {channel} cargo --version') [ -e {folder}/installed ];; *) exit 1;; esac",
        }
        for name, script in scripts.items():
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
        environment = {"PATH": str(programs), "HOME": str(folder), "KOPS_AGENT_CACHE": str(folder / "cache"), "RUSTUP_HOME": str(folder), "RUSTUP_AUTO_INSTALL": "0"}

        def got(command, **more):
            ended = subprocess.run(["bash", "-euc", f". packaging/needs.bash; {command}"], cwd=CHECKOUT, env=environment | more, capture_output=True, text=True)
            return ended.returncode, ended.stdout + ended.stderr

        code, said = got("get_rustup 1.2.3")
        assert code == 3 and "does not have the known sum" in said, said
        assert "/rustup/archive/" in (folder / "asked").read_text() and not (folder / "run").exists()
        assert sorted((folder / "cache/rust").iterdir()) == []
        code, said = got("get_rust")
        assert code == 0 and "1.999.0 is, and is used" in said, said
        code, said = got("get_rust", NEEDS_EXACT_RUST="yes")
        assert code == 3 and "Rust is missing" in said, said
        # Stand-ins for rustup's proxies. Each reports the toolchain in RUSTUP_TOOLCHAIN. Without this variable, it reports 1.999.0, as
        # if a rustup override had chosen this toolchain.
        (folder / "installed").touch()
        for name in ["cargo", "rustc"]:
            (programs / name).write_text(f'#!/bin/sh\necho "{name} ${{RUSTUP_TOOLCHAIN-1.999.0}} (x 2026-01-01)"\n')
            (programs / name).chmod(0o755)
        asked = "get_rust; cargo --version; rustc --version"
        for more, version in [({}, "1.999.0"), ({"RUSTUP_TOOLCHAIN": "nightly"}, "nightly")]:
            assert got(asked, **more) == (0, f"cargo {version} (x 2026-01-01)\nrustc {version} (x 2026-01-01)\n")
            assert got(asked, NEEDS_EXACT_RUST="yes", **more) == (0, f"cargo {channel} (x 2026-01-01)\nrustc {channel} (x 2026-01-01)\n")
        # A rustc and a cargo that are not from rustup come before rustup's programs in PATH.
        for name in ["rustc", "cargo"]:
            (programs / name).write_text(f'#!/bin/sh\necho "{name} {channel}-nightly (x 2026-01-01)"\n')
            code, said = got("get_rust", NEEDS_EXACT_RUST="yes")
            assert code == 3 and f"{programs}/{name} says that it is" in said and f"names Rust {channel}" in said, said


def a_release_is_built_only_from_its_commit():
    """Files that git does not track are rejected before anything is built, also if git ignores them and cargo reads them."""
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        checkout = pathlib.Path(folder) / "above/checkout"
        ran("git", "clone", "--quiet", CHECKOUT, checkout)
        ran("cp", "-a", CHECKOUT / "packaging", CHECKOUT / ".gitignore", checkout)
        git = ["git", "-C", checkout, "-c", "user.name=test", "-c", "user.email=test@example.invalid"]
        ran(*git, "add", "--all")
        ran(*git, "commit", "--quiet", "--allow-empty", "--message", "test")
        (checkout / ".git/info/exclude").write_text("*.ignored\n.cargo\nbuild.rs\n")
        release = [checkout / "packaging/release", "--kops-version", "none", "--architecture", OTHER, "--out"]
        # This cargo always fails, so a release that is wrongly accepted is not built.
        (pathlib.Path(folder) / "programs").mkdir()
        (pathlib.Path(folder) / "programs/cargo").symlink_to("/bin/false")
        environment = os.environ | {"PATH": f"{folder}/programs:{os.environ['PATH']}"}
        program = pathlib.Path(folder) / "program"
        program.write_bytes(program_for(OWN, f"0.1.0 ({ran(*git, 'rev-parse', 'HEAD').strip()})".encode()))
        packed = [checkout / "packaging/release", "--kops-version", "none", "--program", f"{OWN}={program}", "--packages", "--out", f"{folder}/packed"]
        for name, hidden in [
            ("agent/x.rs", None),
            (".cargo/config.toml", None),
            (".cargo/config", None),
            ("agent/kops-agent/.cargo/config.toml", None),
            # Cargo runs this file, although no Cargo.toml names it.
            ("agent/plan/build.rs", None),
            ("Cargo.toml", None),
            ("Cargo.toml", "assume-unchanged"),
            ("agent/kops-agent/src/main.rs", "skip-worktree"),
        ]:
            file = checkout / name
            if hidden:
                ran(*git, "update-index", f"--{hidden}", name)
            file.parent.mkdir(parents=True, exist_ok=True)
            before = file.read_text() if file.exists() else None
            file.write_text(f"{before or ''}# more\n")
            said = ran(*release, f"{folder}/out", fails=1, env=environment)
            assert "the checkout has changes" in said and name.split("/x.rs")[0] in said, said
            provenance = [checkout / "packaging/provenance", "--architecture", OTHER, "--out", f"{folder}/provenance", file]
            assert "that no commit has" in ran(*provenance, fails=1)
            # From a checkout with uncommitted changes, no packages are made, even if the program is from the checkout's commit.
            assert "packages have its units" in ran(*packed, fails=1)
            if before is None:
                file.unlink()
            else:
                file.write_text(before)
            if hidden:
                ran(*git, "update-index", f"--no-{hidden}", name)
        # If git cannot read the checkout's state, the release must fail.
        (checkout / ".git/objects").rename(checkout / ".git/away")
        (checkout / ".git/objects").mkdir()
        assert "cannot tell which" in ran(*release, f"{folder}/out", fails=1, env=environment)
        (checkout / ".git/objects").rmdir()
        (checkout / ".git/away").rename(checkout / ".git/objects")
        # Ignored files, build output and files in parent folders do not count as changes. For files in parent folders, a warning
        # is printed.
        for name in ["x.ignored", "target/x/.cargo/config.toml", "release/x", ".release.abc/x", "../.cargo/config.toml"]:
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_text("")
        ended = subprocess.run([checkout / "packaging/is-committed"], capture_output=True, text=True)
        assert (ended.returncode, ended.stdout) == (0, ""), ended
        assert f"cargo reads {folder}/above/.cargo/config.toml, " in ended.stderr, ended
        assert "is within the checkout" in ran(*release, checkout / "docs/out", fails=1, env=environment)


def no_wrapper_reaches_a_build():
    """No wrapper, flag or profile of the environment reaches the build. Variables for folders and the network do."""
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        programs = programs_without(folder / "programs", "cargo", "rustc", "rustup")
        machine = os.uname().machine
        host = f"{machine}-unknown-linux-gnu"
        (folder / f"lib/rustlib/{host}/lib").mkdir(parents=True)
        scripts = {
            "cargo": f"env >{folder}/environment\nexit 9",
            "rustc": f"case $1 in --version) echo rustc 1.999.0;; --print) echo {folder};; -vV) printf 'host: {host}\\ncommit-hash: x\\n';; *) exit 1;; esac",
        }
        for name, script in scripts.items():
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
        wrappers = ["RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_BUILD_RUSTC_WRAPPER", "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER"]
        passing = {"CARGO_BUILD_JOBS": "1", "CARGO_NET_OFFLINE": "true", "https_proxy": "http://proxy", "SSL_CERT_FILE": "/bundle", "HTTPS_PROXY": "http://proxy"}
        passing |= {"PATH": str(programs), "HOME": str(folder), "CARGO_TARGET_DIR": f"{folder}/target"}
        # The last name is no valid name for a shell variable, but the crate cc reads this variable.
        evil = [*wrappers, *CHANGE_PROGRAMS, f"CARGO_TARGET_{host.upper().replace('-', '_')}_LINKER", f"CFLAGS_{host}"]
        ended = subprocess.run([CHECKOUT / "packaging/build"], env=passing | {name: "/evil" for name in evil}, capture_output=True, text=True)
        assert ended.returncode == 9, ended
        seen = dict(line.split("=", 1) for line in (folder / "environment").read_text().splitlines() if "=" in line)
        assert [name for name, value in seen.items() if "/evil" in value] == [], seen
        assert {name: seen.get(name) for name in passing} == passing, seen
        # An empty variable overrides the wrapper in cargo's configuration. A missing variable does not.
        assert [seen.get(name) for name in wrappers] == ["", "", None, None], seen
        ours = {"CARGO_ENCODED_RUSTFLAGS", "CARGO_INCREMENTAL", "CC_SHELL_ESCAPED_FLAGS", f"CFLAGS_{machine}_unknown_linux_gnu"}
        assert ours <= set(seen) and f"CFLAGS_{host}" not in seen, seen


def packages_name_the_go_that_they_need():
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        programs = programs_without(folder / "programs", "go")
        prepare = [CHECKOUT / "packaging/packages", "--prepare"]
        environment = {"PATH": str(programs), "HOME": str(folder)}
        assert "Go 1.21 or newer is needed in PATH" in (said := ran(*prepare, fails=1, env=environment)) and "there is none" in said, said
        go = programs / "go"
        for version, code in [("go1.19.8", 1), ("go1.21.0", 0), ("devel go1.27-abc", 0)]:
            go.write_text(f"#!/bin/sh\ncase $1 in env) echo '{version}';; install) echo $2 >{folder}/installed;; esac\n")
            go.chmod(0o755)
            said = ran(*prepare, fails=code, env=environment)
            assert (folder / "installed").exists() == (code == 0), (version, said)
            assert code == 0 or f"there is {version}: " in said, said


def a_release_is_read_back_by_kops_rules(agent):
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        versions = [word for version in ["v1.34.3", "1.35.2", KOPS, "v1.37.0-alpha.1"] for word in ("--kops-version", version)]
        ran(RELEASE, "--out", folder / "one", *versions, "--program", f"amd64={agent}")
        # A web server of another user can read the release, whatever the umask. This test uses a small program, because it is packed
        # quickly.
        small = folder / "small"
        small.write_bytes(program_for("amd64"))
        ran(RELEASE, "--out", folder / "two", *versions, "--program", f"amd64={small}")
        ran("sh", "-c", 'umask 077; exec "$0" "$@"', RELEASE, "--out", folder / "umask", *versions, "--program", f"amd64={small}")
        # Two releases of the same program have equal bytes. a_release_of_a_commit tests this for the real program.
        ran("diff", "-r", folder / "two", folder / "umask")
        for file in (folder / "umask").rglob("*"):
            assert file.stat().st_mode & (0o055 if file.is_dir() else 0o044) == (0o055 if file.is_dir() else 0o044), file
        ran(RELEASE, "copy", folder / "one", folder / "served")
        mirror = Mirror(folder / "served")
        for version, download in [("1.34.3", "nodeup"), ("1.35.2", "nodeup"), (KOPS, "nodeup"), ("1.37.0-alpha.1", "nodeup.xz")]:
            # kOps appends the path of https://artifacts.k8s.io/binaries/kops/VERSION/linux/ARCH/nodeup to assets.fileRepository
            # (pkg/assets/builder.go, pkg/nodemodel/wellknownassets/kopsassets.go). The checksum is the first word of the .sha256 file.
            # The boot script of kOps 1.36 and before downloads the program itself, which the server may compress. The boot script of
            # later releases downloads the .xz file. Both verify the program's checksum (pkg/model/resources/nodeup.go).
            at = f"{mirror.url}/binaries/kops/{version}/linux/amd64"
            sha256 = ran("curl", "-sf", f"{at}/nodeup.sha256").split()[0]
            program = subprocess.run(["curl", "-sf", "--compressed", f"{at}/{download}"], capture_output=True, check=True).stdout
            assert hashlib.sha256(program).hexdigest() == ran("curl", "-sf", f"{at}/{download}.sha256").split()[0]
            if download.endswith(".xz"):
                program = subprocess.run(["xz", "-dc"], input=program, capture_output=True, check=True).stdout
            assert hashlib.sha256(program).hexdigest() == sha256 == hashlib.sha256(agent.read_bytes()).hexdigest(), version
        ran(RELEASE, "check", folder / "one")
        listed = {line.split("  ")[1] for line in (folder / "one/SHA256SUMS").read_text().splitlines()}
        assert {"kops-agent-linux-amd64.sha256", f"binaries/kops/{KOPS}/linux/amd64/nodeup.xz.sha256"} <= listed
        for name, spoil, message in [
            ("changed", lambda one: (one / "kops-agent-linux-amd64.sha256").write_text("0" * 64 + "\n"), "is not what its SHA256SUMS says"),
            ("missing", lambda one: (one / "kops-agent-linux-amd64.xz").unlink(), "is not what its SHA256SUMS says"),
            ("more", lambda one: (one / "evil.deb").write_text("x"), "has files that its SHA256SUMS does not name, or names twice: evil.deb"),
            ("link", lambda one: (one / "binaries/link").symlink_to("kops"), "binaries/link"),
            ("led", lambda one: (one / "kops-agent-linux-amd64.sha256").replace(folder / "aside") and (one / "kops-agent-linux-amd64.sha256").symlink_to(folder / "aside"), "is neither a file nor a folder"),
        ]:
            shutil.copytree(folder / "two", folder / name)
            spoil(folder / name)
            for verb in [["check", folder / name], ["copy", folder / name, folder / "elsewhere"]]:
                assert message in ran(RELEASE, *verb, fails=1), (name, verb)
            assert not (folder / "elsewhere").exists()
        a_release_is_copied_to_buckets(folder)
        ran(RELEASE, "--out", folder / "flat", "--kops-version", "none", "--program", f"amd64={small}")
        assert "has no binaries/kops" in ran("sh", "-c", f"'{RELEASE}' copy {folder}/flat {folder}/flat-served 2>&1")
        ran("diff", "-r", folder / "flat", folder / "flat-served")
        for arguments, code, message in [
            (["--out", folder / "one", "--kops-version", KOPS, "--program", f"amd64={agent}"], 1, "is there already"),
            (["--out", folder / "x", "--kops-version", KOPS, "--program", f"arm64={agent}"], 1, "no program for arm64"),
            (["--out", folder / "x", "--kops-version", "../..", "--program", f"amd64={agent}"], 2, "a version as"),
            (["--out", folder / "x", "--program", f"amd64={agent}"], 2, "--kops-version is missing"),
            (["copy", folder / "x", "s3://b"], 1, "no folder of packaging/release"),
            (["copy", folder / "one", "s3://b", "--acl"], 2, "options behind --"),
            (["copy", folder / "one", folder / "x", "--", "--acl"], 2, "takes no options"),
            (["copy", folder / "one", "b"], 2, "no absolute folder"),
            (["--out", folder / "x", "--kops-version", KOPS, "--program", f"amd64={agent}", "--sign", "k"], 2, "it takes --packages"),
            # This error must come before the build, which takes a quarter of an hour.
            (["--out", folder / "x", "--kops-version", KOPS, "--architecture", OTHER, "--packages"], 1, "this machine's architecture"),
        ]:
            assert message in ran(RELEASE, *arguments, fails=code)
        assert not (folder / "x").exists()


def a_release_knows_what_machines_of_each_kops_download():
    """Machines download protokube and channels from nodeup's folder. Only kOps puts them there."""
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        (folder / "small").write_bytes(program_for("amd64"))
        release = [RELEASE, "--program", f"amd64={folder}/small", "--kops-version"]
        for version, beside in [("1.34.3", "protokube and channels"), ("v1.35.2", "protokube and channels"), ("1.36.2", "protokube"), ("1.37.0-alpha.1", None), ("none", None)]:
            one = folder / version
            made = subprocess.run([*release, version, "--out", one], capture_output=True, text=True, check=True)
            assert made.stderr == "", made.stderr
            copied = subprocess.run([RELEASE, "copy", one, folder / f"{version}-served"], capture_output=True, text=True, check=True).stderr
            named = re.findall(r"machines of kOps (\S+) also download (.+), which this release does not have", copied)
            assert named == ([(version.removeprefix("v"), beside)] if beside else []), copied
        for version in ["1.33.1", "1.09.0", "v0.37.0"]:
            assert "kops-agent makes no machine of kOps before 1.34 a node" in ran(*release, version, "--out", folder / "x", fails=1)
            assert not (folder / "x").exists()
        for version in ["1.38.0-alpha.1", "2.0.0"]:
            made = subprocess.run([*release, version, "--out", folder / version], capture_output=True, text=True, check=True)
            assert f"kOps {version} is newer than this kops-agent knows" in made.stderr, made.stderr


def a_program_that_nodes_may_not_run_is_refused():
    """A program that needs a loader, such as this machine's own, and a debug build are rejected before anything is made."""
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        dynamic = pathlib.Path("/bin/sh").resolve()
        for name, more in {"development": b"0.1.0 (development)", "symbols": b"\0.debug_info\0"}.items():
            (folder / name).write_bytes(program_for(OWN, more))
        for program, message in [
            (dynamic, "names a dynamic loader"),
            (folder / "development", "is a debug build"),
            (folder / "symbols", "is a debug build"),
        ]:
            arguments = ["--out", folder / "x", "--kops-version", KOPS, "--program", f"{OWN}={program}"]
            said = ran(RELEASE, *arguments, fails=1)
            assert message in said and "packaging/build" in said and list(folder.glob(".release*")) == [], said
            assert not (folder / "x").exists()
        ran(RELEASE, *arguments, "--for-tests")


def a_failure_leaves_no_packages():
    """nfpm fails at the third package. Then none of the packages is there."""
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        (folder / "checkout").mkdir()
        ran("cp", "-a", CHECKOUT / "packaging", CHECKOUT / "Cargo.toml", folder / "checkout")
        (folder / "licenses").write_text("Program: Apache-2.0\n")
        scripts = {
            "program": "case $1 in man) touch $3/kops-agent.1 ;; *) echo x ;; esac",
            "nfpm": f"echo x >>{folder}/called; [ $(wc -l <{folder}/called) -lt 3 ] || exit 1; for at; do to=$at; done; echo half >${{to}}$(wc -l <{folder}/called).deb",
        }
        (folder / "cache").mkdir()
        version = re.search(r"^readonly NFPM=(.*)$", (CHECKOUT / "packaging/packages").read_text(), re.MULTILINE)[1]
        nfpm = folder / f"cache/nfpm-{version}/nfpm"
        nfpm.parent.mkdir()
        for file, script in [(folder / "program", scripts["program"]), (nfpm, scripts["nfpm"])]:
            file.write_text(f"#!/bin/sh\n{script}\n")
            file.chmod(0o755)
        arguments = ["--out", folder / "out", "--program", f"{OWN}={folder}/program", "--licenses", folder / "licenses"]
        environment = os.environ | {"KOPS_AGENT_CACHE": str(folder / "cache")}
        ran(folder / "checkout/packaging/packages", *arguments, fails=1, env=environment)
        assert len((folder / "called").read_text().split()) == 3
        assert list((folder / "out").iterdir()) == []


def a_program_is_packed_with_the_files_of_its_commit(agent):
    """Packages have units, scripts and documents of the checkout. A program of another commit is only accepted if --commit names
    it."""
    version = ran(agent, "--version").removeprefix("kops-agent ").strip()
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        head, other = ran("git", "rev-parse", "HEAD", cwd=CHECKOUT).strip(), "0123456789ab"
        programs = {}
        # The checks also apply to programs of the other architecture, which do not run here. If all checks pass, the release
        # then fails, because the program for this machine's architecture is missing. So this error shows that the checks have passed.
        for name, says in {"own": f"0.1.0 ({head[:12]})", "other": f"0.1.0 ({other})", "development": "0.1.0 (development)", "silent": "0.1.0"}.items():
            content = agent.read_bytes().replace(version.encode(), says.encode())
            programs[name] = folder / name
            programs[name].write_bytes(content[:18] + {"arm64": b"\xb7", "amd64": b"\x3e"}[OTHER] + content[19:])
        passed = "this machine's architecture"
        for name, more, code, message in [
            ("own", [], 1, passed),
            ("own", ["--commit", head], 1, passed),
            ("own", ["--commit", other], 1, f"was built of commit {head[:12]}, and {other} is that of --commit"),
            ("other", [], 1, f"was built of commit {other}, and {head} is checked out"),
            ("other", ["--commit", other], 1, passed),
            ("development", [], 1, "is a debug build"),
            ("silent", [], 1, f"was built of no commit that it names, and {head} is checked out"),
            ("other", ["--commit", "v1"], 2, "12 to 40 digits"),
        ]:
            arguments = ["--out", folder / "x", "--kops-version", "none", "--program", f"{OTHER}={programs[name]}", "--packages", *more]
            said = ran(RELEASE, *arguments, fails=code)
            assert message in said, (name, more, said)
        # Outside of a git checkout, --commit is required.
        ran("cp", "-a", CHECKOUT / "packaging", CHECKOUT / "Cargo.toml", folder)
        arguments = ["--out", folder / "x", "--kops-version", "none", "--program", f"{OTHER}={programs['other']}", "--packages"]
        said = ran(folder / "packaging/release", *arguments, fails=1, env=os.environ | {"GIT_CEILING_DIRECTORIES": str(folder.parent)})
        assert "name the programs' commit with --commit" in said, said
        # A release without packages contains nothing from the checkout, so the program may be from any commit.
        (folder / "small").write_bytes(program_for(OTHER, f"0.1.0 ({other})".encode()))
        ran(RELEASE, "--out", folder / "laid-out", "--kops-version", KOPS, "--program", f"{OTHER}={folder}/small")
        unpacked = ["--out", folder / "x", "--kops-version", KOPS, "--program", f"{OTHER}={programs['other']}", "--commit", other]
        assert "that --packages packs" in ran(RELEASE, *unpacked, fails=2)
        assert not (folder / "x").exists()


def a_release_is_copied_to_buckets(folder):
    """The clouds' own command-line tools copy releases, and get the options. Stand-ins record the tools' arguments, one per
    line."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ["aws", "gcloud"]:
        (programs / name).write_text(f"#!/bin/sh\nprintf '%s\\n' {name} \"$@\" >{folder}/asked\n[ ! -e {folder}/forbidden ]\n")
        (programs / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    one = folder / "one"
    for to, options, asked in [
        ("s3://b/kops/", [], ["aws", "s3", "cp", "--recursive", "--only-show-errors", one, "s3://b/kops"]),
        ("s3://b", ["--", "--sse", "aws:kms"], ["aws", "s3", "cp", "--recursive", "--only-show-errors", "--sse", "aws:kms", one, "s3://b"]),
        ("gs://b/p", ["--", "--x=a b"], ["gcloud", "storage", "cp", "--recursive", "--no-user-output-enabled", "--x=a b", f"{one}/*", "gs://b/p"]),
    ]:
        said = ran(RELEASE, "copy", one, to, *options, env=environment)
        assert (folder / "asked").read_text().splitlines() == [str(word) for word in asked], (folder / "asked").read_text()
        assert f"is at {to.rstrip('/')}" in said
    (folder / "forbidden").touch()
    assert "is at" not in ran(RELEASE, "copy", one, "s3://b", env=environment, fails=1)
    none = os.environ | {"PATH": str(programs_without(folder / "without", "aws", "gcloud"))}
    assert "(aws) is not in PATH" in ran(RELEASE, "copy", one, "s3://b", env=none, fails=1)


LICENSES = "usr/share/doc/kops-agent/third-party-licenses.txt"


def an_image_is_what_its_digests_say(agent):
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        (folder / "bundle").write_text("-----BEGIN CERTIFICATE-----\n")
        (folder / "licenses").write_text("of others\nImage: Apache-2.0 AND MIT\n")
        arguments = ["--program", f"amd64={agent}", "--ca-bundle", folder / "bundle", "--licenses", folder / "licenses", "--version", "1.2.3"]
        for name in ["one.tar", "two.tar"]:
            ran(IMAGE, "--out", folder / name, *arguments)
        assert (folder / "one.tar").read_bytes() == (folder / "two.tar").read_bytes()
        with tarfile.open(folder / "one.tar") as layout:
            files = {member.name: layout.extractfile(member).read() for member in layout}

        def blob(descriptor):
            content = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
            assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"] and len(content) == descriptor["size"]
            return content

        (index,) = json.loads(files["index.json"])["manifests"]
        (image,) = json.loads(blob(index))["manifests"]
        assert image["platform"] == {"architecture": "amd64", "os": "linux"}
        manifest = json.loads(blob(image))
        config = json.loads(blob(manifest["config"]))
        (layer,) = manifest["layers"]
        unpacked = gzip.decompress(blob(layer))
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(unpacked).hexdigest()}"]
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as content:
            assert content.extractfile("usr/bin/kops-agent").read() == agent.read_bytes()
            assert content.getmember("usr/bin/kops-agent").mode == 0o755
            files = {f"/{member.name}" for member in content if member.isfile()}
            assert files == {"/etc/ssl/certs/ca-certificates.crt", "/usr/bin/kops-agent", f"/{LICENSES}"}, files
            assert content.extractfile(LICENSES).read() == (folder / "licenses").read_bytes()
        assert config["config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0 AND MIT"
        assert config["config"]["Entrypoint"] == ["/usr/bin/kops-agent"] and config["config"]["User"] == "10011:10011"
        a_pod_with_the_image_has_its_program(files)
        for arguments, message in [
            (["--program", f"arm64={agent}"], "no program for arm64"),
            (["--program", f"amd64={agent}", "--ca-bundle", "/etc/passwd"], "has no certificate"),
            (["--program", f"amd64={folder}/none"], "cannot be read"),
            (["--program", f"amd64={agent}", "--ca-bundle", folder / "bundle", "--licenses", folder / "none"], "what --licenses names cannot be read"),
        ]:
            assert message in ran(IMAGE, "--out", folder / "x", *arguments, fails=1)


def a_pod_with_the_image_has_its_program(files):
    """With the `sed` command of the manifest's comment, which the page has, too, nothing is mounted over files of the image."""
    manifest = CHECKOUT / "packaging/kubernetes/controller.yaml"
    (command,) = re.findall(r"^#   (sed .*) controller\.yaml$", manifest.read_text(), re.MULTILINE)
    assert command in (CHECKOUT / "docs/install/control-plane.md").read_text()
    for text, ours in [(manifest.read_text(), False), (ran("sh", "-c", f"{command} {manifest}"), True)]:
        (pod,) = [document["spec"]["template"]["spec"] for document in yaml.safe_load_all(text) if document["kind"] == "DaemonSet"]
        (container,) = pod["containers"]
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
        (program,) = container["command"]
        assert (program in files) and (program in mounts.values()) != ours, (program, mounts)
        covered = [file for file in files for place in mounts.values() if file == place or file.startswith(f"{place}/")]
        assert (covered == []) == ours, covered
        assert (container["image"] == "localhost/kops-agent:0.1.0") == ours, container["image"]
        assert {"config", "pki"} <= set(mounts)


TESTS = [
    a_release_is_built_by_the_rust_that_is_named,
    a_release_is_built_only_from_its_commit,
    no_wrapper_reaches_a_build,
    packages_name_the_go_that_they_need,
    a_release_knows_what_machines_of_each_kops_download,
    a_program_that_nodes_may_not_run_is_refused,
    a_failure_leaves_no_packages,
]
TESTS_OF_PROGRAM = [a_release_is_read_back_by_kops_rules, a_program_is_packed_with_the_files_of_its_commit, an_image_is_what_its_digests_say]
