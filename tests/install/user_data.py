"""Tests what packaging/cloud-init/user-data prints, and what it rejects."""

import base64
import gzip
import hashlib
import json
import lzma
import os
import re
import shutil
import subprocess

import yaml

from scenes import CONF, KOPS, Machine, Mirror, of, programs_without, ran, scene, USER_DATA, user_data


def every_format_is_the_same_script():
    with scene() as folder:
        arguments = ["https://mirror.example.com/a"]
        script = of(folder, *arguments)
        config = yaml.safe_load(of(folder, *arguments, more=["--format", "cloud-config"]))
        # If `config` is the last cloud-config of a MIME message, cloud-init merges it into the other cloud-configs (m_dict
        # and m_list in cloud-init's cloudinit/mergers).
        assert config["merge_how"] == "list(append)+dict(no_replace,recurse_list)+str()"
        (file,) = config["write_files"]
        assert gzip.decompress(base64.b64decode(file["content"])).decode() == script
        assert config["runcmd"] == [["sh", file["path"]]]
        ignition = json.loads(of(folder, *arguments, more=["--format", "ignition"]))
        (file,) = ignition["storage"]["files"]
        assert gzip.decompress(base64.b64decode(file["contents"]["source"].split(",")[1])).decode() == script
        (unit,) = ignition["systemd"]["units"]
        assert f"ExecStart={file['path']}\n" in unit["contents"] and unit["enabled"]
        packed = folder / "packed"
        with packed.open("wb") as output:
            subprocess.run([USER_DATA, "--conf", folder / "kube_env.yaml", "--release", folder / "release", "--mirror", arguments[0], "--gzip"], stdout=output, check=True)
        assert gzip.decompress(packed.read_bytes()).decode() == script
        if shutil.which("shellcheck"):
            (folder / "script.sh").write_text(script)
            ran("shellcheck", folder / "script.sh")


def a_boot_config_is_taken_in_each_form_of_kops():
    """The boot config comes as a file, gzipped, or within kOps' user-data, from which it is extracted."""
    with scene() as folder:
        plain = of(folder, "https://m")
        heredoc = f"#!/bin/bash\ncat > conf/kube_env.yaml << '__EOF_KUBE_ENV'\n{CONF}\n__EOF_KUBE_ENV\n"
        # kOps packs a boot config like this: base64 of gzip.
        packed = base64.b64encode(gzip.compress(f"{CONF}\n".encode())).decode()
        echo = f'#!/bin/bash\nset -o errexit\necho "{packed}" | base64 -d | gzip -d > conf/kube_env.yaml\n\ndownload-release\n'
        part = f"Content-Type: multipart/mixed; boundary=\"MIMEBOUNDARY\"\r\nMIME-Version: 1.0\r\n\r\n--MIMEBOUNDARY\r\nContent-Type: text/x-shellscript\r\n\r\n{echo}\r\n--MIMEBOUNDARY--\r\n"
        server = CONF.replace("ConfigBase: s3://state/c.example.com", "ConfigServer:\n  servers:\n  - https://10.0.0.1:3988/")
        for name, given, taken in [
            ("gzipped", gzip.compress(CONF.encode()), CONF),
            ("server", server.encode(), server),
            ("heredoc", heredoc.encode(), CONF),
            ("heredoc-gzipped", gzip.compress(heredoc.encode()), CONF),
            ("heredoc-mime", part.replace(echo, heredoc).encode(), CONF),
            ("echo", echo.encode(), CONF),
            ("echo-gzipped", gzip.compress(echo.encode()), CONF),
            ("echo-mime", part.encode(), CONF),
        ]:
            (folder / "kube_env.yaml").write_bytes(given)
            assert of(folder, "https://m") == plain.replace(CONF, taken.rstrip("\n")), name


