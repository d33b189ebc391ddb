//! Sends the AWS SDK's requests through the HTTP client of this crate. So the SDK's requests use the same TLS trust, limit on
//! a server's certificates, DNS resolver and proxies as all other requests.

use std::collections::BTreeMap;
use std::time::Duration;

use aws_sdk_s3::config::{HttpClient, RuntimeComponents};
use aws_sdk_s3::error::{BoxError, ConnectorError};
use aws_sdk_s3::primitives::SdkBody;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::http::{Headers, StatusCode};
use http_body_util::Limited;
use parking_lot::Mutex;
use reqwest::{Body, Client, Request, Response};
use tokio::time::timeout;

use crate::http::{HttpError, client_of_library};

/// Maximum number of bytes that are read of a successful response. The SDK holds the whole response in memory. The
/// limit is twice the size of the largest file in a store, and is enough for a list of a thousand names of 1 kB.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;
/// Maximum number of bytes that are read of an error response.
const LONGEST_ERROR: usize = 1024 * 1024;

/// Keeps one client for each connect timeout, because the SDK uses a shorter timeout for the metadata service than
/// for distant servers.
#[derive(Debug)]
pub(super) struct OwnClient {
    clients: Mutex<BTreeMap<Option<Duration>, Client>>,
}

impl OwnClient {
    pub(super) fn new() -> Result<OwnClient, HttpError> {
        Ok(OwnClient { clients: Mutex::new([(None, client_of_library(None)?)].into()) })
    }

    fn client(&self, connect_timeout: Option<Duration>) -> Result<Client, HttpError> {
        let mut clients = self.clients.lock();
        if let Some(known) = clients.get(&connect_timeout) {
            return Ok(known.clone());
        }
        let client = client_of_library(connect_timeout)?;
        clients.insert(connect_timeout, client.clone());
        Ok(client)
    }
}

impl HttpClient for OwnClient {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        let client = self.client(settings.connect_timeout()).map_err(|error| error.to_string());
        SharedHttpConnector::new(OwnConnector { client, read_timeout: settings.read_timeout() })
    }
}

/// Sends requests with a client. If the client could not be created, every request fails with that error.
#[derive(Debug)]
struct OwnConnector {
    client: Result<Client, String>,
    /// Timeout for the status and headers of a response.
    read_timeout: Option<Duration>,
}

impl HttpConnector for OwnConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (client, read_timeout) = (self.client.clone(), self.read_timeout);
        HttpConnectorFuture::new(async move {
            let client = client.map_err(|problem| ConnectorError::user(problem.into()))?;
            let request = request.try_into_http1x().map_err(|error| ConnectorError::user(error.into()))?;
            let request = Request::try_from(request.map(Body::wrap)).map_err(failed)?;
            let answer = within(read_timeout, client.execute(request)).await?;
            readable(answer).map_err(|error| ConnectorError::other(error, None))
        })
    }
}

async fn within(
    limit: Option<Duration>,
    asking: impl Future<Output = Result<Response, reqwest::Error>>,
) -> Result<Response, ConnectorError> {
    let answer = match limit {
        Some(limit) => timeout(limit, asking).await.map_err(|late| ConnectorError::timeout(late.into()))?,
        None => asking.await,
    };
    answer.map_err(failed)
}

/// Converts a response for the SDK. Reading the body fails if the body exceeds the limit.
fn readable(answer: Response) -> Result<HttpResponse, BoxError> {
    let longest = if answer.status().is_success() { LONGEST_ANSWER } else { LONGEST_ERROR };
    let status = StatusCode::try_from(answer.status().as_u16())?;
    let headers = Headers::try_from(answer.headers().clone())?;
    let body = SdkBody::from_body_1_x(Limited::new(Body::from(answer), longest));
    let mut answer = HttpResponse::new(status, body);
    *answer.headers_mut() = headers;
    Ok(answer)
}

fn failed(error: reqwest::Error) -> ConnectorError {
    let (is_timeout, is_builder) = (error.is_timeout(), error.is_builder());
    // Like the SDK's own errors, this error must not contain the URL.
    let error = error.without_url().into();
    match () {
        () if is_timeout => ConnectorError::timeout(error),
        () if is_builder => ConnectorError::user(error),
        () => ConnectorError::io(error),
    }
}
