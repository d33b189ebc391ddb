//! Groups in a store that changes.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use super::*;

fn write_group(folder: &Path, name: &str, labels: &str) {
    write(folder, &format!("igconfig/node/{name}"), &format!("node-role.kubernetes.io/node: '', {labels}"));
}

fn write(folder: &Path, group: &str, labels: &str) {
    let folder = folder.join(group);
    fs::create_dir_all(&folder).unwrap();
    let text = format!("{{ClusterName: c.example.com, KubeletConfig: {{nodeLabels: {{{labels}}}}}}}");
    fs::write(folder.join(CONFIGURATION), text).unwrap();
}

fn break_group(folder: &Path, name: &str) {
    fs::create_dir_all(folder.join("instancegroup")).unwrap();
    fs::write(folder.join("instancegroup").join(name), "").unwrap();
    fs::create_dir_all(folder.join("igconfig/node").join(name)).unwrap();
    fs::write(folder.join("igconfig/node").join(name).join(CONFIGURATION), "{spec: [").unwrap();
}

fn store() -> (tempfile::TempDir, Groups) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["instancegroup", "igconfig/node/old/nodes", "igconfig/bastion/b"] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    for name in ["igconfig/node/old/nodes/nodeupconfig.yaml", "igconfig/bastion/b/nodeupconfig.yaml"] {
        fs::write(folder.path().join(name), "no group").unwrap();
    }
    write_group(folder.path(), "nodes", "a: '1'");
    for name in ["nodes", "control-plane"] {
        fs::write(folder.path().join("instancegroup").join(name), "").unwrap();
    }
    write(folder.path(), "igconfig/control-plane/control-plane", "node-role.kubernetes.io/control-plane: ''");
    let groups =
        Groups::new(Arc::new(Store::new(&[]).unwrap()), folder.path().to_str().unwrap(), Duration::MAX);
    (folder, groups)
}

fn changed(names: &[&str]) -> Changed {
    Changed(names.iter().map(|name| (*name).to_owned()).collect())
}

fn get(groups: &Groups, name: &str) -> Group {
    groups.get(name, &Labels::new())
}

fn labels(groups: &Groups, name: &str) -> Vec<String> {
    shown(get(groups, name))
}

fn shown(group: Group) -> Vec<String> {
    match group {
        Group::Known(labels) => labels.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        other => vec![format!("{other:?}")],
    }
}

#[tokio::test]
async fn labels_follow_applied_configurations_and_not_saved_groups() {
    let (folder, groups) = store();
    assert_eq!(get(&groups, "nodes"), Group::Unreadable);
    assert_eq!(groups.refresh().await, changed(&["control-plane", "nodes"]));
    assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
    assert_eq!(groups.refresh().await, changed(&[]));

    let edited = "{apiVersion: kops.k8s.io/v1alpha2, kind: InstanceGroup, metadata: {name: nodes}, spec: \
                  {role: Node, nodeLabels: {a: edited}}}";
    fs::write(folder.path().join("instancegroup/nodes"), edited).unwrap();
    assert_eq!(groups.refresh().await, changed(&[]));

    write_group(folder.path(), "nodes", "a: '2', b: x");
    write_group(folder.path(), "more", "");
    assert_eq!(groups.refresh().await, changed(&["more", "nodes"]));
    assert_eq!(labels(&groups, "nodes"), ["a=2", "b=x", "node-role.kubernetes.io/node="]);

    fs::remove_dir_all(folder.path().join("igconfig/node/more")).unwrap();
    assert_eq!(groups.refresh().await, changed(&["more"]));
    assert_eq!(get(&groups, "more"), Group::Unknown);
    assert_eq!(get(&groups, "b"), Group::Unknown, "bastions are no Nodes");
}

#[tokio::test]
async fn groups_of_one_name_are_told_apart_by_the_role_of_the_node() {
    let (folder, groups) = store();
    write(folder.path(), "igconfig/apiserver/nodes", "node-role.kubernetes.io/api-server: ''");
    groups.refresh().await;
    let with = |role: &str| Labels::from([(format!("node-role.kubernetes.io/{role}"), String::new())]);
    assert_eq!(shown(groups.get("nodes", &with("api-server"))), ["node-role.kubernetes.io/api-server="]);
    assert_eq!(shown(groups.get("nodes", &with("node"))), ["a=1", "node-role.kubernetes.io/node="]);
    assert_eq!(get(&groups, "nodes"), Group::Unreadable, "the cloud does not say which");
}

#[tokio::test]
async fn a_group_that_cannot_be_read_is_as_it_was_and_the_others_go_on() {
    let (folder, groups) = store();
    groups.refresh().await;
    assert!(groups.is_current());
    for name in ["nodes", "new"] {
        break_group(folder.path(), name);
    }
    write_group(folder.path(), "others", "b: '1'");
    assert_eq!(groups.refresh().await, changed(&["others"]));
    assert!(!groups.is_current());
    assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
    assert_eq!(get(&groups, "new"), Group::Unreadable, "it may be the one that cannot be read");
    assert_eq!(groups.refresh().await, changed(&[]));
    assert!(!groups.is_current());
    write_group(folder.path(), "nodes", "");
    fs::remove_dir_all(folder.path().join("igconfig/node/new")).unwrap();
    assert_eq!(groups.refresh().await, changed(&["nodes"]));
    assert!(groups.is_current());
    assert_eq!(get(&groups, "new"), Group::Unknown);
}

