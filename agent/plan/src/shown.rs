//! Texts of files and units as they may be shown, in plans, in journals and on terminals: without what is secret in them.
//!
//! Which users may read a file does not tell whether it has a secret: kOps writes tokens into files that all may read. Of a static
//! pod's manifest no value of a variable is shown; of every text none whose name says that it is secret, and no password of a URL.

mod node;

use std::collections::BTreeMap;

use serde::Serializer;
use serde_json::Value;
use similar::{ChangeTag, DiffableStr as _, TextDiff};

use crate::base64_text;
use crate::redaction::manifest::{Manifest, without_placeholders};
use crate::redaction::{MARK, Redactor};
use crate::resource::{Content, DesiredState, File, Mode, Resource, Unit};
use crate::static_pod::{is_manifest, is_manifest_of_kops};

pub use node::node;

/// The unified diff between two texts at one place; `None` where they differ in nothing that may be shown, or where it cannot
/// be told what may be.
pub(crate) fn diff(path: &str, before: &str, after: &str) -> Option<String> {
    let secrets = learning(learning(Redactor::default(), path, before), path, after);
    let names = [if before.is_empty() { "/dev/null" } else { path }, path];
    let diff = match is_manifest(path) {
        false => unified(names, [before, after], &secrets),
        true => match (Manifest::read(before)?, Manifest::read(after)?) {
            (before, after) if before.hides() || after.hides() => {
                unified(names, [&before.with_placeholders(), &after.with_placeholders()], &secrets)
            }
            _ => unified(names, [before, after], &secrets),
        },
    };
    (before == after || !diff.is_empty()).then_some(diff)
}

/// The unified diff between the texts of these names, in which each line is shown as it is in the whole of its text: what says
/// that it is secret may stand lines before it.
pub(crate) fn unified(names: [&str; 2], texts: [&str; 2], secrets: &Redactor) -> String {
    let [before, after] = texts;
    let (old, new) = (shown_lines(before, secrets), shown_lines(after, secrets));
    let line = |lines: &[String], at: Option<usize>| at.and_then(|at| lines.get(at)).cloned();
    let diff = TextDiff::from_lines(before, after);
    let mut shown = String::new();
    for hunk in diff.unified_diff().context_radius(3).iter_hunks() {
        if shown.is_empty() {
            shown = format!("--- {}\n+++ {}\n", names[0], names[1]);
        }
        shown.push_str(&format!("{}\n", hunk.header()));
        for change in hunk.iter_changes() {
            let was = line(&old, change.old_index());
            let text = match change.tag() {
                ChangeTag::Delete => was,
                ChangeTag::Insert => line(&new, change.new_index()),
                // What is secret in one of them is.
                ChangeTag::Equal => {
                    was.filter(|was| was.contains(MARK)).or_else(|| line(&new, change.new_index()))
                }
            };
            let text = text.unwrap_or_else(|| format!("{MARK}\n"));
            shown.push_str(&format!("{}{text}", change.tag()));
            if !text.ends_with_newline() {
                shown.push_str("\n\\ No newline at end of file\n");
            }
        }
    }
    shown
}

/// The lines of a text as they may be shown, as many as it has.
fn shown_lines(text: &str, secrets: &Redactor) -> Vec<String> {
    let shown = secrets.configuration(&without_placeholders(text));
    let shown: Vec<String> = shown.tokenize_lines().into_iter().map(str::to_owned).collect();
    let lines = text.tokenize_lines();
    // Where it cannot be told which line is which, none is shown.
    if shown.len() == lines.len() { shown } else { lines.iter().map(|_| format!("{MARK}\n")).collect() }
}

/// A text as it may be shown.
pub(crate) fn text(path: &str, text: &str) -> String {
    secrets(path, text).configuration(&without_placeholders(&comparable(path, text)))
}

/// The lines of [`comparable`], each with what may be shown of it.
pub(crate) fn lines(path: &str, text: &str) -> Vec<(String, String)> {
    let comparable = comparable(path, text);
    let shown = shown_lines(&comparable, &secrets(path, text));
    let without_end = |line: &str| line.trim_end_matches(['\n', '\r']).to_owned();
    comparable
        .tokenize_lines()
        .into_iter()
        .map(without_end)
        .zip(shown.iter().map(|line| without_end(line)))
        .collect()
}

