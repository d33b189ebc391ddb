//! A control plane for trials of control-plane mode, on loopback. It has a real kube-apiserver and etcd with kOps' RBAC, a
//! stand-in for EC2, and Nodes without labels.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;

use crate::api_server::ApiServer;
use crate::ec2::{Ec2, Instance};
use crate::example_store::{BUCKET, CLUSTER, CONFIG_BASE, CONTROL_PLANE, ExampleStore, NODES, REGION};

/// The Kubernetes user of kops-controller. kOps grants the controller's rights to this user.
const USER: &str = "system:serviceaccount:kube-system:kops-controller";

/// For each machine: the instance id, the group in EC2, and the instance id in the provider ID of its Node.
const MACHINES: [(&str, &str, &str); 4] = [
    ("i-0c0ffee0000000001", CONTROL_PLANE, "i-0c0ffee0000000001"),
    ("i-0c0ffee0000000002", NODES, "i-0c0ffee0000000002"),
    ("i-0c0ffee0000000003", NODES, "i-0c0ffee0000000003"),
    // This worker's Node claims to be the control plane.
    ("i-0bad0000000000004", NODES, "i-0c0ffee0000000001"),
];

/// The control plane, which runs until this value is dropped.
#[derive(Debug)]
pub struct ExampleControlPlane {
    pub api: ApiServer,
    pub ec2: Ec2,
    pub config: PathBuf,
    /// The kubeconfig of the controller's user.
    pub kubeconfig: PathBuf,
    /// The value of `--store-mirror`: `URL=DIR`.
    pub store_mirror: String,
}

impl ExampleControlPlane {
    /// Starts the control plane with the programs in the folder `assets`. `folder` is for the control plane's files.
    /// `rbac` is kOps' manifest of kops-controller's rights.
    pub fn start(assets: &Path, folder: &Path, rbac: &str) -> anyhow::Result<ExampleControlPlane> {
        let store = ExampleStore::write(folder, None)?;
        let api = ApiServer::start(assets)?;
        api.kubectl(&["apply", "-f", "-"], rbac)?;
        let ec2 = Ec2::start()?;
        for (instance, group, claimed) in MACHINES {
            ec2.put(instance, Instance::of_group(CLUSTER, group));
            let node = json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {"name": instance, "labels": {"kubernetes.io/hostname": instance}},
                "spec": {"providerID": format!("aws:///{REGION}a/{claimed}")}
            });
            api.kubectl(&["create", "-f", "-"], &node.to_string())?;
        }
        // The configuration has no `server`, because no machine joins this cluster.
        let options = json!({"clusterName": CLUSTER, "cloud": "aws", "configBase": CONFIG_BASE});
        let config = folder.join("config.yaml");
        fs::write(&config, options.to_string()).context("writing the controller's configuration")?;
        let kubeconfig = api.kubeconfig(USER, &[])?;
        let store_mirror = format!("s3://{BUCKET}={}", store.buckets().join(BUCKET).display());
        Ok(ExampleControlPlane { api, ec2, config, kubeconfig, store_mirror })
    }
}
