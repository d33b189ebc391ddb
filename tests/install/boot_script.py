"""Tests the boot script of packaging/cloud-init/user-data, on machines of every kind."""

import lzma
import os
import shutil
import time

from scenes import certificate, CONF, endless, KOPS, Machine, Mirror, of, PROGRAM, programs_without, scene, silent, slow, stand_in, user_data


def a_machine_becomes_a_node_and_downloads_once():
    with scene() as folder:
        mirror = Mirror(folder / "release")
        for shell in ["dash", "bash"]:
            machine = Machine(folder / shell)
            script = of(folder, mirror.url, more=["--env", "S3_ENDPOINT=https://it's $HERE"])
            output = machine.boots(script, shell)
            assert machine.called == (
                "/opt/kops/bin/kops-agent --install-systemd-unit --conf=/opt/kops/conf/kube_env.yaml --v=2\n"
                "endpoint=https://it's $HERE\n"
            ), machine.called
            assert machine.read("opt/kops/conf/kube_env.yaml") == CONF + "\n"
            assert (machine.folder / "opt/kops/conf/kube_env.yaml").stat().st_mode & 0o777 == 0o600
            assert mirror.asked == [f"/binaries/kops/{KOPS}/linux/amd64/nodeup.xz"], mirror.asked
            assert len(output.splitlines()) == 4, output
            mirror.asked.clear()
            again = machine.boots(script, shell)
            assert mirror.asked == [] and "is here already" in again, again
            assert sorted(os.listdir(machine.folder / "opt/kops/bin")) == ["kops-agent"]


def a_machine_that_has_its_program_does_not_look_elsewhere():
    """Container-Optimized OS is recognized by its name, not by a folder: Flatcar gets that folder, too, long after the first
    boot."""
    with scene() as folder:
        mirror = Mirror(folder / "release")
        script = of(folder, mirror.url)
        for name, release, install in [
            ("flatcar", "ID=flatcar\nID_LIKE=coreos\n", "opt/kops"),
            ("cos", 'NAME="Container-Optimized OS"\nID=cos\n', "var/lib/toolbox/kops"),
            ("cos-quoted", 'ID="cos"\n', "var/lib/toolbox/kops"),
        ]:
            machine = Machine(folder / name)
            (machine.folder / "etc/os-release").unlink()
            (machine.folder / "etc/os-release").write_text(release)
            machine.boots(script, "dash", toolbox=False)
            machine.boots(script, "dash", toolbox=True)
            assert machine.called.count(f"/{install}/bin/kops-agent --install-systemd-unit --conf=/{install}/conf/kube_env.yaml") == 2, (name, machine.called)
            assert len(mirror.asked) == (1 if install == "opt/kops" else 2), (name, mirror.asked)
            mirror.asked.clear()


def a_failure_to_keep_a_variable_is_reported():
    """If a file system is full or read-only, the script ends, and the console shows why."""
    with scene() as folder:
        mirror = Mirror(folder / "release")
        programs = programs_without(folder / "programs", "systemctl", "mkdir")
        # This mkdir fails only for system.conf.d. The rest of /etc is writable.
        stand_in(programs, "mkdir", '#!/bin/sh\ncase $* in *system.conf.d*) [ ! -e /opt/forbidden ] || exit 1 ;; esac\nexec /usr/bin/mkdir "$@"\n')
        script = of(folder, mirror.url, more=["--env", "https_proxy=http://secret@p:1"])
        for shell in ["dash", "bash"]:
            machine = Machine(folder / shell, programs)
            for etc in ["ro", "size=8k"]:
                (machine.folder / "etc/environment").write_text("LANG=C\n" * 600)
                output = machine.boots(script, shell, ends=False, etc=etc)
                assert output.endswith("kops-agent: https_proxy cannot be kept in /etc/environment, where containerd finds it: is /etc read-only, or its disk full?\n"), output
                assert machine.read("etc/environment") == "LANG=C\n" * 600
            (machine.folder / "opt/forbidden").touch()
            output = machine.boots(script, shell, ends=False)
            assert "kops-agent: proxies cannot be written to /etc/systemd/system.conf.d, where units find them" in output, output
            assert "secret" not in output and machine.called == "" and mirror.asked == []


