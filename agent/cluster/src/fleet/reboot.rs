//! The report of a node that it requires a reboot. An annotation of its Node has the reasons, and the ID of the boot in which
//! the node observed them. After a reboot, the reasons of the earlier boot do not count.

use kops_agent_spec::terminal::one_line;
use serde::{Deserialize, Serialize};

use super::annotation::{Annotation, SCHEMA_VERSION, is_name};

/// The annotation with the [`RebootReport`].
pub const REBOOT_REQUIRED: &str = "kops-agent/reboot-required";
const MOST_REASONS: usize = 8;
/// Maximum length of a reason, in characters.
const LONGEST_REASON: usize = 200;
/// Maximum length of a boot ID, in bytes. The kernel's boot ID has 36.
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
    /// A node's report in the boot `boot_id`. Empty `reasons` mean that no reboot is required.
    pub fn new(boot_id: &str, reasons: &[String]) -> RebootReport {
        let reasons = reasons.iter().take(MOST_REASONS).map(|reason| one_line(reason, LONGEST_REASON));
        let (schema_version, boot_id) = (SCHEMA_VERSION, boot_id.to_owned());
        RebootReport { schema_version, boot_id, reasons: reasons.collect() }
    }

    /// The annotation's value. `None` if readers would reject the value.
    pub fn value(&self) -> Option<String> {
        self.written()
    }
}

impl Annotation for RebootReport {
    const NAME: &'static str = REBOOT_REQUIRED;
    const LONGEST: usize = 8192;

    fn schema_version(&self) -> u32 {
        self.schema_version
    }

    fn is_bounded(&self) -> bool {
        let is_reason = |reason: &String| !reason.is_empty() && *reason == one_line(reason, LONGEST_REASON);
        is_boot_id(&self.boot_id) && self.reasons.len() <= MOST_REASONS && self.reasons.iter().all(is_reason)
    }
}

pub(crate) fn is_boot_id(text: &str) -> bool {
    is_name(text, LONGEST_BOOT_ID)
}

/// The boot ID that a kubelet reports. If it reports none, or a text that is not a boot ID, the result is empty (unknown). A kubelet can
/// write any text into the status of its own Node.
pub fn known_boot_id(reported: String) -> String {
    if is_boot_id(&reported) { reported } else { String::new() }
}

/// Why a node requires a reboot; empty if it requires none. `None` if the node has not reported this since its last boot, whose ID is
/// `boot_id`. An invalid report also gives `None`, because a kubelet can write any value into its own Node.
pub fn reboot_required(annotation: &str, boot_id: &str) -> Option<Vec<String>> {
    let report = RebootReport::parsed(annotation).ok()?;
    (report.boot_id == boot_id).then_some(report.reasons)
}

/// Whether the annotation of a node is a valid report about required reboots. Earlier versions of kops-agent write no such report.
pub fn reports_reboots(annotation: &str) -> bool {
    RebootReport::parsed(annotation).is_ok()
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

    #[test]
    fn another_text_than_a_boot_id_is_an_unknown_boot() {
        let longest = "b".repeat(LONGEST_BOOT_ID);
        for known in ["0f6cf5a6-4c3b-4c6e-9d0c-2d8d1f1c9a11", "b", &longest] {
            assert_eq!(known_boot_id(known.to_owned()), known);
        }
        for other in
            [String::new(), longest + "b", "b".repeat(1 << 20), "a b".into(), "a\n".into(), "ä".into()]
        {
            assert_eq!(known_boot_id(other), "");
        }
        assert_eq!(RebootReport::new("a b", &[]).value(), None);
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
            let _ = RebootReport::parsed(&value);
        }
    }
}
