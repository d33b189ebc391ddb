//! A converged machine is right to the byte, also after a run that was killed, changes by hand, or a second run.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::example::{Ended, Machine, keysets};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kops_agent_tests::downloads::{Downloads, Fault};
use kops_agent_tests::example_store::{BUCKET, CONTROL_PLANE, NODES, releases};
use kops_agent_tests::polling::eventually;
use kops_agent_tests::stand_ins::Releases;
use serde_json::Value;

const KUBELET: &str = "/release/v1.34.2/bin/linux/arm64/kubelet";
const REQUESTS: &str = "var/lib/kops-agent/recorded/requests.txt";

fn read(machine: &Machine, path: &str) -> String {
    fs::read_to_string(machine.root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The inode, and the modification time in seconds and nanoseconds. A write changes them even if the content stays.
type Written = (u64, i64, i64);

/// Every file below the root except the agent's own files. Each file has its permissions, its content and the time of
/// its last write.
fn files(machine: &Machine) -> BTreeMap<String, (u32, Vec<u8>, Written)> {
    let describe = |path: String| {
        let file = machine.root().join(&path);
        let metadata = fs::symlink_metadata(&file).unwrap();
        let content = match fs::read_link(&file) {
            Ok(target) => target.into_os_string().into_encoded_bytes(),
            Err(_) => fs::read(&file).unwrap(),
        };
        let written = (metadata.ino(), metadata.mtime(), metadata.mtime_nsec());
        (path, (metadata.mode() & 0o7777, content, written))
    };
    machine.files().into_iter().map(describe).collect()
}

fn openssl(arguments: &[&str], input: &str) -> String {
    let mut openssl = Command::new("openssl");
    openssl.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut openssl = openssl.spawn().unwrap();
    openssl.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = openssl.wait_with_output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn signed_by_kubernetes_ca(machine: &Machine, certificate: &str) {
    let authority = machine.folder().join("kubernetes-ca.pem");
    let keyset = keysets().iter().find(|keyset| keyset.name == "kubernetes-ca").unwrap();
    fs::write(&authority, &keyset.certificate).unwrap();
    openssl(&["verify", "-CAfile", authority.to_str().unwrap()], certificate);
}

#[track_caller]
fn is_a_pair(certificate: &str, key: &str) {
    assert_eq!(openssl(&["x509", "-noout", "-pubkey"], certificate), openssl(&["pkey", "-pubout"], key));
}

/// The client certificate and key in a kubeconfig. Also checks which authority the kubeconfig trusts.
fn credentials(machine: &Machine, path: &str) -> (String, String) {
    let kubeconfig: serde_yaml::Value = serde_yaml::from_str(&read(machine, path)).unwrap();
    let decode = |value: &serde_yaml::Value| {
        String::from_utf8(STANDARD.decode(value.as_str().unwrap()).unwrap()).unwrap()
    };
    let user = &kubeconfig["users"][0]["user"];
    let trusted = decode(&kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]);
    signed_by_kubernetes_ca(machine, &trusted);
    (decode(&user["client-certificate-data"]), decode(&user["client-key-data"]))
}

#[test]
fn programs_are_the_published_ones_and_certificates_chain_to_the_authority() {
    let stand_ins = releases().stand_ins().unwrap();
    for (group, arch) in [(CONTROL_PLANE, "amd64"), (NODES, "arm64")] {
        let machine = Machine::new(group);
        machine.run("converge", &[]).with(0, &[]);

        let kubelet = format!("/release/v{}/bin/linux/{arch}/kubelet", releases().kubernetes);
        assert_eq!(read(&machine, "usr/local/bin/kubelet").as_bytes(), stand_ins[&kubelet]);
        let says = format!("a stand-in for containerd {} ({arch})", releases().containerd);
        assert!(read(&machine, "usr/bin/containerd").contains(&says));
        for (path, (mode, ..)) in files(&machine) {
            let is_program =
                ["usr/local/bin/", "usr/bin/", "usr/sbin/"].iter().any(|bin| path.starts_with(bin));
            assert!(!is_program || mode == 0o755, "{path} has mode {mode:o}");
        }

        for kubeconfig in ["var/lib/kubelet/kubeconfig", "var/lib/kube-proxy/kubeconfig"] {
            let (certificate, key) = credentials(&machine, kubeconfig);
            signed_by_kubernetes_ca(&machine, &certificate);
            is_a_pair(&certificate, &key);
            let mode = files(&machine)[kubeconfig].0;
            assert_eq!(mode & 0o077, 0, "{kubeconfig} has mode {mode:o}");
        }
        let server = read(&machine, "srv/kubernetes/kubelet-server.crt");
        signed_by_kubernetes_ca(&machine, &server);
        is_a_pair(&server, &read(&machine, "srv/kubernetes/kubelet-server.key"));

        let requests = read(&machine, REQUESTS);
        for request in
            ["packages: install", "systemd: start containerd.service", "systemd: start kubelet.service"]
        {
            assert!(requests.contains(request), "no {request:?} in:\n{requests}");
        }
    }
}

#[test]
fn the_api_server_can_be_called_by_all_its_names() {
    let machine = Machine::new(CONTROL_PLANE);
    machine.run("converge", &[]).with(0, &[]);
    let certificate = read(&machine, "srv/kubernetes/kube-apiserver/server.crt");
    let names = openssl(&["x509", "-noout", "-ext", "subjectAltName"], &certificate);
    for name in [
        "DNS:kubernetes.default.svc.cluster.local",
        "DNS:api.internal.demo.example.com",
        "IP Address:100.64.0.1",
    ] {
        assert!(names.contains(name), "no {name} in {names}");
    }
    for component in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"] {
        let manifest = read(&machine, &format!("etc/kubernetes/manifests/{component}.manifest"));
        let pod: serde_yaml::Value = serde_yaml::from_str(&manifest).unwrap();
        assert_eq!(pod["kind"], "Pod", "{component}");
    }
}

#[test]
fn a_second_run_writes_no_file_again() {
    for group in [CONTROL_PLANE, NODES] {
        let machine = Machine::new(group);
        machine.run("converge", &[]).with(0, &[]);
        let (before, requests) = (files(&machine), read(&machine, REQUESTS));
        let again = machine.run("converge", &[]);
        assert_eq!(
            (again.code, again.stdout.as_str()),
            (0, "Nothing to do: this node is as it should be.\n")
        );
        assert!(files(&machine) == before, "a second run wrote something");
        assert_eq!(read(&machine, REQUESTS), requests, "a second run asked for something");
    }
}

#[test]
fn only_files_changed_by_hand_are_written_and_only_their_units_restart() {
    let machine = Machine::new(NODES);
    machine.run("converge", &[]).with(0, &[]);
    let (before, requests) = (files(&machine), read(&machine, REQUESTS));
    let (unit, runc) = ("etc/systemd/system/kubelet.service", "usr/sbin/runc");
    fs::write(machine.root().join(unit), "[Service]\nExecStart=/bin/false\n").unwrap();
    fs::remove_file(machine.root().join(runc)).unwrap();

    machine.run("converge", &[]).with(0, &[]);
    for (path, (mode, content, written)) in files(&machine) {
        let (mode_before, content_before, written_before) = &before[&path];
        assert!((mode, &content) == (*mode_before, content_before), "{path} is not as it was");
        let is_new = [unit, runc].contains(&path.as_str());
        assert_eq!(written != *written_before, is_new, "{path}");
    }
    let after = read(&machine, REQUESTS);
    let asked = after.strip_prefix(&requests).unwrap();
    assert!(asked.contains("restart kubelet.service"), "{asked}");
    assert!(!asked.contains("chrony.service"), "{asked}");
}

#[test]
fn a_plan_for_a_root_that_is_not_there_leaves_it_so() {
    let mut machine = Machine::new(NODES);
    let absent = machine.folder().join("absent");
    machine.set_root(absent.clone());
    let plan = machine.run("plan", &[]);
    plan.with(0, &[]);
    assert!(plan.stdout.contains("Plan:"), "{plan:#?}");
    assert!(!absent.exists());
}

#[test]
fn a_plan_shows_each_file_as_a_diff_until_there_is_none() {
    let machine = Machine::new(NODES);
    let plan = machine.run("plan", &["--exit-code"]);
    plan.with(4, &[]);
    for line in ["--- /dev/null", "+++ kubelet.service", "+ package iptables"] {
        assert!(plan.stdout.lines().any(|planned| planned.trim() == line), "no {line:?} in {plan:#?}");
    }
    assert!(plan.stdout.trim_end().ends_with("are created. Restarts: none."), "{plan:#?}");
    assert!(!plan.stdout.contains('\u{1b}'), "colour, but this is no terminal");
    machine.run("plan", &[]).with(0, &[]);
    assert!(machine.run("plan", &["--color", "always"]).stdout.contains("\u{1b}["));
    assert_eq!(fs::read_dir(machine.root()).unwrap().count(), 0, "a plan touched the root");
}

#[test]
fn machines_read_json() {
    let machine = Machine::new(NODES);
    let json = |verb: &str| -> Value {
        let ended = machine.run(verb, &["-o", "json"]);
        ended.with(0, &[]);
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let count = |value: &Value| value.as_array().unwrap().len();
    let planned = count(&json("plan")["steps"]);
    assert!(planned > 50, "{planned}");
    assert_eq!(count(&json("converge")["applied"]), planned);
    assert_eq!(count(&json("plan")["steps"]), 0);
    assert_eq!(count(&json("converge")["applied"]), 0);
}

#[test]
fn a_folder_and_a_bucket_give_the_same_node() {
    let machine = Machine::new(CONTROL_PLANE);
    let over_s3 = machine.state(&[]);
    let bucket = machine.cluster.store.buckets().join(BUCKET);
    let mut agent = machine.agent_without_root("render");
    agent.env_clear().args(["-o", "json", "--store-mirror", &format!("s3://{BUCKET}={}", bucket.display())]);
    let of_folder = Ended::from_command(&mut agent);
    of_folder.with(0, &[]);
    assert!(over_s3 == of_folder.stdout, "the store's place changes the node");
}

fn begun(machine: &Machine) -> std::process::Child {
    machine.downloads().break_path(KUBELET, Fault::StallsHalfway);
    machine.agent("converge").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn has_half_of_the_kubelet(cache: &Path) -> bool {
    let Ok(entries) = fs::read_dir(cache) else { return false };
    entries.map(|entry| entry.unwrap()).any(|entry| {
        entry.file_name().to_string_lossy().ends_with("_kubelet.part")
            && entry.metadata().unwrap().len() > 1000
    })
}

#[test]
fn a_run_that_was_killed_is_finished_by_the_next() {
    let (undisturbed, killed) = (Machine::new(NODES), Machine::new(NODES));
    undisturbed.run("converge", &[]).with(0, &[]);

    let mut agent = begun(&killed);
    let cache = killed.root().join("var/cache/nodeup");
    eventually("half of the kubelet is there", || has_half_of_the_kubelet(&cache));
    agent.kill().unwrap();
    agent.wait().unwrap();
    assert_eq!(killed.files(), [""; 0], "written before everything was verified");

    killed.downloads().mend_path(KUBELET);
    killed.run("converge", &[]).with(0, &[]);
    let resumed = format!("GET {KUBELET} bytes=");
    assert!(killed.downloads().requests().iter().any(|request| request.starts_with(&resumed)));
    assert!(!has_half_of_the_kubelet(&cache), "the half is left behind");

    let (one, other) = (files(&undisturbed), files(&killed));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (path, (mode, content, _)) in &one {
        // Each machine makes its own keys, so these files differ.
        let is_own = path.ends_with("/kubeconfig") || path.contains("/kubelet-server.");
        assert_eq!(mode, &other[path].0, "{path}");
        assert!(is_own || content == &other[path].1, "{path} differs");
    }
    assert!(killed.run("converge", &[]).stdout.starts_with("Nothing to do"));
}

#[test]
fn two_runs_at_once_keep_out_of_each_others_way() {
    let machine = Machine::new(NODES);
    let mut first = begun(&machine);
    let cache = machine.root().join("var/cache/nodeup");
    eventually("the first is at work", || has_half_of_the_kubelet(&cache));
    let process = format!("process {}", first.id());
    machine.run("converge", &[]).with(1, &["another kops-agent is running", &process]);
    first.kill().unwrap();
    first.wait().unwrap();
    machine.downloads().mend_path(KUBELET);
    machine.run("converge", &[]).with(0, &[]);
}

/// A Kubernetes version that kops-agent does not know yet is no error, because a cluster may be upgraded before the
/// agents on its nodes. Upstream's nodeup accepts every newer version, too.
#[test]
fn a_kubernetes_that_is_newer_than_the_program_knows_is_warned_of_once_and_decided() {
    let mut node = Machine::new(NODES);
    let newer = Releases { kubernetes: "1.37.0".into(), cni_plugins: "1.9.1".into(), ..releases() };
    let newer = Downloads::start(&newer).unwrap();
    let spec = "cluster-completed.spec";
    node.cluster.edit(spec, &node.downloads().url(), &newer.url()).unwrap();
    node.cluster.edit(spec, "kubernetesVersion: 1.34.2", "kubernetesVersion: 1.37.0").unwrap();
    node.cluster.downloads = Some(newer);
    let warning = "Kubernetes 1.37.0 is newer than this kops-agent knows, so this node is configured as for Kubernetes 1.36";
    for verb in ["plan", "converge", "plan"] {
        let ended = node.run(verb, &[]);
        ended.with(0, &[warning]);
        assert_eq!(ended.stderr.matches("newer than").count(), 1, "{ended:#?}");
    }
    let kubelet = read(&node, "usr/local/bin/kubelet");
    assert!(kubelet.contains("1.37.0"), "{kubelet}");
}

/// Collects all folders and files below `folder` that users other than the owner may write to.
fn writable_by_others(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, metadata) = (entry.path(), entry.metadata().unwrap());
        if !metadata.is_symlink() && metadata.mode() & 0o022 != 0 {
            found.push(format!("{} {:o}", path.display(), metadata.mode()));
        }
        if metadata.is_dir() {
            writable_by_others(&path, found);
        }
    }
}

#[test]
fn no_umask_makes_files_of_a_run_writable_for_other_users() {
    let machine = Machine::new(NODES);
    // This root does not exist, so the run must create it.
    let root = machine.folder().join("made/root");
    let mut machine = machine;
    machine.set_root(root);
    let agent = machine.agent("converge");
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(agent.get_program()).args(agent.get_args());
    shell.env_clear().envs(agent.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Ended::from_command(&mut shell).with(0, &[]);
    let (cache, mut found) = (machine.root().join("var/cache/nodeup"), Vec::new());
    assert!(cache.is_dir());
    writable_by_others(&machine.folder().join("made"), &mut found);
    assert_eq!(found, [""; 0]);
}
