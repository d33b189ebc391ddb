#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn healthy() -> Observations {
    let service = |kind, name: &str| Service { kind, name: name.into(), outcome: Outcome::Answers };
    Observations {
        is_control_plane: false,
        written_by: None,
        kubernetes: KubernetesVersion::parse("1.34.2"),
        services: vec![
            service(ServiceKind::BootConfig, "/kube_env.yaml"),
            service(ServiceKind::Store, "s3://b/c/cluster-completed.spec"),
            service(ServiceKind::Metadata, "the cloud aws"),
            service(ServiceKind::Configuration, "nodes in c"),
        ],
        names: vec![name(Purpose::Store, NameOutcome::Addresses(vec!["10.0.0.1".parse().unwrap()]))],
        downloads: vec![download(false, &[("m", Outcome::Answers)])],
        clock: Clock { servers: vec![("m".into(), 0)], is_synchronized: Ok(true) },
        disks: Ok(vec![disk()]),
        volumes: Ok(Volumes::default()),
        listeners: Ok(vec![]),
        kernel: Kernel {
            cgroups: Ok(Cgroups::V2(set(&["cpu", "cpuset", "memory", "pids", "io"]))),
            modules: vec![Module { name: "overlay".into(), state: Ok(ModuleState::Loaded) }],
            missing_parameters: Ok(vec![]),
            parameters_are_read_only: Ok(false),
        },
        packages: Packages { lock: Ok(None), missing: Some(Ok(vec![])), repositories: None },
        machine: Machine {
            unfit: None,
            runs_systemd: Ok(true),
            swap: Ok(vec![]),
            allows_swap: Some(false),
            processes: Ok(vec![]),
        },
    }
}

fn name(purpose: Purpose, outcome: NameOutcome) -> Name {
    Name { name: "server.test".into(), purpose, outcome }
}

fn download(is_there: bool, servers: &[(&str, Outcome)]) -> Download {
    let servers = servers.iter().map(|(server, outcome)| ((*server).to_owned(), outcome.clone())).collect();
    Download { name: "kubelet".into(), is_there, servers }
}

fn disk() -> Disk {
    Disk {
        path: "/var/lib/kubelet".into(),
        free: 50 << 30,
        total: 100 << 30,
        free_inodes: 50,
        inodes: 100,
        is_read_only: false,
        needed: 1 << 30,
    }
}

/// Changes a healthy machine, and returns the only finding that is not `Ok`.
#[track_caller]
fn only_finding(change: impl FnOnce(&mut Observations)) -> Finding {
    let mut observed = healthy();
    change(&mut observed);
    let mut findings = findings(&observed);
    findings.retain(|finding| finding.verdict != Verdict::Ok);
    assert_eq!(findings.len(), 1, "{findings:#?}");
    findings.remove(0)
}

/// Asserts that the change gives one finding with this verdict and this text, and that the finding has a
/// remedy.
#[track_caller]
fn assert_finding(verdict: Verdict, said: &str, change: impl FnOnce(&mut Observations)) {
    let finding = only_finding(change);
    assert_eq!(finding.verdict, verdict, "{finding:#?}");
    assert!(finding.what.contains(said), "{finding:#?}");
    assert!(!finding.to_do.is_empty(), "{finding:#?}");
    assert!(!finding.to_do.contains(".md"), "only packages bring pages: {finding:#?}");
    assert_eq!(stops(&[finding]), verdict == Verdict::Problem);
}

#[test]
fn a_healthy_machine_has_no_problems() {
    let findings = findings(&healthy());
    assert!(
        findings.iter().all(|finding| finding.verdict == Verdict::Ok && finding.to_do.is_empty()),
        "{findings:#?}"
    );
    assert!(!stops(&findings));
    let checks: BTreeSet<&str> = findings.iter().map(|finding| finding.check).collect();
    for check in [
        "dns",
        "store",
        "metadata",
        "time",
        "disk",
        "ports",
        "cgroups",
        "modules",
        "sysctls",
        "downloads",
        "systemd",
        "packages",
        "swap",
        "programs",
    ] {
        assert!(checks.contains(check), "nothing is told of {check}: {checks:?}");
    }
}

