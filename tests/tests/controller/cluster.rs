//! A cluster for a controller: a real API server, a stand-in for EC2, and a state store in a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use kops_agent_tests::administrator::{JSON, MERGE_PATCH, STRATEGIC_MERGE_PATCH};
use kops_agent_tests::api_server::ApiServer;
use kops_agent_tests::ec2::Ec2;
use kops_agent_tests::gce::Gce;
pub use kops_agent_tests::polling::eventually;
use kops_agent_tests::program::kops_agent;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::controller::Controller;

pub const CLUSTER: &str = "c.example.com";
/// The URL of the cluster's folder in the state store.
pub const CONFIG_BASE: &str = "s3://clusters/c.example.com";
/// The cluster's AWS region.
pub const REGION: &str = "us-test-1";
/// The Node label whose value is the instance group.
pub const GROUP_LABEL: &str = "kops.k8s.io/instancegroup";
pub const NODE_ROLE: &str = "node-role.kubernetes.io/node";
/// The user to which kOps' RBAC grants rights.
const USER: &str = "system:serviceaccount:kube-system:kops-controller";
/// The timeout of each wait.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// The id of the instance with this number.
pub fn id(number: usize) -> String {
    format!("i-{number:017x}")
}

/// The path of a Node in the API.
fn path_of_node(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

/// The path of a file in the repository.
pub fn path_of(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file)
}

/// The only kubectl command that contains `part` on a page of the repository. Panics if several commands or none contain `part`.
#[track_caller]
pub fn kubectl_on(page: &str, part: &str) -> String {
    let text = fs::read_to_string(path_of(page)).unwrap();
    let commands = text.split(['\n', '`']).filter(|text| text.starts_with("kubectl ") && text.contains(part));
    let [command] = commands.collect::<Vec<_>>()[..] else {
        panic!("{page} has not one command of kubectl's with {part:?} in it: {text}")
    };
    command.to_owned()
}

/// The file in the store that contains kOps' version.
pub const KOPS_VERSION: &str = "kops-version.txt";

pub struct Cluster {
    pub api: ApiServer,
    pub ec2: Ec2,
    folder: TempDir,
    /// kOps' name for the cluster's cloud.
    cloud: &'static str,
    /// The environment variables with the addresses of the cloud's servers.
    environment: Vec<(&'static str, String)>,
}

impl Cluster {
    /// Starts a cluster without Nodes, with kOps' RBAC and the groups `nodes` and `control-plane`.
    pub fn start() -> Cluster {
        let cluster = Cluster::start_without_rights();
        let rbac = fs::read_to_string(path_of("packaging/kubernetes/rbac.yaml")).unwrap();
        cluster.api.kubectl(&["apply", "-f", "-"], &rbac).unwrap();
        cluster
    }

    /// Like `start`, but the controllers have no rights yet.
    pub fn start_without_rights() -> Cluster {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS")
            .expect("KUBEBUILDER_ASSETS is set by tests/controller/run");
        let api = ApiServer::start(Path::new(&assets)).unwrap();
        let ec2 = Ec2::start().unwrap();
        let environment = ec2.environment().into();
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = Cluster { api, ec2, folder, cloud: "aws", environment };
        fs::create_dir_all(cluster.store().join("instancegroup")).unwrap();
        let spec = "{apiVersion: kops.k8s.io/v1alpha2, kind: Cluster, metadata: {name: c.example.com}, spec: \
                    {cloudProvider: aws, kubernetesVersion: 1.36.0, networking: {cni: {}}}}";
        fs::write(cluster.store().join("cluster-completed.spec"), spec).unwrap();
        fs::write(cluster.store().join(KOPS_VERSION), "1.37.0-alpha.1").unwrap();
        cluster.apply_group("nodes", "tier: web");
        let labels = "node-role.kubernetes.io/control-plane: '', kops.k8s.io/kops-controller-pki: ''";
        cluster.apply("control-plane", "control-plane", labels);
        cluster.environment.push(("AWS_REGION", REGION.to_owned()));
        cluster.configure(None);
        cluster
    }

    pub fn start_on_gce(gce: &Gce) -> Cluster {
        let cluster = Cluster { cloud: "gce", environment: gce.environment().into(), ..Cluster::start() };
        let spec = fs::read_to_string(cluster.store().join("cluster-completed.spec")).unwrap();
        let spec = spec.replace("cloudProvider: aws", "cloudProvider: gce");
        fs::write(cluster.store().join("cluster-completed.spec"), spec).unwrap();
        // The configuration of a bootstrap server contains the project and the region. Without a bootstrap server, the controller reads
        // them from the metadata server.
        cluster.configure(None);
        cluster
    }

