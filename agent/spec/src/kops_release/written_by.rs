//! The kOps release that wrote a configuration, and the evidence for it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::NodeupConfig;
use crate::invalid::Invalid;
use crate::urls::hash_and_urls;

use super::{KopsRelease, NEWEST_KNOWN_MINOR, OLDEST_SUPPORTED_MINOR, minor_of, patches};

/// The environment variable with the kOps version. It is for machines on which no other source has the version.
pub const VARIABLE: &str = "KOPS_AGENT_KOPS_VERSION";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", into = "Shown")]
pub struct WrittenBy {
    /// The release whose rules apply to the node.
    pub release: KopsRelease,
    /// The full version, such as `1.35.2`. `None` if only the configuration's fields show the release.
    pub version: Option<String>,
    pub evidence: Evidence,
}

/// The JSON form of a [`WrittenBy`].
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    release: KopsRelease,
    version: Option<String>,
    evidence: Evidence,
    known: bool,
}

impl From<WrittenBy> for Shown {
    fn from(written_by: WrittenBy) -> Shown {
        let known = written_by.is_known();
        let WrittenBy { release, version, evidence } = written_by;
        Shown { release, version, evidence, known }
    }
}

/// A kOps version from a source outside the node's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub version: String,
    pub by: Evidence,
}

impl Told {
    /// The version in the text of `kops-version.txt`.
    pub fn by_version_file(text: String) -> Told {
        Told { version: text, by: Evidence::VersionFile }
    }

    /// The version in the URLs from which a machine's user-data downloads nodeup. `None` if no URL has a version.
    pub fn by_user_data(nodeup_urls: &[String]) -> Option<Told> {
        let version = nodeup_urls.iter().find_map(|url| version_of_url(url))?;
        Some(Told { version: version.to_owned(), by: Evidence::UserData })
    }
}

/// The source that shows the kOps release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Evidence {
    /// `kops-version.txt` in the state store.
    VersionFile,
    /// The response of kops-agent's controller, which reads `kops-version.txt`.
    KopsController,
    /// The URL of nodeup in the machine's user-data.
    UserData,
    /// The environment variable [`VARIABLE`].
    Variable,
    /// The URL of one of kOps' programs among the downloads.
    Downloads,
    /// Fields of the configuration that only some releases write.
    Fields,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::VersionFile => "kops-version.txt of the state store",
            Evidence::KopsController => "kops-controller",
            Evidence::UserData => "the URL of nodeup in the user-data",
            Evidence::Variable => VARIABLE,
            Evidence::Downloads => "the URLs of kOps' programs among the downloads",
            Evidence::Fields => "the fields of the node's configuration",
        })
    }
}

/// Formats one line: the version, its source, and a note if this kops-agent does not know the version.
impl fmt::Display for WrittenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrittenBy { release, version, evidence } = self;
        match version {
            Some(version) => write!(f, "kOps {version}, told by {evidence}")?,
            None if release.is_ambiguous() => {
                return write!(f, "kOps {release}, told by {evidence}; the exact version is unknown");
            }
            None => {
                return write!(
                    f,
                    "kOps {release} or newer, because no file, download or field shows an older release; the exact \
                     version is unknown"
                );
            }
        }
        if !self.is_known() {
            write!(
                f,
                "; it is UNKNOWN to this kops-agent, which knows kOps 1.{OLDEST_SUPPORTED_MINOR} to \
                 1.{NEWEST_KNOWN_MINOR} and applies the rules of kOps {release}"
            )?;
        }
        Ok(())
    }
}

impl WrittenBy {
    /// Finds the release that wrote this configuration. `told` is the version from the most reliable source outside the configuration.
    ///
    /// The configuration has priority over `told`: a newer kOps may have rewritten the store, while this machine still uses the
    /// configuration that its user-data pins. Fails if the release is older than the oldest supported release.
    pub fn find(told: Option<&Told>, config: &NodeupConfig) -> Result<WrittenBy, Invalid> {
        if let Some(version) = version_of_downloads(config) {
            return WrittenBy::of_version(&version, Evidence::Downloads);
        }
        if let Some(Told { version, by }) = told {
            let written_by = WrittenBy::of_version(version.trim(), *by)?;
            if written_by.release.may_have_written(config) {
                return Ok(written_by);
            }
        }
        Ok(WrittenBy { release: KopsRelease::of_fields(config), version: None, evidence: Evidence::Fields })
    }

