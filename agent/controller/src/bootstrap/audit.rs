//! What is written down and counted of each request: one line that says which node asked, what came of it, and why.
//!
//! A request is dropped where its connection is closed by the peer, gives way to others, or is there when the server ends. What it has
//! cost until then, questions to the cloud among it, is theirs all the same, so that is a line too.

use std::net::SocketAddr;

use tokio::time::Instant;

use crate::metrics::BootstrapMetrics;
use kops_agent_cloud::verify::{Answer, Refusal, VerifiedNode};
use kops_agent_process::output::one_line;

/// The longest explanation that is logged, in characters: an unverified peer may have written parts of it.
const LONGEST_MESSAGE: usize = 512;

/// What a request is called in the log and counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of a machine that is to become a node.
    Bootstrap,
    /// Of a node that is at work.
    Renewal,
    /// Of a node that is about to restart what it is made of.
    Slot,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Bootstrap => "bootstrap",
            Kind::Renewal => "renewal",
            Kind::Slot => "slot",
        }
    }
}

/// What there is to say of a request, from when its header has come. Dropped without an answer, it was abandoned.
pub struct Record<'a> {
    pub remote: SocketAddr,
    /// The node, as far as it is known by now.
    pub node: VerifiedNode,
    /// What it was given, in words.
    pub given: String,
    /// The serial number of the certificate that it has shown; empty where it has shown none.
    pub serial: String,
    kind: Kind,
    metrics: &'a BootstrapMetrics,
    began: Instant,
    is_over: bool,
}

impl<'a> Record<'a> {
    pub fn of(kind: Kind, remote: SocketAddr, metrics: &'a BootstrapMetrics) -> Record<'a> {
        let (node, given, serial) = Default::default();
        Record { remote, node, given, serial, kind, metrics, began: Instant::now(), is_over: false }
    }

    pub fn answered<T>(mut self, answered: Result<T, Refusal>) -> Result<T, Refusal> {
        self.write_down(answered.as_ref().err());
        answered
    }

    /// Ends with an answer that is counted, and not logged: a node that waits for a slot polls.
    pub fn counted(mut self, reason: &'static str, is_granted: bool) {
        self.is_over = true;
        self.metrics.paced(reason, is_granted);
    }

    fn write_down(&mut self, refusal: Option<&Refusal>) {
        self.is_over = true;
        let reason = refusal.map_or("Granted", |refusal| refusal.reason);
        let (is_granted, took) = (refusal.is_none(), self.began.elapsed());
        match self.kind {
            Kind::Bootstrap => self.metrics.answered(reason, is_granted, took),
            Kind::Renewal => self.metrics.renewed(reason, is_granted),
            Kind::Slot => self.metrics.paced(reason, is_granted),
        }
        self.log(refusal);
    }

    /// Much of it was written by unverified peers, which may not write lines of their own.
    fn log(&self, refusal: Option<&Refusal>) {
        let clean = |text: &str| one_line(text, LONGEST_MESSAGE);
        let (node, instance) = (clean(&self.node.node_name), clean(&self.node.instance));
        let (group, given) = (clean(&self.node.instance_group), clean(&self.given));
        let (remote, kind, serial) = (self.remote, self.kind.name(), self.serial.as_str());
        match refusal {
            None => log::info!(
                remote:%, node = node.as_str(), instance = instance.as_str(), instance_group = group.as_str(),
                outcome = "granted", given = given.as_str(), serial;
                "{kind}: granted {given} to the node {node} ({instance} of {group}) at {remote}"
            ),
            Some(Refusal { reason, message, .. }) => {
                let message = clean(message);
                let node_or_machine = if node.is_empty() { "a machine" } else { node.as_str() };
                log::warn!(
                    remote:%, node = node.as_str(), instance = instance.as_str(), outcome = "refused", reason = *reason,
                    serial;
                    "{kind}: refused {node_or_machine} at {remote}: {reason}: {message}"
                );
            }
        }
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let message = "it has hung up, or was cut off, before there was an answer".to_owned();
            self.write_down(Some(&Refusal { answer: Answer::Busy, reason: "Abandoned", message }));
        }
    }
}
