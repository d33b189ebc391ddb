//! Nodes report their state with kubelet's credentials, within the limits of NodeRestriction, and `fleet status` shows it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kops_agent_tests::authority::Authority;
use rcgen::{KeyPair, date_time_ymd};
use serde_json::{Value, json};

use crate::cluster::{Cluster, GROUP_LABEL, agent_on_node, eventually, kubectl_on, plain_agent};

const CONDITION: &str = "KopsConfigured";
const CERTIFICATE_EXPIRES_SOON: &str = "KopsAgentCertificateExpiresSoon";
const CLOCK_UNSYNCHRONIZED: &str = "KopsAgentClockUnsynchronized";
const DISK_PRESSURE_SOON: &str = "KopsAgentDiskPressureSoon";
const EARLY_WARNINGS: [&str; 3] = [CERTIFICATE_EXPIRES_SOON, CLOCK_UNSYNCHRONIZED, DISK_PRESSURE_SOON];
const FIRST_CERTIFICATE: &str = "kops-agent/first-certificate-to-expire";
const OLD: &str = "b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQ=";
const NEW: &str = "bmV3IG5ldyBuZXcgbmV3IG5ldyBuZXcgbmV3IG5ldyBuZXc=";
const LONG_AGO: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-02-01T00:00:00Z";

/// The record of a machine that runs the configuration with this hash.
fn running(hash: &str, since: &str) -> Value {
    json!({"version": 1, "configHash": hash, "convergedSince": since, "resources": {}})
}

/// Makes the root folder of a machine with a kubeconfig for this Node's kubelet, and with this record.
fn machine(cluster: &Cluster, node: &str, record: &Value) -> PathBuf {
    machine_of(cluster, node, &["system:nodes"], record)
}

fn machine_of(cluster: &Cluster, node: &str, groups: &[&str], record: &Value) -> PathBuf {
    let root = cluster.make_folder(&format!("machine-{node}"));
    for folder in ["var/lib/kubelet", "var/lib/kops-agent"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let kubeconfig = cluster.api.kubeconfig(&format!("system:node:{node}"), groups).unwrap();
    fs::copy(kubeconfig, root.join("var/lib/kubelet/kubeconfig")).unwrap();
    fs::write(root.join("var/lib/kops-agent/record.json"), record.to_string()).unwrap();
    root
}

/// Writes a certificate to a machine, and adds it to the record of the last run. The certificate is valid until 1 January of the
/// year `until`.
fn give_certificate(root: &Path, record: &mut Value, file: &str, until: i32) {
    let key = KeyPair::generate().unwrap();
    let certificate =
        Authority::of_key("kubelet", key, date_time_ymd(1975, 1, 1), date_time_ymd(until, 1, 1)).unwrap();
    let path = root.join(file);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, certificate.pem).unwrap();
    let of_file = fs::metadata(&path).unwrap();
    let left = json!({"file": {"certificate": true, "metadata": {
        "mode": of_file.mode() & 0o7777, "uid": of_file.uid(), "gid": of_file.gid(), "size": of_file.size(),
        "inode": of_file.ino(), "changed": [of_file.ctime(), of_file.ctime_nsec()],
    }}});
    record["resources"][format!("file /{file}")] = json!({"left": left});
    fs::write(root.join("var/lib/kops-agent/record.json"), record.to_string()).unwrap();
}

/// Runs a command. Returns its exit code, and its standard output followed by its standard error.
fn ended(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    (output.status.code(), said)
}

fn tell(root: &PathBuf) -> (Option<i32>, String) {
    ended(agent_on_node().args(["fleet", "tell", "--root"]).arg(root))
}

#[track_caller]
fn tells(root: &PathBuf) {
    let (code, said) = tell(root);
    assert_eq!(code, Some(0), "{said}");
}

fn create(cluster: &Cluster, node: &str, group: &str) {
    cluster.create_node(node, None);
    cluster.label_node(node, GROUP_LABEL, group);
    cluster.report(node);
}

