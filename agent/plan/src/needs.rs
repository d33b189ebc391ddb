//! Everything that a node downloads or installs: files, images and packages. A cluster without the internet needs mirrors that have all of
//! it.

use std::collections::BTreeSet;

use kops_agent_cluster::addons::collect_images;
use kops_agent_spec::facts::Distro;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::yaml;
use serde::Serialize;
use serde_json::Value;
use toml::Table;

use crate::desired::paths;
use crate::resolve::{HookAction, NodeConfig};
use crate::resource::{Content, DesiredState, File, Resource};

/// A file, image, package or package source that a mirror must have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    pub kind: NeedKind,
    /// The URL of a file, the reference of an image, the name of a package, or a line of apt's sources.
    pub name: String,
    /// Lower-case hexadecimal SHA-256 of a file. `None` if it is unknown.
    pub sha256: Option<String>,
    /// Whether this file is the signing key of a package source. Nodes do not check its hash.
    pub is_signing_key: bool,
    pub mirrors: Vec<String>,
    /// The distribution that needs the package or the package source, such as `ubuntu-24.04`. `None` for files and images.
    pub distribution: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum NeedKind {
    File,
    Image,
    Package,
    PackageSource,
}

impl NeedKind {
    /// The name of the kind in texts and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            NeedKind::File => "file",
            NeedKind::Image => "image",
            NeedKind::Package => "package",
            NeedKind::PackageSource => "packageSource",
        }
    }
}

impl Need {
    pub fn image(reference: impl Into<String>) -> Need {
        Need::new(NeedKind::Image, reference)
    }

    fn new(kind: NeedKind, name: impl Into<String>) -> Need {
        Need {
            kind,
            name: name.into(),
            sha256: None,
            is_signing_key: false,
            mirrors: Vec::new(),
            distribution: None,
        }
    }

    pub fn file(url: &str, mirrors: &[String], sha256: Option<&str>) -> Need {
        let sha256 = sha256.filter(|sha256| !sha256.is_empty()).map(str::to_owned);
        Need { sha256, mirrors: mirrors.to_vec(), ..Need::new(NeedKind::File, url) }
    }

    fn of_distribution(kind: NeedKind, name: &str, distro: &Distro) -> Need {
        let named = [distro.id.as_str(), &distro.version_id];
        let named: Vec<&str> = named.into_iter().filter(|part| !part.is_empty()).collect();
        Need { distribution: Some(named.join("-")), ..Need::new(kind, name) }
    }
}

/// The files, images, packages and package sources that the node needs. Fails if the manifest of a static pod is not YAML, because the
/// pod's images are then unknown.
pub fn of_node(node: &NodeConfig, state: &DesiredState) -> Result<BTreeSet<Need>, Failure> {
    let distro = &node.facts.distro;
    let package = |name: &str| Need::of_distribution(NeedKind::Package, name, distro);
    let mut needs = BTreeSet::new();
    for (_, resource) in state.iter() {
        match resource {
            Resource::File(file) => match &file.content {
                Content::Asset(asset) => {
                    needs.insert(Need::file(&asset.url, &asset.mirrors, asset.sha256.as_deref()));
                }
                _ => needs.extend(images_of_file(file)?.into_iter().map(Need::image)),
            },
            Resource::Image(image) => {
                needs.insert(match image.sources.split_first() {
                    Some((url, mirrors)) => Need::file(url, mirrors, Some(&image.sha256)),
                    None => Need::image(&image.name),
                });
            }
            Resource::Package(wanted) => drop(needs.insert(package(&wanted.name))),
            Resource::KernelModule(module) => needs.extend(module.package.as_deref().map(package)),
            Resource::PackageSource(source) => {
                needs.insert(Need { is_signing_key: true, ..Need::file(&source.keyring, &[], None) });
                let of_line = |line: &String| Need::of_distribution(NeedKind::PackageSource, line, distro);
                needs.extend(source.sources.iter().map(of_line));
            }
            _ => {}
        }
    }
    for hook in &node.hooks {
        if let HookAction::Container { image, .. } = &hook.action {
            needs.insert(Need::image(image));
        }
    }
    // Only machines that warm up for a warm pool pull these images. Callers pass only nodes that do not warm up, so the desired state lacks
    // the images. This function adds them, because a mirror must have them.
    needs.extend(node.config.warm_pool_images.iter().map(Need::image));
    Ok(needs)
}

/// The images that a file of a node names: the images of a static pod, or containerd's image of a pod's sandbox.
fn images_of_file(file: &File) -> Result<BTreeSet<String>, Failure> {
    let mut images = BTreeSet::new();
    let is_manifest = file.path.starts_with(paths::MANIFESTS);
    if !is_manifest && file.path != paths::CONTAINERD_CONFIG {
        return Ok(images);
    }
    let Some(text) = file.content.in_clear() else { return Ok(images) };
    if is_manifest {
        for document in yaml::documents::<Value>(&text) {
            let document = document.map_err(|error| {
                Failure::new(Kind::FileUnreadable, format!("{} is not YAML: {error}", file.path))
            })?;
            collect_images(&document, &mut images);
        }
    } else {
        // A user may replace containerd's configuration by a text that is not TOML. Then containerd reads no image
        // from this text.
        images.extend(sandbox_image(&text.parse().unwrap_or_default()));
    }
    Ok(images)
}

