#![allow(clippy::unwrap_used)]
use kops_agent_spec::InstanceGroup;
use proptest::prelude::*;

use super::*;

const NOW: &str = "2026-11-26T12:00:00Z";

const ADDITIONAL: &str = "  additionalUserData: [{name: a.sh, type: text/x-shellscript, content: ls}]\n";

fn wanted(spec: &str) -> WantedMachine {
    let text = format!("kind: InstanceGroup\nmetadata: {{name: nodes}}\nspec:\n  role: Node\n{spec}");
    WantedMachine::from_group(&InstanceGroup::parse(text.as_bytes(), "memory://nodes").unwrap().spec)
}

fn observed(machine_type: &str, image: &str, gib: u32) -> ObservedMachine {
    let machine = ObservedMachine::new(Some(machine_type.into()), Some(image.into()));
    ObservedMachine { root_volume_gib: Some(gib), additional_user_data: Some(String::new()), ..machine }
}

#[test]
fn each_difference_that_a_node_observes_is_reported() {
    let spec = "  image: ami-2\n  machineType: m5.large\n  rootVolumeSize: 128\n";
    let same = MachineComparison::default();
    assert_eq!(wanted(spec).compare(&observed("m5.large", "ami-2", 128)), same);
    let wanted = wanted(&format!("{spec}{ADDITIONAL}"));
    let compared = wanted.compare(&observed("t3.large", "ami-1", 64));
    assert_eq!(
        compared.needs_new_machine,
        [
            "image ami-1, spec has ami-2",
            "machine type t3.large, spec has m5.large",
            "root volume 64 GiB, spec has 128 GiB",
            "additionalUserData differs from the spec",
        ]
    );
    assert_eq!(compared.not_compared, [""; 0]);
}

#[test]
fn values_missing_on_the_node_or_in_the_spec_are_not_compared() {
    let spec = "  image: ami-2\n  machineType: m5.large\n  rootVolumeSize: 128\n  rootVolumeType: gp3\n";
    let wanted = wanted(&format!("{spec}{ADDITIONAL}"));
    let compared = wanted.compare(&ObservedMachine::new(None, None));
    assert_eq!(compared.needs_new_machine, [""; 0]);
    let parts: Vec<&str> = compared.not_compared.iter().map(|part| part.split(':').next().unwrap()).collect();
    assert_eq!(parts, ["image", "machine type", "root volume", "additionalUserData", "rootVolume.type"]);
    let compared = WantedMachine::default().compare(&observed("m5.large", "ami-1", 64));
    assert_eq!((compared.needs_new_machine.len(), compared.not_compared.len()), (0, 3), "{compared:?}");
}

#[test]
fn an_image_is_compared_only_with_one_that_is_named_in_the_same_way() {
    for (observed_image, spec, expected) in [
        ("ami-1", "ami-1", Some(0)),
        ("ami-1", "ami-2", Some(1)),
        ("ami-1", "099720109477/ubuntu/images/hvm-ssd/ubuntu-noble-24.04-amd64-server-20260101", None),
        (
            "ami-1",
            "ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
            None,
        ),
        ("ami-1", "137112412989/al2023-ami-2023", None),
        ("ubuntu-os-cloud/ubuntu-2404-v1", "ubuntu-os-cloud/ubuntu-2404-v1", Some(0)),
        ("ubuntu-os-cloud/ubuntu-2404-v1", "ubuntu-os-cloud/ubuntu-2404-v2", Some(1)),
        ("ubuntu-os-cloud/ubuntu-2404-v1", "ubuntu-2404-v1", None),
        (
            "ubuntu-os-cloud/ubuntu-2404-v1",
            "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts",
            None,
        ),
        ("ubuntu-os-cloud/ubuntu-2404-v1", "ssm:a/b", None),
    ] {
        let wanted = WantedMachine { image: spec.into(), ..wanted("  machineType: m5.large\n") };
        let compared = wanted.compare(&observed("m5.large", observed_image, 64));
        let is_compared = !compared.not_compared.iter().any(|part| part.starts_with("image: "));
        assert_eq!(is_compared.then_some(compared.needs_new_machine.len()), expected, "{spec}");
    }
}

