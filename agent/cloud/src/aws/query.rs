//! The query APIs of AWS: requests are signed forms, and responses are XML documents.
//!
//! This module replaces the SDKs of EC2, Auto Scaling and STS, which together would be many times larger than this agent.
//!
//! Source: the EC2 API Reference, "Query requests" and "Error codes"; each service's "Common errors".

use std::time::Duration;

use aws_sdk_s3::config::SharedCredentialsProvider;
use aws_smithy_xml::decode::{Document, try_data};
use reqwest::Client;

use super::signing::Signer;
use crate::api::{self, Api, ApiError, ErrorBody, Question};
use kops_agent_net::http;

/// An AWS service with a query API: parameters in a form, and XML responses.
#[derive(Debug)]
pub(crate) struct Service {
    /// How the service reports errors.
    pub(crate) api: Api,
    /// The service's name in hosts, signatures and metrics.
    pub(super) name: &'static str,
    /// The API version of requests and responses.
    pub(super) version: &'static str,
    /// The maximum size of a response, in bytes.
    pub(super) longest_answer: usize,
}

/// A client for a service in one region, with the default AWS credentials.
#[derive(Debug)]
pub(super) struct QueryClient {
    service: &'static Service,
    client: Client,
    endpoint: String,
    signer: Signer,
}

impl QueryClient {
    pub(super) fn new(
        service: &'static Service,
        endpoint: &str,
        region: &str,
        provider: Option<SharedCredentialsProvider>,
    ) -> Result<QueryClient, ApiError> {
        Ok(QueryClient {
            service,
            client: http::client()?,
            endpoint: format!("{}/", endpoint.trim_end_matches('/')),
            signer: Signer::new(service.name, region, provider),
        })
    }

    /// Sends one request, and returns the XML document of the response. The parameters are named as in the service's API reference
    /// (`NetworkInterfaceId`, `Filter.1.Value.1`).
    pub(super) async fn query(
        &self,
        action: &'static str,
        parameters: &[(&str, &str)],
        within: Duration,
    ) -> Result<String, ApiError> {
        let form = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", action)
            .append_pair("Version", self.service.version)
            .extend_pairs(parameters)
            .finish();
        let question = self.question(action);
        let request = self.signer.post(&self.client, question, form, within).await?;
        question.text(api::ask(&self.client, request, question).await?)
    }

    pub(super) fn question(&self, action: &'static str) -> Question<'_> {
        let Service { api, longest_answer, .. } = self.service;
        Question { api, action, endpoint: &self.endpoint, longest: *longest_answer }
    }
}

pub(super) fn read_error(body: &[u8]) -> Option<ErrorBody> {
    let document = std::str::from_utf8(body).ok()?;
    let message = text_of(document, "Message").unwrap_or_default();
    Some(ErrorBody { code: text_of(document, "Code")?, message })
}

/// Advice if the service rejects the credentials.
pub(super) fn advice_on_credentials(code: &str) -> String {
    match code {
        "AuthFailure" | "InvalidClientTokenId" | "SignatureDoesNotMatch" => {
            "; check the access key and its secret, and this machine's clock".into()
        }
        "RequestExpired" => "; set this machine's clock (is chrony or timesyncd running?)".into(),
        _ => String::new(),
    }
}

/// The text of the first element with this name, at any depth; `None` if the document has no such element, or is not XML.
pub(super) fn text_of(document: &str, name: &str) -> Option<String> {
    let mut document = Document::new(document);
    while let Some(element) = document.next_start_element() {
        if element.local() == name {
            let text = try_data(&mut document.scoped_to(element)).ok()?;
            return Some(text.trim().to_owned());
        }
    }
    None
}
