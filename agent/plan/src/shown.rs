//! Prepares texts of files and units for display in plans, journals and terminals.
//!
//! Whether a text is shown depends on the origin of the text, not on its value. [`FreeText`] marks the part of a text that is free text
//! of the specification, and this module hides that part. All other parts come from typed fields and from constants of this program.
//! These parts are shown, whatever the file's mode is.

mod node;

use std::collections::{BTreeMap, BTreeSet};

use serde::Serializer;
use serde_json::Value;
use similar::DiffableStr as _;

use crate::resource::{Content, DesiredState, File, FreeText, Resource, Unit};
use kops_agent_spec::redaction::manifest::{Manifest, placeholder, without_placeholders};
use kops_agent_spec::redaction::{MARK, without_credentials};
use kops_agent_spec::text_diff::{shown_lines, unified};

pub use node::{document, node};

/// A text, and the part of it to hide.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) text: &'a str,
    pub(crate) free_text: Option<&'a FreeText>,
}

/// The unified diff of two texts at this path. `None` if both texts are hidden completely.
pub(crate) fn diff(path: &str, before: Text<'_>, after: Text<'_>) -> Option<String> {
    let names = [if before.text.is_empty() { "/dev/null" } else { path }, path];
    let [old, new] = comparable([before, after])?;
    let diff = unified(names, [&old, &new]);
    (before.text == after.text || !diff.is_empty()).then_some(diff)
}

