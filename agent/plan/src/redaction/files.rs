//! The values that are in files with secrets: JSON, YAML, TOML, INI (`name = value`) and CSV.

use std::net::IpAddr;

use kops_agent_spec::yaml;
use serde_json::Value;

use super::named::{is_no_secret, is_secret_name};

/// Names of values that tell the user and the server of a login, and not its secret, as in the configuration of a registry's credentials.
const NAMING: [&str; 5] = ["username", "email", "serveraddress", "kind", "apiversion"];
/// The same in the other formats, whose files say more than secrets.
const NAMING_MORE: [&str; 22] = [
    "name",
    "names",
    "namespace",
    "resources",
    "server",
    "cluster",
    "context",
    "current-context",
    "user",
    "group",
    "region",
    "zone",
    "location",
    "provider",
    "type",
    "command",
    "image",
    "tenant-name",
    "domain-name",
    "project-name",
    "version",
    "availability-zone",
];
/// What is shorter and has no name that says that it is secret is part of other words.
const SHORTEST: usize = 6;
/// The fewest fields of a row.
const FIELDS: usize = 3;

/// A value of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Named {
    name: String,
    /// The value.
    pub(super) text: String,
    /// Whether a name is all that tells its value from others: JSON has nothing but what it is made for.
    is_of_json: bool,
}

impl Named {
    /// Whether it is secret in a file that is.
    pub(super) fn is_secret_in_file(&self) -> bool {
        let name = self.name.to_lowercase();
        if self.is_of_json {
            return !NAMING.contains(&name.as_str());
        }
        let is_naming = NAMING.contains(&name.as_str()) || NAMING_MORE.contains(&name.as_str());
        self.is_named_secret() || !(is_naming || self.text.len() < SHORTEST || is_place(&self.text))
    }

    /// Whether its name says that it is secret.
    pub(super) fn is_named_secret(&self) -> bool {
        is_secret_name(&self.name) && !is_no_secret(&self.text)
    }
}

/// Whether a value is where something is, or whether it is on, or how much of it.
fn is_place(value: &str) -> bool {
    let is_url = value.contains("://") && !value.contains('@');
    let is_number = value.len() < 2 * SHORTEST && value.bytes().all(|c| c.is_ascii_digit());
    let host = value.split(['/', ':']).next().unwrap_or_default();
    is_url || is_number || value.starts_with('/') || host.parse::<IpAddr>().is_ok()
}

/// All values of a text, however many formats it may be of.
pub(super) fn values(text: &str) -> Vec<Named> {
    let mut values = Vec::new();
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        collect(&value, "", true, &mut values);
        return values;
    }
    // Any text is YAML of one string, which is no value that is told from others.
    if let Ok(value @ (Value::Object(_) | Value::Array(_))) = yaml::from_str::<Value>(text) {
        collect(&value, "", false, &mut values);
    }
    if let Ok(value) = toml::from_str::<Value>(text) {
        collect(&value, "", false, &mut values);
    }
    text.lines().for_each(|line| of_line(line, &mut values));
    values
}

fn collect(value: &Value, name: &str, is_of_json: bool, values: &mut Vec<Named>) {
    let mut add = |text: String| values.push(Named { name: name.to_owned(), text, is_of_json });
    match value {
        Value::String(text) => add(text.clone()),
        Value::Number(number) if !is_of_json || is_secret_name(name) => add(number.to_string()),
        Value::Array(all) => all.iter().for_each(|value| collect(value, name, is_of_json, values)),
        Value::Object(fields) => {
            // What the variable of a container is called is said by another field.
            let variable = fields.get("name").and_then(Value::as_str);
            for (name, value) in fields {
                let name = variable.filter(|_| name == "value").unwrap_or(name);
                collect(value, name, is_of_json, values);
            }
        }
        _ => {}
    }
}

