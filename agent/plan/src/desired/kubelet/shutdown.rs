//! A setting that makes a shutdown wait for pods as long as kubelet requests.
//!
//! kubelet asks logind to delay a shutdown by `shutdownGracePeriod`. If logind allows less, kubelet writes `99-kubelet.conf`
//! (pkg/kubelet/nodeshutdown/nodeshutdown_manager_linux.go). logind sorts its files by name, whatever their directories.
//! `unattended-upgrades-logind-maxdelay.conf` of Debian's and Ubuntu's package sorts later, so its limit of 30 seconds applies.
//! If `shutdownGracePeriod` is longer than this limit, kubelet does not wait for pods at all.

use crate::resource::{DesiredState, File};
use kops_agent_spec::Duration;

/// logind uses the setting of the file whose name sorts last. Packages are unlikely to use a name that sorts after this name.
const PATH: &str = "/etc/systemd/logind.conf.d/zz-kops-agent-shutdown.conf";
const UNATTENDED_UPGRADES: Duration = Duration::from_seconds(30);

/// If the grace period is longer than 30 s, adds a logind file that allows a shutdown delay of the whole period. The logind file of the
/// package unattended-upgrades allows only 30 s.
pub(super) fn add(grace_period: Option<Duration>, state: &mut DesiredState) {
    let Some(period) = grace_period.filter(|period| *period > UNATTENDED_UPGRADES) else { return };
    // kubelet compares logind's limit with the exact period, so a fraction of a second rounds up.
    let has_fraction = period > Duration::from_nanoseconds(period.seconds() * 1_000_000_000);
    let text = format!("[Login]\nInhibitDelayMaxSec={}\n", period.seconds() + i64::from(has_fraction));
    // logind reloads its files on SIGHUP, which kubelet also sends (pkg/kubelet/nodeshutdown/systemd/inhibit_linux.go).
    let reload = ["systemctl", "kill", "--signal=HUP", "systemd-logind.service"];
    state.add(File::text(PATH, text).on_change(&reload));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{Kind, Resource, ResourceId};

    #[test]
    fn a_longer_shutdown_delay_than_the_packages_is_allowed() {
        for (period, text) in [
            (None, None),
            (Some(0), None),
            (Some(30_000_000_000), None),
            (Some(30_000_000_001), Some("[Login]\nInhibitDelayMaxSec=31\n")),
            (Some(90_500_000_000), Some("[Login]\nInhibitDelayMaxSec=91\n")),
            (Some(120_000_000_000), Some("[Login]\nInhibitDelayMaxSec=120\n")),
        ] {
            let mut state = DesiredState::default();
            add(period.map(Duration::from_nanoseconds), &mut state);
            let file = state.get(&ResourceId::new(Kind::File, PATH)).map(|resource| match resource {
                Resource::File(file) => file.content.in_clear().unwrap_or_default(),
                other => panic!("{other:?}"),
            });
            assert_eq!(file.as_deref(), text, "{period:?}");
        }
    }
}
