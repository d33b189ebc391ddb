#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::Incoming;
use kops_agent_net::retry::Retries;
use kops_agent_tests::test_server::{TestServer, text};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::configuration;

/// The path of kOps' own channel on the web server.
const OWN_CHANNEL: &str = "/addons/bootstrap-channel.yaml";

/// The state of the two fake servers: the API server, and the web server that has the channels.
#[derive(Default)]
struct Scene {
    annotations: BTreeMap<String, String>,
    /// The status code of answers about kube-system; `None` for 200.
    namespace_status: Option<u16>,
    refused: BTreeSet<String>,
    /// The Services that a list of the Services in the namespace `default` returns.
    listed: BTreeSet<String>,
    /// Two ConfigMaps. The patch of the first waits until the second is applied.
    slow: Option<(String, String)>,
    /// The files of the web server, by path.
    files: BTreeMap<String, String>,
    /// The status code of the web server's answers; `None` for 200.
    web_status: Option<u16>,
    /// The add-ons that have an authority.
    authorities: BTreeSet<String>,
    /// The requests to the API server as `METHOD PATH`, except requests for the version and for kube-system.
    asked: Vec<String>,
    /// The objects that were applied, by name.
    applied: Vec<String>,
    /// The `status` of applied objects.
    status: Value,
}

impl Scene {
    /// Writes a channel with these add-ons, and their manifests. Each add-on has a name, a hash, and more fields.
    fn channel(&mut self, addons: &[(&str, &str, &str)]) {
        let entries: String = addons
            .iter()
            .map(|(name, hash, more)| {
                format!("{{name: {name}, manifest: {name}.yaml, manifestHash: {hash}, {more}}}, ")
            })
            .collect();
        self.files.insert("/channel.yaml".into(), format!("{{kind: Addons, spec: {{addons: [{entries}]}}}}"));
        for (name, _, _) in addons {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "namespace": "default"}});
            self.files.insert(format!("/{name}.yaml"), object.to_string());
        }
    }

    /// Writes a store of this kOps version. In it, kOps' own channel has the add-on `a` with this hash.
    fn kops(&mut self, version: &str, hash: &str) {
        self.channel(&[("a", hash, "")]);
        let channel = self.files["/channel.yaml"].clone();
        self.files.insert(OWN_CHANNEL.into(), channel);
        let manifest = self.files["/a.yaml"].replace("ConfigMap", "Service");
        self.files.insert("/addons/a.yaml".into(), manifest);
        self.files.insert("/kops-version.txt".into(), version.into());
    }

    fn answer(&mut self, method: &str, path: &str, body: &[u8]) -> (u16, Value) {
        let failure = |code: u16| {
            let reason = if code == 404 { "NotFound" } else { "Forbidden" };
            (
                code,
                json!({"kind": "Status", "status": "Failure", "message": "refused", "reason": reason, "code": code}),
            )
        };
        let is_noted = path != "/version" && path != "/api/v1/namespaces/kube-system";
        if is_noted {
            self.asked.push(format!("{method} {path}"));
        }
        let name = path.rsplit('/').next().unwrap().to_owned();
        match (method, path) {
            ("GET", "/version") => (
                200,
                json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0",
                "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
            ),
            (_, "/api/v1/namespaces/kube-system") => {
                if let Some(status) = self.namespace_status {
                    return failure(status);
                }
                if method == "PATCH" {
                    let patch: Value = serde_json::from_slice(body).unwrap();
                    for (key, value) in patch["metadata"]["annotations"].as_object().unwrap() {
                        self.annotations.insert(key.clone(), value.as_str().unwrap().to_owned());
                    }
                }
                (200, json!({"metadata": {"name": "kube-system", "annotations": self.annotations}}))
            }
            ("GET", "/api/v1") => (
                200,
                json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
                {"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "singularName": "", "verbs": []},
                {"name": "services", "kind": "Service", "namespaced": true, "singularName": "", "verbs": []}]}),
            ),
            ("PATCH", _) if self.refused.contains(&name) => failure(403),
            ("PATCH", _) => {
                self.applied.push(name.clone());
                let kind = if path.contains("/services/") { "Service" } else { "ConfigMap" };
                let metadata = json!({"name": name, "namespace": "default"});
                (200, json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "status": self.status}))
            }
            ("GET", "/api/v1/namespaces/default/services") => {
                let item = |name: &String| json!({"metadata": {"name": name, "namespace": "default"}});
                let items: Vec<Value> = self.listed.iter().map(item).collect();
                (
                    200,
                    json!({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": items}),
                )
            }
            ("DELETE", _) if self.listed.remove(&name) => {
                (200, json!({"kind": "Status", "status": "Success"}))
            }
            ("POST", path) if path.ends_with("/events") => (201, serde_json::from_slice(body).unwrap()),
            ("GET", path) if path.contains("/secrets/") || path.contains("/issuers/") => {
                match self.authorities.contains(name.trim_end_matches("-ca")) {
                    true => (200, json!({"apiVersion": "v1", "kind": "x", "metadata": {"name": name}})),
                    false => failure(404),
                }
            }
            ("GET", _) => failure(404),
            (method, path) => panic!("{method} {path}"),
        }
    }
}

