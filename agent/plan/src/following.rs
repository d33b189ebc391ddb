//! Following: a node takes the current configuration of its group, and its machine is not replaced.
//!
//! User-data pins a machine to one configuration, by the configuration's hash. It also pins the machine to the authorities that the
//! cluster had when kOps wrote the user-data. The user-data of a running machine does not change. So a node that follows stores its own
//! boot config, which replaces the boot config of the user-data, also after a reboot. If the machine gets new user-data, the stored boot
//! config no longer applies.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use kops_agent_cluster::fleet::authorities_digest;
use kops_agent_spec::BootConfig;
use kops_agent_spec::certificate::certificates;
use kops_agent_spec::digest::sha256_hex;
use kops_agent_spec::failure::{Failing, Kind};

/// The maximum number of earlier configurations that a node remembers. At a few changes a week, these are the configurations of about a
/// year.
const MOST_PAST: usize = 256;

/// Which of the group's configurations a run takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Follow {
    /// The configuration that the node already follows. If the node follows none, the configuration that its user-data pins.
    #[default]
    Stay,
    /// The group's current configuration. The node does not return to a configuration in [`Followed::past`].
    Newest,
    /// The group's current configuration, on condition that it has this hash.
    To {
        hash: String,
        /// Whether the node may return to a configuration in [`Followed::past`].
        may_go_back: bool,
        /// The digest of the authorities that the node must trust after the run. `None` if any authorities are accepted.
        authorities: Option<String>,
    },
    /// The configuration that the user-data pins.
    UserData,
}

/// The boot config that a node uses instead of the boot config in its user-data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Followed {
    /// The boot config in the user-data. A machine with different user-data does not use `boot`.
    pub user_data: BootConfig,
    /// The boot config that replaces the boot config in the user-data.
    pub boot: BootConfig,
    /// The hashes of the configurations that this node has left, the oldest first.
    pub past: Vec<String>,
    /// Digests of the authorities that this node trusted earlier and no longer trusts.
    #[serde(default)]
    pub dropped: Vec<String>,
}

/// The reason why a node does not take a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotFollowed {
    #[error(
        "cannot follow: the received boot config is for {field} {theirs:?}, but this machine's user-data \
         says {ours:?}"
    )]
    OtherNode { field: &'static str, ours: String, theirs: String },
    #[error(
        "cannot follow: the received boot config trusts none of the authorities that this node trusts now; \
         change the authorities one step at a time (`kops create keypair`, `kops promote keypair`, \
         `kops distrust keypair`), and follow after each step"
    )]
    OtherAuthorities,
    #[error("cannot follow: the received boot config pins no configuration (NodeupConfigHash is empty)")]
    Unpinned,
    #[error(
        "cannot follow {wanted}: the group's current configuration is {current}; give that hash, or --follow without a hash"
    )]
    NotCurrent { wanted: String, current: String },
    #[error(
        "cannot follow: the order names other authorities of kubernetes-ca than this node would trust. If \
         the keyset has changed since the order, run `kops update cluster --yes`. If this node reads the \
         state store instead of kops-controller, it keeps its authorities, so replace the machine"
    )]
    NotOrdered,
    #[error(
        "cannot follow: the group's current boot config again trusts an authority that this node no longer \
         trusts. To go back to this boot config, give --follow={hash}"
    )]
    Distrusted { hash: String },
    #[error(
        "cannot follow: this node has already left configuration {hash}, which is now the group's configuration. \
         To go back to it, give --follow={hash}"
    )]
    Older { hash: String },
}

impl Failing for NotFollowed {
    fn kind(&self) -> Kind {
        Kind::FollowRefused
    }
}

impl Follow {
    /// Whether the run requests the group's current configuration.
    pub fn asks_for_current(&self) -> bool {
        matches!(self, Follow::Newest | Follow::To { .. })
    }
}