#[test]
fn names() {
    let outcome = |purpose, outcome: NameOutcome| {
        move |observed: &mut Observations| observed.names = vec![name(purpose, outcome)]
    };
    let absent = || NameOutcome::Absent("there is no such name".into());
    assert_finding(Verdict::Problem, "there is no such name", outcome(Purpose::Store, absent()));
    assert_finding(
        Verdict::Unknown,
        "is unknown: no name server answers",
        outcome(Purpose::Store, NameOutcome::Unknown("no name server answers".into())),
    );
    let placeholder =
        || NameOutcome::Addresses(vec!["203.0.113.123".parse().unwrap(), "fd00:dead:add::".parse().unwrap()]);
    assert_finding(
        Verdict::Problem,
        "still has kOps' placeholder address",
        outcome(Purpose::ApiServer, placeholder()),
    );
    for of_cluster in [absent(), placeholder()] {
        let mut first = healthy();
        first.is_control_plane = true;
        first.names = vec![name(Purpose::ApiServer, of_cluster)];
        assert!(
            findings(&first).iter().all(|finding| finding.verdict == Verdict::Ok),
            "it makes the name itself"
        );
    }
}

#[test]
fn services() {
    for at in 0..4 {
        assert_finding(Verdict::Problem, "no", |observed| {
            observed.services[at].outcome = Outcome::Fails("no".into());
            if at == 1 {
                observed.services.pop();
            }
        });
        assert_finding(Verdict::Unknown, "slow", |observed| {
            observed.services[at].outcome = Outcome::Unknown("slow".into())
        });
    }
    let finding = only_finding(|observed| {
        observed.services[1].outcome =
            Outcome::Fails("s3://b/c/cluster-completed.spec: access denied (403)".into());
        observed.services.pop();
    });
    assert_eq!(finding.what, "s3://b/c/cluster-completed.spec: access denied (403)", "the URL is said once");
    assert_finding(
        Verdict::Warning,
        "access denied (403); the configuration of the node is valid without it",
        |observed| {
            observed.services[1].outcome = Outcome::Fails("access denied (403)".into());
        },
    );
    // During a rolling update of control planes, one kops-controller does not answer.
    assert_finding(
        Verdict::Warning,
        "https://b:3988/: refused; another kops-controller answers",
        |observed| {
            let controller = |name: &str, outcome| Service {
                kind: ServiceKind::KopsController,
                name: name.into(),
                outcome,
            };
            observed.services = vec![
                controller("https://a:3988/", Outcome::Answers),
                controller("https://b:3988/", Outcome::Fails("refused".into())),
            ];
        },
    );
}

#[test]
fn downloads() {
    let (fails, unknown) = (|| Outcome::Fails("404".into()), || Outcome::Unknown("503".into()));
    assert_finding(Verdict::Problem, "cannot be downloaded: a: 404; b: 404", |observed| {
        observed.downloads = vec![download(false, &[("a", fails()), ("b", fails())])];
    });
    assert_finding(Verdict::Unknown, "can be downloaded: a: 404; b: 503", |observed| {
        observed.downloads = vec![download(false, &[("a", fails()), ("b", unknown())])];
    });
    for fine in
        [download(true, &[("a", fails())]), download(false, &[("a", fails()), ("b", Outcome::Answers)])]
    {
        let mut observed = healthy();
        observed.downloads.push(fine);
        let findings = findings(&observed);
        assert!(findings.iter().any(|finding| finding.what.starts_with("2 of 2 downloads")), "{findings:#?}");
    }
}

