//! On a machine with SELinux, everything gets the policy's label before it is used.
//!
//! Only root may set labels, on kernels with and without SELinux. Without that right, these tests report that they are
//! skipped.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use crate::support;

use std::fs;
use std::path::Path;

use crate::support::{Machine, SCOPE, asset, body, mirror, tar_gz};
use kops_agent_host::{Report, Silent};
use kops_agent_plan::diff::{Change, Plan, text, with_labels};
use kops_agent_plan::resource::{
    Certificate, CertificateType, Content, DesiredState, Directory, File, Issuer, KernelModule, Kind, Mode,
    Resource, ResourceId, Subject, Symlink, Unit,
};
use kops_agent_spec::digest::sha256_hex;
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};

const ATTRIBUTE: &str = "security.selinux";
const RULES: &str = "\
/etc(/.*)?                              system_u:object_r:etc_t:s0
/etc/hosts              --              system_u:object_r:net_conf_t:s0
/etc/kubernetes(/.*)?                   system_u:object_r:kubernetes_file_t:s0
/etc/kubernetes/own     -d              system_u:object_r:own_t:s0
/etc/systemd/system(/.*)?               system_u:object_r:systemd_unit_file_t:s0
/usr/(.*/)?bin(/.*)?                    system_u:object_r:bin_t:s0
/usr/bin/kubelet.*      --              system_u:object_r:kubelet_exec_t:s0
/usr/bin/.*             -l              system_u:object_r:link_t:s0
/pki(/.*)?                              system_u:object_r:cert_t:s0
/var/run(/.*)?                          system_u:object_r:var_run_t:s0
/volatile(/.*)?                         <<none>>
";

/// A root with an SELinux policy. `None`, with a printed reason, if this machine does not allow labels.
fn machine() -> Option<Machine> {
    let machine = Machine::new();
    let probe = machine.path("/probe");
    fs::write(&probe, "").unwrap();
    if let Err(error) = lsetxattr(&probe, ATTRIBUTE, b"u:r:t:s0\0", XattrFlags::empty()) {
        eprintln!("skipped: labels cannot be set here: {error}");
        return None;
    }
    let contexts = machine.path("/etc/selinux/targeted/contexts/files");
    fs::create_dir_all(&contexts).unwrap();
    fs::write(machine.path("/etc/selinux/config"), "SELINUX=enforcing\nSELINUXTYPE=targeted\n").unwrap();
    fs::write(contexts.join("file_contexts"), RULES).unwrap();
    fs::write(
        contexts.join("file_contexts.local"),
        "/etc/kubernetes/local.*  -- system_u:object_r:local_t:s0\n",
    )
    .unwrap();
    fs::write(contexts.join("file_contexts.subs_dist"), "/run /var/run\n").unwrap();
    Some(machine)
}

