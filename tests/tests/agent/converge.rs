//! A store in, a converged machine out, and nothing left to do after that.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kops_agent_tests::downloads::Fault;
use kops_agent_tests::example_store::{CONTROL_PLANE, NODES, releases};
use serde_json::Value;

use super::support::{Content, Machine, World, expect_same, run};

const GROUPS: [&str; 2] = [CONTROL_PLANE, NODES];

/// Where the stand-in for a program is below the mirror.
fn kubelet_path(arch: &str) -> String {
    format!("/release/v{}/bin/linux/{arch}/kubelet", releases().kubernetes)
}

fn architecture(group: &str) -> &'static str {
    if group == CONTROL_PLANE { "amd64" } else { "arm64" }
}

/// Has `openssl` check a certificate, given on its standard input.
fn verify(authority: &Path, certificate: &str) {
    let mut openssl = Command::new("openssl");
    openssl.args(["verify", "-CAfile"]).arg(authority);
    let mut openssl = openssl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    openssl.stdin.take().unwrap().write_all(certificate.as_bytes()).unwrap();
    let output = openssl.wait_with_output().unwrap();
    assert!(output.status.success(), "{}\n{certificate}", String::from_utf8_lossy(&output.stderr));
}

/// Has `openssl` print the public key of a certificate or of a private key.
fn public_key(arguments: &[&str], file: &Path) -> String {
    let output = Command::new("openssl").args(arguments).arg("-in").arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn expect_matching_key(machine: &Machine<'_>, name: &str) {
    let (certificate, key) = (machine.path(&format!("{name}.crt")), machine.path(&format!("{name}.key")));
    assert_eq!(
        public_key(&["x509", "-noout", "-pubkey"], &certificate),
        public_key(&["pkey", "-pubout"], &key),
        "{name}"
    );
}

/// A certificate of a kubeconfig, as PEM.
fn of_kubeconfig(kubeconfig: &str, section: &str, entry: &str, field: &str) -> String {
    use base64::Engine;
    let kubeconfig: serde_yaml::Value = serde_yaml::from_str(kubeconfig).unwrap();
    let encoded = kubeconfig[section][0][entry][field].as_str().unwrap();
    String::from_utf8(base64::engine::general_purpose::STANDARD.decode(encoded).unwrap()).unwrap()
}

fn expect_kubeconfig(world: &World, machine: &Machine<'_>, path: &str) {
    let kubeconfig = machine.read(path);
    let authority = of_kubeconfig(&kubeconfig, "clusters", "cluster", "certificate-authority-data");
    let keyset: serde_yaml::Value =
        serde_yaml::from_str(&fs::read_to_string(world.store_file("pki/private/kubernetes-ca/keyset.yaml")).unwrap())
            .unwrap();
    use base64::Engine;
    let kept = keyset["spec"]["keys"][0]["publicMaterial"].as_str().unwrap();
    let kept = base64::engine::general_purpose::STANDARD.decode(kept).unwrap();
    assert_eq!(authority.trim_end().as_bytes(), kept.trim_ascii_end(), "{path} trusts another authority");

    let file = machine.path("authority-of-kubeconfig.pem");
    fs::write(&file, &authority).unwrap();
    verify(&file, &of_kubeconfig(&kubeconfig, "users", "user", "client-certificate-data"));
    fs::remove_file(file).unwrap();
}

#[test]
fn both_machines_converge_from_s3() {
    let world = World::new();
    let stand_ins = releases().stand_ins().unwrap();
    for group in GROUPS {
        let machine = world.machine(group);
        let ended = machine.converge();
        assert!(ended.stdout.starts_with("Converged: "), "{}", ended.stdout);

        let arch = architecture(group);
        assert_eq!(machine.read("/usr/local/bin/kubelet").as_bytes(), stand_ins[&kubelet_path(arch)]);
        let containerd = machine.read("/usr/bin/containerd");
        let says = format!("a stand-in for containerd {} ({arch})", releases().containerd);
        assert!(containerd.contains(&says), "{}", &containerd[..100]);
        for program in ["/usr/local/bin/kubelet", "/usr/bin/containerd", "/usr/sbin/runc", "/opt/cni/bin/loopback"] {
            assert_eq!(machine.mode(program), 0o755, "{program}");
        }
        let unit = machine.read("/etc/systemd/system/kubelet.service");
        assert!(unit.contains("ExecStart=/usr/local/bin/kubelet"), "{unit}");

        expect_kubeconfig(&world, &machine, "/var/lib/kubelet/kubeconfig");
        expect_kubeconfig(&world, &machine, "/var/lib/kube-proxy/kubeconfig");
        verify(&machine.path("/srv/kubernetes/ca.crt"), &machine.read("/srv/kubernetes/kubelet-server.crt"));
        expect_matching_key(&machine, "/srv/kubernetes/kubelet-server");

        let requests = machine.read("/var/lib/kops-agent/recorded/requests.txt");
        for wanted in ["containerd.service", "kubelet.service", "package"] {
            assert!(requests.contains(wanted), "no {wanted} in:\n{requests}");
        }
    }
}

#[test]
fn a_control_plane_has_its_pods_and_its_certificates() {
    let world = World::new();
    let machine = world.machine(CONTROL_PLANE);
    machine.converge();
    for component in ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"] {
        let manifest = machine.read(&format!("/etc/kubernetes/manifests/{component}.manifest"));
        let pod: serde_yaml::Value = serde_yaml::from_str(&manifest).unwrap();
        assert_eq!(pod["kind"], "Pod", "{component}");
        let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
        assert!(image.ends_with(&format!("{component}:v{}", releases().kubernetes)), "{image}");
    }
    let server = "/srv/kubernetes/kube-apiserver/server";
    verify(&machine.path("/srv/kubernetes/ca.crt"), &machine.read(&format!("{server}.crt")));
    expect_matching_key(&machine, server);
    let names = public_key(&["x509", "-noout", "-ext", "subjectAltName"], &machine.path(&format!("{server}.crt")));
    for name in ["DNS:kubernetes.default.svc.cluster.local", "DNS:api.internal.demo.example.com", "IP Address:100.64.0.1"] {
        assert!(names.contains(name), "no {name} in {names}");
    }
}

