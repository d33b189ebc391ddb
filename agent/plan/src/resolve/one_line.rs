//! Checks that values stay on one line. Most user settings become part of a line of a unit, an environment
//! file or an INI file. A line break in a value would start a new line of that file, and a NUL ends the text
//! for programs in C.

use serde::Serialize;
use serde_json::Value;

use super::Problems;

/// Fields of nodeupconfig.yaml whose value may have several lines, or is escaped when it is written. `*`
/// matches any key or index.
const OF_MANY_LINES: &[&[&str]] = &[
    &["CAs", "*"],
    &["APIServerConfig", "ServiceAccountPublicKeys"],
    &["APIServerConfig", "KubeAPIServer", "env", "*", "value"],
    &["FileAssets", "*", "content"],
    &["Hooks", "*", "*", "execContainer", "command", "*"],
    &["Hooks", "*", "*", "execContainer", "environment", "*"],
    &["Hooks", "*", "*", "manifest"],
    &["SysctlParameters", "*"],
    &["containerdConfig", "configOverride"],
    &["ConfigServer", "CACertificates"],
];

/// Adds a problem for every string and key of `document` that has a control character other than a tab.
pub(super) fn resolve(document: &impl Serialize, problems: &mut Problems) {
    if let Ok(value) = serde_json::to_value(document) {
        check(&value, &mut Vec::new(), problems);
    }
}

fn check(value: &Value, path: &mut Vec<String>, problems: &mut Problems) {
    match value {
        Value::String(text) if breaks_line(text) && !has_many_lines(path) => {
            problems.add(field(path), "has a line break or another control character in it; remove it");
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push(format!("[{index}]"));
                check(item, path, problems);
                path.pop();
            }
        }
        Value::Object(fields) => {
            for (key, item) in fields {
                if breaks_line(key) {
                    let key = key.escape_debug();
                    problems.add(
                        field(path),
                        format!(
                            "its key \"{key}\" has a line break or another control character in it; remove this character"
                        ),
                    );
                }
                path.push(key.clone());
                check(item, path, problems);
                path.pop();
            }
        }
        _ => {}
    }
}

fn breaks_line(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && c != '\t')
}

fn has_many_lines(path: &[String]) -> bool {
    OF_MANY_LINES.iter().any(|pattern| {
        pattern.len() == path.len()
            && pattern.iter().zip(path).all(|(wanted, key)| *wanted == "*" || wanted == key)
    })
}

fn field(path: &[String]) -> String {
    let mut field = String::new();
    for key in path {
        if !field.is_empty() && !key.starts_with('[') {
            field.push('.');
        }
        field.extend(key.escape_debug());
    }
    field
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems_of(document: &Value) -> String {
        let mut problems = Problems::default();
        resolve(document, &mut problems);
        problems.to_string()
    }

    #[test]
    fn line_breaks_are_rejected_in_every_field() {
        let document = json!({
            "KubeletConfig": {"nodeLabels": {"a\nb": "c"}, "v": "d\re"},
            "packages": ["fine", "not\0fine"],
        });
        assert_eq!(
            problems_of(&document),
            "KubeletConfig.nodeLabels: its key \"a\\nb\" has a line break or another control character in it; remove this character\n\
             KubeletConfig.v: has a line break or another control character in it; remove it\n\
             packages[1]: has a line break or another control character in it; remove it"
        );
    }

    #[test]
    fn fields_with_several_lines_may_have_line_breaks() {
        let document = json!({
            "CAs": {"kubernetes-ca": "-----BEGIN\n"},
            "FileAssets": [{"content": "a\nb\n"}],
            "Hooks": [null, [{"manifest": "Type=oneshot\n", "execContainer": {"command": ["sh", "-c", "a\nb"]}}]],
            "SysctlParameters": ["a = 1\t2\n"],
            "APIServerConfig": {"KubeAPIServer": {"env": [{"name": "A", "value": "b\nc"}]}},
        });
        assert_eq!(problems_of(&document), "");
        assert_eq!(
            problems_of(&json!({"FileAssets": [{"name": "a\nb"}]})),
            "FileAssets[0].name: has a line break or another control character in it; remove it"
        );
    }
}