impl Followed {
    /// The boot config in effect. This is `followed.boot` if `followed` belongs to this user-data, and if the run does not return to the
    /// user-data. Otherwise it is the boot config in the user-data.
    pub fn in_effect<'a>(
        followed: Option<&'a Followed>,
        user_data: &'a BootConfig,
        follow: &Follow,
    ) -> &'a BootConfig {
        match followed.filter(|followed| followed.is_of(user_data)) {
            Some(followed) if *follow != Follow::UserData => &followed.boot,
            _ => user_data,
        }
    }

    /// The hash that the user-data pins, if the node follows a configuration with a different hash.
    pub fn pinned_by_user_data(&self) -> Option<&str> {
        let pinned = self.user_data.nodeup_config_hash.as_str();
        (pinned != self.boot.nodeup_config_hash).then_some(pinned)
    }

    /// Whether this state belongs to this user-data. Compares only fields that every version of the state has, because a later agent may
    /// read more fields of the user-data.
    fn is_of(&self, user_data: &BootConfig) -> bool {
        let known = |boot: &BootConfig| {
            let addresses = (boot.api_server_ips.clone(), boot.etcd_ips.clone());
            (
                names(boot),
                boot.config_base.clone(),
                boot.config_server.clone(),
                boot.nodeup_config_hash.clone(),
                addresses,
            )
        };
        known(&self.user_data) == known(user_data)
    }

    /// Returns the state that this node stores after this run. In the stored state, `boot` replaces the boot config that is in effect now.
    /// `hash` is the hash of the configuration that the run applies. If the user-data pins a configuration, `boot` pins `hash`.
    pub fn after(
        followed: Option<&Followed>,
        user_data: &BootConfig,
        follow: &Follow,
        boot: BootConfig,
        hash: &str,
    ) -> Result<Option<Followed>, NotFollowed> {
        let before = followed.filter(|followed| followed.is_of(user_data));
        let (mut past, mut dropped) =
            before.map(|before| (before.past.clone(), before.dropped.clone())).unwrap_or_default();
        let left = Followed::in_effect(followed, user_data, &Follow::Stay);
        let (current, trusted) = (&boot.nodeup_config_hash, authorities(&boot));
        match follow {
            Follow::Stay => return Ok(before.cloned()),
            Follow::UserData if before.is_none() => return Ok(None),
            Follow::UserData => {}
            Follow::To { hash: wanted, .. } if wanted != hash => {
                return Err(NotFollowed::NotCurrent { wanted: wanted.clone(), current: hash.to_owned() });
            }
            Follow::To { authorities: Some(wanted), .. }
                if authorities_digest(bundle(&boot)).as_ref() != Some(wanted) =>
            {
                return Err(NotFollowed::NotOrdered);
            }
            Follow::To { may_go_back: true, .. } => {}
            Follow::Newest | Follow::To { .. } if past.contains(current) => {
                return Err(NotFollowed::Older { hash: current.clone() });
            }
            Follow::Newest | Follow::To { .. }
                if trusted.iter().any(|authority| dropped.contains(authority)) =>
            {
                return Err(NotFollowed::Distrusted { hash: hash.to_owned() });
            }
            Follow::Newest | Follow::To { .. } if boot == *left => return Ok(before.cloned()),
            Follow::Newest | Follow::To { .. } => {}
        }
        if left.nodeup_config_hash != *current {
            past.push(left.nodeup_config_hash.clone());
        }
        past.retain(|hash| hash != current && !hash.is_empty());
        past.drain(..past.len().saturating_sub(MOST_PAST));
        dropped.extend(authorities(left));
        dropped.retain(|authority| !trusted.contains(authority));
        dropped.drain(..dropped.len().saturating_sub(MOST_PAST));
        Ok(Some(Followed { user_data: user_data.clone(), boot, past, dropped }))
    }
}

