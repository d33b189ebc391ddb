//! For arbitrary specs, deciding returns a node or a list of problems. It never panics.
//!
//! The tests change working clusters of every cloud at random. The changes set fields of the API to values of the right or another type.
//! They replace, copy and remove existing values. `PROPTEST_CASES=10000` runs longer.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::sync::LazyLock;

use crate::api::{Field, Kind, fields};
use crate::clouds::{CLOUDS, Derived, Machine, Role};
use kops_agent_plan::resource::DesiredState;
use kops_agent_spec::facts::Facts;
use kops_agent_spec::{BootConfig, Cluster, InstanceGroup, NodeupConfig};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// Texts that broke a parser in the past.
const TEXTS: &[&str] = &[
    "",
    " ",
    "\n",
    "\t",
    "\0",
    "a\nb",
    "\u{85}",
    "\u{feff}",
    "ä",
    "😀",
    "\u{202e}",
    "'",
    "\"",
    "\\",
    "`",
    "$",
    "$$",
    "%",
    "%s",
    "%%",
    "{{",
    "${A}",
    "$(A)",
    "#",
    ";",
    ",",
    ",,",
    ":",
    "::",
    ":::",
    "=",
    "==",
    "a=",
    "=a",
    "a=b=c",
    "@",
    "-",
    "--",
    "---",
    "/",
    "//",
    "..",
    "../..",
    "/a/../..",
    "~",
    "a/b/",
    "*",
    "?",
    "[",
    "true",
    "no",
    "null",
    "0x10",
    "0o17",
    "012",
    "1_000",
    "1e3",
    ".inf",
    "nan",
    "-0",
    "+1",
    "1.",
    ".5",
    "٣",
    "1e-70000",
    "1e70000",
    "1e2147483647",
    "1e-2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "170141183460469231731687303715884105728Ei",
    "-9223372036854775808ns",
    "2562048h",
    "1h1",
    "1.5.5s",
    "9e9s",
    "µs",
    "0.0.0.0",
    "0.0.0.0/0",
    "255.255.255.255/32",
    "10.0.0.0/33",
    "10.0.0.0/-1",
    "::",
    "::/0",
    "::/128",
    "fd00::/129",
    "::ffff:10.0.0.1",
    "fe80::1%eth0",
    "[::1]:80",
    "010.0.0.1",
    "65536",
    "0-0",
    "2-1",
    "1-65536",
    "-1-2",
    "1.34",
    "v1.34.0",
    "1.31.0",
    "1.37.0",
    "1.34.0+x",
    "1.34.0-",
    "https://",
    "https://a/v1.34.0/x",
    "https://h:99999",
    "http://[",
    "://",
    "a://b",
    "sha256:",
    "a@sha256:b",
    "registry/image",
    ":NoSchedule",
    "a=b:NoSchedule",
    "a:b:c",
    "a<b",
    "memory.available<",
    "<",
    "https://127.0.0.1:4001",
    "external",
    "aws",
    "Node",
    "Master",
    "eni",
    "None",
    "kubelet.service",
    ".service",
    "a@.service",
    "kube-apiserver",
    "Automatic",
    "systemd",
    "/etc",
    "/etc/passwd",
];

/// The documents of every machine, in v1alpha2 and in v1alpha3.
static MACHINES: LazyLock<Vec<Machine>> = LazyLock::new(|| {
    let of_cloud = |(cloud, _): &(&str, &str)| Role::ALL.map(|role| Machine::new(cloud, role));
    CLOUDS.iter().flat_map(of_cloud).flat_map(|machine| [machine.clone(), in_v1alpha3(machine)]).collect()
});
static DERIVED: LazyLock<Vec<Derived>> =
    LazyLock::new(|| MACHINES.iter().map(|machine| machine.derive().unwrap()).collect());

/// Converts a machine's documents to v1alpha3, in which fields have the names of our types.
fn in_v1alpha3(machine: Machine) -> Machine {
    let cluster = Cluster::parse(machine.cluster.to_string().as_bytes(), "cluster").unwrap();
    let group = InstanceGroup::parse(machine.group.to_string().as_bytes(), "group").unwrap();
    let respelled = Machine {
        cluster: json!({
            "apiVersion": "kops.k8s.io/v1alpha3", "kind": "Cluster",
            "metadata": machine.cluster["metadata"], "spec": cluster.spec,
        }),
        group: json!({
            "apiVersion": "kops.k8s.io/v1alpha3", "kind": "InstanceGroup",
            "metadata": machine.group["metadata"], "spec": group.spec,
        }),
        ..machine.clone()
    };
    assert_eq!(respelled.decide().unwrap(), machine.decide().unwrap(), "both versions are the same cluster");
    respelled
}

/// A change that a test makes in a document.
#[derive(Clone, Debug)]
enum Change {
    /// Sets a field of the API to a value. On the path to the field, lists get a new item if `lengthen` is set, and mappings get the key
    /// `key`.
    Set {
        field: Index,
        lengthen: bool,
        key: String,
        value: Odd,
    },
    Replace {
        place: Index,
        value: Odd,
    },
    Copy {
        from: Index,
        to: Index,
    },
    Remove {
        place: Index,
    },
}