def a_program_that_may_not_be_run_is_run_and_a_folder_is_refused():
    with scene() as folder:
        mirror = Mirror(folder / "release")
        script = of(folder, mirror.url)
        for shell in ["dash", "bash"]:
            machine = Machine(folder / shell)
            program = machine.folder / "opt/kops/bin/kops-agent"
            program.parent.mkdir(parents=True)
            program.write_text(PROGRAM)
            program.chmod(0o644)
            assert "is here already" in machine.boots(script, shell)
            assert "--install-systemd-unit" in machine.called and mirror.asked == []
            for name in ["bin/kops-agent", "conf/kube_env.yaml"]:
                machine = Machine(folder / f"{shell}-{name.replace('/', '-')}")
                (machine.folder / "opt/kops" / name).mkdir(parents=True)
                output = machine.boots(script, shell, ends=False)
                assert output.endswith(f"kops-agent: /opt/kops/{name} is a folder: use an image without it\n"), output
                assert machine.called == "" and mirror.asked == []
                assert os.listdir(machine.folder / "opt/kops" / name) == []


def a_mirror_that_is_dead_or_lies_is_skipped():
    with scene() as folder:
        dead = Mirror(folder / "release")
        dead.server_close()
        dead.shutdown()
        lying = Mirror(folder / "release", lambda path, content: content[:-1] + b"x")
        empty = Mirror(folder)
        honest = Mirror(folder / "release")
        machine = Machine(folder / "machine")
        output = machine.boots(of(folder, dead.url, lying.url, empty.url, honest.url))
        assert "--install-systemd-unit" in machine.called
        assert f"what {lying.url}/binaries/kops/{KOPS}/linux/amd64/nodeup serves does not have the SHA-256 sum" in output, output
        assert (machine.folder / "opt/kops/bin/kops-agent").read_text() == PROGRAM


def a_wrong_program_is_never_run():
    """The script would retry for ever. It ends here because its `sleep` fails."""
    with scene() as folder:
        wrong = b"#!/bin/sh\ntouch /opt/called\n"
        lying = Mirror(folder / "release", lambda path, _: lzma.compress(wrong) if path.endswith(".xz") else wrong)
        programs = programs_without(folder / "programs", "sleep")
        stand_in(programs, "sleep", "#!/bin/sh\nexit 1\n")
        machine = Machine(folder / "machine", programs)
        output = machine.boots(of(folder, lying.url), ends=False)
        assert "no mirror has delivered kops-agent; trying again in 2 s" in output, output
        assert machine.called == "" and os.listdir(machine.folder / "opt/kops/bin") == []


def a_mirror_that_is_silent_slow_or_endless_is_skipped():
    with scene() as folder:
        honest = Mirror(folder / "release")
        for missing in [(), ("curl",)]:
            programs = programs_without(folder / f"without-{'-'.join(missing)}", *missing)
            for wrong in [silent, slow, endless]:
                machine = Machine(folder / f"{wrong.__name__}-{'-'.join(missing)}", programs)
                # The download must end because of its size, not because of the time limit.
                longest = 600 if wrong is endless else 10
                bounds = {"silence=60 ": "silence=5 ", "longest=900 ": f"longest={longest} ", "largest=64\n": "largest=1\n"}
                script = of(folder, Mirror(folder, instead=wrong).url, honest.url)
                for line, shorter in bounds.items():
                    script = script.replace(line, shorter)
                started = time.monotonic()
                machine.boots(script, "dash")
                assert time.monotonic() - started < 300, (missing, wrong)
                assert "--install-systemd-unit" in machine.called
                assert os.listdir(machine.folder / "opt/kops/bin") == ["kops-agent"]