#[test]
fn time() {
    let servers = |servers: &[(&str, i64)]| {
        let servers = servers.iter().map(|(server, ahead)| ((*server).to_owned(), *ahead)).collect();
        move |observed: &mut Observations| observed.clock.servers = servers
    };
    assert_finding(Verdict::Problem, "is 301 s behind, compared with m", servers(&[("m", 301)]));
    assert_finding(Verdict::Problem, "is 3600 s ahead", |observed| {
        servers(&[("m", -3600), ("n", -3601)])(observed);
        observed.clock.is_synchronized = Ok(false);
    });
    assert_finding(Verdict::Warning, "or a cache returned an old answer", servers(&[("m", -3600)]));
    assert_finding(Verdict::Warning, "is 300 s behind", servers(&[("m", 300)]));
    assert_finding(Verdict::Warning, "the clock of n differs by 9000 s", servers(&[("m", 2), ("n", -9000)]));
    assert_finding(Verdict::Warning, "is not synchronized over the network", |observed| {
        observed.clock = Clock { servers: vec![], is_synchronized: Ok(false) };
    });
    assert_finding(Verdict::Unknown, "is unknown: no timedatectl", |observed| {
        observed.clock = Clock { servers: vec![], is_synchronized: Err(Unseen::new("no timedatectl")) };
    });
}

#[test]
fn room() {
    let disk = |change: fn(&mut Disk)| {
        move |observed: &mut Observations| {
            let mut disk = disk();
            change(&mut disk);
            observed.disks = Ok(vec![disk]);
        }
    };
    assert_finding(Verdict::Problem, "mounted read-only", disk(|disk| disk.is_read_only = true));
    assert_finding(Verdict::Problem, "must be downloaded", disk(|disk| disk.needed = disk.free + 1));
    assert_finding(Verdict::Problem, "has 0 MB free", disk(|disk| (disk.free, disk.needed) = (0, 0)));
    assert_finding(Verdict::Problem, "no free inodes", disk(|disk| disk.free_inodes = 0));
    assert_finding(
        Verdict::Warning,
        "9 %: kubelet evicts pods below 10 %",
        disk(|disk| disk.free = disk.total / 100 * 9 + (1 << 29)),
    );
    assert_finding(Verdict::Warning, "4 % of its inodes", disk(|disk| disk.free_inodes = 4));
    assert_finding(Verdict::Unknown, "hung", |observed| observed.disks = Err(Unseen::new("hung")));
    let mut btrfs = healthy();
    disk(|disk| (disk.free_inodes, disk.inodes) = (0, 0))(&mut btrfs);
    assert!(!stops(&findings(&btrfs)), "it does not count inodes");
}

#[test]
fn a_newer_kubernetes_than_known_is_a_warning() {
    assert_finding(Verdict::Warning, "Kubernetes 1.37.0 is newer than this kops-agent knows", |observed| {
        observed.kubernetes = KubernetesVersion::parse("1.37.0");
    });
}

#[test]
fn kernel() {
    let cgroups = |cgroups| move |observed: &mut Observations| observed.kernel.cgroups = cgroups;
    let all = || set(&["cpu", "cpuset", "memory", "pids"]);
    assert_finding(
        Verdict::Problem,
        "without memory, pids",
        cgroups(Ok(Cgroups::V2(set(&["cpu", "cpuset"])))),
    );
    assert_finding(Verdict::Problem, "no cgroups are mounted", cgroups(Ok(Cgroups::Missing)));
    assert_finding(Verdict::Warning, "cgroups v1", cgroups(Ok(Cgroups::V1(all()))));
    assert_finding(Verdict::Unknown, "no /sys", cgroups(Err(Unseen::new("no /sys"))));
    assert_finding(Verdict::Problem, "Kubernetes 1.35.0 does not start", |observed| {
        observed.kubernetes = KubernetesVersion::parse("1.35.0");
        observed.kernel.cgroups = Ok(Cgroups::V1(all()));
    });
    let module = |name: &str, state| {
        let module = Module { name: name.into(), state };
        move |observed: &mut Observations| observed.kernel.modules.push(module)
    };
    assert_finding(Verdict::Problem, "no overlay file system", module("overlay", Ok(ModuleState::Missing)));
    assert_finding(
        Verdict::Warning,
        "has no module br_netfilter",
        module("br_netfilter", Ok(ModuleState::Missing)),
    );
    assert_finding(
        Verdict::Warning,
        "`blacklist x` in /etc/y forbids it",
        module("x", Ok(ModuleState::Forbidden("`blacklist x` in /etc/y".into()))),
    );
    assert_finding(Verdict::Unknown, "modprobe hangs", module("x", Err(Unseen::new("modprobe hangs"))));
    assert_finding(Verdict::Problem, "/proc/sys is mounted read-only", |observed| {
        observed.kernel.parameters_are_read_only = Ok(true)
    });
    assert_finding(Verdict::Warning, "no parameter a.b, c", |observed| {
        observed.kernel.missing_parameters = Ok(vec!["a.b".into(), "c".into()])
    });
    assert_finding(Verdict::Unknown, "no /proc", |observed| {
        observed.kernel.parameters_are_read_only = Err(Unseen::new("no /proc"))
    });
}

