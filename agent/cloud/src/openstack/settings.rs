//! A login to OpenStack from the environment: the URL of Keystone, the credentials, and the region.
//!
//! Source: upstream reads the login with gophercloud's `AuthOptionsFromEnv`, and the region with `GetRegion` in
//! `util/pkg/vfs/swiftfs.go`. Like upstream, this module prefers a password to an application credential. Unlike upstream, a
//! user and a project may have different domains, as in OpenStack's own client (`OS_USER_DOMAIN_…`, `OS_PROJECT_DOMAIN_…`),
//! and `OS_INTERFACE` applies.

use kops_agent_net::http::{self, HttpError};
use kops_agent_net::tls::{self, NoCaBundle};
use reqwest::Client;
use serde_json::{Value, json};

use crate::api::ApiError;
use crate::inventory::variable;

pub(super) const AUTH_URL: &str = "OS_AUTH_URL";
pub(super) const REGION: &str = "OS_REGION_NAME";
/// Selects which endpoints of a service are used: public, internal or admin.
pub(super) const INTERFACE: &str = "OS_INTERFACE";
/// Turns off the verification of OpenStack's certificates. kOps sets this variable for `insecureSkipVerify` (upstream:
/// `buildEnvironmentVariables` in `pkg/model/resources/nodeup.go`, `GetInsecureSkipVerify` in `util/pkg/vfs/swiftfs.go`).
const ANY_CERTIFICATE: &str = "KOPS_OS_TLS_INSECURE_SKIP_VERIFY";

/// The variables of a login that kOps gives to machines (upstream: `buildEnvironmentVariables` in
/// `pkg/model/resources/nodeup.go`).
pub(super) const VARIABLES: &[&str] = &[
    AUTH_URL,
    "OS_TENANT_ID",
    "OS_TENANT_NAME",
    "OS_PROJECT_ID",
    "OS_PROJECT_NAME",
    "OS_PROJECT_DOMAIN_NAME",
    "OS_PROJECT_DOMAIN_ID",
    "OS_DOMAIN_NAME",
    "OS_DOMAIN_ID",
    "OS_USERNAME",
    "OS_PASSWORD",
    REGION,
    "OS_APPLICATION_CREDENTIAL_ID",
    "OS_APPLICATION_CREDENTIAL_SECRET",
    ANY_CERTIFICATE,
    // Only kops-agent reads this variable: kOps' own programs use public endpoints.
    INTERFACE,
];

pub struct Settings {
    pub(super) tokens_url: String,
    /// The body of a token request. It contains secrets.
    pub(super) request: Value,
    pub(super) region: Option<String>,
    /// `public`, `internal` or `admin`.
    pub(super) interface: String,
    /// Whether certificates of OpenStack's servers are not verified.
    takes_any_certificate: bool,
}

impl Settings {
    /// Reads the login from the environment.
    pub fn of_environment() -> Result<Settings, ApiError> {
        Settings::from_variables(&variable)
    }

    /// Like `of_environment`, with variables from the caller.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Result<Settings, ApiError> {
        let get = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let auth_url = get(AUTH_URL).ok_or_else(|| {
            missing(
                AUTH_URL,
                "is not set: give this process a login to OpenStack, as kOps gives one to control planes",
            )
        })?;
        let takes_any_certificate = matches!(get(ANY_CERTIFICATE).as_deref(), Some("true" | "1"));
        if takes_any_certificate {
            log::warn!(
                "{ANY_CERTIFICATE} is set, so OpenStack's certificates are not verified: a server that impersonates \
                 OpenStack gets the login of this cluster. Add the authority that signed the certificates to this \
                 host's CA bundle, and unset insecureSkipVerify of spec.cloudProvider.openstack"
            );
        }
        let interface = get(INTERFACE).unwrap_or_else(|| "public".to_owned());
        Ok(Settings {
            tokens_url: tokens_url(&auth_url),
            request: request(&get)?,
            // kOps quotes the value in its environment file. Some programs that read the file keep the quotes, so the quotes are removed
            // here.
            region: get(REGION).map(|region| unquoted(region.trim()).to_owned()),
            // For older Keystones and their clients, the value ends in `URL` (`publicURL`), so this suffix is removed.
            interface: interface.trim().trim_end_matches("URL").to_owned(),
            takes_any_certificate,
        })
    }

    /// A client for OpenStack's servers. It follows no redirect, because login and tokens are for these servers only.
    pub fn client(&self) -> Result<Client, HttpError> {
        let config = match self.takes_any_certificate {
            true => tls::client_config_without_verification()?,
            false => tls::client_config()?,
        };
        http::client_with(config)
    }

    /// Fails if this client must verify the certificate of the server at this URL, and this host has no CA bundle.
    pub(super) fn require_ca_bundle_for(&self, url: &str) -> Result<(), NoCaBundle> {
        if self.takes_any_certificate { Ok(()) } else { tls::require_ca_bundle_for([url]) }
    }
}

