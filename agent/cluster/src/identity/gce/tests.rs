use super::*;

const NODE: &str = "nodes-x1y2";

fn cluster() -> GceCluster {
    GceCluster { name: "c.example.com".into(), project: "my-project".into(), region: "us-test1".into() }
}

fn instance() -> ManagedInstance {
    ManagedInstance {
        id: 7,
        path: InstancePath { zone: "us-test1-a".into(), name: NODE.into() },
        status: "RUNNING".into(),
        instance_template: "projects/my-project/global/instanceTemplates/nodes-1".into(),
    }
}

fn template() -> InstanceTemplate {
    let metadata = [(CLUSTER_METADATA, "c.example.com"), (INSTANCE_GROUP_METADATA, "nodes")];
    InstanceTemplate {
        metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        tags: vec!["c-example-com-k8s-io-role-node".into()],
    }
}

fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
    of.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_provider_id_names_an_instance() {
    let path = instance_path("gce://my-project/us-test1-a/nodes-x1y2", &cluster()).unwrap();
    assert_eq!((path.zone.as_str(), path.name.as_str()), ("us-test1-a", NODE));
    let old = GceCluster { project: "example.com:my-project".into(), ..cluster() };
    assert!(instance_path("gce://example.com:my-project/us-test1-a/n", &old).is_ok());
    let google = GceCluster { region: "us-central1".into(), ..cluster() };
    for zone in ["us-central1-a", "us-central1-ai1a"] {
        assert!(instance_path(&format!("gce://my-project/{zone}/n"), &google).is_ok(), "{zone}");
    }
    for malformed in [
        "",
        "aws:///eu-west-1a/i-0123456789abcdef0",
        "gce://my-project/us-test1-a",
        "gce://my-project/us-test1-a/",
        "gce://my-project/us-test1-a/nodes/x",
        "gce:///us-test1-a/nodes",
        "gce://my-project/us-test1-a/..",
        "gce://my-project/us-test1-a/nodes?alt=media",
        "gce://my-project/us-test1-a/nodes%2Fx",
        "gce://my-project/us-test1-a/Nodes",
        "gce://my-project/../nodes",
        "gce://my-project/us-test1/nodes",
    ] {
        let refusal = instance_path(malformed, &cluster()).unwrap_err();
        assert_eq!(refusal.reason(), "InvalidProviderID", "{malformed}");
    }
}

#[test]
fn an_instance_of_another_project_or_region_is_rejected() {
    for (elsewhere, expected) in [
        ("gce://other-project/us-test1-a/nodes", "the project other-project"),
        ("gce://my-project/us-test2-a/nodes", "another region than us-test1"),
        ("gce://my-project/us-test10-a/nodes", "another region than us-test1"),
    ] {
        let refusal = instance_path(elsewhere, &cluster()).unwrap_err();
        assert_eq!(refusal.reason(), "InstanceOfOtherCluster");
        assert!(refusal.to_string().contains(expected), "{refusal}");
    }
}

#[test]
fn a_node_with_its_instances_name_is_accepted() {
    let identity = identify(NODE, &instance(), &template(), &cluster()).unwrap();
    assert_eq!(identity.instance_group, "nodes");
    assert_eq!(identity.noted_labels, labels(&[("node-role.kubernetes.io/node", "")]));
    assert_eq!(identity.proven_labels, labels(&[(INSTANCE_GROUP, "nodes")]));
}

#[test]
fn other_machines_are_rejected() {
    let with = |key: &str, value: Option<&str>| {
        let mut template = template();
        template.metadata.remove(key);
        template.metadata.extend(value.map(|value| (key.to_owned(), value.to_owned())));
        template
    };
    let stopped = ManagedInstance { status: "TERMINATED".into(), ..instance() };
    for (node, instance, template, reason, expected) in [
        ("nodes-other", instance(), template(), "InstanceOfOtherNode", NODE),
        (NODE, stopped, template(), "InstanceNotRunning", "TERMINATED"),
        (NODE, instance(), with(CLUSTER_METADATA, Some("d")), "InstanceOfOtherCluster", "the cluster d"),
        (NODE, instance(), with(CLUSTER_METADATA, None), "InstanceOfOtherCluster", "no cluster"),
        (NODE, instance(), with(INSTANCE_GROUP_METADATA, None), "InstanceGroupUnknown", "template"),
        (NODE, instance(), with(INSTANCE_GROUP_METADATA, Some("")), "InstanceGroupUnknown", "template"),
    ] {
        let refusal = identify(node, &instance, &template, &cluster()).unwrap_err();
        assert_eq!(refusal.reason(), reason);
        assert!(refusal.to_string().contains(expected), "{refusal}");
    }
}