/// Random values for all kinds of fields. They need not be valid. If `fits` is false, `other` is used for every kind of field.
#[derive(Clone, Debug)]
struct Odd {
    fits: bool,
    text: String,
    duration: String,
    amount: Value,
    word: &'static str,
    number: Value,
    other: Value,
}

impl Odd {
    fn for_kind(&self, kind: Kind) -> Value {
        match kind {
            _ if !self.fits => self.other.clone(),
            Kind::Text => self.text.clone().into(),
            Kind::Number => self.number.clone(),
            Kind::Bool => (self.text.len().is_multiple_of(2)).into(),
            Kind::Duration => self.duration.clone().into(),
            Kind::Word => self.word.into(),
            Kind::Amount => self.amount.clone(),
            Kind::Mapping => json!({}),
        }
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => select(TEXTS).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[a-z0-9./:=,-]{0,12}",
        1 => "-?[0-9]{1,40}(\\.[0-9]{0,32})?(e-?[0-9]{1,10}|n|u|m|k|Ki|Gi|E|Ei)?",
        1 => "-?([0-9]{1,20}(\\.[0-9]{0,20})?(ns|us|µs|ms|s|m|h)){1,3}",
        1 => "[0-9]{1,3}(\\.[0-9]{1,3}){3}(/[0-9]{1,3})?",
        1 => "[0-9a-f:]{0,20}/[0-9]{1,3}",
        1 => "v?[0-9]{1,2}(\\.[0-9]{1,20}){0,3}(-[a-z0-9.]{0,5})?",
        1 => "[0-9]{0,6}-[0-9]{0,6}",
        1 => "(/?(\\.\\.|[a-z]{0,3})){0,6}",
        1 => Just("x".repeat(10_000)),
    ]
}

fn duration() -> impl Strategy<Value = String> {
    prop_oneof![
        "-?([0-9]{1,20}(\\.[0-9]{0,20})?(ns|us|µs|ms|s|m|h)){1,3}",
        "-?[0-9]{1,5}(ns|us|ms|s|m|h)",
        select(vec!["0", "2562047h47m16.854775807s", "-2562047h47m16.854775808s", "-1ns", "0.1ns"])
            .prop_map(str::to_owned),
    ]
}

fn amount() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => "-?[0-9]{1,5}(\\.[0-9]{0,5})?(n|u|m|k|M|Ki|Mi|Gi|Ti|E|Ei)?".prop_map(Value::from),
        1 => "[+-]?[0-9]{0,40}(\\.[0-9]{0,32})?(n|u|m|k|Ki|Gi|E|Ei)?".prop_map(Value::from),
        1 => "[+-]?[0-9.]{1,5}[eE][+-]?[0-9]{1,10}".prop_map(Value::from),
        1 => text().prop_map(Value::from),
        2 => number(),
    ]
}

fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        select(vec![json!(0), json!(-1), json!(1), json!(0.5), json!(-0.0), json!(1e308), json!(u64::MAX)]),
        select(vec![i32::MAX, i32::MIN, 65_535, 65_536]).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-1000..1000).prop_map(Value::from),
    ]
}

fn other() -> impl Strategy<Value = Value> {
    prop_oneof![
        select(vec![
            json!(null),
            json!(true),
            json!(false),
            json!([]),
            json!({}),
            json!([null]),
            json!([[]]),
            json!([{}]),
            json!({"": null}),
            json!({"a": "b"}),
            json!({"a": {"b": []}}),
            json!(["", ""]),
            json!("a,b"),
        ]),
        number(),
        text().prop_map(Value::from),
        vec(text(), 0..4).prop_map(Value::from),
        prop::collection::btree_map(text(), text(), 0..4).prop_map(|map| json!(map)),
    ]
}

fn odd() -> impl Strategy<Value = Odd> {
    const WORDS: [&str; 9] =
        ["Node", "ControlPlane", "Master", "APIServer", "Bastion", "aws", "gce", "metal", "openstack"];
    let fits = prop::bool::weighted(0.85);
    (fits, text(), duration(), amount(), select(&WORDS[..]), number(), other()).prop_map(
        |(fits, text, duration, amount, word, number, other)| Odd {
            fits,
            text,
            duration,
            amount,
            word,
            number,
            other,
        },
    )
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        5 => (any::<Index>(), any::<bool>(), text(), odd())
            .prop_map(|(field, lengthen, key, value)| Change::Set { field, lengthen, key, value }),
        3 => (any::<Index>(), odd()).prop_map(|(place, value)| Change::Replace { place, value }),
        1 => (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Change::Copy { from, to }),
        1 => any::<Index>().prop_map(|place| Change::Remove { place }),
    ]
}

