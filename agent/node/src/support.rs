//! The bundle of `kops-agent support-bundle`: everything that a report about a machine needs, and nothing secret.
//!
//! All parts are collected concurrently, each with a deadline. The bundle's MANIFEST and the terminal name each missing
//! part with the reason. A missing part does not affect the other parts. The secrets of the machine are learnt
//! meanwhile, and hidden in every part before anything is written ([`kops_agent_spec::redaction`]).

mod archive;
mod journal;
mod machine;
mod manifest;
mod node;
mod part;
mod secret_sources;
mod units;
mod versions;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kops_agent_host::Reader;
use kops_agent_plan::doctor::{self, Unseen};
use kops_agent_spec::failure::{Failure, Kind};
use nix::unistd::geteuid;
use serde_json::json;
use time::OffsetDateTime;
use time::macros::format_description;
use tokio::join;

use crate::doctor::deadline::{CHECK_TIMEOUT, run_in_thread, with_timeout};
use crate::options::NodeOptions;
use crate::redaction::error_text;
use part::{Hiding, Part};

/// The default folder of bundles, which survives a reboot (file-hierarchy(7)).
const FOLDER: &str = "/var/tmp";

/// Maximum length of a host's name with its newline, in bytes (gethostname(2)).
const LONGEST_NAME: u64 = 64 + 1;

/// How long all checks of `doctor` may take together. A check may ask several slow servers, one after another.
const DIAGNOSIS: Duration = Duration::from_secs(150);

pub struct Written {
    pub path: PathBuf,
    /// The size of the bundle, in bytes.
    pub size: usize,
    /// The missing parts, each with the reason.
    pub missing: Vec<(String, String)>,
}

/// Collects a bundle and writes it into `out`, or else into a file in /var/tmp with the host's name and the time. Fails
/// if the secrets of the machine cannot be read. A missing part is no error.
pub async fn write(look: &NodeOptions, out: Option<&Path>) -> Result<Written> {
    let look = &look.clone().settled();
    refuse_without_root(look)?;
    if let Some(out) = out {
        refuse(out)?;
    }
    let now = OffsetDateTime::now_utc();
    let (of_machine, of_node, journals, units, versions, diagnosis, of_files) = join!(
        machine::parts(look),
        node::parts(look),
        journal::parts(look),
        units::parts(look),
        versions::part(look),
        diagnosis(look),
        secret_sources::of_files(&look.source.node_root),
    );
    let mut known = Vec::new();
    let mut parts = vec![versions, diagnosis];
    for (of_place, secrets) in [of_machine, of_node, units] {
        parts.extend(of_place);
        known.extend(secrets);
    }
    known.extend(of_files);
    let of_environment = secret_sources::of_environment(&look.source.node_root, &known).await;
    known.extend(of_environment);
    let untold = secret_sources::why_not_known(&known);
    parts.extend(journals.into_iter().map(|journal| match &untold {
        Some(why) => Part::text(journal.name, Err(Unseen::new(why))),
        None => journal,
    }));
    let learning = run_in_thread(CHECK_TIMEOUT, move || secret_sources::redactor(known)).await;
    let redactor = learning.unwrap_or_else(|why| {
        Err(Failure::new(Kind::NoBundle, format!("finding the secrets to hide: {why}")).into())
    })?;
    let hiding = Arc::new(Hiding::new(redactor));
    // Redacts one part after another, because a machine with a problem needs its CPU for other work.
    let mut redacted = Vec::new();
    for part in parts {
        redacted.push(part.redacted_in_time(&hiding).await);
    }
    let parts = redacted;

    let root = look.source.node_root.clone();
    let host =
        run_in_thread(CHECK_TIMEOUT, move || hostname(&root)).await.unwrap_or_else(|_| "host".to_owned());
    let name = format!(
        "kops-agent-support-{host}-{}",
        now.format(format_description!("[year][month][day]T[hour][minute][second]Z"))?
    );
    let manifest = hiding.secrets.text(&manifest::text(&host, now, &parts)?);
    let bytes = archive::pack(&name, now, &manifest, &parts).context("packing the bundle")?;
    let path = out.map_or_else(|| Path::new(FOLDER).join(format!("{name}.tar.zst")), Path::to_owned);
    archive::write(&path, &bytes)?;
    let missing =
        parts.into_iter().filter_map(|part| Some((part.name, part.content.err()?.into()))).collect();
    Ok(Written { path, size: bytes.len(), missing })
}

/// Fails without root. Only root may read the secrets of a machine. If a secret is not read, the bundle cannot hide it in a journal.
fn refuse_without_root(look: &NodeOptions) -> Result<()> {
    if look.is_this_machine() && !geteuid().is_root() {
        let problem = "only root may read the secrets of this machine, which must be kept out of the bundle; run as root";
        return Err(Failure::new(Kind::NotRoot, problem).into());
    }
    Ok(())
}

/// Rejects a path that the bundle cannot be written to, before anything is collected.
fn refuse(out: &Path) -> Result<()> {
    if out.symlink_metadata().is_ok() {
        let problem =
            format!("{} already exists; remove this file, or give --out another file", out.display());
        return Err(Failure::new(Kind::NoBundle, problem).into());
    }
    let folder = archive::folder_of(out);
    if !folder.is_dir() {
        let problem =
            format!("{} is not a directory; give --out a file in an existing directory", folder.display());
        return Err(Failure::new(Kind::NoBundle, problem).into());
    }
    Ok(())
}

/// The findings of `kops-agent doctor`.
async fn diagnosis(look: &NodeOptions) -> Part {
    let looking = with_timeout(DIAGNOSIS, Box::pin(crate::doctor::examine(look)));
    let seen = looking.await.and_then(|seen| seen.map_err(|error| Unseen::new(error_text(&error))));
    Part::json("doctor.json", seen.map(|seen| json!({ "findings": doctor::findings(&seen) })))
}

/// The host name from the kernel, reduced to characters that a file name may have.
fn hostname(root: &Path) -> String {
    let read = Reader::open(root).and_then(|reader| reader.text("/proc/sys/kernel/hostname", LONGEST_NAME));
    let name = read.ok().flatten().unwrap_or_default();
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let name: String = name.trim().chars().filter(is_plain).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}
