//! The files that a user, or kOps itself, adds to nodes. The files are checked and decoded, and each path
//! occurs once.
//!
//! Source: nodeup/pkg/model/file_assets.go.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::Serialize;

use crate::resource::{Content, Mode};
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::{FileAssetSpec, NodeupConfig};

use super::{Problems, absolute_path};

/// Decodes base64 with and without padding. Upstream accepts only base64 without padding, but most
/// tools write padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A file that a user, or kOps itself, adds to this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileAsset {
    /// Absolute path on the node.
    pub path: String,
    pub directory: String,
    pub mode: Mode,
    pub content: Content,
}

/// The files of this node. The group's files come before the cluster's. If several files have the same
/// path, only the first is written. A file without a path goes into `default_directory`.
pub(super) fn resolve(
    config: &NodeupConfig,
    default_directory: &str,
    problems: &mut Problems,
) -> Vec<FileAsset> {
    let mut paths = BTreeSet::new();
    let mut files = Vec::new();
    for (index, spec) in config.file_assets.iter().enumerate() {
        let field = format!("FileAssets[{index}]");
        let path = if spec.path.is_empty() {
            format!("{default_directory}/{}", spec.name)
        } else {
            spec.path.clone()
        };
        if !paths.insert(path.clone()) {
            continue;
        }
        let path_field = if spec.path.is_empty() { "name" } else { "path" };
        let checked = problems.keep(&format!("{field}.{path_field}"), checked_path(&path));
        let mode = problems.keep(&format!("{field}.mode"), mode(spec));
        let content = problems.keep(&format!("{field}.content"), content(spec));
        if let (Some(()), Some(mode), Some(content)) = (checked, mode, content) {
            let directory = absolute_path::parent(&path).to_owned();
            files.push(FileAsset { path, directory, mode, content });
        }
    }
    files
}

fn checked_path(path: &str) -> Result<(), Invalid> {
    if path.ends_with('/') {
        return Err(Invalid::new(format!("{path:?} is a directory; name a file in it")));
    }
    absolute_path::check(path)
}

fn mode(spec: &FileAssetSpec) -> Result<Mode, Invalid> {
    if spec.mode.is_empty() {
        return Ok(Mode(0o440));
    }
    Mode::parse(&spec.mode).ok_or_else(|| {
        Invalid::new(format!("{:?} is not a file mode; use an octal mode such as 0644", spec.mode))
    })
}

fn content(spec: &FileAssetSpec) -> Result<Content, Invalid> {
    if !spec.is_base64 {
        return Ok(Content::Text(spec.content.clone()));
    }
    let compact: String = spec.content.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes = BASE64.decode(compact).map_err(|error| {
        format!("is not base64 ({error}), though isBase64 is set; encode it, or leave isBase64 out")
    })?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Content::Text(text),
        Err(error) => Content::Base64(base64::engine::general_purpose::STANDARD.encode(error.into_bytes())),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn resolved(yaml: &str) -> (Vec<FileAsset>, String) {
        let config =
            NodeupConfig { file_assets: serde_yaml::from_str(yaml).unwrap(), ..NodeupConfig::default() };
        let mut problems = Problems::default();
        let files = resolve(&config, "/srv/kubernetes/assets", &mut problems);
        (files, problems.to_string())
    }

    #[test]
    fn missing_fields_get_defaults() {
        let (files, problems) = resolved("[{name: a, content: x}, {path: /etc/b, mode: '0640', content: y}]");
        assert_eq!(problems, "");
        assert_eq!(
            files,
            [
                FileAsset {
                    path: "/srv/kubernetes/assets/a".into(),
                    directory: "/srv/kubernetes/assets".into(),
                    mode: Mode(0o440),
                    content: Content::Text("x".into()),
                },
                FileAsset {
                    path: "/etc/b".into(),
                    directory: "/etc".into(),
                    mode: Mode(0o640),
                    content: Content::Text("y".into()),
                },
            ]
        );
    }

    #[test]
    fn the_first_file_of_a_path_is_written() {
        let (files, _) = resolved("[{path: /etc/b, content: group}, {path: /etc/b, content: cluster}]");
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].content, Content::Text("group".into()));
    }

    #[test]
    fn base64_is_decoded_with_and_without_padding() {
        for text in ["aGk", "aGk=", "aG\\nk="] {
            let (files, problems) = resolved(&format!("[{{path: /a, isBase64: true, content: \"{text}\"}}]"));
            assert_eq!(problems, "", "{text}");
            assert_eq!(files[0].content, Content::Text("hi".into()));
        }
        let (files, _) = resolved("[{path: /a, isBase64: true, content: /w}]");
        assert_eq!(files[0].content, Content::Base64("/w==".into()));
    }

    #[test]
    fn problems_name_their_fields() {
        let (_, problems) = resolved(
            "[{path: etc/a}, {name: ../a}, {path: /a/, content: x}, {path: /b, mode: rw}, {path: /c, isBase64: true, content: '?'}]",
        );
        let fields: Vec<&str> = problems.lines().map(|line| line.split(':').next().unwrap()).collect();
        assert_eq!(
            fields,
            [
                "FileAssets[0].path",
                "FileAssets[1].name",
                "FileAssets[2].path",
                "FileAssets[3].mode",
                "FileAssets[4].content"
            ]
        );
    }
}
