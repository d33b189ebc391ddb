//! Checks that a configuration derived from the conformance corpus has the same bytes as kOps' own. The corpus is not in the repository.
//! Without it these tests print a message and pass.

// These tests must read the files of the conformance corpus. The lint is for the crate under test, which must not read files.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use kops_agent_plan::derive::{self, Inputs, KnownHashes};
use kops_agent_spec::go_yaml;
use kops_agent_spec::kops_release::{Told, WrittenBy};
use kops_agent_spec::{BootConfig, Cluster, InstanceGroup, InstanceGroupRole, Keyset, NodeupConfig, Secret};

use crate::corpus::{corpora, entries};

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// A cluster's folder in a store. The test reads it as the agent does.
struct Store {
    folder: PathBuf,
    cluster: Cluster,
    user_cluster: Cluster,
    groups: BTreeMap<String, InstanceGroup>,
}

impl Store {
    fn read(folder: &Path) -> Store {
        let cluster = |file: &str| {
            let path = folder.join(file);
            Cluster::parse(&fs::read(&path).unwrap(), &path.display().to_string()).unwrap()
        };
        let group = |path: &PathBuf| {
            let group = InstanceGroup::parse(&fs::read(path).unwrap(), &path.display().to_string()).unwrap();
            (name(path).to_owned(), group)
        };
        Store {
            folder: folder.to_owned(),
            cluster: cluster("cluster-completed.spec"),
            user_cluster: cluster("config"),
            groups: entries(&folder.join("instancegroup")).iter().map(group).collect(),
        }
    }

    fn roles(&self) -> BTreeSet<InstanceGroupRole> {
        self.groups.values().map(|group| group.spec.role).collect()
    }

    /// The addresses of the API's load balancer. Only the cloud knows them, so the test takes them from a configuration that kOps wrote.
    fn api_server_addresses(&self) -> Vec<String> {
        let files = entries(&self.folder.join("igconfig")).into_iter().flat_map(|role| entries(&role));
        let configs = files.filter_map(|folder| fs::read(folder.join("nodeupconfig.yaml")).ok());
        let addresses = configs.map(|text| NodeupConfig::parse(&text, "").unwrap().apiserver_additional_ips);
        addresses.into_iter().find(|addresses| !addresses.is_empty()).unwrap_or_default()
    }

    fn text(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(file)).ok()
    }

    fn keyset(&self, id: &str) -> Option<Keyset> {
        let file = |id: &str| format!("pki/private/{id}/keyset.yaml");
        let text = self.text(&file(id)).or_else(|| self.text(&file(derive::former_keyset_name(id)?)))?;
        Some(Keyset::parse(text.as_bytes(), id).unwrap())
    }

    fn with_inputs<T>(
        &self,
        group: &str,
        written: &NodeupConfig,
        hashes: &KnownHashes,
        then: impl FnOnce(&Inputs<'_>) -> T,
    ) -> T {
        let version_file = self.text("kops-version.txt");
        let written_by = WrittenBy::find(version_file.map(Told::by_version_file).as_ref(), written).unwrap();
        let addresses = self.api_server_addresses();
        let instance_group = &self.groups[group];
        let needed = derive::needed_files(&self.cluster, instance_group);
        let keysets = needed.keysets.iter().filter_map(|id| Some((id.clone(), self.keyset(id)?))).collect();
        let secret = |id: &String| {
            Some((id.clone(), Secret::parse(self.text(&format!("secrets/{id}"))?.as_bytes(), id).unwrap()))
        };
        let secrets = needed.secrets.iter().filter_map(secret).collect();
        let bootstrap_channel =
            needed.bootstrap_channel.then(|| self.text("addons/bootstrap-channel.yaml").unwrap());
        let manifests = bootstrap_channel.as_deref().map(|channel| derive::addon_manifests(channel).unwrap());
        let addon_manifests = manifests
            .into_iter()
            .flatten()
            .filter_map(|path| self.text(&format!("addons/{path}")).map(|text| (path, text)))
            .collect();
        let optional = |file: &str| needed.optional.contains(file).then(|| self.text(file)).flatten();
        then(&Inputs {
            cluster: &self.cluster,
            user_cluster: needed.optional.contains("config").then_some(&self.user_cluster),
            instance_group,
            release: written_by.release,
            kops_version: written_by.version.as_deref(),
            roles: &self.roles(),
            keysets: &keysets,
            secrets: &secrets,
            cluster_addons: optional("clusteraddons/default").as_deref(),
            bootstrap_channel: bootstrap_channel.as_deref(),
            addon_manifests: &addon_manifests,
            asset_hashes: hashes,
            machine_type: None,
            machine_type_has_gpu: None,
            worker_kubernetes_version: None,
            api_server_addresses: &addresses,
            etcd_addresses: &[],
        })
    }
}

