//! What a node asks of `POST /slot`, and what it is answered.

use serde::{Deserialize, Serialize};

/// Where a server is asked for it, beside `/bootstrap`.
pub const PATH: &str = "/slot";
/// The most slots that a node may say that its group has.
pub const MOST_SLOTS: u32 = 1000;

/// What is to be done with the slot of the node that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SlotAction {
    /// Take one, or renew the one that the node has.
    Acquire,
    /// Renew the one that the node has.
    Renew,
    Release,
}

/// A request. It names neither the node, which its certificate names, nor the group, which the labels of its Node name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SlotRequest {
    /// What is to be done.
    pub action: SlotAction,
    /// How many nodes of the group may be disrupted at a time, 1 to [`MOST_SLOTS`]. Of control planes it is one, whatever
    /// this says.
    pub max_unavailable: u32,
}

impl SlotRequest {
    /// Reads one.
    ///
    /// # Errors
    /// It is none, or asks for no slot or too many.
    pub fn parse(body: &[u8]) -> Result<SlotRequest, String> {
        let request: SlotRequest = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        match request.max_unavailable {
            1..=MOST_SLOTS => Ok(request),
            other => Err(format!("maxUnavailable is {other}, and has to be from 1 to {MOST_SLOTS}")),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SlotAnswer {
    /// The group whose slots it is about.
    pub group: String,
    /// Whether the node has a slot now.
    pub granted: bool,
    /// The name of that slot's Lease; empty where it has none.
    pub lease: String,
    /// The slots that others have, where there is none for this node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<SlotHolder>,
    /// The other control planes that are not well, where a control plane gets none for that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_ready: Vec<NotReady>,
    /// Before this time (RFC 3339) the node gets none, because it has had one for too long; empty where that is not so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub not_before: String,
    /// Why the server gives no slots to any node: the cluster has not given it the rights for that. Empty where it gives them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub not_set_up: String,
}

/// A slot that a node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SlotHolder {
    pub node: String,
    /// The name of the slot's Lease.
    pub lease: String,
    /// Since when, in RFC 3339.
    pub since: String,
}

/// A Node that is not Ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NotReady {
    pub node: String,
    /// Why, and since when, in its own words.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_what_and_how_many_and_no_more() {
        let parse = |text: &str| SlotRequest::parse(text.as_bytes());
        let expected = SlotRequest { action: SlotAction::Acquire, max_unavailable: 2 };
        assert_eq!(parse(r#"{"action":"acquire","maxUnavailable":2}"#), Ok(expected));
        assert_eq!(parse(&serde_json::to_string(&expected).unwrap()), Ok(expected));
        // What a client says of its group or name is not read.
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
