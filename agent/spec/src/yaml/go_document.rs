//! Reads a document as Go's reader of YAML 1.1 does (`go.yaml.in/yaml/v2/decode.go`, `sigs.k8s.io/yaml`). kOps reads manifests by that reader.
//!
//! The reader of the parent module follows YAML 1.2: `yes` is a string, and `<<` is a key. That suffices for the files that kOps writes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_json::{Map, Value};

use super::{Duplicates, GoDocument};
use crate::go_yaml;
use crate::terminal::shortened;

/// The maximum number of duplicate keys whose paths are stored.
const MOST_DUPLICATES: usize = 10;
/// The maximum length of a stored path, in characters.
const LONGEST_PATH: usize = 300;
/// The maximum distance between a scalar and the tag before it, in characters. The limit is needed because an alias may repeat a scalar
/// many times, and each repetition searches for the tag.
const LOOK_BACK: usize = 256;

/// Reads the only document of `text`. `reader` must be a reader of `text`. Values that Go's reader rejects or that JSON does not have are
/// errors. An error is returned with the number of keys and values that were read before it.
pub(super) fn read<'de, D: Deserializer<'de>>(
    text: &'de str,
    reader: D,
) -> Result<GoDocument, (D::Error, usize)> {
    let state = RefCell::default();
    let read = Node { text, state: &state }.deserialize(reader);
    let State { duplicates, values, .. } = state.into_inner();
    match read {
        Ok(value) => Ok(GoDocument { value, duplicates, values }),
        Err(error) => Err((error, values)),
    }
}

#[derive(Default)]
struct State {
    /// The path of the value that is being read, in the document.
    path: Vec<String>,
    duplicates: Duplicates,
    values: usize,
    /// Whether the last scalar that was read is `<<` without quotes.
    is_merge: bool,
}

#[derive(Clone, Copy)]
struct Node<'a> {
    text: &'a str,
    state: &'a RefCell<State>,
}

impl Node<'_> {
    /// Whether a scalar has neither quotes nor a tag. `scalar` must be a slice of the text.
    fn is_plain(self, scalar: &str) -> bool {
        let at = (scalar.as_ptr() as usize).checked_sub(self.text.as_ptr() as usize);
        let Some(before) = at.and_then(|at| self.text.get(..at)) else { return false };
        !before.ends_with(['"', '\'']) && last_word(before).last() != Some('!')
    }

    fn within<T>(self, part: String, read: impl FnOnce() -> T) -> T {
        self.state.borrow_mut().path.push(part);
        let read = read();
        self.state.borrow_mut().path.pop();
        read
    }

    fn add_duplicate(self, key: &str) {
        let State { path, duplicates, .. } = &mut *self.state.borrow_mut();
        if duplicates.paths.len() == MOST_DUPLICATES {
            duplicates.others += 1;
            return;
        }
        let path = path.concat() + &part(key, path.is_empty());
        duplicates.paths.push(shortened(&path, LONGEST_PATH));
    }
}

/// The characters of the last word of a text, the last character first. Only the last [`LOOK_BACK`] characters of the text are searched, so
/// a longer word lacks its beginning.
fn last_word(text: &str) -> impl Iterator<Item = char> {
    let is_delimiter = |c: &char| c.is_whitespace() || matches!(c, ',' | '[' | '{');
    let end = text.chars().rev().take(LOOK_BACK);
    end.skip_while(|c| c.is_whitespace()).take_while(move |c| !is_delimiter(c))
}

