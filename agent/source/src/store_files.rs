//! Reads the keysets and secrets of a store.

use anyhow::Result;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use kops_agent_plan::derive;
use kops_agent_spec::{Keyset, Secret};
use kops_agent_store::{Found, Store};

/// The number of concurrent requests for files of one kind. A control plane reads about thirty files, and a bucket takes tens of
/// milliseconds to respond.
const AT_ONCE: usize = 8;

/// Calls `ask` for all names concurrently. Returns the results in the order of the names. If several calls fail, returns the error of the
/// first failed name.
pub async fn each<N, T, F>(names: impl IntoIterator<Item = N>, ask: impl Fn(N) -> F) -> Result<Vec<T>>
where
    F: Future<Output = Result<T>>,
{
    stream::iter(names).map(ask).buffered(AT_ONCE).try_collect().await
}

#[derive(Clone, Debug)]
pub struct StoreFile {
    pub url: String,
    pub text: Vec<u8>,
}

/// The folders of keysets and secrets in a store.
pub struct StoreFiles<'a> {
    store: &'a Store,
    keypairs: String,
    secrets: String,
}

impl<'a> StoreFiles<'a> {
    /// Uses the folders that the cluster's configuration names. An empty name means the default folder: `pki` or `secrets` below `base`.
    pub fn new(store: &'a Store, base: &str, keypairs: &str, secrets: &str) -> StoreFiles<'a> {
        let folder = |named: &str, usual: &str| match named {
            "" => format!("{base}/{usual}"),
            named => named.trim_end_matches('/').to_owned(),
        };
        StoreFiles { store, keypairs: folder(keypairs, "pki"), secrets: folder(secrets, "secrets") }
    }

    /// Uses the folders of keysets and secrets at these URLs.
    pub fn at(store: &'a Store, keypairs: &str, secrets: &str) -> StoreFiles<'a> {
        StoreFiles { store, keypairs: keypairs.to_owned(), secrets: secrets.to_owned() }
    }

    /// Reads a keyset. Workers usually may not read any keyset.
    pub async fn keyset(&self, id: &str) -> Result<Found<Keyset>> {
        let mut denied = None;
        for folder in [Some(id), derive::former_keyset_name(id)].into_iter().flatten() {
            let url = format!("{}/private/{folder}/keyset.yaml", self.keypairs);
            match self.store.read_if_present(&url).await?.try_map(|text| Keyset::parse(&text, &url))? {
                Found::There(keyset) => return Ok(Found::There(keyset)),
                Found::Absent => {}
                // If both names are denied, the error of the current name is returned, because users know this name.
                Found::Denied(why) => denied = denied.or(Some(why)),
            }
        }
        Ok(denied.map_or(Found::Absent, Found::Denied))
    }

    pub async fn secret(&self, id: &str) -> Result<Found<Secret>> {
        let url = format!("{}/{id}", self.secrets);
        Ok(self.store.read_if_present(&url).await?.try_map(|text| Secret::parse(&text, &url))?)
    }

    pub fn keypairs(&self) -> &str {
        &self.keypairs
    }

    pub fn secrets(&self) -> &str {
        &self.secrets
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;

    use anyhow::bail;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn many_files_are_requested_concurrently_and_returned_in_order() {
        let (now, most) = (Cell::new(0), Cell::new(0));
        let ask = async |name: usize| {
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            // Requests with a higher number end earlier.
            for _ in name..20 {
                yield_now().await;
            }
            now.set(now.get() - 1);
            Ok(name)
        };
        assert_eq!(each(0..20, ask).await.unwrap(), (0..20).collect::<Vec<_>>());
        assert_eq!(most.get(), AT_ONCE);
    }

    #[tokio::test]
    async fn if_several_files_fail_the_first_name_in_order_is_reported() {
        let ask = async |name: &'static str| -> Result<()> {
            if name == "slow" {
                yield_now().await;
            }
            bail!("{name}")
        };
        assert_eq!(each(["slow", "fast"], ask).await.unwrap_err().to_string(), "slow");
    }
}
