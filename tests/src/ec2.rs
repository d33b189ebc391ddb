//! A stand-in for EC2, as far as the agent uses it: instances with their tags, and instance types. It can reject requests and fail
//! ([`Mood`]).
//!
//! Source: the EC2 API Reference, `DescribeInstances`, `DescribeInstanceTypes`, `AssignIpv6Addresses`, and "Error codes".

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv6Addr, TcpListener};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, Response};

use crate::stand_in_api::{Shared, StandInApi, form, header, said};

/// The AWS account that owns the instances.
pub const ACCOUNT: &str = "123456789012";
const ACCESS_KEY: &str = "AKIDEXAMPLE";
const ASSIGN: &str = "AssignIpv6Addresses";
pub const CLUSTER_TAG: &str = "KubernetesCluster";
pub const INSTANCE_GROUP_TAG: &str = "kops.k8s.io/instancegroup";

#[derive(Clone, Debug)]
pub struct Instance {
    /// For example `running` or `stopped`.
    pub state: String,
    /// The time of the instance's last start, in RFC 3339. Empty if responses omit it.
    pub launch_time: String,
    /// `spot`, or empty for an on-demand instance.
    pub lifecycle: String,
    /// The instance's private address; empty in an IPv6-only subnet.
    pub private_ip: String,
    /// The IPv6 address of the instance's primary network interface, if it has one.
    pub ipv6: Option<Ipv6Addr>,
    /// The IPv6 prefixes of each network interface of the instance. The primary interface is first.
    pub ipv6_prefixes: Vec<Vec<String>>,
    pub tags: BTreeMap<String, String>,
}

impl Instance {
    /// A running instance of this group.
    pub fn of_group(cluster: &str, group: &str) -> Instance {
        let tags = [(CLUSTER_TAG, cluster), (INSTANCE_GROUP_TAG, group)];
        Instance {
            state: "running".into(),
            launch_time: String::new(),
            lifecycle: String::new(),
            private_ip: "10.0.0.1".into(),
            ipv6: None,
            ipv6_prefixes: Vec::new(),
            tags: tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        }
    }

    pub fn tagged(mut self, key: &str, value: &str) -> Instance {
        self.tags.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Moves the instance to an IPv6-only subnet, at this address, without a prefix.
    pub fn in_ipv6_only_subnet(self, address: Ipv6Addr) -> Instance {
        Instance { private_ip: String::new(), ipv6: Some(address), ipv6_prefixes: vec![Vec::new()], ..self }
    }

    /// Sets the IPv6 prefixes of the instance's primary network interface.
    pub fn with_ipv6_prefixes(mut self, prefixes: &[&str]) -> Instance {
        self.ipv6_prefixes = vec![prefixes.iter().map(|prefix| (*prefix).to_owned()).collect()];
        self
    }
}

/// The id of an instance's primary network interface.
pub fn interface_of(instance: &str) -> String {
    instance.replacen("i-", "eni-", 1)
}

#[derive(Clone, Copy, Debug)]
pub struct InstanceType {
    /// The maximum number of network interfaces.
    pub interfaces: u32,
    /// The maximum number of IPv4 addresses on each network interface.
    pub addresses: u32,
    pub gpu: bool,
}

/// The way in which EC2 responds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    #[default]
    Good,
    /// Answers 503 `RequestLimitExceeded`.
    Throttling,
    /// Answers 500 `InternalError`.
    Down,
    Forbidding,
    /// Does not answer until the mood changes.
    Hanging,
}

#[derive(Debug, Default)]
struct State {
    instances: BTreeMap<String, Instance>,
    instance_types: BTreeMap<String, InstanceType>,
    mood: Mood,
    calls: Vec<usize>,
    /// Valid access keys in addition to the key of [`Ec2::environment`]. The value is the only permitted action. `None` permits all
    /// actions.
    access_keys: BTreeMap<String, Option<&'static str>>,
    /// The network interfaces for which prefixes were requested, one entry for each request.
    assignments: Vec<String>,
}

/// A running stand-in for EC2. Dropping it stops the stand-in.
#[derive(Debug)]
pub struct Ec2(StandInApi<State>);

impl Ec2 {
    /// Starts the stand-in without instances.
    pub fn start() -> anyhow::Result<Ec2> {
        Ok(Ec2(StandInApi::start("ec2", State::default(), answered)?))
    }

    /// Like `start`, on this socket.
    pub fn start_on(socket: TcpListener) -> anyhow::Result<Ec2> {
        Ok(Ec2(StandInApi::start_on(socket, "ec2", State::default(), answered)?))
    }

    /// Permits all actions to the holder of this access key.
    pub fn permit(&self, access_key: &str) {
        self.0.state().access_keys.insert(access_key.to_owned(), None);
    }

    /// Permits the holder of this access key only to assign IPv6 prefixes. kOps permits this to nodes of IPv6-only clusters.
    pub fn permit_prefixes(&self, access_key: &str) {
        self.0.state().access_keys.insert(access_key.to_owned(), Some(ASSIGN));
    }