# The beginning of kOps' script on a control plane behind a proxy (pkg/model/resources/nodeup.go). The values of
# its variables use each kind of quotes.
KOPS_BEGINS = r"""#!/bin/bash
set -o errexit

NODEUP_URL_AMD64=https://artifacts.k8s.io/binaries/kops/1.36.0/linux/amd64/nodeup

export AWS_REGION=eu-west-1
export OS_PASSWORD='it is $HOME "this"'
export S3_ENDPOINT="https://s3.example.com:9000"
export S3_REGION=
export S3_SECRET_ACCESS_KEY=a/b+c=

{
  echo "http_proxy=http://proxy.example.com:3128"
  echo "https_proxy=http://proxy.example.com:3128"
  echo "no_proxy=10.0.0.0/8,127.0.0.1"
  echo "NO_PROXY=10.0.0.0/8,127.0.0.1"
} >> /etc/environment
while read -r in; do export "${in?}"; done < /etc/environment
case $(cat /proc/version) in
*[Dd]ebian* | *[Uu]buntu*)
  echo "Acquire::http::Proxy \"http://proxy.example.com:3128\";" > /etc/apt/apt.conf.d/30proxy ;;
esac
echo "DefaultEnvironment=\"http_proxy=http://proxy.example.com:3128\"" >> /etc/systemd/system.conf

sysctl -w net.core.rmem_max=16777216 || true
"""
KOPS_EXPORTS = {
    "AWS_REGION": "eu-west-1",
    "OS_PASSWORD": 'it is $HOME "this"',
    "S3_ENDPOINT": "https://s3.example.com:9000",
    "S3_REGION": "",
    "S3_SECRET_ACCESS_KEY": "a/b+c=",
    "http_proxy": "http://proxy.example.com:3128",
    "https_proxy": "http://proxy.example.com:3128",
    "no_proxy": "10.0.0.0/8,127.0.0.1",
    "NO_PROXY": "10.0.0.0/8,127.0.0.1",
}


def of_kops(begins=KOPS_BEGINS, parts=(), compressed=False):
    """Returns kOps' own user-data, with these further parts: names, types, contents."""
    packed = base64.b64encode(gzip.compress(f"{CONF}\n".encode())).decode()
    writes = f'echo "{packed}" | base64 -d | gzip -d > conf/kube_env.yaml' if compressed else f"cat > conf/kube_env.yaml << '__EOF_KUBE_ENV'\n{CONF}\n__EOF_KUBE_ENV"
    script = f"{begins}\nensure-install-dir\n\n{writes}\n\ndownload-release\n"
    if not parts:
        return script
    message = 'Content-Type: multipart/mixed; boundary="MIMEBOUNDARY"\r\nMIME-Version: 1.0\r\n\r\n'
    for name, kind, content in [("nodeup.sh", "text/x-shellscript", script), *parts]:
        head = f'Content-Disposition: attachment; filename="{name}"\r\nContent-Transfer-Encoding: 7bit\r\nContent-Type: {kind}\r\nMime-Version: 1.0\r\n'
        message += f"--MIMEBOUNDARY\r\n{head}\r\n{content}\r\n"
    return f"{message}--MIMEBOUNDARY--\r\n"


def exports_of_kops_user_data_are_kept():
    with scene() as folder:
        mirror = Mirror(folder / "release")
        plain = of(folder, mirror.url, more=[word for name, value in KOPS_EXPORTS.items() for word in ("--env", f"{name}={value}")])
        for compressed in [False, True]:
            (folder / "kube_env.yaml").write_text(of_kops(compressed=compressed))
            assert of(folder, mirror.url) == plain, compressed
        # A variable of --env takes precedence over the variable in kOps' user-data. The message contains the names of the user-data's
        # other variables, but not their values.
        command = [USER_DATA, "--conf", folder / "kube_env.yaml", "--release", folder / "release", "--mirror", mirror.url, "--env", "AWS_REGION=eu-north-1"]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "export AWS_REGION='eu-north-1'\n" in ended.stdout and "eu-west-1" not in ended.stdout
        names = " ".join(name for name in KOPS_EXPORTS if name != "AWS_REGION")
        assert ended.stderr == f"user-data: besides the boot config these are taken from {folder}/kube_env.yaml: {names}\n", ended.stderr
        # The program is a stand-in for the agent. It records the variables that the agent gets.
        program = "#!/bin/sh\nenv >>/opt/called\n".encode()
        at = folder / "release/binaries/kops" / KOPS / "linux/amd64/nodeup"
        at.write_bytes(program)
        at.with_suffix(".sha256").write_text(hashlib.sha256(program).hexdigest() + "\n")
        for file in at.parent.glob("nodeup.xz*"):
            file.unlink()
        machine = Machine(folder / "machine", programs_without(folder / "programs", "systemctl"))
        machine.boots(of(folder, mirror.url), "dash")
        assert {f"{name}={value}" for name, value in KOPS_EXPORTS.items()} <= set(machine.called.splitlines()), machine.called
        assert machine.read("opt/kops/conf/kube_env.yaml") == CONF + "\n"
        proxies = {f"{name}={value}" for name, value in KOPS_EXPORTS.items() if name.lower().endswith("_proxy")}
        assert set(machine.read("etc/environment").splitlines()) == proxies


