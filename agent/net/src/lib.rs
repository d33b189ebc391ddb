//! Access to servers outside this machine: HTTP clients and their TLS trust, name resolution, proxies, redirects,
//! retries with deadlines, and the AWS SDK's client. Other crates send the requests.

pub mod aws_sdk;
mod buckets;
pub mod causes;
pub mod dns;
pub mod http;
pub mod proxies;
pub mod random;
mod redirects;
pub mod retry;
mod said;
pub mod tls;

pub use buckets::{Buckets, Locating, Location, LocationClient, NOT_FOLLOWED, NotLocated};
pub use redirects::redirects;
pub use said::Said;
