//! The parts that earlier runs left on the machine: its status, the record, the last applied state, the timeline.

use std::path::Path;

use kops_agent_host::{Host, Reader};
use kops_agent_plan::doctor::{Seen, Unseen};
use serde_json::{Value, json};

use super::part::Part;
use super::secret_sources::{SecretFact, Told, of_state};
use crate::doctor::deadline::{CHECK_TIMEOUT, run_in_thread};
use crate::machine;
use crate::options::NodeOptions;
use crate::redaction::error_text;

/// JSON files of the state directory, each with its name in the bundle.
const FILES: [(&str, &str); 2] = [
    ("/var/lib/kops-agent/record.json", "record.json"),
    ("/var/lib/kops-agent/timeline.json", "timeline.json"),
];

/// The parts of the bundle that come from files of earlier runs, and the secrets in the files of saved states.
pub async fn parts(look: &NodeOptions) -> Told {
    let root = look.source.node_root.clone();
    let files =
        run_in_thread(CHECK_TIMEOUT, move || FILES.map(|(path, name)| Part::json(name, read(&root, path))))
            .await;
    let mut known = Vec::new();
    let mut parts: Vec<Part> = match files {
        Ok(files) => files.into(),
        Err(why) => FILES.map(|(_, name)| Part::json(name, Err(why.clone()))).into(),
    };
    let root = look.source.node_root.clone();
    let status = run_in_thread(CHECK_TIMEOUT, move || status(&root)).await.and_then(|status| status);
    parts.push(Part::json("status.json", status));
    let root = look.source.node_root.clone();
    let applied = run_in_thread(CHECK_TIMEOUT, move || applied(&root)).await.and_then(|applied| applied);
    parts.push(Part::json("applied.json", applied));
    let root = look.source.node_root.clone();
    known.extend(
        run_in_thread(CHECK_TIMEOUT, move || kept_secrets(&root))
            .await
            .unwrap_or_else(|why| vec![SecretFact::Untold(why.into())]),
    );
    (parts, known)
}

/// Maximum size of a file of the state directory, in bytes. A longer file means a broken disk.
const LONGEST: u64 = 32 << 20;

fn read(root: &Path, path: &str) -> Seen<Value> {
    // If the root is missing, its files are missing, too.
    let text = match root.is_dir() {
        true => Reader::open(root).and_then(|reader| reader.read(path, LONGEST)).map_err(Unseen::new)?,
        false => None,
    };
    let text = text.ok_or_else(|| Unseen::new(format_args!("{path} is not on this machine")))?;
    serde_json::from_slice(&text).map_err(|error| Unseen::new(format_args!("{path} is not JSON: {error}")))
}

fn open(root: &Path) -> Seen<Host> {
    // Reading must not create a missing root.
    if !root.is_dir() {
        return Err(Unseen::new(format_args!("there is no machine below {}", root.display())));
    }
    machine::open(root).map_err(|error| Unseen::new(error_text(&error)))
}

fn status(root: &Path) -> Seen<Value> {
    let status = open(root)?.status().map_err(Unseen::new)?;
    serde_json::to_value(status).map_err(Unseen::new)
}

/// The last applied state: its configuration and the names of its resources. Texts of users are left out, because any
/// of them may be secret.
fn applied(root: &Path) -> Seen<Value> {
    let applied = open(root)?.applied().map_err(Unseen::new)?;
    let nothing = "nothing has been applied to this machine, or its record is missing";
    let applied = applied.ok_or_else(|| Unseen::new(nothing))?;
    let resources: Vec<String> = applied.desired().iter().map(|(id, _)| id.to_string()).collect();
    Ok(json!({
        "cluster": applied.cluster,
        "instanceGroup": applied.instance_group,
        "machine": applied.machine,
        "configHash": applied.config_hash,
        "isProven": applied.is_proven,
        "sources": applied.sources,
        "resources": resources,
    }))
}

/// The secrets in the files of all saved states. These include the states of unfinished changes, and states that the
/// record does not name.
fn kept_secrets(root: &Path) -> Vec<SecretFact> {
    if !root.is_dir() {
        return Vec::new();
    }
    let states = open(root).and_then(|host| host.kept_states().map_err(Unseen::new));
    let read = states.and_then(|states| Ok((states, Reader::open(root).map_err(Unseen::new)?)));
    let (states, reader) = match read {
        Ok(read) => read,
        Err(why) => return vec![SecretFact::Untold(why.into())],
    };
    let mut known = Vec::new();
    for state in states {
        let of_this = of_state(&state.desired(), Some(&reader));
        // If the state refers to secrets, but no secret was found in its files on this machine, the secrets of the
        // machine are not fully known.
        if state.secrets().is_empty() || of_this.iter().any(|known| matches!(known, SecretFact::Secret(_))) {
            known.push(SecretFact::Told);
        }
        known.extend(of_this);
    }
    known
}
