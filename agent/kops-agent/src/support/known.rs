//! What is known to be secret on a machine, from all places that tell.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Result, bail};
use kops_agent_host::Applied;
use kops_agent_plan::redaction::Redactor;
use kops_agent_plan::resource::{Content, File, Resource};

use crate::node::environment::Environment;

/// Something that is known of a value.
#[derive(Clone)]
pub enum Known {
    /// It is the text of a file that only root may read.
    File(String),
    /// It is the value of this variable, which may be secret.
    Variable(String, String),
    /// It is not secret, whatever it looks like.
    Public(String),
    /// It is secret and could not be read: why.
    Unread(String),
}

/// The variables of this process, and of the units on this machine.
pub fn of_environment(root: &Path) -> Vec<Known> {
    let all = Environment::of_machine(root).all();
    all.into_iter().map(|(name, value)| Known::Variable(name, value)).collect()
}

/// What is secret in the files of what was last applied, as they are now.
pub fn of_applied(root: &Path, applied: &Applied) -> Vec<Known> {
    let desired = applied.desired();
    let files = desired.iter().filter_map(|(_, resource)| match resource {
        Resource::File(File { path, content, .. }) if is_secret(content) => Some(path),
        _ => None,
    });
    files.filter_map(|path| secret_file(root, path)).collect()
}

/// `None` of one that is not there.
fn secret_file(root: &Path, path: &str) -> Option<Known> {
    match std::fs::read(root.join(path.trim_start_matches('/'))) {
        Ok(bytes) => Some(Known::File(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(Known::Unread(format!("{path}: {error}"))),
    }
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
        Known::Variable(name, value) => Ok(redactor.hiding_variable(&name, &value)),
        Known::Public(value) => Ok(redactor.showing(&value)),
        Known::Unread(why) => bail!(
            "a secret of this machine cannot be read, so it could not be kept out of the bundle: {why}; run as root"
        ),
    })
}