/// The rounds of a test, and the fake servers that they use.
struct Played {
    scene: Arc<Mutex<Scene>>,
    rounds: Rounds,
    channel: String,
    _servers: [TestServer; 2],
}

impl Played {
    async fn begin(leadership: Leadership) -> Played {
        kops_agent_net::tls::install_provider();
        let scene = Arc::<Mutex<Scene>>::default();
        let of_api = scene.clone();
        let api = TestServer::start(move |request: Request<Incoming>| {
            let scene = of_api.clone();
            async move {
                let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let waits = |scene: &Scene| match &scene.slow {
                    Some((slow, other)) => {
                        path.ends_with(slow) && method == "PATCH" && !scene.applied.contains(other)
                    }
                    None => false,
                };
                while waits(&scene.lock()) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let (status, answer) = scene.lock().answer(&method, &path, &body);
                Ok(text(status, &answer.to_string()))
            }
        })
        .await;
        let of_web = scene.clone();
        let web = TestServer::start(move |request: Request<Incoming>| {
            let scene = of_web.lock();
            let found = scene.files.get(request.uri().path()).cloned();
            let status = scene.web_status.unwrap_or(if found.is_some() { 200 } else { 404 });
            async move { Ok(text(status, &found.unwrap_or_default())) }
        })
        .await;
        let channel = format!("{}/channel.yaml", web.url);
        let client = Client::try_from(Config::new(api.url.parse().unwrap())).unwrap();
        let at_once = Retries { deadline: Duration::ZERO, ..Retries::default() };
        let store = configuration::store(&[]).unwrap().with_retries(at_once).reading_in_clear();
        let rounds = Rounds::new(vec![channel.clone()], store, Objects::new(client), leadership);
        Played { scene, rounds, channel, _servers: [api, web] }
    }

    fn change(&self, change: impl FnOnce(&mut Scene)) {
        change(&mut self.scene.lock());
    }

    /// Runs a round, and returns the state of each add-on as a word, sorted by name.
    async fn look(&mut self) -> Vec<(String, &'static str)> {
        let round = self.rounds.round().await;
        assert_eq!(round.problem, None);
        let word = |state: &State| match state {
            State::Current => "current",
            State::Paused(_) => "paused",
            State::Applied(_) => "applied",
            State::Failed(..) => "failed",
            State::Waiting(_) => "waiting",
            State::Unknown(_) => "unknown",
        };
        round.addons.iter().map(|(addon, state)| (addon.name.clone(), word(state))).collect()
    }

    /// The requests since the last call of this function.
    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.scene.lock().asked)
    }

    fn applied(&self) -> Vec<String> {
        std::mem::take(&mut self.scene.lock().applied)
    }
}

fn stands(addons: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
    addons.iter().map(|(name, state)| ((*name).to_owned(), *state)).collect()
}

