//! Generates documents of all shapes, for two tests of the YAML writer: the unit tests here, and the tests in
//! `tests/` with Go's own reader.

use proptest::prelude::*;
use serde_json::{Number, Value};

pub(crate) fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,20}",
        "[ \\n:#'\"a-c*&|>.0-9_+xeEoObTZ-]{0,24}",
        "[a-z ]{60,200}",
        "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(Z|\\.[0-9]|))?",
        "[-+]?[0-9_:.xob]{1,8}",
        Just("yes".to_owned()),
        Just("\u{85}\u{2028}\r\t\u{7f}\u{1f600}".to_owned()),
    ]
}

pub(crate) fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no others", |float| float.is_finite()).prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any_text(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Whether two values are equal. Writing a number may change its type: `1.0` becomes `1`. `tolerance` is the maximum relative difference
/// between fractions.
pub(crate) fn same(a: &Value, b: &Value, tolerance: f64) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || same_fraction(a, b, tolerance),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b, tolerance))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b, tolerance)))
        }
        _ => a == b,
    }
}

fn same_fraction(a: &Number, b: &Number, tolerance: f64) -> bool {
    let (Some(first), Some(second)) = (a.as_f64(), b.as_f64()) else { return false };
    (a.is_f64() || b.is_f64()) && (first - second).abs() <= first.abs() * tolerance
}
