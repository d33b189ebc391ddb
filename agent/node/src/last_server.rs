//! Keeps the last bootstrap server of a cluster: a run does not remove kops-agent's controller from a control plane, and `reset` does not
//! take the machine away, unless machines can bootstrap elsewhere. `kops_agent_cluster::takeover` decides whether they can.
//!
//! If it is unknown whether machines can bootstrap elsewhere, a run keeps the service, and each later run asks again. This is normal at
//! boot: the API server of the machine starts only after the run has begun. A `reset` goes on, because a broken API server may be the
//! reason for the reset.

use std::path::Path;

use anyhow::{Context as _, Result};
use kops_agent_cluster::takeover::{Departure, Leaving};
use kops_agent_host::{Applied, Host};
use kops_agent_kube::bootstrap_servers::{Kubeconfigs, own_departure};
use kops_agent_plan::desired::{CONTROLLER_CONF, CONTROLLER_KUBECONFIG, CONTROLLER_UNIT};
use kops_agent_plan::diff::{Action, Plan};
use kops_agent_process::service_manager;
use kops_agent_source::bootstrap_client::LeftBy;
use kops_agent_spec::KopsControllerOptions;
use kops_agent_spec::failure::{Failure, Kind};

use super::decide::Decision;
use super::machine;
use super::options::RunOptions;
use crate::redaction::error_text;

const OVERRIDE: &str = "--allow-no-server";

/// Refuses a plan that removes the last bootstrap server. Also refuses the plan if this run cannot find out whether the cluster has a
/// second bootstrap server.
pub async fn stays(options: &RunOptions, host: &Host, decision: &Decision, plan: &Plan) -> Result<()> {
    let root = options.root.as_path();
    // No bootstrap server runs in a scratch root.
    if options.allows_no_server || root != Path::new("/") || !removes_controller(plan) {
        return Ok(());
    }
    // An unfinished change passed this check when it began. A second check could fail, because the API server may not work before the
    // change is complete.
    let is_same = |state: Applied| state.config_hash == decision.config_hash;
    if host.unfinished_change()?.is_some_and(|change| change.state.is_none_or(is_same)) {
        return Ok(());
    }
    // If this machine was made from the image of another control plane, it has a copy of that machine's bootstrap server. The copy has not
    // served any machine, so the plan may remove it.
    if machine::left_by(root, &decision.facts) == LeftBy::AnotherMachine {
        return Ok(());
    }
    let departure = departure(root, Leaving::Service).await;
    let stays =
        service_refusal(departure, |why| log::info!("{CONTROLLER_UNIT} can be removed safely: {why}"));
    if stays.is_err() {
        // Report this unit as ready, so that the units that are ordered after it start. They find a working node, because this run
        // has not changed anything yet.
        service_manager::serving("waiting for another server at which machines can bootstrap");
    }
    stays
}

/// Refuses to reset the machine with the last bootstrap server. `units` are the units that the reset stops. Allows the reset if this
/// machine is the only control plane, or if this run cannot find out whether the cluster has a second bootstrap server.
pub async fn stays_after_reset(root: &Path, units: &[String]) -> Result<()> {
    if root != Path::new("/") || !units.iter().any(|unit| unit == CONTROLLER_UNIT) {
        return Ok(());
    }
    reset_refusal(departure(root, Leaving::Machine).await)
}

/// Whether a plan removes the unit of kops-agent's controller, or files that the unit needs to start. If a user has changed the unit, the
/// plan removes only these files. Returns `false` if an interrupted run has already removed the unit.
fn removes_controller(plan: &Plan) -> bool {
    let removed = |name: &str| {
        plan.steps.iter().any(|step| step.action == Action::Remove && step.resource.name == name)
    };
    let is_kept = plan.kept.iter().any(|kept| kept.resource.name == CONTROLLER_UNIT);
    removed(CONTROLLER_UNIT) || is_kept && (removed(CONTROLLER_CONF) || removed(CONTROLLER_KUBECONFIG))
}

/// Calls [`own_departure`] with the files below `root`.
async fn departure(root: &Path, leaving: Leaving) -> Result<Departure> {
    let path = |file: &str| root.join(file.trim_start_matches('/'));
    let conf = path(CONTROLLER_CONF);
    let name = conf.display().to_string();
    let text = std::fs::read(&conf).with_context(|| format!("reading {name}"))?;
    let options = KopsControllerOptions::parse(&text, &name)?;
    let (controller, kubelet) = (path(CONTROLLER_KUBECONFIG), machine::kubeconfig(root));
    let kubeconfigs = Kubeconfigs { controller: &controller, kubelet: &kubelet };
    own_departure(leaving, &options, kubeconfigs).await
}

