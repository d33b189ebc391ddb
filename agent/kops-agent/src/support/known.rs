//! What is known to be secret on a machine, from all places that tell.

use std::path::Path;

use anyhow::{Result, bail};
use kops_agent_host::{Applied, Holds, Reader};
use kops_agent_plan::health::is_manifest;
use kops_agent_plan::redaction::{Redactor, is_nothing_but_secret};
use kops_agent_plan::resource::{Content, DesiredState, File, Resource, Unit};
use kops_agent_plan::shown::is_private;

use crate::doctor::deadline::{LOOK, looked};
use crate::node::environment;

/// No file with a secret is longer, in bytes.
const LONGEST: u64 = 1 << 20;

/// Something that is known of a value.
#[derive(Clone)]
pub enum Known {
    /// It is the text of a file that only root may read.
    File(String),
    /// It is the text of a file with secrets among what is none.
    Mixed(String),
    /// It is the manifest of a static pod, which has variables in clear.
    Pod(String),
    /// It is the value of this variable, which may be secret.
    Variable(String, String),
    /// This file sets variables of a unit.
    VariablesOf(String),
    /// It is not secret, whatever it looks like.
    Public(String),
    /// It is secret and could not be read: why.
    Unread(String),
    /// A run of the agent has left files here, so there may be secrets of the cluster.
    Claims,
    /// A place has told all secrets of the cluster that it knows.
    Told,
    /// A place that may have secrets could not be looked at: why.
    Untold(String),
}

/// Why what programs say cannot be given away; `None` where it can. What a store knows of is in journals in clear, and where
/// no place has told it nothing could hide it.
pub fn why_not_known(known: &[Known]) -> Option<String> {
    let untold = known.iter().find_map(|known| match known {
        Known::Untold(why) => Some(why.as_str()),
        _ => None,
    });
    let has = |is: fn(&Known) -> bool| known.iter().any(is);
    let is_untold = has(|known| matches!(known, Known::Claims)) && !has(|known| matches!(known, Known::Told));
    let why = untold.or(is_untold.then_some("neither the store nor a file of this machine has told them"))?;
    Some(format!("what is secret on this machine is not known, and may be in its journal: {why}"))
}

/// The variables of this process, and those that the files set which units name: `known` has those that systemd told of.
pub async fn of_environment(root: &Path, known: &[Known]) -> Vec<Known> {
    let named = known.iter().filter_map(|known| match known {
        Known::VariablesOf(path) => Some(path.clone()),
        _ => None,
    });
    let (root, named) = (root.to_owned(), named.collect::<Vec<String>>());
    let variable = |(name, value)| Known::Variable(name, value);
    let mut known: Vec<Known> = environment::of_process().into_iter().map(variable).collect();
    match looked(LOOK, move || environment::set_by_files(&root, &named)).await {
        Ok((set, unread)) => {
            known.extend(set.into_iter().map(variable));
            known.extend(unread.into_iter().map(Known::Untold));
        }
        Err(why) => known.push(Known::Untold(why)),
    }
    known
}

/// What is in files with secrets, which are found without a store.
pub async fn of_files(root: &Path) -> Vec<Known> {
    // Where there is no machine there is nothing of it in a journal.
    if !root.is_dir() {
        return Vec::new();
    }
    let root = root.to_owned();
    let found = looked(LOOK, move || Reader::open(&root)?.private_files()).await;
    let found = match found.and_then(|found| found.map_err(|error| error.to_string())) {
        Ok(found) => found,
        Err(why) => return vec![Known::Untold(why)],
    };
    let mut known: Vec<Known> = found.unread.into_iter().map(Known::Untold).collect();
    if found.has_claims {
        known.push(Known::Claims);
    }
    if found.tells {
        known.push(Known::Told);
    }
    known.extend(found.files.into_iter().map(|file| match file.holds {
        Holds::All => Known::File(file.text),
        Holds::Named => Known::Mixed(file.text),
        Holds::OfPod => Known::Pod(file.text),
    }));
    known
}