/// The URL for tokens, from Keystone's URL with or without a version.
fn tokens_url(auth_url: &str) -> String {
    let base = unquoted(auth_url.trim()).trim_end_matches('/');
    let is_version = |part: &str| {
        part.strip_prefix('v').is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit()))
    };
    let base = match base.rsplit_once('/') {
        Some((base, version)) if is_version(version) => base,
        _ => base,
    };
    format!("{base}/v3/auth/tokens")
}

fn unquoted(text: &str) -> &str {
    text.strip_prefix('\'').and_then(|text| text.strip_suffix('\'')).unwrap_or(text)
}

fn missing(variable: &'static str, problem: &str) -> ApiError {
    ApiError::NoPlace { variable, problem: problem.to_owned(), may_pass: false }
}

/// The body of a token request to Keystone (Identity API v3, "Authentication and token management").
fn request(get: &dyn Fn(&str) -> Option<String>) -> Result<Value, ApiError> {
    let first = |names: &[&str]| names.iter().find_map(|name| get(name));
    let domain = |of: &str| {
        let by_id = first(&[&format!("OS_{of}_DOMAIN_ID"), "OS_DOMAIN_ID"]);
        let by_name = first(&[&format!("OS_{of}_DOMAIN_NAME"), "OS_DOMAIN_NAME"]);
        // The user's (or project's) own domain name takes precedence over a general domain id.
        let own_name =
            get(&format!("OS_{of}_DOMAIN_NAME")).filter(|_| get(&format!("OS_{of}_DOMAIN_ID")).is_none());
        match (own_name, by_id, by_name) {
            (Some(name), ..) => Some(json!({ "name": name })),
            (None, Some(id), _) => Some(json!({ "id": id })),
            (None, None, name) => name.map(|name| json!({ "name": name })),
        }
    };
    let user = || match (first(&["OS_USER_ID", "OS_USERID"]), get("OS_USERNAME")) {
        (Some(id), _) => Ok(json!({ "id": id })),
        (None, Some(name)) => {
            domain("USER").map(|domain| json!({"name": name, "domain": domain})).ok_or_else(|| {
                missing(
                    "OS_DOMAIN_NAME",
                    "is not set, and OS_USERNAME names a user in a domain; set it, or OS_DOMAIN_ID",
                )
            })
        }
        (None, None) => Err(missing(
            "OS_USERNAME",
            "is not set: a login with OS_PASSWORD, or with an application credential \
             without an id, needs a user",
        )),
    };
    let Some(password) = get("OS_PASSWORD") else {
        let secret = get("OS_APPLICATION_CREDENTIAL_SECRET").ok_or_else(|| {
            missing(
                "OS_APPLICATION_CREDENTIAL_SECRET",
                "is not set, nor is OS_PASSWORD: set one of them to log in to OpenStack",
            )
        })?;
        let credential = match (get("OS_APPLICATION_CREDENTIAL_ID"), get("OS_APPLICATION_CREDENTIAL_NAME")) {
            (Some(id), _) => json!({"id": id, "secret": secret}),
            (None, Some(name)) => json!({"name": name, "secret": secret, "user": user()?}),
            (None, None) => return Err(missing("OS_APPLICATION_CREDENTIAL_ID", "is not set")),
        };
        // An application credential belongs to one project, so the request names no project.
        let identity = json!({"methods": ["application_credential"], "application_credential": credential});
        return Ok(json!({"auth": {"identity": identity}}));
    };
    let mut user = user()?;
    user["password"] = password.into();
    let identity = json!({"methods": ["password"], "password": {"user": user}});
    let (id, name) =
        (first(&["OS_PROJECT_ID", "OS_TENANT_ID"]), first(&["OS_PROJECT_NAME", "OS_TENANT_NAME"]));
    let project = match (id, name) {
        (Some(id), _) => json!({ "id": id }),
        (None, Some(name)) => {
            let domain = domain("PROJECT").or_else(|| domain("USER")).ok_or_else(|| {
                missing(
                    "OS_DOMAIN_NAME",
                    "is not set, and OS_PROJECT_NAME names a project in a domain; set it, or OS_DOMAIN_ID",
                )
            })?;
            json!({"name": name, "domain": domain})
        }
        // If the request names no project, Keystone uses the user's default project.
        (None, None) => return Ok(json!({"auth": {"identity": identity}})),
    };
    Ok(json!({"auth": {"identity": identity, "scope": {"project": project}}}))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings_from(set: &[(&str, &str)]) -> Result<Settings, ApiError> {
        let url = ("OS_AUTH_URL", "https://k.example.com:5000/v3");
        Settings::from_variables(&|name| {
            let found = set.iter().chain([&url]).find(|(set, _)| *set == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn keystones_url_may_have_a_version() {
        for (auth_url, expected) in [
            ("https://k:5000", "https://k:5000/v3/auth/tokens"),
            ("https://k:5000/", "https://k:5000/v3/auth/tokens"),
            ("https://k:5000/v3", "https://k:5000/v3/auth/tokens"),
            ("https://k:5000/v3/", "https://k:5000/v3/auth/tokens"),
            ("https://k:5000/v2.0/", "https://k:5000/v3/auth/tokens"),
            ("'https://k/identity'", "https://k/identity/v3/auth/tokens"),
            ("https://k/identity/v3\n", "https://k/identity/v3/auth/tokens"),
            ("https://k/vault", "https://k/vault/v3/auth/tokens"),
        ] {
            assert_eq!(tokens_url(auth_url), expected);
        }
    }

    #[test]
    fn an_application_credential_is_sent_without_a_project() {
        let both = [
            ("OS_APPLICATION_CREDENTIAL_ID", "id"),
            ("OS_APPLICATION_CREDENTIAL_SECRET", "hidden"),
            ("OS_PROJECT_ID", "p"),
            ("OS_REGION_NAME", "'RegionOne'"),
        ];
        let settings = settings_from(&both).unwrap();
        let credential = json!({"id": "id", "secret": "hidden"});
        let identity = json!({"methods": ["application_credential"], "application_credential": credential});
        assert_eq!(settings.request, json!({"auth": {"identity": identity}}));
        assert_eq!((settings.region.as_deref(), settings.interface.as_str()), (Some("RegionOne"), "public"));
        let named = settings_from(&[
            ("OS_APPLICATION_CREDENTIAL_NAME", "kops"),
            ("OS_APPLICATION_CREDENTIAL_SECRET", "hidden"),
            ("OS_USERNAME", "u"),
            ("OS_USER_DOMAIN_ID", "d"),
        ]);
        let user = json!({"name": "u", "domain": {"id": "d"}});
        let credential = json!({"name": "kops", "secret": "hidden", "user": user});
        let identity = &named.unwrap().request["auth"]["identity"];
        assert_eq!(identity["application_credential"], credential);
    }

    #[test]
    fn a_password_is_sent_with_user_and_project_in_their_domains() {
        let user = |set: &[(&str, &str)]| {
            let mut set = set.to_vec();
            set.extend([
                ("OS_USERNAME", "u"),
                ("OS_PASSWORD", "hidden"),
                ("OS_APPLICATION_CREDENTIAL_SECRET", "x"),
            ]);
            settings_from(&set).unwrap().request["auth"].clone()
        };
        let auth = user(&[("OS_DOMAIN_NAME", "Default"), ("OS_TENANT_NAME", "t")]);
        let domain = json!({"name": "Default"});
        let expected = json!({"name": "u", "domain": domain, "password": "hidden"});
        assert_eq!(auth["identity"], json!({"methods": ["password"], "password": {"user": expected}}));
        assert_eq!(auth["scope"], json!({"project": {"name": "t", "domain": domain}}));

        let auth = user(&[
            ("OS_DOMAIN_ID", "all"),
            ("OS_USER_DOMAIN_NAME", "people"),
            ("OS_PROJECT_DOMAIN_ID", "work"),
            ("OS_PROJECT_NAME", "p"),
        ]);
        assert_eq!(auth["identity"]["password"]["user"]["domain"], json!({"name": "people"}));
        assert_eq!(auth["scope"]["project"], json!({"name": "p", "domain": {"id": "work"}}));
        let auth = user(&[("OS_DOMAIN_ID", "d"), ("OS_PROJECT_ID", "1"), ("OS_TENANT_ID", "2")]);
        assert_eq!(auth["scope"]["project"], json!({"id": "1"}));
        let auth = user(&[("OS_USERID", "7")]);
        assert_eq!((&auth["identity"]["password"]["user"]["id"], auth.get("scope")), (&json!("7"), None));
    }

    #[test]
    fn a_missing_part_of_a_login_is_named_by_its_variable() {
        let password = ("OS_PASSWORD", "hidden");
        for (set, expected) in [
            (vec![], "OS_APPLICATION_CREDENTIAL_SECRET is not set, nor is OS_PASSWORD"),
            (vec![("OS_AUTH_URL", " ")], "OS_AUTH_URL is not set: give this process a login"),
            (vec![password], "OS_USERNAME is not set"),
            (vec![password, ("OS_USERNAME", "u")], "OS_DOMAIN_NAME is not set, and OS_USERNAME"),
            (
                vec![password, ("OS_USERID", "u"), ("OS_PROJECT_NAME", "p")],
                "OS_DOMAIN_NAME is not set, and OS_PROJECT_NAME",
            ),
            (vec![("OS_APPLICATION_CREDENTIAL_SECRET", "hidden")], "OS_APPLICATION_CREDENTIAL_ID is not set"),
        ] {
            let error = settings_from(&set).err().unwrap();
            assert!(error.is_configuration());
            let error = error.to_string();
            assert!(error.contains(expected) && !error.contains("hidden"), "{error}");
        }
    }
}