def a_file_with_an_unknown_sum_is_not_unpacked():
    with scene() as folder:
        programs = programs_without(folder / "programs", "xz")
        stand_in(programs, "xz", '#!/bin/sh\ntouch /opt/unpacked\nexec /usr/bin/xz "$@"\n')
        lying = Mirror(folder / "release", lambda path, content: lzma.compress(content) if path.endswith(".xz") else content)
        machine = Machine(folder / "machine", programs)
        output = machine.boots(of(folder, lying.url))
        assert f"what {lying.url}/binaries/kops/{KOPS}/linux/amd64/nodeup.xz serves does not have the SHA-256 sum" in output, output
        assert "--install-systemd-unit" in machine.called and not (machine.folder / "opt/unpacked").exists()
        honest = Machine(folder / "honest", programs)
        honest.boots(of(folder, Mirror(folder / "release").url))
        assert "--install-systemd-unit" in honest.called and (honest.folder / "opt/unpacked").exists()


def a_published_release_works_as_a_mirror():
    """A published release does not have the layout of a mirror. The same is true of a release of --kops-version none."""
    with scene() as folder:
        published = folder / "published"
        published.mkdir()
        for file in (folder / f"release/binaries/kops/{KOPS}/linux/amd64").iterdir():
            shutil.copy(file, published / file.name.replace("nodeup", "kops-agent-linux-amd64"))
        mirror = Mirror(published)
        sums = {name: (published / f"kops-agent-linux-amd64{name}.sha256").read_text().strip() for name in ["", ".xz"]}
        by_sums = ["--sha256-amd64", sums[""], "--xz-sha256-amd64", sums[".xz"]]
        for number, arguments in enumerate([["--release", published], by_sums]):
            machine = Machine(folder / f"machine-{number}")
            machine.boots(user_data("--conf", folder / "kube_env.yaml", "--mirror", mirror.url, *arguments))
            assert "--install-systemd-unit" in machine.called
            assert mirror.asked == ["/kops-agent-linux-amd64.xz"], mirror.asked
            mirror.asked.clear()
        # user-data needs only the checksums of the release's programs, so a missing program is no error.
        (published / "kops-agent-linux-amd64").unlink()
        assert sums[""] in user_data("--conf", folder / "kube_env.yaml", "--mirror", mirror.url, "--release", published)


def a_machine_with_wget_only_or_without_xz_works():
    with scene() as folder:
        for missing in [("curl",), ("xz",), ("curl", "xz")]:
            mirror = Mirror(folder / "release")
            name = "-".join(missing)
            machine = Machine(folder / name, programs_without(folder / f"without-{name}", *missing))
            machine.boots(of(folder, mirror.url))
            assert "--install-systemd-unit" in machine.called, missing
            suffix = "" if "xz" in missing else ".xz"
            assert mirror.asked == [f"/binaries/kops/{KOPS}/linux/amd64/nodeup{suffix}"], mirror.asked


def downloads_use_the_proxy():
    """The mirror's name has no address, so only the proxy can reach it."""
    with scene() as folder:
        name = "mirror.example.com"
        tls = Mirror(folder / "release", certificate=certificate(folder / "pem", name))
        proxy = Mirror(folder / "release", behind=tls)
        at = f"/binaries/kops/{KOPS}/linux/amd64/nodeup.xz"
        for missing in [(), ("curl",)]:
            programs = programs_without(folder / f"without-{'-'.join(missing)}", "systemctl", *missing)
            for scheme, of_proxy, of_mirror in [("http", [f"http://{name}{at}"], []), ("https", [f"{name}:443"], [at])]:
                machine = Machine(folder / f"{scheme}-{'-'.join(missing)}", programs)
                with (machine.folder / "etc/ssl/certs/ca-certificates.crt").open("a") as authorities:
                    authorities.write((folder / "pem.crt").read_text())
                machine.boots(of(folder, f"{scheme}://{name}", more=["--env", f"{scheme}_proxy={proxy.url}"]), "dash")
                assert "--install-systemd-unit" in machine.called
                assert (proxy.asked, tls.asked) == (of_proxy, of_mirror), (missing, proxy.asked, tls.asked)
                proxy.asked.clear()
                tls.asked.clear()