/// A text in which each line differs that another value decides. It is not to be shown.
pub(crate) fn comparable(path: &str, text: &str) -> String {
    if is_manifest(path) { comparable_manifest(text) } else { text.to_owned() }
}

fn comparable_manifest(text: &str) -> String {
    match Manifest::read(text) {
        None => MARK.to_owned(),
        Some(manifest) if manifest.hides() => manifest.with_placeholders(),
        Some(_) => text.to_owned(),
    }
}

/// What is secret in the text of a file or a unit, wherever it stands there.
fn secrets(path: &str, text: &str) -> Redactor {
    learning(Redactor::default(), path, text)
}

/// The manifests of a state store, as they may be shown.
pub(crate) fn manifests<S: Serializer>(
    manifests: &BTreeMap<String, String>,
    to: S,
) -> Result<S::Ok, S::Error> {
    to.collect_map(
        manifests.iter().map(|(url, text)| (url, without_placeholders(&comparable_manifest(text)))),
    )
}

fn learning(redactor: Redactor, path: &str, text: &str) -> Redactor {
    let redactor = redactor.hiding_named(text);
    match is_manifest(path).then(|| Manifest::read(text)).flatten() {
        Some(manifest) => redactor.hiding_manifest(&manifest),
        None => redactor,
    }
}

/// Whether nothing is shown of a file's content: what is not for all to read may be a secret, a user's file more than others.
/// kOps' own pods are private for the values of variables, without which they are shown.
pub(crate) fn is_hidden(file: &File) -> bool {
    is_private(file.mode) && !is_manifest_of_kops(&file.path)
}

/// Whether it is not for all to read.
pub fn is_private(mode: Mode) -> bool {
    mode.0 & 0o004 == 0
}

/// The resources of a state, with the texts of their files and units, and all else, as they may be shown.
#[must_use]
pub fn state(state: &DesiredState) -> Vec<Value> {
    state.iter().map(|(_, shown)| resource(shown)).collect()
}

/// A resource as it may be shown.
pub(crate) fn resource(resource: &Resource) -> Value {
    let shown = match resource {
        Resource::File(file) => File { content: content(file), ..file.clone() }.into(),
        Resource::Unit(unit @ Unit { text: Some(content), .. }) => {
            Unit { text: Some(text(&unit.name, content)), ..unit.clone() }.into()
        }
        other => other.clone(),
    };
    // Every resource is of our own type, which always has a JSON form. Names in it are of references, and not of secrets.
    strings(serde_json::to_value(&shown).unwrap_or_default(), &|text| Redactor::default().configuration(text))
}

fn content(file: &File) -> Content {
    match &file.content {
        Content::Text(_) if is_hidden(file) => Content::Text(MARK.to_owned()),
        Content::Text(content) => Content::Text(text(&file.path, content)),
        Content::Base64(content) if is_hidden(file) || has_secrets(content) => {
            Content::Base64(if content.is_empty() { String::new() } else { MARK.to_owned() })
        }
        other => other.clone(),
    }
}

/// Whether bytes in base64 are a text that has more than may be shown.
fn has_secrets(base64: &str) -> bool {
    let decoded = base64_text::decoded(base64);
    decoded.is_some_and(|decoded| text("", &decoded) != decoded)
}

