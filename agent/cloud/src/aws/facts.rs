//! Facts about an EC2 instance from its metadata service (IMDSv2 only: every request carries a token).

use std::collections::BTreeMap;

use futures_util::future::{try_join, try_join_all};
use kops_agent_cluster::fleet::ObservedMachine;
use kops_agent_spec::facts::AwsFacts;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::sync::Mutex;

use crate::metadata::{Failure, MetadataError, MetadataService};
use kops_agent_net::http;
use kops_agent_net::retry::Retries;

const ENDPOINT: &str = "http://169.254.169.254";
const ENDPOINT_OF_IPV6: &str = "http://[fd00:ec2::254]";

const TOKEN_PATH: &str = "/latest/api/token";
/// The lifetime of a token, in seconds: six hours, EC2's maximum.
const TOKEN_SECONDS: &str = "21600";

/// The requested items, below `/latest/meta-data/`. An instance may lack some of these items.
const ITEMS: [&str; 10] = [
    "instance-id",
    "instance-type",
    "placement/region",
    "placement/availability-zone",
    "local-ipv4",
    "public-ipv4",
    "ipv6",
    "local-hostname",
    "mac",
    "autoscaling/target-lifecycle-state",
];

/// Items of the primary network interface.
pub(super) const IPV6_PREFIX: &str = "ipv6-prefix";
pub(super) const INTERFACE_ID: &str = "interface-id";

/// The metadata service's responses, keyed by metadata item. Items that the instance does not have are absent.
type Answers = BTreeMap<&'static str, String>;

/// The endpoint of the metadata service, from the environment variables that every AWS SDK reads. Fails if `AWS_EC2_METADATA_DISABLED` is
/// true.
pub(crate) fn endpoint_of_environment() -> Result<String, MetadataError> {
    endpoint(|name| std::env::var(name).ok())
}

fn endpoint(variable: impl Fn(&str) -> Option<String>) -> Result<String, MetadataError> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if set("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(MetadataError::Disabled);
    }
    if let Some(endpoint) = set("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
        return Ok(endpoint);
    }
    let mode = set("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    let ipv6 = mode.is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6"));
    Ok(if ipv6 { ENDPOINT_OF_IPV6 } else { ENDPOINT }.to_owned())
}

/// Gets the facts about this instance from the metadata service at a URL.
pub(crate) async fn observe(endpoint: &str, retries: Retries) -> Result<AwsFacts, MetadataError> {
    let imds = Imds::at(endpoint, retries)?;
    let told = try_join_all(ITEMS.iter().map(|item| imds.get(item))).await?;
    let mut answers: Answers =
        ITEMS.into_iter().zip(told).filter_map(|(item, answer)| Some((item, answer?))).collect();
    if let Some(mac) = answers.get("mac") {
        let prefixes = imds.get(&item_of_interface(mac, IPV6_PREFIX)).await?;
        answers.insert(IPV6_PREFIX, prefixes.unwrap_or_default());
    }
    parse(&answers)
        .map_err(|missing| imds.service.unusable(&path_of(missing), "it is empty or does not exist (404)"))
}

/// Gets the type and the image of this instance from the metadata service at a URL.
pub(super) async fn observe_machine(
    endpoint: &str,
    retries: Retries,
) -> Result<ObservedMachine, MetadataError> {
    let imds = Imds::at(endpoint, retries)?;
    let (machine_type, image) = try_join(imds.get_needed("instance-type"), imds.get_needed("ami-id")).await?;
    Ok(ObservedMachine::new(Some(machine_type), Some(image)))
}

/// Reads the facts from the responses. The error is the name of a required item that is missing.
fn parse(answers: &Answers) -> Result<AwsFacts, &'static str> {
    let optional = |item: &str| answers.get(item).cloned().unwrap_or_default();
    let needed =
        |item: &'static str| answers.get(item).filter(|answer| !answer.is_empty()).cloned().ok_or(item);
    Ok(AwsFacts {
        instance_id: needed("instance-id")?,
        instance_type: needed("instance-type")?,
        region: needed("placement/region")?,
        availability_zone: needed("placement/availability-zone")?,
        local_ipv4: optional("local-ipv4"),
        public_ipv4: optional("public-ipv4"),
        ipv6: optional("ipv6"),
        ipv6_prefix: optional(IPV6_PREFIX).lines().next().unwrap_or_default().trim().to_owned(),
        local_hostname: optional("local-hostname"),
        mac: needed("mac")?,
        target_lifecycle_state: optional("autoscaling/target-lifecycle-state"),
        // The metadata service does not have these facts; `instance_types` asks EC2's API for them.
        network_interfaces: None,
        gpu: None,
    })
}

