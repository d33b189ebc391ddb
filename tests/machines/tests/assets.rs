//! What machines download: the real programs that `tests/kube` builds, under the paths of their publishers, and images
//! made of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use flate2::Compression;
use kops_agent_tests::registry::Images;
use kops_agent_tests::stand_ins::{OWN_ARCHITECTURE, Releases, script};

/// What is built once and served to every cluster.
pub struct Assets {
    pub releases: Releases,
    pub images: Arc<Images>,
    kube: PathBuf,
}

/// The assets of all tests.
pub fn assets() -> &'static Assets {
    static ASSETS: OnceLock<Assets> = OnceLock::new();
    ASSETS.get_or_init(|| {
        let kube = PathBuf::from(crate::script("kube/build", &[]).trim());
        let releases = releases(&kube);
        Assets { images: Arc::new(images(&kube, &releases)), releases, kube }
    })
}

impl Assets {
    /// The downloads, by the paths of their URLs.
    pub fn downloads(&self) -> BTreeMap<String, Vec<u8>> {
        let program = |name: &str, version: &str| {
            let built = self.kube.join(name);
            // No node of these tests runs the others.
            Ok(if built.exists() { fs::read(built)? } else { script(name, version, OWN_ARCHITECTURE) })
        };
        self.releases.downloads(OWN_ARCHITECTURE, Compression::none(), program).unwrap()
    }
}

fn releases(kube: &Path) -> Releases {
    let versions = fs::read_to_string(kube.join("versions")).unwrap();
    let version = |of: &str| {
        let found = versions.lines().filter_map(|line| line.split_once('=')).find(|(name, _)| *name == of);
        found.unwrap_or_else(|| panic!("tests/kube has no version of {of}")).1.to_owned()
    };
    Releases {
        kubernetes: version("kubernetes"),
        containerd: version("containerd"),
        runc: version("runc"),
        cni_plugins: version("cni-plugins"),
        ..kops_agent_tests::example_store::releases()
    }
}

fn images(kube: &Path, releases: &Releases) -> Images {
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
    let pause = program("pause");
    images.add("pause", "3.10.1", &[("/pause", &pause)]).unwrap();
    // These clusters have no addons, so there is nothing for channels to do.
    images.add("kops/channels", &releases.kubernetes, &[("/ko-app/channels", &pause)]).unwrap();
    images
}
