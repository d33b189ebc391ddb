//! A limit on what the AWS SDK reads of an answer: it holds all of it in memory, of errors too.

use aws_sdk_s3::config::{
    ConfigBag, HttpClient, RuntimeComponents, RuntimeComponentsBuilder, SharedHttpClient,
};
use aws_sdk_s3::error::BoxError;
use aws_sdk_s3::primitives::SdkBody;
use aws_smithy_runtime_api::client::connector_metadata::ConnectorMetadata;
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use http_body_util::Limited;

/// The most that is read of a good answer, in bytes: twice the largest file of a store, and more than a list of a thousand
/// names of a kilobyte can have.
const LONGEST_ANSWER: usize = 16 * 1024 * 1024;
/// The most that is read of any other answer, in bytes.
const LONGEST_ERROR: usize = 1024 * 1024;

/// The same client, whose answers fail to be read behind the limit.
pub(super) fn limited(client: SharedHttpClient) -> SharedHttpClient {
    SharedHttpClient::new(LimitedClient(client))
}

#[derive(Debug)]
struct LimitedClient(SharedHttpClient);

impl HttpClient for LimitedClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(LimitedConnector(self.0.http_connector(settings, components)))
    }

    fn validate_base_client_config(
        &self,
        components: &RuntimeComponentsBuilder,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        HttpClient::validate_base_client_config(&self.0, components, config)
    }

    fn validate_final_config(
        &self,
        components: &RuntimeComponents,
        config: &ConfigBag,
    ) -> Result<(), BoxError> {
        HttpClient::validate_final_config(&self.0, components, config)
    }

    fn connector_metadata(&self) -> Option<ConnectorMetadata> {
        self.0.connector_metadata()
    }
}

#[derive(Debug)]
struct LimitedConnector(SharedHttpConnector);

impl HttpConnector for LimitedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let asked = self.0.call(request);
        HttpConnectorFuture::new(async move {
            let mut answer = asked.await?;
            let longest = if answer.status().is_success() { LONGEST_ANSWER } else { LONGEST_ERROR };
            let body = std::mem::replace(answer.body_mut(), SdkBody::taken());
            *answer.body_mut() = SdkBody::from_body_1_x(Limited::new(body, longest));
            Ok(answer)
        })
    }
}
