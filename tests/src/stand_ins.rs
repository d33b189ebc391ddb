//! Small files that replace the Kubernetes downloads. They have the same URL paths, and the archives have the same
//! members. Each program is a script that prints what it replaces. Every run makes the same bytes.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Context;
use flate2::Compression;
use flate2::write::GzEncoder;

/// The releases that a node of the example cluster downloads.
#[derive(Clone, Debug)]
pub struct Releases {
    /// `spec.kubernetesVersion`.
    pub kubernetes: String,
    /// `spec.containerd.version`.
    pub containerd: String,
    /// `spec.containerd.runc.version`.
    pub runc: String,
    /// The version of the CNI plugins. kOps derives it from the Kubernetes version (upstream: `pkg/assets/wellknownassets` and
    /// its callers).
    pub cni_plugins: String,
    /// The version of the AWS cloud provider that contains the ECR credential provider.
    pub cloud_provider_aws: String,
}

/// The architectures that kOps supports, with the names that Go gives them.
pub const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// The architecture for which this program is compiled, with the name that Go gives it.
pub const OWN_ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// The programs in `bin/` of a containerd 2 archive.
pub const CONTAINERD_BINARIES: [&str; 4] =
    ["containerd", "containerd-shim-runc-v2", "containerd-stress", "ctr"];

/// The programs of a containerd 1 archive in addition to [`CONTAINERD_BINARIES`].
const CONTAINERD_1_BINARIES: [&str; 2] = ["containerd-shim", "containerd-shim-runc-v1"];

/// The programs in an archive of the CNI plugins, which also contains a license and a README.
pub const CNI_PLUGINS: [&str; 18] = [
    "bandwidth",
    "bridge",
    "dhcp",
    "dummy",
    "firewall",
    "host-device",
    "host-local",
    "ipvlan",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tap",
    "tuning",
    "vlan",
    "vrf",
];

/// The size of a stand-in, in bytes. It is so large that both halves of an interrupted download contain many bytes.
const STAND_IN_BYTES: usize = 64 * 1024;

impl Releases {
    /// All downloads of these releases, for both architectures. The key is the URL path.
    pub fn stand_ins(&self) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
        let mut files = BTreeMap::new();
        for arch in ARCHITECTURES {
            files.extend(
                self.downloads(arch, Compression::fast(), |name, version| Ok(script(name, version, arch)))?,
            );
        }
        Ok(files)
    }

    /// All downloads of these releases, for one architecture. The key is the URL path. The program with the name `of` has the
    /// content `bytes`.
    pub fn stand_ins_with(
        &self,
        arch: &str,
        of: &str,
        bytes: &[u8],
    ) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
        self.downloads(arch, Compression::fast(), |name, version| {
            Ok(if name == of { bytes.to_vec() } else { script(name, version, arch) })
        })
    }

    /// All downloads of these releases, for one architecture. The key is the URL path. `program` returns a program's bytes for
    /// its name and version.
    pub fn downloads(
        &self,
        arch: &str,
        compression: Compression,
        program: impl Fn(&str, &str) -> anyhow::Result<Vec<u8>>,
    ) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
        let mut files = BTreeMap::new();
        self.add_kubernetes(arch, &program, &mut files)?;
        self.add_container_runtime(arch, compression, &program, &mut files)?;
        Ok(files)
    }

    fn add_kubernetes(
        &self,
        arch: &str,
        program: &Program<'_>,
        files: &mut BTreeMap<String, Vec<u8>>,
    ) -> anyhow::Result<()> {
        let version = &self.kubernetes;
        for name in ["kubelet", "kubectl"] {
            let path = format!("/release/v{version}/bin/linux/{arch}/{name}");
            files.insert(path, program(name, version)?);
        }
        let version = &self.cloud_provider_aws;
        let path = format!(
            "/binaries/cloud-provider-aws/v{version}/linux/{arch}/ecr-credential-provider-linux-{arch}"
        );
        files.insert(path, program("ecr-credential-provider", version)?);
        Ok(())
    }

    fn add_container_runtime(
        &self,
        arch: &str,
        compression: Compression,
        program: &Program<'_>,
        files: &mut BTreeMap<String, Vec<u8>>,
    ) -> anyhow::Result<()> {
        let version = &self.cni_plugins;
        let path = format!(
            "/containernetworking/plugins/releases/download/v{version}/cni-plugins-linux-{arch}-v{version}.tgz"
        );
        files.insert(path, cni_archive(Archive::new(compression), &|name| program(name, version))?);

        let version = &self.containerd;
        let path = format!(
            "/containerd/containerd/releases/download/v{version}/containerd-{version}-linux-{arch}.tar.gz"
        );
        let mut programs = CONTAINERD_BINARIES.to_vec();
        if version.starts_with("1.") {
            programs.extend(CONTAINERD_1_BINARIES);
        }
        let archive = Archive::new(compression);
        files.insert(path, containerd_archive(archive, &programs, &|name| program(name, version))?);

        let version = &self.runc;
        let path = format!("/opencontainers/runc/releases/download/v{version}/runc.{arch}");
        files.insert(path, program("runc", version)?);
        Ok(())
    }
}

