//! Checks the servers that a machine needs: DNS names, the state store, the cloud, kops-controller, downloads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::finding::{Finding, Verdict};

const DNS: &str = "dns";
const DOWNLOADS: &str = "downloads";

/// The addresses that kOps writes into DNS before a control plane exists (upstream: `pkg/dns/placeholder.go`).
const PLACEHOLDERS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(203, 0, 113, 123)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xdead, 0xadd, 0, 0, 0, 0, 0)),
];

/// The outcome of a request to a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server answers correctly.
    Answers,
    /// The server rejects the request, gives a wrong response, or is unreachable. The text is the reason.
    Fails(String),
    /// The server timed out, was not asked, or gave an inconclusive response. The text is the reason. The server may still be healthy.
    Unknown(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    Store,
    Downloads,
    ApiServer,
    KopsController,
}

impl Purpose {
    fn in_words(self) -> &'static str {
        match self {
            Purpose::Store => "the state store",
            Purpose::Downloads => "downloads",
            Purpose::ApiServer => "the API server",
            Purpose::KopsController => "kops-controller",
        }
    }
}

/// The DNS name of a server, with the outcome of its look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub name: String,
    pub purpose: Purpose,
    pub outcome: NameOutcome,
}

/// The outcome of a DNS look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameOutcome {
    Addresses(Vec<IpAddr>),
    /// The name has no address, according to a name server. The text is the reason.
    Absent(String),
    /// No name server gave an answer. The text is the reason.
    Unknown(String),
}

/// A service that a machine uses before it is a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub kind: ServiceKind,
    /// The service's URL, or a name for messages if the service has no URL.
    pub name: String,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// The file with the machine's boot config.
    BootConfig,
    Store,
    /// kops-controller, for a machine that does not read the store.
    KopsController,
    Metadata,
    Configuration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    pub name: String,
    pub is_there: bool,
    /// The servers that offer the file, each with the outcome of a request. Their URLs have no credentials.
    pub servers: Vec<(String, Outcome)>,
}

pub(super) fn of_name(name: &Name, is_control_plane: bool) -> Finding {
    let Name { name, purpose, outcome } = name;
    let of = purpose.in_words();
    let of_cluster = matches!(purpose, Purpose::ApiServer | Purpose::KopsController);
    match outcome {
        NameOutcome::Addresses(addresses)
            if !addresses.iter().all(|address| PLACEHOLDERS.contains(address)) =>
        {
            Finding::ok(DNS, format!("{name} ({of}) has an address"))
        }
        NameOutcome::Addresses(_) | NameOutcome::Absent(_) if of_cluster && is_control_plane => Finding::ok(
            DNS,
            format!("{name} ({of}) has no address yet: the first control plane registers one"),
        ),
        NameOutcome::Addresses(_) => Finding::problem(
            DNS,
            format!(
                "{name} ({of}) still has kOps' placeholder address, because no control plane has registered its own"
            ),
            "check why no control plane is up; dns-controller on a control plane writes the address",
        ),
        NameOutcome::Absent(why) => Finding::problem(
            DNS,
            format!("{name} ({of}): {why}"),
            "check the name, /etc/resolv.conf and the name servers in it: `resolvectl query NAME`",
        ),
        NameOutcome::Unknown(why) => Finding::unknown(
            DNS,
            format!("the address of {name} ({of}) is unknown: {why}"),
            "check /etc/resolv.conf and whether its name servers can be reached",
        ),
    }
}

/// The remedy for a problem with the state store. The text lists everything to check, because the machine may not have the manual pages.
const TO_DO_FOR_STORE: &str = "follow the message: check the URL and the files that `kops update cluster --yes` wrote there, the rights of \
     the machine's role, the variables in /etc/sysconfig/kops-configuration, or the network, DNS, and the proxy in /etc/environment";

