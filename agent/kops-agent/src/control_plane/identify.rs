//! Who a Node is, asked of its cloud, and remembered for as long as the answer stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kops_agent_plan::identity::aws::{self, AwsCluster};
use kops_agent_plan::identity::{Identity, Refusal, gce};
use kops_agent_plan::labels::ObservedNode;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;

use crate::cloud::aws::instances::Instances;
use crate::cloud::gce::compute::ComputeError;
use crate::cloud::gce::managed_groups::ManagedGroups;
use crate::cloud::hetzner::servers::HetznerServers;

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
    /// Hetzner Cloud, which is asked by the bootstrap server only.
    Hetzner(Arc<HetznerServers>),
}

impl Cloud {
    /// Whether Nodes can be identified here, which it takes to label them.
    pub fn identifies_nodes(&self) -> bool {
        match self {
            Cloud::Aws { .. } | Cloud::Gce(_) => true,
            Cloud::Hetzner(_) => false,
        }
    }
}

/// Identifies Nodes.
pub struct Identifier {
    cloud: Arc<Cloud>,
    remembered: Mutex<BTreeMap<String, Remembered>>,
    hits: Counter,
}

struct Remembered {
    provider_id: String,
    identity: Arc<Identity>,
    until: Instant,
}

impl Identifier {
    /// Asks this cloud, and counts what it did not have to ask.
    pub fn of(cloud: Arc<Cloud>, hits: Counter) -> Identifier {
        Identifier { cloud, remembered: Mutex::default(), hits }
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
        let identity = Arc::new(match &*self.cloud {
            Cloud::Aws { cluster, instances } => on_aws(node, cluster, instances).await?,
            Cloud::Gce(groups) => Box::pin(on_gce(node, groups)).await?,
            Cloud::Hetzner(_) => {
                let problem = "Nodes on Hetzner Cloud cannot be identified yet";
                return Err(NotIdentified::Unavailable(problem.into()));
            }
        });
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

async fn on_gce(node: &ObservedNode, groups: &ManagedGroups) -> Result<Identity, NotIdentified> {
    let unavailable = |error: Arc<ComputeError>| NotIdentified::Unavailable(error.to_string());
    let cluster = groups.cluster();
    let path = gce::instance_path(&node.provider_id, cluster).map_err(NotIdentified::Refused)?;
    let identity = match groups.find(&path).await.map_err(unavailable)? {
        Some(managed) => gce::identify(&node.name, &managed.instance, &managed.template, cluster),
        // Only to tell people why.
        None => Err(match groups.instance(&path).await.map_err(unavailable)? {
            Some(instance) => gce::unlisted(&instance, cluster),
            None => Refusal::NoSuchInstance { instance: path.name },
        }),
    };
    identity.map_err(NotIdentified::Refused)
}
