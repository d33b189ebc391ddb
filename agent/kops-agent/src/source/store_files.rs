//! Where a store has keysets and secrets, and how they are read.

use anyhow::Result;
use kops_agent_host::Sources;
use kops_agent_plan::derive;
use kops_agent_spec::{Keyset, Secret};
use kops_agent_store::{Found, Store};

/// A file of the store.
#[derive(Clone, Debug)]
pub(crate) struct StoreFile {
    /// Its URL.
    pub(crate) url: String,
    /// Its bytes.
    pub(crate) text: Vec<u8>,
}

/// The folders of keysets and secrets in a store.
pub(crate) struct StoreFiles<'a> {
    store: &'a Store,
    keypairs: String,
    secrets: String,
}

impl<'a> StoreFiles<'a> {
    /// The folders as the configuration names them, or where they usually are.
    pub(crate) fn new(store: &'a Store, base: &str, keypairs: &str, secrets: &str) -> StoreFiles<'a> {
        let folder = |named: &str, usual: &str| match named {
            "" => format!("{base}/{usual}"),
            named => named.trim_end_matches('/').to_owned(),
        };
        StoreFiles { store, keypairs: folder(keypairs, "pki"), secrets: folder(secrets, "secrets") }
    }

    /// The folders that were read at an earlier time.
    pub(crate) fn of(store: &'a Store, sources: &Sources) -> StoreFiles<'a> {
        StoreFiles { store, keypairs: sources.keysets.clone(), secrets: sources.secrets.clone() }
    }

    /// A keyset. Workers usually may not read any.
    pub(crate) async fn keyset(&self, id: &str) -> Result<Found<Keyset>> {
        let mut denied = None;
        for folder in [Some(id), derive::former_keyset_name(id)].into_iter().flatten() {
            let url = format!("{}/private/{folder}/keyset.yaml", self.keypairs);
            match self.store.look(&url).await?.try_map(|text| Keyset::parse(&text, &url))? {
                Found::There(keyset) => return Ok(Found::There(keyset)),
                Found::Absent => {}
                // That of its present name is what people know.
                Found::Denied(why) => denied = denied.or(Some(why)),
            }
        }
        Ok(denied.map_or(Found::Absent, Found::Denied))
    }

    /// A secret.
    pub(crate) async fn secret(&self, id: &str) -> Result<Found<Secret>> {
        let url = format!("{}/{id}", self.secrets);
        Ok(self.store.look(&url).await?.try_map(|text| Secret::parse(&text, &url))?)
    }

    /// The folders, for a later run.
    pub(crate) fn sources(&self) -> Sources {
        Sources { keysets: self.keypairs.clone(), secrets: self.secrets.clone() }
    }
}
