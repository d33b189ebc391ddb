//! The orders that a rollout writes into the Node of this machine. Kubelet's credentials read and annotate that Node, and
//! no other.

use std::path::Path;
use std::time::Duration;

use kops_agent_cluster::rollout::{ORDER, OUTCOME, Order, OrderValidity, Outcome};
use kops_agent_net::retry::Backoff;
use kube::runtime::watcher::Event;
use time::OffsetDateTime;
use tokio::time::{sleep, timeout};

use super::{OwnNode, Untold};
use crate::node_api::NodeObject;
use crate::node_watch::{NodeWatch, no_answer};

/// Waits for the orders that rollouts write into the annotations of this machine's Node.
pub struct Orders {
    node: OwnNode,
    watch: NodeWatch,
    /// The last reported outcome. An event of the watch may be older than this report, and may still have an order that
    /// is already done.
    reported: Option<Outcome>,
}

/// Retries a request for the time `within`, with `pause` between two attempts, if the error may be temporary.
pub async fn retried<T>(
    within: Duration,
    pause: Duration,
    mut ask: impl AsyncFnMut() -> Result<T, Untold>,
) -> Result<T, Untold> {
    // The last pause may begin at the end of `within`. One more attempt follows that pause.
    let mut backoff = Backoff::new(within.saturating_add(pause), || pause);
    loop {
        let untold = match ask().await {
            Err(untold) if untold.may_pass() => untold,
            ended => return ended,
        };
        match backoff.next_pause() {
            Some(pause) => {
                log::debug!("trying again: {untold}");
                sleep(pause).await;
            }
            None => return Err(untold),
        }
    }
}

impl Orders {
    /// Watches the Node of the kubelet that uses `kubeconfig`.
    pub fn new(kubeconfig: &Path) -> Result<Orders, Untold> {
        let node = OwnNode::new(kubeconfig)?;
        Ok(Orders { watch: node.watch(), node, reported: None })
    }

    /// Checks that this process can read the Node, by one request.
    pub async fn check(&self, within: Duration) -> Result<(), Untold> {
        match timeout(within, self.node.annotation(ORDER)).await {
            Ok(read) => Ok(read.map(drop)?),
            Err(_) => Err(Untold::Unanswered(no_answer(within))),
        }
    }

    /// Waits for an order that has no outcome yet. Fails if the watch fails.
    pub async fn next(&mut self) -> Result<Order, Untold> {
        loop {
            let event = self.watch.next().await;
            let event = event.ok_or_else(|| Untold::Unanswered("the watch of this Node ended".to_owned()))?;
            match event.map_err(|failure| Untold::Unanswered(failure.to_string()))? {
                Event::Apply(node) | Event::InitApply(node) => {
                    if let Some(order) = open_order(&node, self.reported.as_ref()) {
                        return Ok(order);
                    }
                }
                Event::Init | Event::InitDone | Event::Delete(_) => {}
            }
        }
    }

    /// Reads the Node again. Returns whether the order is still in force, was withdrawn, or has expired.
    pub async fn validity(&self, order: &Order) -> Result<OrderValidity, Untold> {
        let annotation = self.node.annotation(ORDER).await?;
        Ok(OrderValidity::new(order, annotation.as_deref(), OffsetDateTime::now_utc()))
    }

    /// Writes the outcome of a rollout's order into an annotation of the Node.
    pub async fn report(&mut self, outcome: &Outcome) -> Result<(), Untold> {
        self.node.annotate(OUTCOME, &outcome.text()).await?;
        self.reported = Some(outcome.clone());
        Ok(())
    }
}

/// The rollout's order in a Node's annotations, if this order has no outcome yet.
fn open_order(node: &NodeObject, reported: Option<&Outcome>) -> Option<Order> {
    let annotations = node.metadata.annotations.as_ref()?;
    let order = Order::read(annotations.get(ORDER)?)?;
    let outcome = annotations.get(OUTCOME).and_then(|text| Outcome::read(text));
    (!outcome.iter().chain(reported).any(|outcome| outcome.is_of(&order))).then_some(order)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use kops_agent_tests::test_server::TestServer;
    use serde_json::json;

    use super::super::testing::kubeconfig;
    use super::*;

    #[tokio::test]
    async fn a_check_does_not_wait_for_a_silent_api_server() {
        let server = TestServer::start(|_| std::future::pending()).await;
        kops_agent_net::tls::install_provider();
        let (_folder, kubeconfig) = kubeconfig(&server.url, "system:node:a");
        let orders = Orders::new(&kubeconfig).unwrap();
        let silent = Untold::Unanswered("the API server does not answer within 10ms".to_owned());
        assert_eq!(orders.check(Duration::from_millis(10)).await, Err(silent));
    }

    #[test]
    fn an_order_counts_until_it_has_an_outcome() {
        let order = r#"{"rollout": "r", "attempt": 1, "hash": "b=", "drain": "auto", "maxUnavailable": 1, "at": "t"}"#;
        let open = |annotations: serde_json::Value| {
            let node =
                json!({"metadata": {"name": "a", "annotations": annotations}, "spec": {}, "status": {}});
            open_order(&serde_json::from_value(node).unwrap(), None).map(|order| order.rollout)
        };
        assert_eq!(open(json!({ORDER: order})).as_deref(), Some("r"));
        let outcome = |attempt: u32| json!({"rollout": "r", "attempt": attempt, "hash": "b="}).to_string();
        assert_eq!(open(json!({ORDER: order, OUTCOME: outcome(1)})), None);
        assert_eq!(open(json!({ORDER: order, OUTCOME: outcome(0)})).as_deref(), Some("r"));
        assert_eq!(open(json!({ORDER: order, OUTCOME: "not JSON"})).as_deref(), Some("r"));
        assert_eq!([open(json!({})), open(json!({ORDER: "{}"}))], [None, None]);
    }

    #[test]
    fn an_event_from_before_the_report_opens_no_order_again() {
        let order = json!({"rollout": "r", "attempt": 1, "hash": "b=", "drain": "auto", "maxUnavailable": 1, "at": "t"});
        let node = json!({"metadata": {"name": "a", "annotations": {ORDER: order.to_string()}}, "spec": {}, "status": {}});
        let node: NodeObject = serde_json::from_value(node).unwrap();
        let order = open_order(&node, None).unwrap();
        assert_eq!(open_order(&node, Some(&order.outcome("it broke"))), None);
        let before = Order { attempt: 0, ..order.clone() }.outcome("");
        assert_eq!(open_order(&node, Some(&before)), Some(order));
    }
}
