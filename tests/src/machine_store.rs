//! The example store for a machine that runs the programs of `tests/kube`, with the changes of a `vm-tests` case.

use std::fs;
use std::path::Path;

use anyhow::Context;
use flate2::Compression;
use serde_yaml::Value;

use crate::digest::sha256_hex;
use crate::example_keys::make_keysets;
use crate::example_store::{ExampleStore, releases, releases_before_1_37};
use crate::machine_metadata::Cloud;
use crate::registry::Images;
use crate::released_store;
use crate::stand_ins::{OWN_ARCHITECTURE, Releases, script};

/// The release of GCE's cloud provider that contains the credential provider for kOps (`pkg/assets/wellknownassets`).
const GCE_CREDENTIALS: &str = "35.0.0";

/// The version of a program in `folder`, from the file `versions` in the folder.
pub fn version_in(folder: &Path, of: &str) -> anyhow::Result<String> {
    let file = folder.join("versions");
    let versions = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let found = versions.lines().filter_map(|line| line.split_once('=')).find(|(name, _)| *name == of);
    found.map(|(_, version)| version.to_owned()).with_context(|| format!("{} has no {of}", file.display()))
}

/// The releases of the programs in `kube`, a folder that `tests/kube/build` has made.
pub fn built_releases(kube: &Path) -> anyhow::Result<Releases> {
    let version = |of: &str| version_in(kube, of);
    Ok(Releases {
        kubernetes: version("kubernetes")?,
        containerd: version("containerd")?,
        runc: version("runc")?,
        cni_plugins: version("cni-plugins")?,
        ..releases()
    })
}

/// The program with this name from the first folder that contains it.
pub fn program_in(folders: &[impl AsRef<Path>], name: &str, version: &str) -> anyhow::Result<Vec<u8>> {
    let built = folders.iter().map(|folder| folder.as_ref().join(name)).find(|file| file.exists());
    // If no folder contains the program, a script replaces it, because no node of these tests runs the program.
    Ok(match built {
        Some(file) => fs::read(&file).with_context(|| format!("reading {}", file.display()))?,
        None => script(name, version, OWN_ARCHITECTURE),
    })
}

/// Writes downloads to `folder`, at the paths of their URLs, each with a `.sha256` file. The downloads contain the programs in `kube`. For
/// machines with the kOps versions in `kops`, they also contain the older kubelet in `kubelet` and stand-ins for kOps' programs.
pub fn write_downloads(kube: &Path, kubelet: &Path, kops: &[String], folder: &Path) -> anyhow::Result<()> {
    let releases = built_releases(kube)?;
    let older = Releases {
        kubernetes: version_in(kubelet, "kubernetes")?,
        cni_plugins: releases_before_1_37().cni_plugins,
        ..releases.clone()
    };
    let mut downloads = releases.stand_ins()?;
    downloads.extend(older.stand_ins()?);
    for (releases, folders) in [(&older, &[kubelet, kube][..]), (&releases, &[kube][..])] {
        downloads.extend(releases.downloads(OWN_ARCHITECTURE, Compression::none(), |name, version| {
            program_in(folders, name, version)
        })?);
    }
    downloads.extend(kops.iter().flat_map(|version| released_store::downloads(version)));
    // On GCE, kubelet gets its registry credentials from this program. A stand-in is enough, because no image of the tests needs
    // credentials.
    let name = "auth-provider-gcp";
    downloads.insert(
        format!("/binaries/cloud-provider-gcp/v{GCE_CREDENTIALS}/{name}/linux/{OWN_ARCHITECTURE}/{name}"),
        script(name, GCE_CREDENTIALS, OWN_ARCHITECTURE),
    );
    for (path, content) in downloads {
        let file = folder.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        let sum = sha256_hex(&content);
        fs::write(&file, content).with_context(|| format!("writing {}", file.display()))?;
        fs::write(format!("{}.sha256", file.display()), sum)?;
    }
    Ok(())
}