#[test]
fn a_group_of_several_types_has_machines_of_each() {
    let types = |spec: &str| wanted(spec).machine_types;
    assert_eq!(types("  machineType: m5.large, m6i.large\n"), ["m5.large", "m6i.large"]);
    let mixed = "  machineType: m5.large\n  mixedInstancesPolicy: {instances: [m6i.large, m5.large]}\n";
    assert_eq!(types(mixed), ["m5.large", "m6i.large"]);
    let compared = wanted(mixed).compare(&observed("t3.large", "ami-1", 64));
    assert_eq!(compared.needs_new_machine, ["machine type t3.large, spec has m5.large or m6i.large"]);
    let open = "  machineType: m5.large\n  mixedInstancesPolicy: {instanceRequirements: {cpu: {min: 2}}}\n";
    assert_eq!(types(open), [""; 0], "EC2 may choose any type with these properties");
}

#[test]
fn the_specs_of_groups_are_read_as_written_until_no_controller_renews_them() {
    let groups = [("nodes".to_owned(), wanted("  image: ami-2\n  machineType: m5.large\n"))];
    let machines = WantedMachines::new("2026-11-26T11:00:00Z", groups.into());
    let text = serde_json::to_string(&machines).unwrap();
    let read = |text: &str, now: &str| WantedMachines::read(text, parse_timestamp(now).unwrap());
    assert_eq!(read(&text, NOW), Ok(machines.clone()));
    assert!(read(&text, "2026-11-26T14:00:01Z").unwrap_err().to_string().contains("2026-11-26T11:00:00Z"));
    assert!(read(&text, "2026-11-26T10:00:00Z").is_err(), "its time is in the future");
    assert!(read("{}", NOW).is_err());
    assert!(read(&text.replace(r#""schemaVersion":1"#, r#""schemaVersion":2"#), NOW).is_err());

    let annotation = observed("t3.large", "ami-2", 64).value().unwrap();
    let compared = machines.compare("nodes", &annotation);
    assert_eq!(compared.needs_new_machine, ["machine type t3.large, spec has m5.large"]);
    for (group, annotation) in [("others", annotation.as_str()), ("nodes", ""), ("nodes", "{}")] {
        let compared = machines.compare(group, annotation);
        assert_eq!((compared.needs_new_machine.len(), compared.not_compared.len()), (0, 1), "{group}");
    }
}

#[test]
fn observed_machines_of_another_form_are_rejected() {
    let value = observed("m5.large", "ami-1", 64).value().unwrap();
    assert!(ObservedMachine::read(&value).is_ok());
    for (from, to) in [
        (r#""schemaVersion":1"#, r#""schemaVersion":2"#),
        ("m5.large", "m5 large"),
        ("ami-1", ""),
        ("ami-1", &"a".repeat(LONGEST_NAME + 1)),
        ("64", "-1"),
        (r#""additionalUserData":"""#, r#""additionalUserData":"\n""#),
        (r#""image""#, r#""other""#),
    ] {
        assert!(ObservedMachine::read(&value.replace(from, to)).is_err(), "{to}");
    }
    assert_eq!(ObservedMachine::new(Some("\u{1b}[2J".into()), None).value(), None);
}

proptest! {
    #[test]
    fn anything_is_read(value in any::<String>()) {
        let _ = ObservedMachine::read(&value);
    }

    /// A difference is reported only for values that both the node and the spec have.
    #[test]
    fn only_observed_differences_are_reported(
        machine_type in proptest::option::of("[a-z]{1,3}"), image in proptest::option::of("ami-[0-9]{1,2}"),
        size in proptest::option::of(1u32..4), wanted_type in "[a-z]{0,3}", wanted_image in "(ami-[0-9]{1,2})?",
        wanted_size in proptest::option::of(1u32..4),
    ) {
        let wanted = WantedMachine {
            image: wanted_image.clone(),
            machine_types: Some(wanted_type.clone()).filter(|name| !name.is_empty()).into_iter().collect(),
            root_volume_size: wanted_size,
            ..WantedMachine::default()
        };
        let machine = ObservedMachine { root_volume_gib: size, ..ObservedMachine::new(machine_type.clone(), image.clone()) };
        let compared = wanted.compare(&machine);
        let differ = |observed: Option<String>, wanted: String| observed.is_some_and(|observed| !wanted.is_empty() && observed != wanted);
        let number = |size: Option<u32>| size.map(|size| size.to_string());
        let expected = [
            differ(image, wanted_image),
            differ(machine_type, wanted_type),
            differ(number(size), number(wanted_size).unwrap_or_default()),
        ];
        prop_assert_eq!(compared.needs_new_machine.len(), expected.into_iter().filter(|differs| *differs).count());
    }
}
