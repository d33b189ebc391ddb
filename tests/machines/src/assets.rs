//! The files that test machines download: real programs that `tests/kube` builds, at the URL paths of their publishers,
//! and container images made from these programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use flate2::Compression;
use kops_agent_tests::machine_store;
use kops_agent_tests::registry::Images;
use kops_agent_tests::stand_ins::{OWN_ARCHITECTURE, Releases};

/// Downloads and images that are built once for all test clusters.
pub struct Assets {
    pub releases: Releases,
    pub images: Arc<Images>,
    kube: PathBuf,
}

/// The assets that all tests share. The first call builds them.
pub fn assets() -> &'static Assets {
    static ASSETS: OnceLock<Assets> = OnceLock::new();
    ASSETS.get_or_init(|| {
        let kube = PathBuf::from(crate::script("kube/build", &[]).trim());
        let releases = machine_store::built_releases(&kube).unwrap();
        Assets { images: Arc::new(images(&kube, &releases)), releases, kube }
    })
}

/// The programs of a cluster's machines: their versions, and the folders that contain them. If several folders contain a
/// program, the first folder is used.
pub struct Programs {
    pub releases: Releases,
    folders: Vec<PathBuf>,
}

impl Programs {
    /// The programs that `tests/kube/build` has built.
    pub fn newest() -> Programs {
        let Assets { releases, kube, .. } = assets();
        Programs { releases: releases.clone(), folders: vec![kube.clone()] }
    }

    /// Replaces kubelet by the build of `tests/kube/kubelet-1.34`. All other programs stay those from `tests/kube`.
    pub fn with_kubelet_1_34(mut self) -> Programs {
        let folder = self.with("kube/kubelet-1.34/build");
        self.releases.kubernetes = machine_store::version_in(&folder, "kubernetes").unwrap();
        self
    }

    pub fn with_containerd_1(mut self) -> Programs {
        let folder = self.with("machines/containerd-1");
        self.releases.containerd = machine_store::version_in(&folder, "containerd").unwrap();
        self
    }

    fn with(&mut self, build: &str) -> PathBuf {
        let folder = PathBuf::from(crate::script(build, &[]).trim());
        self.folders.insert(0, folder.clone());
        folder
    }

    /// The downloads, by the paths of their URLs. For the architecture that this host does not have, the downloads are
    /// stand-ins.
    pub fn downloads(&self) -> BTreeMap<String, Vec<u8>> {
        let program = |name: &str, version: &str| machine_store::program_in(&self.folders, name, version);
        let mut downloads = self.releases.stand_ins().unwrap();
        downloads.extend(self.releases.downloads(OWN_ARCHITECTURE, Compression::none(), program).unwrap());
        downloads
    }
}

/// The registry's images, made from the programs in the folder `kube`.
pub fn images(kube: &Path, releases: &Releases) -> Images {
    let program = |name: &str| fs::read(kube.join(name)).unwrap();
    let runner = program("go-runner");
    let mut images = Images::default();
    let tag = format!("v{}", releases.kubernetes);
    for component in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
        let path = format!("/usr/local/bin/{component}");
        images.add(component, &tag, &[("/go-runner", &runner), (&path, &program(component))]).unwrap();
    }
    let etcd_manager = program("etcd-manager");
    let programs: [(&str, &[u8]); 2] = [("/go-runner", &runner), ("/ko-app/etcd-manager", &etcd_manager)];
    images.add("etcd-manager/etcd-manager-slim", "v3.0.20260707", &programs).unwrap();
    let name = "kube-apiserver-healthcheck";
    images
        .add(&format!("kops/{name}"), &releases.kubernetes, &[("/ko-app/healthcheck", &program(name))])
        .unwrap();
    let kube_proxy = program("kube-proxy");
    let firewall = iptables();
    let mut programs: Vec<(&str, &[u8])> =
        vec![("/go-runner", &runner), ("/usr/local/bin/kube-proxy", &kube_proxy)];
    programs.extend(firewall.iter().map(|(path, content)| (path.as_str(), content.as_slice())));
    images.add("kube-proxy", &tag, &programs).unwrap();
    images.add("hello", "1", &[("/hello", &program("hello"))]).unwrap();
    let pause = program("pause");
    images.add("pause", "3.10.1", &[("/pause", &pause)]).unwrap();
    // The clusters start without add-ons, so the channels program has nothing to do: `pause` stands in for it.
    images.add("kops/channels", &releases.kubernetes, &[("/ko-app/channels", &pause)]).unwrap();
    images
}

