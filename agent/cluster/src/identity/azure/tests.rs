#![allow(clippy::unwrap_used)]
use super::*;

const SUBSCRIPTION: &str = "0F3A7E62-0000-4000-8000-000000000001";

fn cluster() -> AzureCluster {
    AzureCluster {
        name: "c.example.com".into(),
        subscription: SUBSCRIPTION.into(),
        resource_group: "Kops-C".into(),
    }
}

fn provider_id(subscription: &str, group: &str, set: &str, number: &str) -> String {
    format!(
        "azure:///subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachineScaleSets/{set}/\
         virtualMachines/{number}"
    )
}

/// The providerID of a machine outside scale sets.
fn alone(group: &str, name: &str) -> String {
    format!(
        "azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachines/{name}"
    )
}

fn machine() -> AzureMachine {
    let tags = [
        (CLUSTER_TAG, "c.example.com"),
        (INSTANCE_GROUP_TAG, "nodes"),
        ("k8s.io_role_node", "1"),
        ("k8s.io_cluster_node-template_label_0", "example.com/tier=web=1"),
        ("k8s.io_cluster_node-template_label_1", "malformed"),
        ("k8s.io_cluster_node-template_taint_x", "y:NoSchedule"),
        ("k8s.io_role_apiserver", "1"),
    ];
    AzureMachine {
        path: MachinePath { scale_set: Some("nodes.c.example.com".into()), name: "7".into() },
        vm_id: "5c08b38e-4d57-4c23-ac45-aca61037f084".into(),
        computer_name: "Nodes00000A".into(),
        state: "running".into(),
        tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        created: None,
    }
}

fn refused(change: impl FnOnce(&mut AzureMachine)) -> (&'static str, bool) {
    let mut machine = machine();
    change(&mut machine);
    let refusal = machine.identify(&cluster()).unwrap_err();
    (refusal.reason(), refusal.is_definite())
}

#[test]
fn a_provider_id_names_a_machine_of_a_scale_set() {
    let expected = MachinePath { scale_set: Some("nodes.c.example.com".into()), name: "12".into() };
    for id in [
        provider_id(SUBSCRIPTION, "Kops-C", "nodes.c.example.com", "12"),
        provider_id(&SUBSCRIPTION.to_lowercase(), "kops-c", "Nodes.C.Example.com", "12"),
        provider_id(SUBSCRIPTION, "Kops-C", "nodes.c.example.com", "12")
            .replace("resourceGroups", "resourcegroups"),
    ] {
        assert_eq!(cluster().machine(&id).unwrap(), expected, "{id}");
        assert!(cluster().provider_id(&expected).eq_ignore_ascii_case(&id));
    }
    let good = provider_id(SUBSCRIPTION, "Kops-C", "nodes.c.example.com", "12");
    for malformed in [
        String::new(),
        "azure://".into(),
        "gce://p/z/n".into(),
        good.replace("azure://", ""),
        good.replace("azure:///", "azure://"),
        good.replace("Microsoft.Compute", "Microsoft.Network"),
        good.replace("virtualMachineScaleSets/", ""),
        format!("{good}/"),
        format!("{good}/networkInterfaces/x"),
        provider_id(SUBSCRIPTION, "Kops-C", "nodes.c.example.com", "+1"),
        provider_id(SUBSCRIPTION, "Kops-C", "nodes.c.example.com", ""),
        provider_id(SUBSCRIPTION, "Kops-C", "nodes.c.example.com", "99999999999"),
        provider_id(SUBSCRIPTION, "Kops-C", "../x.c.example.com", "1"),
        provider_id(SUBSCRIPTION, "Kops-C", "a?b.c.example.com", "1"),
        provider_id(SUBSCRIPTION, "Kops-C", "", "1"),
        alone("Kops-C", ""),
        alone("Kops-C", "a?b"),
        alone("Kops-C", "vm/extensions/x"),
        alone("Kops-C", "vm").replace("Microsoft.Compute", "Microsoft.Network"),
    ] {
        assert_eq!(cluster().machine(&malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
    }
    for elsewhere in [
        provider_id("0f3a7e62-0000-4000-8000-000000000002", "Kops-C", "nodes.c.example.com", "1"),
        provider_id(SUBSCRIPTION, "kops-d", "nodes.c.example.com", "1"),
        provider_id(SUBSCRIPTION, "Kops-C", "nodes.d.example.com", "1"),
        provider_id(SUBSCRIPTION, "Kops-C", "c.example.com", "1"),
        alone("kops-d", "vm"),
        alone("Kops-C", "vm").replace("000000000001", "000000000002"),
    ] {
        let refusal = cluster().machine(&elsewhere).unwrap_err();
        assert_eq!(
            (refusal.reason(), refusal.is_definite()),
            ("InstanceOfOtherCluster", true),
            "{elsewhere}"
        );
    }
}

#[test]
fn a_provider_id_names_a_machine_outside_scale_sets() {
    let path = cluster().machine(&alone("kops-c", "General-x7k2")).unwrap();
    assert_eq!(path, MachinePath { scale_set: None, name: "general-x7k2".into() });
    assert_eq!(path.to_string(), "general-x7k2");
    assert_eq!(cluster().provider_id(&path), alone("Kops-C", "general-x7k2"));
}

#[test]
fn a_running_machine_has_the_group_and_labels_of_its_tags() {
    let identity = machine().identify_node("nodes00000a", false, &cluster()).unwrap();
    assert_eq!(identity.instance_group, "nodes");
    let noted = [
        ("example.com/tier", "web=1"),
        ("kops.k8s.io/cluster", "c.example.com"),
        ("kops.k8s.io/instancegroup", "nodes"),
        ("node-role.kubernetes.io/node", ""),
    ];
    assert_eq!(identity.noted_labels, noted.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let mut control_plane = machine();
    control_plane.tags.insert("k8s.io_role_master".into(), "1".into());
    let labels = control_plane.identify(&cluster()).unwrap().noted_labels;
    assert_eq!(labels["node-role.kubernetes.io/control-plane"], "");
    // A new machine has no power state yet, so the provisioning state counts.
    assert!(AzureMachine { state: "creating".into(), ..machine() }.identify(&cluster()).is_ok());
}

#[test]
fn foreign_groupless_and_stopped_machines_are_rejected() {
    let other =
        |machine: &mut AzureMachine| drop(machine.tags.insert(CLUSTER_TAG.into(), "x.c.example.com".into()));
    assert_eq!(refused(other), ("InstanceOfOtherCluster", true));
    assert_eq!(refused(|machine| drop(machine.tags.remove(CLUSTER_TAG))), ("InstanceOfOtherCluster", false));
    for state in ["stopped", "deallocated", "deallocating", "deleting", "failed", ""] {
        assert_eq!(refused(|machine| machine.state = state.into()), ("InstanceNotRunning", false), "{state}");
    }
    assert_eq!(
        refused(|machine| drop(machine.tags.remove(INSTANCE_GROUP_TAG))),
        ("InstanceGroupUnknown", false)
    );
}

#[test]
fn only_a_node_with_another_machines_name_is_an_impostor() {
    let refused = |node: &str, has_namesake| {
        let refusal = machine().identify_node(node, has_namesake, &cluster()).unwrap_err();
        (refusal.reason(), refusal.is_definite())
    };
    assert_eq!(refused("web-7", false), ("InstanceOfOtherNode", false));
    assert_eq!(refused("control-plane000000", true), ("InstanceOfOtherNode", true));
    let off = AzureMachine { state: "stopped".into(), ..machine() };
    assert!(off.identify_node("control-plane000000", true, &cluster()).unwrap_err().is_definite());
}
