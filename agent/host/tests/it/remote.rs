//! Requests to remote services, which may be down.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::converge::{certificate, node};
use crate::support::Machine;
use kops_agent_cluster::lifecycle_action::{Completion, LifecycleAction};
use kops_agent_host::system::remote::Remote;
use kops_agent_pki::PemPair;
use kops_agent_plan::resource::*;
use kops_agent_spec::failure::{self, Failure};

/// A [`Remote`] without a network. It counts the requests. The first `failures` registrations fail.
struct Counting {
    assigned: AtomicUsize,
    registered: Mutex<Vec<PemPair>>,
    failures: AtomicUsize,
}

#[async_trait::async_trait]
impl Remote for Counting {
    async fn assign_ipv6_prefix(&self) -> Result<(), Failure> {
        self.assigned.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn has_assigned_ipv6_prefix(&self) -> bool {
        self.assigned.load(Ordering::SeqCst) > 0
    }

    async fn register(&self, _: &DiscoveryRegistration, identity: &PemPair) -> Result<(), Failure> {
        self.registered.lock().push(identity.clone());
        let fails = self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok();
        if fails { Err(Failure::new(failure::Kind::Other, "nothing listens there")) } else { Ok(()) }
    }

    async fn complete_lifecycle_action(&self, _: &LifecycleAction) -> Result<Completion, Failure> {
        Ok(Completion::NothingHeld)
    }
}

#[tokio::test]
async fn a_discovery_service_that_is_down_does_not_block_a_new_node() {
    let machine = Machine::new();
    let remote = Arc::new(Counting {
        assigned: AtomicUsize::new(0),
        registered: Mutex::default(),
        failures: AtomicUsize::new(1),
    });
    let host = || machine.host().with_remote(remote.clone());
    let registration = DiscoveryRegistration {
        name: "register".into(),
        url: "https://discovery.example.com/u".into(),
        certificate: "discovery".into(),
        object: "{}".into(),
    };
    let mut desired = node();
    desired.add(certificate("discovery"));
    desired.add(registration);
    desired.add(Ipv6Prefix { name: "prefix".into() });
    machine.converge_with(&host(), &desired).await.unwrap();
    let left = machine.plan(&host(), &desired);
    assert_eq!(left.steps.len(), 1, "the registration is left to do: {left:#?}");
    machine.converge_with(&host(), &desired).await.unwrap();
    assert!(machine.plan(&host(), &desired).is_empty());
    assert_eq!(remote.assigned.load(Ordering::SeqCst), 1);
    // Every run repeats the registration, because the discovery service may have forgotten it.
    machine.converge_with(&host(), &desired).await.unwrap();
    let registered = remote.registered.lock();
    assert_eq!(registered.len(), 3);
    assert_eq!(
        registered[0].certificate.matches("BEGIN CERTIFICATE").count(),
        2,
        "the CA's certificate follows the client's"
    );
}
