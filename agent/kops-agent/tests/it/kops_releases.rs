//! `config check`, `doctor` and `status` print which kOps release wrote the store, and whether the agent knows that
//! release.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::Command;

use kops_agent_tests::example_cluster::edit;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE, NODES};
use serde_json::Value;

use crate::config::check_group;
use crate::example::{Ended, Machine, agent};

const CONFIGURATION: i32 = 3;
const DIFFERENT: i32 = 4;
const VERSION_FILE: &str = "kops-version.txt";

fn set_version(machine: &Machine, version: Option<&str>) {
    let file = machine.cluster.store.cluster_folder().join(VERSION_FILE);
    match version {
        Some(version) => fs::write(file, version).unwrap(),
        None => fs::remove_file(file).unwrap(),
    }
}

fn status(machine: &Machine, output: &str) -> String {
    let mut status = Command::new(agent());
    let ended =
        Ended::from_command(status.env_clear().args(["status", "-o", output, "--root"]).arg(machine.root()));
    ended.with(0, &[]);
    ended.stdout
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:#?}"))
}

#[test]
fn every_command_shows_which_kops_wrote_the_store_and_whether_it_is_known() {
    let machine = Machine::new(NODES);
    for (version, told, known) in [
        (Some("1.37.0\n"), "kOps 1.37.0, told by kops-version.txt of the state store", true),
        (Some("1.40.2"), "it is UNKNOWN to this kops-agent, which knows kOps 1.34 to 1.37", false),
        (None, "kOps 1.37 or newer, because no file, download or field shows an older release", false),
    ] {
        set_version(&machine, version);
        let version = version.map(str::trim);
        let expected = |written_by: &Value| {
            assert_eq!(written_by["version"].as_str(), version, "{written_by}");
            assert_eq!(written_by["known"], known, "{written_by}");
        };

        let check =
            |flags: &[&str]| Ended::from_command(machine.agent_without_root("config check").args(flags));
        assert!(check(&[]).stdout.contains(told), "{:#?}", check(&[]));
        expected(&json(&check(&["-o", "json"]))["writtenBy"]);
        let mut of_group = Command::new(agent());
        of_group.env_clear().envs(machine.cluster.environment()).args(["config", "check", "-o", "json"]);
        let of_group =
            Ended::from_command(of_group.args(["--config-base", CONFIG_BASE, "--instance-group", NODES]));
        expected(&json(&of_group)["writtenBy"]);

        let diagnosis = json(&machine.run("doctor", &["-o", "json"]));
        expected(&diagnosis["writtenBy"]);
        let findings = diagnosis["findings"].as_array().unwrap();
        let of_kops: Vec<&Value> = findings.iter().filter(|finding| finding["check"] == "kops").collect();
        assert!(of_kops.len() == 1 && of_kops[0]["what"].as_str().unwrap().contains(told), "{of_kops:?}");
        let warns = version == Some("1.40.2");
        assert_eq!(of_kops[0]["verdict"], if warns { "warning" } else { "ok" });

        machine.run("converge", &[]).with(0, &[]);
        // `status` works without the store.
        assert!(status(&machine, "text").contains("\nwritten by   kOps "), "{}", status(&machine, "text"));
        assert!(status(&machine, "text").contains(told), "{}", status(&machine, "text"));
        let status: Value = serde_json::from_str(&status(&machine, "json")).unwrap();
        expected(&status["writtenBy"]);
    }
}

#[test]
fn an_older_kops_than_supported_is_refused_by_name() {
    let machine = Machine::new(NODES);
    set_version(&machine, Some("1.33.1"));
    let refused = "kOps 1.33.1 wrote this configuration, but kops-agent supports kOps 1.34 and newer";
    let checked = Ended::from_command(&mut machine.agent_without_root("config check"));
    checked.with(CONFIGURATION, &[]);
    assert!(checked.stdout.contains(refused), "{checked:#?}");
    let diagnosis = machine.run("doctor", &[]);
    diagnosis.with(DIFFERENT, &[]);
    assert!(diagnosis.stdout.contains(refused), "{diagnosis:#?}");
    machine.run("converge", &[]).with(CONFIGURATION, &[refused]);
}

#[test]
fn a_gossip_cluster_is_refused_by_name_by_a_release_without_gossip() {
    let machine = Machine::new(CONTROL_PLANE);
    machine.publish_names_by_gossip();
    machine.serve_downloads_before_1_37();
    let refused = "nodes of the cluster demo.k8s.local find each other by gossip, which kOps 1.37 does not support; first set \
                   spec.topology.dns.type to None with kOps 1.36 or older";
    let check = || Ended::from_command(&mut machine.agent_without_root("config check"));
    machine.run("converge", &["--config-from", "cluster-spec"]).with(CONFIGURATION, &[refused]);
    check().with(CONFIGURATION, &[]);
    assert!(check().stdout.contains(refused), "{:#?}", check());
    assert_eq!(machine.files(), [""; 0]);

    machine.cluster.edit("cluster-completed.spec", "      type: Public", "      type: None").unwrap();
    let without_dns = Ended::from_command(machine.agent("plan").args(["--config-from", "cluster-spec"]));
    assert!(!without_dns.stderr.contains("gossip"), "{without_dns:#?}");
}

#[test]
fn settings_of_gossip_give_no_warning_where_kops_uses_them() {
    let machine = Machine::new(CONTROL_PLANE);
    machine.publish_names_by_gossip();
    machine.serve_downloads_before_1_37();
    let settings = "  gossipConfig: {secret: s}\n  dnsControllerGossipConfig: {secret: s}\n  kubelet:\n";
    machine.cluster.edit("config", "  kubelet:\n", settings).unwrap();
    let check = || Ended::from_command(&mut machine.agent_without_root("config check"));
    for version in ["1.34.3", "1.35.2", "1.36.2"] {
        set_version(&machine, Some(version));
        for checked in [check(), check_group(&machine, CONTROL_PLANE)] {
            assert!(checked.stdout.starts_with(&format!("written by kOps {version}")), "{checked:#?}");
            assert!(!checked.stdout.to_lowercase().contains("gossip"), "{version}: {checked:#?}");
        }
    }
    // kOps 1.37 has no gossip.
    set_version(&machine, Some("1.37.0"));
    for field in ["spec.gossipConfig", "spec.dnsControllerGossipConfig"] {
        let warning = format!("{field}: has no effect with kOps 1.37 and newer, which have no gossip DNS");
        assert!(check().stdout.contains(&warning), "{:#?}", check());
    }
}

#[test]
fn container_optimized_os_is_refused_with_the_reason_by_releases_with_a_mount_helper() {
    let machine = Machine::new(NODES);
    machine.serve_downloads_before_1_37();
    let facts = machine.cluster.store.facts(NODES);
    edit(&facts, "  id: ubuntu\n  versionID: \"24.04\"\n", "  id: cos\n  versionID: \"117\"\n").unwrap();
    for version in ["1.34.3", "1.35.2", "1.36.2", "1.37.0"] {
        set_version(&machine, Some(version));
        let release = version.rsplit_once('.').unwrap().0;
        let refused = format!(
            "distribution cos 117 is not supported with kOps {release}, whose kubelet mounts volumes there through a helper \
             that kops-agent does not install; upgrade the cluster to kOps 1.36 or newer first"
        );
        let plan = Ended::from_command(machine.agent("plan").args(["--config-from", "cluster-spec"]));
        assert_eq!(plan.stderr.contains(&refused), version < "1.36", "{version}: {plan:#?}");
        assert!(version < "1.36" || plan.code == 0, "{version}: {plan:#?}");
    }
}
