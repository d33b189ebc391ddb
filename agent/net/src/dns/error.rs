//! Why a name has no address.

use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use kops_agent_spec::failure::{Failing, Kind};
use thiserror::Error;

/// A name cannot be resolved. The error has no source, because its text is complete.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the name {name} cannot be resolved: {reason}")]
pub struct NameError {
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) is_not_there: bool,
}

impl Failing for NameError {
    fn kind(&self) -> Kind {
        Kind::NameUnresolved
    }
}

impl NameError {
    /// Whether a name server answered that the name has no address. `false` if no name server gave an answer about
    /// the name.
    pub fn is_not_there(&self) -> bool {
        self.is_not_there
    }

    pub(super) fn new(name: &str, error: &NetError) -> NameError {
        let is_not_there = matches!(error, NetError::Dns(DnsError::NoRecordsFound(_)));
        let reason = match error {
            NetError::Dns(DnsError::NoRecordsFound(none)) if none.response_code == ResponseCode::NXDomain => {
                "the name server says that there is no such name".to_owned()
            }
            NetError::Dns(DnsError::NoRecordsFound(_)) => {
                "the name server has no address for this name".to_owned()
            }
            NetError::Dns(DnsError::ResponseCode(code)) => format!("the name server answers {code}"),
            NetError::Timeout => "no name server answers".to_owned(),
            NetError::NoConnections => "no name server can be reached".to_owned(),
            other => other.to_string(),
        };
        NameError { name: name.to_owned(), reason, is_not_there }
    }
}
