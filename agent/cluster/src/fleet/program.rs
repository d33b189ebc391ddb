//! The report of a node about the kops-agent that it runs. Two builds of one version differ in their SHA-256.

use kops_agent_spec::digest::is_sha256_hex;
use kops_agent_spec::go_yaml::is_zero;
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
    /// The agent's version. An older kops-agent writes no such report, and changes only the annotation `kops-agent/version`. So this report
    /// is stale if the annotation has a different version.
    version: String,
    /// SHA-256 of the program, in lower-case hexadecimal digits.
    sha256: String,
    /// Whether the last check of this program on the node failed or has not ended. A rollout can order the node to install a program, or
    /// only to check it. In both cases the node checks the program.
    #[serde(default, skip_serializing_if = "is_zero")]
    unchecked: bool,
}

impl ProgramReport {
    pub fn new(version: &str, sha256: &str) -> ProgramReport {
        let schema_version = SCHEMA_VERSION;
        let (version, sha256) = (version.to_owned(), sha256.to_owned());
        ProgramReport { schema_version, version, sha256, unchecked: false }
    }

    pub fn unchecked(self, unchecked: bool) -> ProgramReport {
        ProgramReport { unchecked, ..self }
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

/// The kops-agent program that follows rollouts on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedProgram {
    pub sha256: String,
    /// Whether the last check of the program on the node failed or has not ended. `false` if the program was never checked.
    pub is_unchecked: bool,
}

/// The kops-agent program that follows rollouts on a node. `None` if the node has not reported the program, or if the last report came from
/// a version that does not report its program. `agent_version` is the Node's annotation with the agent's version.
pub fn reported_program(annotation: &str, agent_version: &str) -> Option<ReportedProgram> {
    let ProgramReport { version, sha256, unchecked, .. } = ProgramReport::parsed(annotation).ok()?;
    (version == agent_version).then_some(ReportedProgram { sha256, is_unchecked: unchecked })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_report_counts_while_the_node_reports_the_same_version() {
        let sha256 = "a".repeat(64);
        let report = ProgramReport::new("0.2.0 (abc)", &sha256);
        let value = report.value().unwrap();
        let reported = ReportedProgram { sha256, is_unchecked: false };
        assert_eq!(reported_program(&value, "0.2.0 (abc)").as_ref(), Some(&reported));
        assert!(!value.contains("unchecked"), "an older controller reads no report with this field: {value}");
        let unchecked = report.unchecked(true).value().unwrap();
        let expected = ReportedProgram { is_unchecked: true, ..reported };
        assert_eq!(reported_program(&unchecked, "0.2.0 (abc)"), Some(expected));
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
