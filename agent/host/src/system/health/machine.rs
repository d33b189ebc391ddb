//! Health checks of this machine's components: over loopback, through the runtime's socket, and by `ctr`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use kops_agent_net::{causes, http};
use kops_agent_plan::health::{Check, StaticPod};
use kops_agent_plan::resource::{Kind, ResourceId};
use kops_agent_spec::failure::Failure;
use reqwest::{Client, redirect};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::listening::{Processes, other_listener};
use super::{Health, last_words, unhealthy};
use crate::system::ctr::{self, Container};

/// Timeout of a health request. kubelet's probes of the API server use the same timeout.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Maximum length of a quoted response, in characters.
const LONGEST_ANSWER: usize = 300;

pub(crate) struct Machine;

#[async_trait::async_trait]
impl Health for Machine {
    async fn ask(&self, check: &Check) -> Result<(), Failure> {
        match check {
            Check::Answers { url } => answers(url).await,
            Check::Runtime { socket } => runtime(socket).await,
            Check::Unit { .. } | Check::Pod { .. } => Ok(()),
        }
    }

    fn other_listener(&self, url: &str, unit: &str) -> Option<String> {
        other_listener(Path::new("/"), url, unit, || Processes::from_unit(unit))
    }

    fn pod_uid(&self, pod: &StaticPod, socket: &str) -> Result<Option<String>, Failure> {
        match ctr::running(pod, socket)? {
            Some(containers) => complete(pod, &containers).map(Some),
            None => Ok(None),
        }
    }

    fn last_words(&self, resource: &ResourceId) -> Vec<String> {
        if resource.kind != Kind::Unit {
            return Vec::new();
        }
        last_words::of_unit(&resource.name)
    }
}

/// Checks a URL as kubelet's probes do: any certificate is accepted, and no redirect is followed.
async fn answers(url: &str) -> Result<(), Failure> {
    let client = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .tls_danger_accept_invalid_certs(true)
        .connect_timeout(CONNECT_WITHIN)
        .timeout(ANSWER_WITHIN)
        .build()
        .map_err(|error| unhealthy(format!("cannot request {url}: {error}")))?;
    let answer = client
        .get(url)
        .send()
        .await
        .map_err(|error| unhealthy(format!("{url} does not answer: {}", cause(&error))))?;
    let status = answer.status();
    if status.is_success() || status.is_redirection() {
        return Ok(());
    }
    Err(unhealthy(format!("{url} answers {status}: {}", http::said(answer, LONGEST_ANSWER).await)))
}

