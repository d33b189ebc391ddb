//! Certificate renewals while the rest of the node stays unchanged. A component that stays unhealthy gets its old
//! certificates back. A renewal never changes the status of the rest of the node.

use std::time::Duration;

use kops_agent_host::{Error, Host, Renewing, Report, Scope, Silent};
use kops_agent_plan::diff::Interrupted;
use kops_agent_plan::resource::{DesiredState, File, Kind, ResourceId};

use super::scene::{KUBELET_CONFIG, Scene, TOKEN, node};
use super::support::noon;

/// Version 1 of the node, but with `text` as kubelet's configuration. `text` stands for a renewed certificate.
fn with_renewed(text: &str) -> DesiredState {
    let mut state = DesiredState::default();
    for (id, resource) in node("1").iter() {
        match *id == ResourceId::new(Kind::File, KUBELET_CONFIG) {
            true => state.add(File::text(KUBELET_CONFIG, text)),
            false => state.add(resource.clone()),
        };
    }
    state
}

async fn renew(scene: &Scene, host: &Host, state: &DesiredState) -> Result<Report, Error> {
    let mut plan = scene.machine.plan(host, state);
    plan.steps.retain(|step| step.resource.name != TOKEN);
    assert_eq!(plan.steps.len(), 2, "{plan:?}");
    let scope = Scope::Renewal { config_hash: "hash" };
    host.apply(&plan, state, &scene.machine.store, &scene.machine.downloads, &Silent, scope).await
}

#[tokio::test]
async fn an_unhealthy_component_gets_its_old_certificate_and_is_retried_after_a_day() {
    let scene = Scene::converged(&node("1")).await;
    std::fs::write(scene.machine.path(TOKEN), "edited").unwrap();
    let files = scene.files();
    let error = renew(&scene, &scene.host(), &with_renewed("bad")).await.unwrap_err();
    assert!(matches!(error, Error::RolledBack(_)), "{error:?}");
    assert!(error.to_string().contains("renewed again after a day"), "{error}");
    assert_eq!(scene.files(), files);
    scene.is_clean();
    let status = scene.host().status().unwrap();
    assert!(
        status.failure.is_some() && status.rolled_back.is_none(),
        "a failed renewal rejects no configuration"
    );
    let later = |hours: u64| {
        let clock = move || noon() + Duration::from_secs(hours * 3600);
        scene.host().with_clock(clock)
    };
    match later(23).renewing().unwrap() {
        Renewing::PutOff(why) => assert!(why.contains("The next try is a day after that renewal"), "{why}"),
        free => panic!("{free:?}"),
    }
    assert_eq!(later(25).renewing().unwrap(), Renewing::Free(Interrupted::No, "hash".into()));

    renew(&scene, &later(25), &with_renewed("good")).await.unwrap();
    assert_eq!(scene.machine.read(KUBELET_CONFIG), "good");
    let status = scene.host().status().unwrap();
    assert!(status.failure.is_none(), "{status:?}");
    let changed: Vec<String> =
        scene.host().drift().unwrap().iter().map(|drift| drift.resource.to_string()).collect();
    assert_eq!(changed, [format!("file {TOKEN}")], "changes by others are still reported");
    assert_eq!(scene.machine.read(TOKEN), "edited");
    scene.is_clean();
    scene.converge(&with_renewed("good")).await.unwrap();
    assert!(scene.host().drift().unwrap().is_empty());
}

#[tokio::test]
async fn a_renewal_does_not_end_an_interrupted_change() {
    let scene = Scene::converged(&node("1")).await;
    scene.interrupt(&node("bad"), "restart kubelet.service").await;
    assert!(matches!(scene.host().renewing().unwrap(), Renewing::PutOff(why) if why.contains("interrupted")));
}