#[test]
fn ports() {
    let listener = |port, process: Option<(&str, u32)>| {
        let process = process.map(|(name, number)| (name.to_owned(), number));
        move |observed: &mut Observations| observed.listeners = Ok(vec![Listener { port, process }])
    };
    assert_finding(
        Verdict::Problem,
        "port 10250 of kubelet is used by nginx (process 7)",
        listener(10250, Some(("nginx", 7))),
    );
    assert_finding(Verdict::Unknown, "cannot see", listener(10248, None));
    assert_finding(Verdict::Unknown, "no /proc/net", |observed| {
        observed.listeners = Err(Unseen::new("no /proc/net"))
    });
    assert_finding(Verdict::Problem, "port 443 of kube-apiserver is used by", |observed| {
        observed.is_control_plane = true;
        listener(443, Some(("nginx", 7)))(observed);
    });
    for fine in
        [listener(10250, Some(("kubelet", 7))), listener(443, Some(("nginx", 7))), listener(8080, None)]
    {
        let mut observed = healthy();
        fine(&mut observed);
        assert!(findings(&observed).iter().all(|finding| finding.verdict == Verdict::Ok));
    }
}

#[test]
fn packages() {
    assert_finding(
        Verdict::Warning,
        "apt-get (process 7) holds the lock of the package manager, /lock",
        |observed| {
            observed.packages.lock =
                Ok(Some(PackageLock { path: "/lock".into(), holder: "apt-get (process 7)".into() }));
        },
    );
    assert_finding(Verdict::Unknown, "denied", |observed| {
        observed.packages.lock = Err(Unseen::new("denied"))
    });
    assert_finding(Verdict::Unknown, "are missing: no dpkg", |observed| {
        observed.packages.missing = Some(Err(Unseen::new("no dpkg")));
    });
    let missing = |answering, complaints: &[&str]| {
        let complaints = complaints.iter().map(|said| (*said).to_owned()).collect();
        let repositories = Some(Ok(Repositories { answering, complaints }));
        move |observed: &mut Observations| {
            observed.packages.missing = Some(Ok(vec!["conntrack".into(), "ethtool".into()]));
            observed.packages.repositories = repositories;
        }
    };
    assert_finding(
        Verdict::Problem,
        "conntrack, ethtool are not installed yet, and",
        missing(0, &["a.test: 503"]),
    );
    assert_finding(Verdict::Problem, "can read no repository: none is configured", missing(0, &[]));
    assert_finding(
        Verdict::Warning,
        "some repositories cannot be read: a.test: 503",
        missing(2, &["a.test: 503"]),
    );
    assert_finding(Verdict::Unknown, "it is unknown whether their repositories answer: killed", |observed| {
        missing(0, &[])(observed);
        observed.packages.repositories = Some(Err(Unseen::new("killed")));
    });
    let mut observed = healthy();
    missing(3, &[])(&mut observed);
    assert!(findings(&observed).iter().all(|finding| finding.verdict == Verdict::Ok));
    // A different finding reports that the desired packages are unknown.
    observed.packages = Packages { missing: None, ..healthy().packages };
    assert!(findings(&observed).iter().all(|finding| finding.check != "repositories"));
}