def parts_of_kops_user_data_that_would_be_lost_are_refused():
    with scene() as folder:
        # This script names the boot config, but does not write it.
        script = ("my script.sh", "text/x-shellscript", "#!/bin/sh\nexport A=b\ncat /opt/kops/conf/kube_env.yaml\n")
        config = ("config", "text/cloud-config", "#cloud-config\n{}\n")
        for given, message in [
            (of_kops(parts=[script, config]), "would be lost: my script.sh (text/x-shellscript), config (text/cloud-config). Remove"),
            (of_kops(parts=[script], compressed=True), "would be lost: my script.sh (text/x-shellscript). Remove"),
            (of_kops(begins='#!/bin/bash\nexport S3_REGION=$(SECRET)'), "exports S3_REGION with a value that only a shell can expand"),
            (of_kops(begins='#!/bin/bash\nexport S3_REGION="$SECRET"'), "set it with --env S3_REGION=VALUE"),
            (of_kops(begins="#!/bin/bash\nexport S3_REGION=a'SECRET'"), "set it with --env S3_REGION=VALUE"),
            (of_kops(begins="#!/bin/bash\nexport S3_REGION"), "begins with export and that kOps does not write"),
            (of_kops().split("__EOF_KUBE_ENV\n")[0], "breaks off before its boot config ends"),
            (of_kops().replace("conf/kube_env.yaml <<", "other.yaml <<"), "does not write conf/kube_env.yaml as kOps does"),
        ]:
            (folder / "kube_env.yaml").write_text(given)
            said = of_fails(folder)
            assert message in said and "SECRET" not in said and said.count("\n") == 1, (given, said)
        (folder / "kube_env.yaml").write_text(of_kops(begins="#!/bin/bash\nexport S3_REGION=$(id)"))
        assert "export S3_REGION='x'\n" in of(folder, "https://m", more=["--env", "S3_REGION=x"])


def a_file_that_is_no_boot_config_is_refused():
    with scene() as folder:
        packed = base64.b64encode(gzip.compress(b"hello: [")).decode()
        for given, message in [
            (b"hello: [\n", "is no boot config"),
            (b"CloudProvider: aws\nInstanceGroupName: nodes\n", "is no boot config"),
            (b"CloudProvider: aws\nConfigBase: s3://a/b\n", "is no boot config"),
            (CONF.replace("CloudProvider", "cloudProvider").encode(), "is no boot config"),
            (CONF.replace("\n", "\n  ").encode(), "is no boot config"),
            (f"{CONF}\nx: \0\n".encode(), "has NUL bytes"),
            (lzma.compress(CONF.encode()), "has NUL bytes"),
            (gzip.compress(CONF.encode())[:-12], "cannot be unpacked"),
            (gzip.compress(b""), "is empty"),
            (f'echo "{packed}" | base64 -d | gzip -d > conf/kube_env.yaml\n'.encode(), "is no boot config"),
            (f'echo "{packed[:20]}" | base64 -d | gzip -d > conf/kube_env.yaml\n'.encode(), "cannot be unpacked"),
            (b'echo "a" | base64 -d | gzip -d > conf/kube_env.yaml\n', "is no base64"),
        ]:
            (folder / "kube_env.yaml").write_bytes(given)
            said = of_fails(folder)
            assert message in said and said.count("\n") == 1, (given, said)


def of_fails(folder):
    return user_data("--conf", folder / "kube_env.yaml", "--release", folder / "release", "--mirror", "https://m", fails=1)


