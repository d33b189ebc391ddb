//! Checks that every file of every store in the conformance corpus is readable, and that a nodeupconfig.yaml loses nothing in a round trip
//! through our types. The corpus is not in the repository. Without it these tests print a message and pass.

// These tests must read the corpus. The lint is for the crate under test, which must not read files.
#![allow(clippy::disallowed_methods, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use kops_agent_spec::{BootConfig, Cluster, InstanceGroup, Keyset, NodeupConfig, Secret};
use serde_json::Value;

use crate::corpus::corpora;

fn files_below(folder: &Path, wanted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path, wanted));
        } else if wanted(&path) {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn named<'a>(name: &'a str) -> impl Fn(&Path) -> bool + 'a {
    move |path| path.file_name().is_some_and(|file| file == name)
}

/// Applies `check` to every matching file below a folder of each corpus. Fails with a list of all problems.
fn for_all(folder: &str, wanted: &dyn Fn(&Path) -> bool, check: impl Fn(&[u8], &str) -> Result<(), String>) {
    let corpora = corpora();
    if corpora.is_empty() {
        return;
    }
    let files: Vec<PathBuf> =
        corpora.iter().flat_map(|corpus| files_below(&corpus.join(folder), wanted)).collect();
    assert!(!files.is_empty(), "the corpus has no such file");
    let problems: Vec<String> = files
        .iter()
        .filter_map(|path| check(&fs::read(path).unwrap(), &path.display().to_string()).err())
        .collect();
    assert!(problems.is_empty(), "{} of {} files:\n{}", problems.len(), files.len(), problems.join("\n"));
}

fn yaml(text: &[u8]) -> Value {
    serde_yaml::from_slice(text).unwrap()
}

#[test]
fn every_nodeup_config_survives_a_round_trip() {
    for_all("stores", &named("nodeupconfig.yaml"), |text, url| {
        let config = NodeupConfig::parse(text, url).map_err(|error| error.to_string())?;
        let written = serde_json::to_value(&config).unwrap();
        if written == yaml(text) { Ok(()) } else { Err(format!("{url} changed")) }
    });
}

#[test]
fn every_boot_config_survives_a_round_trip() {
    for_all("cases", &named("kube_env.yaml"), |text, url| {
        let config = BootConfig::parse(text, url).map_err(|error| error.to_string())?;
        let written = serde_json::to_value(&config).unwrap();
        if written == yaml(text) { Ok(()) } else { Err(format!("{url} changed")) }
    });
}

fn below_folder(name: &str) -> impl Fn(&Path) -> bool {
    move |path| path.ancestors().nth(1).and_then(Path::file_name).is_some_and(|folder| folder == name)
}

#[test]
fn every_cluster_is_readable_and_has_a_cloud() {
    let wanted = |path: &Path| named("config")(path) || named("cluster-completed.spec")(path);
    for_all("stores", &wanted, |text, url| {
        let cluster = Cluster::parse(text, url).map_err(|error| error.to_string())?;
        match cluster.cloud_provider() {
            Some(_) if !cluster.metadata.name.is_empty() => Ok(()),
            _ => Err(format!("{url} has no cloud or no name")),
        }
    });
}

#[test]
fn every_instance_group_is_readable() {
    for_all("stores", &below_folder("instancegroup"), |text, url| {
        InstanceGroup::parse(text, url).map(drop).map_err(|error| error.to_string())
    });
}

#[test]
fn every_keyset_has_a_primary_key_and_trusted_certificates() {
    for_all("stores", &named("keyset.yaml"), |text, url| {
        let keyset = Keyset::parse(text, url).map_err(|error| error.to_string())?;
        let primary = keyset.primary().ok_or(format!("{url} has no primary"))?;
        let whole = primary.id == keyset.primary_id()
            && primary.private_material.is_some()
            && primary
                .certificate
                .as_ref()
                .is_some_and(|one| keyset.trusted_certificates_pem().contains(&one.pem()));
        if whole { Ok(()) } else { Err(format!("{url} lost something")) }
    });
}

#[test]
fn every_secret_is_readable() {
    for_all("stores", &below_folder("secrets"), |text, url| {
        Secret::parse(text, url).map(drop).map_err(|error| error.to_string())
    });
}

/// In cluster-spec mode, kops-agent takes certificates, public keys and the ids of primary keys from the store's keysets. Each
/// `nodeupconfig.yaml` must have the same certificates, public keys and ids as these keysets.
#[test]
fn trusted_certificates_equal_those_in_nodeup_configs() {
    for_all("stores", &named("nodeupconfig.yaml"), |text, url| {
        let config = NodeupConfig::parse(text, url).map_err(|error| error.to_string())?;
        let store = Path::new(url).ancestors().nth(4).unwrap();
        let keyset = |id: &str| {
            let path = store.join("pki/private").join(id).join("keyset.yaml");
            Keyset::parse(&fs::read(&path).unwrap(), &path.display().to_string()).unwrap()
        };
        for (id, certificates) in &config.cas {
            if keyset(id).trusted_certificates_pem() != *certificates {
                return Err(format!("{url}: {id} differs"));
            }
        }
        for (id, primary) in &config.keypair_ids {
            if keyset(id).primary_id() != primary {
                return Err(format!("{url}: the primary of {id} differs"));
            }
        }
        match &config.api_server_config {
            Some(api_server)
                if keyset("service-account").public_keys_pem().unwrap()
                    != api_server.service_account_public_keys =>
            {
                Err(format!("{url}: the service account keys differ"))
            }
            _ => Ok(()),
        }
    });
}

#[test]
fn boot_configs_pin_the_hash_of_their_nodeup_config() {
    for_all("cases", &named("kube_env.yaml"), |text, url| {
        let boot = BootConfig::parse(text, url).map_err(|error| error.to_string())?;
        let wanted = format!(
            "{}/igconfig/{}/{}/nodeupconfig.yaml",
            boot.cluster_name,
            boot.instance_group_role.folder(),
            boot.instance_group_name
        );
        let fixture = Path::new(url).parent().unwrap().file_name().unwrap().to_str().unwrap();
        let corpus = Path::new(url).ancestors().nth(3).unwrap();
        let store = corpus.join("stores").join(fixture.split("--").next().unwrap());
        let files = files_below(&store, &|path| path.ends_with(&wanted));
        let [file] = files.as_slice() else { return Err(format!("{url}: no {wanted}")) };
        NodeupConfig::verify_hash(&fs::read(file).unwrap(), &boot.nodeup_config_hash, url)
            .map_err(|error| error.to_string())
    });
}

#[test]
fn every_field_that_kops_writes_is_read() {
    let none_ignored = |ignored: Vec<String>, url: &str| {
        if ignored.is_empty() { Ok(()) } else { Err(format!("{url}: {}", ignored.join(", "))) }
    };
    for_all("stores", &named("cluster-completed.spec"), |text, url| {
        none_ignored(Cluster::ignored_fields(text, url).map_err(|error| error.to_string())?, url)
    });
    for_all("stores", &below_folder("instancegroup"), |text, url| {
        none_ignored(InstanceGroup::ignored_fields(text, url).map_err(|error| error.to_string())?, url)
    });
}