pub(super) fn item_of_interface(mac: &str, item: &str) -> String {
    format!("network/interfaces/macs/{mac}/{item}")
}

fn path_of(item: &str) -> String {
    format!("/latest/meta-data/{item}")
}

/// A client for the metadata service, with its token.
pub(super) struct Imds {
    service: MetadataService,
    token: Mutex<Option<HeaderValue>>,
}

impl Imds {
    pub(super) fn at(endpoint: &str, retries: Retries) -> Result<Imds, MetadataError> {
        Ok(Imds { service: MetadataService::new(endpoint, retries)?, token: Mutex::default() })
    }

    pub(super) async fn get_needed(&self, item: &str) -> Result<String, MetadataError> {
        let answer = self.get(item).await?.filter(|answer| !answer.is_empty());
        answer.ok_or_else(|| self.service.unusable(&path_of(item), "it is empty or does not exist (404)"))
    }

    pub(super) async fn get(&self, item: &str) -> Result<Option<String>, MetadataError> {
        let path = path_of(item);
        let token = self.token(None).await?;
        match self.service.get(&path, &headers_with(token.clone())).await {
            // Tokens expire. If an instance is stopped and started, its token expires early.
            Err(MetadataError::Refused { status: 401, .. }) => {
                let token = self.token(Some(&token)).await?;
                self.service.get(&path, &headers_with(token)).await
            }
            answer => answer,
        }
    }

    /// Returns the token that all requests share. If the service rejected this token (`refused`), requests a new one.
    async fn token(&self, refused: Option<&HeaderValue>) -> Result<HeaderValue, MetadataError> {
        let mut known = self.token.lock().await;
        if let Some(token) = known.as_ref().filter(|token| Some(*token) != refused) {
            return Ok(token.clone());
        }
        *known = None;
        Ok(known.insert(self.new_token().await?).clone())
    }

    async fn new_token(&self) -> Result<HeaderValue, MetadataError> {
        let attempt = || async {
            let mut headers = HeaderMap::new();
            headers.insert("x-aws-ec2-metadata-token-ttl-seconds", HeaderValue::from_static(TOKEN_SECONDS));
            match self.service.request(Method::PUT, TOKEN_PATH, headers).await? {
                Some(token) => Ok(token),
                None => Err(Failure::Unusable("it has no tokens (404), so it is not EC2's IMDSv2".into())),
            }
        };
        let advice = "is the instance's metadata endpoint disabled? (aws ec2 modify-instance-metadata-options \
                      --http-endpoint enabled)";
        let token = self.service.trying(TOKEN_PATH, advice, attempt).await.map_err(suspect_hop_limit)?;
        http::secret(&token)
            .map_err(|_| self.service.unusable(TOKEN_PATH, "its token is not a valid HTTP header"))
    }
}

fn headers_with(token: HeaderValue) -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("x-aws-ec2-metadata-token"), token)])
}

