//! A control plane on OpenStack: the login in its cloud configuration, and certificates that are not verified.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use kops_agent_tests::downloads::Downloads;
use kops_agent_tests::example_cluster::edit;
use kops_agent_tests::example_store::{CONFIG_BASE, CONTROL_PLANE};
use kops_agent_tests::loopback::Identity;
use kops_agent_tests::openstack::{SECRET, login};

use crate::example::{Ended, Machine, agent};

const CLOUD_CONFIG: &str = "/etc/kubernetes/cloud.config";
const ANY_CERTIFICATE: &str = "KOPS_OS_TLS_INSECURE_SKIP_VERIFY";
const WARNING: &str = "Openstack.insecureSkipVerify: is true, so OpenStack's certificates are not verified";

/// A control plane of the example cluster on OpenStack. `settings` are the fields of `cloudConfig.openstack`.
fn control_plane(settings: &str) -> Machine {
    let machine = Machine::new(CONTROL_PLANE);
    let spec = |old, new: &str| machine.cluster.edit("cluster-completed.spec", old, new).unwrap();
    spec("  cloudProvider: aws\n", "  cloudProvider: openstack\n");
    let of_aws = "    awsEBSCSIDriver:\n      version: v1.58.0\n";
    spec(of_aws, &format!("    openstack: {settings}\n"));
    let store = &machine.cluster.store;
    edit(&store.kube_env(CONTROL_PLANE), "CloudProvider: aws", "CloudProvider: openstack").unwrap();
    let facts = store.facts(CONTROL_PLANE);
    let text = fs::read_to_string(&facts).unwrap();
    let (of_machine, _) = text.split_once("cloud:\n").unwrap();
    fs::write(facts, format!("{of_machine}cloud:\n  openstack: {{localIPv4: 10.20.32.10}}\n")).unwrap();
    machine
}

#[test]
fn the_login_in_the_cloud_configuration_is_shown_on_request_only() {
    let machine = control_plane("{loadbalancer: {floatingNetworkID: typed-network}}");
    let run = |call: &mut Command, password: &str, codes: &[i32]| {
        let ended = Ended::from_command(
            call.envs(login("https://keystone.test"))
                .env("OS_USERNAME", "robot")
                .env("OS_PASSWORD", password),
        );
        assert!(codes.contains(&ended.code), "{ended:#?}");
        format!("{}{}", ended.stdout, ended.stderr)
    };
    let quiet = |call: &mut Command, password: &str, codes: &[i32]| {
        let told = run(call, password, codes);
        for secret in [SECRET, "hunter1", "hunter2"] {
            assert!(!told.contains(secret), "{secret} is in the output of {call:?}: {told}");
        }
        told
    };
    let first = quiet(machine.agent("plan").args(["-v", "8"]), "hunter1", &[0]);
    assert!(first.contains(CLOUD_CONFIG), "{first}");
    quiet(machine.agent("converge").args(["-v", "8"]), "hunter1", &[0]);
    let file = machine.root().join(&CLOUD_CONFIG[1..]);
    let text = fs::read_to_string(&file).unwrap();
    let settings =
        ["password=\"hunter1\"", &format!("secret=\"{SECRET}\""), "floating-network-id=typed-network"];
    for setting in settings {
        assert!(text.contains(setting), "{setting:?} is not in {text}");
    }
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);

    for flags in [&["-v", "8"][..], &["-o", "json"]] {
        for (verb, code) in [("plan", 0), ("verify", 4)] {
            let told = quiet(machine.agent(verb).args(flags), "hunter2", &[code]);
            assert!(told.contains(CLOUD_CONFIG), "{verb} {flags:?}: {told}");
        }
    }
    quiet(machine.agent_without_root("explain").arg(CLOUD_CONFIG), "hunter2", &[0]);
    quiet(&mut machine.agent_without_root("config dump"), "hunter2", &[0]);
    quiet(machine.agent_without_root("render").args(["-o", "json"]), "hunter2", &[0]);
    quiet(machine.agent("converge").args(["-v", "8"]), "hunter2", &[0]);
    quiet(Command::new(agent()).env_clear().args(["status", "--root"]).arg(machine.root()), "hunter2", &[0]);
    let whole =
        run(machine.agent_without_root("render").args(["-o", "json", "--show-secrets"]), "hunter2", &[0]);
    assert!(whole.contains("password=\\\"hunter2\\\"") && whole.contains(SECRET));
}

#[test]
fn certificates_that_are_not_verified_are_warned_of() {
    for (settings, is_warned) in
        [("{insecureSkipVerify: true}", true), ("{insecureSkipVerify: false}", false), ("{}", false)]
    {
        let machine = control_plane(settings);
        let checked = Ended::from_command(&mut machine.agent_without_root("config check"));
        checked.with(0, &[]);
        assert_eq!(
            checked.stdout.contains(&format!("warning: {WARNING}")),
            is_warned,
            "{settings}: {checked:#?}"
        );
        let mut converge = machine.agent("converge");
        converge.envs(login("https://keystone.test"));
        converge.env("KOPS_AGENT_ADDONS", "true").env("KOPS_AGENT_CONTROLLER", "true");
        let ended = Ended::from_command(&mut converge);
        ended.with(0, &[]);
        assert_eq!(ended.stderr.contains(WARNING), is_warned, "{settings}: {ended:#?}");
        for unit in ["kops-agent-addons", "kops-agent-controller"] {
            let text = machine.root().join(format!("etc/systemd/system/{unit}.service"));
            let text = fs::read_to_string(text).unwrap();
            let variable = format!("Environment={ANY_CERTIFICATE}=true\n");
            assert_eq!(text.contains(&variable), is_warned, "{settings}: {text}");
        }
    }
}

/// The server stands in for Keystone. No known authority signed its certificate. It rejects every login. It records
/// the requests, so a recorded request shows that the client accepted the certificate.
#[test]
fn a_store_on_openstack_is_asked_without_proof_only_where_that_is_meant() {
    let server = Downloads::start_tls(BTreeMap::new(), &Identity::named(&["127.0.0.1"]).unwrap()).unwrap();
    let other = Identity::named(&["127.0.0.1"]).unwrap();
    let machine = Machine::new(CONTROL_PLANE);
    let bundle = machine.folder().join("bundle.pem");
    fs::write(&bundle, &other.certificate_pem).unwrap();
    let plan = |insecure: &str| {
        let mut plan = machine.agent_with_store("plan", &CONFIG_BASE.replace("s3://", "swift://"));
        plan.envs(login(&server.url())).env("SSL_CERT_FILE", &bundle).env(ANY_CERTIFICATE, insecure);
        Ended::from_command(plan.args(["--store-timeout", "1"]))
    };
    for insecure in ["", "false"] {
        let refused = plan(insecure);
        refused.with(1, &["certificate"]);
        assert!(!refused.stderr.contains(ANY_CERTIFICATE), "{refused:#?}");
        assert_eq!(server.requests(), [""; 0]);
    }
    plan("true").with(
        1,
        &["KOPS_OS_TLS_INSECURE_SKIP_VERIFY is set, so OpenStack's certificates are not verified", "405"],
    );
    assert!(server.requests().iter().all(|asked| asked.starts_with("POST ")), "{:?}", server.requests());
    assert!(!server.requests().is_empty());
}