/// The innermost cause of an error. It is the clearest part of the error chain.
fn cause(error: &(dyn std::error::Error + 'static)) -> String {
    let said = causes::innermost(error).to_string();
    said.split(" (os error").next().unwrap_or(&said).to_owned()
}

async fn runtime(socket: &str) -> Result<(), Failure> {
    match timeout(CONNECT_WITHIN, UnixStream::connect(socket)).await {
        Err(_) => return Err(unhealthy(format!("{socket} accepts no connection"))),
        Ok(Err(error)) => {
            return Err(unhealthy(format!("cannot connect to {socket}: {}", crate::error::explain(&error))));
        }
        Ok(Ok(_)) => {}
    }
    // Without `ctr`, a runtime that accepts connections counts as healthy.
    let Some(plugins) = ctr::ask(socket, &["plugins", "list"]) else { return Ok(()) };
    cri_is_loaded(&ctr::output_or_error(plugins)?)
}

/// Checks that containerd's CRI plugin works. containerd runs even if this plugin has failed.
fn cri_is_loaded(plugins: &str) -> Result<(), Failure> {
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let cri = plugins.lines().map(columns).find(|columns| columns.get(1).is_some_and(|id| id == "cri"));
    match cri.as_ref().and_then(|columns| columns.last()).map(String::as_str) {
        Some("ok") => Ok(()),
        Some(status) => Err(unhealthy(format!(
            "its plugin cri is in state {status:?}; `ctr plugins list -d id==cri` says why"
        ))),
        None => Err(unhealthy("it has no plugin cri, which kubelet needs; is it in disabled_plugins?")),
    }
}

/// The UID of the pod whose containers are all in `running`.
fn complete(pod: &StaticPod, running: &[Container]) -> Result<String, Failure> {
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for container in running {
        found.entry(container.uid()).or_default().insert(container.name());
    }
    let is_complete =
        |names: &BTreeSet<&str>| pod.containers.iter().all(|name| names.contains(name.as_str()));
    if let Some((uid, _)) = found.iter().find(|(_, names)| is_complete(names)) {
        return Ok((*uid).to_owned());
    }
    let running: BTreeSet<&str> = found.into_values().flatten().collect();
    let missing = pod.containers.iter().filter(|name| !running.contains(name.as_str()));
    let missing: Vec<&str> = missing.map(String::as_str).collect();
    Err(unhealthy(format!(
        "containers of the pod {}/{} do not run: {}",
        pod.namespace,
        pod.name,
        missing.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> StaticPod {
        StaticPod {
            namespace: "kube-system".into(),
            name: "kube-apiserver".into(),
            containers: ["kube-apiserver", "healthcheck"].map(str::to_owned).into(),
            termination_grace_period_seconds: 30,
        }
    }

    #[test]
    fn a_static_pod_runs_if_all_of_its_containers_run() {
        let complete = |running: &[Container]| super::complete(&pod(), running);
        let one = [Container::stand_in("aaa", "kube-apiserver")];
        let error = complete(&one).unwrap_err().to_string();
        assert_eq!(error, "containers of the pod kube-system/kube-apiserver do not run: healthcheck");
        let of_two =
            [Container::stand_in("aaa", "kube-apiserver"), Container::stand_in("bbb", "healthcheck")];
        assert!(complete(&of_two).is_err());
        let all = [Container::stand_in("bbb", "healthcheck"), Container::stand_in("bbb", "kube-apiserver")];
        assert_eq!(complete(&all).unwrap(), "bbb");
    }

    #[test]
    fn plugins_are_read_as_ctr_prints_them() {
        let plugins = |status: &str| {
            format!(
                "TYPE                      ID       PLATFORMS      STATUS    \n\
                 io.containerd.cri.v1      images   -              ok        \n\
                 io.containerd.grpc.v1     cri      -              {status}        \n"
            )
        };
        cri_is_loaded(&plugins("ok")).unwrap();
        assert!(cri_is_loaded(&plugins("error")).unwrap_err().to_string().contains("\"error\""));
        assert!(cri_is_loaded("").unwrap_err().to_string().contains("disabled_plugins"));
    }

    #[tokio::test]
    async fn errors_of_checks_give_the_reason() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}/healthz");
        let serve = async {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            for answer in ["200 OK\r\ncontent-length: 0", "500 Oh\r\ncontent-length: 11", "500 Oh"] {
                let (mut connection, _) = listener.accept().await.unwrap();
                let _ = connection.read(&mut [0; 4096]).await.unwrap();
                let answer = format!("HTTP/1.1 {answer}\r\nconnection: close\r\n\r\n[-]etcd bad");
                connection.write_all(answer.as_bytes()).await.unwrap();
                // The third response is longer than the limit and never ends.
                while answer.contains("500 Oh\r\nconnection")
                    && connection.write_all(&[b'x'; 1 << 16]).await.is_ok()
                {}
            }
        };
        let ask = async {
            answers(&url).await.unwrap();
            let error = answers(&url).await.unwrap_err().to_string();
            assert!(error.contains("500 Internal Server Error: [-]etcd bad"), "{error}");
            let error = answers(&url).await.unwrap_err().to_string();
            assert!(error.contains("[-]etcd badxxx") && error.len() < LONGEST_ANSWER + 100, "{error}");
        };
        tokio::join!(serve, ask);
        // The test uses port 1 because nothing listens there. A port that the test just closed may still be open in
        // another test's child, between fork and exec.
        let error = answers("http://127.0.0.1:1/healthz").await.unwrap_err().to_string();
        assert!(error.contains("does not answer: Connection refused"), "{error}");
        let error = runtime("/no/such/socket").await.unwrap_err().to_string();
        assert!(error.starts_with("cannot connect to /no/such/socket: No such file"), "{error}");
    }
}