def a_mirror_may_redirect():
    """As with a release on GitHub: the mirror redirects to another server, to a URL with a query and without the file's name."""
    with scene() as folder:
        (folder / "elsewhere").mkdir()
        shutil.copy(folder / f"release/binaries/kops/{KOPS}/linux/amd64/nodeup.xz", folder / "elsewhere/4711")
        elsewhere = Mirror(folder / "elsewhere")
        query = "/4711?sp=r&sig=a%2Bb%3D&response-content-disposition=attachment%3B%20filename%3Dnodeup.xz"
        there = f"HTTP/1.1 302 Found\r\nlocation: {elsewhere.url}{query}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        mirror = Mirror(folder, instead=lambda answer: answer.write(there.encode()))
        for missing in [(), ("curl",)]:
            machine = Machine(folder / f"machine-{'-'.join(missing)}", programs_without(folder / f"without-{'-'.join(missing)}", *missing))
            machine.boots(of(folder, mirror.url), "dash")
            assert "--install-systemd-unit" in machine.called
            assert (machine.folder / "opt/kops/bin/kops-agent").read_text() == PROGRAM
            assert (len(mirror.asked), elsewhere.asked) == (1, [query]), (missing, mirror.asked, elsewhere.asked)
            mirror.asked.clear()
            elsewhere.asked.clear()


def pauses_grow_to_a_minute():
    """No time passes here: a stand-in for `sleep` records the pauses, and gives the mirror the program after the seventh one."""
    with scene() as folder:
        mirror = Mirror(folder / "late")
        programs = programs_without(folder / "programs", "sleep")
        stand_in(programs, "sleep", f'#!/bin/sh\necho "$*" >>/opt/slept\n[ "$(wc -l </opt/slept)" -lt 7 ] || cp -r {folder}/release {folder}/late\n')
        for shell in ["dash", "bash"]:
            machine = Machine(folder / shell, programs)
            output = machine.boots(of(folder, mirror.url), shell)
            assert "--install-systemd-unit" in machine.called
            assert machine.read("opt/slept").split() == "2 4 8 16 32 60 60".split(), machine.read("opt/slept")
            assert output.count("no mirror has delivered kops-agent; trying again in") == 7, output
            shutil.rmtree(folder / "late")


def written_files_get_their_labels():
    """With SELinux, restorecon runs before the agent, and labels the agent, too. If restorecon fails, the machine still becomes a
    node."""
    with scene() as folder:
        mirror = Mirror(folder / "release")
        for name, fails in [("labels", False), ("fails", True)]:
            programs = programs_without(folder / name, "restorecon", "systemctl")
            stand_in(programs, "restorecon", f'#!/bin/sh\necho "restorecon $*" >>/opt/called\nls "$4" "$5" "$3/bin/kops-agent" "$3/conf/kube_env.yaml" >/dev/null && {str(not fails).lower()}\n')
            machine = Machine(folder / f"machine-{name}", programs)
            output = machine.boots(of(folder, mirror.url, more=["--env", "no_proxy=localhost"]), "dash")
            labelled, called = machine.called.splitlines()[:2]
            assert labelled == "restorecon -R -i /opt/kops /etc/environment /etc/systemd/system.conf.d", machine.called
            assert called.startswith("/opt/kops/bin/kops-agent --install-systemd-unit "), machine.called
            assert ("restorecon failed: restorecon -R -v /opt/kops tells why" in output) == fails, output