/// What is secret in the files of a state that was applied or begun, as they are now.
pub fn of_applied(reader: &Reader, applied: &Applied) -> Vec<Known> {
    let desired = applied.desired();
    let files = desired.iter().filter_map(|(_, resource)| match resource {
        Resource::File(File { path, content, .. }) if is_secret(content) => Some(path),
        _ => None,
    });
    let read = |path: &String| match reader.text(path, LONGEST) {
        Ok(text) => text.map(Known::File),
        Err(error) => Some(Known::Unread(error.to_string())),
    };
    files.filter_map(read).collect()
}

/// What is secret in the texts of a state, which name no secret of a store: a token that was rotated is in them before it is on
/// the machine, and after it has gone from there.
pub fn of_texts(desired: &DesiredState) -> Vec<Known> {
    let texts = desired.iter().filter_map(|(_, resource)| match resource {
        Resource::File(File { path, content: Content::Text(text), .. }) if is_manifest(path) => {
            Some(Known::Pod(text.clone()))
        }
        Resource::File(File { path, mode, content, .. }) => {
            let text = content.in_clear()?;
            let is_whole = is_private(*mode) && is_nothing_but_secret(path, &text);
            Some(if is_whole { Known::File(text) } else { Known::Mixed(text) })
        }
        Resource::Unit(Unit { text: Some(text), .. }) => Some(Known::Mixed(text.clone())),
        _ => None,
    });
    texts.collect()
}

fn is_secret(content: &Content) -> bool {
    matches!(content, Content::SecretText(_) | Content::PrivateKey(_))
}

/// What hides all of it.
///
/// # Errors
/// Something secret could not be read, so it cannot be looked for.
pub fn redactor(known: Vec<Known>) -> Result<Redactor> {
    known.into_iter().try_fold(Redactor::default(), |redactor, known| match known {
        Known::File(text) => Ok(redactor.hiding_file(&text)),
        Known::Mixed(text) => Ok(redactor.hiding_named(&text)),
        Known::Pod(text) => Ok(redactor.hiding_pod(&text)),
        Known::Variable(name, value) => Ok(redactor.hiding_variable(&name, &value)),
        Known::Public(value) => Ok(redactor.showing(&value)),
        Known::VariablesOf(_) | Known::Claims | Known::Told | Known::Untold(_) => Ok(redactor),
        Known::Unread(why) => bail!(
            "a secret of this machine cannot be read, so it could not be kept out of the bundle: {why}; run as root"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use kops_agent_plan::resource::Mode;

    #[test]
    fn texts_of_a_state_tell_what_is_secret_in_them() {
        let pod = "spec: {containers: [{env: [{name: HCLOUD_TOKEN, value: of-the-cloud}]}]}";
        let mut desired = DesiredState::default();
        desired.add(File::text("/etc/kubernetes/manifests/kops-channels.manifest", pod));
        desired.add(File::text("/etc/containerd/config.toml", "password = \"of-a-registry\"\n"));
        desired.add(Unit::new("a.service", "[Service]\nEnvironment=A_TOKEN=of-a-unit\n"));
        desired.add(File::text("/etc/app/token", "of-a-file\n").mode(Mode::PRIVATE));
        let encoded = STANDARD.encode("of-bytes\n");
        desired.add(File::new("/etc/app/bytes", Content::Base64(encoded)).mode(Mode::PRIVATE));
        let shown = redactor(of_texts(&desired))
            .unwrap()
            .text("of-the-cloud, of-a-registry, of-a-unit, of-a-file and of-bytes; of-nothing");
        assert_eq!(shown, "[***], [***], [***], [***] and [***]; of-nothing");
    }

    #[test]
    fn journals_are_given_away_where_something_has_told_what_is_secret() {
        let untold = || Known::Untold("it is hung".into());
        for (known, is_known) in [
            (vec![], true),
            (vec![Known::Claims], false),
            (vec![Known::Told, Known::Claims], true),
            (vec![Known::Claims, Known::Told, untold()], false),
            (vec![untold()], false),
        ] {
            assert_eq!(why_not_known(&known).is_none(), is_known);
        }
        assert!(why_not_known(&[untold()]).is_some_and(|why| why.ends_with("its journal: it is hung")));
    }
}
