//! nodeup reissues a node's certificates at every boot. A component keeps the certificates that it loaded, and is
//! restarted before these expire.
#![allow(clippy::unwrap_used)]

#[path = "support/keyset.rs"]
mod keyset;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use kops_agent_host::{Downloads, Error, Host, Report, Secrets, Silent};
use kops_agent_pki::{Authority, PemPair, kubeconfig, lifetime};
use kops_agent_plan::diff::{Keeping, Plan, diff_with_owned};
use kops_agent_plan::resource::*;
use kops_agent_tests::authority;
use time::OffsetDateTime;

use crate::support::{CALM, SCOPE, downloads, noon};
use keyset::Keyset;

const CONFIG: &str = "/var/lib/kubelet/kubelet.conf";
const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const CRT: &str = "/srv/kubernetes/kube-scheduler/server.crt";
const KEY: &str = "/srv/kubernetes/kube-scheduler/server.key";
const MANIFEST: &str = "/etc/kubernetes/manifests/kube-scheduler.manifest";
const RESTARTS: [&str; 2] = [MANIFEST, "kubelet.service"];

fn certificate(name: &str, sans: &[&str]) -> Certificate {
    Certificate {
        name: name.into(),
        signer: "kubernetes-ca".into(),
        keypair_id: "1".into(),
        certificate_type: CertificateType::ClientServer,
        subject: Subject { common_name: name.into(), organization: vec!["system:nodes".into()] },
        sans: sans.iter().map(|san| (*san).to_owned()).collect(),
        issuer: Issuer::Local,
        include_root: false,
    }
}

fn of_kubelet() -> Kubeconfig {
    Kubeconfig { certificate: "kubelet".into(), server: "https://api.example.com".into() }
}

fn node(sans: &[&str]) -> DesiredState {
    let mut state = DesiredState::default();
    state.add(File::text(CONFIG, "maxPods: 1\n"));
    state.add(certificate("kubelet", &[]));
    state.add(certificate("kube-scheduler", sans));
    state.add(File::new(KUBECONFIG, Content::Kubeconfig(of_kubelet())).mode(Mode(0o400)));
    state.add(File::new(CRT, Content::Certificate("kube-scheduler".into())));
    state.add(File::new(KEY, Content::PrivateKey("kube-scheduler".into())).mode(Mode::PRIVATE));
    state.add(File::text(
        MANIFEST,
        "kind: Pod\nmetadata: {name: kube-scheduler, namespace: kube-system}\nspec: {containers: [{name: a}], \
         volumes: [{name: k, hostPath: {path: /srv/kubernetes/kube-scheduler}}]}\n",
    ));
    let unit = "[Service]\nExecStart=/usr/local/bin/kubelet\n";
    state.add(Unit::new("kubelet.service", unit).restarted_by_files([CONFIG, KUBECONFIG]));
    state
}

fn authority_of(name: &str, age_in_days: i64) -> PemPair {
    let key = rcgen::KeyPair::generate().unwrap();
    let now = OffsetDateTime::from(noon());
    let (from, to) = (now - time::Duration::days(age_in_days), now + time::Duration::days(3650));
    let authority::Pair { certificate, private_key } =
        authority::Authority::of_key(name, key, from, to).unwrap().pair();
    PemPair { certificate, private_key }
}

fn days(days: u64) -> Duration {
    Duration::from_secs(days * 24 * 3600)
}

/// A machine and its store. Their clock shows noon plus `after`.
struct Scene {
    root: tempfile::TempDir,
    keyset: Keyset,
    downloads: Downloads,
    after: Duration,
}