#[test]
fn only_the_owner_reads_keys() {
    let world = World::new();
    for group in GROUPS {
        let machine = world.machine(group);
        machine.converge();
        let mut keys = 0;
        for (path, entry) in super::support::tree(&machine.root()) {
            let Content::File(bytes) = &entry.content else { continue };
            let text = String::from_utf8_lossy(bytes);
            if text.contains("PRIVATE KEY") || text.contains("client-key-data") {
                assert_eq!(entry.mode & 0o077, 0, "{path} has mode {:o}", entry.mode);
                keys += 1;
            }
        }
        assert!(keys >= 3, "{keys} keys on {group}");
    }
}

#[test]
fn a_second_run_changes_nothing_and_says_so() {
    let world = World::new();
    for group in GROUPS {
        let machine = world.machine(group);
        machine.converge();
        let before = machine.tree();
        let requests = machine.read("/var/lib/kops-agent/recorded/requests.txt");
        let downloads = world.downloads.requests().iter().filter(|request| !request.contains(".sha256")).count();

        let ended = machine.converge();
        assert_eq!(ended.stdout, "Nothing to do: this node is as it should be.\n");
        assert_eq!(machine.tree(), before);
        assert_eq!(machine.read("/var/lib/kops-agent/recorded/requests.txt"), requests);
        let again = world.downloads.requests().iter().filter(|request| !request.contains(".sha256")).count();
        assert_eq!(again, downloads, "something was downloaded again");
    }
}

#[test]
fn what_somebody_changed_is_put_right_and_nothing_else_is_touched() {
    let world = World::new();
    let machine = world.machine(NODES);
    machine.converge();
    let before = machine.tree();
    let unit = "/etc/systemd/system/kubelet.service";
    fs::write(machine.path(unit), "[Service]\nExecStart=/bin/false\n").unwrap();
    fs::remove_file(machine.path("/usr/sbin/runc")).unwrap();

    let plan = run(&mut machine.command("plan", &["--exit-code"])).expect_code(4).stdout;
    assert!(plan.contains(&format!("--- {unit}")) && plan.contains("-ExecStart=/bin/false"), "{plan}");
    let ended = machine.converge();
    // The kubelet's own unit has changed, and only that needs another start.
    assert_eq!(ended.stdout, "Converged: 1 created, 1 changed, 1 restarted.\n");
    let changed = [unit, "/usr/sbin/runc"];
    expect_same(&before, &machine.tree(), |_| false);
    for (path, entry) in machine.tree() {
        assert_eq!(entry.identity == before[&path].identity, !changed.contains(&path.as_str()), "{path}");
    }
}