fn service_refusal(departure: Result<Departure>, leaves: impl FnOnce(&str)) -> Result<()> {
    let problem = match departure {
        Ok(Departure::Allowed(why)) => {
            leaves(&why);
            return Ok(());
        }
        Ok(Departure::Refused(why)) => format!(
            "{CONTROLLER_UNIT} stays on this machine, because no machine could bootstrap without it: {why}. First start another \
             server: kOps' kops-controller, or kops-agent's server on another control plane. \
             `kops-agent controller takeover --check --back` shows whether such a server is running. {OVERRIDE} removes the service \
             anyway"
        ),
        Err(error) => format!(
            "{CONTROLLER_UNIT} stays on this machine, because this run cannot find out whether machines can bootstrap without it: {}. \
             Run kops-agent again once the API server answers. {OVERRIDE} removes the service anyway",
            error_text(&error)
        ),
    };
    Err(Failure::new(Kind::LastServer, problem).into())
}

fn reset_refusal(departure: Result<Departure>) -> Result<()> {
    match departure {
        Ok(Departure::Allowed(_)) => Ok(()),
        Ok(Departure::Refused(why)) => {
            let problem = format!(
                "nothing was reset, because no machine could bootstrap without this one: {why}. First start kops-agent's server on \
                 another control plane: run `kops-agent converge --controller` there. {OVERRIDE} resets this machine anyway"
            );
            Err(Failure::new(Kind::LastServer, problem).into())
        }
        Err(error) => {
            log::warn!(
                "cannot find out whether machines can bootstrap without this machine: {}. The reset continues",
                error_text(&error)
            );
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::net::TcpListener;

    use kops_agent_plan::desired::KUBELET_KUBECONFIG;
    use kops_agent_plan::diff::{Change, Keeping, Kept, Stage, Step};
    use kops_agent_plan::resource::{Kind as ResourceKind, ResourceId};
    use kops_agent_tests::kubeconfig::kubeconfig;
    use kops_agent_tests::test_server::{TestServer, text};
    use serde_json::{Value, json};

    use super::*;
    use crate::failure::kind_of;

    /// A control plane `a`, and its API server, which lists all control planes and the pods of kOps' kops-controller.
    struct Scene {
        root: tempfile::TempDir,
        _server: TestServer,
    }

    impl Scene {
        async fn start(port: u16, others: &[(&str, &str)], pods: &[Value]) -> Scene {
            let node = |name: &str, address: &str| json!({"metadata": {"name": name}, "spec": {}, "status": {"addresses": [{"type": "InternalIP", "address": address}]}});
            let mut nodes = vec![node("a", "127.0.0.1")];
            nodes.extend(others.iter().map(|(name, address)| node(name, address)));
            let list = |kind: &str, items: Vec<Value>| {
                json!({"kind": kind, "apiVersion": "v1", "metadata": {}, "items": items}).to_string()
            };
            let nodes = list("NodeList", nodes);
            let pods = list("PodList", pods.to_vec());
            let server = TestServer::start(move |request| {
                let is_own_pods = request.uri().path() == "/api/v1/namespaces/kube-system/pods"
                    && request.uri().query().is_some_and(|query| query.contains("spec.nodeName%3Da"));
                let answer = match request.uri().path() {
                    "/api/v1/nodes" => text(200, &nodes),
                    _ if is_own_pods => text(200, &pods),
                    _ => text(403, "{}"),
                };
                async move { Ok(answer) }
            })
            .await;
            let root = tempfile::tempdir().unwrap();
            let write = |path: &str, content: String| {
                let path = root.path().join(path.trim_start_matches('/'));
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            };
            let conf = format!("{{clusterName: c, cloud: aws, server: {{Listen: ':{port}'}}}}");
            write(CONTROLLER_CONF, conf);
            write(CONTROLLER_KUBECONFIG, kubeconfig(&server.url, "kops-controller").unwrap());
            write(KUBELET_KUBECONFIG, kubeconfig(&server.url, "system:node:a").unwrap());
            Scene { root, _server: server }
        }

        async fn departure(&self, leaving: Leaving) -> Result<Departure> {
            departure(self.root.path(), leaving).await
        }
    }

    fn is_allowed(departure: &Departure) -> bool {
        matches!(departure, Departure::Allowed(_))
    }

    fn refusal(outcome: Result<()>) -> String {
        let error = outcome.unwrap_err();
        assert_eq!(kind_of(&error), Kind::LastServer);
        error_text(&error)
    }

    #[test]
    fn only_a_plan_that_removes_the_service_asks() {
        let plan = |kind, name: &str, action| {
            let (stage, resource) = (Stage::Removals, ResourceId::new(kind, name));
            Plan {
                steps: vec![Step { stage, resource, action, changes: vec![Change::Remove] }],
                ..Plan::default()
            }
        };
        assert!(removes_controller(&plan(ResourceKind::Unit, CONTROLLER_UNIT, Action::Remove)));
        assert!(!removes_controller(&plan(ResourceKind::Unit, CONTROLLER_UNIT, Action::Change)));
        assert!(!removes_controller(&plan(ResourceKind::Unit, "kubelet.service", Action::Remove)));
        let files = plan(ResourceKind::File, CONTROLLER_CONF, Action::Remove);
        assert!(!removes_controller(&files), "an interrupted run has removed the unit");
        let resource = ResourceId::new(ResourceKind::Unit, CONTROLLER_UNIT);
        let kept = Kept { resource, why: "it was changed".into(), keeping: Keeping::NotWanted };
        assert!(removes_controller(&Plan { kept: vec![kept], ..files }));
        assert!(!removes_controller(&Plan::default()));
    }

    #[tokio::test]
    async fn the_service_leaves_if_another_control_plane_serves() {
        let listener = TcpListener::bind("127.0.0.2:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let scene = Scene::start(port, &[("b", "127.0.0.2"), ("c", "127.0.0.3")], &[]).await;
        let why = format!("a bootstrap server listens on b (127.0.0.2:{port})");
        assert_eq!(scene.departure(Leaving::Service).await.unwrap(), Departure::Allowed(why));
        assert!(reset_refusal(scene.departure(Leaving::Machine).await).is_ok());

        let scene = Scene::start(port, &[("c", "127.0.0.3"), ("d", "127.0.0.4")], &[]).await;
        let departure = scene.departure(Leaving::Service).await;
        let refused = refusal(service_refusal(departure, |_| panic!("it left")));
        for part in ["c (127.0.0.3:", "d (127.0.0.4:", OVERRIDE, "--check --back"] {
            assert!(refused.contains(part), "no {part} in {refused}");
        }
        let refused = refusal(reset_refusal(scene.departure(Leaving::Machine).await));
        assert!(refused.contains("nothing was reset") && refused.contains(OVERRIDE), "{refused}");
    }

    #[tokio::test]
    async fn the_only_control_plane_keeps_it_until_kops_controller_waits() {
        let waiting = json!({"metadata": {"name": "kops-controller-x"}});
        let ending = json!({"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let failed = json!({"metadata": {"name": "y"}, "status": {"phase": "Failed"}});
        let gone = vec![ending, failed];
        let with_waiting = [gone.clone(), vec![waiting]].concat();
        for (pods, leaves) in [(vec![], false), (gone, false), (with_waiting, true)] {
            let scene = Scene::start(1, &[], &pods).await;
            let departure = scene.departure(Leaving::Service).await.unwrap();
            assert_eq!(is_allowed(&departure), leaves, "{pods:?}: {departure:?}");
            let departure = scene.departure(Leaving::Machine).await.unwrap();
            assert!(is_allowed(&departure), "the cluster ends with it");
        }
    }

    #[tokio::test]
    async fn where_kops_agent_serves_no_machines_nothing_is_asked() {
        let root = tempfile::tempdir().unwrap();
        let conf = root.path().join(CONTROLLER_CONF.trim_start_matches('/'));
        fs::create_dir_all(conf.parent().unwrap()).unwrap();
        for more in ["", ", server: {Listen: ':3988'}, capi: {enabled: true}"] {
            fs::write(&conf, format!("{{clusterName: c, cloud: aws{more}}}")).unwrap();
            assert!(is_allowed(&departure(root.path(), Leaving::Service).await.unwrap()), "{more}");
        }
    }

    #[tokio::test]
    async fn if_nothing_is_known_a_run_keeps_the_service_and_a_reset_goes_on() {
        let scene = Scene::start(1, &[], &[]).await;
        let file = scene.root.path().join(CONTROLLER_KUBECONFIG.trim_start_matches('/'));
        fs::write(&file, kubeconfig("http://127.0.0.1:1", "kops-controller").unwrap()).unwrap();
        let departure = scene.departure(Leaving::Service).await;
        let refused = refusal(service_refusal(departure, |_| panic!("it left")));
        assert!(refused.contains("cannot find out") && refused.contains(OVERRIDE), "{refused}");
        assert!(reset_refusal(scene.departure(Leaving::Machine).await).is_ok());
        fs::remove_file(file).unwrap();
        assert!(scene.departure(Leaving::Service).await.is_err());
    }
}