    /// Like `start`, on this cloud. `cloud` is kOps' name for the cloud, and `environment` has the addresses of the cloud's servers.
    pub fn start_on(cloud: &'static str, environment: Vec<(&'static str, String)>) -> Cluster {
        let cluster = Cluster { cloud, environment, ..Cluster::start() };
        cluster.configure(None);
        cluster
    }

    /// Adds an environment variable for the controllers.
    pub fn with_environment(mut self, name: &'static str, value: &str) -> Cluster {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// Makes a folder next to the store.
    pub fn make_folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Configures the controllers with this bootstrap server, or without a bootstrap server.
    pub fn configure(&self, server: Option<&Value>) {
        self.configure_with(server, &json!({}));
    }

    /// Like `configure`, but `more` adds or replaces options.
    pub fn configure_with(&self, server: Option<&Value>, more: &Value) {
        let mut options = json!({
            "clusterName": CLUSTER, "cloud": self.cloud, "configBase": CONFIG_BASE,
            "secretStore": format!("{CONFIG_BASE}/secrets")
        });
        if let Some(server) = server {
            options["server"] = server.clone();
        }
        for (option, value) in more.as_object().unwrap() {
            options[option] = value.clone();
        }
        fs::write(self.folder.path().join("config.yaml"), options.to_string()).unwrap();
    }

    /// Moves the cluster to a different AWS region. `environment` has the addresses of the servers in this region.
    pub fn elsewhere(self, region: &str, environment: Vec<(&'static str, String)>) -> Cluster {
        let region = ("AWS_REGION", region.to_owned());
        Cluster { environment: environment.into_iter().chain([region]).collect(), ..self }
    }

    /// The cluster's folder in the store.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Edits a group of workers as `kops edit ig` does.
    pub fn edit_group(&self, name: &str, labels: &str) {
        let text = format!(
            "{{apiVersion: kops.k8s.io/v1alpha2, kind: InstanceGroup, metadata: {{name: {name}}}, spec: \
             {{role: Node, nodeLabels: {{{labels}}}}}}}"
        );
        fs::write(self.store().join("instancegroup").join(name), text).unwrap();
    }

    /// Like `edit_group`, and then applies the group as `kops update cluster --yes` does.
    pub fn apply_group(&self, name: &str, labels: &str) {
        self.edit_group(name, labels);
        self.apply("node", name, &format!("{NODE_ROLE}: '', {labels}"));
    }

    /// Applies a group with this role as `kops update cluster --yes` does.
    pub fn apply(&self, role: &str, group: &str, labels: &str) {
        let labels = format!("{GROUP_LABEL}: {group}, {labels}");
        // A control plane's configuration contains the CAs. A worker has them in its boot config instead.
        let cas = match role {
            "control-plane" => {
                "CAs: {kubernetes-ca: '-----BEGIN CERTIFICATE-----a-----END CERTIFICATE-----'}, "
            }
            _ => "",
        };
        let text = format!("{{ClusterName: {CLUSTER}, {cas}KubeletConfig: {{nodeLabels: {{{labels}}}}}}}");
        let folder = self.store().join("igconfig").join(role).join(group);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("nodeupconfig.yaml"), text).unwrap();
    }

    /// Writes the configuration of a group's nodes to the store.
    pub fn write_nodeup_config(&self, group: &str, text: &str) {
        let folder = self.store().join("igconfig/node").join(group);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("nodeupconfig.yaml"), text).unwrap();
    }

    /// Removes the configurations of all nodes from the store. On some clouds, kOps writes no such configurations.
    pub fn remove_nodeup_configs(&self) {
        fs::remove_dir_all(self.store().join("igconfig")).unwrap();
    }

    pub fn break_store(&self) {
        fs::rename(self.store(), self.folder.path().join("store.gone")).unwrap();
    }

    pub fn mend_store(&self) {
        fs::rename(self.folder.path().join("store.gone"), self.store()).unwrap();
    }

