"""Roots that tests of packages may change, and terminals there."""

import contextlib
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

# Like the real systemctl, `enable` with several units enables none of them if one is masked. /masked names the masked
# unit.
SYSTEMCTL = """#!/bin/sh
if [ "$1" = enable ] && [ -e /masked ]; then
    for unit; do
        if [ "$unit" = "$(cat /masked)" ]; then echo "Failed to enable unit: Unit file /etc/systemd/system/$unit is masked." >&2; exit 1; fi
    done
fi
echo "$*" >>/systemctl.log
"""
# A stand-in for restorecon. Like the real one, it fails if a file is missing.
RESTORECON = '#!/bin/sh\necho "$*" >>/restorecon.log\nfor file; do [ "$file" = -R ] || [ -e "$file" ] || { echo "restorecon: $file" >>/restorecon.failed; exit 1; }; done\n'
PROMPT = "ready> "
# A terminal's control sequences for cursor and colours, and letters that are overwritten.
CONTROLS = r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|[\r\a]|[^\x08]\x08"


def ran(*command, may_fail=False, **kwargs):
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True, stdin=subprocess.DEVNULL, **kwargs)
    if ended.returncode != 0 and not may_fail:
        sys.exit(f"{command}: exit code {ended.returncode}\n{ended.stdout}{ended.stderr}")
    return ended.stdout + ended.stderr


class Root:
    """A root that tests may change, in which systemd seems to run."""

    def __init__(self, folder, lower):
        self.folder, self.lower = folder, lower
        for name in ["upper/run/systemd/system", "upper/packages", "work", "root"]:
            (folder / name).mkdir(parents=True)
        bin_folder = folder / "upper/usr/bin"
        bin_folder.mkdir(parents=True)
        for name, script in [("systemctl", SYSTEMCTL), ("restorecon", RESTORECON)]:
            (bin_folder / name).write_text(script)
            (bin_folder / name).chmod(0o755)

    def run(self, script, may_fail=False):
        """Runs a script in this root, and returns its output."""
        return ran(*self.inside("sh", "-euc", script), may_fail=may_fail)

    def inside(self, *command):
        """Returns a command that runs `command` in this root. Processes that `command` leaves behind, such as dnf's gpg-agent
        for each key, end with it: they would keep some of this machine's few inotify instances."""
        at = self.folder
        inside = (
            f"mount -t overlay -o lowerdir={self.lower},upperdir={at}/upper,workdir={at}/work none {at}/root && "
            f"mount -t proc proc {at}/root/proc && mount --rbind /dev {at}/root/dev && "
            f"exec chroot {at}/root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=linux DEBIAN_FRONTEND=noninteractive \"$@\""
        )
        return ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", inside, "sh", *command]

    def types(self, shell, typed, wanted):
        """Types into a shell at a terminal, which must show the wanted text."""
        process, terminal = pty.fork()
        if process == 0:
            os.execvp("unshare", self.inside(*shell))
        shown = ""

        def shows(text):
            nonlocal shown
            end = time.monotonic() + 60
            while text not in re.sub(CONTROLS, "", shown):
                if not select.select([terminal], [], [], max(0, end - time.monotonic()))[0]:
                    sys.exit(f"{shell}: {typed!r} was typed, and {text!r} is not shown: {shown!r}")
                shown += os.read(terminal, 4096).decode()

        try:
            # A shell may lose input that is sent before its prompt.
            shows(PROMPT)
            os.write(terminal, typed.encode())
            shows(PROMPT + wanted)
        finally:
            os.kill(process, signal.SIGKILL)
            os.close(terminal)
            os.waitpid(process, 0)

    def has(self, path):
        """Whether the path exists. The marker that overlayfs writes for a removed file does not count."""
        file = self.folder / "upper" / path
        return os.path.lexists(file) and not (file.exists() and file.is_char_device())

    def write(self, path, text):
        file = self.folder / "upper" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def put(self, *packages):
        for package in packages:
            ran("cp", package, self.folder / "upper/packages/")

    def told(self):
        """Returns the calls of systemctl since the previous call of `told`."""
        return self.log_of("systemctl")

    def labelled(self):
        """Returns the paths that restorecon got since the previous call of `labelled`."""
        return {word for line in self.log_of("restorecon") for word in line.split() if word != "-R"}

    def log_of(self, program):
        log = self.folder / f"upper/{program}.log"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return lines


@contextlib.contextmanager
def root(lower):
    with tempfile.TemporaryDirectory(prefix="kops-agent-packages-", dir="/var/tmp") as folder:
        yield Root(pathlib.Path(folder), lower)