def temporary_files_are_private():
    """All temporary files are in one folder, which only the owner can read and which is gone at the end, also after a failure."""
    with scene() as folder:
        temporary = folder / "tmp"
        temporary.mkdir()
        # This gzip records the modes of all temporary files.
        programs = programs_without(folder / "programs", "gzip")
        (programs / "gzip").write_text(f'#!/bin/sh\nfind {temporary} -mindepth 1 -printf "%P %m\\n" >>{folder}/seen\nexec /usr/bin/gzip "$@"\n')
        (programs / "gzip").chmod(0o755)
        environment = os.environ | {"TMPDIR": str(temporary), "PATH": str(programs)}
        command = [USER_DATA, "--conf", folder / "kube_env.yaml", "--release", folder / "release", "--mirror", "http://m", "--gzip"]
        packed = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True).stdout
        assert gzip.decompress(packed).decode() == of(folder, "http://m")
        seen = [line.rsplit(" ", 1) for line in (folder / "seen").read_text().splitlines()]
        (top,) = [name for name, _ in seen if "/" not in name]
        assert len(seen) > 1 and all(name == top or name.startswith(f"{top}/") for name, _ in seen), seen
        assert all(int(mode, 8) & 0o077 == 0 for _, mode in seen), seen
        (folder / "kube_env.yaml").write_text("hello")
        ended = subprocess.run(command, capture_output=True, env=environment)
        assert ended.returncode == 1 and os.listdir(temporary) == [], os.listdir(temporary)


def user_data_above_the_limit_of_ec2_is_refused():
    """The limit is exact: 16384 bytes are printed whole. For one more byte, only the advice is printed."""
    largest = 16384
    with scene() as folder:
        temporary = folder / "tmp"
        temporary.mkdir()

        def ended(conf, *more):
            (folder / "kube_env.yaml").write_text(conf)
            command = [USER_DATA, "--conf", folder / "kube_env.yaml", "--release", folder / "release", "--mirror", "http://m", *more]
            ended = subprocess.run(command, capture_output=True, env=os.environ | {"TMPDIR": str(temporary)})
            assert os.listdir(temporary) == [], os.listdir(temporary)
            return ended

        def refused(ended, size, advice):
            assert (ended.returncode, ended.stdout) == (1, b""), (ended.returncode, len(ended.stdout))
            said = ended.stderr.decode()
            found = re.fullmatch(rf"user-data: the user-data has (\d+) bytes, and EC2 takes {largest}: {re.escape(advice)}\n", said)
            assert found and (int(found[1]) == size if size else int(found[1]) > largest), said

        # The two boot configs differ only in the length of a comment.
        room = largest - len(ended(f"{CONF}\n#").stdout)
        full, over = f"{CONF}\n#{'x' * room}", f"{CONF}\n#{'x' * (room + 1)}"
        fits = ended(full)
        assert (fits.returncode, len(fits.stdout), fits.stderr) == (0, largest, b""), (fits.returncode, len(fits.stdout), fits.stderr)
        assert f"\n{full}\n@END_OF_CONF@\n" in fits.stdout.decode()
        refused(ended(over), largest + 1, "use --gzip, or --format cloud-config")
        # The message advises --gzip, which makes the output small enough.
        packed = ended(over, "--gzip")
        assert packed.returncode == 0 and gzip.decompress(packed.stdout) == fits.stdout.replace(full.encode(), over.encode())
        (written,) = yaml.safe_load(ended(over, "--format", "cloud-config").stdout)["write_files"]
        assert gzip.decompress(base64.b64decode(written["content"])) == gzip.decompress(packed.stdout)
        # gzip does not shorten this boot config.
        dense = CONF + "".join(f"\n#{hashlib.sha512(bytes([n])).hexdigest()}" for n in range(256))
        for form, advice in [
            (["--gzip"], "it is packed already, so the boot config, or what --env names, has to be shorter"),
            (["--format", "cloud-config"], "use --gzip"),
            (["--format", "cloud-config", "--gzip"], "it is packed already, so the boot config, or what --env names, has to be shorter"),
            (["--format", "ignition"], "serve it, and give the machine an Ignition configuration whose ignition.config.replace names it"),
        ]:
            refused(ended(dense, *form), None, advice)


