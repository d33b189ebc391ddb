//! Compares providerIDs. Kubelets and cloud controllers write them in several forms.

use super::machine::ProviderIds;
use super::{linode, openstack};

/// The clouds with several forms of providerIDs. In these clouds, equal machine ids always mean one machine.
const WRITTEN_IN_SEVERAL_WAYS: [ProviderIds; 2] = [linode::PROVIDER_IDS, openstack::PROVIDER_IDS];

/// Whether two providerIDs name the same machine, even in different valid forms.
pub fn name_one_machine(first: &str, second: &str) -> bool {
    first == second || WRITTEN_IN_SEVERAL_WAYS.into_iter().any(|ids| ids.are_of_one_machine(first, second))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{digital_ocean, hetzner, scaleway};
    use super::*;

    const ALL: [ProviderIds; 5] = [
        hetzner::PROVIDER_IDS,
        digital_ocean::PROVIDER_IDS,
        linode::PROVIDER_IDS,
        openstack::PROVIDER_IDS,
        scaleway::PROVIDER_IDS,
    ];

    #[test]
    fn a_provider_id_names_a_machine_of_its_own_cloud() {
        for ids in ALL {
            let id = ids.id(ids.form).unwrap().to_string();
            assert!(ids.form.ends_with(&id), "{id}");
            for other in ALL.iter().filter(|other| other.prefix != ids.prefix) {
                assert_eq!(ids.id(other.form).unwrap_err().reason(), "InvalidProviderID", "{}", other.form);
            }
            for id in ["", "+1", "x", "1/2", "007", "/", "1/"] {
                let malformed = format!("{}{id}", ids.prefix);
                assert_eq!(ids.id(&malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
            }
            for malformed in ["", "4711", "aws:///a/i-1", &format!("{}/", ids.form)] {
                assert_eq!(ids.id(malformed).unwrap_err().reason(), "InvalidProviderID", "{malformed}");
            }
        }
    }

    #[test]
    fn two_forms_of_a_provider_id_name_one_machine() {
        let uuid = "5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb";
        let openstack = [format!("openstack:///{uuid}"), format!("openstack://{uuid}")];
        let linode = ["linode://4711", "linode:///4711", "linode://de-fra-2/4711"];
        for (first, second) in linode.iter().flat_map(|first| linode.map(|second| (*first, second))) {
            assert!(name_one_machine(first, second), "{first} {second}");
        }
        assert!(
            name_one_machine(&openstack[0], &openstack[1]) && name_one_machine("gce://p/z/n", "gce://p/z/n")
        );
        for (first, second) in [
            ("linode://4711", "linode://4712"),
            ("linode://4711", "linode://de-fra-2/4712"),
            ("linode://4711", "linode:///4711/"),
            ("linode://4711", "hcloud://4711"),
            ("hcloud://4711", "hcloud:///4711"),
            (openstack[0].as_str(), "openstack://RegionOne/5c89f7b6-01a0-4eaa-ac03-85cd43d82eeb"),
            (openstack[1].as_str(), "openstack:///00000000-0000-4000-8000-000000000001"),
            ("", "linode://4711"),
        ] {
            assert!(!name_one_machine(first, second), "{first} {second}");
        }
    }
}
