//! Container images that are loaded from archives and not pulled. Clusters with an unpublished build of
//! Kubernetes need such images.
//!
//! Source: the end of `Run` in upup/pkg/fi/nodeup/command.go.

use std::collections::BTreeSet;

use crate::resource::Image;
use kops_agent_spec::NodeupConfig;
use kops_agent_spec::digest::parse_sha256;
use kops_agent_spec::facts::Architecture;

use super::Problems;

/// The images for this machine's architecture.
pub(super) fn resolve(config: &NodeupConfig, arch: Architecture, problems: &mut Problems) -> Vec<Image> {
    let mut names = BTreeSet::new();
    let mut images = Vec::new();
    for (index, spec) in config.images.get(arch.name()).into_iter().flatten().enumerate() {
        let field = format!("images.{arch}[{index}]");
        let name = spec.sources.first().map(|source| archive_name(source)).unwrap_or_default();
        if name.is_empty() {
            problems.add(format!("{field}.sources"), "names no archive; give the URL of one");
        } else if !names.insert(name.to_owned()) {
            problems.add(
                format!("{field}.sources"),
                format!("{name} is in the list twice; remove one of the two entries"),
            );
        }
        let sha256 = parse_sha256(&spec.hash);
        if sha256.is_none() {
            problems.add(format!("{field}.hash"), format!("{:?} is no SHA-256 in hexadecimal", spec.hash));
        }
        images.push(Image {
            name: name.to_owned(),
            sources: spec.sources.clone(),
            sha256: sha256.unwrap_or_default(),
        });
    }
    images
}

/// The last part of a URL's path.
fn archive_name(url: &str) -> &str {
    let path = url.split(['?', '#']).next().unwrap_or(url);
    path.split_once("://")
        .and_then(|(_, rest)| rest.split_once('/'))
        .map_or("", |(_, path)| path.rsplit('/').next().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn resolved(yaml: &str) -> (Vec<Image>, String) {
        let config = NodeupConfig { images: serde_yaml::from_str(yaml).unwrap(), ..NodeupConfig::default() };
        let mut problems = Problems::default();
        let images = resolve(&config, Architecture::Amd64, &mut problems);
        (images, problems.to_string())
    }

    #[test]
    fn images_of_this_architecture_are_named_after_their_archives() {
        let hash = "AB".repeat(32);
        let (images, problems) = resolved(&format!(
            "{{amd64: [{{name: x, sources: ['https://a/b/proxy.tar?x'], hash: {hash}}}], arm64: [{{}}]}}"
        ));
        assert_eq!(problems, "");
        assert_eq!(
            images,
            [Image {
                name: "proxy.tar".into(),
                sources: vec!["https://a/b/proxy.tar?x".into()],
                sha256: hash.to_ascii_lowercase(),
            }]
        );
    }

    #[test]
    fn images_that_cannot_be_loaded_are_rejected() {
        let hash = "ab".repeat(32);
        let (_, problems) = resolved(&format!(
            "{{amd64: [{{hash: {hash}}}, {{sources: ['https://a/b'], hash: abc}}, {{sources: ['https://c/b'], hash: {hash}}}]}}"
        ));
        assert_eq!(
            problems,
            "images.amd64[0].sources: names no archive; give the URL of one\n\
             images.amd64[1].hash: \"abc\" is no SHA-256 in hexadecimal\n\
             images.amd64[2].sources: b is in the list twice; remove one of the two entries"
        );
    }
}
