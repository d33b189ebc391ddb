//! The certificates of long-lived workers are renewed before they expire.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kops_agent_machines::path_of;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use crate::cluster::{AGENT, Cluster, Member, has_condition};
use crate::requests::Requests;
use crate::workload;

/// The unit that a timer from the packages starts every hour.
const VERIFY: &str = "kops-agent-verify.service";
/// The approximate lifetime of a certificate from the bootstrap server.
const LIFE: Duration = Duration::days(465);
/// The remaining lifetime of the certificates. It is less than a third of `LIFE`, so the agent renews the certificates. It is more
/// than 7 days, so the renewal waits for a slot (`docs/pacing.md`).
const LEFT: Duration = Duration::days(30);
const SERVING: [&str; 2] = ["/srv/kubernetes/kubelet-server.crt", "/srv/kubernetes/kubelet-server.key"];
const KUBECONFIGS: [&str; 2] = ["/var/lib/kubelet/kubeconfig", "/var/lib/kube-proxy/kubeconfig"];

/// The certificates of each worker expire in a month. On one worker after the other, [`VERIFY`] renews all certificates at the
/// bootstrap server and restarts the programs that use them. No pod of the workload ends.
pub fn certificates_near_their_end_are_renewed(cluster: &Cluster) {
    let requests = Requests::begin(&cluster.workers()[0], cluster, workload::OWN);
    let pods = workload::pods_of_workers(cluster);
    for worker in cluster.workers() {
        grow_old(cluster, worker);
        let due = worker.machine.try_run(&[AGENT, "status", "--output", "json"]);
        let left = days_left(&due.stdout);
        assert!(left.len() == 3 && left.iter().all(|days| (29..=30).contains(days)), "{left:?}");

        let verified = worker.machine.try_run(&["systemctl", "start", VERIFY]);
        assert_eq!(verified.code, Some(0), "{}", worker.machine.explain(&verified));
        let journal = worker.machine.run(&["journalctl", "--no-pager", "--unit", VERIFY]);
        assert!(journal.contains("this node has the slot"), "they were renewed without a slot: {journal}");
        let renewed = worker.machine.run(&[AGENT, "status", "--output", "json"]);
        let left = days_left(&renewed);
        assert!(left.len() == 3 && left.iter().all(|days| *days > 450), "{left:?}");
        cluster.until("kubelet is Ready", "node", worker.id, |node| has_condition(node, "Ready"));
        serves_with_the_certificate_on_disk(cluster, worker);
        assert_eq!(workload::pods_of_workers(cluster), pods, "pods of workers were restarted");
    }
    requests.were_all_answered();
    workload::logs_are_read(cluster);
    workload::pods_reach_each_other(cluster);
}

/// Replaces the worker's certificates by certificates that the cluster's CA issued long ago, and restarts kubelet with them. Installs
/// [`VERIFY`] as `docs/install/mirror.md` tells operators.
fn grow_old(cluster: &Cluster, worker: &Member) {
    let machine = &worker.machine;
    let serving = issued(cluster, worker.id, None, ExtendedKeyUsagePurpose::ServerAuth, Some(worker));
    for (path, text) in SERVING.iter().zip([&serving.0, &serving.1]) {
        machine.write(path, text);
    }
    let kubelet = format!("system:node:{}", worker.id);
    for (path, name, organization) in [
        (KUBECONFIGS[0], kubelet.as_str(), Some("system:nodes")),
        (KUBECONFIGS[1], "system:kube-proxy", None),
    ] {
        let (certificate, key) =
            issued(cluster, name, organization, ExtendedKeyUsagePurpose::ClientAuth, None);
        let with = |line: &str, field: &str, text: &str| {
            let (before, _) = line.split_once(field)?;
            Some(format!("{before}{field}{}", STANDARD.encode(text)))
        };
        let lines = machine.read(path);
        let lines = lines.lines().map(|line| {
            with(line, "client-certificate-data: ", &certificate)
                .or_else(|| with(line, "client-key-data: ", &key))
                .unwrap_or_else(|| line.to_owned())
        });
        let text: String = lines.map(|line| line + "\n").collect();
        assert!(text.contains(&STANDARD.encode(&certificate)), "{path} has no certificate in it");
        machine.write(path, &text);
    }
    machine.run(&["systemctl", "restart", "kubelet.service"]);
    let unit = fs::read_to_string(path_of(&format!("../units/{VERIFY}"))).unwrap();
    machine.write(&format!("/etc/systemd/system/{VERIFY}"), &unit.replace("/usr/bin/kops-agent", AGENT));
    machine.run(&["systemctl", "daemon-reload"]);
}

/// Issues a certificate of the cluster's CA that expires after [`LEFT`], as if it were old. Returns the certificate and its private key.
fn issued(
    cluster: &Cluster,
    name: &str,
    organization: Option<&str>,
    usage: ExtendedKeyUsagePurpose,
    serves: Option<&Member>,
) -> (String, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![usage];
    if let Some(member) = serves {
        params.subject_alt_names =
            vec![SanType::DnsName(member.id.try_into().unwrap()), SanType::IpAddress(member.address)];
    }
    params.not_after = OffsetDateTime::now_utc() + LEFT;
    params.not_before = params.not_after - LIFE;
    let key = KeyPair::generate().unwrap();
    let authority = cluster.store.primary("kubernetes-ca").issuer().unwrap();
    (params.signed_by(&key, &authority).unwrap().pem(), key.serialize_pem())
}

/// The days until each of the node's certificates expires, from the output of `status`.
fn days_left(status: &str) -> Vec<i64> {
    let status: Value = serde_json::from_str(status).unwrap();
    let certificates = status["certificates"].as_array().unwrap().iter();
    certificates.map(|certificate| certificate["daysLeft"].as_i64().unwrap()).collect()
}

fn serves_with_the_certificate_on_disk(cluster: &Cluster, worker: &Member) {
    const SHOWN: &str = "import ssl, sys; print(ssl.get_server_certificate((sys.argv[1], 10250)).strip())";
    let address = worker.address.to_string();
    let shown = cluster.control_plane().run(&["python3", "-c", SHOWN, &address]);
    let on_disk = worker.machine.read(SERVING[0]);
    assert_eq!(shown.split_whitespace().collect::<String>(), on_disk.split_whitespace().collect::<String>());
}