    /// Returns a function that reads the current IPv6 prefixes of an instance's primary network interface.
    pub fn prefixes(&self) -> impl Fn(&str) -> Vec<String> + Send + Sync + 'static {
        let state = self.0.shared();
        move |id| {
            let state = state.lock();
            state.instances.get(id).and_then(|it| it.ipv6_prefixes.first()).cloned().unwrap_or_default()
        }
    }

    /// The network interface of each request for a prefix so far, in order.
    pub fn assignments(&self) -> Vec<String> {
        self.0.state().assignments.clone()
    }

    /// Adds or replaces an instance.
    pub fn put(&self, id: &str, instance: Instance) {
        self.0.state().instances.insert(id.to_owned(), instance);
    }

    pub fn put_type(&self, name: &str, instance_type: InstanceType) {
        self.0.state().instance_types.insert(name.to_owned(), instance_type);
    }

    pub fn remove(&self, id: &str) {
        self.0.state().instances.remove(id);
    }

    pub fn set_mood(&self, mood: Mood) {
        self.0.state().mood = mood;
    }

    /// The number of instances in each request so far.
    pub fn calls(&self) -> Vec<usize> {
        self.0.state().calls.clone()
    }

    /// The environment variables with the URL of this stand-in and with credentials.
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL_EC2", self.0.url()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.into()),
            ("AWS_SECRET_ACCESS_KEY", "secret".into()),
            ("AWS_EC2_METADATA_DISABLED", "true".into()),
        ]
    }
}

async fn answered(request: Request<Incoming>, state: Shared<State>) -> Option<Response<String>> {
    Some(answer(request, &state).await)
}

async fn answer(request: Request<Incoming>, state: &Shared<State>) -> Response<String> {
    let authorization = header(&request, "authorization");
    let access_key = authorization.strip_prefix("AWS4-HMAC-SHA256 Credential=").unwrap_or_default();
    let access_key = access_key.split('/').next().unwrap_or_default().to_owned();
    let form = form(request).await;
    let ids: Vec<&String> =
        form.iter().filter(|(name, _)| name.starts_with("InstanceId.")).map(|(_, id)| id).collect();
    let action = form.get("Action").map(String::as_str);
    let (mood, permitted) = {
        let mut state = state.lock();
        state.calls.push(ids.len());
        let all = (access_key == ACCESS_KEY).then_some(None);
        (state.mood, all.or_else(|| state.access_keys.get(&access_key).copied()))
    };
    let mood = not_hanging(mood, state).await;
    match mood {
        Mood::Throttling => return refusal(503, "RequestLimitExceeded", "Request limit exceeded."),
        Mood::Down => return refusal(500, "InternalError", "An internal error has occurred"),
        Mood::Good if permitted.is_none() => {
            return refusal(401, "AuthFailure", "AWS was not able to validate the credentials");
        }
        Mood::Good if permitted.flatten().is_none_or(|only| Some(only) == action) => {}
        Mood::Hanging => {}
        Mood::Good | Mood::Forbidding => {
            return refusal(
                403,
                "UnauthorizedOperation",
                "You are not authorized to perform this operation.",
            );
        }
    }
    let mut state = state.lock();
    match action {
        Some(ASSIGN) => return assigned(&form, &mut state),
        Some("DescribeInstances") => {}
        Some("DescribeInstanceTypes") => return instance_types(&form, &state.instance_types),
        _ => return refusal(400, "InvalidAction", "The action is not valid for this web service"),
    }
    let unknown: Vec<&str> =
        ids.iter().filter(|id| !state.instances.contains_key(**id)).map(|id| id.as_str()).collect();
    if !unknown.is_empty() {
        let message = format!("The instance IDs '{}' do not exist", unknown.join(", "));
        return refusal(400, "InvalidInstanceID.NotFound", &message);
    }
    let items: String = ids.iter().map(|id| item(id, &state.instances[*id])).collect();
    xml(
        200,
        format!(
            "<DescribeInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>\
             <reservationSet>{items}</reservationSet></DescribeInstancesResponse>"
        ),
    )
}

/// Assigns a prefix of the subnet to a network interface. As in EC2, each request assigns a new prefix.
fn assigned(form: &BTreeMap<String, String>, state: &mut State) -> Response<String> {
    let interface = form.get("NetworkInterfaceId").cloned().unwrap_or_default();
    state.assignments.push(interface.clone());
    let number = u16::try_from(state.assignments.len()).unwrap_or(u16::MAX);
    let of = state.instances.iter_mut().find(|(id, _)| interface_of(id) == interface);
    let Some((_, Instance { ipv6: Some(address), ipv6_prefixes, .. })) = of else {
        let message = format!("The networkInterface ID '{interface}' does not exist");
        return refusal(400, "InvalidNetworkInterfaceID.NotFound", &message);
    };
    let [a, b, c, d, ..] = address.segments();
    let prefix = format!("{}/80", Ipv6Addr::new(a, b, c, d, number, 0, 0, 0));
    ipv6_prefixes[0].push(prefix.clone());
    xml(
        200,
        format!(
            "<AssignIpv6AddressesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>\
             <networkInterfaceId>{interface}</networkInterfaceId><assignedIpv6Addresses/>\
             <assignedIpv6PrefixSet><item>{prefix}</item></assignedIpv6PrefixSet></AssignIpv6AddressesResponse>"
        ),
    )
}

