//! Finds the channels that a command uses, and the settings of this machine's Node.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use kops_agent_cluster::addons::{AddonSettings, bootstrap_channel};
use kops_agent_kube::Chosen;

use crate::configuration;

/// The channels, and access to their stores and to the cluster.
#[derive(Clone, Debug)]
pub struct ChannelOptions {
    /// The URLs of the channels. If empty, the channels come from the settings file, or else from the cluster's folder in the state store.
    pub channels: Vec<String>,
    /// The settings file. `None` means the file that `converge --addons` writes, if this file exists.
    pub settings: Option<PathBuf>,
    /// kops-controller's configuration file.
    pub conf: PathBuf,
    pub kubeconfig: Chosen,
    /// Folders to read in place of URLs, as `URL=DIR`.
    pub store_mirrors: Vec<String>,
}

/// The settings file that `converge --addons` writes.
const SETTINGS: &str = "/etc/kubernetes/kops-channels/settings.json";

/// Returns the settings. The first source that exists gives the channels: the options, the settings file, or kops-controller's
/// configuration.
pub fn settings(options: &ChannelOptions) -> Result<AddonSettings> {
    let mut settings = match read_settings(options)? {
        Some(settings) => settings,
        None if !options.channels.is_empty() => AddonSettings::default(),
        None => {
            let written = configuration::options(&options.conf)
                .context("finding the cluster's channel, as no --channel is given")?;
            let channels = vec![bootstrap_channel(&written.config_base)];
            AddonSettings { channels, ..AddonSettings::default() }
        }
    };
    if !options.channels.is_empty() {
        settings.channels.clone_from(&options.channels);
    }
    Ok(settings)
}

/// The files that [`settings`] reads for these options.
pub fn files(options: &ChannelOptions) -> Vec<PathBuf> {
    let settings = options.settings.clone().unwrap_or_else(|| PathBuf::from(SETTINGS));
    match (settings.exists(), options.channels.is_empty()) {
        (true, _) => vec![settings],
        (false, true) => vec![options.conf.clone()],
        (false, false) => Vec::new(),
    }
}

/// Reads the settings file. `None` if the file is missing and the options name no settings file.
fn read_settings(options: &ChannelOptions) -> Result<Option<AddonSettings>> {
    let (path, is_given) = match &options.settings {
        Some(path) => (path.as_path(), true),
        None => (Path::new(SETTINGS), false),
    };
    let name = path.display().to_string();
    let text = match std::fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && !is_given => return Ok(None),
        read => read.with_context(|| format!("reading the settings {name}"))?,
    };
    Ok(Some(AddonSettings::parse(&text, &name)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn channels_that_are_given_win_over_the_settings_and_those_over_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("config.yaml"), "{clusterName: c, cloud: aws, configBase: s3://b/c}").unwrap();
        let mut options = ChannelOptions {
            channels: Vec::new(),
            settings: None,
            conf: path("config.yaml"),
            kubeconfig: Chosen::file(&path("kubeconfig")),
            store_mirrors: Vec::new(),
        };
        assert_eq!(settings(&options).unwrap().channels, ["s3://b/c/addons/bootstrap-channel.yaml"]);
        assert_eq!(files(&options), [path("config.yaml")]);

        options.settings = Some(path("settings.json"));
        let missing = settings(&options).unwrap_err();
        assert!(
            format!("{missing:#}").contains("settings.json"),
            "what is named has to be there: {missing:#}"
        );
        let written = AddonSettings { channels: vec!["s3://b/other".into()], ..AddonSettings::default() };
        let written = written.labelling("i-1", "a=b");
        std::fs::write(path("settings.json"), written.to_text()).unwrap();
        assert_eq!(
            (settings(&options).unwrap(), files(&options)),
            (written.clone(), vec![path("settings.json")])
        );

        options.channels = vec!["s3://b/given".into()];
        let channels = vec!["s3://b/given".into()];
        assert_eq!(settings(&options).unwrap(), AddonSettings { channels, ..written });
    }
}
