"""The world of the installation tests: machines with folders of their own, mirrors, and a release of a stand-in for the agent.

The stand-in records how it was called, which is all that a boot script decides.
"""

import contextlib
import hashlib
import http.server
import os
import pathlib
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import urllib.parse

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent.parent
RELEASE = CHECKOUT / "packaging/release"
IMAGE = CHECKOUT / "packaging/image"
USER_DATA = CHECKOUT / "packaging/cloud-init/user-data"
KOPS = "1.36.0"
# The architecture that this machine does not have.
OTHER = "amd64" if os.uname().machine == "aarch64" else "arm64"
OWN = "arm64" if OTHER == "amd64" else "amd64"
# A boot config with text that a shell would expand, and with placeholders of the boot script.
CONF = "CloudProvider: aws\nInstanceGroupName: nodes\nConfigBase: s3://state/c.example.com\nWeird: \"it's $HOME `id` \\\\ $(id) @CONF@ @URLS_AMD64@\""
# A program that records its call and the variable S3_ENDPOINT.
PROGRAM = """#!/bin/sh
{ echo "$0 $*"; echo "endpoint=${S3_ENDPOINT-unset}"; } >>/opt/called
"""


def program_for(architecture, more=b""):
    """Returns the header of a static program for that architecture, followed by `more`."""
    return (b"\x7fELF\x02".ljust(18, b"\0") + {"amd64": b"\x3e\0", "arm64": b"\xb7\0"}[architecture]).ljust(64, b"\0") + more


class Mirror(http.server.ThreadingHTTPServer):
    """Serves a folder on loopback, and records the requests. It is also a proxy: for http it serves the folder, and for https it
    connects to the server `behind`. With a `certificate` it serves TLS."""

    daemon_threads = True

    def __init__(self, folder, spoil=lambda path, content: content, instead=None, behind=None, certificate=None):
        self.folder, self.spoil, self.instead, self.behind, self.asked = folder, spoil, instead, behind, []
        super().__init__(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if self.server.instead:
            with contextlib.suppress(OSError):
                self.server.instead(self.wfile)
            return
        file = self.server.folder / urllib.parse.unquote(urllib.parse.urlsplit(self.path).path).lstrip("/")
        if not file.is_file():
            self.send_error(404)
            return
        content = self.server.spoil(self.path, file.read_bytes())
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_CONNECT(self):
        self.server.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        with socket.create_connection(self.server.behind.server_address) as other, contextlib.suppress(OSError):
            relay(self.connection, other)

    def log_message(self, *_):
        pass


def relay(one, other):
    """Copies data in both directions until one side has ended."""
    while True:
        for ready in select.select([one, other], [], [])[0]:
            sent = ready.recv(65536)
            if not sent:
                return
            (other if ready is one else one).sendall(sent)


def silent(_):
    """Takes the request, and never answers."""
    threading.Event().wait(300)


def slow(answer):
    """Sends for ever, a little faster than curl's limit for a dead connection."""
    answer.write(b"HTTP/1.0 200 OK\r\n\r\n")
    while True:
        answer.write(b"x" * 400)
        threading.Event().wait(0.2)


def endless(answer):
    """Sends for ever, as fast as it can."""
    answer.write(b"HTTP/1.0 200 OK\r\n\r\n")
    while True:
        answer.write(b"\0" * 65536)


def ran(*command, fails=None, **kwargs):
    """Returns the output of a command. `fails` is the exit code that it must end with, instead of 0."""
    ended = subprocess.run([str(part) for part in command], capture_output=True, **kwargs)
    if ended.returncode != (fails or 0):
        sys.exit(f"{command}: exit code {ended.returncode}\n{ended.stdout.decode()}{ended.stderr.decode()}")
    return (ended.stderr if fails else ended.stdout).decode()


class Machine:
    """This machine with folders of its own at /opt and /var/lib. If `programs` is given, that folder is PATH."""

    def __init__(self, folder, programs=None):
        self.folder, self.programs = folder, programs
        (folder / "opt").mkdir(parents=True)
        ran("cp", "-a", "/etc", folder / "etc")
        (folder / "etc/environment").unlink(missing_ok=True)

    def boots(self, script, shell="sh", ends=True, toolbox=False, etc=None):
        """Runs a boot script, and returns its output. /etc may be read-only (`ro`), or limited to a size (`size=…`)."""
        file = self.folder / "script"
        file.write_text(script)
        path = self.programs or os.environ["PATH"]
        bind = f"mount --bind {self.folder}/opt /opt && mount --bind {self.folder}/etc /etc"
        # For `size=…`, /etc is a tmpfs of this size. It contains only /etc/environment, the file that the script reads.
        limits = {
            None: "true",
            "ro": "mount -o remount,ro,bind /etc",
        }
        small = f"mkdir -p {self.folder}/small && mount -t tmpfs -o {etc} none {self.folder}/small && cp {self.folder}/etc/environment {self.folder}/small/ && mount --bind {self.folder}/small /etc"
        inside = f"{bind} && {limits.get(etc, small)} && mount -t tmpfs none /var/lib && {'mkdir /var/lib/toolbox' if toolbox else 'true'} && exec env PATH={path} {shell} {file}"
        command = ["unshare", "--mount", "sh", "-c", inside]
        ended = subprocess.run(command, capture_output=True, timeout=600)
        output = ended.stdout.decode() + ended.stderr.decode()
        if ends != (ended.returncode == 0):
            sys.exit(f"the boot script ended with {ended.returncode}:\n{output}")
        return output

    @property
    def called(self):
        file = self.folder / "opt/called"
        return file.read_text() if file.exists() else ""

    def read(self, path):
        return (self.folder / path).read_text()


def certificate(file, name):
    """Writes a key and a self-signed certificate of a server with this name."""
    ran("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 1, "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", "-keyout", file, "-out", f"{file}.crt")
    file.write_text(file.read_text() + pathlib.Path(f"{file}.crt").read_text())
    return file


def programs_without(folder, *missing):
    """Returns a folder with links to all programs of this machine except some."""
    folder.mkdir()
    for place in ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]:
        for program in pathlib.Path(place).iterdir():
            link = folder / program.name
            if program.name not in missing and not link.is_symlink():
                link.symlink_to(program)
    return folder


def stand_in(folder, name, script):
    """Puts a shell script under this name into a folder of programs. The folder must have no link of this name."""
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)


def user_data(*arguments, **kwargs):
    return ran(USER_DATA, *arguments, **kwargs)


def lay_out(release, text):
    """Lays out a release with a program of this text, for amd64, as kOps does."""
    program = release / "binaries/kops" / KOPS / "linux/amd64/nodeup"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(text)
    program.with_suffix(".xz").write_bytes(subprocess.run(["xz", "-c"], input=text.encode(), stdout=subprocess.PIPE, check=True).stdout)
    for file in [program, program.with_suffix(".xz")]:
        (file.parent / f"{file.name}.sha256").write_text(hashlib.sha256(file.read_bytes()).hexdigest() + "\n")


@contextlib.contextmanager
def scene():
    """Makes a folder with a boot config, and a release of the stand-in for amd64 in kOps' layout."""
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        (folder / "kube_env.yaml").write_text(CONF)
        lay_out(folder / "release", PROGRAM)
        yield folder


def of(folder, *mirrors, more=()):
    return user_data("--conf", folder / "kube_env.yaml", "--release", folder / "release", *(word for url in mirrors for word in ("--mirror", url)), *more)