/// A value with other texts in the place of its own.
fn strings(value: Value, shown: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(shown(&text)),
        Value::Array(items) => items.into_iter().map(|item| strings(item, shown)).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, strings(value, shown))).collect()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    const MANIFEST: &str = "/etc/kubernetes/manifests/kops-channels.manifest";

    fn pod(token: &str, image: &str) -> String {
        format!(
            "kind: Pod # {token}\nspec:\n  containers:\n  - image: {image}\n    args: [--v=4, 'at {token}']\n    env:\n    \
             - {{name: HCLOUD_TOKEN, value: {token}}}\n    - name: HOME\n      value: /tmp\n"
        )
    }

    #[test]
    fn the_diff_of_a_manifest_tells_that_a_value_changes_and_not_to_what() {
        let diff = diff(MANIFEST, &pod("hunter2", "a:1"), &pod("correcthorse", "a:2")).unwrap();
        assert!(!diff.contains("hunter2") && !diff.contains("correcthorse"), "{diff}");
        for line in [
            "-    - at [***]\n",
            "+    - at [***]\n",
            "     - name: HCLOUD_TOKEN\n",
            "-      value: '[***]'\n",
        ] {
            assert!(diff.contains(line), "{line:?} is not in\n{diff}");
        }
        assert!(diff.contains("-    image: a:1\n") && diff.contains("+    image: a:2\n"), "{diff}");
        let new = super::diff(MANIFEST, "", &pod("hunter2", "a:1")).unwrap();
        assert!(new.contains("+      value: '[***]'") && !new.contains("hunter2"), "{new}");
        let gone = super::diff(MANIFEST, &pod("hunter2", "a:1"), "").unwrap();
        assert!(!gone.contains("hunter2"), "{gone}");
    }

    #[test]
    fn a_manifest_that_cannot_be_read_has_no_diff() {
        for broken in ["spec: [\n# hunter2", "hunter2"] {
            assert_eq!(diff(MANIFEST, broken, &pod("a", "b")), None);
            assert_eq!(diff(MANIFEST, &pod("a", "b"), broken), None);
            assert_eq!(text(MANIFEST, broken), MARK);
        }
        // What only a comment has.
        assert_eq!(
            diff(MANIFEST, &pod("a", "b"), &pod("a", "b").replace("kind: Pod #", "kind: Pod # x")),
            None
        );
    }

    #[test]
    fn a_manifest_without_values_is_shown_as_it_is() {
        let (before, after) = ("# one\nkind: Pod\n", "# two\nkind: Pod\n");
        assert!(diff(MANIFEST, before, after).unwrap().ends_with("-# one\n+# two\n kind: Pod\n"));
        assert_eq!(text(MANIFEST, before), before);
        assert_eq!(diff("/etc/a.log", "", "").unwrap(), "");
    }

    #[test]
    fn other_texts_are_shown_without_the_values_of_secret_names() {
        let toml =
            "[plugins.registry.configs.auth]\nusername = \"robot\"\npassword = \"hunter2\"\nmode = \"x\"\n";
        let unit = "[Service]\nEnvironment=\"DB_PASSWORD=hunter2\" \"A=b\"\nExecStart=/a --token=correcthorse --v=4\n";
        let environment = "https_proxy=http://robot:hunter2@proxy:3128\nS3_SECRET_ACCESS_KEY=correcthorse\n";
        for (path, content, stays) in [
            ("/etc/containerd/config.toml", toml, "robot"),
            ("a.service", unit, "A=b"),
            ("/etc/environment", environment, "@proxy:3128"),
        ] {
            let diff = diff(path, "x\n", content).unwrap();
            for shown in [&diff, &text(path, content)] {
                assert!(!shown.contains("hunter2") && !shown.contains("correcthorse"), "{shown}");
                assert!(shown.contains(stays) && shown.contains(MARK), "{shown}");
            }
        }
        let changed = diff("/etc/a", "password = \"hunter2\"\n", "password = \"hunter3\"\n").unwrap();
        assert!(changed.ends_with("-password = \"[***]\"\n+password = \"[***]\"\n"), "{changed}");
    }

    #[test]
    fn a_state_is_shown_without_secrets_and_otherwise_as_it_is() {
        let mut whole = DesiredState::default();
        whole.add(File::text(MANIFEST, pod("hunter2", "a:1")));
        whole.add(Unit::new("a.service", "[Service]\nEnvironment=A_TOKEN=hunter2\n"));
        whole.add(File::text("/etc/plain", "a = b\n"));
        let shown = state(&whole);
        assert!(shown.iter().all(|resource| !resource.to_string().contains("hunter2")));
        assert_eq!(shown.len(), whole.len());
        let plain = Resource::from(File::text("/etc/plain", "a = b\n"));
        assert!(shown.contains(&serde_json::to_value(&plain).unwrap()), "{shown:#?}");
    }

    /// What all may read of a file that has secrets among what is none.
    const MIXED: [(&str, &str); 7] = [
        (
            "tls_key: |\n",
            "  -----BEGIN RSA PRIVATE KEY-----\n  MIIEpAIBAAKCAQEA0vx7agoebGcQSuuP\n  hunter2\n  -----END RSA PRIVATE KEY-----\n",
        ),
        ("password: |\n", "  hunter2\n  ab\n  MIIEpAIBAAKCAQEA0vx7agoebGcQSuuPiLJXZptN9nndrQmb\n"),
        ("ExecStart=/usr/bin/mysql ", "-phunter2 -h db\n"),
        ("hook = https://hooks.slack.com/services/", "T0/B0/hunter2\n"),
        ("mirror = https://", "robot:hunter2@mirror.example.com/a\n"),
        ("a: Bearer ", "hunter2hunter2\n"),
        ("\"auth\": \"", "cm9ib3Q6aHVudGVyMmh1bnRlcjI=\"\n"),
    ];

    #[test]
    fn each_line_is_shown_as_it_is_in_the_whole_of_its_text() {
        let around = |n: usize, text: &str| format!("{}{text}last: line\n", "line: x\n".repeat(n));
        for (name, secret) in MIXED {
            let content = format!("{name}{secret}");
            // Only what is around it changes, and only the end of it, of which the diff has no name.
            let end = content.trim_end().rsplit_once('\n').map_or("", |(begin, _)| begin);
            let longer =
                format!("{end}\n  changed\n{}", &content.trim_end()[end.len()..].trim_start_matches('\n'));
            let diffs = [
                diff("/etc/a", "", &around(9, &content)),
                diff("/etc/a", &around(9, &content), ""),
                diff("/etc/a", &around(9, &content), &around(9, "")),
                diff("/etc/a", &around(9, &content), &around(9, &longer)),
                diff("/etc/a", &around(1, &content), &around(2, &content)),
                Some(text("/etc/a", &around(9, &content))),
                Some(
                    lines("/etc/a", &around(9, &content))
                        .into_iter()
                        .map(|(_, shown)| shown + "\n")
                        .collect(),
                ),
            ];
            for shown in diffs.into_iter().flatten() {
                for part in secret.split_whitespace().filter(|part| !matches!(*part, "-h" | "db")) {
                    let part = part.split(['@', '"']).next().unwrap();
                    let is_frame = part.starts_with("-----") || ["RSA", "PRIVATE"].contains(&part);
                    assert!(is_frame || !shown.contains(part), "{part:?} is in\n{shown}");
                }
            }
            let shown = text("/etc/a", &around(1, &content));
            assert_eq!(shown.lines().count(), around(1, &content).lines().count(), "{shown}");
        }
        let key_files = "--tls-private-key-file=/a.key --kubelet-client-key=/b.key --anonymous-auth=false\n";
        assert_eq!(text("/etc/a", key_files), key_files);
        assert_eq!(
            diff("/etc/a", "x", key_files.trim_end()).unwrap(),
            format!(
                "--- /etc/a\n+++ /etc/a\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+{key_files}\\ No newline at end of file\n"
            )
        );
    }

    #[test]
    fn of_a_file_that_not_all_may_read_nothing_is_shown() {
        let mut whole = DesiredState::default();
        whole.add(File::text("/etc/private", "hunter2\n").mode(Mode(0o440)));
        whole.add(File::new("/etc/bytes", Content::Base64(STANDARD.encode("hunter2"))).mode(Mode(0o400)));
        whole.add(File::new("/etc/public", Content::Base64(STANDARD.encode("password: hunter2"))));
        whole.add(File::new("/etc/plain", Content::Base64(STANDARD.encode("a: b"))));
        let asset = crate::resource::AssetContent {
            url: "https://robot:hunter2@mirror.example.com/a?sig=hunter2".into(),
            mirrors: vec!["https://robot:hunter2@b.example.com/a".into()],
            sha256: None,
            member: None,
        };
        whole.add(File::new("/opt/a", Content::Asset(asset)));
        let shown = serde_json::to_string(&state(&whole)).unwrap();
        for secret in ["hunter2", &STANDARD.encode("hunter2"), &STANDARD.encode("password: hunter2")] {
            assert!(!shown.contains(secret), "{secret} is in {shown}");
        }
        for part in ["mirror.example.com/a", "0440", &STANDARD.encode("a: b")] {
            assert!(shown.contains(part), "{part} is not in {shown}");
        }
    }
}
