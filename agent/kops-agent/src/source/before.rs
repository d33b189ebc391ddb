//! What an earlier run has made of the store's secrets and files.

use std::collections::BTreeSet;

use anyhow::Result;
use kops_agent_host::{Applied, Decided, Host};

/// What an earlier run has made of the store's secrets, which tells what a denial may not take away.
#[derive(Clone, Debug, Default)]
pub enum Before {
    /// There was none on this machine, and no other program has made it a node.
    #[default]
    Nothing,
    /// What has gone into its files is known, whether or not the last run came to its end.
    Known(Decided),
    /// There was one, or another program's, and what it has used is not known.
    Unclear,
}

impl Before {
    /// As the host has it.
    ///
    /// # Errors
    /// If that cannot be read.
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
                    log::debug!("whether this machine has been a node cannot be told: {error}");
                    Before::Unclear
                }
            },
        })
    }

    /// Whether nothing that is here can have been made of this file of the store.
    pub(super) fn is_without(&self, url: &str) -> bool {
        match self {
            Before::Nothing => true,
            Before::Known(decided) => decided.without.contains(url),
            Before::Unclear => false,
        }
    }
}
