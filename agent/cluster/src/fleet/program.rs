//! The report of a node about the kops-agent that it runs. Two builds of one version differ in their SHA-256.

use kops_agent_spec::digest::is_sha256_hex;
use serde::{Deserialize, Serialize};

use super::annotation::{Annotation, SCHEMA_VERSION};

/// The annotation with the [`ProgramReport`].
pub const PROGRAM: &str = "kops-agent/program";
/// Maximum length of a version, in bytes.
const LONGEST_VERSION: usize = 200;

/// The kops-agent that a node runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProgramReport {
    schema_version: u32,
    /// The same as in the annotation with the agent's version. A kops-agent that does not report its program changes only that
    /// annotation.
    version: String,
    /// SHA-256 of the program, in lower-case hexadecimal digits.
    sha256: String,
}

impl ProgramReport {
    pub fn new(version: &str, sha256: &str) -> ProgramReport {
        let schema_version = SCHEMA_VERSION;
        ProgramReport { schema_version, version: version.to_owned(), sha256: sha256.to_owned() }
    }

    /// The annotation's value. `None` if readers would reject the value.
    pub fn value(&self) -> Option<String> {
        self.written()
    }
}

impl Annotation for ProgramReport {
    const NAME: &'static str = PROGRAM;
    const LONGEST: usize = 1024;

    fn schema_version(&self) -> u32 {
        self.schema_version
    }

    fn is_bounded(&self) -> bool {
        is_sha256_hex(&self.sha256) && (1..=LONGEST_VERSION).contains(&self.version.len())
    }
}

/// The SHA-256 of the kops-agent that follows rollouts on a node. `None` if the node has not reported it, or if the last report came
/// from a version that does not report its program. `agent_version` is the Node's annotation with the agent's version.
pub fn reported_program(annotation: &str, agent_version: &str) -> Option<String> {
    let report = ProgramReport::parsed(annotation).ok()?;
    (report.version == agent_version).then_some(report.sha256)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_report_counts_while_the_node_reports_the_same_version() {
        let sha256 = "a".repeat(64);
        let value = ProgramReport::new("0.2.0 (abc)", &sha256).value().unwrap();
        assert_eq!(reported_program(&value, "0.2.0 (abc)"), Some(sha256.clone()));
        for (value, version) in [
            (value.as_str(), "0.1.0 (abc)"),
            (&value.replace("aa", "AA"), "0.2.0 (abc)"),
            (&value.replace("\"schemaVersion\":1", "\"schemaVersion\":2"), "0.2.0 (abc)"),
            ("", ""),
        ] {
            assert_eq!(reported_program(value, version), None, "{value} {version}");
        }
        assert_eq!(ProgramReport::new("0.2.0", "abc").value(), None);
    }
}