def proxies_are_kept_for_later_boots():
    with scene() as folder:
        mirror = Mirror(folder / "release")
        # The script must not call the systemd of the test host.
        machine = Machine(folder / "machine", programs_without(folder / "programs", "systemctl"))
        environment = machine.folder / "etc/environment"
        environment.write_text("LANG=C\nhttps_proxy=http://old:1\n")
        environment.chmod(0o640)
        # This hard link keeps the old file. The script must not change the old file, but replace it by a new file.
        (machine.folder / "was").hardlink_to(environment)
        proxies = ["--env", "https_proxy=http://it's:3128", "--env", "no_proxy=127.0.0.1,10.0.0.0/8"]
        for _ in range(2):
            machine.boots(of(folder, mirror.url, more=proxies), "dash")
            kept = machine.read("etc/environment")
            assert kept == "LANG=C\nhttps_proxy=http://it's:3128\nno_proxy=127.0.0.1,10.0.0.0/8\n", kept
        drop_in = "[Manager]\nDefaultEnvironment=\"https_proxy=http://it's:3128\"\nDefaultEnvironment=\"no_proxy=127.0.0.1,10.0.0.0/8\"\n"
        assert machine.read("etc/systemd/system.conf.d/kops-agent-proxy.conf") == drop_in
        assert os.listdir(machine.folder / "etc/systemd/system.conf.d") == ["kops-agent-proxy.conf"]
        assert machine.read("was") == "LANG=C\nhttps_proxy=http://old:1\n"
        assert environment.stat().st_mode & 0o777 == 0o640, oct(environment.stat().st_mode)
        assert not list(environment.parent.glob("environment.kops*"))


# The /etc/environment of an image, and the variables that pam_env 1.5.2 reads from it (`su root -c env`). pam_env also
# keeps trailing blanks, but IMAGE_PROXIES has none.
IMAGE_ENVIRONMENT = """# https_proxy=http://comment:1
http_proxy="http://quoted:1"
  export HTTP_PROXY='http://exported:1'  # why
no_proxy="a,b",\\
'c' "d" # e
FTP_PROXY="http://other:1"
ALL='https_proxy=http://in-a-value:1'
NO_PROXY="x\\y'
"""
IMAGE_PROXIES = [
    r"http_proxy=http://quoted:1",
    r"HTTP_PROXY=http://exported:1",
    r"""no_proxy=a,b\",'c' \"d""",
    r"NO_PROXY=x\\y",
    r"https_proxy=http://ours:1",
]


def proxies_of_the_image_reach_units_without_their_quotes():
    with scene() as folder:
        mirror = Mirror(folder / "release")
        programs = programs_without(folder / "programs", "systemctl")
        for shell in ["dash", "bash"]:
            machine = Machine(folder / shell, programs)
            (machine.folder / "etc/environment").write_text(IMAGE_ENVIRONMENT)
            machine.boots(of(folder, mirror.url, more=["--env", "https_proxy=http://ours:1"]), shell)
            # The lines that the image has in /etc/environment stay unchanged.
            assert machine.read("etc/environment") == f"{IMAGE_ENVIRONMENT}https_proxy=http://ours:1\n"
            expected = "".join(f'DefaultEnvironment="{proxy}"\n' for proxy in IMAGE_PROXIES)
            drop_in = machine.read("etc/systemd/system.conf.d/kops-agent-proxy.conf")
            assert drop_in == f"[Manager]\n{expected}", drop_in


TESTS = [
    a_machine_becomes_a_node_and_downloads_once,
    a_machine_that_has_its_program_does_not_look_elsewhere,
    a_failure_to_keep_a_variable_is_reported,
    a_program_that_may_not_be_run_is_run_and_a_folder_is_refused,
    a_mirror_that_is_dead_or_lies_is_skipped,
    a_mirror_that_is_silent_slow_or_endless_is_skipped,
    a_wrong_program_is_never_run,
    a_file_with_an_unknown_sum_is_not_unpacked,
    a_published_release_works_as_a_mirror,
    a_machine_with_wget_only_or_without_xz_works,
    downloads_use_the_proxy,
    a_mirror_may_redirect,
    pauses_grow_to_a_minute,
    written_files_get_their_labels,
    proxies_are_kept_for_later_boots,
    proxies_of_the_image_reach_units_without_their_quotes,
]