impl Change {
    fn apply(&self, document: &mut Value, fields: &[Field]) {
        let places = places(document);
        match self {
            Change::Set { field, lengthen, key, value } => {
                let field = field.get(fields);
                let wanted = value.for_kind(field.kind);
                *field.reach(document, *lengthen, key) = wanted;
            }
            Change::Replace { place, value } => {
                let there = document.pointer_mut(place.get::<String>(&places)).unwrap();
                *there = value.for_kind(kind_of(there));
            }
            Change::Copy { from, to } => {
                let copied = document.pointer(from.get::<String>(&places)).unwrap().clone();
                *document.pointer_mut(to.get::<String>(&places)).unwrap() = copied;
            }
            Change::Remove { place } => {
                let (parent, name) = place.get::<String>(&places).rsplit_once('/').unwrap();
                match document.pointer_mut(parent).unwrap() {
                    Value::Object(fields) => drop(fields.remove(&name.replace("~1", "/").replace("~0", "~"))),
                    Value::Array(items) => drop(items.remove(name.parse().unwrap())),
                    _ => unreachable!("{parent} holds {name}"),
                }
            }
        }
    }
}

fn kind_of(value: &Value) -> Kind {
    match value {
        Value::String(_) => Kind::Text,
        Value::Number(_) => Kind::Number,
        Value::Bool(_) => Kind::Bool,
        _ => Kind::Amount,
    }
}

/// The JSON pointers of all values in a document, except the document itself.
fn places(document: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        let mut step = |name: &str, value: &Value| {
            let at = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
            found.push(at.clone());
            walk(value, &at, found);
        };
        match value {
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| step(&index.to_string(), item));
            }
            Value::Object(fields) => fields.iter().for_each(|(key, item)| step(key, item)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(document, "", &mut found);
    found
}

/// Runs `decide` for many changes. Fails if too few changes result in a desired state, or if too few changes result in problems.
fn for_many<S: Strategy>(changes: S, decide: impl Fn(S::Value) -> Result<DesiredState, String>) {
    let (decided, refused) = (Cell::new(0), Cell::new(0));
    let mut runner =
        TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
    let ran = runner.run(&changes, |changes| {
        match decide(changes) {
            Ok(state) => {
                prop_assert!(!state.is_empty());
                decided.set(decided.get() + 1);
            }
            Err(problem) => {
                prop_assert!(!problem.is_empty());
                refused.set(refused.get() + 1);
            }
        }
        Ok(())
    });
    ran.unwrap_or_else(|problem| panic!("{problem}"));
    let (decided, refused) = (decided.get(), refused.get());
    assert!(decided * 10 > refused && refused * 20 > decided, "{decided} decided, {refused} refused");
}

#[test]
fn no_cluster_or_group_panics() {
    let (of_cluster, of_group, of_facts) =
        (fields::<Cluster>(), fields::<InstanceGroup>(), fields::<Facts>());
    assert!(of_cluster.len() > 900 && of_group.len() > 200, "{} {}", of_cluster.len(), of_group.len());
    let changes = (any::<Index>(), vec((0..10, change()), 1..5));
    for_many(changes, |(machine, changes)| {
        let mut machine = machine.get(&MACHINES).clone();
        for (document, change) in &changes {
            match document {
                0..6 => change.apply(&mut machine.cluster, &of_cluster),
                6..9 => change.apply(&mut machine.group, &of_group),
                _ => change.apply(&mut machine.facts, &of_facts),
            }
        }
        machine.decide()
    });
}

#[test]
fn no_nodeup_config_panics() {
    let (of_boot, of_config, of_facts) =
        (fields::<BootConfig>(), fields::<NodeupConfig>(), fields::<Facts>());
    assert!(of_config.len() > 500, "{}", of_config.len());
    let changes = (any::<Index>(), vec((0..10, change()), 1..5));
    for_many(changes, |(machine, changes)| {
        let mut machine = machine.get(&DERIVED).clone();
        for (document, change) in &changes {
            match document {
                0..8 => change.apply(&mut machine.config, &of_config),
                8 => change.apply(&mut machine.boot, &of_boot),
                _ => change.apply(&mut machine.facts, &of_facts),
            }
        }
        machine.decide()
    });
}

/// Tests extreme values in all fields that the code uses in calculations.
#[test]
fn no_amount_or_duration_panics() {
    const AMOUNTS: [&str; 9] = [
        "1e-70000",
        "1e70000",
        "1e-2147483648",
        "1e2147483647",
        "-1",
        "0.0000000000000000000000000000001Ki",
        "170141183460469231731687303715884105727Ei",
        "-170141183460469231731687303715884105728m",
        "",
    ];
    const DURATIONS: [&str; 4] = ["-2562047h47m16.854775808s", "2562047h47m16.854775807s", "-1ns", "0"];
    let mut tried = 0;
    for role in Role::ALL {
        let machine = Machine::new("aws", role).derive().unwrap();
        for field in fields::<NodeupConfig>() {
            let values: &[&str] = match field.kind {
                Kind::Amount => &AMOUNTS,
                Kind::Duration => &DURATIONS,
                _ => continue,
            };
            for value in values {
                let mut machine = machine.clone();
                *field.reach(&mut machine.config, false, "key") = (*value).into();
                if let Err(problem) = machine.decide() {
                    assert!(!problem.is_empty());
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 300, "{tried}");
}
