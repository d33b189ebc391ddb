//! The age of a machine, by which the server recognizes the Node of an earlier machine of the same name.

use super::*;

/// A machine whose creation time a test chooses.
pub(super) trait Created: Known {
    fn created(self, created: &str) -> Self;
}

macro_rules! created {
    ($($known:ty)*) => {
        $(impl Created for $known {
            fn created(self, created: &str) -> Self {
                Self { created: created.into(), ..self }
            }
        })*
    };
}

created! { KnownServer KnownDroplet KnownInstance KnownOpenstack KnownScaleway }

pub(super) async fn the_age_of_a_machine_comes_from_its_cloud<K: Created>() {
    for (created, launched) in [
        ("2026-03-01T00:00:00Z", Some(1_772_323_200)),
        ("2026-03-01T00:00:00", Some(1_772_323_200)),
        ("2026-03-01T01:00:00.25+01:00", Some(1_772_323_200)),
        ("", None),
        ("yesterday", None),
    ] {
        let api = StandIn::<K>::start().unwrap();
        api.put(1, own::<K>(1).created(created));
        let machines = inventory(&api, CloudCalls::default());
        let node = confirmed(&machines, &K::id(1), [10, 0, 0, 1]).await.unwrap();
        assert_eq!(node.launched, launched, "{created}");
    }
}

/// If two machines have the same name, the Node with this name may belong to either of them, even if one is stopped. So the age of the
/// Node's machine is unknown. A cloud with unique names never lists two machines with the same name.
pub(super) async fn a_machine_with_a_namesake_has_no_known_age<K: Created>() {
    let (api, machines) = with_one::<K>();
    // Each cluster has its own network, so a machine of a different cluster may have this name.
    api.put(2, K::of_cluster("other.example.com", "nodes-1", &[[10, 0, 0, 1]]));
    assert!(verified(machines, &K::id(1)).await.unwrap().launched.is_some());
    for namesake in [own::<K>(1), own::<K>(1).off()] {
        api.put(3, namesake);
        let machines = inventory(&api, CloudCalls::default());
        assert_eq!(verified(machines.clone(), &K::id(1)).await.unwrap().launched, None);
        assert_eq!(confirmed(&machines, &K::id(1), [10, 0, 0, 1]).await.unwrap().launched, None);
    }
}
