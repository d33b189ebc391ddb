//! Go does not follow YAML 1.1 exactly. So these tests let Go itself read the YAML that we write for Kubernetes. Without Go, the tests are
//! skipped.

#![allow(clippy::unwrap_used)]

use crate::go_reader;

use crate::api::{Field, Kind, fields};
use crate::arbitrary::{any_text, any_value, same};
use crate::clouds::{CLOUDS, Derived, Machine, Role};
use crate::written::{HARMLESS, texts, with_value, yaml};
use kops_agent_spec::NodeupConfig;
use kops_agent_spec::go_yaml;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

/// Texts that some YAML parsers do not read as strings.
const RETYPED: &[&str] = &[
    "",
    " ",
    "~",
    "null",
    "Null",
    "NULL",
    "y",
    "Y",
    "yes",
    "Yes",
    "YES",
    "n",
    "N",
    "no",
    "No",
    "NO",
    "on",
    "On",
    "ON",
    "off",
    "Off",
    "OFF",
    "true",
    "True",
    "TRUE",
    "false",
    "False",
    "FALSE",
    "0",
    "-0",
    "+0",
    "1",
    "-1",
    "+1",
    "007",
    "08",
    "010",
    "0o17",
    "0O17",
    "0x10",
    "0X1f",
    "-0x10",
    "0b11",
    "-0b11",
    "1_000",
    "0x_1",
    "1_",
    "_1",
    "1.5",
    "1.",
    ".5",
    "1e3",
    "1E3",
    "1e+3",
    "1e",
    "e3",
    "685.230_15e+03",
    "1_0.5",
    "._5",
    ".inf",
    "-.inf",
    "+.INF",
    ".Inf",
    ".nan",
    ".NaN",
    "nan",
    "inf",
    "12:30",
    "1:30:45",
    "-1:30",
    "190:20:30.15",
    "1:60",
    "2001-01-01",
    "2001-1-1",
    "2001-12-14t21:59:43.10-05:00",
    "2001-12-14 21:59:43.10 -5",
    "2001-12-15 2:59:43.10",
    "01-01-2001",
    "<<",
    "=",
    "-",
    "--",
    "---",
    "...",
    "?",
    ":",
    "!",
    "!!str",
    "!!int 1",
    "&a",
    "*a",
    "|",
    ">",
    "%",
    "@",
    "`",
    "[",
    "]",
    "{",
    "}",
    ",",
    "#",
    "a: b",
    "a:",
    ": a",
    "a #b",
    "- a",
    "'",
    "''",
    "\"",
    "\\",
    "\\n",
    " a",
    "a ",
    "\n",
    "a\n",
    "\na",
    "a\n\n",
    "a\nb",
    " a\nb",
    "a\n b",
    "a \nb",
    "a\r\nb",
    "\r",
    "\t",
    "\ta",
    "a\tb\nc",
    "\u{0}",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{2028}",
    "a\u{2029}b",
    "\u{feff}a",
    "\u{fffe}",
    "😀",
    "18446744073709551615",
    "18446744073709551616",
    "-9223372036854775808",
    "9223372036854775808",
    "0xffffffffffffffffff",
];

/// The maximum relative difference at which two fractions count as equal, because serde_json may read the last digit wrong.
const JSON_READER: f64 = 1e-14;

