//! Texts of files and units as they may be shown, in plans, in journals and on terminals: without what is secret in them.
//!
//! Which users may read a file does not tell whether it has a secret: kOps writes tokens into files that all may read. Of a static
//! pod's manifest no value of a variable is shown; of every text none whose name says that it is secret, and no password of a URL.

use std::collections::BTreeMap;

use serde::Serializer;
use similar::TextDiff;

use crate::redaction::manifest::{Manifest, without_placeholders};
use crate::redaction::{MARK, Redactor};
use crate::resource::{Content, DesiredState, File, Resource, Unit};
use crate::static_pod::is_manifest;

/// The unified diff between two texts at one place; `None` where they differ in nothing that may be shown, or where it cannot
/// be told what may be.
pub(crate) fn diff(path: &str, before: &str, after: &str) -> Option<String> {
    let diff = match is_manifest(path) {
        false => unified(path, before, after),
        true => match (Manifest::read(before)?, Manifest::read(after)?) {
            (before, after) if before.hides() || after.hides() => {
                unified(path, &before.with_placeholders(), &after.with_placeholders())
            }
            _ => unified(path, before, after),
        },
    };
    let secrets = learning(learning(Redactor::default(), path, before), path, after);
    (before == after || !diff.is_empty()).then(|| secrets.without_known(without_placeholders(&diff)))
}

/// A text as it may be shown.
pub(crate) fn text(path: &str, text: &str) -> String {
    secrets(path, text).without_known(without_placeholders(&comparable(path, text)))
}

/// A text in which each line differs that another value decides, and that may be shown once [`secrets`] and
/// [`without_placeholders`] have been over it.
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
pub(crate) fn secrets(path: &str, text: &str) -> Redactor {
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

/// A state with the texts of its files and units as they may be shown.
#[must_use]
pub fn state(state: &DesiredState) -> DesiredState {
    let mut shown = DesiredState::default();
    for (id, resource) in state.iter() {
        shown.add(match resource {
            Resource::File(file @ File { content: Content::Text(content), .. }) => {
                Resource::from(File { content: Content::Text(text(&id.name, content)), ..file.clone() })
            }
            Resource::Unit(unit @ Unit { text: Some(content), .. }) => {
                Unit { text: Some(text(&id.name, content)), ..unit.clone() }.into()
            }
            other => other.clone(),
        });
    }
    shown
}

/// The unified diff between two texts at one place.
fn unified(path: &str, before: &str, after: &str) -> String {
    let old = if before.is_empty() { "/dev/null" } else { path };
    TextDiff::from_lines(before, after).unified_diff().context_radius(3).header(old, path).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
        assert!(
            shown.iter().all(|(_, resource)| !serde_json::to_string(resource).unwrap().contains("hunter2"))
        );
        assert_eq!(shown.len(), whole.len());
        let plain = Resource::from(File::text("/etc/plain", "a = b\n"));
        assert_eq!(shown.get(&plain.id()), Some(&plain));
    }
}
