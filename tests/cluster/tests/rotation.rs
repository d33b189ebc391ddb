//! Rotates the keys of a cluster in the order that kOps documents (docs/operations/rotate-secrets.md): creates new keys, promotes
//! them, and distrusts the old keys. After each step, one command rolls the configurations out to all machines.

use kops_agent_machines::machine::Ended;

use crate::cluster::{Cluster, Member, has_condition};
use crate::liars::Newcomer;
use crate::ordered::{self, boot_configs};
use crate::requests::Requests;
use crate::workload;

const KEYSETS: [&str; 2] = ["kubernetes-ca", "service-account"];
/// The file of trusted CAs on each machine. Clients and servers use this file.
const AUTHORITIES: &str = "/srv/kubernetes/ca.crt";

/// Three rollouts replace the keys of kOps' `kubernetes-ca` and `service-account`. No Node is lost and no pod of a worker ends.
/// Credentials that the old keys signed are valid until the old keys are distrusted.
pub fn keys_are_rotated(cluster: &Cluster) {
    let user_data = boot_configs(cluster);
    let (pods, uids) = (workload::pods_of_workers(cluster), cluster.uids());
    let requests = Requests::begin(&cluster.workers()[0], cluster, workload::OWN);
    let old = Credentials::of_now(cluster, "old");
    let signed_by_old = KEYSETS.map(|keyset| cluster.store.primary_id(keyset));
    let certificates = kubelets_certificates(cluster);

    let created = KEYSETS.map(|keyset| cluster.store.create_keypair(keyset));
    roll_out(cluster, "created");
    old.are_good(cluster);
    assert_eq!(kubelets_certificates(cluster), certificates, "what signs is what it was");

    for (keyset, id) in KEYSETS.iter().zip(&created) {
        cluster.store.promote_keypair(keyset, id);
    }
    roll_out(cluster, "promoted");
    let new = Credentials::of_now(cluster, "new");
    old.are_good(cluster);
    new.are_good(cluster);
    let renewed = kubelets_certificates(cluster);
    for (before, now) in certificates.iter().zip(&renewed) {
        assert_ne!(before, now, "a kubelet has its certificate from the key that is to be distrusted");
    }

    for (keyset, id) in KEYSETS.iter().zip(&signed_by_old) {
        cluster.store.distrust_keypair(keyset, id);
    }
    roll_out(cluster, "distrusted");
    assert_eq!(kubelets_certificates(cluster), renewed, "what signs is what it was");
    new.are_good(cluster);
    old.are_refused(cluster);
    servers_are_of_the_one_authority(cluster);

    assert_eq!(workload::pods_of_workers(cluster), pods, "pods of workers were restarted");
    assert_eq!(cluster.uids(), uids, "Nodes were lost");
    assert_eq!(boot_configs(cluster), user_data, "the user-data was changed");
    requests.were_all_answered();
    workload::logs_are_read(cluster);
    workload::pods_reach_each_other(cluster);
}

/// Writes the configurations of all groups as `kops update cluster --yes` does, and rolls them out. Checks that a newcomer without a
/// certificate can join.
fn roll_out(cluster: &Cluster, what: &str) {
    ordered::update(cluster);
    ordered::started(cluster, &[&["start", "--canary", "1"][..], &ordered::CHECK_PODS_AFTER].concat());
    ordered::until_phase(cluster, "done");
    cluster.control_plane().until("the API server is ready", || cluster.is_ready());
    let newcomer = Newcomer::of_nodes(cluster, &format!("i-0d3a0c0ffee{}0000", hex(what)));
    cluster
        .control_plane()
        .until(&format!("machines join, {what}"), || (newcomer.try_join(cluster) == Some(200)).then_some(()));
    kubelets_are_at_work(cluster);
    for member in &cluster.members {
        let node = cluster.get("node", member.id).unwrap();
        assert!(has_condition(&node, "Ready"), "{what}: {:#}", node["status"]["conditions"]);
    }
}