fn instance_types(
    form: &BTreeMap<String, String>,
    known: &BTreeMap<String, InstanceType>,
) -> Response<String> {
    let mut items = String::new();
    for (_, name) in form.iter().filter(|(parameter, _)| parameter.starts_with("InstanceType.")) {
        let Some(InstanceType { interfaces, addresses, gpu }) = known.get(name) else {
            let message = format!("The following supplied instance types do not exist: [{name}]");
            return refusal(400, "InvalidInstanceType", &message);
        };
        let gpu = if *gpu { "<gpuInfo><gpus><item><count>1</count></item></gpus></gpuInfo>" } else { "" };
        // A write to a String cannot fail.
        let _ = write!(
            items,
            "<item><instanceType>{name}</instanceType><networkInfo>\
             <maximumNetworkInterfaces>{interfaces}</maximumNetworkInterfaces>\
             <ipv4AddressesPerInterface>{addresses}</ipv4AddressesPerInterface>\
             </networkInfo>{gpu}</item>"
        );
    }
    xml(
        200,
        format!(
            "<DescribeInstanceTypesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>\
             <instanceTypeSet>{items}</instanceTypeSet></DescribeInstanceTypesResponse>"
        ),
    )
}

/// Waits until the mood is not `Hanging`, and returns the mood.
async fn not_hanging(mut mood: Mood, state: &Shared<State>) -> Mood {
    while mood == Mood::Hanging {
        tokio::time::sleep(Duration::from_millis(10)).await;
        mood = state.lock().mood;
    }
    mood
}

fn item(id: &str, instance: &Instance) -> String {
    let mut tags = String::new();
    for (key, value) in &instance.tags {
        // A write to a String cannot fail.
        let _ = write!(tags, "<item><key>{}</key><value>{}</value></item>", escaped(key), escaped(value));
    }
    let lifecycle = match instance.lifecycle.as_str() {
        "" => String::new(),
        lifecycle => format!("<instanceLifecycle>{lifecycle}</instanceLifecycle>"),
    };
    let launched = match instance.launch_time.as_str() {
        "" => String::new(),
        time => format!("<launchTime>{time}</launchTime>"),
    };
    let (name, address) = match instance.private_ip.as_str() {
        "" => (id, String::new()),
        address => ("ip-10-0-0-1", format!("<privateIpAddress>{address}</privateIpAddress>")),
    };
    format!(
        "<item><reservationId>r-{id}</reservationId><ownerId>{ACCOUNT}</ownerId><instancesSet><item>\
         <instanceId>{id}</instanceId><instanceState><code>16</code><name>{}</name></instanceState>\
         <privateDnsName>{name}.us-test-1.compute.internal</privateDnsName>\
         {address}{lifecycle}{launched}<tagSet>{tags}</tagSet>\
         <networkInterfaceSet>{}</networkInterfaceSet></item></instancesSet></item>",
        instance.state,
        interfaces(id, instance)
    )
}

/// The instance's network interfaces. EC2 guarantees no order, so this stand-in puts the primary interface last.
fn interfaces(id: &str, instance: &Instance) -> String {
    let interface = |(index, prefixes): (usize, &Vec<String>)| {
        let prefixes: String =
            prefixes.iter().map(|prefix| format!("<item><ipv6Prefix>{prefix}</ipv6Prefix></item>")).collect();
        let (interface, address, ipv6) = match index {
            0 => (interface_of(id), instance.private_ip.as_str(), instance.ipv6),
            _ => (format!("eni-{index}"), "", None),
        };
        let ipv6 = ipv6.map(|address| format!("<item><ipv6Address>{address}</ipv6Address></item>"));
        let ipv6 = ipv6.unwrap_or_default();
        format!(
            "<item><networkInterfaceId>{interface}</networkInterfaceId><privateIpAddress>{address}</privateIpAddress>\
             <attachment><deviceIndex>{index}</deviceIndex><status>attached</status></attachment>\
             <ipv6AddressesSet>{ipv6}</ipv6AddressesSet><ipv6PrefixSet>{prefixes}</ipv6PrefixSet></item>"
        )
    };
    instance.ipv6_prefixes.iter().enumerate().rev().map(interface).collect()
}

fn refusal(status: u16, code: &str, message: &str) -> Response<String> {
    xml(
        status,
        format!(
            "<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>\
             <RequestID>r</RequestID></Response>"
        ),
    )
}

fn xml(status: u16, document: String) -> Response<String> {
    said(status, format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{document}"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