/// If the service accepts the token request but no response arrives, the error names the hop limit. EC2 sends tokens with a hop limit of 1
/// by default, so a router between this process and the service drops the tokens. A container's network has such a router.
fn suspect_hop_limit(error: MetadataError) -> MetadataError {
    match error {
        MetadataError::Silent { url, attempts, waited } => MetadataError::HopLimit { url, attempts, waited },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;
    use kops_agent_net::retry::FAST;
    use kops_agent_tests::fake_imds::{FakeImds, Trouble};
    use kops_agent_tests::test_server::{TestServer, text};

    const SHORT: Retries =
        Retries { deadline: Duration::from_millis(300), attempt: Duration::from_millis(100), ..FAST };

    fn instance() -> AwsFacts {
        AwsFacts {
            instance_id: "i-0123456789abcdef0".into(),
            instance_type: "m5.large".into(),
            region: "eu-west-1".into(),
            availability_zone: "eu-west-1a".into(),
            local_ipv4: "172.20.32.10".into(),
            local_hostname: "ip-172-20-32-10.eu-west-1.compute.internal".into(),
            mac: "02:00:00:00:00:01".into(),
            ..AwsFacts::default()
        }
    }

    #[tokio::test]
    async fn an_instance_is_observed_with_one_token() {
        let imds = FakeImds::start(&[]).await;
        assert_eq!(observe(&imds.url(), FAST).await.unwrap(), instance());
        assert_eq!(imds.tokens_given(), 1);
        assert_eq!(observe(&format!("{}/", imds.url()), FAST).await.unwrap(), instance());
    }

    #[tokio::test]
    async fn the_type_and_the_image_are_observed() {
        let imds = FakeImds::start(&[]).await;
        let expected = ObservedMachine::new(Some("m5.large".into()), Some("ami-0123456789abcdef0".into()));
        assert_eq!(observe_machine(&imds.url(), FAST).await.unwrap(), expected);
    }

    #[tokio::test]
    async fn a_service_that_starts_slowly_is_waited_for() {
        let imds = FakeImds::start(&[Trouble::Starting, Trouble::HangUp, Trouble::Starting]).await;
        assert_eq!(observe(&imds.url(), FAST).await.unwrap(), instance());
    }

    #[tokio::test]
    async fn a_service_that_does_not_listen_yet_is_waited_for() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", socket.local_addr().unwrap());
        let failed = Retries { deadline: Duration::ZERO, ..FAST };
        let error = observe(&url, failed).await.unwrap_err();
        assert!(matches!(error, MetadataError::Unreachable { attempts: 1, .. }), "{error:?}");

        let observing = tokio::spawn(async move { observe(&url, FAST).await });
        let _imds = FakeImds::start_on(socket.listen(16).unwrap(), &[]);
        assert_eq!(observing.await.unwrap().unwrap(), instance());
    }

    #[tokio::test]
    async fn an_expired_token_is_replaced() {
        let imds = FakeImds::start(&[]).await;
        imds.let_tokens_expire_after(6);
        assert_eq!(observe(&imds.url(), FAST).await.unwrap(), instance());
        assert_eq!(imds.tokens_given(), 2, "those that were refused share the next");
    }

    #[tokio::test]
    async fn a_service_that_rejects_each_new_token_is_an_error() {
        let imds = FakeImds::start(&[]).await;
        imds.let_tokens_expire_after(0);
        let error = observe(&imds.url(), FAST).await.unwrap_err();
        assert!(matches!(error, MetadataError::Refused { status: 401, .. }), "{error}");
        assert_eq!(imds.tokens_given(), 2);
    }

    #[tokio::test]
    async fn a_lost_token_response_is_reported_as_a_low_hop_limit() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        let error = observe(&url, SHORT).await.unwrap_err();
        assert!(matches!(error, MetadataError::HopLimit { .. }), "{error:?}");
        assert!(error.to_string().contains("hop limit to 2"), "{error}");
    }

    #[tokio::test]
    async fn an_unreachable_service_is_an_error_with_the_reason() {
        // Nothing listens on this port. The port stays bound, so that no other process can take it.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = observe(&format!("http://{}", socket.local_addr().unwrap()), SHORT).await.unwrap_err();
        assert!(matches!(error, MetadataError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains("onnection refused"), "{error}");
    }

    #[tokio::test]
    async fn answers_of_other_services_are_rejected() {
        for (status, answer, expected) in [
            (404, "", "not EC2's IMDSv2"),
            (403, "", "--http-endpoint enabled"),
            (200, "<html>Welcome</html>", "a web page"),
            (200, "two\nlines", "not a valid HTTP header"),
        ] {
            let server = TestServer::start(move |_| async move { Ok(text(status, answer)) }).await;
            let error = observe(&server.url, FAST).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn missing_optional_items_are_empty() {
        let mut answers: Answers = [
            ("instance-id", "i-1"),
            ("instance-type", "m5.large"),
            ("placement/region", "eu-west-1"),
            ("placement/availability-zone", "eu-west-1a"),
            ("mac", "02:00:00:00:00:01"),
        ]
        .map(|(item, answer)| (item, answer.to_owned()))
        .into();
        let facts = parse(&answers).unwrap();
        assert_eq!((facts.local_ipv4.as_str(), facts.target_lifecycle_state.as_str()), ("", ""));
        answers.insert("placement/region", String::new());
        assert_eq!(parse(&answers), Err("placement/region"));
    }

    #[test]
    fn the_environment_sets_the_metadata_endpoint() {
        let with = |variables: &[(&str, &str)]| {
            endpoint(|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        assert_eq!(with(&[]).unwrap(), ENDPOINT);
        assert_eq!(with(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6")]).unwrap(), ENDPOINT_OF_IPV6);
        assert_eq!(
            with(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")]).unwrap(),
            "http://127.0.0.1:1"
        );
        assert_eq!(with(&[("AWS_EC2_METADATA_DISABLED", "false")]).unwrap(), ENDPOINT);
        let error = with(&[("AWS_EC2_METADATA_DISABLED", "True")]).unwrap_err();
        assert!(error.to_string().contains("unset it"), "{error}");
    }
}
