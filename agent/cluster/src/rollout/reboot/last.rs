//! The last order to reboot that the controller has written into a Node. It limits how often the policy reboots the node.

use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};

use super::has_ended;
use crate::fleet::annotation::{Annotation, SCHEMA_VERSION};
use crate::fleet::is_boot_id;
use crate::rollout::{Member, Order};
use kops_agent_spec::{parse_timestamp, timestamp};

/// A Node's annotation with a [`LastReboot`]. The controller writes this annotation before it writes the order to reboot.
pub const LAST_REBOOT: &str = "kops-agent/last-reboot";
/// Maximum length of a rollout's ID, in bytes.
const LONGEST_ID: usize = 200;

/// The last order to reboot a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LastReboot {
    schema_version: u32,
    /// The ID of the order's rollout.
    rollout: String,
    /// The ID of the boot that the ordered reboot ends.
    #[serde(rename = "bootID")]
    boot_id: String,
    /// When the order was written, in RFC 3339, by the controller's clock.
    at: String,
}

impl LastReboot {
    pub fn new(order: &Order) -> LastReboot {
        LastReboot {
            schema_version: SCHEMA_VERSION,
            rollout: order.rollout.clone(),
            boot_id: order.boot_id.clone(),
            at: order.at.clone(),
        }
    }

    /// The annotation's value. `None` if readers would reject the value.
    pub fn value(&self) -> Option<String> {
        self.written()
    }

    /// Parses an annotation's value; `None` if the value does not have the form that [`LastReboot::value`] writes.
    pub fn read(value: &str) -> Option<LastReboot> {
        LastReboot::parsed(value).ok()
    }

    /// Why the policy does not reboot this member now; `None` if it may reboot the member. `current` is the ID of the policy's rollout if
    /// this rollout is not over, and `interval` is the time between two reboots.
    pub(in crate::rollout) fn holds(
        &self,
        member: &Member,
        current: Option<&str>,
        interval: Duration,
        now: OffsetDateTime,
    ) -> Option<String> {
        // If this boot has not ended, the node has not rebooted for the order, for example because the order was withdrawn. So the order
        // delays no reboot.
        if !has_ended(member, &self.boot_id) {
            return None;
        }
        let next = parse_timestamp(&self.at).and_then(|at| at.checked_add(interval));
        match next {
            Some(next) if now < next => Some(format!(
                "it rebooted for the order given at {} and requires a reboot again; the policy reboots it \
                 at {} or later (rebootInterval)",
                self.at,
                timestamp(next)
            )),
            _ if current == Some(self.rollout.as_str()) => Some(format!(
                "it has rebooted in the rollout {} already, and requires a reboot again; it waits for the end of that rollout",
                self.rollout
            )),
            _ => None,
        }
    }
}

impl Annotation for LastReboot {
    const NAME: &'static str = LAST_REBOOT;
    const LONGEST: usize = 1024;

    fn schema_version(&self) -> u32 {
        self.schema_version
    }

    fn is_bounded(&self) -> bool {
        self.rollout.len() <= LONGEST_ID && is_boot_id(&self.boot_id) && parse_timestamp(&self.at).is_some()
    }
}