/// A key as a part of a path.
fn part(key: &str, is_first: bool) -> String {
    if is_first { key.to_owned() } else { format!(".{key}") }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.state.borrow_mut().values += 1;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E: de::Error>(self, bool: bool) -> Result<Value, E> {
        Ok(Value::Bool(bool))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_i128<E: de::Error>(self, number: i128) -> Result<Value, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u128<E: de::Error>(self, number: u128) -> Result<Value, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Value, E> {
        go_yaml::float(number).ok_or_else(|| E::custom("infinity and NaN are no values of a manifest"))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    /// The reader calls this function for a scalar that is not a slice of the text. Such a scalar is in quotes or in a block, or has
    /// several lines. So it is a string.
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::from(text))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Value, E> {
        let is_plain = self.is_plain(text);
        self.state.borrow_mut().is_merge = is_plain && text == "<<";
        Ok(is_plain.then(|| go_yaml::value(text)).flatten().unwrap_or_else(|| Value::from(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = self.within(format!("[{}]", read.len()), || items.next_element_seed(self))? {
            read.push(item);
        }
        Ok(Value::Array(read))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let (mut fields, mut written) = (Map::new(), BTreeSet::new());
        loop {
            self.state.borrow_mut().is_merge = false;
            let Some(key) = entries.next_key_seed(self)? else { return Ok(Value::Object(fields)) };
            if key == "<<" && self.state.borrow().is_merge {
                merge(entries.next_value_seed(self)?, &mut fields).map_err(de::Error::custom)?;
                continue;
            }
            let key = key_text(key).map_err(de::Error::custom)?;
            let is_first = self.state.borrow().path.is_empty();
            let value = self.within(part(&key, is_first), || entries.next_value_seed(self))?;
            if !written.insert(key.clone()) {
                self.add_duplicate(&key);
            }
            fields.insert(key, value);
        }
    }

    /// Reads a value with a custom tag. Like Go, ignores the tag.
    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Value, A::Error> {
        let (IgnoredAny, value) = tagged.variant()?;
        value.newtype_variant_seed(self)
    }
}

/// Adds the fields of a merge key's value (`<<`). As in Go, a merged field overrides a field before the merge key, and a field after the
/// merge key overrides a merged field. If several merged mappings have a field, the first mapping is used.
fn merge(merged: Value, fields: &mut Map<String, Value>) -> Result<(), &'static str> {
    let mappings = match merged {
        Value::Array(mappings) => mappings,
        other => vec![other],
    };
    for mapping in mappings.into_iter().rev() {
        let Value::Object(mapping) = mapping else {
            return Err("the merge key << needs a mapping or a list of mappings");
        };
        fields.extend(mapping);
    }
    Ok(())
}

fn key_text(key: Value) -> Result<String, &'static str> {
    match key {
        Value::String(text) => Ok(text),
        Value::Bool(bool) => Ok(bool.to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Null => Err("a key is null; write a name"),
        Value::Array(_) | Value::Object(_) => Err("a key is a list or a mapping; write a name"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::{LOOK_BACK, last_word};
    use crate::yaml::{Duplicates, GoDocument, Unread, parse_go_document};

    fn read(text: &str) -> GoDocument {
        parse_go_document(text, "file").unwrap()
    }

    fn problem(text: &str) -> String {
        unread(text).error.problem
    }

    fn unread(text: &str) -> Unread {
        parse_go_document(text, "file").unwrap_err()
    }

    #[test]
    fn plain_scalars_have_gos_types_and_quoted_ones_stay_strings() {
        let text = "a: yes\nb: 'yes'\nc: \"on\"\nd: [off, No, y, 'n', {e: on,f: \"off\"}]\ng: |\n  yes\nh: !!str yes\n\
                    i: 0755\nj: 1_000\nk: 1.0\nl: 1.35\nm: 2001-01-01\ns: ~\no: \"0755\"\np: 12:30\nq: yes # no\nr: yes no\n";
        assert_eq!(
            read(text).value,
            json!({
                "a": true, "b": "yes", "c": "on", "d": [false, false, true, "n", {"e": true, "f": "off"}],
                "g": "yes\n", "h": "yes", "i": 0o755, "j": 1000, "k": 1, "l": 1.35, "m": "2001-01-01",
                "s": null, "o": "0755", "p": "12:30", "q": true, "r": "yes no"
            })
        );
        assert_eq!(read("x: &x yes\ny1: *x\nz: &z 'yes'\nw: [*z, *x]\n").value["w"], json!(["yes", true]));
        // Multi-byte characters and `\r\n` must not change the values.
        assert_eq!(read("ü: ä\r\na: yes\r\n").value, json!({"ü": "ä", "a": true}));
    }

    #[test]
    fn merge_keys_are_applied_in_order() {
        for (text, merged) in [
            ("<<: {a: 1, b: 1}\na: 2", json!({"a": 2, "b": 1})),
            // In this case, Go's reader differs from YAML's specification.
            ("a: 2\n<<: {a: 1, b: 1}", json!({"a": 1, "b": 1})),
            ("<<: [{a: 1}, {a: 2, b: 2}]", json!({"a": 1, "b": 2})),
            ("<<: {<<: {a: 1, b: 1}, a: 2}\nc: 3", json!({"a": 2, "b": 1, "c": 3})),
            ("'<<': {a: 1}", json!({"<<": {"a": 1}})),
        ] {
            assert_eq!(read(text).value, merged, "{text}");
        }
        let anchored = read("base: &b {role: Node, m: 1}\nspec:\n  <<: *b\n  m: 2\n");
        assert_eq!(anchored.value["spec"], json!({"role": "Node", "m": 2}));
        // Go's reader reads `n` without quotes as a boolean, even if it is a key.
        assert_eq!(read("n: 1").value, json!({"false": 1}));
        assert_eq!(anchored.duplicates, Duplicates::default());
        let problem = problem("<<: 1");
        assert!(problem.contains("the merge key << needs a mapping or a list of mappings"), "{problem}");
    }

    #[test]
    fn duplicate_keys_are_reported() {
        let document = read("a: 1\nb: [{}, {c: {d: 1, 'd': 2}}]\na: 2\n");
        assert_eq!(document.value, json!({"a": 2, "b": [{}, {"c": {"d": 2}}]}));
        assert_eq!(document.duplicates.paths, ["b[1].c.d", "a"]);
        assert_eq!(document.duplicates.others, 0);
    }

    #[test]
    fn few_and_short_paths_of_duplicate_keys_are_kept() {
        let long = "k".repeat(100_000);
        let duplicates = read(&format!("? {long}\n: a: 1\n{}", "  a: 1\n".repeat(4999))).duplicates;
        assert_eq!((duplicates.paths.len(), duplicates.others), (10, 4989));
        for path in duplicates.paths {
            assert_eq!(path.chars().count(), 300);
            assert!(path.starts_with('k') && path.ends_with('…'), "{path}");
        }
    }

    #[test]
    fn a_scalar_is_plain_by_the_characters_close_to_it() {
        assert_eq!(last_word("a: !!str \n").collect::<String>(), "rts!!");
        for far in ["x".repeat(100_000), " ".repeat(100_000)] {
            assert!(last_word(&far).count() <= LOOK_BACK);
        }
        assert_eq!(last_word(&format!("!{}", " ".repeat(LOOK_BACK))).next(), None);
    }

    #[test]
    fn the_values_of_a_document_are_counted_after_the_expansion_of_its_aliases() {
        // The count is three mappings, one list, five keys and three numbers.
        assert_eq!(read("a: &a {x: 1}\nb: [*a]\nc: 2\n").values, 12);
    }

    #[test]
    fn the_values_of_a_document_that_cannot_be_read_are_counted() {
        for (text, values) in [
            // The count is a list and two items.
            ("- a\n- b\n", 3),
            // The count is a mapping, a key, a list and two items.
            ("a: [1, .inf, 2]\n", 5),
            // The count is a mapping, a key, a list and two items before the error.
            ("a: [1, 2\n", 5),
        ] {
            let unread = unread(text);
            assert_eq!((unread.values, unread.is_too_costly), (values, false), "{text}");
        }
        let aliases = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(100), "*a,".repeat(500));
        let expanded = unread(&aliases);
        assert!(expanded.is_too_costly && expanded.values > 10_000, "{expanded:?}");
        assert!(unread(&"[".repeat(200)).is_too_costly);
    }

    #[test]
    fn tags_are_ignored_and_keys_become_texts() {
        assert_eq!(
            read("a: !Ref x\nb: !Sub [c]\n1: 2\non: 3").value,
            json!({"a": "x", "b": ["c"], "1": 2, "true": 3})
        );
        assert!(problem("a: {{ b }}").contains("a key is a list or a mapping; write a name"));
        assert!(problem("a: .inf").contains("infinity and NaN"));
        assert_eq!(problem("- a"), "it holds a list, but should be a YAML mapping");
        assert_eq!(problem(""), "it is empty, but should be a YAML mapping");
    }
}