impl Scene {
    fn new() -> Scene {
        let keyset = Keyset(vec![("1", authority_of("kubernetes-ca", 300))]);
        let root = tempfile::tempdir().unwrap();
        Scene { root, keyset, downloads: downloads(CALM), after: Duration::ZERO }
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    fn now(&self) -> SystemTime {
        noon() + self.after
    }

    fn host(&self) -> Host {
        let now = self.now();
        Host::scratch(self.root.path()).unwrap().with_clock(move || now)
    }

    fn plan(&self, desired: &DesiredState) -> Plan {
        let host = self.host();
        let observed = host.observe(desired, &self.keyset).unwrap();
        diff_with_owned(desired, &observed, &host.owned_beside(desired).unwrap())
    }

    async fn converge(&self, desired: &DesiredState) -> Result<Report, Error> {
        let plan = self.plan(desired);
        self.host().apply(&plan, desired, &self.keyset, &self.downloads, &Silent, SCOPE).await
    }

    /// Writes the files that nodeup would write. nodeup reissues all certificates and trusts only the signing
    /// authority. The text of its kubeconfig differs from the agent's.
    fn nodeup(&self, signs: &str, sans: &[&str]) {
        let now = OffsetDateTime::from(self.now());
        let item = self.keyset.keyset_item("kubernetes-ca", signs).unwrap();
        let authority = Authority::load("kubernetes-ca", signs, item.clone(), now).unwrap();
        let of_scheduler = authority.issue(&certificate("kube-scheduler", sans), now, lifetime(0)).unwrap();
        self.write(CRT, 0o644, &of_scheduler.certificate);
        self.write(KEY, 0o600, &of_scheduler.private_key);
        let pair = authority.issue(&certificate("kubelet", &[]), now, lifetime(0)).unwrap();
        let Kubeconfig { certificate, server } = of_kubelet();
        let text =
            kubeconfig::write(&server, &certificate, &item.certificate, &pair.certificate, &pair.private_key);
        self.write(KUBECONFIG, 0o400, &format!("# nodeup's\n{text}"));
    }

    fn write(&self, path: &str, mode: u32, text: &str) {
        fs::create_dir_all(self.path(path).parent().unwrap()).unwrap();
        let _ = fs::remove_file(self.path(path));
        fs::write(self.path(path), text).unwrap();
        set_modified(&self.path(path), self.now());
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn requests(&self) -> Vec<String> {
        let path = self.path("/var/lib/kops-agent/recorded/requests.txt");
        let text = fs::read_to_string(path).unwrap_or_default();
        let is_start = |line: &&str| line.contains("start ") || line.contains("end the containers");
        text.lines().filter(is_start).map(str::to_owned).collect()
    }

    /// Makes the machine look as after nodeup: the agent has no record, and the processes started at noon.
    fn forget(&self) {
        for name in ["record.json", "units", "pods", "applied", "begun"] {
            let path = self.path("/var/lib/kops-agent").join(name);
            let _ = fs::remove_file(&path);
            let _ = fs::remove_dir_all(&path);
        }
        let state = self.path("/var/lib/kops-agent/recorded/state.json");
        let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
        let started = noon().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64;
        value["units"]["kubelet.service"]["started"] = started.into();
        value["pods"] = serde_json::json!({ "kube-system/kube-scheduler": started });
        fs::write(state, value.to_string()).unwrap();
    }
}

fn set_modified(path: &Path, at: SystemTime) {
    fs::File::options().append(true).open(path).unwrap().set_modified(at).unwrap();
}

fn restarts(plan: &Plan) -> Vec<&str> {
    plan.steps.iter().filter(|step| step.restarts()).map(|step| step.resource.name.as_str()).collect()
}

fn goes_on(plan: &Plan) -> Vec<&str> {
    let kept = plan.kept.iter().filter(|kept| kept.keeping == Keeping::Loaded);
    kept.map(|kept| kept.resource.name.as_str()).collect()
}

#[tokio::test]
async fn reissued_certificates_are_recorded_and_read_before_the_loaded_ones_expire() {
    let mut scene = Scene::new();
    scene.converge(&node(&["a.example.com"])).await.unwrap();
    let before = scene.requests();
    scene.after = days(100);
    scene.nodeup("1", &["a.example.com"]);
    let plan = scene.plan(&node(&["a.example.com"]));
    assert!(plan.is_empty(), "{plan:?}");
    assert_eq!(goes_on(&plan), RESTARTS);
    assert!(plan.kept[0].why.contains("which is at 202"), "{:?}", plan.kept);
    assert!(!scene.host().drift().unwrap().is_empty());
    scene.converge(&node(&["a.example.com"])).await.unwrap();
    assert_eq!(scene.requests(), before);
    assert_eq!(scene.host().drift().unwrap(), [], "the reissued files are recorded");

    // The loaded certificates have a third of their life left. The newer certificates in the files are valid for
    // longer. So a restart is due.
    scene.after = days(350);
    let plan = scene.plan(&node(&["a.example.com"]));
    assert_eq!(restarts(&plan), RESTARTS, "{plan:?}");
    assert_eq!(plan.steps.len(), 2, "{plan:?}");
    scene.converge(&node(&["a.example.com"])).await.unwrap();
    assert_eq!(scene.requests().len(), before.len() + 2);
    let plan = scene.plan(&node(&["a.example.com"]));
    assert!(plan.is_empty() && plan.kept.is_empty(), "{plan:?}");
}

#[tokio::test]
async fn the_next_real_change_also_reads_the_reissued_certificates() {
    let mut scene = Scene::new();
    scene.converge(&node(&["a.example.com"])).await.unwrap();
    scene.after = days(100);
    scene.nodeup("1", &["a.example.com"]);
    let mut changed = node(&["a.example.com"]);
    changed.add(File::text("/srv/kubernetes/kube-scheduler/config.yaml", "new"));
    let plan = scene.plan(&changed);
    assert_eq!((restarts(&plan), goes_on(&plan)), (vec![MANIFEST], vec!["kubelet.service"]), "{plan:?}");
    scene.converge(&changed).await.unwrap();
    assert_eq!(goes_on(&scene.plan(&changed)), ["kubelet.service"]);
}

#[tokio::test]
async fn other_names_and_another_authority_are_a_reason_to_restart() {
    let mut scene = Scene::new();
    scene.converge(&node(&["a.example.com"])).await.unwrap();
    scene.after = days(100);
    // The wanted names of a certificate have changed, and nodeup has written a certificate with the new names. This
    // happens after `kops update cluster` and a reboot.
    scene.nodeup("1", &["b.example.com"]);
    let plan = scene.plan(&node(&["b.example.com"]));
    assert_eq!((restarts(&plan), goes_on(&plan)), (vec![MANIFEST], vec!["kubelet.service"]), "{plan:?}");
    // An authority with a new key becomes the signing authority.
    scene.keyset.0.push(("2", authority_of("kubernetes-ca", 10)));
    scene.nodeup("2", &["a.example.com"]);
    let mut promoted = DesiredState::default();
    for (_, resource) in node(&["a.example.com"]).iter() {
        promoted.add(match resource.clone() {
            Resource::Certificate(certificate) => {
                Certificate { keypair_id: "2".into(), ..certificate }.into()
            }
            other => other,
        });
    }
    let plan = scene.plan(&promoted);
    assert_eq!(restarts(&plan), RESTARTS, "{plan:?}");
}

#[tokio::test]
async fn a_second_authority_restarts_nothing_until_it_signs() {
    let mut scene = Scene::new();
    scene.converge(&node(&[])).await.unwrap();
    let before = scene.requests();
    scene.keyset.0.push(("2", authority_of("kubernetes-ca", 10)));
    for runs_nodeup in [false, true] {
        if runs_nodeup {
            scene.nodeup("1", &[]);
        }
        let plan = scene.plan(&node(&[]));
        let names: Vec<&str> = plan.steps.iter().map(|step| step.resource.name.as_str()).collect();
        assert_eq!(names, [KUBECONFIG], "{plan:?}");
        scene.converge(&node(&[])).await.unwrap();
        assert_eq!(scene.requests(), before);
    }
    // kubelet must trust the signing authority 1, and every authority that is as old or older. Authority 0 is older, so
    // kubelet restarts.
    scene.keyset.0.push(("0", authority_of("kubernetes-ca", 400)));
    assert_eq!(restarts(&scene.plan(&node(&[]))), ["kubelet.service"]);
}

#[tokio::test]
async fn on_the_first_sight_the_oldest_file_gives_the_age_of_the_loaded_certificates() {
    // nodeup first ran `first_ran` days before noon. All components started at noon. nodeup runs again 100 days later.
    for (first_ran, is_restarted) in [(0, false), (150, false), (250, true)] {
        let mut scene = Scene::new();
        scene.converge(&node(&[])).await.unwrap();
        for path in [CONFIG, MANIFEST, "/etc/systemd/system/kubelet.service"] {
            set_modified(&scene.path(path), noon() - days(first_ran));
        }
        scene.forget();
        scene.after = days(100);
        scene.nodeup("1", &[]);
        let plan = scene.plan(&node(&[]));
        let expected: &[&str] = if is_restarted { &RESTARTS } else { &[] };
        assert_eq!(restarts(&plan), expected, "{first_ran}: {plan:?}");
        assert_eq!(goes_on(&plan).len(), if is_restarted { 0 } else { 2 });
        let before = scene.requests().len();
        scene.converge(&node(&[])).await.unwrap();
        assert_eq!(scene.requests().len() - before, expected.len());
        assert!(scene.plan(&node(&[])).is_empty());
        // The agent does not know which certificates the components loaded. So the first run has recorded an assumed
        // age of the loaded certificates.
        scene.after = days(350);
        let is_due = restarts(&scene.plan(&node(&[]))) == RESTARTS;
        assert_eq!(is_due, !is_restarted, "{first_ran}");
    }
}