/// Returns the bytes of a program for its name and version.
type Program<'a> = dyn Fn(&str, &str) -> anyhow::Result<Vec<u8>> + 'a;
/// Returns the bytes of the program with this name. The release determines the version.
type Member<'a> = dyn Fn(&str) -> anyhow::Result<Vec<u8>> + 'a;

fn containerd_archive(
    mut archive: Archive,
    programs: &[&str],
    program: &Member<'_>,
) -> anyhow::Result<Vec<u8>> {
    archive.add_directory("bin/")?;
    for name in programs {
        archive.add(&format!("bin/{name}"), 0o755, &program(name)?)?;
    }
    archive.finish()
}

fn cni_archive(mut archive: Archive, program: &Member<'_>) -> anyhow::Result<Vec<u8>> {
    archive.add_directory("./")?;
    archive.add("./LICENSE", 0o644, b"A stand-in; the licence of the CNI plugins is Apache-2.0.\n")?;
    archive.add("./README.md", 0o644, b"Stand-ins for the CNI plugins.\n")?;
    for name in CNI_PLUGINS {
        archive.add(&format!("./{name}"), 0o755, &program(name)?)?;
    }
    archive.finish()
}

/// Packs stand-ins for these programs into an archive. `programs` are paths in the archive.
pub fn archive_of(programs: &[&str]) -> anyhow::Result<Vec<u8>> {
    let mut archive = Archive::new(Compression::fast());
    for program in programs {
        archive.add(program, 0o755, &script(program, "of ours", OWN_ARCHITECTURE))?;
    }
    archive.finish()
}

/// A script that prints the name, version and architecture of the program that it replaces.
pub fn script(name: &str, version: &str, arch: &str) -> Vec<u8> {
    let mut text = format!("#!/bin/sh\necho 'a stand-in for {name} {version} ({arch})'\nexit 0\n");
    let mut line = 0;
    while text.len() < STAND_IN_BYTES {
        line += 1;
        text.push_str(&format!("# {name} {version} {arch}: line {line} of nothing\n"));
    }
    text.into_bytes()
}

/// A gzipped tar archive whose bytes are the same in each run: it has no dates and no owners.
struct Archive {
    tar: tar::Builder<GzEncoder<Vec<u8>>>,
}

impl Archive {
    fn new(compression: Compression) -> Archive {
        Archive { tar: tar::Builder::new(GzEncoder::new(Vec::new(), compression)) }
    }

    fn add(&mut self, name: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        self.append(name, tar::EntryType::Regular, mode, content)
    }

    fn add_directory(&mut self, name: &str) -> anyhow::Result<()> {
        self.append(name, tar::EntryType::Directory, 0o755, &[])
    }

    fn append(&mut self, name: &str, kind: tar::EntryType, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        // The name is written directly, because `Header::set_path` would drop the `./` at its beginning. Names in the real
        // archives begin with `./`.
        let field = &mut header.as_gnu_mut().context("a GNU header")?.name;
        field.get_mut(..name.len()).context("a short name")?.copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.tar.append(&header, content).with_context(|| format!("packing {name}"))
    }

    fn finish(self) -> anyhow::Result<Vec<u8>> {
        let mut gzip = self.tar.into_inner()?;
        gzip.flush()?;
        Ok(gzip.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    fn releases() -> Releases {
        Releases {
            kubernetes: "1.34.2".to_owned(),
            containerd: "2.3.4".to_owned(),
            runc: "1.4.3".to_owned(),
            cni_plugins: "1.7.1".to_owned(),
            cloud_provider_aws: "1.31.7".to_owned(),
        }
    }

    fn members(archive: &[u8]) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut tar = tar::Archive::new(GzDecoder::new(archive));
        let mut members = BTreeMap::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
            let mode = entry.header().mode().unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            members.insert(name, (mode, content));
        }
        members
    }

    #[test]
    fn archives_have_the_members_of_the_real_ones() {
        let files = releases().stand_ins().unwrap();
        let containerd = members(
            &files["/containerd/containerd/releases/download/v2.3.4/containerd-2.3.4-linux-arm64.tar.gz"],
        );
        assert_eq!(containerd["bin/containerd"].0, 0o755);
        assert!(containerd["bin/ctr"].1.starts_with(b"#!/bin/sh\necho 'a stand-in for ctr 2.3.4 (arm64)'\n"));
        let cni = members(
            &files["/containernetworking/plugins/releases/download/v1.7.1/cni-plugins-linux-amd64-v1.7.1.tgz"],
        );
        assert!(cni.contains_key("./loopback"));
        assert!(cni.contains_key("./LICENSE"));
    }

    #[test]
    fn stand_ins_differ_by_architecture_but_not_by_run() {
        let files = releases().stand_ins().unwrap();
        assert_eq!(files, releases().stand_ins().unwrap());
        assert_ne!(
            files["/release/v1.34.2/bin/linux/amd64/kubelet"],
            files["/release/v1.34.2/bin/linux/arm64/kubelet"]
        );
    }
}
