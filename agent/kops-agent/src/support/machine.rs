//! What earlier runs have left on the machine: how it is, the record, what was applied, the timeline.

use std::io::ErrorKind;
use std::path::Path;

use kops_agent_host::Host;
use kops_agent_process::output::error_text;
use serde_json::{Value, json};

use super::Told;
use super::known::{Known, of_applied};
use super::part::{Content, Part};
use crate::cli::LookArgs;
use crate::doctor::deadline::{LOOK, looked};
use crate::node::machine;
use crate::source::boot_config;

/// Files below the state directory that are taken as they are, and must be JSON: each with its name in the bundle.
const FILES: [(&str, &str); 2] = [
    ("/var/lib/kops-agent/record.json", "record.json"),
    ("/var/lib/kops-agent/timeline.json", "timeline.json"),
];

/// All of it, and what is secret in the files that were applied.
pub async fn parts(look: &LookArgs) -> Told {
    let root = look.root.clone();
    let files = looked(LOOK, move || FILES.map(|(path, name)| Part::json(name, read(&root, path)))).await;
    let mut known = hashes_of_boot_config(look);
    let mut parts: Vec<Part> = match files {
        Ok(files) => files.into(),
        Err(why) => FILES.map(|(_, name)| Part::json(name, Err(why.clone()))).into(),
    };
    let root = look.root.clone();
    let status = looked(LOOK, move || status(&root)).await.and_then(|status| status);
    parts.push(Part::json("status.json", status));
    let root = look.root.clone();
    let applied = match looked(LOOK, move || applied(&root)).await.and_then(|applied| applied) {
        Ok((applied, secrets)) => {
            known.extend(secrets);
            Ok(applied)
        }
        Err(why) => Err(why),
    };
    parts.push(Part::json("applied.json", applied));
    for part in &parts {
        if let Ok(Content::Json(value)) = &part.content {
            collect_hashes(value, &mut known);
        }
    }
    (parts, known)
}

/// Fields of the record and the status whose values are the hash of a configuration, which looks as random as a secret.
const HASHES: [&str; 3] = ["configHash", "backTo", "by"];

fn collect_hashes(value: &Value, known: &mut Vec<Known>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
            Value::String(hash) if HASHES.contains(&name.as_str()) => known.push(Known::Public(hash.clone())),
            other => collect_hashes(other, known),
        }),
        Value::Array(values) => values.iter().for_each(|value| collect_hashes(value, known)),
        _ => {}
    }
}

fn hashes_of_boot_config(look: &LookArgs) -> Vec<Known> {
    let hash = boot_config(&look.conf).map(|boot| boot.nodeup_config_hash);
    hash.into_iter().map(Known::Public).collect()
}

fn read(root: &Path, path: &str) -> Result<Value, String> {
    let file = root.join(path.trim_start_matches('/'));
    let text = std::fs::read(&file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!("{path} is not on this machine"),
        _ => format!("{path}: {error}"),
    })?;
    serde_json::from_slice(&text).map_err(|error| format!("{path} is no JSON: {error}"))
}

fn open(root: &Path) -> Result<Host, String> {
    // A root that is not there yet is not made by a look at it.
    if !root.is_dir() {
        return Err(format!("there is no machine below {}", root.display()));
    }
    machine::open(root).map_err(|error| error_text(&error))
}

fn status(root: &Path) -> Result<Value, String> {
    let status = open(root)?.status().map_err(|error| error.to_string())?;
    serde_json::to_value(status).map_err(|error| error.to_string())
}

/// What was last applied: which resources, and of which configuration. What users have written into them is not told: it may be
/// secret, and no store knows it.
fn applied(root: &Path) -> Result<(Value, Vec<Known>), String> {
    let applied = open(root)?.applied().map_err(|error| error.to_string())?;
    let applied = applied.ok_or("nothing has been applied to this machine that is known")?;
    let resources: Vec<String> = applied.desired().iter().map(|(id, _)| id.to_string()).collect();
    let told = json!({
        "cluster": applied.cluster,
        "instanceGroup": applied.instance_group,
        "machine": applied.machine,
        "configHash": applied.config_hash,
        "isProven": applied.is_proven,
        "sources": applied.sources,
        "resources": resources,
    });
    let mut known = of_applied(root, &applied);
    known.push(Known::Public(applied.config_hash.clone()));
    Ok((told, known))
}