fn go_reads(documents: &[(String, Value)]) {
    let texts: Vec<String> = documents.iter().map(|(text, _)| text.clone()).collect();
    let Some(answers) = go_reader::read(&texts) else { return };
    let mut wrong = Vec::new();
    for ((text, meant), read) in documents.iter().zip(answers) {
        if !read.as_ref().is_ok_and(|read| same(read, meant, JSON_READER)) {
            wrong.push(format!("meant {meant}\nread  {read:?}\nof\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), documents.len(), wrong.join("\n"));
}

fn written(value: Value) -> (String, Value) {
    (go_yaml::value_to_string(&value), value)
}

#[test]
fn go_reads_every_text_as_the_same_text() {
    let words = ["word"; 30].join(" ");
    let of_text = |text: &str| {
        [
            json!(text),
            json!([text, text]),
            json!({"key": text, "list": [text, [text], {"key": text}]}),
            json!({ text: text }),
            json!({ text: [text], "other": { text: { text: 1 } } }),
            json!({ text: { "a": text }, "b": {} }),
            json!({"long": format!("{words} {text} {words}")}),
            json!({"long": format!("{text} {words} {text}"), format!("{text}{words}"): text}),
        ]
    };
    go_reads(&RETYPED.iter().flat_map(|text| of_text(text)).map(written).collect::<Vec<_>>());
}

#[test]
fn go_reads_every_document_as_the_same_document() {
    let mut runner = TestRunner::deterministic();
    let mut documents = Vec::new();
    for _ in 0..ProptestConfig::default().cases * 8 {
        documents.push(written(any_value().new_tree(&mut runner).unwrap().current()));
        documents.push(written(json!({"text": any_text().new_tree(&mut runner).unwrap().current()})));
    }
    go_reads(&documents);
}

#[test]
fn go_reads_every_file_of_every_node_like_our_parser() {
    let machines = CLOUDS.iter().flat_map(|(cloud, _)| Role::ALL.map(|role| Machine::new(cloud, role)));
    let files: Vec<_> = machines
        .flat_map(|machine| texts(&machine.decide().unwrap()))
        .filter_map(|(id, text)| yaml(&id, &text).map(|document| (text, document)))
        .collect();
    assert!(files.len() > 80, "{}", files.len());
    go_reads(&files);
}

/// Replaces each text of the configuration, one at a time, by a text that parsers easily misread. Go must read the replaced text unchanged
/// from every file that contains it.
#[test]
fn go_reads_every_text_of_the_configuration_unchanged() {
    // Empty texts are skipped, because they are unset fields. Taints are skipped, because they have their own syntax.
    let mut retyped = RETYPED.iter().filter(|text| !text.is_empty()).cycle();
    let is_a_text =
        |field: &Field| field.kind == Kind::Text && field.to_string() != "/KubeletConfig/taints/[]";
    let (mut expected, mut arrived) = (Vec::new(), 0);
    for role in Role::ALL {
        let base = Machine::new("scaleway", role).derive().unwrap();
        for field in fields::<NodeupConfig>().into_iter().filter(is_a_text) {
            let decide = |value: &str| {
                let mut config = base.config.clone();
                *field.reach(&mut config, true, "key") = value.into();
                Derived { config, ..base.clone() }.decide()
            };
            let Ok(harmless) = decide(HARMLESS) else { continue };
            let files: Vec<_> = texts(&harmless)
                .into_iter()
                .filter(|(_, text)| text.contains(HARMLESS))
                .filter_map(|(id, text)| yaml(&id, &text).map(|document| (id, document)))
                .collect();
            if files.is_empty() {
                continue;
            }
            for text in retyped.by_ref().take(2) {
                let Ok(state) = decide(text) else { continue };
                let there = texts(&state);
                for (id, document) in &files {
                    let Some((_, file)) = there.iter().find(|(other, _)| other == id) else { continue };
                    arrived += 1;
                    let what = format!("{field} = {text:?} in {id}");
                    expected.push((what, file.clone(), with_value(document, text)));
                }
            }
        }
    }
    assert!(arrived > 150, "{arrived}");
    let files: Vec<String> = expected.iter().map(|(_, file, _)| file.clone()).collect();
    let Some(read) = go_reader::read(&files) else { return };
    let mut wrong = Vec::new();
    for ((what, _, meant), read) in expected.iter().zip(read) {
        let read = read.map(|document| with_value(&document, HARMLESS));
        if read.as_ref() != Ok(meant) {
            wrong.push(format!("{what}: {read:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {arrived}:\n{}", wrong.len(), wrong.join("\n"));
}
