//! The secrets of a machine, as known from all sources.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use kops_agent_host::Reader;
use kops_agent_plan::doctor::Unseen;
use kops_agent_plan::resource::{Content, DesiredState, File, FreeText, Resource, SecretPiece, Unit};
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_spec::redaction::manifest::Manifest;
use kops_agent_spec::redaction::{Redactor, is_login};
use kops_agent_spec::yaml;
use serde_json::Value;

use super::part::Part;
use crate::doctor::deadline::{CHECK_TIMEOUT, run_in_thread};
use crate::environment;

/// The parts that one source adds to a support bundle, and the facts about secrets that this source knows.
pub(super) type Told = (Vec<Part>, Vec<SecretFact>);

/// Maximum size of a file with a secret, in bytes.
const LONGEST: u64 = 1 << 20;

/// A fact about the secrets of this machine.
#[derive(Clone)]
pub enum SecretFact {
    /// A secret value: a secret of the store, a private key, or a login.
    Secret(String),
    /// Free text, in which anything may be secret.
    FreeText(String),
    /// A text that is no secret, because it is made only from fields with a fixed meaning.
    Public(String),
    /// The path and the text of a file. The text counts as free text, unless a fact of the kind `Path` has the same path.
    File(String, String),
    /// The path of a file in the desired state or in a saved state. The state also lists the file's secrets.
    Path(String),
    /// The name and value of a variable that a unit gets.
    Variable(String, String),
    /// The path of a file that sets variables of a unit.
    VariablesOf(String),
    /// Why a secret could not be read.
    Unread(String),
    /// A run of the agent has written files on this machine, so the machine may have secrets of the cluster.
    Claims,
    /// The desired state or a state saved on this machine lists all secrets of the cluster that this machine has.
    Told,
    /// Why a place that may have secrets could not be examined.
    Untold(String),
}

/// Why journals must stay out of a bundle; `None` if a bundle may have journals. Journals may contain secrets of the cluster in clear text.
/// The agent can hide these secrets only if the desired state or a saved state lists them.
pub fn why_not_known(known: &[SecretFact]) -> Option<String> {
    let untold = known.iter().find_map(|known| match known {
        SecretFact::Untold(why) => Some(why.as_str()),
        _ => None,
    });
    let has = |is: fn(&SecretFact) -> bool| known.iter().any(is);
    let may_have = has(|known| matches!(known, SecretFact::Claims | SecretFact::File(..)));
    let is_untold = may_have && !has(|known| matches!(known, SecretFact::Told));
    let nothing_tells = "neither the store nor the last applied configuration shows what is secret";
    let why = untold.or(is_untold.then_some(nothing_tells))?;
    Some(format!("the secrets of this machine are not known, and may be in its journal: {why}"))
}

/// The logins among the variables of this process, and all variables that environment files of units set. `known` names these files
/// ([`SecretFact::VariablesOf`]).
pub async fn of_environment(root: &Path, known: &[SecretFact]) -> Vec<SecretFact> {
    let named = known.iter().filter_map(|known| match known {
        SecretFact::VariablesOf(path) => Some(path.clone()),
        _ => None,
    });
    let (root, named) = (root.to_owned(), named.collect::<Vec<String>>());
    let variable = |(name, value)| SecretFact::Variable(name, value);
    // The process also has the variables of a shell. No unit has these variables, so only the logins among these
    // variables are hidden.
    let of_process = environment::of_process().into_iter();
    let mut known: Vec<SecretFact> =
        of_process.filter(|(name, value)| is_login(name, value)).map(variable).collect();
    match run_in_thread(CHECK_TIMEOUT, move || environment::set_by_files(&root, &named)).await {
        Ok((set, unread)) => {
            known.extend(set.into_iter().map(variable));
            known.extend(unread.into_iter().map(SecretFact::Untold));
        }
        Err(why) => known.push(SecretFact::Untold(why.into())),
    }
    known
}

/// The texts of the files on this machine that may contain secrets. Needs no store.
pub async fn of_files(root: &Path) -> Vec<SecretFact> {
    // If the root is missing, no machine is below it. So the journal cannot contain secrets of such a machine.
    if !root.is_dir() {
        return Vec::new();
    }
    let root = root.to_owned();
    let found = run_in_thread(CHECK_TIMEOUT, move || Reader::open(&root)?.private_files()).await;
    let found = match found.and_then(|found| found.map_err(Unseen::new)) {
        Ok(found) => found,
        Err(why) => return vec![SecretFact::Untold(why.into())],
    };
    let mut known: Vec<SecretFact> = found.unread.into_iter().map(SecretFact::Untold).collect();
    known.extend(found.has_claims.then_some(SecretFact::Claims));
    known.extend(found.files.into_iter().map(|file| SecretFact::File(file.path, file.text)));
    known
}

