//! How earlier runs used the store's secrets and files.

use std::collections::BTreeSet;

use anyhow::Result;
use kops_agent_host::{Applied, Decided, Host};

/// How earlier runs used the store's secrets and files. If the store now denies one of these, the machine keeps
/// everything made of it.
#[derive(Clone, Debug, Default)]
pub enum Before {
    /// No run has left anything on this machine, and no other program has made it a node.
    #[default]
    Nothing,
    /// The secrets and files that earlier runs used are known, even if the last run did not complete.
    Known(Decided),
    /// A run or another program has made this machine a node, but the secrets and files that it used are unknown.
    Unclear,
}

impl Before {
    /// Reads which of the store's secrets and files earlier runs used, from the record and the last applied state.
    pub fn on(host: &Host) -> Result<Before> {
        let applied = host.applied()?;
        let secrets =
            |applied: Applied| applied.secrets().into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        Ok(match (host.record()?.decided, applied.map(secrets)) {
            (Some(mut decided), secrets) => {
                decided.secrets.extend(secrets.unwrap_or_default());
                Before::Known(decided)
            }
            (None, Some(secrets)) => Before::Known(Decided { secrets, ..Decided::default() }),
            (None, None) => match host.is_no_node_yet() {
                Ok(true) => Before::Nothing,
                Ok(false) => Before::Unclear,
                Err(error) => {
                    log::debug!("cannot tell whether this machine has been a node: {error}");
                    Before::Unclear
                }
            },
        })
    }

    /// Whether nothing on this machine can come from this file of the store.
    pub(super) fn is_without(&self, url: &str) -> bool {
        match self {
            Before::Nothing => true,
            Before::Known(decided) => decided.without.contains(url),
            Before::Unclear => false,
        }
    }
}
