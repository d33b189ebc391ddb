//! The file of `--asset-hashes`.

use std::path::Path;

use anyhow::{Context, Result};
use kops_agent_plan::derive::KnownHashes;
use kops_agent_spec::failure::{Failure, Kind};

/// The hashes in a file with lines of the form `sha256  URL`. Empty if `path` is `None`.
pub fn read(path: Option<&Path>) -> Result<KnownHashes> {
    let Some(path) = path else { return Ok(KnownHashes::default()) };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading --asset-hashes {}", path.display()))?;
    let hashes = KnownHashes::parse(&text)
        .map_err(|error| Failure::new(Kind::FileUnreadable, format!("{}: {error}", path.display())))?;
    Ok(hashes)
}