/// The type in the SELinux label of a path; empty if the path has no label.
fn type_of(path: &Path) -> String {
    let mut buffer = [0; 256];
    let label = match lgetxattr(path, ATTRIBUTE, &mut buffer) {
        Ok(size) => String::from_utf8(buffer[..size].to_vec()).unwrap(),
        Err(rustix::io::Errno::NODATA) => return String::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let label = label.strip_suffix('\0').expect("a label ends with a NUL byte");
    assert!(label.starts_with("system_u:object_r:") && label.ends_with(":s0"), "{label}");
    label.split(':').nth(2).unwrap().to_owned()
}

#[track_caller]
fn have(machine: &Machine, types: &[(&str, &str)]) {
    for (path, wanted) in types {
        assert_eq!(type_of(&machine.path(path)), *wanted, "{path}");
    }
}

fn plan(machine: &Machine, desired: &DesiredState) -> Plan {
    let host = machine.host();
    with_labels(machine.plan(&host, desired), &host.wrong_labels(desired).unwrap())
}

async fn converge(machine: &Machine, desired: &DesiredState) -> Report {
    let plan = plan(machine, desired);
    let applying = machine.host();
    applying.apply(&plan, desired, &machine.store, &machine.downloads, &Silent, SCOPE).await.unwrap()
}

fn certificate() -> Certificate {
    Certificate {
        name: "kubelet".into(),
        signer: "kubernetes-ca".into(),
        keypair_id: "1".into(),
        certificate_type: CertificateType::Client,
        subject: Subject { common_name: "kubelet".into(), organization: vec![] },
        sans: vec![],
        issuer: Issuer::Local,
        include_root: false,
    }
}

/// A node with each kind of resource that gets an SELinux label.
fn node() -> DesiredState {
    let mut node = DesiredState::default();
    node.add(Directory::new("/etc/kubernetes/own"));
    node.add(File::text("/etc/kubernetes/deep/manifests/a.yaml", "a"));
    node.add(File::text("/etc/kubernetes/local.conf", "local"));
    node.add(File::text("/run/kops/x", "x"));
    node.add(File::text("/volatile/x", "x"));
    node.add(certificate());
    node.add(File::new("/pki/kubelet.crt", Content::Certificate("kubelet".into())));
    node.add(File::new("/pki/kubelet.key", Content::PrivateKey("kubelet".into())).mode(Mode::PRIVATE));
    node.add(Symlink { path: "/usr/bin/link".into(), target: "kubelet".into() });
    node.add(KernelModule { name: "br_netfilter".into(), package: None });
    node.add(Unit::new("kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n"));
    node
}

#[tokio::test]
async fn every_new_resource_has_its_label() {
    let Some(machine) = machine() else { return };
    converge(&machine, &node()).await;
    have(
        &machine,
        &[
            ("/etc/kubernetes", "kubernetes_file_t"),
            ("/etc/kubernetes/own", "own_t"),
            // The run made these parent directories.
            ("/etc/kubernetes/deep", "kubernetes_file_t"),
            ("/etc/kubernetes/deep/manifests", "kubernetes_file_t"),
            ("/etc/kubernetes/deep/manifests/a.yaml", "kubernetes_file_t"),
            ("/etc/kubernetes/local.conf", "local_t"),
            ("/run/kops", "var_run_t"),
            ("/run/kops/x", "var_run_t"),
            ("/volatile/x", ""),
            ("/pki", "cert_t"),
            ("/pki/kubelet.crt", "cert_t"),
            ("/pki/kubelet.key", "cert_t"),
            ("/usr/bin", "bin_t"),
            ("/usr/bin/link", "link_t"),
            ("/etc/systemd/system/kubelet.service", "systemd_unit_file_t"),
            // This folder existed before the run.
            ("/etc", ""),
        ],
    );
    let again = plan(&machine, &node());
    assert!(again.is_empty(), "{again:#?}");
    assert_eq!(machine.leftovers(), [""; 0]);
}

#[tokio::test]
async fn a_download_has_the_label_of_its_path_and_not_of_the_cache() {
    let Some(machine) = machine() else { return };
    let mirror = mirror();
    let (program, archive) = (body(100_000), tar_gz(&[("bin/runc", &body(50_000))]));
    let (program_url, archive_url) = (mirror.put("/kubelet", &program), mirror.put("/runc.tgz", &archive));
    let kubelet = asset("/usr/bin/kubelet", &program_url, &sha256_hex(&program), None);
    let runc = asset("/usr/bin/runc", &archive_url, &sha256_hex(&archive), Some("bin/runc"));
    let desired = support::state([kubelet, runc]);
    converge(&machine, &desired).await;
    have(&machine, &[("/usr/bin/kubelet", "kubelet_exec_t"), ("/usr/bin/runc", "bin_t")]);
    assert!(plan(&machine, &desired).is_empty());
}

#[tokio::test]
async fn a_wrong_label_is_drift_and_is_corrected() {
    let Some(machine) = machine() else { return };
    let desired = node();
    converge(&machine, &desired).await;
    let ours = [
        ("directory /etc/kubernetes/own", "/etc/kubernetes/own", "own_t"),
        ("file /etc/kubernetes/local.conf", "/etc/kubernetes/local.conf", "local_t"),
        ("file /pki/kubelet.key", "/pki/kubelet.key", "cert_t"),
        ("symlink /usr/bin/link", "/usr/bin/link", "link_t"),
        ("unit kubelet.service", "/etc/systemd/system/kubelet.service", "systemd_unit_file_t"),
    ];
    for (_, path, _) in ours {
        lsetxattr(machine.path(path), ATTRIBUTE, b"system_u:object_r:var_t:s0\0", XattrFlags::empty())
            .unwrap();
    }
    // Differences in the user and the range of an SELinux label are no drift.
    let path = machine.path("/etc/kubernetes/deep/manifests/a.yaml");
    lsetxattr(path, ATTRIBUTE, b"root:object_r:kubernetes_file_t:s0:c1\0", XattrFlags::empty()).unwrap();

    let mending = plan(&machine, &desired);
    let steps: Vec<String> = mending.steps.iter().map(|step| step.resource.to_string()).collect();
    assert_eq!(steps, ours.map(|(id, ..)| id));
    let shown = text::plan(&mending, text::Style { colour: false, diffs: true });
    let line =
        "~ file /pki/kubelet.key: SELinux label system_u:object_r:var_t:s0 -> system_u:object_r:cert_t:s0";
    assert!(shown.contains(line), "{shown}");
    let key = machine.read("/pki/kubelet.key");
    converge(&machine, &desired).await;
    for (_, path, wanted) in ours {
        have(&machine, &[(path, wanted)]);
    }
    assert_eq!(machine.read("/pki/kubelet.key"), key, "correcting a label keeps the key");
    assert!(plan(&machine, &desired).is_empty());
    let restarts = machine.requests().iter().filter(|line| line.contains("restart kubelet")).count();
    assert_eq!(restarts, 0, "correcting a label restarts nothing");
}

#[tokio::test]
async fn a_missing_label_is_drift_and_other_programs_files_stay() {
    let Some(machine) = machine() else { return };
    let desired = support::state([File::text("/etc/kubernetes/ours", "x")]);
    converge(&machine, &desired).await;
    fs::write(machine.path("/etc/kubernetes/theirs"), "x").unwrap();
    rustix::fs::lremovexattr(machine.path("/etc/kubernetes/ours"), ATTRIBUTE).unwrap();
    let mending = plan(&machine, &desired);
    let [step] = &mending.steps[..] else { panic!("{mending:#?}") };
    assert_eq!(step.resource, Resource::from(File::text("/etc/kubernetes/ours", "")).id());
    assert!(matches!(&step.changes[..], [Change::Set { from: None, .. }]), "{step:?}");
    converge(&machine, &desired).await;
    have(&machine, &[("/etc/kubernetes/ours", "kubernetes_file_t"), ("/etc/kubernetes/theirs", "")]);
}

#[tokio::test]
async fn without_a_policy_nothing_is_labelled() {
    let Some(machine) = machine() else { return };
    for config in ["SELINUX=disabled\nSELINUXTYPE=targeted\n", "SELINUX=enforcing\nSELINUXTYPE=missing\n"] {
        fs::write(machine.path("/etc/selinux/config"), config).unwrap();
        let path = format!("/etc/kubernetes/{}", config.len());
        let desired = support::state([File::text(path.clone(), "x")]);
        converge(&machine, &desired).await;
        have(&machine, &[(&path, "")]);
        assert!(plan(&machine, &desired).step(&ResourceId::new(Kind::File, path)).is_none());
    }
}
