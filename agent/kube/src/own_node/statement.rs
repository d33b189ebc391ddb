//! Reports the state of this node: sets the condition `KopsConfigured` and the early warnings of its own Node, with kubelet's
//! credentials.
//!
//! NodeRestriction lets a kubelet change the status of the Node that its certificate names, and of no other. The patch contains
//! only these conditions, so all other conditions stay unchanged.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use kops_agent_cluster::fleet::{
    CONDITION, CurrentCondition, CurrentConditions, EARLY_WARNINGS, Statement, removed_warnings,
};
use kops_agent_cluster::pacing::Versions;
use kops_agent_cluster::pacing::drain::CORDONED;
use kops_agent_pki::{common_name_and_validity, first_der};
use kops_agent_process::output::error_text;
use kops_agent_spec::failure::{Failing, Kind};
use kops_agent_spec::timestamp;
use kube::api::{Patch, PatchParams};
use time::OffsetDateTime;

use crate::api_error::{ApiError, answer};
use crate::client::{Kubeconfig, client};
use crate::node_api::{NodeObject, Nodes};

/// The field manager of the conditions that kops-agent sets.
pub const FIELD_MANAGER: &str = "kops-agent";
/// The prefix of the name in a kubelet's certificate. The name of the Node follows the prefix.
const USER_OF_NODE: &str = "system:node:";

/// Why a report to the Node failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Untold {
    /// kubelet's kubeconfig is missing or unreadable. The machine is no node yet, or this process does not run as
    /// root.
    NoKubeconfig(String),
    /// The cluster has no Node with this name, because kubelet has not registered the Node yet.
    NotRegistered(String),
    /// The API server does not answer, is overloaded, or reports a server error.
    Unanswered(String),
    /// The API server rejects the request, or the kubeconfig is wrong.
    Refused(String),
}

impl Untold {
    /// Whether this error is normal on a machine that is not a node yet, or no longer a node.
    pub fn is_expected(&self) -> bool {
        matches!(self, Untold::NoKubeconfig(_) | Untold::NotRegistered(_))
    }

    /// Whether a later try may succeed.
    pub fn may_pass(&self) -> bool {
        matches!(self, Untold::NotRegistered(_) | Untold::Unanswered(_))
    }
}

impl fmt::Display for Untold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Untold::NoKubeconfig(problem) | Untold::Unanswered(problem) | Untold::Refused(problem) => {
                f.write_str(problem)
            }
            Untold::NotRegistered(node) => {
                write!(f, "the cluster has no Node {node:?} yet; kubelet registers it once kubelet runs")
            }
        }
    }
}

impl std::error::Error for Untold {}

impl Failing for Untold {
    fn kind(&self) -> Kind {
        match self {
            Untold::NoKubeconfig(_) => Kind::NoKubeconfig,
            Untold::NotRegistered(_) => Kind::NodeNotRegistered,
            Untold::Unanswered(_) => Kind::ApiServerUnanswered,
            Untold::Refused(_) => Kind::ApiServerRefused,
        }
    }
}

impl From<ApiError> for Untold {
    fn from(error: ApiError) -> Untold {
        let text = error.to_string();
        match error {
            // The API server is overloaded, starting or stopping.
            ApiError::Refused(status) if status.code == 429 || status.code >= 500 => Untold::Unanswered(text),
            ApiError::Refused(_) => Untold::Refused(text),
            ApiError::Unanswered(_) => Untold::Unanswered(text),
        }
    }
}

/// The Node whose state was reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub node: String,
    /// Whether a run has cordoned the Node and not uncordoned it yet.
    pub is_left_cordoned: bool,
}

/// Sets the conditions and annotations of this machine's Node. `kubeconfig` is the path of kubelet's kubeconfig.
pub async fn tell(kubeconfig: &Path, statement: &Statement) -> Result<Told, Untold> {
    let node = own_name(kubeconfig)?;
    let client = client(Some(kubeconfig)).map_err(|error| Untold::Refused(error_text(&error)))?;
    let nodes = Nodes::new(client).api();
    let Some(found) = answer(nodes.get_opt(&node)).await? else { return Err(Untold::NotRegistered(node)) };
    let is_left_cordoned = found.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CORDONED));
    let (known, versions) = (current_conditions(&found), versions(&found));
    let patch = Patch::Strategic(statement.patch(&known, &versions, &now()));
    match answer(nodes.patch_status(&node, &parameters(), &patch)).await {
        Ok(_) => Ok(Told { node, is_left_cordoned }),
        // The Node was deleted after it was read.
        Err(error) if error.is_not_found() => Err(Untold::NotRegistered(node)),
        Err(error) => Err(error.into()),
    }
}

