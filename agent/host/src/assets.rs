//! Downloads, several at the same time. Each download goes in one pass from the network into its hash, the cache and
//! the wanted files. Files are placed only after verification, and are never held in memory.
//!
//! [`Downloads`] has the options; [`prepare`](crate::prepare) decides what to download. The modules, in the order of
//! the bytes: `fetching` chooses the mirror and resumes. `attempt` sends one request and reads its answer. `intake`
//! hashes and unpacks on its own thread (`unpack`, `entries`). `staging` holds the files until they are verified.

mod attempt;
mod cache;
mod document;
mod download;
mod entries;
mod error;
mod fetching;
mod intake;
mod options;
mod progress;
mod rate;
mod request;
mod run;
mod servers;
mod space;
mod staging;
mod syncer;
mod trim;
mod unpack;

pub(crate) use cache::Cache;
pub use error::{DownloadError, MirrorFailure};
pub use options::{DownloadTimeouts, Downloads};
pub use progress::{Progress, Silent};
pub(crate) use request::Request;
pub(crate) use staging::{Ready, Want};
pub(crate) use unpack::member_digests;

/// The size of one read, in bytes.
const BUFFER: usize = 64 * 1024;
