//! What a node gets beside certificates: the configuration of its group, and the program file.

use kops_agent_cluster::bootstrap::message::{BootstrapRequest, BootstrapResponse};
use kops_agent_cluster::rollout::{LARGEST_PROGRAM_FILE, PROGRAM_FILE};
use kops_agent_tests::example_keys::Keyset;
use kops_agent_tests::example_store::{CONFIG_BASE, ExampleStore, NODES};

use super::super::*;
use super::{kubelet, node, renew, renewals};

/// Writes a group of nodes and the specs of the example cluster into the world's store, as kOps does.
fn write_group(world: &World, group: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, private_key) = (world.authority.pem.clone(), world.authority.key.clone());
    let keyset = Keyset { name: "kubernetes-ca".into(), id: 7, certificate, private_key };
    let example = ExampleStore::write_with_keys(folder.path(), None, std::slice::from_ref(&keyset)).unwrap();
    let store = world.folder.path().join("store");
    let read = |file: &str| fs::read_to_string(example.cluster_folder().join(file)).unwrap();
    let write = |file: &str, text: String| {
        let file = store.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    };
    let spec = read("cluster-completed.spec").replace(CONFIG_BASE, store.to_str().unwrap());
    write("cluster-completed.spec", spec);
    write("pki/private/kubernetes-ca/keyset.yaml", keyset.yaml());
    let [of_nodes, of_group] = [NODES, group].map(|name| format!("  name: {name}\n"));
    write(
        &format!("instancegroup/{group}"),
        read(&format!("instancegroup/{NODES}")).replace(&of_nodes, &of_group),
    );
    write(&format!("igconfig/node/{group}/nodeupconfig.yaml"), format!("{NODEUP_CONFIG}# {group}\n"));
}

#[tokio::test]
async fn the_cloud_decides_the_group_whose_configuration_a_node_gets() {
    let world = World::new().await;
    let machine = node(&world, ID);
    world.are_labelled.store(true, Ordering::Relaxed);
    world.ec2.put(ID, Instance::of_group(CLUSTER, "batch"));
    write_group(&world, "batch");
    let present = kubelet(&world, ID);
    let request = BootstrapRequest::for_node_config().with_boot_config(true);
    let body = serde_json::to_vec(&request).unwrap();
    let (status, answer) = renew(&world, Some(&present), &world.v1(&machine, &body), body).await;
    assert_eq!(status, 200, "{answer}");
    let answer = BootstrapResponse::parse(answer.as_bytes()).unwrap();
    assert!(answer.node_config.unwrap().nodeup_config.ends_with("# batch\n"));
    let boot = BootConfig::parse(answer.boot_config.unwrap().as_bytes(), "bootConfig").unwrap();
    assert_eq!(boot.instance_group_name, "batch");
}

#[tokio::test]
async fn a_node_that_is_ready_is_given_the_program_file() {
    for (stored, expected) in [
        (Some("version: 0.2.0\n".to_owned()), Ok("version: 0.2.0\n")),
        (Some("#".repeat(LARGEST_PROGRAM_FILE + 1)), Err("more than 16384 bytes")),
        (None, Err("does not exist")),
    ] {
        let world = World::new().await;
        let file = world.folder.path().join("store").join(PROGRAM_FILE);
        if let Some(text) = stored {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let machine = node(&world, ID);
        let present = kubelet(&world, ID);
        let body = serde_json::to_vec(&BootstrapRequest::for_program()).unwrap();
        let (status, answer) = renew(&world, Some(&present), &world.v1(&machine, &body), body).await;
        match expected {
            Ok(text) => {
                let answer = BootstrapResponse::parse(answer.as_bytes()).unwrap();
                assert_eq!((status, answer.program.as_deref(), answer.node_config), (200, Some(text), None));
            }
            Err(problem) => {
                assert!(status == 400 && answer.contains(problem), "{status} {answer}");
                assert!(renewals(&world).contains("NoProgramFile"), "{}", renewals(&world));
            }
        }
    }
}
