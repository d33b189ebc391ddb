//! The kinds of failures of reading a node's configuration.

use std::error::Error;

use kops_agent_cloud::api::ApiError;
use kops_agent_cloud::{CloudError, ControlPlaneError, MetadataError};
use kops_agent_net::dns::NameError;
use kops_agent_net::http::HttpError;
use kops_agent_net::proxies::ProxyError;
use kops_agent_net::random::NoRandomness;
use kops_agent_net::tls::NoCaBundle;
use kops_agent_pki::CertificateError;
use kops_agent_plan::following::NotFollowed;
use kops_agent_plan::resolve::Problems;
use kops_agent_spec::SpecError;
use kops_agent_spec::failure::{Failure, Finder, Kind, kind_as, kind_of_chain};
use kops_agent_store::StoreError;

use crate::Incomplete;
use crate::bootstrap_client::BootstrapError;

/// Functions that find the kind of an error. They know the errors of this crate, and of the crates that this crate uses.
pub const FINDERS: &[Finder] = &[
    kind_as::<Failure>,
    kind_as::<SpecError>,
    kind_as::<Problems>,
    kind_as::<NotFollowed>,
    kind_as::<Incomplete>,
    kind_as::<StoreError>,
    kind_as::<BootstrapError>,
    kind_as::<MetadataError>,
    kind_as::<CloudError>,
    kind_as::<ControlPlaneError>,
    kind_as::<ApiError>,
    of_key,
    kind_as::<NameError>,
    kind_as::<HttpError>,
    kind_as::<ProxyError>,
    kind_as::<NoCaBundle>,
    kind_as::<NoRandomness>,
];

/// The kind of an error about a key or certificate, if the error does not come from a plan. Such an error does not prove that the
/// configuration is wrong.
fn of_key(cause: &(dyn Error + 'static)) -> Option<Kind> {
    cause.is::<CertificateError>().then_some(Kind::KeyUnusable)
}

/// The kind of an error of this crate, or of a crate that it uses.
pub fn kind_of(error: &anyhow::Error) -> Kind {
    kind_of_chain(error.chain(), FINDERS)
}
