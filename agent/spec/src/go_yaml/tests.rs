#![allow(clippy::unwrap_used)]
use proptest::prelude::*;
use serde_json::{Value, json};

use super::arbitrary::{any_text, any_value, same};
use super::*;

fn yaml(value: Value) -> String {
    value_to_string(&value)
}

#[test]
fn lays_out_mappings_and_lists_as_go_does() {
    assert_eq!(
        yaml(json!({
            "b": {"list": [1, [2, [3]], {"k": [true], "l": null}], "empty": [], "none": {}},
            "a": [[], {}, {"x": {"z": 1}}],
        })),
        "a:\n- []\n- {}\n- x:\n    z: 1\nb:\n  empty: []\n  list:\n  - 1\n  - - 2\n    - - 3\n  - k:\n    - true\n    l: null\n  none: {}\n"
    );
    assert_eq!(yaml(json!([1, {"a": 1}])), "- 1\n- a: 1\n");
    assert_eq!(yaml(json!("text")), "text\n");
    assert_eq!(yaml(json!("a\nb")), "|-\n  a\n  b\n");
}

#[test]
fn texts_with_line_breaks_keep_their_final_line_breaks() {
    for (text, written) in [
        ("a\nb\n", "k: |\n  a\n  b\n"),
        ("a\nb", "k: |-\n  a\n  b\n"),
        ("a\n\n", "k: |+\n  a\n\n"),
        ("\n", "k: |2+\n\n"),
        ("\na", "k: |2-\n\n  a\n"),
        ("  a\nb\n", "k: |2\n    a\n  b\n"),
        ("a \nb", "k: \"a \\nb\"\n"),
        ("a\tb\n", "k: \"a\\tb\\n\"\n"),
    ] {
        assert_eq!(yaml(json!({ "k": text })), written, "{text:?}");
    }
}

#[test]
fn quotes_texts_that_yaml_1_1_readers_would_retype() {
    for text in [
        "",
        "y",
        "n",
        "Yes",
        "no",
        "on",
        "OFF",
        "true",
        "False",
        "~",
        "null",
        "Null",
        "1",
        "-1",
        "+1",
        "0x10",
        "0o17",
        "017",
        "0b11",
        "1_000",
        "1.5",
        "1.",
        ".5",
        "1e3",
        "12:30",
        "1:2:3.5",
        "-12:30",
        "2001-01-01",
        "2001-1-1 1:2:3",
        "2001-01-01T00:00:00Z",
        "2001-01-01t00:00:00.5+01:00",
        ".inf",
        "-.INF",
        ".NaN",
        "0b-11",
        "08",
        ".5_0",
        "18446744073709551615",
        "99999999999999999999",
    ] {
        assert_eq!(yaml(json!({ "k": text })), format!("k: \"{text}\"\n"));
        assert_eq!(yaml(json!({ text: 1 })), format!("\"{text}\": 1\n"));
    }
}

#[test]
fn quotes_only_texts_with_yaml_syntax() {
    for text in
        ["*", "a: b", "a:", "a #b", "- a", "-", "? a", "&a", "!a", "%a", "@a", "`a", " a", "a ", "---", "[a]"]
    {
        assert_eq!(yaml(json!({ "k": text })), format!("k: '{text}'\n"));
    }
    assert_eq!(yaml(json!({ "k": "'a'" })), "k: '''a'''\n");
    for text in [
        "a:b",
        "a#b",
        "-a",
        "=",
        "yess",
        "1.2.3",
        "0x",
        "._5",
        "1:99",
        "2001-02-30",
        "10.0.0.0/8",
        "a, b",
        "é",
    ] {
        let plain = format!("k: {text}\n");
        assert_eq!(yaml(json!({ "k": text })), plain);
    }
    assert_eq!(yaml(json!({"<<": "<<"})), "\"<<\": <<\n");
}

#[test]
fn folds_long_texts_at_spaces() {
    let words = ["word"; 20].join(" ");
    let [first, second] = [["word"; 16].join(" "), ["word"; 4].join(" ")];
    assert_eq!(yaml(json!({ "k": words })), format!("k: {first}\n  {second}\n"));
    assert_eq!(yaml(json!({ "k": format!("* {words}") })), format!("k: '* {first}\n  {second}'\n"));
}

#[test]
fn long_keys_are_marked() {
    let key = "k".repeat(129);
    assert_eq!(
        yaml(json!({ &key: [1], "a\nb": {"c": 1} })),
        format!("? |-\n  a\n  b\n: c: 1\n? {key}\n: - 1\n")
    );
}

#[test]
fn numbers_are_formatted_as_after_json() {
    for (number, written) in [
        (json!(1.0), "1"),
        (json!(-0.0), "0"),
        (json!(1.5), "1.5"),
        (json!(1234567.5), "1.2345675e+06"),
        (json!(1e6), "1000000"),
        (json!(0.25), "0.25"),
        (json!(1e20), "1e+20"),
        (json!(1e-7), "1e-07"),
        (json!(0.00012), "0.00012"),
        (json!(u64::MAX), "18446744073709551615"),
        (json!(i64::MIN), "-9223372036854775808"),
    ] {
        assert_eq!(yaml(number), format!("{written}\n"));
    }
}

proptest! {
    #[test]
    fn written_values_read_back(value in any_value()) {
        let written = yaml(value.clone());
        let read: Value = serde_yaml::from_str(&written).map_err(|error| TestCaseError::fail(format!("{error}\n{written}")))?;
        prop_assert!(same(&value, &read, 0.0), "{}", written);
    }

    #[test]
    fn a_text_never_reads_as_another_type(text in any_text()) {
        let read: Value = serde_yaml::from_str(&yaml(json!([text]))).unwrap();
        prop_assert_eq!(read, json!([text]));
    }
}
