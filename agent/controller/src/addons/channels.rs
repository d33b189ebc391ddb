//! Finds the channels that a command uses, and the settings of this machine's Node.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kops_agent_cluster::addons::{AddonSettings, bootstrap_channel};

use super::args::ChannelArgs;
use crate::configuration;

/// The settings file that `converge --addons` writes.
const SETTINGS: &str = "/etc/kubernetes/kops-channels/settings.json";

/// Returns the settings. The channels come from the arguments, else the settings file, else kops-controller's
/// configuration.
///
/// # Errors
/// A file cannot be read or parsed, or nothing names a channel.
pub fn settings(args: &ChannelArgs) -> Result<AddonSettings> {
    let mut settings = match read_settings(args)? {
        Some(settings) => settings,
        None if !args.channel.is_empty() => AddonSettings::default(),
        None => {
            let options = configuration::options(&args.conf)
                .context("finding the cluster's channel, as no --channel is given")?;
            let channels = vec![bootstrap_channel(&options.config_base)];
            AddonSettings { channels, ..AddonSettings::default() }
        }
    };
    if !args.channel.is_empty() {
        settings.channels.clone_from(&args.channel);
    }
    Ok(settings)
}

/// The files that [`settings`] reads for these arguments.
pub fn files(args: &ChannelArgs) -> Vec<PathBuf> {
    let settings = args.settings.clone().unwrap_or_else(|| PathBuf::from(SETTINGS));
    match (settings.exists(), args.channel.is_empty()) {
        (true, _) => vec![settings],
        (false, true) => vec![args.conf.clone()],
        (false, false) => Vec::new(),
    }
}

/// Reads the settings file. `None` if the file is missing and the arguments do not name one.
fn read_settings(args: &ChannelArgs) -> Result<Option<AddonSettings>> {
    let (path, is_given) = match &args.settings {
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
    use kops_agent_kube::KubeconfigArgs;

    #[test]
    fn channels_that_are_given_win_over_the_settings_and_those_over_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("config.yaml"), "{clusterName: c, cloud: aws, configBase: s3://b/c}").unwrap();
        let mut args = ChannelArgs {
            channel: Vec::new(),
            settings: None,
            conf: path("config.yaml"),
            kubeconfig: KubeconfigArgs::default(),
            store_mirror: Vec::new(),
        };
        assert_eq!(settings(&args).unwrap().channels, ["s3://b/c/addons/bootstrap-channel.yaml"]);
        assert_eq!(files(&args), [path("config.yaml")]);

        args.settings = Some(path("settings.json"));
        let missing = settings(&args).unwrap_err();
        assert!(
            format!("{missing:#}").contains("settings.json"),
            "what is named has to be there: {missing:#}"
        );
        let written = AddonSettings { channels: vec!["s3://b/other".into()], ..AddonSettings::default() };
        let written = written.labelling("i-1", "a=b");
        std::fs::write(path("settings.json"), written.to_text()).unwrap();
        assert_eq!((settings(&args).unwrap(), files(&args)), (written.clone(), vec![path("settings.json")]));

        args.channel = vec!["s3://b/given".into()];
        let channels = vec!["s3://b/given".into()];
        assert_eq!(settings(&args).unwrap(), AddonSettings { channels, ..written });
    }
}
