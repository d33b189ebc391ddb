//! A run from a shell decides the same node as a run at boot. A variable that is not set is unknown, which is not the
//! same as empty.

#![allow(clippy::unwrap_used)]

use crate::example;

use std::fs;
use std::process::Command;

use crate::example::{Ended, Machine};
use kops_agent_tests::example_cluster::edit;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE};

const CLOUD_CONFIG: &str = "etc/kubernetes/cloud.config";
const OF_UNITS: &str = "etc/sysconfig/kops-configuration";

/// A control plane on OpenStack, with the configuration that kOps derived.
fn on_openstack() -> Machine {
    let machine = Machine::new(CONTROL_PLANE);
    let mut derive = Command::new(example::agent());
    derive.env_clear().envs(machine.cluster.environment()).args(["config", "derive"]);
    let derived =
        Ended::from_command(derive.args(["--config-base", CONFIG_BASE, "--instance-group", CONTROL_PLANE]));
    derived.with(0, &[]);
    let folder = machine.cluster.store.cluster_folder().join("igconfig/control-plane").join(CONTROL_PLANE);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("nodeupconfig.yaml"), derived.stdout).unwrap();
    let boot_config = machine.cluster.store.kube_env(CONTROL_PLANE);
    edit(&boot_config, "CloudProvider: aws", "CloudProvider: openstack").unwrap();
    machine
}

fn run(machine: &Machine, verb: &str, environment: &[(&str, &str)]) -> Ended {
    let mut agent = machine.agent(verb);
    Ended::from_command(agent.args(["--config-from", "nodeup-config"]).envs(environment.iter().copied()))
}

fn cloud_config(machine: &Machine) -> String {
    fs::read_to_string(machine.root().join(CLOUD_CONFIG)).unwrap()
}

#[test]
fn a_login_to_openstack_that_is_not_known_is_waited_for_and_never_blanked() {
    let machine = on_openstack();
    let unknown =
        ["OS_AUTH_URL is set neither in this run's environment nor in /etc/sysconfig/kops-configuration"];
    run(&machine, "converge", &[]).with(1, &unknown);
    assert_eq!(machine.files(), [""; 0], "a first run without a login wrote something");

    let login = [("OS_AUTH_URL", "https://keystone.example.com"), ("OS_PASSWORD", "first")];
    run(&machine, "converge", &login).with(0, &[]);
    let at_boot = cloud_config(&machine);
    assert!(at_boot.contains("auth-url=\"https://keystone.example.com\"\n"), "{at_boot}");
    assert!(at_boot.contains("password=\"first\"\n") && at_boot.contains("username=\"\"\n"), "{at_boot}");

    for verb in ["plan", "converge", "verify"] {
        let ended = run(&machine, verb, &[]);
        ended.with(0, &[]);
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(said.contains(unknown[0]) && !said.contains("first"), "{ended:#?}");
    }
    assert_eq!(cloud_config(&machine), at_boot);

    fs::remove_file(machine.root().join(CLOUD_CONFIG)).unwrap();
    run(&machine, "converge", &[]).with(1, &["could not be repaired", unknown[0]]);

    let of_units = machine.root().join(OF_UNITS);
    fs::create_dir_all(of_units.parent().unwrap()).unwrap();
    let text = "OS_PASSWORD=second\nOS_USERNAME=\nOS_AUTH_URL=https://keystone.example.com\n";
    fs::write(of_units, text).unwrap();
    run(&machine, "converge", &[]).with(0, &[]);
    assert_eq!(cloud_config(&machine), at_boot.replace("first", "second"));
}

#[test]
fn a_login_that_nodeup_has_written_stays_where_it_is_not_known() {
    let machine = on_openstack();
    let file = machine.root().join(CLOUD_CONFIG);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let of_nodeup = "[global]\nauth-url=\"https://keystone.example.com\"\n";
    fs::write(&file, of_nodeup).unwrap();
    run(&machine, "converge", &[]).with(0, &[]);
    assert_eq!(cloud_config(&machine), of_nodeup);
}