#[tokio::test]
async fn an_unreadable_file_of_a_deleted_group_is_no_problem() {
    let (folder, groups) = store();
    groups.refresh().await;
    // kOps does not delete all files of a deleted group. Later these files may be unreadable, for example after a change of their version
    // or key.
    break_group(folder.path(), "nodes");
    fs::remove_file(folder.path().join("instancegroup/nodes")).unwrap();
    groups.refresh().await;
    assert!(groups.is_current());
    assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="], "its nodes go last");
    assert_eq!(get(&groups, "new"), Group::Unknown);

    // The group is created again.
    fs::write(folder.path().join("instancegroup/nodes"), "").unwrap();
    write_group(folder.path(), "nodes", "a: '2'");
    assert_eq!(groups.refresh().await, changed(&["nodes"]));
    // If groups cannot be listed, no group counts as deleted.
    break_group(folder.path(), "nodes");
    fs::remove_dir_all(folder.path().join("instancegroup")).unwrap();
    groups.refresh().await;
    assert!(!groups.is_current());
}

#[tokio::test]
async fn an_unchanged_group_is_not_read_again_because_of_a_broken_one() {
    let (folder, groups) = store();
    break_group(folder.path(), "broken");
    groups.refresh().await;
    let file = folder.path().join("igconfig/node/nodes").join(CONFIGURATION);
    let before = fs::metadata(&file).unwrap();
    // Change the content, but keep everything from which the store derives the file's version.
    let text = fs::read_to_string(&file).unwrap().replace("a: '1'", "a: '9'");
    let mut open = fs::File::options().write(true).open(&file).unwrap();
    std::io::Write::write_all(&mut open, text.as_bytes()).unwrap();
    open.set_modified(before.modified().unwrap()).unwrap();
    for _ in 0..2 {
        assert_eq!(groups.refresh().await, changed(&[]));
        assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
        assert!(!groups.is_current(), "the other is tried again each time");
    }
}

/// The file disappears between the listing and the reading. A dangling link cannot simulate this case, because no store lists dangling
/// links.
#[tokio::test]
async fn a_file_that_goes_after_it_was_listed_is_a_deleted_group_until_it_comes_back() {
    let (folder, groups) = store();
    groups.refresh().await;
    let file = "igconfig/node/nodes/nodeupconfig.yaml";
    let versions = groups.store.versions(&groups.base, GROUPS, BEHIND_GROUPS).await.unwrap();
    let before = Read::default();
    let away = folder.path().join("away");
    fs::rename(folder.path().join(file), &away).unwrap();
    let listed: BTreeMap<String, String> =
        versions.into_iter().filter(|(file, _)| group_of(file).is_some()).collect();
    let read = groups.read_listed(listed.clone(), before).await.unwrap();
    assert!(read.problems.is_empty() && !read.groups.contains_key(file), "it is deleted");
    assert!(!read.versions.contains_key(file), "and looked for again");
    fs::rename(&away, folder.path().join(file)).unwrap();
    let again = groups.read_listed(listed, read).await.unwrap();
    assert!(again.groups.contains_key(file));
}

#[tokio::test]
async fn a_store_without_any_group_is_not_believed() {
    let (folder, groups) = store();
    groups.refresh().await;
    let away = folder.path().join("igconfig.away");
    fs::rename(folder.path().join("igconfig"), &away).unwrap();
    assert_eq!(groups.refresh().await, changed(&[]));
    assert!(!groups.is_current());
    assert_eq!(labels(&groups, "nodes"), ["a=1", "node-role.kubernetes.io/node="]);
    assert_eq!(get(&groups, "new"), Group::Unreadable, "it may be a new one");
    fs::rename(away, folder.path().join("igconfig")).unwrap();
    write_group(folder.path(), "new", "");
    assert_eq!(groups.refresh().await, changed(&["new"]));
    assert!(groups.is_current());
}

#[test]
fn only_configurations_of_nodes_and_saved_groups_are_groups() {
    assert_eq!(group_of("instancegroup/nodes"), Some("nodes"));
    assert_eq!(group_of("igconfig/node/nodes/nodeupconfig.yaml"), Some("nodes"));
    assert_eq!(group_of("igconfig/control-plane/cp/nodeupconfig.yaml"), Some("cp"));
    for file in [
        "igconfig/node/nodes/",
        "igconfig/node/",
        "igconfig/node//nodeupconfig.yaml",
        "igconfig/node/old/nodes/nodeupconfig.yaml",
        "igconfig/node/nodes/nodeupconfig.yaml.bak",
        "igconfig/bastion/b/nodeupconfig.yaml",
        "instancegroup/",
        "instancegroup/old/nodes",
        "instancegroups/nodes",
    ] {
        assert_eq!(group_of(file), None, "{file}");
    }
}