/// The sandbox (pause) image in a configuration of containerd 1 or 2. The setting may be below any plugin.
fn sandbox_image(config: &Table) -> Option<String> {
    let plugins = config.get("plugins")?.as_table()?;
    plugins.values().find_map(|plugin| {
        let of_1 = plugin.get("sandbox_image");
        let of_2 = plugin.get("pinned_images").and_then(|pinned| pinned.get("sandbox"));
        of_1.or(of_2)?.as_str().filter(|image| !image.is_empty()).map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::desired::desired;
    use crate::resolve::testing::control_plane;
    use crate::resource::PackageSource;

    fn names(needs: &BTreeSet<Need>, kind: NeedKind) -> Vec<&str> {
        needs.iter().filter(|need| need.kind == kind).map(|need| need.name.as_str()).collect()
    }

    #[test]
    fn a_control_plane_needs_its_downloads_and_the_images_of_its_pods() {
        let hash = "ab".repeat(32);
        let node = control_plane(|inputs| {
            let kubelet = &mut inputs.config.assets.get_mut("amd64").unwrap()[0];
            *kubelet = format!("{hash}@{kubelet},https://mirror.example.com/kubelet");
            inputs.facts.distro = Distro { id: "ubuntu".into(), version_id: "24.04".into() };
            let containerd = inputs.config.containerd_config.as_mut().unwrap();
            containerd.sandbox_image = Some("registry.k8s.io/pause:3.10".into());
            inputs.config.kubelet_config.pod_infra_container_image = "registry.k8s.io/pause:3.10".into();
            inputs.config.warm_pool_images = vec!["example.com/warm:1".into()];
            for manifest in inputs.manifests.values_mut() {
                *manifest =
                    manifest.replace("name: stored\n", "name: stored\n    image: example.com/stored:1\n");
            }
        });
        let needs = of_node(&node, &desired(&node).unwrap()).unwrap();
        let kubelet = needs.iter().find(|need| need.name.ends_with("/amd64/kubelet")).unwrap();
        assert_eq!(
            (kubelet.kind, kubelet.sha256.as_deref(), kubelet.mirrors.as_slice()),
            (NeedKind::File, Some(hash.as_str()), &["https://mirror.example.com/kubelet".to_owned()][..])
        );
        let runc = needs.iter().find(|need| need.name.ends_with("/runc.amd64")).unwrap();
        assert_eq!(runc.sha256, None);
        let images = names(&needs, NeedKind::Image);
        for image in ["example.com/stored:1", "example.com/warm:1", "registry.k8s.io/pause:3.10"] {
            assert!(images.contains(&image), "{images:?}");
        }
        assert!(images.iter().any(|image| image.starts_with("registry.k8s.io/kube-apiserver")), "{images:?}");
        let package = needs.iter().find(|need| need.name == "libseccomp2").unwrap();
        assert_eq!(package.distribution.as_deref(), Some("ubuntu-24.04"));
    }

    #[test]
    fn the_sandbox_image_is_found_in_both_formats_of_containerd() {
        for config in [
            "[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"a/pause:1\"",
            "[plugins.x]\ny = 1\n[plugins.\"io.containerd.cri.v1.images\".pinned_images]\nsandbox = \"a/pause:1\"",
        ] {
            assert_eq!(sandbox_image(&config.parse().unwrap()).as_deref(), Some("a/pause:1"), "{config}");
        }
        assert_eq!(sandbox_image(&"version = 3".parse().unwrap()), None);
    }

    #[test]
    fn a_manifest_that_is_no_yaml_is_an_error_that_names_it() {
        let node = control_plane(|_| {});
        let mut state = DesiredState::default();
        state.add(File::text("/etc/kubernetes/manifests/a.manifest", "kind: [Pod"));
        let error = of_node(&node, &state).unwrap_err();
        assert_eq!(error.kind, Kind::FileUnreadable);
        assert!(error.to_string().starts_with("/etc/kubernetes/manifests/a.manifest is not YAML"), "{error}");
    }

    #[test]
    fn a_signing_key_is_a_file_of_its_own_kind() {
        let node = control_plane(|_| {});
        let mut state = DesiredState::default();
        let (keyring, sources) = ("https://x.example.com/key".to_owned(), vec!["deb https://x /".to_owned()]);
        state.add(PackageSource { name: "x".into(), keyring: keyring.clone(), sources });
        state.add(PackageSource { name: "y".into(), keyring, sources: vec![] });
        let needs = of_node(&node, &state).unwrap();
        assert_eq!(names(&needs, NeedKind::File), ["https://x.example.com/key"]);
        assert!(needs.iter().all(|need| need.is_signing_key == (need.kind == NeedKind::File)), "{needs:?}");
        let node_needs = of_node(&node, &desired(&node).unwrap()).unwrap();
        assert!(node_needs.iter().all(|need| !need.is_signing_key), "{node_needs:?}");
    }

    #[test]
    fn a_distribution_without_a_version_is_named_by_its_id() {
        for (version, named) in [("12", "debian-12"), ("", "debian")] {
            let distro = Distro { id: "debian".into(), version_id: version.into() };
            let need = Need::of_distribution(NeedKind::Package, "a", &distro);
            assert_eq!(need.distribution.as_deref(), Some(named));
        }
    }
}
