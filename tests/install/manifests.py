"""Tests how a release brings control-plane mode as pods: the Helm chart, and the archive with the base for kustomize."""

import pathlib
import re
import shutil
import tarfile
import tempfile

import yaml

from scenes import CHECKOUT, ran


def a_chart_has_its_version(chart, version):
    with tarfile.open(chart) as archive:
        about = yaml.safe_load(archive.extractfile("kops-agent-controller/Chart.yaml"))
    assert (about["version"], about["appVersion"]) == (version, version), about


def an_archive_has_the_manifests(archive):
    """The archive has the files of packaging/kubernetes at the paths of a clone, which the overlay on the page names."""
    page = (CHECKOUT / "docs/install/control-plane.md").read_text()
    (base,) = re.findall(r"^resources: \[(kops-agent/.*)\]$", page, re.MULTILINE)
    with tarfile.open(archive) as opened:
        members = opened.getmembers()
        files = {member.name: opened.extractfile(member).read() for member in members if member.isfile()}
    assert {(member.uid, member.gid, member.mtime) for member in members} == {(0, 0, 0)}, members
    assert {member.mode for member in members if member.isfile()} == {0o644}, members
    assert files == {f"{base}/{file.name}": file.read_bytes() for file in (CHECKOUT / "packaging/kubernetes").iterdir()}, sorted(files)


def rendered(chart, values):
    """Renders the chart's template as Helm does, as far as packaging/chart uses its language."""
    with tarfile.open(chart) as archive:
        text = archive.extractfile("kops-agent-controller/templates/daemonset.yaml").read().decode()
    condition = r"{{- if not \.Values\.image }}\n(.*?){{- end }}\n"
    text = re.sub(condition, "" if values["image"] else r"\1", text, flags=re.DOTALL)
    text = text.replace("{{ .Values.clusterName }}", values["clusterName"])
    text = re.sub(r'{{ \.Values\.image \| default "([^"]*)" }}', values["image"] or r"\1", text)
    assert "{{" not in text, text
    return yaml.safe_load(text)


def the_chart_and_the_base_are_the_manifest(kube):
    """The Helm chart renders the DaemonSet that the page's sed makes of controller.yaml. The page's overlay for kustomize gives the same
    DaemonSet; this is tested only if there is kubectl."""
    cluster, image = "demo.example.com", "registry.example.com/kops-agent:0.1.0"
    page = (CHECKOUT / "docs/install/control-plane.md").read_text()
    with tempfile.TemporaryDirectory(prefix="kops-agent-install-") as folder:
        folder = pathlib.Path(folder)
        for name in ("one.tgz", "two.tgz"):
            ran(CHECKOUT / "packaging/chart", "--out", folder / name)
        assert (folder / "one.tgz").read_bytes() == (folder / "two.tgz").read_bytes()
        manifest = (CHECKOUT / "packaging/kubernetes/controller.yaml").read_text().replace("CLUSTER_NAME", cluster)
        of_machine = list(yaml.safe_load_all(manifest))[-1]
        with_image = re.sub(r"registry\.k8s\.io/pause:.*", image, re.sub(r".*# the machine.s own\n", "", manifest))
        of_image = list(yaml.safe_load_all(with_image))[-1]
        assert of_machine["kind"] == "DaemonSet" and of_machine != of_image
        assert rendered(folder / "one.tgz", {"clusterName": cluster, "image": ""}) == of_machine
        assert rendered(folder / "one.tgz", {"clusterName": cluster, "image": image}) == of_image
        if kube is None:
            return
        (overlay,) = re.findall(r"^```yaml\n(resources: .*?)^```$", page, re.MULTILINE | re.DOTALL)
        shutil.copytree(CHECKOUT / "packaging/kubernetes", folder / "kops-agent/packaging/kubernetes")
        (folder / "kustomization.yaml").write_text(overlay)
        objects = list(yaml.safe_load_all(ran(kube / "kubectl", "kustomize", folder)))
        assert [one for one in objects if one["kind"] == "DaemonSet"] == [of_machine]
