//! Logs and counts each request: one line with the node, the result and the reason.
//!
//! A request is dropped if the peer closes its connection, if the connection gives way to another, or if the server stops. A dropped
//! request may have cost calls to the cloud, so it gets a line too.

use std::net::SocketAddr;

use tokio::time::Instant;

use crate::metrics::BootstrapMetrics;
use kops_agent_cloud::verify::{Answer, Refusal, VerifiedNode};
use kops_agent_process::output::one_line;

/// The maximum length of an explanation in the log, in characters. Parts of it may come from an unverified peer.
const LONGEST_MESSAGE: usize = 512;

/// The kind of a request, for the log and the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request from a machine that is to become a node.
    Bootstrap,
    /// A request from a running node that wants new certificates.
    Renewal,
    /// A request from a node that is about to restart its components.
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

/// The record of a request, created when the header of the request has arrived. If a record is dropped without an answer, the request
/// counts as abandoned.
pub struct Record<'a> {
    pub remote: SocketAddr,
    /// The node, with the fields that are known so far.
    pub node: VerifiedNode,
    /// The granted items, as text.
    pub given: String,
    /// The serial number of the client certificate; empty without a certificate.
    pub serial: String,
    kind: Kind,
    metrics: &'a BootstrapMetrics,
    began: Instant,
    is_over: bool,
}

impl<'a> Record<'a> {
    pub fn new(kind: Kind, remote: SocketAddr, metrics: &'a BootstrapMetrics) -> Record<'a> {
        let (node, given, serial) = Default::default();
        Record { remote, node, given, serial, kind, metrics, began: Instant::now(), is_over: false }
    }

    pub fn finish<T>(mut self, answered: Result<T, Refusal>) -> Result<T, Refusal> {
        self.write_down(answered.as_ref().err());
        answered
    }

    /// Ends the record. Counts the answer, but does not log it: a node that waits for a slot sends many requests.
    pub fn counted(mut self, reason: &'static str, is_granted: bool) {
        self.is_over = true;
        self.metrics.paced(reason, is_granted);
    }

    fn write_down(&mut self, refusal: Option<&Refusal>) {
        self.is_over = true;
        let reason = refusal.map_or("Granted", |refusal| refusal.reason);
        let (is_granted, took) = (refusal.is_none(), self.began.elapsed());
        match self.kind {
            Kind::Bootstrap => self.metrics.count_bootstrap(reason, is_granted, took),
            Kind::Renewal => self.metrics.renewed(reason, is_granted),
            Kind::Slot => self.metrics.paced(reason, is_granted),
        }
        self.log(refusal);
    }

    /// Writes the log line. First makes each text one line, because unverified peers wrote many of these texts and could forge log lines.
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
            let message = "the connection ended before the answer".to_owned();
            self.write_down(Some(&Refusal { answer: Answer::Busy, reason: "Abandoned", message }));
        }
    }
}