/// What follows the name of a line, and the first field of a row.
fn of_line(line: &str, values: &mut Vec<Named>) {
    let line = line.trim();
    let mut add = |name: &str, text: &str| {
        let text = bare(text);
        if !text.is_empty() {
            values.push(Named { name: name.to_owned(), text: text.to_owned(), is_of_json: false });
        }
    };
    let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | '"' | '\'');
    let assigned = line.split_once(['=', ':']).filter(|(name, _)| name.chars().all(is_of_name));
    if let Some((name, value)) = assigned {
        let name = name.trim_matches(|c: char| !c.is_alphanumeric());
        add(name, value);
        // A comment after it.
        if let Some((value, _)) = value.split_once(" #").or_else(|| value.split_once(" ;")) {
            add(name, value);
        }
    }
    // Variables of a unit, and flags of a command.
    for word in line.split_whitespace().map(|word| word.trim_matches(['"', '\''])) {
        let word = word.strip_prefix("Environment=").map_or(word, |word| word.trim_matches(['"', '\'']));
        if let Some((name, value)) = word.split_once('=').filter(|(name, _)| is_secret_name(name)) {
            add(name, value.trim_matches(['"', '\'']));
        }
    }
    let mut fields = line.split(',');
    // kube-apiserver's tokens: token, user, uid, groups.
    if let Some(first) = fields.next().filter(|_| fields.count() + 1 >= FIELDS) {
        add("", first);
    }
}

/// Without space and quotes about it.
fn bare(value: &str) -> &str {
    let value = value.trim();
    let unquoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    unquoted('"').or_else(|| unquoted('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(text: &str) -> Vec<String> {
        let values = values(text).into_iter().filter(Named::is_secret_in_file);
        let mut values: Vec<String> = values.map(|value| value.text).collect();
        values.sort();
        values.dedup();
        values
    }

    #[test]
    fn values_are_found_in_each_format() {
        let encryption = "kind: EncryptionConfig\napiVersion: v1\nresources:\n- resources:\n  - secrets\n  providers:\n  \
                          - aescbc:\n      keys:\n      - name: key1\n        secret: c2VjcmV0LW9mLWV0Y2Q=\n  - identity: {}\n";
        assert_eq!(secrets(encryption), ["c2VjcmV0LW9mLWV0Y2Q="]);
        let cloud = "[Global]\nauth-url=\"https://keystone:5000/v3\"\npassword = \"p w\" # old\nid=abcd-1234\nregion=one-more\n";
        assert_eq!(secrets(cloud), ["\"p w\" # old", "abcd-1234", "p w"]);
        let rows = "tok-of-admin,admin,admin,system:masters\n\"quoted-tok\",a,b\n";
        assert_eq!(secrets(rows), ["quoted-tok", "tok-of-admin"]);
        assert_eq!(secrets("{\"a\":{\"b\":[\"x\"]},\"username\":\"robot\"}"), ["x"]);
    }

    #[test]
    fn of_a_file_with_more_than_secrets_only_those_with_names_are() {
        let kubeconfig = "clusters:\n- cluster:\n    server: https://api.internal\n  name: local\nusers:\n- name: kubelet\n  \
                          user:\n    token: of-the-kubelet\n    password: 12345678\n";
        let named = |text| -> Vec<String> {
            let values = values(text).into_iter().filter(Named::is_named_secret);
            let mut values: Vec<String> = values.map(|value| value.text).collect();
            values.sort();
            values.dedup();
            values
        };
        assert_eq!(named(kubeconfig), ["12345678", "of-the-kubelet"]);
        let pod = "spec:\n  containers:\n  - command: [x, --token=in-a-flag]\n    env:\n    - name: DB_PASSWORD\n      value: of-a-db\n    \
                   - name: HOME\n      value: /root-folder\n";
        assert!(
            named(pod).contains(&"of-a-db".to_owned()) && !named(pod).contains(&"/root-folder".to_owned())
        );
    }
}
