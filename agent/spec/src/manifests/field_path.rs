//! Paths of fields, such as `spec.hooks[0].name`. A key may contain dots: `spec.nodeLabels.example.com/a`.

use serde_json::Value;

/// What a path begins with: an index, a key, or nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// An index, and the rest of the path.
    Index(usize, &'a str),
    /// The whole path, which begins with a key. The key is not split from the rest, because a key may contain dots.
    Key(&'a str),
    End,
}

/// If a path begins with an index, returns the index and the rest of the path. If it begins with a key, returns the whole path, because
/// a key may contain dots.
pub(super) fn step(path: &str) -> Step<'_> {
    let path = path.strip_prefix('.').unwrap_or(path);
    if path.is_empty() {
        return Step::End;
    }
    let index = path.strip_prefix('[').and_then(|path| path.split_once(']'));
    match index.and_then(|(index, rest)| Some((index.parse().ok()?, rest))) {
        Some((index, rest)) => Step::Index(index, rest),
        None => Step::Key(path),
    }
}

/// Removes `key` from the beginning of a path. `None` if the path begins with a different key. Ignores case, because the API versions of
/// kOps differ in case.
pub(super) fn after_key<'a>(path: &'a str, key: &str) -> Option<&'a str> {
    let (begin, rest) = path.split_at_checked(key.len())?;
    let is_key = !key.is_empty() && begin.eq_ignore_ascii_case(key);
    (is_key && (rest.is_empty() || rest.starts_with(['.', '[']))).then_some(rest)
}

/// The value at a path. `None` if it is missing or null.
pub fn value_at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    match (step(path), value) {
        (_, Value::Null) => None,
        (Step::End, _) => Some(value),
        (Step::Index(index, rest), Value::Array(items)) => value_at(items.get(index)?, rest),
        (Step::Key(path), Value::Object(fields)) => {
            fields.iter().find_map(|(key, value)| value_at(value, after_key(path, key)?))
        }
        _ => None,
    }
}

/// Sets the value at a path to null, which kOps reads as a missing value. Returns whether there was a value.
pub fn clear_at(value: &mut Value, path: &str) -> bool {
    match (step(path), value) {
        (_, Value::Null) => false,
        (Step::End, value) => {
            *value = Value::Null;
            true
        }
        (Step::Index(index, rest), Value::Array(items)) => {
            items.get_mut(index).is_some_and(|item| clear_at(item, rest))
        }
        (Step::Key(path), Value::Object(fields)) => fields
            .iter_mut()
            .any(|(key, value)| after_key(path, key).is_some_and(|rest| clear_at(value, rest))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_is_found_by_its_path() {
        let document = json!({"spec": {"hooks": [{"name": "a"}, {"roles": ["Node"]}], "nodeLabels": {"example.com/a": "b"},
                                       "kubelet": {"clientCaFile": "/ca", "maxPods": null}}});
        for (path, found) in [
            ("spec.hooks[1].roles[0]", Some(json!("Node"))),
            ("spec.nodeLabels.example.com/a", Some(json!("b"))),
            ("spec.kubelet.clientCAFile", Some(json!("/ca"))),
            ("spec.kubelet.maxPods", None),
            ("spec.hooks[2]", None),
            ("spec.hooks.name", None),
            ("spec.kube", None),
        ] {
            assert_eq!(value_at(&document, path), found.as_ref(), "{path}");
            let mut cleared = document.clone();
            assert_eq!(clear_at(&mut cleared, path), found.is_some(), "{path}");
            assert_eq!(cleared != document, found.is_some(), "{path}");
            assert_eq!(value_at(&cleared, path), None, "{path}");
        }
    }
}
