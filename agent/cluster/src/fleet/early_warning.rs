//! Early warnings: conditions of a Node for problems of its machine that become failures if nobody acts. Kubernetes has no conditions for
//! these problems. A node reports its early warnings together with the condition `KopsConfigured`.

use kops_agent_spec::redaction::Redactor;
use kops_agent_spec::terminal::shortened;

/// The condition of a node on which a file system is almost full.
pub const DISK_PRESSURE_SOON: &str = "KopsAgentDiskPressureSoon";
/// The condition of a node whose clock is not synchronized by a time service.
pub const CLOCK_UNSYNCHRONIZED: &str = "KopsAgentClockUnsynchronized";
/// The condition of a node with a certificate that was not renewed in time.
pub const CERTIFICATE_EXPIRES_SOON: &str = "KopsAgentCertificateExpiresSoon";
/// The types of all early warnings. The types must not change, because alerts select conditions by type.
pub const EARLY_WARNINGS: [&str; 3] = [DISK_PRESSURE_SOON, CLOCK_UNSYNCHRONIZED, CERTIFICATE_EXPIRES_SOON];

/// Maximum length of a message, in characters. Every client that lists Nodes gets this text.
const LONGEST_MESSAGE: usize = 500;

macro_rules! reasons {
    ($($reason:ident => $status:literal)+) => {
        /// The reason of an early warning. Reasons must not change, because alerts and scripts read them. Each reason belongs to one
        /// status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum WarningReason {
            $($reason,)+
        }

        impl WarningReason {
            pub const ALL: &[WarningReason] = &[$(WarningReason::$reason),+];

            /// The value of `reason` in the condition.
            pub fn name(self) -> &'static str {
                match self {
                    $(WarningReason::$reason => stringify!($reason),)+
                }
            }

            /// The status of a condition with this reason. `True` is a problem.
            pub fn status(self) -> &'static str {
                match self {
                    $(WarningReason::$reason => $status,)+
                }
            }
        }
    };
}

reasons! {
    DiskSpaceLow => "True"
    InodesLow => "True"
    DiskSpaceSufficient => "False"
    ClockNotSynchronized => "True"
    ClockSynchronized => "False"
    CertificateExpired => "True"
    CertificateNotRenewed => "True"
    CertificatesValid => "False"
    NotObserved => "Unknown"
}

/// A condition of a Node that is an early warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyWarning {
    /// The type of the condition, one of [`EARLY_WARNINGS`].
    pub condition: &'static str,
    pub reason: WarningReason,
    /// One line without secrets.
    pub message: String,
}

impl EarlyWarning {
    /// An early warning. Credentials in the message are hidden, and a long message is cut, because many users can read Nodes.
    pub fn new(condition: &'static str, reason: WarningReason, message: &str) -> EarlyWarning {
        let message = shortened(&Redactor::default().text(message), LONGEST_MESSAGE);
        EarlyWarning { condition, reason, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_short_line_without_credentials() {
        let long = format!("https://user:sesame@mirror/x\n{}", "ä".repeat(9000));
        let warning = EarlyWarning::new(DISK_PRESSURE_SOON, WarningReason::NotObserved, &long);
        assert!(!warning.message.contains("sesame") && !warning.message.contains('\n'), "{warning:?}");
        assert_eq!(warning.message.chars().count(), LONGEST_MESSAGE);
    }

    #[test]
    fn only_an_unknown_state_has_the_status_unknown() {
        for reason in WarningReason::ALL {
            let is_unknown = *reason == WarningReason::NotObserved;
            assert_eq!(reason.status() == "Unknown", is_unknown, "{reason:?}");
            assert!(["True", "False", "Unknown"].contains(&reason.status()), "{reason:?}");
        }
    }
}
