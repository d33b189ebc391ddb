//! Lists the images of add-ons, which need a mirror in a cluster without the internet.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use kops_agent_cluster::addons::{ServerVersion, collect_images};
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_store::Store;

use super::reading;

/// The images of the add-ons that these channels select for a version of Kubernetes. Warns of skipped entries.
pub async fn images(store: &Store, channels: &[String], kubernetes: &str) -> Result<BTreeSet<String>> {
    let version = ServerVersion::parse(kubernetes).ok_or_else(|| {
        Failure::new(Kind::SpecWrong, format!("{kubernetes:?} is not a version of Kubernetes"))
    })?;
    let mut images = BTreeSet::new();
    for menu in reading::menus(store, channels, version).await? {
        reading::warn_of_left_out(menu.left_out.iter());
        for addon in &menu.addons {
            let objects = reading::manifest(store, addon).await;
            let objects =
                objects.with_context(|| format!("listing the images of the add-on {}", addon.name))?;
            objects.iter().for_each(|object| collect_images(&object.value, &mut images));
        }
    }
    Ok(images)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_tests::test_server::{TestServer, text};

    use super::*;

    fn pod(image: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{containers: [{{name: a, image: {image}}}]}}\n"
        )
    }

    /// If two channels have an add-on, only the last channel counts. An entry whose version range is wrong does not count.
    #[tokio::test]
    async fn only_images_of_add_ons_that_are_applied_are_listed() {
        let server = TestServer::start(|request| async move {
            Ok(match request.uri().path() {
                "/first.yaml" => text(
                    200,
                    "kind: Addons\nspec:\n  addons:\n  - {name: both, manifest: early.yaml}\n  - {name: one, manifest: one.yaml}\n  \
                     - {name: broken, manifest: none.yaml, kubernetesVersion: '>=x'}\n",
                ),
                "/second.yaml" => text(200, "kind: Addons\nspec:\n  addons:\n  - {name: both, manifest: late.yaml}\n"),
                path => match path.strip_suffix(".yaml") {
                    Some(name @ ("/early" | "/late" | "/one")) => text(200, &pod(&format!("example.com{name}"))),
                    _ => text(404, ""),
                },
            })
        })
        .await;
        let store = Store::new(&[]).unwrap().reading_in_clear();
        let channels = ["first", "second"].map(|name| format!("{}/{name}.yaml", server.url));
        let images = images(&store, &channels, "1.34.2").await.unwrap();
        assert_eq!(images.into_iter().collect::<Vec<_>>(), ["example.com/late", "example.com/one"]);
    }
}