    /// The release that wrote the current contents of the store, from `kops-version.txt`. If the file is missing, returns the newest known
    /// release.
    pub fn of_store(version_file: Option<&str>) -> Result<WrittenBy, Invalid> {
        match version_file {
            Some(version) => WrittenBy::of_version(version.trim(), Evidence::VersionFile),
            None => Ok(WrittenBy { release: KopsRelease::NEWEST, version: None, evidence: Evidence::Fields }),
        }
    }

    fn of_version(version: &str, evidence: Evidence) -> Result<WrittenBy, Invalid> {
        let release =
            KopsRelease::of_version(version).map_err(|problem| format!("{problem} ({evidence})"))?;
        Ok(WrittenBy { release, version: Some(version.to_owned()), evidence })
    }

    /// False if the full version is unknown, or if this kops-agent does not know the rules of the version's release.
    pub fn is_known(&self) -> bool {
        let minor = self.version.as_deref().and_then(minor_of);
        minor.is_some_and(|minor| (OLDEST_SUPPORTED_MINOR..=NEWEST_KNOWN_MINOR).contains(&minor))
    }

    /// A warning if the release is unknown, or if the patch release makes nodes that differ from kops-agent's nodes.
    pub fn warning(&self) -> Option<String> {
        let newest = KopsRelease::NEWEST;
        match &self.version {
            Some(version) if !self.is_known() => Some(format!(
                "kOps {version} is newer than this kops-agent knows, so the rules of kOps {newest} apply to this node"
            )),
            None if self.release.is_ambiguous() => Some(format!(
                "the kOps release that wrote this configuration is unknown, so the rules of kOps {0} apply to this node: \
                 the fields of the configuration fit kOps {0}. The state store, kops-controller, the user-data and the \
                 downloads name no release that fits these fields. If another kOps release wrote the configuration, \
                 set {VARIABLE} in /etc/environment to the version of that release",
                self.release
            )),
            Some(version) => patches::difference(version),
            None => None,
        }
    }
}

fn version_of_downloads(config: &NodeupConfig) -> Option<String> {
    let entries = config.assets.values().flatten();
    let mut urls = entries.flat_map(|entry| hash_and_urls(entry).1.split(','));
    urls.find_map(version_of_url).map(str::to_owned)
}