/// The findings about services. A failure is only a warning in two cases: a kops-controller server fails but another server answers, or the
/// store is unreadable but the node's configuration is valid without the store.
pub(super) fn of_services(services: &[Service]) -> impl Iterator<Item = Finding> {
    let is_controller = |service: &Service| service.kind == ServiceKind::KopsController;
    let one_answers =
        services.iter().any(|service| is_controller(service) && service.outcome == Outcome::Answers);
    let is_decided = services
        .iter()
        .any(|service| service.kind == ServiceKind::Configuration && service.outcome == Outcome::Answers);
    services.iter().map(move |service| match &service.outcome {
        Outcome::Fails(why) if one_answers && is_controller(service) => Finding::warning(
            "kops-controller",
            format!("{}; another kops-controller answers", with_name(&service.name, why)),
            "check whether that control plane should be up",
        ),
        Outcome::Fails(why) if is_decided && service.kind == ServiceKind::Store => Finding::warning(
            "store",
            format!("{}; the configuration of the node is valid without it", with_name(&service.name, why)),
            format!(
                "allow the machine to read the state store, so that the node follows changes of the cluster: \
                 {TO_DO_FOR_STORE}"
            ),
        ),
        _ => of_service(service),
    })
}

fn of_service(service: &Service) -> Finding {
    let Service { kind, name, outcome } = service;
    let (check, what_is_it, to_do) = match kind {
        ServiceKind::BootConfig => (
            "boot config",
            "the boot config",
            "check that the instance has kOps' user-data; --conf sets the path of the file",
        ),
        ServiceKind::Store => ("store", "the state store", TO_DO_FOR_STORE),
        ServiceKind::KopsController => (
            "kops-controller",
            "kops-controller",
            "check that a control plane is up, and that its firewall allows this machine",
        ),
        ServiceKind::Metadata => (
            "metadata",
            "the metadata service",
            "check that this is a machine of that cloud, and that its metadata service is enabled",
        ),
        ServiceKind::Configuration => {
            ("configuration", "the node", "`kops-agent config check` lists all problems")
        }
    };
    match (outcome, kind) {
        (Outcome::Answers, ServiceKind::Configuration) => {
            Finding::ok(check, format!("the configuration of {name} is valid"))
        }
        (Outcome::Answers, ServiceKind::BootConfig) => Finding::ok(check, format!("{name} is a boot config")),
        (Outcome::Answers, ServiceKind::Store) => Finding::ok(check, format!("{name} can be read")),
        (Outcome::Answers, _) => Finding::ok(check, format!("{what_is_it} answers at {name}")),
        (Outcome::Fails(why), _) => Finding::problem(check, with_name(name, why), to_do),
        (Outcome::Unknown(why), ServiceKind::Configuration) => Finding::unknown(
            check,
            format!("cannot check the configuration of the node: {}", with_name(name, why)),
            to_do,
        ),
        (Outcome::Unknown(why), _) => Finding::unknown(
            check,
            format!("cannot tell whether {what_is_it} answers: {}", with_name(name, why)),
            to_do,
        ),
    }
}

/// Puts the name before the reason, unless the reason already contains the name. Most reasons contain the URL.
fn with_name(name: &str, why: &str) -> String {
    if name.is_empty() || why.contains(name) { why.to_owned() } else { format!("{name}: {why}") }
}

pub(super) fn of_downloads(downloads: &[Download]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = downloads.iter().filter_map(of_download).collect();
    let answered = downloads.len() - findings.len();
    if answered > 0 {
        findings.push(Finding::ok(
            DOWNLOADS,
            format!("{answered} of {} downloads are available, or already on this machine", downloads.len()),
        ));
    }
    findings
}

fn of_download(download: &Download) -> Option<Finding> {
    let Download { name, is_there, servers } = download;
    if *is_there || servers.iter().any(|(_, outcome)| *outcome == Outcome::Answers) {
        return None;
    }
    let reasons: Vec<String> = servers
        .iter()
        .map(|(server, outcome)| match outcome {
            Outcome::Answers => server.clone(),
            Outcome::Fails(why) | Outcome::Unknown(why) => with_name(server, why),
        })
        .collect();
    let reasons = reasons.join("; ");
    let is_unknown =
        servers.is_empty() || servers.iter().any(|(_, outcome)| matches!(outcome, Outcome::Unknown(_)));
    let (verdict, what) = match is_unknown {
        true => (Verdict::Unknown, format!("cannot tell whether {name} can be downloaded: {reasons}")),
        false => (Verdict::Problem, format!("{name} cannot be downloaded: {reasons}")),
    };
    let to_do = "check the network and the proxy (/etc/environment), and whether spec.assets.fileRepository has the file".to_owned();
    Some(Finding { check: DOWNLOADS, verdict, what, to_do })
}
