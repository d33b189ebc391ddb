//! Reads an operator's input: kops-controller's configuration, a kubeconfig, flags and the environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use kops_agent_net::retry::Retries;
use kops_agent_process::output;
use kops_agent_spec::KopsControllerOptions;
use kops_agent_spec::failure::{Failure, Kind};
use kops_agent_store::Store;

use crate::changed_files::Watched;
use crate::options::{ControllerOptions, LabelsFrom};

/// The environment variable that is used if `--labels-from` is missing.
const LABELS_FROM: &str = "KOPS_AGENT_LABELS_FROM";
/// How long requests to the store are retried. After this time, the controller continues without the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads kops-controller's configuration, as kOps writes it.
pub fn options(conf: &Path) -> Result<KopsControllerOptions> {
    let name = conf.display().to_string();
    let text =
        std::fs::read(conf).with_context(|| format!("reading kops-controller's configuration {name}"))?;
    Ok(KopsControllerOptions::parse(&text, &name)?)
}

/// Opens the state store with these mirrors (`URL=DIR`).
pub fn store(mirrors: &[String]) -> Result<Store> {
    let retries = Retries { deadline: STORE_TIMEOUT, attempt: STORE_TIMEOUT / 2, ..Retries::default() };
    Ok(Store::new(mirrors)?.with_retries(retries))
}

/// Returns the source of labels. The flag overrides the environment variable, which overrides the default.
pub fn labels_from(given: Option<LabelsFrom>) -> Result<LabelsFrom, Failure> {
    let said = std::env::var(LABELS_FROM).ok().filter(|said| !said.is_empty());
    match (given, said.as_deref()) {
        (Some(given), _) => Ok(given),
        (None, None) => Ok(LabelsFrom::default()),
        (None, Some("store")) => Ok(LabelsFrom::Store),
        (None, Some("tags")) => Ok(LabelsFrom::Tags),
        (None, Some(said)) => Err(Failure::new(
            Kind::WrongSetting,
            format!("{LABELS_FROM} is {said:?}: set it to store or tags, or unset it"),
        )),
    }
}

/// Waits until a file that was read at the start has changed and is valid. An invalid file must not end the process, because the process
/// would then not start again, even after the file is fixed.
pub async fn changed_for_good(files: &mut Watched, given: &ControllerOptions, every: Duration) -> PathBuf {
    changed_to_usable(files, every, || can_be_used(given)).await
}

/// Waits until one of these files has changed and `can_be_used` succeeds.
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
                "{} has changed, but cannot be used; the version read at the start stays in use: {}",
                file.display(),
                output::error_text(&error)
            ),
        }
    }
}

/// Waits for a signal, or for the change of a file that was read at the start. Returns why this healthy process ends, as the last part of a
/// sentence.
pub async fn reason_to_stop(
    stopped: &mut (impl Future<Output = &'static str> + Unpin),
    changed: impl Future<Output = PathBuf>,
) -> String {
    tokio::select! {
        signal = stopped => format!("{signal} came"),
        file = changed => {
            format!("{} has changed; systemd (or another supervisor) restarts this process", file.display())
        }
    }
}

/// Checks whether the current files are valid.
pub fn can_be_used(given: &ControllerOptions) -> Result<()> {
    options(&given.conf)?;
    // Creating a client finds errors that parsing the kubeconfig does not find. It sends no request.
    given.kubeconfig.as_deref().map_or(Ok(()), |path| kops_agent_kube::client(Some(path)).map(drop))
}

#[cfg(test)]
mod tests;
