//! What is downloaded: several at once, each in one pass from the network into its hash, the cache and the files
//! that are made of it; verified before anything is placed, and never held in memory.
//!
//! [`Downloads`] says how; [`prepare`](crate::prepare) says what. Of one download, in the order of its bytes:
//! `fetching` chooses the mirror and goes on where another broke off, `attempt` asks and reads one answer, `intake`
//! hashes and unpacks it on a thread of its own (`unpack`, `entries`), `staging` holds what is made until it is verified.

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
mod unpack_error;

pub(crate) use cache::Cache;
pub use error::{DownloadError, MirrorFailure};
pub use options::{DownloadTimeouts, Downloads};
pub use progress::{Progress, Silent};
pub(crate) use request::Request;
pub(crate) use staging::{Ready, Want};
pub(crate) use unpack::member_digests;

/// How much is read at a time.
const BUFFER: usize = 64 * 1024;