#[test]
fn the_path_of_a_template_comes_from_its_url() {
    let google = "https://www.googleapis.com/compute/v1/projects/my-project";
    for (path, expected) in [
        ("/global/instanceTemplates/nodes-1", Some("global/instanceTemplates/nodes-1")),
        ("/regions/us-test1/instanceTemplates/n", Some("regions/us-test1/instanceTemplates/n")),
        ("/global/instanceTemplates/../x", None),
        ("/global/instanceTemplates/n?x=y", None),
        ("/global/images/n", None),
        ("", None),
    ] {
        assert_eq!(template_path(&format!("{google}{path}")), expected);
    }
    assert_eq!(template_path("projects/p/global/instanceTemplates/n"), Some("global/instanceTemplates/n"));
}

#[test]
fn a_certificate_is_for_the_first_interface_that_has_an_address() {
    let interface = |network_ip: &str, ipv6_address: &str| GceNetworkInterface {
        network_ip: network_ip.into(),
        ipv6_address: ipv6_address.into(),
    };
    for (network_interfaces, expected) in [
        (vec![], vec![]),
        (vec![interface("10.0.0.1", ""), interface("10.1.0.1", "")], vec!["10.0.0.1"]),
        (vec![interface("", ""), interface("10.1.0.1", "2001:db8::1")], vec!["10.1.0.1", "2001:db8::1"]),
    ] {
        assert_eq!(
            certificate_names(&GceInstance { network_interfaces, ..GceInstance::default() }),
            expected
        );
    }
}

#[test]
fn an_unlisted_instance_is_rejected_with_the_reason() {
    let alone = |status: &str, cluster: &str| GceInstance {
        name: NODE.into(),
        status: status.into(),
        metadata: labels(&[(CLUSTER_METADATA, cluster)]),
        ..GceInstance::default()
    };
    for (instance, reason) in [
        (alone("RUNNING", "c.example.com"), "InstanceGroupUnknown"),
        (alone("RUNNING", "d.example.com"), "InstanceOfOtherCluster"),
        (alone("STOPPING", "c.example.com"), "InstanceNotRunning"),
    ] {
        assert_eq!(unlisted(&instance, &cluster()).reason(), reason);
    }
    // The instance can write any text into its metadata, and a log and an Event show the text. Therefore the text must stay on one line.
    let says = unlisted(&alone("RUNNING", &format!("d\nbootstrap: granted{}", "x".repeat(9999))), &cluster());
    let says = says.to_string();
    assert!(says.contains("the cluster d\\nbootstrap: granted") && !says.contains('\n'), "{says}");
    assert!(says.len() < 512, "{}", says.len());
}

#[test]
fn the_group_that_probably_made_an_instance_comes_first() {
    let group = |name: &str, base: &str| ManagedGroup {
        name: name.into(),
        base_instance_name: base.into(),
        ..ManagedGroup::default()
    };
    let groups = [
        group("a-other-c-example-com", "other"),
        group("a-nodes-d-example-com", "nodes"),
        group("a-nodes-c-example-com", "nodes"),
        group("a-nodes-gpu-c-example-com", "nodes-gpu"),
    ];
    let order = |instance: &str| {
        let order = in_order_of_likelihood(&groups, instance, &cluster());
        order.iter().map(|group| group.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(order("nodes-x1y2")[..2], ["a-nodes-c-example-com", "a-nodes-d-example-com"]);
    assert_eq!(order("nodes-gpu-x1y2")[0], "a-nodes-gpu-c-example-com");
    assert_eq!(order("elsewhere").len(), 4);
}

#[test]
fn pods_get_the_only_external_ipv6_range() {
    let of = |ranges: &[&str]| {
        let external_ipv6 = ranges.iter().map(|range| (*range).to_owned()).collect();
        pod_ranges("nodes-x1y2", &GceRanges { id: 1, external_ipv6 })
    };
    let range = "2600:1900:4000:1:0:1::/96";
    assert_eq!(of(&[range]).unwrap(), [range]);
    for (ranges, expected) in [
        (&[][..], "no external IPv6 range"),
        (&[range, "2600:1900:4000:2::/96"], "more than one external IPv6 range"),
        (&["/96"], "is not an address range"),
    ] {
        let problem = of(ranges).unwrap_err().to_string();
        assert!(problem.contains(expected) && problem.contains("nodes-x1y2"), "{problem}");
    }
}
