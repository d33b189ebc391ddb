//! Reads the keys and secrets that the last applied state refers to: the current ones of the store, and keys in files
//! of this machine.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use anyhow::Result;
use kops_agent_host::{Applied, Host};
use kops_agent_net::retry::{Pauses, Retries};
use kops_agent_pki::PemPair;
use kops_agent_source::StoreFiles;
use kops_agent_spec::failure::Kind;
use kops_agent_spec::{BootConfig, Keyset};
use kops_agent_store::{Found, Store};

use crate::failure::kind_of;
use crate::materials::{self, Materials, Read};
use crate::options::NodeOptions;
use crate::redaction::error_text;

/// Collects the keys and secrets of an applied state. Takes them from `at_hand` if this run has already read them, or
/// else from the store. A missing or unusable key may also come from a file of this machine.
pub(super) async fn read(
    options: &NodeOptions,
    host: &Host,
    boot: &BootConfig,
    applied: &Applied,
    why: &anyhow::Error,
    at_hand: Option<&Materials>,
) -> Result<Read> {
    let mut read = Read::default();
    let is_unreachable = kind_of(why) == Kind::StoreUnreachable;
    let reads_store = !applied.sources.keysets.is_empty() && options.source.config_base(boot).is_ok();
    let mut silent = match reads_store {
        true => is_unreachable.then(|| error_text(why)),
        false => Some("this machine does not read the state store".to_owned()),
    };
    let store = Store::new(&options.store.mirrors)?.with_retries(ONCE);
    let files = StoreFiles::at(&store, &applied.sources.keysets, &applied.sources.secrets);
    for name in applied.items().into_iter().map(|(keyset, _)| keyset).collect::<BTreeSet<_>>() {
        if let Some(keyset) = at_hand.and_then(|materials| materials.stored_keyset(name)) {
            read.keysets.insert(name.to_owned(), keyset.clone());
            continue;
        }
        match ask(&mut silent, files.keyset(name)).await {
            Found::There(keyset) => drop(read.keysets.insert(name.to_owned(), keyset)),
            Found::Absent => drop(read.unknown.keysets.insert(name.to_owned(), GONE.to_owned())),
            Found::Denied(why) => drop(read.unknown.keysets.insert(name.to_owned(), why)),
        }
    }
    for name in applied.secrets() {
        if let Some(secret) = at_hand.and_then(|materials| materials.stored_secret(name)) {
            read.secrets.insert(name.to_owned(), secret.clone());
            continue;
        }
        match ask(&mut silent, files.secret(name)).await {
            Found::There(secret) => drop(read.secrets.insert(name.to_owned(), secret)),
            Found::Absent => drop(read.unknown.secrets.insert(name.to_owned(), GONE.to_owned())),
            Found::Denied(why) => drop(read.unknown.secrets.insert(name.to_owned(), why)),
        }
    }
    for (keyset, id) in applied.items() {
        let Some(stored) = read.keysets.get(keyset) else {
            take_from_machine(host, applied, &mut read, keyset, id)?;
            continue;
        };
        if let Some(why) = why_unusable(host, applied, stored, keyset, id)
            && !take_from_machine(host, applied, &mut read, keyset, id)?
        {
            read.unusable.insert((keyset.to_owned(), id.to_owned()));
            // `unknown` has only one reason for the whole keyset, but no message needs this reason for the keyset's usable items.
            read.unknown.keysets.insert(keyset.to_owned(), why);
        }
    }
    Ok(read)
}

/// Why an item in the store cannot replace the item that was applied; `None` if it can.
fn why_unusable(host: &Host, applied: &Applied, stored: &Keyset, keyset: &str, id: &str) -> Option<String> {
    let (item, name) = match id {
        "" => (stored.primary(), format!("the primary item of the keyset {keyset}")),
        id => (stored.item(id), format!("the item {id} of the keyset {keyset}")),
    };
    let Some(item) = item else {
        return Some(format!("{name} is no longer in the state store"));
    };
    let Some(pair) = materials::pair_of(item) else {
        return Some(format!("{name} has no private key in the state store, or no certificate"));
    };
    // Only a key that signs certificates needs a check, because a run merely writes all other keys to files.
    let signs = |(of, its): (&str, &str)| (of, its) == (keyset, id);
    match applied.signers().into_iter().any(signs) {
        true => host.why_cannot_sign(keyset, id, pair),
        false => None,
    }
}

/// Takes an item of a keyset from this machine. Returns `false` if no file of this machine has the private key of the item.
fn take_from_machine(
    host: &Host,
    applied: &Applied,
    read: &mut Read,
    keyset: &str,
    id: &str,
) -> Result<bool> {
    let Some(item) = of_machine(host, applied, keyset, id)? else { return Ok(false) };
    read.at_hand.insert((keyset.to_owned(), id.to_owned()), item);
    Ok(true)
}

/// Requests to the store are not retried here, because the run has already retried the store for long enough.
const ONCE: Retries = Retries {
    deadline: Duration::ZERO,
    attempt: Duration::from_secs(15),
    pauses: Pauses { first: Duration::from_secs(1), longest: Duration::from_secs(1) },
};

const GONE: &str = "it is no longer in the state store";

/// The store's answer, or the reason why there is no answer. After the first failed request, this function sends no more requests to the
/// store.
async fn ask<T>(
    silent: &mut Option<String>,
    asking: impl Future<Output = Result<Found<T>>>,
) -> Found<T, String> {
    if let Some(why) = silent {
        return Found::Denied(why.clone());
    }
    match asking.await {
        Ok(Found::There(found)) => Found::There(found),
        Ok(Found::Absent) => Found::Absent,
        Ok(Found::Denied(why)) => Found::Denied(why.to_string()),
        Err(error) => {
            let why = error_text(&error);
            *silent = Some(why.clone());
            Found::Denied(why)
        }
    }
}

/// A keyset item whose private key is in a file of this machine. `None` if no file has the key, or if the file has changed since a run
/// wrote it.
fn of_machine(host: &Host, applied: &Applied, keyset: &str, id: &str) -> Result<Option<PemPair>> {
    let (Some(path), Some(certificate)) =
        (applied.file_of_key(keyset, id), applied.item_certificate(keyset, id))
    else {
        return Ok(None);
    };
    let key = host.read_unchanged(path)?.and_then(|bytes| String::from_utf8(bytes).ok());
    Ok(key.map(|private_key| PemPair { certificate: certificate.to_owned(), private_key }))
}
