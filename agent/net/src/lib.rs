//! How anything outside this machine is asked: HTTP clients and their TLS trust, names, proxies, redirects, retries
//! with their deadlines, and the AWS SDK's client. The requests themselves are made elsewhere.

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
