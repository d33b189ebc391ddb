//! The kinds of failed requests to the API server.

use std::error::Error;

use kops_agent_spec::failure::{Finder, Kind, kind_as};

use crate::api_error::ApiError;
use crate::own_node::Untold;

pub const FINDERS: &[Finder] = &[kind_as::<ApiError>, kind_as::<Untold>, of_client];

/// The kind of the failure, if `cause` is an error of the client library.
fn of_client(cause: &(dyn Error + 'static)) -> Option<Kind> {
    Some(match cause.downcast_ref::<kube::Error>()? {
        kube::Error::Api(_) => Kind::ApiServerRefused,
        _ => Kind::ApiServerUnanswered,
    })
}