/// The secret texts, the free texts and the public texts of a desired state, and of the current versions of its files on this machine.
/// While a token is rotated, the desired and the current version of a file have different tokens, and both tokens are secret.
pub fn of_state(desired: &DesiredState, reader: Option<&Reader>) -> Vec<SecretFact> {
    let mut known = Vec::new();
    for (_, resource) in desired.iter() {
        match resource {
            Resource::File(file) => of_file(file, reader, &mut known),
            Resource::Unit(Unit { text: Some(text), free_text: None, .. }) => {
                known.push(SecretFact::Public(text.clone()));
            }
            Resource::Unit(Unit { text: Some(text), .. }) => known.push(SecretFact::FreeText(text.clone())),
            _ => {}
        }
    }
    known
}

fn of_file(file: &File, reader: Option<&Reader>, known: &mut Vec<SecretFact>) {
    let is_written = !file.create_only && !matches!(file.content, Content::Asset(_));
    let present = match reader.filter(|_| is_written).map(|reader| reader.text(&file.path, LONGEST)) {
        Some(Ok(text)) => text,
        Some(Err(error)) => {
            known.push(SecretFact::Unread(error.to_string()));
            None
        }
        None => None,
    };
    known.push(SecretFact::Path(file.path.clone()));
    match (&file.content, &file.free_text) {
        (Content::SecretText(pieces), _) => {
            known.extend(present.iter().flat_map(|text| secrets_in(pieces, text)).map(SecretFact::Secret));
        }
        (Content::PrivateKey(_), _) => known.extend(present.map(SecretFact::Secret)),
        (Content::Kubeconfig(_), _) => {
            known.extend(present.iter().flat_map(|text| logins_in(text)).map(SecretFact::Secret))
        }
        (content, Some(FreeText::Whole)) => {
            known.extend(content.in_clear().into_iter().chain(present).map(SecretFact::FreeText));
        }
        (Content::Text(text), Some(FreeText::Variables)) => {
            for text in [text].into_iter().chain(&present) {
                match Manifest::read(text) {
                    Some(manifest) => {
                        known.extend(manifest.values().iter().cloned().map(SecretFact::FreeText))
                    }
                    None => known.push(SecretFact::FreeText(text.clone())),
                }
            }
        }
        (Content::Text(text), Some(FreeText::Lines(hidden))) => {
            let is_hidden = |number: &usize| hidden.contains(number);
            let mut public = BTreeSet::new();
            for (number, line) in text.lines().enumerate() {
                match is_hidden(&number) {
                    true => known.push(SecretFact::FreeText(line.to_owned())),
                    false => {
                        public.insert(line);
                        known.push(SecretFact::Public(line.to_owned()));
                    }
                }
            }
            let present = present.unwrap_or_default();
            let others = present.lines().filter(|line| !public.contains(line));
            known.extend(others.map(|line| SecretFact::FreeText(line.to_owned())));
        }
        (Content::Text(text), None) => known.push(SecretFact::Public(text.clone())),
        _ => {}
    }
}

/// The secret parts of a file's text: the parts between the literal texts in `pieces`. If the file has changed and does not match the
/// pieces, returns the whole text.
fn secrets_in(pieces: &[SecretPiece], text: &str) -> Vec<String> {
    let mut secrets = Vec::new();
    let mut rest = text;
    let mut is_open = false;
    for piece in pieces {
        let SecretPiece::Text(literal) = piece else {
            is_open = true;
            continue;
        };
        let Some((secret, after)) = rest.split_once(literal.as_str()) else { return vec![text.to_owned()] };
        if !secret.is_empty() {
            secrets.push(secret.to_owned());
        }
        (rest, is_open) = (after, false);
    }
    if is_open || !rest.is_empty() {
        secrets.push(rest.to_owned());
    }
    secrets
}

/// The values of all users in a kubeconfig (k8s.io/client-go/tools/clientcmd/api/v1, `AuthInfo`).
fn logins_in(text: &str) -> Vec<String> {
    let document: Value = yaml::from_str(text).unwrap_or_default();
    let users = document["users"].as_array().into_iter().flatten();
    let fields = users.filter_map(|user| user["user"].as_object()).flatten();
    fields.filter_map(|(_, value)| value.as_str()).map(str::to_owned).collect()
}