fn condition(node: &Value, wanted: &str) -> Option<Value> {
    let conditions = node["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == wanted).cloned()
}

/// The status and the reason of a condition.
#[track_caller]
fn outcome(node: &Value, wanted: &str) -> (String, String) {
    let condition = condition(node, wanted).unwrap();
    let field = |name: &str| condition[name].as_str().unwrap().to_owned();
    (field("status"), field("reason"))
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_node_tells_of_itself_and_touches_nothing_else() {
    let cluster = Cluster::start();
    create(&cluster, "a", "nodes");
    let before = cluster.node("a");
    let root = machine(&cluster, "a", &running(NEW, LATER));
    tells(&root);

    let after = cluster.node("a");
    let told = condition(&after, CONDITION).unwrap();
    assert_eq!((&told["status"], &told["reason"]), (&json!("True"), &json!("Converged")));
    assert_eq!(told["message"], format!("configuration {NEW} since {LATER}"));
    assert_eq!(told["lastHeartbeatTime"], told["lastTransitionTime"]);
    assert_eq!(condition(&after, "Ready"), condition(&before, "Ready"));
    for part in ["spec", "metadata/labels", "status/nodeInfo"] {
        let of = |node: &Value| node.pointer(&format!("/{part}")).cloned();
        assert_eq!(of(&after), of(&before), "{part}");
    }
    let mut annotations = after["metadata"]["annotations"].clone();
    let version = annotations.as_object_mut().unwrap().remove("kops-agent/version").unwrap();
    assert!(version.as_str().is_some_and(|version| version.ends_with(')')), "{version}");
    let program = annotations.as_object_mut().unwrap().remove("kops-agent/program").unwrap();
    assert!(program.as_str().is_some_and(|program| program.contains("\"sha256\":\"")), "{program}");
    assert_eq!(before["metadata"]["annotations"], Value::Null);
    assert_eq!(annotations, json!({}), "it has no certificates");
    let managers = after["metadata"]["managedFields"].as_array().unwrap();
    let ours = managers.iter().find(|entry| entry["manager"] == "kops-agent").unwrap();
    assert_eq!(ours["subresource"], "status");
    let mut fields: Vec<&String> =
        ours["fieldsV1"]["f:status"]["f:conditions"].as_object().unwrap().keys().collect();
    fields.sort();
    let types = EARLY_WARNINGS.iter().chain([&CONDITION]);
    let expected: Vec<String> = types.map(|wanted| format!("k:{{\"type\":\"{wanted}\"}}")).collect();
    assert_eq!(fields, expected.iter().collect::<Vec<_>>(), "{ours}");

    // The machine is a folder, so it has no clock. Its record has no certificates. The disk that contains the folder is the machine's disk.
    for wanted in [CERTIFICATE_EXPIRES_SOON, CLOCK_UNSYNCHRONIZED] {
        assert_eq!(outcome(&after, wanted), ("Unknown".to_owned(), "NotObserved".to_owned()), "{wanted}");
    }
    let (status, reason) = outcome(&after, DISK_PRESSURE_SOON);
    assert!(["True", "False"].contains(&status.as_str()), "{status} {reason}");

    // With a patch like this, kubelet reports its own conditions. The patch does not change the agent's condition.
    let report = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]});
    cluster.patch_status("a", &report);
    assert_eq!(condition(&cluster.node("a"), CONDITION), Some(told));

    // `lastTransitionTime` stays until the status changes. `lastHeartbeatTime` changes at every report.
    let aged = json!({"conditions": [{"type": CONDITION, "lastHeartbeatTime": LONG_AGO, "lastTransitionTime": LONG_AGO}]});
    cluster.patch_status("a", &aged);
    tells(&root);
    let again = condition(&cluster.node("a"), CONDITION).unwrap();
    assert_eq!(again["lastTransitionTime"], LONG_AGO);
    assert_ne!(again["lastHeartbeatTime"], LONG_AGO);
    let mut failed = running(NEW, LATER);
    failed["failure"] = json!({"at": LATER, "problem": "the store denies s3://b/c"});
    let root = machine(&cluster, "a", &failed);
    tells(&root);
    let failed = condition(&cluster.node("a"), CONDITION).unwrap();
    assert_eq!((&failed["status"], &failed["reason"]), (&json!("False"), &json!("RunFailed")));
    assert_ne!(failed["lastTransitionTime"], LONG_AGO);
    let message = failed["message"].as_str().unwrap();
    assert!(message.contains(NEW) && message.contains("the store denies s3://b/c"), "{message}");

    // A reset removes the early warnings with a patch like this. All other conditions stay.
    let removed = EARLY_WARNINGS.map(|wanted| json!({"type": wanted, "$patch": "delete"}));
    cluster.patch_status("a", &json!({"conditions": removed}));
    let left = cluster.node("a");
    assert!(EARLY_WARNINGS.iter().all(|wanted| condition(&left, wanted).is_none()), "{left}");
    assert!([CONDITION, "Ready"].iter().all(|wanted| condition(&left, wanted).is_some()), "{left}");
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_node_tells_which_of_its_certificates_expires_first_and_fleet_status_warns_of_it() {
    let cluster = Cluster::start();
    let admin = cluster.api.kubeconfig("admin", &["system:masters"]).unwrap();
    let status = |arguments: &[&str]| {
        ended(plain_agent().args(["fleet", "status", "--kubeconfig"]).arg(&admin).args(arguments))
    };
    create(&cluster, "a", "nodes");
    cluster.kubectl(&["annotate", "node", "a", "team=x"]);
    let mut record = running(NEW, LATER);
    let root = machine(&cluster, "a", &record);
    give_certificate(&root, &mut record, "srv/kubernetes/kube-scheduler/server.crt", 4001);
    give_certificate(&root, &mut record, "srv/kubernetes/kubelet-server.crt", 4000);
    tells(&root);
    let annotations = |node: &Value| node["metadata"]["annotations"].clone();
    let told = cluster.node("a");
    assert_eq!(condition(&told, CONDITION).unwrap()["reason"], "Converged", "{told}");
    assert_eq!(annotations(&told)[FIRST_CERTIFICATE], "4000-01-01T00:00:00Z kubelet-server");
    assert_eq!(annotations(&told)["team"], "x");
    let warning = |node: &Value| {
        let (status, reason) = outcome(node, CERTIFICATE_EXPIRES_SOON);
        format!("{status} {reason}")
    };
    assert_eq!(warning(&told), "False CertificatesValid");
    let (code, shown) = status(&[]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("  kubelet-server 4000-01-01 ("), "{shown}");
    let folder = cluster.make_folder("plugins");
    std::os::unix::fs::symlink(plain_agent().get_program(), folder.join("kubectl-kops_agent")).unwrap();
    let by_kubectl =
        cluster.type_in(&format!("PATH={}:$PATH; kubectl kops_agent fleet status", folder.display()));
    assert_eq!(by_kubectl, shown, "kubectl runs it as a plugin");

    // The kubelet-server certificate has expired. The agent can report this, because it sends its reports with kubelet's client
    // certificate. It cannot report that the client certificate itself has expired.
    give_certificate(&root, &mut record, "srv/kubernetes/kubelet-server.crt", 2001);
    tells(&root);
    assert_eq!(warning(&cluster.node("a")), "True CertificateExpired");
    let (code, shown) = status(&[]);
    assert_eq!(code, Some(4), "{shown}");
    assert!(
        shown.contains("  True        Converged  ")
            && shown.contains("  expired kubelet-server 2001-01-01  ")
    );
    let (_, rows) = status(&["-o", "json"]);
    let certificate = serde_json::from_str::<Value>(&rows).unwrap()["items"][0]["firstCertificate"].clone();
    assert_eq!(certificate["expires"], "2001-01-01T00:00:00Z");
    assert!(certificate["daysLeft"].as_i64().unwrap() < -9000);

    // A machine without certificates removes its earlier report about certificates, and nothing else.
    tells(&machine(&cluster, "a", &running(NEW, LATER)));
    let without = cluster.node("a");
    assert_eq!(warning(&without), "Unknown NotObserved");
    let told = annotations(&without);
    assert_eq!((&told[FIRST_CERTIFICATE], &told["team"]), (&Value::Null, &json!("x")));
    assert_eq!(status(&[]).0, Some(0));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_superseded_node_tells_the_change_that_waits_for_it_and_fleet_plan_shows_it() {
    let cluster = Cluster::start();
    let admin = cluster.api.kubeconfig("admin", &["system:masters"]).unwrap();
    let plan = || {
        let (code, shown) =
            ended(plain_agent().args(["fleet", "plan", "-o", "json", "--kubeconfig"]).arg(&admin));
        assert_eq!(code, Some(0), "{shown}");
        serde_json::from_str::<Value>(&shown).unwrap()["items"][0].clone()
    };
    create(&cluster, "a", "nodes");
    create(&cluster, "b", "nodes");
    let mut record = running(OLD, LONG_AGO);
    record["superseded"] = json!({"since": LATER, "by": NEW, "next": {
        "schemaVersion": 1, "at": LATER, "runs": OLD, "hash": NEW, "outcome": {"planned": {
            "create": 0, "change": 2, "remove": 0, "restarts": ["kubelet.service"], "takesSlot": true,
            "versions": {"kubelet": "1.36.0", "containerd": "2.1.4"},
        }},
    }});
    tells(&machine(&cluster, "a", &record));
    let group = plan();
    assert_eq!(
        (&group["superseded"], &group["unknown"], &group["from"]),
        (&json!(1), &json!(1), &json!("a"))
    );
    assert_eq!(group["next"]["outcome"]["planned"]["restarts"], json!(["kubelet.service"]), "{group:#}");

    // If a different version of the agent wrote the field `next` of the record, only the annotation for this field is missing. The rest of
    // the record is still reported.
    record["superseded"]["next"]["schemaVersion"] = "two".into();
    tells(&machine(&cluster, "a", &record));
    let annotation = |node: &Value| node["metadata"]["annotations"]["kops-agent/next"].clone();
    assert_eq!(annotation(&cluster.node("a")), Value::Null);
    assert_eq!(plan()["superseded"], 1);

    // If the field `next` has the known schema version again, the annotation is written again. When the node runs the next configuration,
    // the annotation is removed.
    record["superseded"]["next"]["schemaVersion"] = 1.into();
    tells(&machine(&cluster, "a", &record));
    assert!(annotation(&cluster.node("a")).is_string());
    tells(&machine(&cluster, "a", &running(NEW, LATER)));
    assert_eq!(annotation(&cluster.node("a")), Value::Null);
    assert_eq!((&plan()["current"], &plan()["next"]), (&json!(1), &Value::Null));
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn a_node_cannot_report_for_another_and_each_obstacle_has_its_own_error() {
    let cluster = Cluster::start();
    create(&cluster, "a", "nodes");
    create(&cluster, "b", "nodes");
    tells(&machine(&cluster, "a", &running(NEW, LATER)));
    let told = condition(&cluster.node("a"), CONDITION);
    // `kubectl patch` would first read nodes/status, which kubelets may not read. So the test sends a PUT.
    let mut lie = cluster.node("a");
    lie["status"]["conditions"][0]["reason"] = "Lie".into();
    let put = ["replace", "--raw", "/api/v1/nodes/a/status", "-f", "-"];
    let refused = cluster.api.kubectl_as_kubelet("b", &put, &lie.to_string()).unwrap_err().to_string();
    assert!(refused.contains("is not allowed to modify node"), "{refused}");
    assert_eq!(condition(&cluster.node("a"), CONDITION), told);
    cluster.api.kubectl_as_kubelet("a", &put, &lie.to_string()).unwrap();

    // The API server rejects a user that is not a node. The agent must not report this error as a missing Node.
    let (code, said) = tell(&machine_of(&cluster, "stranger", &[], &running(NEW, LATER)));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("forbidden") && !said.contains("has no Node"), "{said}");
    let (code, said) = tell(&machine(&cluster, "c", &running(NEW, LATER)));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the cluster has no Node \"c\" yet"), "{said}");

    // At the first boot, kubelet registers its Node only after the agent has begun to wait for the Node.
    let root = machine(&cluster, "c", &running(NEW, LATER));
    let mut waiting = plain_agent();
    waiting.args(["-v", "8", "fleet", "tell", "--timeout", "300", "--root"]).arg(&root);
    let mut waiting = waiting.stderr(Stdio::null()).spawn().unwrap();
    let asked = cluster.requests("nodes", "GET");
    eventually("it has asked", || cluster.requests("nodes", "GET") > asked);
    create(&cluster, "c", "nodes");
    assert!(waiting.wait().unwrap().success());
    assert!(condition(&cluster.node("c"), CONDITION).is_some());
}

