//! Asks the cloud for the identity of a Node, and caches the answer for its TTL.

use std::sync::Arc;

use kops_agent_cloud::{ControlPlane, NotIdentified};
use kops_agent_cluster::identity::{Identity, Refusal};
use kops_agent_cluster::labels::ObservedNode;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use super::node_queue::NodeQueue;

pub struct Identifier {
    cloud: Arc<dyn ControlPlane>,
    known: Arc<Mutex<NodeQueue>>,
    hits: Counter,
}

impl Identifier {
    /// `known` caches the answers of this cloud. `hits` counts cache hits.
    pub fn new(cloud: Arc<dyn ControlPlane>, known: Arc<Mutex<NodeQueue>>, hits: Counter) -> Identifier {
        Identifier { cloud, known, hits }
    }

    /// Returns the identity of a Node. Caches the identity in `known`, if `known` contains the Node.
    pub async fn identify(&self, node: &ObservedNode) -> Result<Arc<Identity>, NotIdentified> {
        if node.provider_id.is_empty() && self.cloud.names_instances() {
            return Err(NotIdentified::NotYet);
        }
        let now = Instant::now();
        let remembered = self.known.lock().identity(&node.name, &node.provider_id, now).cloned();
        if let Some(identity) = remembered {
            self.hits.inc();
            return Ok(identity);
        }
        let since = self.known.lock().asked_since(&node.name, &node.provider_id, now);
        let asked = self.cloud.identify(node, since).await;
        let asked = asked.map(Arc::new).map_err(|why| self.sharpened(node, why));
        match &asked {
            Ok(identity) => self.known.lock().believed(node, identity.clone(), Instant::now()),
            Err(NotIdentified::Refused(refusal)) => {
                self.known.lock().refused(node, since, refusal.is_definite());
            }
            Err(NotIdentified::NotYet | NotIdentified::Unavailable(_)) => {}
        }
        asked
    }

    /// Makes a refusal definite if possible. An instance has one Node. If the Node with the instance's name is confirmed, any other Node
    /// that claims the instance is an impostor. If that Node is not confirmed, the instance may have been renamed.
    fn sharpened(&self, node: &ObservedNode, why: NotIdentified) -> NotIdentified {
        match why {
            NotIdentified::Refused(Refusal::OtherName { instance, name })
                if self.known.lock().identity(&name, &node.provider_id, Instant::now()).is_some() =>
            {
                NotIdentified::Refused(Refusal::OtherNode { instance, expected: name })
            }
            why => why,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::IpAddr;

    use kops_agent_tests::hetzner::{Hetzner, Server, TOKEN};

    use super::*;
    use kops_agent_cloud::calls::CloudCalls;
    use kops_agent_cloud::hetzner::{HetznerControlPlane, HetznerServers};

    const CLUSTER: &str = "c.example.com";

    async fn refused(identifier: &Identifier, name: &str, id: u64) -> Option<bool> {
        let provider_id = format!("hcloud://{id}");
        let node = ObservedNode { name: name.into(), provider_id, ..ObservedNode::default() };
        identifier.known.lock().see(Arc::new(node.clone()), Instant::now());
        match identifier.identify(&node).await {
            Ok(_) => None,
            Err(NotIdentified::Refused(refusal)) => Some(refusal.is_definite()),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_impostor_on_hetzner_is_certain_and_a_renamed_server_is_doubtful() {
        kops_agent_net::tls::install_provider();
        let hetzner = Hetzner::start().unwrap();
        let server =
            |name: &str, last| Server::of_group(CLUSTER, "nodes", name, IpAddr::from([10, 0, 0, last]));
        hetzner.put(1, server("control-plane-1a2b", 1));
        hetzner.put(2, server("nodes-3c4d", 2));
        // These servers joined as nodes-5e6f and nodes-7g8h, and were then renamed.
        hetzner.put(3, server("web", 3));
        hetzner.put(4, server("batch", 4));
        let servers = HetznerServers::at(&hetzner.url(), TOKEN, CLUSTER, CloudCalls::default()).unwrap();
        let cloud = Arc::new(HetznerControlPlane { machines: Arc::new(servers) });
        let identifier = Identifier::new(cloud, Arc::default(), Counter::default());

        // The Node claims a number that differs from the number of the server with the Node's name.
        assert_eq!(refused(&identifier, "nodes-3c4d", 1).await, Some(true));
        assert_eq!(refused(&identifier, "nodes-5e6f", 3).await, Some(false), "renamed, and honest");
        // The Node of a renamed server claims to be server 1. The real Node of server 1 has not been seen yet, so the refusal is not
        // definite.
        assert_eq!(refused(&identifier, "nodes-7g8h", 1).await, Some(false));
        assert_eq!(refused(&identifier, "control-plane-1a2b", 1).await, None);
        assert_eq!(refused(&identifier, "nodes-7g8h", 1).await, Some(true), "that is another Node's");
        assert_eq!(refused(&identifier, "nodes-5e6f", 3).await, Some(false), "still");
        assert_eq!(refused(&identifier, "nodes-3c4d", 2).await, None);
    }
}