/// A redactor that hides all known secrets and free text. Fails if a secret could not be read, because such a secret cannot be hidden.
pub fn redactor(known: Vec<SecretFact>) -> Result<Redactor> {
    let told: BTreeSet<String> = known
        .iter()
        .filter_map(|known| match known {
            SecretFact::Path(path) => Some(path.clone()),
            _ => None,
        })
        .collect();
    known.into_iter().try_fold(Redactor::default(), |redactor, known| match known {
        SecretFact::Secret(text) => Ok(redactor.hiding_secret(&text)),
        SecretFact::FreeText(text) => Ok(redactor.hiding_words(&text)),
        SecretFact::File(path, text) if !told.contains(&path) => Ok(redactor.hiding_words(&text)),
        SecretFact::Public(text) => Ok(redactor.showing(&text).hiding_passwords(&text)),
        SecretFact::Variable(name, value) => Ok(redactor.hiding_variable(&name, &value)),
        SecretFact::File(..) | SecretFact::Path(_) | SecretFact::VariablesOf(_) => Ok(redactor),
        SecretFact::Claims | SecretFact::Told | SecretFact::Untold(_) => Ok(redactor),
        SecretFact::Unread(why) => {
            let problem = format!(
                "a secret of this machine cannot be read, so it cannot be kept out of the bundle: {why}; run as root"
            );
            Err(Failure::new(Kind::NoBundle, problem).into())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_desired_state_separates_free_text_from_public_text() {
        let pod = "spec: {containers: [{env: [{name: HCLOUD_TOKEN, value: of-the-cloud}]}]}";
        let mut desired = DesiredState::default();
        desired.add(File { free_text: Some(FreeText::Variables), ..File::text("/m", pod) });
        let config = File::text("/etc/containerd/config.toml", "version = 3\npassword = \"of-a-registry\"\n");
        desired.add(File { free_text: Some(FreeText::Lines([1].into())), ..config });
        let unit = Unit::new("a.service", "[Service]\nEnvironment=A_TOKEN=of-a-unit\n");
        desired.add(Unit { free_text: Some(FreeText::Whole), ..unit });
        desired.add(File::text("/etc/typed", "[Service]\nof-something-typed\n"));
        let mut known = of_state(&desired, None);
        known.push(SecretFact::File("/etc/typed".into(), "another-public-word".into()));
        known.push(SecretFact::File("/etc/foreign".into(), "of-a-stranger\n".into()));
        let shown = redactor(known)
            .unwrap()
            .text("of-the-cloud, of-a-registry, of-a-unit and of-a-stranger; [Service] of-something-typed another-public-word");
        assert_eq!(shown, "[***], [***], [***] and [***]; [Service] of-something-typed another-public-word");
    }

    #[test]
    fn the_secrets_of_a_file_stand_between_its_own_pieces() {
        let secret = |name: &str| SecretPiece::Secret(name.into());
        let text = |text: &str| SecretPiece::Text(text.into());
        let pieces = [secret("kubelet"), text(",kubelet,kubelet\n"), secret("admin"), text(",admin,admin\n")];
        assert_eq!(secrets_in(&pieces, "t1,kubelet,kubelet\nt2,admin,admin\n"), ["t1", "t2"]);
        assert_eq!(secrets_in(&pieces, "t1,other\n"), ["t1,other\n"]);
        assert_eq!(secrets_in(&pieces, "t1,kubelet,kubelet\nt2,admin,admin\n# x\n"), ["t1", "t2", "# x\n"]);
        assert_eq!(secrets_in(&[secret("dockerconfig")], "{}"), ["{}"]);
        let kubeconfig = "clusters: [{cluster: {server: https://a}}]\nusers: [{name: u, user: {client-key-data: a2V5, token: t}}]\n";
        assert_eq!(logins_in(kubeconfig), ["a2V5", "t"]);
    }

    #[test]
    fn journals_are_included_only_if_all_secrets_are_known() {
        let untold = || SecretFact::Untold("it is hung".into());
        for (known, is_known) in [
            (vec![], true),
            (vec![SecretFact::Claims], false),
            (vec![SecretFact::File("/a".into(), String::new())], false),
            (vec![SecretFact::Told, SecretFact::Claims], true),
            (vec![SecretFact::Claims, SecretFact::Told, untold()], false),
            (vec![untold()], false),
        ] {
            assert_eq!(why_not_known(&known).is_none(), is_known);
        }
        assert!(why_not_known(&[untold()]).is_some_and(|why| why.ends_with("its journal: it is hung")));
    }
}