    /// The number of requests for a resource with this verb, from the API server's metrics.
    pub fn requests(&self, resource: &str, verb: &str) -> usize {
        self.requests_with(&[&format!(r#"resource="{resource}""#), &format!(r#"verb="{verb}""#)])
    }

    /// The number of requests for the API server's readiness.
    pub fn questions(&self) -> usize {
        self.requests_with(&[r#"subresource="/readyz""#])
    }

    /// The number of requests with these labels, from the API server's metrics.
    fn requests_with(&self, labels: &[&str]) -> usize {
        let metrics = self.api.administrator.get("/metrics").unwrap();
        let lines = metrics.lines().filter(|line| {
            line.starts_with("apiserver_request_total{") && labels.iter().all(|label| line.contains(label))
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as usize).sum()
    }

    /// Runs kubectl as the administrator.
    #[track_caller]
    pub fn kubectl(&self, arguments: &[&str]) -> String {
        self.api.kubectl(arguments, "").unwrap()
    }

    /// Runs commands as an operator types them, in the repository and with the administrator's kubeconfig. Returns their output.
    #[track_caller]
    pub fn type_in(&self, commands: &str) -> String {
        let assets = std::env::var("KUBEBUILDER_ASSETS").unwrap();
        let path = format!("{assets}:{}", std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell.args(["-euo", "pipefail", "-c", commands]).current_dir(path_of("."));
        shell.env("PATH", path).env("CLUSTER", CLUSTER);
        shell.env("KUBECONFIG", self.api.kubeconfig("admin", &["system:masters"]).unwrap());
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Creates a Node with the provider ID of this instance.
    pub fn create_node(&self, name: &str, instance: Option<&str>) {
        self.create_node_saying(name, &provider_id(instance));
    }

    /// Creates a Node with this provider ID.
    #[track_caller]
    pub fn create_node_saying(&self, name: &str, provider_id: &str) {
        let node = Cluster::node_saying(name, provider_id).to_string();
        self.api
            .administrator
            .send("POST", "/api/v1/nodes?fieldManager=kubectl-create&fieldValidation=Strict", JSON, &node)
            .unwrap();
    }

    /// A Node with this provider ID, in the form in which a kubelet creates it.
    pub fn node_saying(name: &str, provider_id: &str) -> Value {
        // With a label, the object has a field that has a manager. If no field of an object has a manager, the API server reports no
        // managers at all.
        let labels = json!({"kubernetes.io/hostname": name});
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
            "spec": {"providerID": provider_id}
        })
    }

    /// Creates a Node unless it exists.
    pub fn ensure_node(&self, name: &str) {
        if self.api.administrator.get(&path_of_node(name)).is_err() {
            self.create_node(name, Some(name));
        }
    }

    pub fn patch_node(&self, name: &str, patch: &str) {
        self.send_patch(&format!("{}?fieldManager=kubectl-patch", path_of_node(name)), MERGE_PATCH, patch);
    }

    /// Sets a label of a Node, or removes it if `value` is null.
    pub fn label_node(&self, name: &str, label: &str, value: impl Into<Value>) {
        let patch = json!({"metadata": {"labels": {label: value.into()}}}).to_string();
        self.send_patch(&format!("{}?fieldManager=kubectl-label", path_of_node(name)), MERGE_PATCH, &patch);
    }

    /// Sets an annotation of a Node, or removes it if `value` is null.
    pub fn annotate_node(&self, name: &str, annotation: &str, value: impl Into<Value>) {
        let patch = json!({"metadata": {"annotations": {annotation: value.into()}}}).to_string();
        self.send_patch(
            &format!("{}?fieldManager=kubectl-annotate", path_of_node(name)),
            MERGE_PATCH,
            &patch,
        );
    }

    fn send_patch(&self, path: &str, media_type: &str, patch: &str) {
        self.api.administrator.send("PATCH", path, media_type, patch).unwrap();
    }

    /// Reports that a Node is Ready, as a kubelet does regularly. The reported address of the Node is the API server's address. Does not
    /// change conditions that other programs report.
    pub fn report(&self, name: &str) {
        let time = "2026-11-21T00:00:00Z";
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": "", "lastHeartbeatTime": time, "lastTransitionTime": time});
        self.patch_status(name, &json!({"conditions": [ready]}));
        self.is_at(name, "127.0.0.1");
    }

    /// Reports the address of a Node's machine. The controller checks the health of etcd through the API server at this address.
    pub fn is_at(&self, name: &str, address: &str) {
        self.patch_status(name, &json!({"addresses": [{"type": "InternalIP", "address": address}]}));
    }

    /// Reports a part of a Node's status, as the Node's kubelet.
    pub fn patch_status(&self, name: &str, status: &Value) {
        let path = format!("{}/status?fieldManager=kubectl-patch", path_of_node(name));
        self.send_patch(&path, STRATEGIC_MERGE_PATCH, &json!({"status": status}).to_string());
    }

    /// An object from the API server. Panics if it does not exist.
    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.api.administrator.get(path).unwrap()).unwrap()
    }

    #[track_caller]
    pub fn node(&self, name: &str) -> Value {
        self.get(&path_of_node(name))
    }

    pub fn label(&self, node: &str, label: &str) -> Option<String> {
        Some(self.node(node)["metadata"]["labels"].get(label)?.as_str().unwrap().to_owned())
    }

    /// The reasons of the Events about a Node.
    pub fn reasons(&self, node: &str) -> String {
        let selector = format!("involvedObject.name={node}");
        self.kubectl(&[
            "get",
            "events",
            "-n",
            "kube-system",
            "--field-selector",
            &selector,
            "-o",
            "jsonpath={.items[*].reason}",
        ])
    }

    /// The holder of the controllers' Lease.
    pub fn holder(&self) -> String {
        self.holder_of("kops-controller-leader")
    }

    pub fn holder_of(&self, lease: &str) -> String {
        let lease = self.get(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{lease}"));
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// The output of a controller that runs once (`--once`). Panics if the controller fails.
    #[track_caller]
    pub fn once(&self, arguments: &[&str]) -> String {
        let output = self.command().arg("--once").args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The exit code and the output of `controller takeover --check`.
    pub fn check_takeover(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let admin_kubeconfig = self.api.kubeconfig("admin", &["system:masters"]).unwrap();
        self.check_takeover_with(&admin_kubeconfig, arguments)
    }

    /// Like `check_takeover`, with this kubeconfig of an administrator.
    pub fn check_takeover_with(&self, admin_kubeconfig: &Path, arguments: &[&str]) -> (Option<i32>, String) {
        let output = Command::new(agent())
            .env_clear()
            .envs(self.environment.clone())
            .args(["controller", "takeover", "--check", "--conf"])
            .arg(self.folder.path().join("config.yaml"))
            .arg("--store-mirror")
            .arg(self.store_mirror())
            .arg("--kubeconfig")
            .arg(self.api.kubeconfig(USER, &[]).unwrap())
            .arg("--admin-kubeconfig")
            .arg(admin_kubeconfig)
            .args(arguments)
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), said)
    }

    fn store_mirror(&self) -> String {
        format!("{CONFIG_BASE}={}", self.store().display())
    }

    pub fn controller(&self) -> Controller {
        self.controller_with(&[])
    }

    pub fn controller_with(&self, arguments: &[&str]) -> Controller {
        let mut command = self.command();
        command.args(arguments);
        command.args(["--health-listen", "127.0.0.1:0", "--store-interval", "1"]);
        Controller::start(command)
    }

    /// The log of a controller that runs once (`--once`) as a pod of the cluster. The controller runs in its own mount namespace, in
    /// which the token of its service account is at kubelet's path.
    #[track_caller]
    pub fn once_as_pod(&self) -> String {
        let account = self.make_folder("service-account");
        self.kubectl(&["create", "serviceaccount", "-n", "kube-system", "kops-controller"]);
        let token = self.kubectl(&["create", "token", "-n", "kube-system", "kops-controller"]);
        fs::write(account.join("token"), token.trim()).unwrap();
        fs::write(account.join("namespace"), "kube-system").unwrap();
        fs::copy(self.api.authority(), account.join("ca.crt")).unwrap();
        let mounted = "mount -t tmpfs tmpfs /run && mkdir -p /run/secrets/kubernetes.io && \
                       cp -r \"$0\" /run/secrets/kubernetes.io/serviceaccount && exec \"$@\"";
        let host_and_port = self.api.url();
        let (host, port) = host_and_port.trim_start_matches("https://").split_once(':').unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", mounted]).arg(account).arg(agent());
        self.configured(&mut command);
        command.envs([("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port)]);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        let output = command.arg("--once").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }

    fn command(&self) -> Command {
        let mut command = Command::new(agent());
        self.configured(&mut command);
        command.arg("--kubeconfig").arg(self.api.kubeconfig(USER, &[]).unwrap());
        command
    }

    fn configured(&self, command: &mut Command) {
        command.env_clear().env("RUST_BACKTRACE", "1").envs(self.environment.clone());
        command.args(["-v", "2", "controller"]);
        self.with_configuration(command);
    }

    /// The agent's command, without a verb.
    pub fn verb(&self) -> Command {
        let mut command = Command::new(agent());
        command.env_clear().env("RUST_BACKTRACE", "1").envs(self.environment.clone());
        command
    }

    /// Adds the arguments for the controller's configuration and for the store of this cluster to a command.
    pub fn with_configuration(&self, command: &mut Command) {
        command.arg("--conf").arg(self.folder.path().join("config.yaml"));
        command.arg("--store-mirror").arg(self.store_mirror());
    }
}

/// The agent's command without the environment variables of this test.
pub fn plain_agent() -> Command {
    let mut command = Command::new(agent());
    command.env_clear().env("RUST_BACKTRACE", "1");
    command
}

/// The agent's command on a node, like `plain_agent`. The variable `KOPS_AGENT_NODE` may contain the path of a program whose version
/// differs from the controller's (`tests/skew`).
pub fn agent_on_node() -> Command {
    let program = std::env::var_os("KOPS_AGENT_NODE").map_or_else(agent, PathBuf::from);
    let mut command = Command::new(program);
    command.env_clear().env("RUST_BACKTRACE", "1");
    command
}

fn agent() -> PathBuf {
    kops_agent(path_of("target/debug/kops-agent"))
}

fn provider_id(instance: Option<&str>) -> String {
    instance.map(|id| format!("aws:///us-test-1a/{id}")).unwrap_or_default()
}
