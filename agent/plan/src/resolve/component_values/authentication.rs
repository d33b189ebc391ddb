//! Checks how the API server authenticates and authorizes users.
//!
//! Source: pkg/kubeapiserver/options/authentication.go and authorization.go, and k8s.io/apiserver/pkg/apis/apiserver/validation.

use std::collections::BTreeSet;

use kops_agent_spec::OIDCAuthenticationSpec;

use super::Component;
use crate::resolve::KubeApiServer;

const OIDC: &str = "APIServerConfig.Authentication.oidc";

pub(super) fn check(component: &mut Component<'_>, api_server: &KubeApiServer) {
    check_users(component, api_server);
    check_service_accounts(component, api_server);
    check_authorization(component, api_server);
}

fn check_users(component: &mut Component<'_>, api_server: &KubeApiServer) {
    const GATE: &str = "StructuredAuthenticationConfiguration";
    let config = &api_server.config;
    let ca_file = config.oidc_ca_file.as_deref().unwrap_or_default();
    let oidc = api_server.oidc.clone().unwrap_or_default();
    let has_oidc = oidc != OIDCAuthenticationSpec::default() || !ca_file.is_empty();
    if !config.authentication_config_file.is_empty() {
        let field = "authenticationConfigFile";
        if !component.gates().is_on(GATE) {
            let why = component.gates().why_off(GATE);
            component.refuse(field, format!("is set, but {why}"));
        }
        if has_oidc {
            component.refuse(
                field,
                format!(
                    "is set together with OpenID Connect, which {} refuses; move the provider into the authentication \
                     configuration file, and remove spec.authentication.oidc and oidcCAFile",
                    component.name
                ),
            );
        }
    } else if has_oidc {
        let issuer = oidc.issuer_url.as_deref().unwrap_or_default();
        for (field, value) in
            [("issuerURL", issuer), ("clientID", oidc.client_id.as_deref().unwrap_or_default())]
        {
            if value.is_empty() {
                let problem = format!(
                    "is not set, but {} needs it for the other settings of OpenID Connect; set it, or remove the other settings",
                    component.name
                );
                component.refuse_at(&format!("{OIDC}.{field}"), problem);
            }
        }
        if !issuer.is_empty() && !is_https(issuer) {
            let problem = format!("{issuer:?} is refused by {}; use a URL with https", component.name);
            component.refuse_at(&format!("{OIDC}.issuerURL"), problem);
        }
    }
}

fn check_service_accounts(component: &mut Component<'_>, api_server: &KubeApiServer) {
    let config = &api_server.config;
    let first = config.service_account_issuer.iter().filter(|issuer| !issuer.is_empty());
    let mut seen = BTreeSet::new();
    for issuer in first.chain(&config.additional_service_account_issuers) {
        let problem = match issuer.as_str() {
            "" => "an empty issuer".to_owned(),
            _ if !seen.insert(issuer) => format!("{issuer:?} a second time"),
            _ => continue,
        };
        component.refuse_value("additionalServiceAccountIssuers", problem, "remove it");
    }
    let keys = config.service_account_jwks_uri.as_deref().unwrap_or_default();
    if !keys.is_empty() && !is_https(keys) {
        component.refuse_value("serviceAccountJWKSURI", format!("{keys:?}"), "use a URL with https");
    }
}

