//! Control-plane mode for clusters where kOps' own kops-controller has to stay. It holds no Lease and labels no Nodes. It
//! leaves the bootstrap server's port to upstream's process, which ends for good if another process has that port.
//!
//! The process keeps running, so that its service does not fail. It logs why, and checks its configuration. Once nothing is
//! left to upstream any more, it ends, and systemd restarts it as a working controller.

use std::convert::Infallible;
use std::sync::Arc;

use anyhow::Result;
use tokio::net::TcpListener;

use kops_agent_process::{exit, service_manager};

use crate::changed_files::{LOOKED_AT_EVERY, Watched};
use crate::configuration::{changed_for_good, reason_to_stop};
use crate::health::{self, Health};
use crate::metrics::Metrics;
use crate::options::ControllerOptions;

/// Only answers probes, for the reason `why`, until the configuration changes or a signal comes.
pub async fn stand_by(
    given: &ControllerOptions,
    files: &mut Watched,
    stopped: &mut (impl Future<Output = &'static str> + Unpin),
    why: &str,
) -> Result<u8> {
    log::warn!(
        "{why}; this process does nothing: kOps' kops-controller keeps the Lease and the port of the \
         bootstrap server, and labels the Nodes"
    );
    let status = status_text(why);
    let probes = async { probes(health::listen(&given.health_listen).await?, why.to_owned()).await };
    service_manager::serving(&status);
    tokio::select! {
        why = reason_to_stop(stopped, changed_for_good(files, given, LOOKED_AT_EVERY)) => log::info!("stopping, because {why}"),
        never = service_manager::go_on_serving(&status) => match never {},
        result = probes => match result? {},
    }
    Ok(exit::CONVERGED)
}

fn status_text(why: &str) -> String {
    format!("standing by, because kOps' kops-controller does the work: {why}")
}

async fn probes(listener: TcpListener, why: String) -> Result<Infallible> {
    let metrics = Metrics::new();
    metrics.left_to_upstream.set(1);
    let standing_by = Arc::new(StandingBy { doing: status_text(&why) });
    health::serve(listener, standing_by, Arc::new(metrics.registry(false))).await
}

/// The answers to probes. They always report success, because this process does nothing that could fail.
struct StandingBy {
    doing: String,
}

impl Health for StandingBy {
    fn not_live(&self) -> Option<String> {
        None
    }

    fn not_ready(&self) -> Option<String> {
        None
    }

    fn doing(&self) -> &str {
        &self.doing
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn probes_and_metrics_say_that_all_is_left_to_upstream() {
        kops_agent_net::tls::install_provider();
        let listener = health::listen("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(probes(listener, "the configuration has CAPI".into()));
        let get = async |path: &str| {
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let answer = client.get(format!("http://{address}{path}")).send().await.unwrap();
            let status = answer.status().as_u16();
            let body = kops_agent_net::http::body(answer, 1 << 20).await.unwrap().unwrap();
            (status, String::from_utf8(body).unwrap())
        };
        let standing_by =
            "standing by, because kOps' kops-controller does the work: the configuration has CAPI".to_owned();
        assert_eq!(get("/readyz").await, (200, standing_by.clone()));
        assert_eq!(get("/healthz").await, (200, standing_by));
        let (_, metrics) = get("/metrics").await;
        assert!(metrics.contains("\nkops_agent_left_to_upstream 1\n"), "{metrics}");
        let at_work = crate::metrics::text(&Metrics::new().registry(true));
        assert!(at_work.contains("\nkops_agent_left_to_upstream 0\n"), "{at_work}");
        serving.abort();
    }
}
