//! Free text: the fields of a specification whose content kOps passes on without interpreting it.
//!
//! Free text may contain a password or a token, so no output shows it. Every other field is shown, whatever its name and its
//! value are. The rule depends on fields only; it does not look at values.

use serde_json::Value;

/// The fields that hold free text. An entry is the end of a field's path, in lower case. Some fields have several entries, because a
/// Cluster, an InstanceGroup, a `nodeupconfig.yaml`, a pod's manifest and a resolved node spell them differently. Everything below such a
/// field is free text, too.
const FIELDS: [&[&str]; 19] = [
    &["fileassets", "content"],
    &["hooks", "manifest"],
    &["hooks", "execcontainer", "command"],
    &["hooks", "execcontainer", "environment"],
    // A resolved node has the free text of hooks in these fields.
    &["hooks", "action", "rawunit"],
    &["hooks", "action", "service", "section"],
    &["hooks", "action", "container", "command"],
    &["hooks", "action", "container", "environment"],
    &["env", "value"],
    &["configadditions"],
    &["configoverride"],
    &["additionaluserdata", "content"],
    &["additionalpolicies"],
    &["inlinepolicy"],
    &["externalcorefile"],
    &["nodelocaldns", "additionalconfig"],
    &["gossipconfig", "secret"],
    &["secondary", "secret"],
    &["dnscontrollergossipconfig", "secret"],
];

/// Whether a field is free text, or is below a field that is free text. `path` has the names from the document down to the field, without
/// indices of lists.
pub fn is_free_text(path: &[String]) -> bool {
    let is_field = |end: usize, field: &[&str]| {
        let names = end.checked_sub(field.len()).and_then(|begin| path.get(begin..end));
        names.is_some_and(|names| {
            names.iter().zip(field).all(|(name, field)| name.eq_ignore_ascii_case(field))
        })
    };
    (1..=path.len()).any(|end| FIELDS.iter().any(|field| is_field(end, field)))
}

/// Calls `act` for each string, number and boolean in the free text of a document. Skips the names of fields, because outputs may show
/// names, such as the names of environment variables.
pub fn for_each(document: &mut Value, act: &mut impl FnMut(&mut Value)) {
    below(document, &mut Vec::new(), false, act);
}

fn below(value: &mut Value, path: &mut Vec<String>, is_free: bool, act: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                path.push(name.clone());
                let is_free = is_free || is_free_text(path);
                below(value, path, is_free, act);
                path.pop();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| below(item, path, is_free, act)),
        Value::Null => {}
        scalar => {
            if is_free {
                act(scalar);
            }
        }
    }
}

/// The strings and numbers in the free text of a document.
pub fn values(document: &Value) -> Vec<String> {
    let mut values = Vec::new();
    for_each(&mut document.clone(), &mut |value| match value {
        Value::String(text) => values.push(text.clone()),
        Value::Number(number) => values.push(number.to_string()),
        _ => {}
    });
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn free_text_is_recognized_by_its_field_in_each_spelling() {
        let document = json!({
            "spec": {
                "fileAssets": [{"name": "n", "path": "/p", "content": "free-a", "mode": "0400"}],
                "hooks": [{
                    "name": "h", "manifest": "free-b", "requires": ["typed.service"],
                    "execContainer": {"image": "typed", "command": ["free-c"], "environment": {"TOKEN": "free-d", "N": 5}},
                }],
                "kubeAPIServer": {"env": [{"name": "TOKEN", "value": "free-e"}], "tokenAuthFile": "/token"},
                "containerd": {"configAdditions": {"a.b": "free-f"}, "configOverride": "free-g", "root": "/r"},
                "gossipConfig": {"secret": "free-h", "secondary": {"secret": "free-i", "listen": "l"}},
                "addons": [{"manifest": "s3://typed"}],
            },
            "Hooks": [[{"manifest": "free-j"}], []],
            "FileAssets": [{"content": "free-k"}],
        });
        let values = values(&document);
        assert_eq!(values.len(), 12, "{values:?}");
        assert!(values.iter().all(|value| value.starts_with("free-") || value == "5"), "{values:?}");
    }
}
