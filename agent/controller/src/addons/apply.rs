//! Applies due add-ons once, and retries failed ones.

use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use kops_agent_cluster::addons::{Addon, Due, Report};
use kops_agent_net::retry::Pauses;

use super::states::{AddonState, Scene};
use super::updating::{self, pause_of};

/// The pauses before the rounds that retry failed add-ons.
const PAUSES: Pauses = Pauses { first: Duration::from_secs(2), longest: Duration::from_secs(60) };

#[derive(Debug, Default)]
pub struct Outcome {
    pub done: Vec<Report>,
    /// The reports of the add-ons that failed in the last round.
    pub failed: Vec<Report>,
}

/// Applies the due add-ons in the order of the channels. With `reapply`, also applies the current add-ons. Up to `retries` more rounds
/// retry only the failed add-ons.
pub async fn apply(scene: &Scene, reapply: bool, retries: u32) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut next_pause = PAUSES.jittered();
    let mut round = 0;
    loop {
        outcome.failed = apply_rest(scene, reapply, &mut outcome.done).await?;
        if outcome.failed.is_empty() || round >= retries {
            return Ok(outcome);
        }
        round += 1;
        for report in &outcome.failed {
            log::warn!("the add-on {} failed: {}", report.name, report.problems.join("; "));
        }
        let pause = next_pause();
        log::info!("retrying failed add-ons in {pause:.0?} (retry {round} of {retries})");
        sleep(pause).await;
    }
}

/// Applies the due add-ons that are not in `done`, and returns the reports of those that fail. An add-on in `done` is not
/// applied again, even with `reapply`.
async fn apply_rest(scene: &Scene, reapply: bool, done: &mut Vec<Report>) -> Result<Vec<Report>> {
    let is_done = |addon: &Addon| {
        done.iter().any(|report| report.name == addon.name && report.channel == addon.channel)
    };
    let rest = scene.addons().filter(|addon| !is_done(addon));
    let installed = scene.installed().await?;
    let addon_states = scene.states(rest, &installed).await?;
    for addon_state in addon_states.iter().filter(|addon_state| addon_state.is_paused) {
        log::warn!("the add-on {} is paused: {}", addon_state.addon.name, pause_of(&addon_state.addon));
    }
    let active = addon_states.iter().filter(|addon_state| !addon_state.is_paused);
    let wanted = active.filter_map(|addon_state| Some((&addon_state.addon, wanted(addon_state, reapply)?)));
    let wanted: Vec<(&Addon, Due)> = wanted.collect();
    let work = wanted.iter().map(|(addon, due)| (*addon, due)).collect();
    let reports = updating::update_all(&scene.objects, &scene.store, work, || true).await;
    let (new, failed) = reports.into_iter().flatten().partition(|report| report.problems.is_empty());
    done.extend::<Vec<Report>>(new);
    Ok(failed)
}

/// The work for an add-on: its due work, or a full apply with `reapply`. The reapply of a current add-on changes no version, so it marks no
/// Node for replacement.
fn wanted(addon_state: &AddonState, reapply: bool) -> Option<Due> {
    match &addon_state.due {
        Some(Due { version: Some(_), .. }) => addon_state.due.clone(),
        due if reapply => Some(Due {
            version: Some(addon_state.addon.version()),
            pki: due.as_ref().is_some_and(|due| due.pki),
            marks: None,
        }),
        due => due.clone(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kops_agent_cluster::addons::{Channel, ServerVersion};
    use kops_agent_spec::kops_release::KopsRelease;
    use kops_agent_tests::test_server::{TestServer, text as answer};
    use kube::{Client, Config};
    use serde_json::json;

    use super::*;
    use crate::addons::objects::Objects;
    use crate::configuration;

    #[tokio::test]
    async fn the_authority_of_an_applied_add_on_is_not_requested_again() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let server = TestServer::start(move |request| {
            let (method, path) = (request.method().as_str(), request.uri().path());
            let status = match (method, path) {
                ("GET", "/api/v1/namespaces") => 200,
                ("GET", "/api/v1/namespaces/kube-system/secrets/a-ca") => {
                    count.fetch_add(1, Ordering::SeqCst);
                    404
                }
                ("POST", _) => 201,
                (method, path) => panic!("{method} {path}"),
            };
            let answered = match status {
                200 => json!({"metadata": {}, "items": [{"metadata": {"name": "kube-system", "annotations": {
                    "addons.k8s.io/a": r#"{"manifestHash":"x","systemGeneration":1}"#}}}]}),
                201 => json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a-ca"}}),
                _ => json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}),
            };
            async move { Ok(answer(status, &answered.to_string())) }
        })
        .await;
        let channel = "{kind: Addons, metadata: {name: c}, spec: {addons: [
            {name: a, manifest: a, manifestHash: x, needsPKI: true}, {name: b, manifest: not-there}]}}";
        let channel =
            Channel::parse(channel.as_bytes(), "file:///nowhere/channel", KopsRelease::NEWEST).unwrap();
        kops_agent_net::tls::install_provider();
        let client = Client::try_from(Config::new(server.url.parse().unwrap())).unwrap();
        let scene = Scene {
            store: configuration::store(&[]).unwrap(),
            objects: Objects::new(client),
            menus: vec![channel.menu(ServerVersion::parse("v1.34.0").unwrap())],
            is_of_one: false,
        };
        let mut done = Vec::new();
        for _round in 0..2 {
            let failed = apply_rest(&scene, false, &mut done).await.unwrap();
            let names = |reports: &[Report]| reports.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
            assert_eq!((names(&done), names(&failed)), (vec!["a".into()], vec!["b".into()]), "{failed:?}");
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
    }
}