/// A store as kOps writes it for machines on metal. It contains no node configurations, only the cluster's spec and the groups that
/// `kops edit ig` has saved.
fn saved_store() -> (tempfile::TempDir, Groups) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("instancegroup")).unwrap();
    save_cluster(folder.path(), "Node");
    save_group(folder.path(), "nodes", "Node", "a: '1'");
    save_group(folder.path(), "control-plane", "ControlPlane", "");
    let store = Arc::new(Store::new(&[]).unwrap());
    let groups = Groups::new(store, folder.path().to_str().unwrap(), Duration::MAX).saved_too(true);
    (folder, groups)
}

fn save_cluster(folder: &Path, label: &str) {
    let text = format!(
        "{{apiVersion: kops.k8s.io/v1alpha2, kind: Cluster, metadata: {{name: c.example.com, labels: \
         {{alpha.kops.k8s.io/cloud: metal}}}}, spec: {{kubernetesVersion: 1.36.0, networking: {{cni: {{}}}}, \
         kubelet: {{nodeLabels: {{of-cluster: {label}}}}}}}}}"
    );
    fs::write(folder.join("cluster-completed.spec"), text).unwrap();
}

fn save_group(folder: &Path, name: &str, role: &str, labels: &str) {
    let text = format!(
        "{{apiVersion: kops.k8s.io/v1alpha2, kind: InstanceGroup, metadata: {{name: {name}}}, spec: \
         {{role: {role}, nodeLabels: {{{labels}}}}}}}"
    );
    fs::write(folder.join("instancegroup").join(name), text).unwrap();
}

#[tokio::test]
async fn without_a_nodeupconfig_labels_follow_the_saved_groups_and_cluster() {
    let (folder, groups) = saved_store();
    assert_eq!(groups.refresh().await, changed(&["control-plane", "nodes"]));
    let role = "node-role.kubernetes.io/node=";
    assert_eq!(labels(&groups, "nodes"), ["a=1", role, "of-cluster=Node"]);
    let of_control_plane = labels(&groups, "control-plane");
    assert!(of_control_plane.contains(&"node-role.kubernetes.io/control-plane=".to_owned()));
    let api_server = "node-role.kubernetes.io/api-server=".to_owned();
    assert!(!of_control_plane.contains(&api_server));
    assert_eq!(get(&groups, "others"), Group::Unknown);
    assert_eq!(groups.refresh().await, changed(&[]));

    save_group(folder.path(), "nodes", "Node", "a: '2'");
    assert_eq!(groups.refresh().await, changed(&["nodes"]));
    // After the cluster gets a group with the role APIServer, control planes have the label `api_server`.
    save_group(folder.path(), "api", "APIServer", "");
    assert_eq!(groups.refresh().await, changed(&["api", "control-plane"]));
    assert!(labels(&groups, "control-plane").contains(&api_server));
    save_cluster(folder.path(), "other");
    assert_eq!(groups.refresh().await, changed(&["api", "nodes"]));
    assert_eq!(labels(&groups, "nodes"), ["a=2", role, "of-cluster=other"]);

    // An operator has copied a configuration of the group into `igconfig`.
    write_group(folder.path(), "nodes", "a: written");
    assert_eq!(groups.refresh().await, changed(&["nodes"]));
    assert_eq!(labels(&groups, "nodes"), ["a=written", role]);
    fs::remove_dir_all(folder.path().join("igconfig")).unwrap();
    assert_eq!(groups.refresh().await, changed(&["nodes"]));

    fs::write(folder.path().join("instancegroup/nodes"), "{spec: [").unwrap();
    save_group(folder.path(), "more", "Node", "");
    assert_eq!(groups.refresh().await, changed(&["more"]));
    assert_eq!(labels(&groups, "nodes"), ["a=2", role, "of-cluster=other"], "what was last read holds");
    assert!(!groups.is_current());
}

#[tokio::test]
async fn while_the_cluster_spec_is_missing_the_last_read_labels_hold() {
    let (folder, groups) = saved_store();
    write_group(folder.path(), "more", "");
    groups.refresh().await;
    let before = labels(&groups, "nodes");
    let (completed, away) = (folder.path().join("cluster-completed.spec"), folder.path().join("away"));
    fs::rename(&completed, &away).unwrap();
    assert_eq!(groups.refresh().await, changed(&[]));
    assert_eq!(labels(&groups, "nodes"), before);
    assert!(!groups.is_current());
    // In older releases of kOps, the file with the cluster's spec has the name `cluster.spec`.
    fs::rename(away, folder.path().join("cluster.spec")).unwrap();
    assert_eq!(groups.refresh().await, changed(&[]));
    assert!(groups.is_current());
}

#[tokio::test]
async fn a_store_that_was_copied_for_one_control_plane_has_its_own_group() {
    let (folder, groups) = saved_store();
    fs::remove_file(folder.path().join("cluster-completed.spec")).unwrap();
    fs::remove_dir_all(folder.path().join("instancegroup")).unwrap();
    write(folder.path(), "igconfig/control-plane/control-plane", "node-role.kubernetes.io/control-plane: ''");
    assert_eq!(groups.refresh().await, changed(&["control-plane"]));
}