/// The fields of a boot config that identify the node, each with its value.
fn names(boot: &BootConfig) -> [(&'static str, String); 4] {
    [
        ("ClusterName", boot.cluster_name.clone()),
        ("InstanceGroupName", boot.instance_group_name.clone()),
        ("InstanceGroupRole", boot.instance_group_role.name().to_owned()),
        ("CloudProvider", boot.cloud_provider.to_string()),
    ]
}

/// The authorities that a boot config trusts, in PEM; empty for a machine that reads the state store.
fn bundle(boot: &BootConfig) -> &str {
    boot.config_server.as_ref().map_or("", |server| server.ca_certificates.as_str())
}

/// Digests of the authorities that a boot config trusts.
fn authorities(boot: &BootConfig) -> Vec<String> {
    certificates(bundle(boot)).iter().map(|certificate| sha256_hex(certificate.as_bytes())).collect()
}

/// Returns a copy of the boot config in effect with two values from a served boot config: the hash of the configuration, and the
/// authorities. The addresses of servers do not change, because only kOps knows the addresses of load balancers. Fails if the served boot
/// config is for another node, trusts none of this node's authorities, or pins nothing.
pub fn taken(in_effect: &BootConfig, served: &BootConfig) -> Result<BootConfig, NotFollowed> {
    for ((field, ours), (_, theirs)) in names(in_effect).into_iter().zip(names(served)) {
        if ours != theirs {
            return Err(NotFollowed::OtherNode { field, ours, theirs });
        }
    }
    if served.nodeup_config_hash.is_empty() {
        return Err(NotFollowed::Unpinned);
    }
    let mut taken = in_effect.clone();
    // A machine whose user-data pins no hash takes the current configuration in each run.
    if !in_effect.nodeup_config_hash.is_empty() {
        taken.nodeup_config_hash.clone_from(&served.nodeup_config_hash);
    }
    if let Some(server) = &mut taken.config_server {
        let theirs = bundle(served);
        let ours = certificates(&server.ca_certificates);
        if !certificates(theirs).iter().any(|certificate| ours.contains(certificate)) {
            return Err(NotFollowed::OtherAuthorities);
        }
        server.ca_certificates = theirs.to_owned();
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const END: &str = "-----END CERTIFICATE-----";

    fn certificate(name: &str) -> String {
        format!("-----BEGIN CERTIFICATE-----\n{name}\n{END}\n")
    }

    fn boot(hash: &str, authorities: &str) -> BootConfig {
        let text = format!(
            "CloudProvider: aws\nClusterName: c.example.com\nInstanceGroupName: nodes\nInstanceGroupRole: Node\nNodeupConfigHash: {hash:?}\n\
             APIServerIPs: [10.0.0.1]\nConfigServer: {{servers: ['https://10.0.0.1:3988/'], CACertificates: {authorities:?}}}\n"
        );
        BootConfig::parse(text.as_bytes(), "kube_env.yaml").unwrap()
    }

    fn to(hash: &str, may_go_back: bool) -> Follow {
        Follow::To { hash: hash.into(), may_go_back, authorities: None }
    }

    /// The state after a run that applies the configuration that `boot` pins.
    fn after(
        followed: Option<&Followed>,
        user_data: &BootConfig,
        follow: &Follow,
        boot: BootConfig,
    ) -> Result<Option<Followed>, NotFollowed> {
        let hash = boot.nodeup_config_hash.clone();
        Followed::after(followed, user_data, follow, boot, &hash)
    }

    fn newest(followed: Option<&Followed>, hash: &str) -> Result<Option<Followed>, NotFollowed> {
        after(followed, &boot("a=", "x"), &Follow::Newest, boot(hash, "x"))
    }

    #[test]
    fn a_node_goes_forward_and_goes_back_only_to_a_named_hash() {
        let user_data = boot("a=", "x");
        let first = newest(None, "b=").unwrap().unwrap();
        assert_eq!(first.past, ["a="]);
        let second = newest(Some(&first), "c=").unwrap().unwrap();
        assert_eq!(second.past, ["a=", "b="]);
        for older in ["a=", "b="] {
            assert_eq!(newest(Some(&second), older), Err(NotFollowed::Older { hash: older.into() }));
        }
        let again = newest(Some(&second), "c=").unwrap().unwrap();
        assert_eq!(again, second);

        let back_to =
            |hash: &str, current: &str| after(Some(&second), &user_data, &to(hash, true), boot(current, "x"));
        let back = back_to("b=", "b=").unwrap().unwrap();
        assert_eq!(
            (back.boot.nodeup_config_hash.as_str(), back.past),
            ("b=", vec!["a=".into(), "c=".into()])
        );
        let newer = to("b=", false);
        let refused = after(Some(&second), &user_data, &newer, boot("b=", "x"));
        assert_eq!(refused, Err(NotFollowed::Older { hash: "b=".into() }));
        let other = NotFollowed::NotCurrent { wanted: "d=".into(), current: "e=".into() };
        assert_eq!(back_to("d=", "e="), Err(other));
    }

    #[test]
    fn user_data_without_a_hash_leaves_only_the_authorities_to_follow() {
        // Without a hash in the user-data, each run takes the group's current configuration, which is `b=` here.
        let after = |follow: Follow, boot: BootConfig| {
            Followed::after(None, &self::boot("", "x"), &follow, boot, "b=")
        };
        let to = |hash: &str| self::to(hash, false);
        assert_eq!(after(Follow::Newest, boot("", "x")), Ok(None));
        assert_eq!(after(to("b="), boot("", "x")), Ok(None));
        let other = NotFollowed::NotCurrent { wanted: "c=".into(), current: "b=".into() };
        assert_eq!(after(to("c="), boot("", "x")), Err(other));

        // Even if the boot config in the user-data has no configuration hash, the machine accepts a new authority.
        let (one, two) = (certificate("one"), certificate("two"));
        let both = taken(&boot("", &one), &boot("b=", &(one.clone() + &two))).unwrap();
        assert_eq!(both, boot("", &(one.clone() + &two)));
        for follow in [Follow::Newest, to("b=")] {
            let followed = Followed::after(None, &boot("", &one), &follow, both.clone(), "b=");
            let followed = followed.unwrap().unwrap();
            assert_eq!((&followed.boot, followed.past.len()), (&both, 0));
            // The node does not return to an authority that it has dropped.
            let after = |followed: &Followed, authorities: &str| {
                Followed::after(Some(followed), &boot("", &one), &follow, boot("", authorities), "b=")
            };
            let distrusted = after(&followed, &two).unwrap().unwrap();
            assert_eq!(after(&distrusted, &one), Err(NotFollowed::Distrusted { hash: "b=".into() }));
        }
    }

    #[test]
    fn the_number_of_remembered_configurations_is_limited() {
        let mut followed = None;
        for number in 0..MOST_PAST + 10 {
            followed = newest(followed.as_ref(), &number.to_string()).unwrap();
        }
        assert_eq!(followed.unwrap().past.len(), MOST_PAST);
    }

    #[test]
    fn new_user_data_ends_following() {
        let followed = newest(None, "b=").unwrap().unwrap();
        let in_effect = |user_data: &BootConfig, follow: Follow| {
            Followed::in_effect(Some(&followed), user_data, &follow).nodeup_config_hash.clone()
        };
        assert_eq!(in_effect(&boot("a=", "x"), Follow::Stay), "b=");
        assert_eq!(in_effect(&boot("a=", "x"), Follow::UserData), "a=");
        assert_eq!(in_effect(&boot("a=", "y"), Follow::Stay), "a=");
        let after = |user_data: &BootConfig, follow: Follow| {
            self::after(Some(&followed), user_data, &follow, boot("a=", "x"))
        };
        assert_eq!(after(&boot("a=", "x"), Follow::Stay), Ok(Some(followed.clone())));
        let back = after(&boot("a=", "x"), Follow::UserData).unwrap().unwrap();
        assert_eq!((back.boot.nodeup_config_hash.as_str(), back.pinned_by_user_data()), ("a=", None));
        assert_eq!(newest(Some(&back), "b="), Err(NotFollowed::Older { hash: "b=".into() }));
        assert_eq!(self::after(None, &boot("a=", "x"), &Follow::UserData, boot("a=", "x")), Ok(None));
        assert_eq!(after(&boot("a=", "y"), Follow::Stay), Ok(None));
    }

    #[test]
    fn a_node_takes_the_hash_and_the_authorities_and_keeps_the_addresses() {
        let (one, two) = (certificate("one"), certificate("two"));
        let mut served = boot("b=", &(one.clone() + &two));
        served.api_server_ips.clear();
        served.config_server.as_mut().unwrap().servers = vec!["https://elsewhere:3988/".into()];
        let taken = taken(&boot("a=", &one), &served).unwrap();
        assert_eq!(taken, boot("b=", &(one + &two)));
    }

    #[test]
    fn a_dropped_authority_returns_only_with_a_named_hash() {
        let (one, two) = (certificate("one"), certificate("two"));
        let both = one.clone() + &two;
        let user_data = boot("a=", &one);
        let after = |followed: Option<&Followed>, follow: Follow, all: &str| {
            self::after(followed, &user_data, &follow, boot("a=", all))
        };
        let created = after(None, Follow::Newest, &both).unwrap();
        let distrusted = after(created.as_ref(), Follow::Newest, &two).unwrap();
        assert_eq!(distrusted.as_ref().unwrap().dropped.len(), 1);
        let refused = after(distrusted.as_ref(), Follow::Newest, &both);
        assert_eq!(refused, Err(NotFollowed::Distrusted { hash: "a=".into() }));
        let back = after(distrusted.as_ref(), to("a=", true), &both).unwrap().unwrap();
        assert_eq!((back.dropped.len(), back.boot), (0, boot("a=", &both)));
    }

    #[test]
    fn an_order_that_names_authorities_is_refused_unless_the_node_would_trust_exactly_these() {
        let (one, two) = (certificate("one"), certificate("two"));
        let both = two.clone() + &one;
        let order = |authorities: &str| Follow::To {
            hash: "a=".into(),
            may_go_back: false,
            authorities: authorities_digest(authorities),
        };
        let user_data = boot("a=", &one);
        let taken = boot("a=", &(one.clone() + &two));
        let followed = after(None, &user_data, &order(&both), taken.clone()).unwrap().unwrap();
        assert_eq!(followed.boot, taken);
        for (ordered, boot) in [
            (&both, user_data.clone()),
            (&one, taken),
            (&one, BootConfig { config_server: None, ..user_data.clone() }),
        ] {
            assert_eq!(after(None, &user_data, &order(ordered), boot), Err(NotFollowed::NotOrdered));
        }
    }

    #[test]
    fn a_boot_config_for_another_node_or_of_unknown_authorities_is_rejected() {
        let (one, two) = (certificate("one"), certificate("two"));
        let ours = boot("a=", &one);
        for (field, served) in [
            ("ClusterName", BootConfig { cluster_name: "other".into(), ..boot("b=", &one) }),
            ("InstanceGroupName", BootConfig { instance_group_name: "other".into(), ..boot("b=", &one) }),
        ] {
            let error = taken(&ours, &served).unwrap_err();
            assert!(
                matches!(error, NotFollowed::OtherNode { field: named, .. } if named == field),
                "{error}"
            );
        }
        assert_eq!(taken(&ours, &boot("b=", &two)), Err(NotFollowed::OtherAuthorities));
        assert_eq!(taken(&ours, &boot("b=", "")), Err(NotFollowed::OtherAuthorities));
        assert_eq!(taken(&ours, &boot("b=", END)), Err(NotFollowed::OtherAuthorities));
        let without = BootConfig { config_server: None, ..boot("b=", &one) };
        assert_eq!(taken(&ours, &without), Err(NotFollowed::OtherAuthorities));
        assert_eq!(taken(&ours, &boot("", &one)), Err(NotFollowed::Unpinned));
    }
}
