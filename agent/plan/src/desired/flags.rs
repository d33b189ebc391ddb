//! Command-line flags of Kubernetes' components, from the fields of kOps' component configs.
//!
//! An unset value gives no flag. As in upstream's pkg/flagbuilder, an empty string, an absent value
//! and an empty list are unset. A plain number or bool always gives a flag.
//!
//! The functions that write flags or a configuration file destructure a config without `..`. So these functions do not compile with a new
//! field until they write the field, or name the field with `_` and the reason why they do not write it.

use std::collections::BTreeMap;

use kops_agent_spec::{Duration, LeaderElectionConfiguration, Quantity};

/// A value that can be the right-hand side of a flag.
pub(super) trait FlagValue {
    /// The text after `=`. `None` if the value is unset.
    fn flag_value(&self) -> Option<String>;
}

impl FlagValue for str {
    fn flag_value(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.to_owned())
    }
}

impl FlagValue for String {
    fn flag_value(&self) -> Option<String> {
        self.as_str().flag_value()
    }
}

macro_rules! plain_flag_value {
    ($($plain:ty),+) => {
        $(impl FlagValue for $plain {
            fn flag_value(&self) -> Option<String> {
                Some(self.to_string())
            }
        })+
    };
}
plain_flag_value!(bool, i32, i64, u32, Duration);

impl FlagValue for Quantity {
    fn flag_value(&self) -> Option<String> {
        Some(self.decimal())
    }
}

impl<T: FlagValue> FlagValue for Option<T> {
    fn flag_value(&self) -> Option<String> {
        self.as_ref().and_then(FlagValue::flag_value)
    }
}

impl FlagValue for [String] {
    fn flag_value(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.join(","))
    }
}

impl FlagValue for Vec<String> {
    fn flag_value(&self) -> Option<String> {
        self.as_slice().flag_value()
    }
}

impl FlagValue for BTreeMap<String, String> {
    fn flag_value(&self) -> Option<String> {
        let pairs: Vec<String> = self.iter().map(|(key, value)| format!("{key}={value}")).collect();
        pairs.flag_value()
    }
}

/// The flags of a component. Each has the form `--name=value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(Vec<String>);

impl Flags {
    /// Adds `--name=value`, if the value is set.
    pub(super) fn set<V: FlagValue + ?Sized>(&mut self, name: &str, value: &V) {
        if let Some(value) = value.flag_value() {
            self.0.push(format!("--{name}={value}"));
        }
    }

    /// Adds `--name=value`, if the value is set and differs from `default`.
    pub(super) fn set_unless<V: FlagValue + ?Sized>(&mut self, name: &str, value: &V, default: &str) {
        if value.flag_value().is_some_and(|value| value != default) {
            self.set(name, value);
        }
    }

    /// Adds `--name=value`, if the value is `Some`, even if the text is empty.
    pub(super) fn set_even_if_empty(&mut self, name: &str, value: Option<&str>) {
        self.0.extend(value.map(|value| format!("--{name}={value}")));
    }

    /// Adds a flag `--name=value` for each value.
    pub(super) fn repeat(&mut self, name: &str, values: &[String]) {
        self.0.extend(values.iter().map(|value| format!("--{name}={value}")));
    }

    /// Adds the flags by which replicas of a component elect a leader. All components with leader election have the same flags.
    pub(super) fn set_leader_election(&mut self, config: Option<&LeaderElectionConfiguration>) {
        let Some(LeaderElectionConfiguration {
            leader_elect,
            leader_elect_lease_duration,
            leader_elect_renew_deadline_duration,
            leader_elect_resource_lock,
            leader_elect_resource_name,
            leader_elect_resource_namespace,
            leader_elect_retry_period,
        }) = config
        else {
            return;
        };
        self.set("leader-elect", leader_elect);
        self.set("leader-elect-lease-duration", leader_elect_lease_duration);
        self.set("leader-elect-renew-deadline", leader_elect_renew_deadline_duration);
        self.set("leader-elect-resource-lock", leader_elect_resource_lock);
        self.set("leader-elect-resource-name", leader_elect_resource_name);
        self.set("leader-elect-resource-namespace", leader_elect_resource_namespace);
        self.set("leader-elect-retry-period", leader_elect_retry_period);
    }

    /// The flags in sorted order. So the same configuration always gives the same command line.
    pub(super) fn into_sorted(self) -> Vec<String> {
        let mut flags = self.0;
        flags.sort();
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_values_give_no_flag() {
        let mut flags = Flags::default();
        flags.set("empty", "");
        flags.set("absent", &None::<i32>);
        flags.set("none", &Vec::<String>::new());
        flags.set_unless("logging-format", "text", "text");
        assert_eq!(flags.into_sorted(), Vec::<String>::new());
    }

    #[test]
    fn zero_values_that_are_set_give_a_flag() {
        let mut flags = Flags::default();
        flags.set("v", &0);
        flags.set("profiling", &Some(false));
        flags.set("list", &vec!["b".to_owned(), "a".to_owned()]);
        flags.set("map", &BTreeMap::from([("k".to_owned(), "v".to_owned())]));
        flags.repeat("each", &["1".to_owned(), "2".to_owned()]);
        assert_eq!(
            flags.into_sorted(),
            ["--each=1", "--each=2", "--list=b,a", "--map=k=v", "--profiling=false", "--v=0"]
        );
    }
}
