//! Who a Node is, asked of its cloud, and remembered for as long as the answer stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kops_agent_plan::identity::aws::{self, AwsCluster};
use kops_agent_plan::identity::{Identity, Refusal, gce, hetzner};
use kops_agent_plan::labels::ObservedNode;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use kops_agent_cloud::aws::instances::Instances;
use kops_agent_cloud::gce::compute::ComputeError;
use kops_agent_cloud::gce::managed_groups::ManagedGroups;
use kops_agent_cloud::hetzner::servers::HetznerServers;

/// How long an identity stands. An instance's id is never given to another, but its tags may change. Less than the hour
/// after which all Nodes are looked at again.
const REMEMBERED_FOR: Duration = Duration::from_secs(50 * 60);

/// Why it is not known who a Node is.
#[derive(Clone, Debug)]
pub enum NotIdentified {
    /// It has not said yet which instance it is.
    NotYet,
    /// It is not believed.
    Refused(Refusal),
    /// The cloud could not be asked.
    Unavailable(String),
}

/// Whom to ask.
pub enum Cloud {
    /// EC2.
    Aws {
        /// The cluster.
        cluster: AwsCluster,
        /// Where its instances are asked for.
        instances: Instances,
    },
    /// Compute Engine.
    Gce(ManagedGroups),
    /// Hetzner Cloud.
    Hetzner(Arc<HetznerServers>),
}

/// Identifies Nodes.
pub struct Identifier {
    cloud: Arc<Cloud>,
    remembered: Mutex<BTreeMap<String, Remembered>>,
    refused: Mutex<BTreeMap<String, Refused>>,
    hits: Counter,
}

/// A Node that was not believed when it was last asked for.
struct Refused {
    provider_id: String,
    /// When it was asked for under this providerID for the first time. It is older than that.
    since: Instant,
    is_definite: bool,
}

struct Remembered {
    provider_id: String,
    identity: Arc<Identity>,
    until: Instant,
}

impl Identifier {
    /// Asks this cloud, and counts what it did not have to ask.
    pub fn of(cloud: Arc<Cloud>, hits: Counter) -> Identifier {
        Identifier { cloud, remembered: Mutex::default(), refused: Mutex::default(), hits }
    }

    /// Who a Node is.
    ///
    /// # Errors
    /// Why that is not known.
    pub async fn identify(&self, node: &ObservedNode) -> Result<Arc<Identity>, NotIdentified> {
        if node.provider_id.is_empty() {
            return Err(NotIdentified::NotYet);
        }
        if let Some(identity) = self.remembered(node) {
            self.hits.inc();
            return Ok(identity);
        }
        let since = self.asked_since(node);
        let asked = match &*self.cloud {
            Cloud::Aws { cluster, instances } => on_aws(node, cluster, instances).await,
            Cloud::Gce(groups) => Box::pin(on_gce(node, groups, since)).await,
            Cloud::Hetzner(servers) => Box::pin(on_hetzner(node, servers)).await,
        };
        let asked = asked.map_err(|why| self.sharpened(node, why));
        self.note(node, since, &asked);
        let identity = Arc::new(asked?);
        let remembered = Remembered {
            provider_id: node.provider_id.clone(),
            identity: identity.clone(),
            until: Instant::now() + REMEMBERED_FOR,
        };
        self.lock().insert(node.name.clone(), remembered);
        Ok(identity)
    }

    /// Forgets a Node that is gone.
    pub fn forget(&self, node: &str) {
        self.lock().remove(node);
        self.refused().remove(node);
    }

    /// Whether no more Nodes are certainly others' than are believed. If most were, the configuration would be another
    /// cluster's, or its region, and they would be right.
    pub fn believes_most(&self) -> bool {
        let refused = self.refused().values().filter(|refused| refused.is_definite).count();
        let believed = self.lock().len();
        believed > 0 && believed >= refused
    }

    /// An instance has one Node. Where the Node of its name is believed to be it, another that says so is an impostor, not
    /// the Node of an instance that was renamed.
    fn sharpened(&self, node: &ObservedNode, why: NotIdentified) -> NotIdentified {
        match why {
            NotIdentified::Refused(Refusal::OtherName { instance, name })
                if self.is_believed(&name, &node.provider_id) =>
            {
                NotIdentified::Refused(Refusal::OtherNode { instance, expected: name })
            }
            why => why,
        }
    }

    fn is_believed(&self, node: &str, provider_id: &str) -> bool {
        self.lock()
            .get(node)
            .is_some_and(|known| known.provider_id == provider_id && Instant::now() < known.until)
    }

    fn asked_since(&self, node: &ObservedNode) -> Instant {
        let refused = self.refused();
        let before = refused.get(&node.name).filter(|refused| refused.provider_id == node.provider_id);
        before.map_or_else(Instant::now, |refused| refused.since)
    }