fn check_authorization(component: &mut Component<'_>, api_server: &KubeApiServer) {
    const FIELD: &str = "authorizationMode";
    const WEBHOOK: &str = "Webhook";
    let config = &api_server.config;
    let modes = config.authorization_mode.as_deref().unwrap_or_default();
    let modes: Vec<&str> = if modes.is_empty() { Vec::new() } else { modes.split(',').collect() };
    let mut seen = BTreeSet::new();
    for mode in &modes {
        // ABAC is not accepted, because kOps has no field for its policy file.
        let accepted = ["AlwaysAllow", "AlwaysDeny", "Node", "RBAC", WEBHOOK];
        if mode.is_empty() {
            component.refuse_value(FIELD, "an empty word", "remove the comma");
        }
        component.word(FIELD, mode, &accepted);
        if !seen.insert(mode) {
            component.refuse_value(FIELD, format!("{mode} a second time"), "remove one of them");
        }
    }
    let file = config.authorization_webhook_config_file.as_deref().unwrap_or_default();
    match (modes.contains(&WEBHOOK), file.is_empty()) {
        (true, true) => component.refuse(
            FIELD,
            "has Webhook, which needs authorizationWebhookConfigFile, which is not set; set it, or remove Webhook",
        ),
        (false, false) => component.refuse_value(
            "authorizationWebhookConfigFile",
            format!("{file:?}"),
            "add Webhook to authorizationMode, or remove the file",
        ),
        _ => {}
    }
}

fn is_https(url: &str) -> bool {
    url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
}

#[cfg(test)]
mod tests {
    use crate::resolve::component_values::testing::{API_SERVER, assert_accepted, assert_refused, refused};

    const FILE: &str = "/srv/kubernetes/kube-apiserver/known_tokens.csv";

    #[test]
    fn authentication_and_authorization_that_the_api_server_rejects_are_refused() {
        let with_file = |set: &str| set.replace("FILE", FILE);
        for (set, field) in [
            ("authorizationMode: 'Node, RBAC'", "authorizationMode"),
            ("authorizationMode: rbac", "authorizationMode"),
            ("authorizationMode: 'RBAC,'", "authorizationMode"),
            ("authorizationMode: 'RBAC,Node,RBAC'", "authorizationMode"),
            ("authorizationMode: 'RBAC,ABAC'", "authorizationMode"),
            ("authorizationMode: 'RBAC,Webhook'", "authorizationMode"),
            ("authorizationWebhookConfigFile: FILE", "authorizationWebhookConfigFile"),
            ("serviceAccountJWKSURI: http://a/jwks", "serviceAccountJWKSURI"),
            (
                "{serviceAccountIssuer: https://a, additionalServiceAccountIssuers: [https://b, https://a]}",
                "additionalServiceAccountIssuers",
            ),
            ("additionalServiceAccountIssuers: ['']", "additionalServiceAccountIssuers"),
            ("{authenticationConfigFile: FILE, oidcCAFile: FILE}", "authenticationConfigFile"),
        ] {
            assert_refused("1.34.0", API_SERVER, &[(&with_file(set), field)]);
        }
        let file = with_file("authenticationConfigFile: FILE");
        assert_refused("1.29.0", API_SERVER, &[(&file, "authenticationConfigFile")]);
        for set in [
            "{authorizationMode: 'Node,RBAC,Webhook', authorizationWebhookConfigFile: FILE}",
            "authorizationMode: AlwaysAllow",
            "authorizationMode: ''",
            "{serviceAccountIssuer: https://a, additionalServiceAccountIssuers: [b], serviceAccountJWKSURI: HTTPS://a}",
        ] {
            assert_accepted("1.34.0", API_SERVER, &[&with_file(set)]);
        }
        assert_accepted("1.30.0", API_SERVER, &[&file]);
    }

    #[test]
    fn half_of_an_openid_provider_is_refused() {
        for (set, field) in [
            ("{clientID: me}", "issuerURL"),
            ("{issuerURL: https://a}", "clientID"),
            ("{clientID: me, issuerURL: http://a}", "issuerURL"),
        ] {
            let told = refused("1.34.0", "APIServerConfig", &format!("Authentication: {{oidc: {set}}}"));
            let start = format!("APIServerConfig.Authentication.oidc.{field}: ");
            assert!(told.len() == 1 && told[0].starts_with(&start), "{set}: {told:?}");
        }
        for whole in ["{clientID: me, issuerURL: https://a, usernameClaim: email}", "{}"] {
            let told = refused("1.34.0", "APIServerConfig", &format!("Authentication: {{oidc: {whole}}}"));
            assert_eq!(told, [""; 0]);
        }
    }
}