#[test]
#[ignore = "starts an API server: tests/controller/run"]
fn fleet_status_shows_which_configuration_each_node_runs() {
    let cluster = Cluster::start();
    let admin = cluster.api.kubeconfig("admin", &["system:masters"]).unwrap();
    let status = |arguments: &[&str]| {
        ended(plain_agent().args(["fleet", "status", "--kubeconfig"]).arg(&admin).args(arguments))
    };
    assert_eq!(status(&[]), (Some(0), "There are no Nodes.\n".to_owned()));

    for (name, group) in [("new", "nodes"), ("old", "nodes"), ("failed", "gpu"), ("silent", "gpu")] {
        create(&cluster, name, group);
    }
    tells(&machine(&cluster, "new", &running(NEW, LATER)));
    tells(&machine(&cluster, "old", &running(OLD, LONG_AGO)));
    let mut failed = running(OLD, LONG_AGO);
    failed["failure"] = json!({"at": LATER, "problem": "no network"});
    tells(&machine(&cluster, "failed", &failed));

    let (code, shown) = status(&[]);
    assert_eq!(code, Some(4), "{shown}");
    let [old, new] = [OLD, NEW].map(|hash| &hash[..12]);
    let agent = env!("CARGO_PKG_VERSION");
    assert_eq!(
        shown,
        format!(
            "GROUP  NAME    READY  CONFIGURED  REASON     HASH          SUPERSEDED BY  FOLLOWS  CERTIFICATES  REBOOT  KUBELET  AGENT\n\
             gpu    failed  True   False       RunFailed  {old}  -              -        -             -       -        {agent}\n\
             gpu    silent  True   -           -          -             -              -        -             -       -        -\n\
             nodes  new     True   True        Converged  {new}  -              -        -             -       -        {agent}\n\
             nodes  old     True   True        Converged  {old}  {new}   -        -             -       -        {agent}\n\
             failed: the run of {LATER} failed: no network\n"
        )
    );
    let columns = cluster.type_in(&kubectl_on("docs/fleet.md", "custom-columns"));
    let columns: Vec<&str> = columns.split_whitespace().collect();
    assert_eq!(
        columns.join(" "),
        "NAME CONFIGURED failed False new True old True silent <none>",
        "what kubectl shows of the same"
    );
    let (_, rows) = status(&["-o", "json"]);
    let rows = &serde_json::from_str::<Value>(&rows).unwrap()["items"];
    assert_eq!((&rows[3]["name"], &rows[3]["supersededBy"]), (&json!("old"), &json!(NEW)));
    assert_eq!(rows[3]["runs"], json!({"hash": OLD, "since": LONG_AGO}));

    // These Nodes are deleted, as at the end of a rolling update.
    cluster.kubectl(&["delete", "node", "old", "failed", "silent"]);
    let by_variable = ended(plain_agent().env("KUBECONFIG", &admin).args(["fleet", "status"]));
    assert_eq!(by_variable.0, Some(0), "{}", by_variable.1);

    let stranger = cluster.api.kubeconfig("stranger", &[]).unwrap();
    let (code, said) = ended(plain_agent().args(["fleet", "status", "--kubeconfig"]).arg(stranger));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("listing Nodes by the kubeconfig") && said.contains("forbidden"), "{said}");
}