/// Each kubelet still renews its Lease. The condition Ready is not enough, because it stays True for a while after the API server rejects
/// kubelet.
fn kubelets_are_at_work(cluster: &Cluster) {
    let renewed = |member: &Member| ordered::lease_renewed(cluster, member);
    let before: Vec<String> = cluster.members.iter().map(|member| renewed(member).unwrap()).collect();
    for (member, before) in cluster.members.iter().zip(before) {
        member
            .machine
            .until("its kubelet renews its Lease", || renewed(member).filter(|now| *now != before).map(drop));
    }
}

/// Two hexadecimal digits for the instance id of a newcomer. Each word in this test gives different digits.
fn hex(word: &str) -> String {
    format!("{:02x}", word.bytes().fold(0_u8, u8::wrapping_add))
}

/// The server certificate and the client certificate of each worker's kubelet, for comparison.
fn kubelets_certificates(cluster: &Cluster) -> Vec<String> {
    let of = "sha256sum /srv/kubernetes/kubelet-server.crt; grep client-certificate-data /var/lib/kubelet/kubeconfig";
    cluster.workers().iter().map(|worker| worker.machine.run(&["sh", "-c", of])).collect()
}

/// Each machine trusts one CA only, and this CA has signed the certificates of all servers of the cluster.
fn servers_are_of_the_one_authority(cluster: &Cluster) {
    const VERIFY: &str = r#"
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
context.check_hostname = False
for server in sys.argv[2:]:
    address, port = server.split(":")
    context.wrap_socket(socket.create_connection((address, int(port)), timeout=10)).close()
"#;
    let control_plane = cluster.asked().address;
    let mut servers = vec![format!("{control_plane}:443"), format!("{control_plane}:3988")];
    servers.extend(cluster.members.iter().map(|member| format!("{}:10250", member.address)));
    let trusted = cluster.store.trusted_certificates("kubernetes-ca");
    for member in &cluster.members {
        assert_eq!(member.machine.read(AUTHORITIES).trim(), trusted.trim(), "what {} trusts", member.id);
    }
    assert_eq!(trusted.matches("BEGIN").count(), 1, "{trusted}");
    let mut verify = vec!["python3", "-c", VERIFY, AUTHORITIES];
    verify.extend(servers.iter().map(String::as_str));
    cluster.control_plane().run(&verify);
}

/// A token of a service account and the certificate of an administrator.
struct Credentials {
    token: String,
    certificate: String,
    key: String,
}

impl Credentials {
    /// A new token, and the administrator's current certificate and key.
    fn of_now(cluster: &Cluster, name: &str) -> Credentials {
        let token = cluster.run_kubectl(&["create", "token", "default"]).trim().to_owned();
        let (certificate, key) = (format!("/root/{name}.crt"), format!("/root/{name}.key"));
        for (field, file) in [("client-certificate-data", &certificate), ("client-key-data", &key)] {
            let print = format!("sed -n 's/^ *{field}: //p' /root/.kube/config | base64 --decode >{file}");
            cluster.control_plane().run(&["sh", "-c", &print]);
        }
        Credentials { token, certificate, key }
    }

    #[track_caller]
    fn are_good(&self, cluster: &Cluster) {
        for answer in self.ask(cluster) {
            assert_eq!(answer.code, Some(0), "{answer:?}");
        }
    }

    #[track_caller]
    fn are_refused(&self, cluster: &Cluster) {
        for answer in self.ask(cluster) {
            assert_ne!(answer.code, Some(0), "{answer:?}");
            assert!(
                answer.stderr.contains("Unauthorized") || answer.stderr.contains("logged in"),
                "{answer:?}"
            );
        }
    }

    /// The API server's responses to two requests: one with the token, one with the certificate.
    fn ask(&self, cluster: &Cluster) -> [Ended; 2] {
        let server = [
            "kubectl",
            "--kubeconfig=/dev/null",
            "--server=https://127.0.0.1",
            "--certificate-authority=/srv/kubernetes/ca.crt",
        ];
        let token = format!("--token={}", self.token);
        let certificate = format!("--client-certificate={}", self.certificate);
        let key = format!("--client-key={}", self.key);
        let ask = |shown: &[&str]| {
            cluster.control_plane().try_run(&[&server[..], shown, &["auth", "whoami"]].concat())
        };
        [ask(&[&token]), ask(&[&certificate, &key])]
    }
}