#[test]
fn programs() {
    assert_finding(Verdict::Problem, "systemd does not run this machine", |observed| {
        observed.machine.runs_systemd = Ok(false)
    });
    assert_finding(Verdict::Unknown, "no /run", |observed| {
        observed.machine.runs_systemd = Err(Unseen::new("no /run"))
    });
    assert_finding(Verdict::Problem, "/dev/zram0 is used as swap", |observed| {
        observed.machine.swap = Ok(vec!["/dev/zram0".into()])
    });
    assert_finding(Verdict::Unknown, "/dev/zram0 is used as swap, and it is unknown whether", |observed| {
        (observed.machine.swap, observed.machine.allows_swap) = (Ok(vec!["/dev/zram0".into()]), None);
    });
    assert_finding(Verdict::Unknown, "no swaps", |observed| {
        observed.machine.swap = Err(Unseen::new("no swaps"))
    });
    let process = |name: &str, unit: Option<&str>| {
        let process = Process { name: name.into(), number: 7, unit: unit.map(str::to_owned) };
        move |observed: &mut Observations| observed.machine.processes = Ok(vec![process])
    };
    assert_finding(
        Verdict::Problem,
        "a kubelet runs outside kubelet.service (process 7, of snap.kubelet.service)",
        process("kubelet", Some("snap.kubelet.service")),
    );
    assert_finding(Verdict::Problem, "a kubelet runs", process("kubelet", None));
    assert_finding(Verdict::Warning, "nodeup runs", process("nodeup", None));
    assert_finding(Verdict::Warning, "Docker runs", process("dockerd", Some("docker.service")));
    assert_finding(Verdict::Problem, "k3s-server runs", process("k3s-server", None));
    assert_finding(Verdict::Unknown, "no /proc", |observed| {
        observed.machine.processes = Err(Unseen::new("no /proc"))
    });
    let mut observed = healthy();
    process("kubelet", Some("kubelet.service"))(&mut observed);
    (observed.machine.swap, observed.machine.allows_swap) = (Ok(vec!["/swap".into()]), Some(true));
    assert!(findings(&observed).iter().all(|finding| finding.verdict == Verdict::Ok));
}

#[test]
fn a_missing_volume_device_is_reported_with_the_existing_ones() {
    let volume = |is_there| Volume { device: "/dev/xvdd".into(), path: "/mnt/data".into(), is_there };
    let ids = ["nvme-Amazon_Elastic_Block_Store_vol0abc".to_owned()];
    let device = |links: &[String]| Device { path: "/dev/nvme1n1".into(), links: links.to_vec() };
    let finding = |devices| {
        only_finding(|observed| observed.volumes = Ok(Volumes { wanted: vec![volume(false)], devices }))
    };
    let missing = finding(vec![device(&ids)]);
    assert_eq!((missing.check, missing.verdict), ("volumes", Verdict::Problem));
    assert!(missing.what.contains("/dev/xvdd, the device of /mnt/data, is missing"), "{missing:?}");
    assert!(missing.what.contains("/dev/nvme1n1 (nvme-Amazon_Elastic_Block_Store_vol0abc)"), "{missing:?}");
    assert!(missing.to_do.contains("/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol"), "{missing:?}");
    assert!(finding(vec![]).what.ends_with("this machine has no block devices"));
    let unknown = only_finding(|observed| observed.volumes = Err(Unseen::new("no")));
    assert_eq!(unknown.verdict, Verdict::Unknown);
    let mut observed = healthy();
    observed.volumes = Ok(Volumes { wanted: vec![volume(true)], devices: vec![] });
    assert!(!stops(&findings(&observed)));
}

#[test]
fn a_program_that_cannot_start_is_a_problem() {
    let finding = only_finding(|observed| {
        observed.machine.unfit = Some(("containerd would not start".into(), "set it".into()))
    });
    assert_eq!(
        (finding.check, finding.verdict, finding.to_do.as_str()),
        ("programs", Verdict::Problem, "set it")
    );
}