#[test]
fn plan_shows_the_difference_first_and_none_afterwards() {
    let world = World::new();
    let machine = world.machine(NODES);
    let plan = run(&mut machine.command("plan", &["--exit-code"])).expect_code(4).stdout;
    for line in [
        "--- /dev/null",
        "+++ /etc/systemd/system/kubelet.service",
        "  + package iptables",
        "  + certificate kubelet: issue, because there is none yet",
    ] {
        assert!(plan.lines().any(|l| l.trim_start() == line.trim_start()), "no {line:?} in:\n{plan}");
    }
    assert!(plan.trim_end().ends_with("to create, 0 to change, 0 to restart"), "{plan}");
    assert!(!plan.contains('\u{1b}'), "colour, but this is no terminal");
    assert_eq!(super::support::tree(&machine.root()).len(), 0, "plan touches nothing");

    run(&mut machine.command("plan", &[])).expect_code(0);
    let coloured = run(&mut machine.command("plan", &["--color", "always"])).expect_code(0).stdout;
    assert!(coloured.contains("\u{1b}["), "{coloured}");

    machine.converge();
    let plan = run(&mut machine.command("plan", &["--exit-code"])).expect_code(0).stdout;
    assert_eq!(plan, "Nothing to do: this node is as it should be.\n");
}

#[test]
fn machines_read_json() {
    let world = World::new();
    let machine = world.machine(NODES);
    let json = |command: &str| -> Value {
        let ended = run(&mut machine.command(command, &["-o", "json"])).expect_code(0);
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let rendered = json("render");
    assert!(rendered["resources"].as_array().unwrap().len() > 50);
    let planned = json("plan")["steps"].as_array().unwrap().len();
    assert!(planned > 50, "{planned}");
    assert_eq!(json("converge")["applied"].as_array().unwrap().len(), planned);
    assert_eq!(json("plan")["steps"], Value::Array(vec![]));
    assert_eq!(json("converge")["applied"], Value::Array(vec![]));
}

#[test]
fn a_run_that_was_killed_is_finished_by_the_next() {
    let world = World::new();
    let undisturbed = world.named_machine(NODES, "undisturbed");
    undisturbed.converge();

    let machine = world.named_machine(NODES, "killed");
    let path = kubelet_path("arm64");
    world.downloads.break_path(&path, Fault::StallsHalfway);
    let mut agent = machine.command("converge", &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let cache = machine.path("/var/cache/nodeup");
    wait_until("half of the kubelet is there", || {
        let Ok(entries) = fs::read_dir(&cache) else { return false };
        let mut entries = entries.map(|entry| entry.unwrap());
        entries.any(|entry| {
            let name = entry.file_name().into_string().unwrap();
            name.ends_with("_kubelet.part") && entry.metadata().unwrap().len() > 1000
        })
    });
    agent.kill().unwrap();
    assert!(!agent.wait().unwrap().success());
    let left: Vec<_> = machine.tree().into_iter().filter(|(_, entry)| entry.content != Content::Directory).collect();
    assert!(left.is_empty(), "written before everything was verified: {left:?}");

    world.downloads.mend_path(&path);
    machine.converge();
    assert!(world.downloads.requests().iter().any(|r| r.starts_with(&format!("GET {path} bytes="))), "resumed");
    expect_same(&undisturbed.tree(), &machine.tree(), is_made_anew);
    assert_eq!(machine.converge().stdout, "Nothing to do: this node is as it should be.\n");
}

/// Every machine makes its own keys.
fn is_made_anew(path: &str) -> bool {
    path.ends_with("/kubeconfig") || path.starts_with("/srv/kubernetes/kubelet-server.")
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_folder_and_a_bucket_give_the_same_node() {
    let world = World::new();
    let machine = world.machine(CONTROL_PLANE);
    let over_s3 = run(&mut machine.command("render", &["-o", "json"])).expect_code(0).stdout;
    let of_folder = run(&mut machine.command_on_folder("render", &["-o", "json"])).expect_code(0).stdout;
    assert!(over_s3 == of_folder);
}

#[test]
fn two_runs_at_once_do_not_get_into_each_others_way() {
    let world = World::new();
    let machine = world.machine(NODES);
    let path = kubelet_path("arm64");
    world.downloads.break_path(&path, Fault::StallsHalfway);
    let mut first = machine.command("converge", &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the first is at work", || world.downloads.requests().iter().any(|r| *r == format!("GET {path}")));
    let pid = format!("process {}", first.id());
    run(&mut machine.command("converge", &[])).expect_code(1).expect_said(&["another kops-agent is at work", &pid]);
    first.kill().unwrap();
    first.wait().unwrap();
    world.downloads.mend_path(&path);
    machine.converge();
}