/// Replaces each hidden part by a placeholder. Placeholders differ if the hidden parts differ. The result must not be displayed directly.
/// Returns `None` if the texts are hidden completely.
fn comparable<const N: usize>(texts: [Text<'_>; N]) -> Option<[String; N]> {
    let mut comparable: [String; N] = texts.map(|text| text.text.to_owned());
    if texts.iter().any(|text| text.free_text == Some(&FreeText::Variables)) {
        let mut manifests = Vec::new();
        for text in texts {
            manifests.push(Manifest::read(text.text)?);
        }
        // Both manifests are rewritten, or neither is. Otherwise a difference in YAML style would look like a change.
        if manifests.iter().any(|manifest| !manifest.values().is_empty()) {
            for (text, manifest) in comparable.iter_mut().zip(manifests) {
                *text = manifest.with_placeholders();
            }
        }
        return Some(comparable);
    }
    for (comparable, Text { text, free_text }) in comparable.iter_mut().zip(texts) {
        match free_text {
            Some(FreeText::Whole) => return None,
            Some(FreeText::Lines(hidden)) => *comparable = without_lines(text, hidden),
            Some(FreeText::Variables) | None => {}
        }
    }
    Some(comparable)
}

fn without_lines(text: &str, hidden: &BTreeSet<usize>) -> String {
    let lines = text.tokenize_lines().into_iter().enumerate();
    let shown = lines.map(|(number, line)| match hidden.contains(&number) {
        true => placeholder(line.trim_end()) + if line.ends_with_newline() { "\n" } else { "" },
        false => line.to_owned(),
    });
    shown.collect()
}

/// A text for comparison: each hidden part is a placeholder that depends on its value. `None` if the text is hidden completely.
pub(crate) fn comparable_text(text: &str, free_text: Option<&FreeText>) -> Option<String> {
    comparable([Text { text, free_text }]).map(|[text]| text)
}

/// Converts a line of [`comparable_text`] for display: replaces placeholders and the credentials of URLs by marks.
pub(crate) fn line(line: &str) -> String {
    without_credentials(&without_placeholders(line))
}

/// Converts a text for display: marks replace free text, private keys and the credentials of URLs.
fn text(text: &str, free_text: Option<&FreeText>) -> String {
    match comparable_text(text, free_text) {
        Some(text) => shown_lines(&text).concat(),
        None => MARK.to_owned(),
    }
}

/// Serializes the manifests of a state store without the values of environment variables.
pub(crate) fn manifests<S: Serializer>(
    manifests: &BTreeMap<String, String>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(manifests.iter().map(|(url, manifest)| (url, text(manifest, Some(&FreeText::Variables)))))
}

/// All resources as they may be displayed: without free text and credentials.
#[must_use]
pub fn state(state: &DesiredState) -> Vec<Value> {
    state.iter().map(|(_, shown)| resource(shown)).collect()
}

/// A resource as it may be displayed: without free text and credentials.
pub(crate) fn resource(resource: &Resource) -> Value {
    let shown = match resource {
        Resource::File(file) => File { content: content(file), ..file.clone() }.into(),
        Resource::Unit(unit @ Unit { text: Some(content), .. }) => {
            Unit { text: Some(text(content, unit.free_text.as_ref())), ..unit.clone() }.into()
        }
        other => other.clone(),
    };
    // Serialization cannot fail, because all resources are of our own types.
    without_logins(serde_json::to_value(&shown).unwrap_or_default())
}

fn content(file: &File) -> Content {
    match &file.content {
        Content::Text(content) => Content::Text(text(content, file.free_text.as_ref())),
        Content::Base64(_) if file.free_text.is_some() => Content::Base64(MARK.to_owned()),
        other => other.clone(),
    }
}

/// Removes credentials from all URLs in a value.
fn without_logins(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_credentials(&text)),
        Value::Array(items) => items.into_iter().map(without_logins).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, without_logins(value))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::resource::Mode;

    fn typed(text: &str) -> Text<'_> {
        Text { text, free_text: None }
    }

    fn pod(token: &str, image: &str) -> String {
        format!(
            "kind: Pod\nspec:\n  containers:\n  - image: {image}\n    args: [--v=4, --kubeconfig=/var/lib/a]\n    env:\n    \
             - {{name: HCLOUD_TOKEN, value: {token}}}\n"
        )
    }

    #[test]
    fn the_diff_of_a_manifest_hides_values_of_variables() {
        let variables = |text| Text { text, free_text: Some(&FreeText::Variables) };
        let (before, after) = (pod("hunter2", "a:1"), pod("correcthorse", "a:2"));
        let shown = diff("/m", variables(&before), variables(&after)).unwrap();
        assert!(!shown.contains("hunter2") && !shown.contains("correcthorse"), "{shown}");
        for line in
            ["-      value: '[***]'\n", "+      value: '[***]'\n", "-    image: a:1\n", "+    image: a:2\n"]
        {
            assert!(shown.contains(line), "{line:?} is not in\n{shown}");
        }
        let new = diff("/m", variables(""), variables(&after)).unwrap();
        assert!(new.contains("--kubeconfig=/var/lib/a") && !new.contains("correcthorse"), "{new}");
        assert_eq!(diff("/m", variables("hunter2"), variables(&after)), None, "that is no manifest");
        let plain = diff("/m", variables("# one\nkind: Pod\n"), variables("# two\nkind: Pod\n")).unwrap();
        assert!(plain.ends_with("-# one\n+# two\n kind: Pod\n"), "{plain}");
    }

    #[test]
    fn only_lines_of_free_text_are_hidden() {
        let (old, new) = (FreeText::Lines([1].into()), FreeText::Lines([1, 2].into()));
        let before = Text { text: "a = 1\nauth = \"hunter2\"\nb = 1\n", free_text: Some(&old) };
        let after =
            Text { text: "a = 1\nauth = \"correct\"\nmore = \"horse\"\nb = 2\n", free_text: Some(&new) };
        let shown = diff("/c", before, after).unwrap();
        assert!(shown.ends_with(" a = 1\n-[***]\n-b = 1\n+[***]\n+[***]\n+b = 2\n"), "{shown}");
        assert!(diff("/c", Text { free_text: Some(&FreeText::Whole), ..before }, typed("x")).is_none());
        assert!(diff("/c", typed("x"), Text { free_text: Some(&FreeText::Whole), ..before }).is_none());
    }

    #[test]
    fn typed_fields_are_shown_whatever_their_name_and_mode() {
        let text = "DAEMON_ARGS=\"--authorization-rbac-super-user=admin --token-ttl=1h --kubeconfig=/var/lib/a\"\npassword = \"x\"\n";
        assert!(
            diff("/c", typed(""), typed(text)).unwrap().contains("--authorization-rbac-super-user=admin")
        );
        let mut whole = DesiredState::default();
        whole.add(File::text("/etc/typed", text).mode(Mode(0o400)));
        let shown = serde_json::to_string(&state(&whole)).unwrap();
        assert!(shown.contains("--token-ttl=1h") && !shown.contains(MARK), "{shown}");
    }

    #[test]
    fn free_text_and_logins_of_resources_are_hidden() {
        let mut whole = DesiredState::default();
        whole.add(File { free_text: Some(FreeText::Whole), ..File::text("/etc/a", "hunter2\n") });
        whole.add(File {
            free_text: Some(FreeText::Whole),
            ..File::new("/etc/b", Content::Base64("aHVudGVyMg==".into()))
        });
        whole.add(File { free_text: Some(FreeText::Variables), ..File::text("/m", pod("hunter2", "a:1")) });
        whole.add(Unit {
            free_text: Some(FreeText::Whole),
            ..Unit::new("a.service", "[Service]\nEnvironment=A=hunter2\n")
        });
        let asset = crate::resource::AssetContent {
            url: "https://robot:hunter2@mirror.example.com/a?sig=hunter2".into(),
            mirrors: vec!["https://robot:hunter2@b.example.com/a".into()],
            sha256: None,
            member: None,
        };
        whole.add(File::new("/opt/a", Content::Asset(asset)));
        let shown = serde_json::to_string(&state(&whole)).unwrap();
        assert!(!shown.contains("hunter2") && !shown.contains("aHVudGVyMg=="), "{shown}");
        for part in ["mirror.example.com/a", "/etc/a", "HCLOUD_TOKEN", "a.service"] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }
}
