//! The Prometheus metrics of `addons run`.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use kops_agent_cluster::addons::Addon;

use super::CONTEST;
use super::round::{Round, State};
use crate::metrics::register_build;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct OfAddon {
    addon: String,
    channel: String,
}

impl OfAddon {
    fn new(addon: &Addon) -> OfAddon {
        OfAddon { addon: addon.name.clone(), channel: addon.channel.clone() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfChannel {
    channel: String,
}

/// The metrics of this process. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct AddonMetrics {
    due: Family<OfAddon, Gauge>,
    failures: Family<OfAddon, Counter>,
    last_success: Family<OfAddon, Gauge>,
    readable: Family<OfChannel, Gauge>,
    /// The add-ons that have metrics.
    known: Arc<Mutex<BTreeSet<OfAddon>>>,
    /// Whether this process holds the Lease.
    pub leads: Gauge,
    /// Whether this machine's Node had the control-plane labels at the last check.
    pub node_is_labelled: Gauge,
}

impl AddonMetrics {
    /// Updates the metrics from a round; `now` is in seconds since 1970. If the round could not determine a value, the metric stays
    /// unchanged.
    pub fn note(&self, round: &Round, now: i64) {
        for (channel, read) in &round.channels {
            let of_channel = OfChannel { channel: channel.clone() };
            self.readable.get_or_create(&of_channel).set(i64::from(read.is_ok()));
        }
        let seen: BTreeSet<OfAddon> = round.addons.iter().map(|(addon, _)| OfAddon::new(addon)).collect();
        for (addon, state) in &round.addons {
            let of_addon = OfAddon::new(addon);
            // Create the counter now, so that it exports 0 before the first failure.
            let failures = self.failures.get_or_create_owned(&of_addon);
            if let State::Failed(..) = state {
                failures.inc();
            }
            match state {
                State::Unknown(_) => {}
                State::Paused(_) => {
                    self.due.get_or_create(&of_addon).set(0);
                }
                State::Failed(..) | State::Waiting(_) => {
                    self.due.get_or_create(&of_addon).set(1);
                }
                State::Current | State::Applied(_) => {
                    self.due.get_or_create(&of_addon).set(0);
                    self.last_success.get_or_create(&of_addon).set(now);
                }
            }
        }
        let is_read = |channel: &str| round.channels.get(channel).is_some_and(Result::is_ok);
        self.forget(|known| is_read(&known.channel) && !seen.contains(known));
        self.known.lock().extend(seen);
    }

    /// Removes all add-ons and channels from the metrics, because another process applies the add-ons now.
    pub fn clear(&self) {
        self.forget(|_| true);
        self.readable.clear();
    }

    fn forget(&self, is_gone: impl Fn(&OfAddon) -> bool) {
        self.known.lock().retain(|known| {
            let is_gone = is_gone(known);
            if is_gone {
                self.due.remove(known);
                self.failures.remove(known);
                self.last_success.remove(known);
            }
            !is_gone
        });
    }

    /// Registers the metrics with their help texts. `labels_node`: whether this process labels a Node.
    pub fn registry(&self, labels_node: bool) -> Registry {
        let mut registry = Registry::default();
        registry.register(
            "kops_agent_addon_due",
            "Whether an add-on differs from its channel after an attempt to apply it",
            self.due.clone(),
        );
        registry.register(
            "kops_agent_addon_failures",
            "Failed attempts to apply an add-on since this process leads",
            self.failures.clone(),
        );
        registry.register(
            "kops_agent_addon_last_success_seconds",
            "When an add-on was last found or made current, in seconds since 1970",
            self.last_success.clone(),
        );
        registry.register(
            "kops_agent_addon_channel_readable",
            "Whether the last read of a channel of add-ons succeeded",
            self.readable.clone(),
        );
        if labels_node {
            registry.register(
                "kops_agent_addons_node_labelled",
                "Whether this machine's Node had the labels of a control plane at the last check",
                self.node_is_labelled.clone(),
            );
        }
        registry.sub_registry_with_label(("name".into(), CONTEST.lease.into())).register(
            "leader_election_master_status",
            "Whether this process holds the Lease kops-agent-addons",
            self.leads.clone(),
        );
        register_build(&mut registry);
        registry
    }
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use kops_agent_cluster::addons::{Channel, Report, ServerVersion};
    use kops_agent_spec::failure::{Failure, Kind};
    use kops_agent_spec::kops_release::KopsRelease;

    use super::*;
    use crate::metrics::text;

    const URL: &str = "s3://b/channel.yaml";

    fn round(addons: &[(&str, State)]) -> Round {
        let named: String =
            addons.iter().map(|(name, _)| format!("{{name: {name}, manifest: m}}, ")).collect();
        let channel = Channel::parse(
            format!("{{kind: Addons, spec: {{addons: [{named}]}}}}").as_bytes(),
            URL,
            KopsRelease::NEWEST,
        );
        let menu = channel.unwrap().menu(ServerVersion::parse("v1.36.0").unwrap());
        let states = addons.iter().map(|(_, state)| state.clone());
        Round {
            problem: None,
            channels: [(URL.to_owned(), Ok(Vec::new()))].into(),
            others: Vec::new(),
            addons: menu.addons.into_iter().zip(states).collect(),
        }
    }

    /// The text of a registry in which each metric has a value.
    pub fn every_metric() -> String {
        let metrics = AddonMetrics::default();
        metrics.note(&round(&[("a", State::Current)]), 1);
        text(&metrics.registry(true))
    }

    #[test]
    fn each_add_on_has_its_own_and_none_that_left_its_channel() {
        let metrics = AddonMetrics::default();
        let failed = || State::Failed("no".into(), Duration::ZERO);
        metrics.note(&round(&[("a", State::Applied(Report::default())), ("b", failed())]), 100);
        metrics.note(&round(&[("a", State::Unknown("?".into())), ("b", failed())]), 200);
        let shown = text(&metrics.registry(false));
        let labels = |name: &str| format!(r#"{{addon="{name}",channel="{URL}"}}"#);
        for line in [
            format!("kops_agent_addon_due{} 0", labels("a")),
            format!("kops_agent_addon_due{} 1", labels("b")),
            format!("kops_agent_addon_failures_total{} 2", labels("b")),
            format!("kops_agent_addon_failures_total{} 0", labels("a")),
            format!("kops_agent_addon_last_success_seconds{} 100", labels("a")),
            format!(r#"kops_agent_addon_channel_readable{{channel="{URL}"}} 1"#),
            r#"leader_election_master_status{name="kops-agent-addons"} 0"#.to_owned(),
        ] {
            assert!(shown.contains(&line), "{line} is not in:\n{shown}");
        }
        assert!(
            !shown.contains(&format!("last_success_seconds{}", labels("b")))
                && !shown.contains("node_labelled")
        );

        let forbidden = Err(Failure::new(Kind::StoreForbidden, "403"));
        let unread = Round { channels: [(URL.to_owned(), forbidden)].into(), ..Round::default() };
        metrics.note(&unread, 300);
        let shown = text(&metrics.registry(false));
        assert!(
            shown.contains(r#"addon="b""#) && shown.contains("readable{channel=\"s3://b/channel.yaml\"} 0"),
            "{shown}"
        );
        metrics.note(&round(&[("a", State::Current)]), 400);
        let shown = text(&metrics.registry(false));
        assert!(
            shown.contains(&format!("{} 400", labels("a"))) && !shown.contains(r#"addon="b""#),
            "{shown}"
        );
        metrics.clear();
        assert!(!text(&metrics.registry(false)).contains("channel="));
    }
}