/// Removes kops-agent's early warnings from this machine's Node. All other conditions and the annotations stay.
/// `kubeconfig` is the path of kubelet's kubeconfig.
pub async fn withdraw_warnings(kubeconfig: &Path) -> Result<(), Untold> {
    let node = own_name(kubeconfig)?;
    let client = client(Some(kubeconfig)).map_err(|error| Untold::Refused(error_text(&error)))?;
    let patch = Patch::Strategic(removed_warnings());
    match answer(Nodes::new(client).api().patch_status(&node, &parameters(), &patch)).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_not_found() => Err(Untold::NotRegistered(node)),
        Err(error) => Err(error.into()),
    }
}

fn parameters() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

/// The name of this machine's Node, from the certificate in kubelet's kubeconfig.
pub(super) fn own_name(path: &Path) -> Result<String, Untold> {
    if let Err(error) = std::fs::File::open(path) {
        let problem = format!("kubelet's kubeconfig {} cannot be read: {error}", path.display());
        return Err(match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => Untold::NoKubeconfig(problem),
            _ => Untold::Refused(problem),
        });
    }
    let access = Kubeconfig::read(path).and_then(|kubeconfig| kubeconfig.access(None));
    let access = access.map_err(|error| Untold::Refused(error_text(&error)))?;
    let der = access.identity.as_ref().and_then(|(chain, _)| first_der(chain));
    let name = der.and_then(|der| common_name_and_validity(&der, OffsetDateTime::UNIX_EPOCH));
    match name.as_ref().and_then(|(name, _)| name.strip_prefix(USER_OF_NODE)) {
        Some(node) => Ok(node.to_owned()),
        None => Err(Untold::Refused(format!(
            "the certificate in {} is not a kubelet's: its name does not begin with {USER_OF_NODE}",
            path.display()
        ))),
    }
}

/// The current time in RFC 3339 with whole seconds, as Kubernetes writes times.
fn now() -> String {
    timestamp(OffsetDateTime::now_utc())
}

/// The conditions of kops-agent in the Node.
fn current_conditions(node: &NodeObject) -> CurrentConditions {
    let Some(status) = &node.status else { return CurrentConditions::new() };
    let current = |kind: &'static str| {
        let condition = status.condition(kind)?;
        let current = CurrentCondition {
            status: condition.status.clone(),
            last_transition_time: condition.last_transition_time.clone().unwrap_or_default(),
        };
        Some((kind, current))
    };
    [CONDITION].into_iter().chain(EARLY_WARNINGS).filter_map(current).collect()
}

