//! The example store as kOps 1.34 to 1.36 writes it.
//!
//! Source: upup/pkg/fi/cloudup/apply_cluster.go, pkg/model/components/kubelet.go and containerd.go at v1.34.3, v1.35.2 and v1.36.2.

use std::collections::BTreeMap;
use std::fs;

use anyhow::Context;
use serde_yaml::Value;

use crate::example_store::ExampleStore;
use crate::machine_store::merge;
use crate::stand_ins::ARCHITECTURES;

/// Stand-ins for programs of kOps. The stand-ins are scripts, so they are the same for all architectures.
const PROGRAMS: [(&str, &[u8]); 2] = [
    ("protokube", include_bytes!("../machines/protokube")),
    ("channels", include_bytes!("../machines/channels")),
];

/// The downloads of this version of kOps. The key is the URL path.
pub fn downloads(version: &str) -> BTreeMap<String, Vec<u8>> {
    let of = |arch: &'static str| {
        PROGRAMS.map(|(name, program)| {
            (format!("/binaries/kops/{version}/linux/{arch}/{name}"), program.to_vec())
        })
    };
    ARCHITECTURES.into_iter().flat_map(of).collect()
}

/// Changes the store to the format of this version of kOps. Does not change the configurations of the groups, because kOps derives
/// them from the rest of the store ([`ExampleStore::write_nodeup_config`]).
pub fn write_as(store: &ExampleStore, version: &str) -> anyhow::Result<()> {
    let folder = store.cluster_folder();
    let minor: u32 = version
        .strip_prefix("1.")
        .and_then(|version| version.split('.').next()?.parse().ok())
        .with_context(|| format!("{version} is not a version of kOps 1"))?;
    let write = |path: &str, text: &str| {
        let file = folder.join(path);
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))
    };
    write("kops-version.txt", version)?;
    if minor <= 35 {
        // Up to kOps 1.35, protokube applies the add-ons, so the store has no manifest of the channels pod.
        fs::remove_dir_all(folder.join("manifests/channels")).context("removing the channels' manifest")?;
    }
    if minor <= 34 {
        const SPEC: &str = "cluster-completed.spec";
        let mut cluster: Value = serde_yaml::from_str(&fs::read_to_string(folder.join(SPEC))?)?;
        let image =
            cluster["spec"]["containerd"]["sandboxImage"].as_str().context("spec.containerd.sandboxImage")?;
        let kubelet = format!("{{podInfraContainerImage: '{image}'}}");
        let patch = format!(
            "spec: {{containerd: {{sandboxImage: null}}, kubelet: {kubelet}, masterKubelet: {kubelet}}}"
        );
        merge(&mut cluster, serde_yaml::from_str(&patch)?);
        write(SPEC, &serde_yaml::to_string(&cluster)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::example_keys::Keyset;

    use super::*;

    /// Returns three answers for the store of this version. The first is whether its spec sets the pause image for containerd. The
    /// second is the same for kubelet. The third is whether the store contains the channels' manifest.
    fn written_as(version: &str) -> (bool, bool, bool) {
        let folder = tempfile::tempdir().unwrap();
        let store =
            ExampleStore::write_with_keys(folder.path(), None, &[Keyset::make("kubernetes-ca", 1).unwrap()])
                .unwrap();
        write_as(&store, version).unwrap();
        let at = store.cluster_folder();
        assert_eq!(fs::read_to_string(at.join("kops-version.txt")).unwrap(), version);
        let cluster: Value =
            serde_yaml::from_str(&fs::read_to_string(at.join("cluster-completed.spec")).unwrap()).unwrap();
        let has = |part: &str, field: &str| cluster["spec"][part][field] == "registry.k8s.io/pause:3.10.1";
        assert_eq!(has("kubelet", "podInfraContainerImage"), has("masterKubelet", "podInfraContainerImage"));
        (
            has("containerd", "sandboxImage"),
            has("kubelet", "podInfraContainerImage"),
            at.join("manifests/channels").exists(),
        )
    }

    #[test]
    fn a_store_has_the_form_of_its_release() {
        assert_eq!(written_as("1.34.3"), (false, true, false));
        assert_eq!(written_as("1.35.2"), (true, false, false));
        assert_eq!(written_as("1.36.2"), (true, false, true));
    }
}