/// The files of this host's iptables, with their paths: the program, its modules, and the libraries of both. The program is included once
/// for each name by which kube-proxy calls it.
fn iptables() -> Vec<(String, Vec<u8>)> {
    let program = fs::canonicalize("/usr/sbin/iptables-nft").unwrap();
    let modules = Path::new("/usr/lib").join(format!("{}-linux-gnu/xtables", std::env::consts::ARCH));
    let modules: Vec<PathBuf> = fs::read_dir(modules).unwrap().map(|module| module.unwrap().path()).collect();
    let ldd = Command::new("ldd").arg(&program).args(&modules).output().unwrap();
    let ldd = String::from_utf8(ldd.stdout).unwrap();
    // For each file, ldd prints the file's path with a colon at its end, and then the file's libraries.
    let libraries = ldd.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':'));
    let loaded: BTreeSet<PathBuf> = libraries.map(PathBuf::from).chain(modules).collect();
    let names = ["iptables", "ip6tables"].into_iter();
    let names =
        names.flat_map(|name| ["", "-save", "-restore"].map(|what| format!("/usr/local/bin/{name}{what}")));
    let programs = names.map(|name| (name, fs::read(&program).unwrap()));
    let loaded = loaded.into_iter().map(|file| (file.display().to_string(), fs::read(&file).unwrap()));
    programs.chain(loaded).collect()
}

/// The pod manifest of a single-member etcd cluster. The pod runs the etcd-manager stand-in from `registry`.
pub fn etcd_pod(registry: &str, name: &str, client: u16, peer: u16) -> String {
    etcd_member(registry, name, [client, peer], 0, &[Ipv4Addr::LOCALHOST.into()])
}

/// The manifest of an etcd pod. It is member `number` of a cluster whose members have these `addresses`. Each member serves
/// clients at the port `client` and peers at the port `peer`. The pod has none of the volumes that the real etcd-manager would
/// mount.
pub fn etcd_member(
    registry: &str,
    name: &str,
    [client, peer]: [u16; 2],
    number: usize,
    addresses: &[IpAddr],
) -> String {
    let url = |address: &IpAddr| format!("https://{}", SocketAddr::new(*address, peer));
    let member = |(number, address): (usize, &IpAddr)| format!("member-{number}={}", url(address));
    let members = addresses.iter().enumerate().map(member).collect::<Vec<_>>().join(",");
    let at = url(&addresses[number]);
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  labels:
    k8s-app: etcd-manager-{name}
  name: etcd-manager-{name}
  namespace: kube-system
spec:
  containers:
  - args:
    - --log-file=/var/log/etcd.log
    - --also-stdout
    - /ko-app/etcd-manager
    - --client-urls=https://127.0.0.1:{client}
    - --peer-urls={at}
    - --name=member-{number}
    - --members={members}
    command:
    - /go-runner
    image: {registry}/etcd-manager/etcd-manager-slim:v3.0.20260707
    name: etcd-manager
    volumeMounts:
    - mountPath: /data
      name: data
    - mountPath: /etc/kubernetes/pki/etcd-manager
      name: pki
    - mountPath: /var/log/etcd.log
      name: log
  hostNetwork: true
  priorityClassName: system-cluster-critical
  volumes:
  - hostPath:
      path: /var/lib/etcd-{name}
      type: DirectoryOrCreate
    name: data
  - hostPath:
      path: /etc/kubernetes/pki/etcd-manager-{name}
      type: DirectoryOrCreate
    name: pki
  - hostPath:
      path: /var/log/etcd-{name}.log
      type: FileOrCreate
    name: log
"
    )
}