/// The versions that kubelet reports in the Node.
pub(super) fn versions(node: &NodeObject) -> Versions {
    let info = node.status.as_ref().map(|status| status.node_info.clone()).unwrap_or_default();
    Versions { kubelet: info.kubelet_version, containerd: info.container_runtime_version }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use kops_agent_cluster::fleet::{Configuration, NodeReport};
    use kops_agent_tests::test_server::{HangUp, TestServer, text};
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::super::testing::kubeconfig;
    use super::*;

    fn statement() -> Statement {
        let runs = Configuration { hash: "a=".into(), since: String::new() };
        NodeReport { runs: Some(runs), ..NodeReport::default() }.statement()
    }

    fn refusal(code: u16, reason: &str) -> String {
        json!({"kind": "Status", "status": "Failure", "message": format!("no: {reason}"), "reason": reason, "code": code})
            .to_string()
    }

    /// Reports to an API server that responds with `answer`. With `None`, the API server closes the connection.
    async fn told(answer: Option<(u16, String)>) -> Result<Told, Untold> {
        let server = TestServer::start(move |_| {
            let answer = answer.clone();
            async move { answer.map(|(code, body)| text(code, &body)).ok_or(HangUp) }
        })
        .await;
        kops_agent_net::tls::install_provider();
        let (_folder, kubeconfig) = kubeconfig(&server.url, "system:node:a");
        tell(&kubeconfig, &statement()).await
    }

    /// The method, path, content type and body of a request.
    type Asked = (String, String, Option<String>, Value);

    /// Starts an API server that records each request and responds with `answer`.
    async fn recording(answer: String) -> (TestServer, Arc<Mutex<Vec<Asked>>>) {
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let seen = asked.clone();
        let server = TestServer::start(move |request| {
            let (seen, answer) = (seen.clone(), answer.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map_err(|_| HangUp)?.to_bytes();
                let content_type =
                    head.headers.get("content-type").map(|kind| kind.to_str().unwrap().to_owned());
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                seen.lock().push((head.method.to_string(), head.uri.path().to_owned(), content_type, body));
                Ok(text(200, &answer))
            }
        })
        .await;
        kops_agent_net::tls::install_provider();
        (server, asked)
    }

    #[tokio::test]
    async fn a_missing_node_a_forbidden_node_and_no_answer_are_different_errors() {
        let absent = told(Some((404, refusal(404, "NotFound")))).await.unwrap_err();
        assert_eq!(absent, Untold::NotRegistered("a".into()));
        assert!(absent.is_expected() && absent.may_pass());
        let forbidden = told(Some((403, refusal(403, "Forbidden")))).await.unwrap_err();
        assert!(matches!(&forbidden, Untold::Refused(said) if said.contains("no: Forbidden")), "{forbidden}");
        assert!(!forbidden.is_expected() && !forbidden.may_pass());
        for answer in [None, Some((500, refusal(500, "InternalError")))] {
            let unanswered = told(answer).await.unwrap_err();
            assert!(matches!(unanswered, Untold::Unanswered(_)), "{unanswered:?}");
            assert!(!unanswered.is_expected() && unanswered.may_pass());
        }
    }

    #[tokio::test]
    async fn the_status_of_the_node_of_the_certificate_gets_this_condition() {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {},
            "status": {"conditions": [{"type": CONDITION, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        });
        let (server, asked) = recording(node.to_string()).await;
        let (_folder, kubeconfig) = kubeconfig(&server.url, "system:node:a");
        let told = Told { node: "a".into(), is_left_cordoned: false };
        assert_eq!(tell(&kubeconfig, &statement()).await.unwrap(), told);
        let asked = asked.lock();
        assert_eq!((asked[0].0.as_str(), asked[0].1.as_str()), ("GET", "/api/v1/nodes/a"));
        let (method, path, content_type, body) = &asked[1];
        assert_eq!((method.as_str(), path.as_str()), ("PATCH", "/api/v1/nodes/a/status"));
        assert_eq!(content_type.as_deref(), Some("application/strategic-merge-patch+json"));
        let condition = &body["status"]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(condition["message"], "configuration a=");
    }

    #[tokio::test]
    async fn early_warnings_leave_the_node_and_other_conditions_stay() {
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "spec": {}, "status": {}});
        let (server, asked) = recording(node.to_string()).await;
        let (_folder, kubeconfig) = kubeconfig(&server.url, "system:node:a");
        withdraw_warnings(&kubeconfig).await.unwrap();
        let asked = asked.lock();
        let [(method, path, content_type, body)] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((method.as_str(), path.as_str()), ("PATCH", "/api/v1/nodes/a/status"));
        assert_eq!(content_type.as_deref(), Some("application/strategic-merge-patch+json"));
        assert_eq!(*body, removed_warnings());
    }

    #[test]
    fn the_condition_and_the_versions_of_a_node_are_read() {
        let node: NodeObject = serde_json::from_value(json!({
            "metadata": {"name": "a"}, "spec": {},
            "status": {
                "conditions": [
                    {"type": "Ready", "status": "True"},
                    {"type": CONDITION, "status": "False", "lastTransitionTime": "2026-11-26T00:00:01Z"},
                    {"type": EARLY_WARNINGS[0], "status": "Unknown", "lastTransitionTime": null},
                ],
                "nodeInfo": {"kubeletVersion": "v1.36.0", "containerRuntimeVersion": "containerd://2.1.4"},
            },
        }))
        .unwrap();
        let current = |status: &str, since: &str| CurrentCondition {
            status: status.into(),
            last_transition_time: since.into(),
        };
        let expected = CurrentConditions::from([
            (CONDITION, current("False", "2026-11-26T00:00:01Z")),
            (EARLY_WARNINGS[0], current("Unknown", "")),
        ]);
        assert_eq!(current_conditions(&node), expected);
        let containerd = "containerd://2.1.4".to_owned();
        assert_eq!(versions(&node), Versions { kubelet: "v1.36.0".into(), containerd });
        let bare: NodeObject =
            serde_json::from_value(json!({"metadata": {"name": "new"}, "spec": {}, "status": {}})).unwrap();
        assert_eq!(current_conditions(&bare), CurrentConditions::new());
    }

    #[tokio::test]
    async fn a_foreign_kubeconfig_and_a_missing_one_are_different_errors() {
        let (folder, admin) = kubeconfig("http://127.0.0.1:1", "kubernetes-admin");
        let refused = tell(&admin, &statement()).await.unwrap_err();
        assert!(matches!(&refused, Untold::Refused(said) if said.contains("not a kubelet's")), "{refused}");
        let absent = tell(&folder.path().join("nowhere"), &statement()).await.unwrap_err();
        assert!(matches!(absent, Untold::NoKubeconfig(_)), "{absent:?}");
    }
}
