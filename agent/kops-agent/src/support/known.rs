//! What is known to be secret on a machine, from all places that tell.

use std::path::Path;

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
    let read = |path: &String| std::fs::read_to_string(root.join(path.trim_start_matches('/'))).ok();
    files.filter_map(read).map(Known::File).collect()
}

fn is_secret(content: &Content) -> bool {
    matches!(content, Content::SecretText(_) | Content::PrivateKey(_))
}

/// What hides all of it.
pub fn redactor(known: Vec<Known>) -> Redactor {
    known.into_iter().fold(Redactor::default(), |redactor, known| match known {
        Known::File(text) => redactor.hiding_file(&text),
        Known::Variable(name, value) => redactor.hiding_variable(&name, &value),
        Known::Public(value) => redactor.showing(&value),
    })
}