/// The images that a worker pulls before it joins. Each image contains the program `pause`, which does nothing.
pub fn images(kube: &Path, releases: &Releases) -> anyhow::Result<Images> {
    let file = kube.join("pause");
    let pause = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
    let mut images = Images::default();
    for (name, tag) in [("pause", "3.10.1".to_owned()), ("kube-proxy", format!("v{}", releases.kubernetes))] {
        images.add(name, &tag, &[("/pause", &pause)])?;
    }
    Ok(images)
}

/// Writes the example's store and boot configs to `folder`, for machines of this cloud that download these releases from `mirror`.
/// Each file in `overlays` is merged (RFC 7396) into the file with the same path in the cluster's folder. If the cluster's folder
/// has no such file, the file is copied.
pub fn write(
    folder: &Path,
    cloud: Cloud,
    releases: &Releases,
    mirror: &str,
    overlays: &[impl AsRef<Path>],
) -> anyhow::Result<ExampleStore> {
    let store = ExampleStore::write_with_keys(folder, Some(mirror), &make_keysets()?)?;
    let example = crate::example_store::releases();
    replace_below(&store.cluster_folder(), &|text| {
        let text = text.replace(&example.kubernetes, &releases.kubernetes);
        let text = text.replace(&example.containerd, &releases.containerd);
        of_cloud(cloud, &text.replace(&example.runc, &releases.runc))
    })?;
    replace_below(&folder.join("machines"), &|text| of_cloud(cloud, text))?;
    for overlay in overlays {
        merge_below(&store.cluster_folder(), overlay.as_ref())?;
    }
    Ok(store)
}

fn of_cloud(cloud: Cloud, text: &str) -> String {
    match cloud {
        Cloud::Aws => text.to_owned(),
        Cloud::Gce => text.replace("s3://", "gs://").replace("CloudProvider: aws", "CloudProvider: gce"),
    }
}

/// Replaces the text of each file below a folder with the result of `change`.
pub fn replace_below(folder: &Path, change: &dyn Fn(&str) -> String) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            replace_below(&path, change)?;
        } else {
            let text = fs::read_to_string(&path)?;
            fs::write(&path, change(&text)).with_context(|| format!("writing {}", path.display()))?;
        }
    }
    Ok(())
}

fn merge_below(target: &Path, overlay: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(overlay).with_context(|| format!("reading {}", overlay.display()))? {
        let path = entry?.path();
        let target = target.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            fs::create_dir_all(&target)?;
            merge_below(&target, &path)?;
            continue;
        }
        if !target.is_file() {
            fs::copy(&path, &target).with_context(|| format!("adding {}", target.display()))?;
            continue;
        }
        let read = |file: &Path| -> anyhow::Result<Value> {
            serde_yaml::from_str(&fs::read_to_string(file)?)
                .with_context(|| format!("reading {}", file.display()))
        };
        let mut merged = read(&target)?;
        merge(&mut merged, read(&path)?);
        fs::write(&target, serde_yaml::to_string(&merged)?)?;
    }
    Ok(())
}

/// Applies a JSON merge patch (RFC 7396): a null in the patch removes the field.
pub fn merge(target: &mut Value, patch: Value) {
    let Value::Mapping(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_mapping() {
        *target = Value::Mapping(Default::default());
    }
    let Value::Mapping(fields) = target else { return };
    for (name, value) in patch {
        if value.is_null() {
            fields.remove(&name);
        } else {
            let field = fields.entry(name).or_insert(Value::Null);
            merge(field, value);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_patch_changes_adds_and_removes_fields() {
        let mut target: Value = serde_yaml::from_str("{a: {b: 1, c: 2}, d: [1]}").unwrap();
        merge(&mut target, serde_yaml::from_str("{a: {b: null, e: {f: 3}}, d: [2, 3]}").unwrap());
        let wanted: Value = serde_yaml::from_str("{a: {c: 2, e: {f: 3}}, d: [2, 3]}").unwrap();
        assert_eq!(target, wanted);
    }
}
