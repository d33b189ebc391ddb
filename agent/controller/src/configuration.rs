//! What an operator gives: kops-controller's configuration, a kubeconfig, flags and the environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum as _;
use kops_agent_net::retry::Retries;
use kops_agent_process::exit::WrongConfiguration;
use kops_agent_process::output;
use kops_agent_spec::KopsControllerOptions;
use kops_agent_store::Store;

use super::args::{ControllerArgs, LabelsFrom};
use super::changed_files::Watched;
use super::kubernetes;

/// Says what decides the labels, where `--labels-from` does not.
const LABELS_FROM: &str = "KOPS_AGENT_LABELS_FROM";
/// How long the store is asked before the controller goes on without.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The configuration of kops-controller, as kOps writes it.
///
/// # Errors
/// If it cannot be read, or is none.
pub fn options(conf: &Path) -> Result<KopsControllerOptions> {
    let name = conf.display().to_string();
    let text =
        std::fs::read(conf).with_context(|| format!("reading kops-controller's configuration {name}"))?;
    Ok(KopsControllerOptions::parse(&text, &name)?)
}

/// The state store, with these mirrors of it.
///
/// # Errors
/// If a mirror is none.
pub fn store(mirrors: &[String]) -> Result<Store> {
    let retries = Retries { deadline: STORE_TIMEOUT, attempt: STORE_TIMEOUT / 2, ..Retries::default() };
    Ok(Store::new(mirrors)?.with_retries(retries))
}

/// What decides the labels, of the flag or the environment.
///
/// # Errors
/// If the environment says something that there is not.
pub fn labels_from(args: &ControllerArgs) -> Result<LabelsFrom, WrongConfiguration> {
    let said = std::env::var(LABELS_FROM).ok().filter(|said| !said.is_empty());
    match (args.labels_from, said) {
        (Some(given), _) => Ok(given),
        (None, None) => Ok(LabelsFrom::default()),
        (None, Some(said)) => LabelsFrom::from_str(&said, false).map_err(|_| {
            WrongConfiguration(format!(
                "{LABELS_FROM} is {said:?}: set it to store or to tags, or not at all"
            ))
        }),
    }
}

/// Waits until a file that was read at the start is another, and nothing is wrong with it. A process that ended for a
/// file that cannot be used would not start again, though the file is mended.
pub async fn changed_for_good(files: &mut Watched, args: &ControllerArgs, every: Duration) -> PathBuf {
    changed_to_usable(files, every, || can_be_used(args)).await
}

/// The same of other files, of which this says whether they can be used.
pub async fn changed_to_usable(
    files: &mut Watched,
    every: Duration,
    can_be_used: impl Fn() -> Result<()>,
) -> PathBuf {
    loop {
        let file = files.changed(every).await;
        match can_be_used() {
            Ok(()) => return file,
            Err(error) => log::error!(
                "{} has changed, and cannot be used; what was read of it at the start holds: {}",
                file.display(),
                output::error_text(&error)
            ),
        }
    }
}

/// Whether the files can be used as they are now.
///
/// # Errors
/// What is wrong with the files, as far as they tell.
pub fn can_be_used(args: &ControllerArgs) -> Result<()> {
    options(&args.conf)?;
    // What only making a client of it shows, too; no request is made.
    args.kubeconfig.as_deref().map_or(Ok(()), |path| kubernetes::client(Some(path)).map(drop))
}

#[cfg(test)]
mod tests;
