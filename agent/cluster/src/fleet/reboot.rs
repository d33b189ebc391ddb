//! The report of a node that it requires a reboot. An annotation of its Node has the reasons, and the ID of the boot in which
//! the node observed them. After a reboot, the reasons of the earlier boot do not count.

use kops_agent_spec::terminal::one_line;
use serde::{Deserialize, Serialize};

/// The annotation with the [`RebootReport`].
pub const REBOOT_REQUIRED: &str = "kops-agent/reboot-required";
/// The version of the annotation's form. Readers reject other versions.
const SCHEMA_VERSION: u32 = 1;
/// Maximum length of the annotation, in bytes.
const LONGEST: usize = 8192;
/// Maximum number of reasons.
const MOST_REASONS: usize = 8;
/// Maximum length of a reason, in characters.
const LONGEST_REASON: usize = 200;
/// Maximum length of a boot ID, in bytes. The kernel's has 36.
const LONGEST_BOOT_ID: usize = 64;

/// Why a node requires a reboot, if it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RebootReport {
    schema_version: u32,
    #[serde(rename = "bootID")]
    boot_id: String,
    /// Empty if the node requires no reboot.
    reasons: Vec<String>,
}

impl RebootReport {
    /// The report of a node in this boot. Empty reasons mean that no reboot is required.
    pub fn new(boot_id: &str, reasons: &[String]) -> RebootReport {
        let reasons = reasons.iter().take(MOST_REASONS).map(|reason| one_line(reason, LONGEST_REASON));
        let (schema_version, boot_id) = (SCHEMA_VERSION, boot_id.to_owned());
        RebootReport { schema_version, boot_id, reasons: reasons.collect() }
    }

    /// The annotation's value. `None` if readers would reject the value.
    pub fn value(&self) -> Option<String> {
        let value = serde_json::to_string(self).ok()?;
        RebootReport::read(&value).is_some().then_some(value)
    }

    fn read(value: &str) -> Option<RebootReport> {
        if value.len() > LONGEST {
            return None;
        }
        let report: RebootReport = serde_json::from_str(value).ok()?;
        let is_reason = |reason: &String| !reason.is_empty() && *reason == one_line(reason, LONGEST_REASON);
        let is_whole = report.schema_version == SCHEMA_VERSION
            && (1..=LONGEST_BOOT_ID).contains(&report.boot_id.len())
            && report.reasons.len() <= MOST_REASONS
            && report.reasons.iter().all(is_reason);
        is_whole.then_some(report)
    }
}

/// Why a node requires a reboot; empty if it requires none. `None` if it has not said so in its present boot, whose ID its
/// kubelet reports. A kubelet can write any value into its own Node.
pub fn reboot_required(annotation: &str, boot_id: &str) -> Option<Vec<String>> {
    let report = RebootReport::read(annotation)?;
    (report.boot_id == boot_id).then_some(report.reasons)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reasons_count_until_the_next_boot() {
        let reasons = vec!["packages ask for it: libc6".to_owned()];
        let value = RebootReport::new("b1", &reasons).value().unwrap();
        assert_eq!(reboot_required(&value, "b1"), Some(reasons));
        assert_eq!(reboot_required(&value, "b2"), None);
        let none = RebootReport::new("b1", &[]).value().unwrap();
        assert_eq!(reboot_required(&none, "b1"), Some(Vec::new()));
        for other in ["", "{}", &value.replace("1", "2"), &value.replace("libc6", "\\u001b[2J")] {
            assert_eq!(reboot_required(other, "b1"), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn every_report_is_read_as_written(reasons in proptest::collection::vec(".{0,400}", 0..20)) {
            let report = RebootReport::new("b1", &reasons);
            let has_words = report.reasons.iter().all(|reason| !reason.is_empty());
            prop_assert_eq!(report.value().is_some(), has_words);
        }

        #[test]
        fn anything_is_read(value in any::<String>()) {
            let _ = RebootReport::read(&value);
        }
    }
}
