//! The request and the response of `POST /slot`.

use kops_agent_spec::invalid::Invalid;
use serde::{Deserialize, Serialize};

/// Path of the endpoint for requests about slots, on the server that has `/bootstrap`.
pub const PATH: &str = "/slot";
/// The highest `max_unavailable` that a node may send.
pub const MOST_SLOTS: u32 = 1000;

/// An action on the slot of the requesting node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SlotAction {
    /// Takes a slot, or renews the node's slot.
    Acquire,
    Renew,
    Release,
}

/// A request. It names neither the node nor the group: the certificate names the node, and the labels of the Node name the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotRequest {
    pub action: SlotAction,
    /// How many nodes of the group may be disrupted at a time, 1 to [`MOST_SLOTS`]. For control planes the number is always 1.
    pub max_unavailable: u32,
}

impl SlotRequest {
    /// Parses a request, and checks that `max_unavailable` is in range.
    pub fn parse(body: &[u8]) -> Result<SlotRequest, Invalid> {
        let request: SlotRequest =
            serde_json::from_slice(body).map_err(|error| Invalid::new(error.to_string()))?;
        match request.max_unavailable {
            1..=MOST_SLOTS => Ok(request),
            other => Err(Invalid::new(format!("maxUnavailable is {other}, but must be 1 to {MOST_SLOTS}"))),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SlotAnswer {
    pub group: String,
    /// Whether the node has a slot now.
    pub granted: bool,
    /// The name of the slot's Lease; empty if the node has no slot.
    pub lease: String,
    /// The slots of other nodes. Set if this node gets no slot because all slots are taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<SlotHolder>,
    /// The other control planes that are not Ready, or whose API servers are not ready. Set if a control plane gets no slot because of
    /// these control planes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_ready: Vec<NotReady>,
    /// The node gets no slot before this time (RFC 3339), because it has held slots for too long. Empty if the node may get a
    /// slot.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub not_before: String,
    /// Why the server gives slots to no node: it has no rights for Leases. The cluster must grant these rights. Empty if the server gives
    /// slots.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub not_set_up: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SlotHolder {
    pub node: String,
    /// The name of the slot's Lease.
    pub lease: String,
    /// When the node acquired the slot, in RFC 3339.
    pub since: String,
}

/// A control plane that is not Ready, or whose API server is not ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NotReady {
    pub node: String,
    /// If the Node is not Ready: why and since when, from its condition. If only its API server is not ready: why.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_only_an_action_and_a_number() {
        let parse = |text: &str| SlotRequest::parse(text.as_bytes());
        let expected = SlotRequest { action: SlotAction::Acquire, max_unavailable: 2 };
        assert_eq!(parse(r#"{"action":"acquire","maxUnavailable":2}"#), Ok(expected));
        assert_eq!(parse(&serde_json::to_string(&expected).unwrap()), Ok(expected));
        // The server ignores a group or a name in the request.
        let more = r#"{"action":"release","maxUnavailable":1,"group":"other","node":"other"}"#;
        assert_eq!(parse(more), Ok(SlotRequest { action: SlotAction::Release, max_unavailable: 1 }));
        for bad in ["", "{}", r#"{"action":"steal","maxUnavailable":1}"#, r#"{"action":"renew"}"#] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for number in ["0", "1001", "-1", "4294967296"] {
            assert!(
                parse(&format!(r#"{{"action":"renew","maxUnavailable":{number}}}"#)).is_err(),
                "{number}"
            );
        }
    }
}
