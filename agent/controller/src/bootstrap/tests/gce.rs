//! Machines on GCE, whose TPM signs. Tests kops-agent's client, with a real TPM in software, against its server. Compute
//! Engine, which knows the TPM's key, is a stand-in.

use kops_agent_spec::facts::{Facts, GceFacts};
use kops_agent_tests::gce::{Instance, ZONE};
use kops_agent_tests::swtpm::{Swtpm, Template};

use super::*;

const NODE: &str = "nodes-x1y2";

/// Adds an instance of the cluster to the fake Compute Engine. The instance has this TPM.
fn create_instance(world: &World, name: &str, swtpm: &Swtpm, template: Template) {
    let group = world.gce.put_group(CLUSTER, "nodes");
    let instance = world.gce.create_instance(&group, name);
    let signing_key = swtpm.public_key(template).unwrap();
    world.gce.put_instance(name, Instance { signing_key, ..instance });
}

/// The client on a machine that has this TPM, and claims this name.
fn machine(world: &World, name: &str, swtpm: &Arc<Swtpm>) -> KopsController {
    let mut facts = Facts::default();
    facts.cloud.gce = Some(GceFacts {
        hostname: format!("{name}.{ZONE}.c.{PROJECT}.internal"),
        project: PROJECT.into(),
        zone: ZONE.into(),
        name: name.into(),
    });
    KopsController::new(&world.boot_config("gce"), None, &facts, Duration::ZERO).with_tpm(swtpm.clone())
}

#[tokio::test]
async fn a_machine_whose_tpm_signs_becomes_a_node() {
    for template in [Template::Restricted, Template::Unrestricted] {
        let Some(swtpm) = Swtpm::start_with(template).unwrap() else { return };
        let swtpm = Arc::new(swtpm);
        let world = World::new().await;
        create_instance(&world, NODE, &swtpm, template);
        let machine = machine(&world, NODE, &swtpm);
        let (_, config) = machine.node_config().await.unwrap();
        assert_eq!(config.nodeup_config, NODEUP_CONFIG);
        let issued = certificates(&machine).await.unwrap();
        for (name, subject) in
            [("kubelet", "O=system:nodes, CN=system:node:nodes-x1y2"), ("kubelet-server", "CN=nodes-x1y2")]
        {
            let (_, pem) = x509_parser::pem::parse_x509_pem(issued[name].as_bytes()).unwrap();
            assert_eq!(pem.parse_x509().unwrap().subject().to_string(), subject);
        }
        world.ready.lock().insert(NODE.into());
        let error = certificates(&machine).await.unwrap_err();
        assert!(error.to_string().contains("it answers with 409"), "{error}");
        assert_eq!(swtpm.loaded_keys().unwrap(), 0);
    }
}

#[tokio::test]
async fn a_machine_with_another_tpm_gets_nothing() {
    let template = Template::Restricted;
    let [Some(honest), Some(other)] = [0, 1].map(|_| Swtpm::start_with(template).unwrap()) else { return };
    let (honest, other) = (Arc::new(honest), Arc::new(other));
    let world = World::new().await;
    create_instance(&world, NODE, &honest, template);
    create_instance(&world, "nodes-liar", &other, template);
    let error = certificates(&machine(&world, NODE, &other)).await.unwrap_err().to_string();
    assert!(error.contains("403 (failed to verify token)"), "{error}");
    assert!(world.counted("WrongSignature") && !world.counted("Granted"));
    certificates(&machine(&world, "nodes-liar", &other)).await.unwrap();
}

#[tokio::test]
async fn without_a_template_kops_controller_is_not_asked() {
    let Some(bare) = Swtpm::start().unwrap() else { return };
    let world = World::new().await;
    let error = certificates(&machine(&world, NODE, &Arc::new(bare))).await.unwrap_err().to_string();
    assert!(error.contains("cannot prove this machine's identity: the TPM has no key template"), "{error}");
    assert!(error.contains("Turn on vTPM"), "{error}");
    assert!(world.gce.calls().is_empty());
}

#[tokio::test]
async fn an_instance_of_a_group_of_control_planes_gets_nothing() {
    let Some(swtpm) = Swtpm::start_with(Template::Restricted).unwrap() else { return };
    let (world, swtpm) = (World::with_control_planes().await, Arc::new(swtpm));
    create_instance(&world, NODE, &swtpm, Template::Restricted);
    world.assert_refuses_control_planes(certificates(&machine(&world, NODE, &swtpm)).await);
}