    fn note(&self, node: &ObservedNode, since: Instant, asked: &Result<Identity, NotIdentified>) {
        match asked {
            Ok(_) => drop(self.refused().remove(&node.name)),
            Err(NotIdentified::Refused(refusal)) => {
                let refused = Refused {
                    provider_id: node.provider_id.clone(),
                    since,
                    is_definite: refusal.is_definite(),
                };
                self.refused().insert(node.name.clone(), refused);
                self.lock().remove(&node.name);
            }
            Err(NotIdentified::NotYet | NotIdentified::Unavailable(_)) => {}
        }
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, node: &ObservedNode) -> Option<Arc<Identity>> {
        let remembered = self.lock();
        let known = remembered.get(&node.name)?;
        let stands = known.provider_id == node.provider_id && Instant::now() < known.until;
        stands.then(|| known.identity.clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Remembered>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn on_aws(
    node: &ObservedNode,
    cluster: &AwsCluster,
    instances: &Instances,
) -> Result<Identity, NotIdentified> {
    let id = aws::instance_id(&node.provider_id).map_err(NotIdentified::Refused)?;
    match instances.get(id).await {
        Ok(Some(instance)) => aws::identify(&node.name, &instance, cluster).map_err(NotIdentified::Refused),
        Ok(None) => Err(NotIdentified::Refused(Refusal::NoSuchInstance { instance: id.to_owned() })),
        Err(error) => Err(NotIdentified::Unavailable(error.to_string())),
    }
}

async fn on_hetzner(node: &ObservedNode, servers: &Arc<HetznerServers>) -> Result<Identity, NotIdentified> {
    let id = hetzner::server_id(&node.provider_id).map_err(NotIdentified::Refused)?;
    match servers.get_with_namesake(id, &node.name).await {
        Ok((Some(server), namesake)) => {
            hetzner::identify_node(&node.name, &server, namesake.as_deref(), servers.cluster())
                .map_err(NotIdentified::Refused)
        }
        Ok((None, _)) => Err(NotIdentified::Refused(Refusal::NoSuchInstance { instance: id.to_string() })),
        Err(error) => Err(NotIdentified::Unavailable(error.to_string())),
    }
}

async fn on_gce(
    node: &ObservedNode,
    groups: &ManagedGroups,
    since: Instant,
) -> Result<Identity, NotIdentified> {
    let unavailable = |error: Arc<ComputeError>| NotIdentified::Unavailable(error.to_string());
    let cluster = groups.cluster();
    let path = gce::instance_path(&node.provider_id, cluster).map_err(NotIdentified::Refused)?;
    let identity = match groups.find(&path, since).await.map_err(unavailable)? {
        Some(managed) => gce::identify(&node.name, &managed.instance, &managed.template, cluster),
        // Only to tell people why.
        None => Err(match groups.instance(&path).await.map_err(unavailable)? {
            Some(instance) => gce::unlisted(&instance, cluster),
            None => Refusal::NoSuchInstance { instance: path.name },
        }),
    };
    identity.map_err(NotIdentified::Refused)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::IpAddr;

    use kops_agent_tests::hetzner::{Hetzner, Server, TOKEN};

    use super::*;
    use kops_agent_cloud::calls::CloudCalls;

    const CLUSTER: &str = "c.example.com";

    async fn refused(identifier: &Identifier, name: &str, id: u64) -> Option<bool> {
        let provider_id = format!("hcloud://{id}");
        let node = ObservedNode { name: name.into(), provider_id, ..ObservedNode::default() };
        match identifier.identify(&node).await {
            Ok(_) => None,
            Err(NotIdentified::Refused(refusal)) => Some(refusal.is_definite()),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_impostor_on_hetzner_is_told_for_certain_and_a_renamed_server_keeps_its_doubt() {
        kops_agent_net::tls::install_provider();
        let hetzner = Hetzner::start().unwrap();
        let server =
            |name: &str, last| Server::of_group(CLUSTER, "nodes", name, IpAddr::from([10, 0, 0, last]));
        hetzner.put(1, server("control-plane-1a2b", 1));
        hetzner.put(2, server("nodes-3c4d", 2));
        // Renamed since they joined as nodes-5e6f and nodes-7g8h.
        hetzner.put(3, server("web", 3));
        hetzner.put(4, server("batch", 4));
        let servers = HetznerServers::at(&hetzner.url(), TOKEN, CLUSTER, CloudCalls::default()).unwrap();
        let identifier = Identifier::of(Arc::new(Cloud::Hetzner(Arc::new(servers))), Counter::default());

        // The server of the Node's own name is another one.
        assert_eq!(refused(&identifier, "nodes-3c4d", 1).await, Some(true));
        assert_eq!(refused(&identifier, "nodes-5e6f", 3).await, Some(false), "renamed, and honest");
        // A renamed server's Node that says to be one whose own Node has not been seen yet: it cannot be known.
        assert_eq!(refused(&identifier, "nodes-7g8h", 1).await, Some(false));
        assert_eq!(refused(&identifier, "control-plane-1a2b", 1).await, None);
        assert_eq!(refused(&identifier, "nodes-7g8h", 1).await, Some(true), "that is another Node's");
        assert_eq!(refused(&identifier, "nodes-5e6f", 3).await, Some(false), "still");
        assert_eq!(refused(&identifier, "nodes-3c4d", 2).await, None);
    }
}
