"""Tests kOps' own boot script, as kOps has rendered it for nodes of the corpus. Only the URL and the hash of its program are
changed."""

import difflib
import os
import re

from scenes import CHECKOUT, KOPS, lay_out, Machine, Mirror, programs_without, ran, scene, user_data

# This script imitates kOps' boot script on test machines. It is not part of the corpus.
OURS = CHECKOUT / "vm-tests/lib/kops-user-data"
# A program that records its folder, its call, and its variables for the state store.
NOTES = '#!/bin/sh\n{ echo "$PWD: $0 $*"; env | grep -E "^(AWS_REGION|S3_.*)=" | sort; } >>/opt/called\n'
XZ = f"/binaries/kops/{KOPS}/linux/amd64/nodeup.xz"


def scripts_of(corpus):
    """Yields each script, with the boot config that it writes and the variables that it exports."""
    scripts = [file.read_text() for file in sorted(corpus.glob("stores/**/nodeupscript.sh"))]
    assert scripts, f"{corpus} has no nodeupscript.sh"
    for script in scripts:
        (conf,) = re.findall(r"<< '__EOF_KUBE_ENV'\n(.*?)__EOF_KUBE_ENV\n", script, re.DOTALL)
        exported = re.findall(r"^export (.*)$", script, re.MULTILINE)
        assert "InstanceGroupName: " in conf and exported, script
        yield script, conf, exported


def served_by(script, folder, *urls):
    """Returns the script of a cluster whose fileRepository has this release, as `kops update cluster` renders it."""
    sum_file = folder / f"release/binaries/kops/{KOPS}/linux/amd64/nodeup.sha256"
    nodeups = ",".join(f"{url}/binaries/kops/{KOPS}/linux/amd64/nodeup" for url in urls)
    for name, value in {"URL": nodeups, "HASH": sum_file.read_text().strip()}.items():
        script, count = re.subn(rf"^NODEUP_{name}_AMD64=.*$", f"NODEUP_{name}_AMD64={value}", script, flags=re.MULTILINE)
        assert count == 1, (name, script)
    return script


def ours(folder, conf, exported, *urls):
    """Returns our imitation of the script."""
    (folder / "kube_env.yaml").write_text(conf)
    more = [word for url in urls for word in ("--mirror", url)] + [word for variable in exported for word in ("--env", variable)]
    return ran(OURS, "--form", "xz", "--conf", folder / "kube_env.yaml", "--release", folder / "release", *more)


def boots_of(folder, name, script, mirrors):
    """Runs a script on a machine at a first boot, at a second one, after its program was damaged, and with /var/lib/toolbox.
    Returns for each boot the requests, the program's calls with their variables, and the files that are left."""
    programs = programs_without(folder / f"{name}-programs", "sysctl")
    (programs / "sysctl").write_text('#!/bin/sh\necho "sysctl $*" >>/opt/called\n')
    (programs / "sysctl").chmod(0o755)
    machine = Machine(folder / name, programs)
    told = []
    for boot in ["first", "second", "damaged", "toolbox"]:
        if boot == "damaged":
            (machine.folder / "opt/kops/bin/nodeup").write_text("damaged")
        machine.boots(script, "bash", toolbox=boot == "toolbox")
        asked = [(number, path) for number, mirror in enumerate(mirrors) for path in mirror.asked]
        for mirror in mirrors:
            mirror.asked.clear()
        kept = machine.folder / "opt/kops"
        files = sorted((str(file.relative_to(kept)), oct(file.stat().st_mode), file.read_text()) for file in kept.rglob("*") if file.is_file())
        told.append(f"{boot}: asked {asked}\n{machine.called}{files}\n")
        (machine.folder / "opt/called").unlink()
    return "".join(told)


def kops_own_script_installs_the_program_of_a_mirror(corpus):
    with scene() as folder:
        lay_out(folder / "release", NOTES)
        mirror = Mirror(folder / "release")
        for number, (script, conf, exported) in enumerate(scripts_of(corpus)):
            machine = Machine(folder / f"machine-{number}", programs_without(folder / f"programs-{number}", "sysctl"))
            machine.boots(served_by(script, folder, mirror.url), "bash")
            at = "/opt/kops"
            called = f"{at}/bin: ./nodeup --install-systemd-unit --conf={at}/conf/kube_env.yaml --v=8\n" + "".join(f"{variable}\n" for variable in sorted(exported))
            assert machine.called == called, machine.called
            assert machine.read("opt/kops/conf/kube_env.yaml") == conf
            assert machine.read("opt/kops/bin/nodeup") == NOTES
            assert mirror.asked == [XZ], mirror.asked
            mirror.asked.clear()


def the_script_of_tests_does_what_kops_own_does(corpus):
    with scene() as folder:
        lay_out(folder / "release", NOTES)
        dead = Mirror(folder / "release")
        dead.server_close()
        dead.shutdown()
        # Five mirrors: one is unreachable, one has changed bytes, one has another program, one is empty, and
        # one is correct.
        spoilt = Mirror(folder / "release", lambda path, content: content[:-1] + b"x")
        lay_out(folder / "other", "#!/bin/sh\ntouch /opt/called\n")
        mirrors = [dead, spoilt, Mirror(folder / "other"), Mirror(folder), Mirror(folder / "release")]
        urls = [mirror.url for mirror in mirrors]
        for number, (script, conf, exported) in enumerate(scripts_of(corpus)):
            both = []
            for name, text in [("theirs", served_by(script, folder, *urls)), ("ours", ours(folder, conf, exported, *urls))]:
                both.append(boots_of(folder, f"{name}-{number}", text, mirrors))
            assert f"first: asked [(1, '{XZ}'), (2, '{XZ}'), (3, '{XZ}'), (4, '{XZ}')]" in both[0] and "second: asked []" in both[0], both[0]
            assert both[0] == both[1], "\n".join(difflib.unified_diff(*(told.splitlines() for told in both), "kOps' own", os.path.basename(OURS), lineterm=""))


def kops_own_script_is_accepted_as_a_boot_config(corpus):
    """packaging/cloud-init makes the same user-data from the script as from the script's boot config and variables."""
    with scene() as folder:
        for script, conf, exported in scripts_of(corpus):
            made = []
            for text, more in [(script, []), (conf, [word for variable in exported for word in ("--env", variable)])]:
                (folder / "kube_env.yaml").write_text(text)
                made.append(user_data("--conf", folder / "kube_env.yaml", "--release", folder / "release", "--mirror", "https://m", *more))
            assert made[0] == made[1], made[0]


TESTS_OF_CORPUS = [
    kops_own_script_installs_the_program_of_a_mirror,
    the_script_of_tests_does_what_kops_own_does,
    kops_own_script_is_accepted_as_a_boot_config,
]