/// The folders of clusters in a fixture's store: `stores/<fixture>/<bucket>/<cluster>`. On Azure, a folder for the container is between
/// bucket and cluster.
fn clusters(folder: &Path) -> Vec<PathBuf> {
    match folder.join("cluster-completed.spec").is_file() {
        true => vec![folder.to_owned()],
        false => {
            entries(folder).iter().filter(|path| path.is_dir()).flat_map(|path| clusters(path)).collect()
        }
    }
}

#[test]
fn every_derived_config_has_kops_bytes() {
    let corpora = corpora();
    if corpora.is_empty() {
        return;
    }
    let (mut compared, mut problems) = (0, Vec::new());
    let fixtures = corpora.iter().flat_map(|corpus| entries(&corpus.join("stores")));
    for folder in fixtures.flat_map(|fixture| clusters(&fixture)) {
        let store = Store::read(&folder);
        for file in entries(&folder.join("igconfig")).iter().flat_map(|role| entries(role)) {
            let path = file.join("nodeupconfig.yaml");
            let Ok(written) = fs::read_to_string(&path) else { continue };
            compared += 1;
            let theirs = NodeupConfig::parse(written.as_bytes(), &path.display().to_string()).unwrap();
            let hashes = KnownHashes::of_config(&theirs);
            match store.with_inputs(name(&file), &theirs, &hashes, derive::nodeup_config) {
                Ok(ours) if go_yaml::to_string(&ours) == written => {}
                Ok(ours) => problems.push(format!(
                    "{}:\n{}{}",
                    path.display(),
                    derive::differences(&ours, &theirs)
                        .iter()
                        .map(|one| format!("  {one}\n"))
                        .collect::<String>(),
                    first_different_line(&go_yaml::to_string(&ours), &written)
                )),
                Err(error) => problems.push(format!("{}: {error}", path.display())),
            }
        }
    }
    assert!(compared > 0, "the corpus has no nodeupconfig.yaml");
    assert!(problems.is_empty(), "{} of {compared} differ:\n{}", problems.len(), problems.join("\n"));
    eprintln!("{compared} of {compared} derived configs are byte-identical");
}

fn first_different_line(ours: &str, theirs: &str) -> String {
    let different = ours.lines().zip(theirs.lines()).find(|(ours, theirs)| ours != theirs);
    different.map(|(ours, theirs)| format!("  ours:   {ours}\n  theirs: {theirs}")).unwrap_or_default()
}

#[test]
fn every_derived_boot_config_equals_the_user_datas() {
    let corpora = corpora();
    if corpora.is_empty() {
        return;
    }
    let (mut compared, mut problems) = (0, Vec::new());
    for (corpus, case) in corpora
        .iter()
        .flat_map(|corpus| entries(&corpus.join("cases")).into_iter().map(move |case| (corpus, case)))
    {
        let Ok(text) = fs::read(case.join("kube_env.yaml")) else { continue };
        compared += 1;
        let theirs = BootConfig::parse(&text, name(&case)).unwrap();
        let fixture = corpus.join("stores").join(name(&case).split("--").next().unwrap());
        let folder =
            clusters(&fixture).into_iter().find(|folder| name(folder) == theirs.cluster_name).unwrap();
        let store = Store::read(&folder);
        let role = theirs.instance_group_role.folder();
        let file =
            folder.join("igconfig").join(role).join(&theirs.instance_group_name).join("nodeupconfig.yaml");
        let written = NodeupConfig::parse(&fs::read(&file).unwrap(), "").unwrap();
        let boot =
            store.with_inputs(&theirs.instance_group_name, &written, &KnownHashes::default(), |inputs| {
                derive::boot_config(inputs, &theirs.nodeup_config_hash)
            });
        if boot.as_ref() != Ok(&theirs) {
            problems.push(format!("{}: {boot:?}", name(&case)));
        }
    }
    assert!(compared > 0, "the corpus has no kube_env.yaml");
    assert!(problems.is_empty(), "{} of {compared} differ:\n{}", problems.len(), problems.join("\n"));
    eprintln!("{compared} of {compared} derived boot configs are equal");
}
