//! The place from which a cluster pulls an image (upstream: `pkg/assets/builder.go`, `NormalizeImage`).

use kops_agent_spec::AssetsSpec;

/// The image's name in this cluster. The name is first changed for the cluster's proxy, then for the cluster's registry.
pub(super) fn remap_image(assets: Option<&AssetsSpec>, image: &str) -> String {
    let mut image = image.to_owned();
    if let Some(proxy) = assets.and_then(|assets| assets.container_proxy.as_deref()) {
        image = through_proxy(proxy.strip_suffix('/').unwrap_or(proxy), &image);
    }
    if let Some(registry) = assets.and_then(|assets| assets.container_registry.as_deref()) {
        image = in_registry(registry, &image);
    }
    image
}

/// Puts the proxy before the name of an image on Docker Hub. For any other image, the proxy replaces the
/// registry.
fn through_proxy(proxy: &str, image: &str) -> String {
    let (first, rest) = image.split_at(image.find('/').unwrap_or(image.len()));
    let on_docker_hub = image.matches('/').count() <= 1 && !first.contains(['.', ':']);
    match (on_docker_hub, first) {
        (true, _) => format!("{proxy}/{image}"),
        (false, "") => image.to_owned(),
        (false, _) => format!("{proxy}{rest}"),
    }
}

/// Returns the image's name in the cluster's registry. Slashes in the name become dashes, because this registry has only
/// one level of names.
fn in_registry(registry: &str, image: &str) -> String {
    let image = image.strip_prefix("registry.k8s.io/").unwrap_or(image);
    if image.strip_prefix(registry).is_some_and(|rest| rest.starts_with('/')) {
        return image.to_owned();
    }
    format!("{registry}/{}", image.replace('/', "-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_replaces_registries() {
        let assets =
            AssetsSpec { container_proxy: Some("proxy.example.com/".into()), ..AssetsSpec::default() };
        for (image, remapped) in [
            ("registry.k8s.io/kube-proxy:v1.34.0", "proxy.example.com/kube-proxy:v1.34.0"),
            ("quay.io/cilium/cilium:v1", "proxy.example.com/cilium/cilium:v1"),
            ("debian", "proxy.example.com/debian"),
            ("weaveworks/weave-kube:1", "proxy.example.com/weaveworks/weave-kube:1"),
            ("localhost:5000/x", "proxy.example.com/x"),
            ("debian:12", "proxy.example.com"),
        ] {
            assert_eq!(remap_image(Some(&assets), image), remapped);
        }
    }

    #[test]
    fn image_names_in_a_registry_have_no_slashes() {
        let assets =
            AssetsSpec { container_registry: Some("r.example.com/k".into()), ..AssetsSpec::default() };
        for (image, remapped) in [
            ("registry.k8s.io/kube-proxy:v1.34.0", "r.example.com/k/kube-proxy:v1.34.0"),
            ("quay.io/cilium/cilium:v1", "r.example.com/k/quay.io-cilium-cilium:v1"),
            ("r.example.com/k/x", "r.example.com/k/x"),
        ] {
            assert_eq!(remap_image(Some(&assets), image), remapped);
        }
        assert_eq!(remap_image(None, "debian"), "debian");
    }
}