def wrong_arguments_are_refused():
    with scene() as folder:
        mirror, conf, sums = ["--mirror", "http://m"], ["--conf", folder / "kube_env.yaml"], ["--sha256-amd64", "0" * 64]
        (folder / "ends").write_text(f"{CONF}\n@END_OF_CONF@\nrm -rf /\n")
        (folder / "empty").write_text(" \n")
        shutil.copytree(folder / "release", folder / "spoilt")
        (folder / f"spoilt/binaries/kops/{KOPS}/linux/amd64/nodeup.xz").write_bytes(b"x")
        (folder / "named/binaries/kops").mkdir(parents=True)
        shutil.copytree(folder / f"release/binaries/kops/{KOPS}", folder / "named/binaries/kops/1'; id; x='")
        version = ["--release", folder / "release", "--kops-version"]
        assert user_data(*conf, *mirror, *version, f"v{KOPS}") == user_data(*conf, *mirror, *version, KOPS)
        for code, arguments, message in [
            (2, [*conf, *mirror, *version, "1.36.0'; id; '"], "a version as"),
            (1, [*conf, *mirror, "--release", folder / "named"], "which is no version of kOps"),
            (1, [*conf, *mirror, *version, "1.35.0"], "has no program for kOps 1.35.0"),
            (1, [*conf, *mirror, "--release", folder / "spoilt"], "nodeup.xz does not have the sum"),
            (2, [*conf, *mirror, *sums, "--xz-sha256-arm64", "0" * 64], "takes --sha256-arm64"),
            (1, [*conf, *mirror, *sums, "--xz-sha256-amd64", "0"], "64 hexadecimal digits"),
            (1, [*mirror, *sums, "--conf", folder / "empty"], "is empty"),
            (1, [*conf, *sums, "--mirror", "https://m/x?sig=a"], "must not contain ? or #"),
            (2, [*mirror, *sums], "--conf is missing"),
            (2, [*conf, *sums], "--mirror is missing"),
            (2, [*conf, *mirror], "is missing"),
            (1, [*conf, *mirror, "--sha256-amd64", "abc"], "64 hexadecimal digits"),
            (1, [*conf, *sums, "--mirror", "http://m/$(id)"], "a URL that begins with"),
            (1, [*conf, *sums, "--mirror", "s3://m"], "a URL that begins with"),
            (1, [*conf, *sums, "--mirror", "https://user:SECRET@m/x"], "has credentials in it"),
            (1, [*conf, *sums, "--mirror", "https://SECRET@m"], "has credentials in it"),
            (1, [*conf, *sums, "--mirror", "https://user:SECRET@m/x?sig=SECRET"], "has credentials in it"),
            (1, [*conf, *sums, "--mirror", "https:/user:SECRET@m/x"], "a URL that begins with"),
            (1, [*conf, *sums, "--mirror", "https://m/x?sig=SECRET"], "--mirror https://m/x…: paths"),
            (1, [*conf, *mirror, *sums, "--env", "a b=SECRET"], "NAME=VALUE"),
            (1, [*conf, *mirror, *sums, "--env", "SECRET"], "NAME=VALUE"),
            (1, [*conf, *mirror, *sums, "--env", "OS_PASSWORD=SECRET\nSECRET"], "--env OS_PASSWORD: NAME=VALUE on one line"),
            (1, [*conf, *mirror, *sums, "--env", "HTTP_PROXY=http://SECRET@p"], "Give --env http_proxy=VALUE"),
            (1, [*conf, *mirror, *sums, "--env", "https_proxy=http://p", "--env", "HTTPS_PROXY=http://p", "--env", "NO_PROXY=a"], "Give --env no_proxy=VALUE"),
            (1, [*conf, *mirror, "--release", folder], "no folder of packaging/release"),
            (1, ["--conf", folder / "none", *mirror, *sums], "cannot be read"),
            (1, ["--conf", folder / "ends", *mirror, *sums], "which would end the boot config"),
            (2, [*conf, *mirror, *sums, "--format", "ignition", "--gzip"], "leave --gzip out"),
        ]:
            said = user_data(*arguments, fails=code)
            assert message in said and "SECRET" not in said, (arguments, said)
        both = ["--env", "HTTPS_PROXY=http://p", "--env", "https_proxy=http://p"]
        assert "keep HTTPS_PROXY" in user_data(*conf, *mirror, *sums, *both)
        # An @ in the path of a URL does not mean credentials.
        assert "http://m/kops@1/" in user_data(*conf, *sums, "--mirror", "http://m/kops@1")


TESTS = [
    every_format_is_the_same_script,
    a_boot_config_is_taken_in_each_form_of_kops,
    exports_of_kops_user_data_are_kept,
    parts_of_kops_user_data_that_would_be_lost_are_refused,
    a_file_that_is_no_boot_config_is_refused,
    temporary_files_are_private,
    user_data_above_the_limit_of_ec2_is_refused,
    wrong_arguments_are_refused,
]
