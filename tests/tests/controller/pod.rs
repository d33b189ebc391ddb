//! `packaging/kubernetes/controller.yaml` on a real API server. The API server accepts all of it, and a kubelet would give the pod
//! the environment and mounts that kOps gives its own kops-controller.

use std::collections::BTreeMap;

use kops_agent_tests::ec2::Instance;
use serde_json::{Value, json};

use crate::cluster::{CLUSTER, Cluster, id};

const MANIFEST: &str = include_str!("../../../packaging/kubernetes/controller.yaml");

fn get(cluster: &Cluster, arguments: &[&str]) -> Value {
    serde_json::from_str(&cluster.kubectl(&[&["get", "-n", "kube-system", "-o", "json"], arguments].concat()))
        .unwrap()
}

/// A container's environment, as a kubelet computes it: the entries of the pod's Secrets, and the container's own variables, which
/// take precedence.
fn environment(cluster: &Cluster, container: &Value) -> BTreeMap<String, String> {
    let mut environment = BTreeMap::new();
    for from in container["envFrom"].as_array().into_iter().flatten() {
        let name = from["secretRef"]["name"].as_str().unwrap();
        let secrets = get(cluster, &["secrets"]);
        let secret =
            secrets["items"].as_array().unwrap().iter().find(|secret| secret["metadata"]["name"] == name);
        assert!(secret.is_some() || from["secretRef"]["optional"] == true, "the pod waits for {name}");
        for (key, value) in secret.and_then(|secret| secret["data"].as_object()).into_iter().flatten() {
            use base64::Engine as _;
            let value = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap()).unwrap();
            environment.insert(key.clone(), String::from_utf8(value).unwrap());
        }
    }
    for variable in container["env"].as_array().unwrap() {
        let of = |field: &str| variable[field].as_str().unwrap().to_owned();
        environment.insert(of("name"), of("value"));
    }
    environment
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn the_manifest_has_the_environment_and_mounts_of_kops_own_controller() {
    let cluster = Cluster::start();
    cluster.ec2.put(&id(1), Instance::of_group(CLUSTER, "nodes"));
    cluster.api.kubectl(&["apply", "--validate=strict", "-f", "-"], MANIFEST).unwrap();
    let set = get(&cluster, &["daemonset", "kops-agent-controller"]);
    let spec = &set["spec"]["template"]["spec"];
    let container = &spec["containers"][0];

    let alone = environment(&cluster, container);
    assert_eq!(alone["KUBERNETES_SERVICE_HOST"], "127.0.0.1");
    assert!(!alone.contains_key("HCLOUD_TOKEN"));
    let given = [
        ("HCLOUD_TOKEN", "token"),
        ("https_proxy", "http://proxy.example.com:3128"),
        ("no_proxy", "127.0.0.1,10.0.0.0/8"),
        ("S3_ENDPOINT", "https://s3.example.com"),
        ("S3_ACCESS_KEY_ID", "key"),
        ("S3_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-test-1"),
        // The Secret must not override the address of this machine's API server.
        ("KUBERNETES_SERVICE_HOST", "elsewhere.example.com"),
    ];
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": BTreeMap::from(given),
                        "metadata": {"name": "kops-agent-controller", "namespace": "kube-system"}});
    cluster.api.kubectl(&["create", "-f", "-"], &secret.to_string()).unwrap();
    let with_secret = environment(&cluster, container);
    for (name, value) in &given[..given.len() - 1] {
        assert_eq!(with_secret[*name], *value);
    }
    assert_eq!(with_secret["KUBERNETES_SERVICE_HOST"], "127.0.0.1");

    let expected = json!({"type": "spc_t", "level": "s0"});
    assert_eq!(container["securityContext"]["seLinuxOptions"], expected);
    for path in ["/etc/ssl/certs", "/etc/pki/ca-trust"] {
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["mountPath"] == path).unwrap();
        assert_eq!(mount["readOnly"], true, "{path}");
        let volumes = spec["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        assert_eq!(volume["hostPath"]["path"], path);
    }

    // Admission of a DaemonSet does not check its pods, so the test also creates a pod from the template.
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "try", "namespace": "kube-system"}, "spec": spec});
    cluster.api.kubectl(&["create", "--dry-run=server", "-f", "-"], &pod.to_string()).unwrap();
}