/// The version in the URL of one of kOps' programs, such as `…/kops/1.35.2/linux/amd64/protokube`. The URL of a copy in the cluster's
/// file repository ends with the same path, so the version is also found in this URL.
fn version_of_url(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("/kops/")?;
    let (version, rest) = rest.split_once('/')?;
    (rest.starts_with("linux/") && minor_of(version).is_some()).then_some(version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config(text: &str) -> NodeupConfig {
        NodeupConfig::parse(text.as_bytes(), "nodeupconfig.yaml").unwrap()
    }

    fn find(version_file: Option<&str>, config: &NodeupConfig) -> Result<WrittenBy, Invalid> {
        let told = version_file.map(|text| Told::by_version_file(text.to_owned()));
        WrittenBy::find(told.as_ref(), config)
    }

    fn found(version_file: Option<&str>, text: &str) -> (String, Evidence) {
        let written_by = find(version_file, &config(text)).unwrap();
        (written_by.release.to_string(), written_by.evidence)
    }

    #[test]
    fn evidence_is_used_in_order_of_downloads_version_file_and_fields() {
        let protokube = "Assets: {amd64: ['00@https://repo.example.com/binaries/kops/1.34.3/linux/amd64/protokube,https://x/y']}";
        assert_eq!(found(Some("1.36.2\n"), protokube), ("1.34".into(), Evidence::Downloads));
        let worker = "usesLegacyGossip: false";
        assert_eq!(found(Some("1.35.2\n"), worker), ("1.35".into(), Evidence::VersionFile));
        assert_eq!(
            found(Some("1.37.0"), worker),
            ("1.36".into(), Evidence::Fields),
            "the store has been rewritten"
        );
        assert_eq!(found(None, "usesLegacyGossip: false"), ("1.36".into(), Evidence::Fields));
    }

    #[test]
    fn the_release_is_inferred_from_fields() {
        for (text, release) in [
            ("{}", "1.37"),
            ("usesLegacyGossip: true", "1.36"),
            ("{usesLegacyGossip: false, channels: [s3://a/b]}", "1.35"),
            ("{usesLegacyGossip: false, KubernetesVersion: 1.30.4}", "1.35"),
            ("{usesLegacyGossip: false, KubernetesVersion: 1.31.0}", "1.36"),
            ("{usesLegacyGossip: false, KubeletConfig: {podInfraContainerImage: pause}}", "1.34"),
        ] {
            assert_eq!(found(None, text).0, release, "{text}");
        }
    }

    #[test]
    fn a_version_that_cannot_have_written_the_fields_is_ignored() {
        const OF_1_34: &str = "{usesLegacyGossip: false, KubeletConfig: {podInfraContainerImage: pause}}";
        for (told, text, release, evidence) in [
            ("1.34.2", OF_1_34, "1.34", Evidence::VersionFile),
            ("1.35.2", OF_1_34, "1.34", Evidence::Fields),
            ("1.36.2", "{usesLegacyGossip: false, channels: [s3://a/b]}", "1.35", Evidence::Fields),
            ("1.36.2", "{usesLegacyGossip: false, KubernetesVersion: 1.30.4}", "1.35", Evidence::Fields),
            ("1.35.2", "{}", "1.37", Evidence::Fields),
            (
                "1.35.2",
                "{usesLegacyGossip: false, KubeletConfig: {podInfraContainerImage: own}, containerdConfig: {sandboxImage: own}}",
                "1.35",
                Evidence::VersionFile,
            ),
        ] {
            assert_eq!(found(Some(told), text), (release.into(), evidence), "{told} {text}");
        }
    }

    #[test]
    fn the_version_is_read_from_nodeups_url_in_user_data() {
        let told = |urls: &[&str]| {
            let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
            Told::by_user_data(&urls).map(|told| told.version)
        };
        let published = "https://artifacts.k8s.io/binaries/kops/1.35.2/linux/amd64/nodeup";
        assert_eq!(told(&[published]).as_deref(), Some("1.35.2"));
        assert_eq!(told(&["https://mirror.example.com/nodeup", published]).as_deref(), Some("1.35.2"));
        assert_eq!(told(&["https://mirror.example.com/kops/latest/linux/amd64/nodeup"]), None);
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn old_releases_are_rejected_and_new_ones_give_a_warning() {
        let worker = config("usesLegacyGossip: false");
        let refused = find(Some("1.33.1"), &worker).unwrap_err().to_string();
        assert!(refused.contains("kOps 1.33.1") && refused.contains("1.34 and newer"), "{refused}");
        for nonsense in ["", "latest", "2.36.0"] {
            assert!(find(Some(nonsense), &config("{}")).is_err(), "{nonsense}");
        }
        let newer = find(Some("1.40.0-alpha.1"), &config("{}")).unwrap();
        assert_eq!(newer.release, KopsRelease::NEWEST);
        assert!(newer.warning().unwrap().contains("1.40.0-alpha.1"));
        assert_eq!(find(Some("1.35.2"), &worker).unwrap().warning(), None);
        let older = find(Some("1.35.0"), &worker).unwrap().warning().unwrap();
        assert!(older.contains("kops-agent uses the rules of kOps 1.35.2"), "{older}");
    }

    #[test]
    fn text_and_json_report_whether_the_release_is_known() {
        let shown = |version_file, text: &str| {
            let written_by = find(version_file, &config(text)).unwrap();
            let json = serde_json::to_value(&written_by).unwrap();
            assert_eq!(serde_json::from_value::<WrittenBy>(json.clone()).unwrap(), written_by);
            (written_by.to_string(), json)
        };
        let (text, json) = shown(Some("1.36.2"), "usesLegacyGossip: false");
        assert_eq!(text, "kOps 1.36.2, told by kops-version.txt of the state store");
        let known = serde_json::json!({"release": "1.36", "version": "1.36.2", "evidence": "versionFile", "known": true});
        assert_eq!(json, known);
        let (text, json) = shown(Some("1.40.1"), "{}");
        assert!(
            text.contains("kOps 1.40.1") && text.contains("UNKNOWN") && text.contains("1.34 to 1.37"),
            "{text}"
        );
        assert_eq!((&json["release"], &json["known"]), (&"1.37".into(), &false.into()));
        for (fields, release) in [("usesLegacyGossip: false", "kOps 1.36, "), ("{}", "kOps 1.37 or newer, ")]
        {
            let (text, json) = shown(None, fields);
            assert!(text.starts_with(release) && text.ends_with("the exact version is unknown"), "{text}");
            assert_eq!((&json["version"], &json["known"]), (&serde_json::Value::Null, &false.into()));
        }
    }

    #[test]
    fn an_inferred_ambiguous_release_gives_a_warning() {
        let guessed = find(None, &config("usesLegacyGossip: false")).unwrap();
        assert!(guessed.warning().unwrap().contains("1.36"));
        assert_eq!(find(None, &config("{}")).unwrap().warning(), None);
    }
}
