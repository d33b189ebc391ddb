//! The facts of this machine and of its cloud: observed, or read from a file.

use std::path::Path;

use anyhow::{Context, Result};
use kops_agent_cloud as cloud;
use kops_agent_host::facts::observe_host;
use kops_agent_spec::facts::{CloudFacts, Facts};
use kops_agent_spec::{BootConfig, CloudProvider, parse_yaml};

use super::remembered;

/// Observes the machine whose files are below `root`. If the machine has a cloud, also asks the cloud.
pub async fn observe(root: &Path, provider: Option<CloudProvider>) -> Result<Facts> {
    let mut facts = observe_host(root).context("observing this machine")?;
    facts.cloud = match provider {
        Some(provider) => cloud::observe(provider).await.context("asking the cloud about this machine")?,
        None => CloudFacts::default(),
    };
    Ok(facts)
}

/// Like [`observe`], but for display only: also asks the cloud for the facts that `observe` leaves out. Warns of each
/// missing fact.
pub async fn observe_to_show(root: &Path, provider: Option<CloudProvider>) -> Result<Facts> {
    let mut facts = observe(root, provider).await?;
    if let Some(provider) = provider {
        cloud::for_provider(provider).complete_for_show(&mut facts, &remembered::read(root)).await;
    }
    Ok(facts)
}

/// Reads facts from a file in YAML or JSON.
pub fn load(file: &Path) -> Result<Facts> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).with_context(|| format!("reading the facts {name}"))?;
    Ok(parse_yaml(&bytes, &name)?)
}

/// The facts in `file`. Without a file, the facts of this machine and its cloud.
pub async fn given(file: Option<&Path>, boot: &BootConfig) -> Result<Facts> {
    match file {
        Some(file) => load(file),
        None => observe(Path::new("/"), Some(boot.cloud_provider))
            .await
            .context("finding the facts of this machine"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use kops_agent_spec::SpecError;
    use kops_agent_spec::facts::Architecture;

    use super::*;

    fn read(text: &str) -> Result<Facts> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("facts.yaml");
        fs::write(&file, text).unwrap();
        load(&file)
    }

    #[test]
    fn facts_are_read_from_yaml_and_from_json() {
        let yaml = "arch: arm64\ndistro: {id: debian, versionID: \"12\"}\nnew: field\n\
                    cloud:\n  aws:\n    instanceID: i-1\n    region: eu-west-1\n    localIPv4: 10.0.0.1\n";
        let facts = read(yaml).unwrap();
        assert_eq!(facts.arch, Architecture::Arm64);
        assert_eq!(facts.cloud.aws.as_ref().unwrap().local_ipv4, "10.0.0.1");
        let json = serde_json::to_string(&facts).unwrap();
        assert_eq!(read(&json).unwrap(), facts);
        assert_eq!(read(&serde_yaml::to_string(&facts).unwrap()).unwrap(), facts);
    }

    #[test]
    fn a_wrong_fact_is_named_with_its_path_and_file() {
        for (text, expected) in [
            ("arch: amd64\ndistro: {id: [debian]}", "field distro.id of "),
            ("arch: riscv64\ndistro: {id: debian}", "field arch of "),
            ("arch: amd64\ndistro: {id: debian}\ncloud: {aws: {instanceID: i-1}}", "region"),
            ("arch: amd64", "distro"),
            ("- arch", "but should be a YAML mapping"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.is::<SpecError>(), "{error:?}");
            let error = error.to_string();
            assert!(error.contains(expected) && error.contains("facts.yaml"), "{error}");
        }
    }

    #[test]
    fn a_file_of_facts_that_is_not_there_is_named() {
        let error = load(Path::new("/nowhere/facts.yaml")).unwrap_err();
        assert!(format!("{error:#}").starts_with("reading the facts /nowhere/facts.yaml: "), "{error:#}");
    }

    #[tokio::test]
    async fn without_a_cloud_only_the_machine_is_observed() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/os-release"), "ID=debian\nVERSION_ID=12\n").unwrap();
        for provider in [None, Some(CloudProvider::Metal)] {
            let facts = observe(root.path(), provider).await.unwrap();
            assert_eq!((facts.distro.id.as_str(), facts.cloud), ("debian", CloudFacts::default()));
        }
    }
}