#[tokio::test]
async fn due_add_ons_are_applied_once_and_current_ones_cost_no_request_of_their_own() {
    let mut played = Played::begin(Leadership::uncontested()).await;
    played.change(|scene| scene.channel(&[("a", "1", ""), ("b", "1", "")]));
    assert_eq!(played.look().await, stands(&[("a", "applied"), ("b", "applied")]));
    assert_eq!(played.applied(), ["a", "b"]);
    let recorded = played.scene.lock().annotations["addons.k8s.io/a"].clone();
    let version = format!(r#"{{"channel":"{}","manifestHash":"1","systemGeneration":1}}"#, played.channel);
    assert_eq!(recorded, version);
    played.asked();
    for _ in 0..3 {
        assert_eq!(played.look().await, stands(&[("a", "current"), ("b", "current")]));
    }
    assert_eq!(played.asked(), [""; 0]);
    // Each round reads the recorded versions. So the add-on is current once upstream's pod has recorded the version.
    played.change(|scene| {
        scene.channel(&[("a", "2", ""), ("b", "1", "")]);
        let theirs = r#"{"manifestHash":"2","systemGeneration":1}"#;
        scene.annotations.insert("addons.k8s.io/a".into(), theirs.into());
    });
    assert_eq!(played.look().await, stands(&[("a", "current"), ("b", "current")]));
}

#[tokio::test]
async fn one_that_fails_keeps_none_back_and_waits_until_its_entry_is_another() {
    let mut played = Played::begin(Leadership::uncontested()).await;
    played.change(|scene| {
        scene.channel(&[("a", "1", ""), ("b", "1", "")]);
        scene.refused.insert("a".into());
    });
    assert_eq!(played.look().await, stands(&[("a", "failed"), ("b", "applied")]));
    played.asked();
    assert_eq!(played.look().await, stands(&[("a", "waiting"), ("b", "current")]));
    assert_eq!(played.asked(), [""; 0]);
    assert!(played.rounds.next_attempt().is_some());
    // If the entry of the add-on `b` changes, the backoff of the add-on `a` does not end.
    played.change(|scene| {
        scene.refused.clear();
        scene.channel(&[("a", "1", ""), ("b", "2", "")]);
    });
    assert_eq!(played.look().await, stands(&[("a", "waiting"), ("b", "applied")]));
    played.change(|scene| scene.channel(&[("a", "2", ""), ("b", "2", "")]));
    assert_eq!(played.look().await, stands(&[("a", "applied"), ("b", "current")]));
    assert_eq!(played.rounds.next_attempt(), None);
}

/// A pruned object may have blocked the apply, so the apply is repeated. If nothing was pruned, a second attempt would fail, too.
#[tokio::test]
async fn one_that_fails_is_applied_twice_only_if_something_was_pruned() {
    let prune = "prune: {kinds: [{kind: Service, namespaces: [default], labelSelector: a=b}]}";
    for (listed, attempts) in [(&["old"][..], 2), (&[], 1)] {
        let mut played = Played::begin(Leadership::uncontested()).await;
        played.change(|scene| {
            scene.channel(&[("a", "1", prune)]);
            scene.refused.insert("a".into());
            scene.listed = listed.iter().map(|name| (*name).to_owned()).collect();
        });
        assert_eq!(played.look().await, stands(&[("a", "failed")]));
        let asked = played.asked();
        let count = |asked_for: &str| asked.iter().filter(|asked| *asked == asked_for).count();
        assert_eq!(count("PATCH /api/v1/namespaces/default/configmaps/a"), attempts, "{asked:?}");
        assert_eq!(count("DELETE /api/v1/namespaces/default/services/old"), listed.len(), "{asked:?}");
        assert_eq!(count("GET /api/v1/namespaces/default/services"), 1, "{asked:?}");
    }
    // An add-on that does not fail is applied once, whatever was pruned.
    let mut played = Played::begin(Leadership::uncontested()).await;
    played.change(|scene| {
        scene.channel(&[("a", "1", prune)]);
        scene.listed.insert("old".into());
    });
    assert_eq!(played.look().await, stands(&[("a", "applied")]));
    assert_eq!(played.applied(), ["a"]);
}

#[tokio::test]
async fn one_that_is_paused_is_left_until_it_is_not() {
    let mut played = Played::begin(Leadership::uncontested()).await;
    let pause = "paused.kops-agent/a".to_owned();
    played.change(|scene| {
        scene.channel(&[("a", "1", ""), ("b", "1", "")]);
        scene.annotations.insert(pause.clone(), "until monday".into());
    });
    assert_eq!(played.look().await, stands(&[("a", "paused"), ("b", "applied")]));
    assert_eq!(played.applied(), ["b"]);
    played.change(|scene| drop(scene.annotations.remove(&pause)));
    assert_eq!(played.look().await, stands(&[("a", "applied"), ("b", "current")]));
}

#[tokio::test]
async fn one_that_is_slow_keeps_none_back() {
    let mut played = Played::begin(Leadership::uncontested()).await;
    played.change(|scene| {
        scene.channel(&[("a", "1", ""), ("b", "1", ""), ("c", "1", "")]);
        scene.slow = Some(("a".into(), "c".into()));
    });
    assert_eq!(played.look().await, stands(&[("a", "applied"), ("b", "applied"), ("c", "applied")]));
    assert_eq!(played.applied(), ["b", "c", "a"]);
}

#[tokio::test]
async fn an_unreadable_channel_changes_nothing_and_keeps_the_backoffs() {
    let mut played = Played::begin(Leadership::uncontested()).await;
    played.change(|scene| {
        scene.channel(&[("a", "1", "")]);
        scene.refused.insert("a".into());
    });
    assert_eq!(played.look().await, stands(&[("a", "failed")]));
    played.asked();
    for status in [401, 403, 404, 429, 500, 503] {
        played.change(|scene| scene.web_status = Some(status));
        let round = played.rounds.round().await;
        assert!(round.channels[&played.channel].is_err() && round.addons.is_empty(), "{status}: {round:?}");
        assert!(!round.is_complete());
        assert_eq!(played.asked(), [""; 0], "{status}");
    }
    played.change(|scene| scene.web_status = None);
    assert_eq!(played.look().await, stands(&[("a", "waiting")]), "its pause goes on");
    // If the file is not a channel, the round applies nothing.
    played.change(|scene| drop(scene.files.insert("/channel.yaml".into(), "kind: Addons\nspec: [".into())));
    assert_eq!(played.look().await, []);
}

#[tokio::test]
async fn an_add_on_of_two_channels_is_the_last_one_s() {
    let mut played = Played::begin(Leadership::uncontested()).await;
    let other = played.channel.replace("channel.yaml", "other.yaml");
    played.rounds.channels.push(other.clone());
    let with = |entries: &str| format!("{{kind: Addons, spec: {{addons: [{entries}]}}}}");
    let has_a = with("{name: a, manifest: a.yaml, manifestHash: '2'}");
    played.change(|scene| {
        scene.channel(&[("a", "1", ""), ("b", "1", "")]);
        scene.files.insert("/other.yaml".into(), has_a);
    });
    assert_eq!(played.look().await, stands(&[("b", "applied"), ("a", "applied")]));
    let round = played.rounds.round().await;
    let others: Vec<(&str, &str)> =
        round.others.iter().map(|addon| (addon.name.as_str(), addon.channel.as_str())).collect();
    assert_eq!(others, [("a", played.channel.as_str())]);
    assert_eq!(played.look().await, stands(&[("b", "current"), ("a", "current")]));
    assert_eq!(played.applied(), ["b", "a"]);
    assert!(played.scene.lock().annotations["addons.k8s.io/a"].contains(r#""manifestHash":"2""#));
    // If a channel cannot be read, the round does not treat it as an empty channel.
    played.change(|scene| drop(scene.files.remove("/other.yaml")));
    let round = played.rounds.round().await;
    assert!(round.channels[&other].is_err() && round.others.is_empty(), "{round:?}");
    assert_eq!(played.look().await, stands(&[("a", "unknown"), ("b", "current")]));
    played.change(|scene| drop(scene.files.insert("/other.yaml".into(), with(""))));
    assert_eq!(played.look().await, stands(&[("a", "applied"), ("b", "current")]));
    assert!(played.scene.lock().annotations["addons.k8s.io/a"].contains(r#""manifestHash":"1""#));
}

#[tokio::test]
async fn add_ons_stay_unchanged_if_their_namespace_cannot_be_read() {
    let mut played = Played::begin(Leadership::uncontested()).await;
    for status in [403, 500] {
        played.change(|scene| {
            scene.channel(&[("a", "1", "")]);
            scene.namespace_status = Some(status);
        });
        let round = played.rounds.round().await;
        let (_, state) = &round.addons[0];
        assert!(matches!(state, State::Unknown(_)) && !round.is_complete(), "{state:?}");
        assert_eq!(played.asked(), [""; 0], "forbidden is not absent");
    }
    played.change(|scene| scene.namespace_status = None);
    assert_eq!(played.look().await, stands(&[("a", "applied")]));
}

#[tokio::test]
async fn a_replica_that_does_not_lead_applies_nothing() {
    let mut played = Played::begin(Leadership::of_another()).await;
    played.change(|scene| scene.channel(&[("a", "1", ""), ("b", "1", "")]));
    assert_eq!(played.look().await, []);
    assert_eq!(played.applied(), [""; 0]);
}

#[tokio::test]
async fn an_existing_authority_is_not_read_in_each_round() {
    let mut played = Played::begin(Leadership::uncontested()).await;
    played.change(|scene| {
        scene.channel(&[("a", "1", "needsPKI: true")]);
        scene.authorities.insert("a".into());
    });
    assert_eq!(played.look().await, stands(&[("a", "applied")]));
    assert_eq!(played.asked().iter().filter(|asked| asked.contains("a-ca")).count(), 1);
    assert_eq!(played.look().await, stands(&[("a", "current")]));
    assert_eq!(played.asked(), [""; 0]);
    let long_ago = Instant::now().checked_sub(AUTHORITY_STANDS).unwrap();
    played.rounds.authorities.insert("a".into(), long_ago);
    assert_eq!(played.look().await, stands(&[("a", "current")]));
    assert_eq!(played.asked().len(), 2, "the Secret and the Issuer, once an hour");
}

/// The store's kOps release changes while the service runs. The health rules of the new release then apply.
#[tokio::test]
async fn whether_an_object_is_healthy_follows_from_the_kops_that_wrote_the_channel() {
    let mut played = Played::begin(Leadership::uncontested()).await;
    let own = played.channel.replace("/channel.yaml", OWN_CHANNEL);
    played.rounds.channels = vec![own.clone()];
    played.change(|scene| {
        scene.kops("1.35.2", "1");
        scene.status = json!({"conditions": [{"type": "Paused", "status": "False"}]});
    });
    let round = played.rounds.round().await;
    let problem = round.addons[0].1.problem().unwrap();
    assert!(problem.contains("Service default/a is not healthy: Paused is False"), "{problem}");
    assert_eq!(played.scene.lock().annotations.len(), 0);

    for (version, hash) in [("1.36.2", "2"), ("1.37.0-alpha.1", "3")] {
        played.change(|scene| scene.kops(version, hash));
        assert_eq!(played.look().await, stands(&[("a", "applied")]), "{version}");
    }
    played.change(|scene| scene.kops("1.33.1", "3"));
    let round = played.rounds.round().await;
    let problem = round.channels[&own].as_ref().unwrap_err().to_string();
    assert!(problem.contains("kOps 1.33.1") && problem.contains("1.34 and newer"), "{problem}");
    assert_eq!((round.problem, round.addons.len()), (None, 0));
}

#[tokio::test]
async fn a_manifest_in_the_place_of_a_channel_is_applied_from_kops_1_36_on() {
    let mut played = Played::begin(Leadership::uncontested()).await;
    let at = |path: &str| played.channel.replace("/channel.yaml", path);
    played.rounds.channels = vec![at(OWN_CHANNEL), at("/b.yaml")];
    played.change(|scene| {
        let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b", "namespace": "default"}});
        scene.files.insert("/b.yaml".into(), manifest.to_string());
        scene.kops("1.35.2", "1");
    });
    assert_eq!(played.look().await, stands(&[("a", "applied")]));
    assert_eq!(played.applied(), ["a"]);
    played.change(|scene| scene.kops("1.36.2", "1"));
    assert_eq!(played.look().await.len(), 2);
    assert_eq!(played.applied(), ["b"]);
}
