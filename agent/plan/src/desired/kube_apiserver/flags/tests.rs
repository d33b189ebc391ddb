//! Tests that every setting becomes its flag, and that some flags depend on the machine.
#![allow(clippy::unwrap_used)]

use crate::resolve::testing::control_plane;
use kops_agent_spec::{AuthenticationSpec, NodeupConfig};

use super::*;

/// A value for every field that becomes a flag, except the fields that kOps sets itself.
const EVERY_FIELD: &str = r#"
logFormat: "s11"
logLevel: 12
cloudProvider: "s13"
compactionInterval: 14m0s
securePort: 15
insecurePort: 16
address: "s17"
advertiseAddress: "s18"
bindAddress: "s19"
insecureBindAddress: "s20"
enableBootstrapTokenAuth: false
enableAggregatorRouting: false
enableAdmissionPlugins: [b24, a24]
disableAdmissionPlugins: [b25, a25]
admissionControlConfigFile: "s26"
serviceClusterIPRange: "s27"
serviceNodePortRange: "s28"
etcdServers: [b29, a29]
etcdServersOverrides: [b30, a30]
basicAuthFile: "s34"
clientCAFile: "s35"
tlsCipherSuites: [b38, a38]
tlsMinVersion: "s39"
tokenAuthFile: "s40"
allowPrivileged: false
apiServerCount: 42
runtimeConfig: {B: "true", A: "false"}
kubeletCertificateAuthority: "s45"
anonymousAuth: false
kubeletPreferredAddressTypes: [b48, a48]
storageBackend: "s49"
oidcCAFile: "s50"
authenticationConfigFile: "s51"
auditLogFormat: "s54"
auditLogPath: "/s55"
auditLogMaxAge: 56
auditLogMaxBackups: 57
auditLogMaxSize: 58
auditPolicyFile: "/s59"
auditWebhookBatchBufferSize: 60
auditWebhookBatchMaxSize: 61
auditWebhookBatchMaxWait: 62m0s
auditWebhookBatchThrottleBurst: 63
auditWebhookBatchThrottleEnable: false
auditWebhookBatchThrottleQps: 6500m
auditWebhookConfigFile: "s66"
auditWebhookInitialBackoff: 67m0s
auditWebhookMode: "s68"
authenticationTokenWebhookConfigFile: "s69"
authenticationTokenWebhookCacheTtl: 70m0s
authorizationMode: "s71"
authorizationWebhookConfigFile: "s72"
authorizationWebhookCacheAuthorizedTTL: 73m0s
authorizationWebhookCacheUnauthorizedTTL: 74m0s
authorizationRBACSuperUser: "s75"
encryptionProviderConfig: "s76"
experimentalEncryptionProviderConfig: "s77"
requestheaderUsernameHeaders: [b78, a78]
requestheaderGroupHeaders: [b79, a79]
requestheaderExtraHeaderPrefixes: [b80, a80]
requestheaderAllowedNames: [b82, a82]
featureGates: {AllBeta: "true", AllAlpha: "false"}
goawayChance: "s84"
maxRequestsInflight: 85
maxMutatingRequestsInflight: 86
http2MaxStreamsPerConnection: 87
etcdQuorumRead: false
requestTimeout: 89m0s
storageInitializationTimeout: 90m0s
minRequestTimeout: 91
watchCache: false
watchCacheSizes: [b93, a93]
serviceAccountKeyFile: [b94, a94]
serviceAccountSigningKeyFile: "s95"
serviceAccountIssuer: "s96"
serviceAccountJWKSURI: "s97"
apiAudiences: [b98, a98]
eventTTL: 99m0s
auditDynamicConfiguration: false
enableProfiling: false
enableContentionProfiling: false
corsAllowedOrigins: [b103, a103]
strictTransportSecurityDirectives: [b104, a104]
defaultNotReadyTolerationSeconds: 105
defaultUnreachableTolerationSeconds: 106
deleteCollectionWorkers: 107
"#;

const EVERY_FLAG: &str = r#"
--address=s17
--admission-control-config-file=s26
--advertise-address=s18
--allow-privileged=false
--anonymous-auth=false
--api-audiences=b98,a98
--apiserver-count=42
--audit-dynamic-configuration=false
--audit-log-format=s54
--audit-log-maxage=56
--audit-log-maxbackup=57
--audit-log-maxsize=58
--audit-log-path=/s55
--audit-policy-file=/s59
--audit-webhook-batch-buffer-size=60
--audit-webhook-batch-max-size=61
--audit-webhook-batch-max-wait=1h2m0s
--audit-webhook-batch-throttle-burst=63
--audit-webhook-batch-throttle-enable=false
--audit-webhook-batch-throttle-qps=6.500
--audit-webhook-config-file=s66
--audit-webhook-initial-backoff=1h7m0s
--audit-webhook-mode=s68
--authentication-config=s51
--authentication-token-webhook-cache-ttl=1h10m0s
--authentication-token-webhook-config-file=s69
--authorization-mode=s71
--authorization-rbac-super-user=s75
--authorization-webhook-cache-authorized-ttl=1h13m0s
--authorization-webhook-cache-unauthorized-ttl=1h14m0s
--authorization-webhook-config-file=s72
--basic-auth-file=s34
--bind-address=s19
--client-ca-file=s35
--cloud-provider=s13
--contention-profiling=false
--cors-allowed-origins=b103,a103
--default-not-ready-toleration-seconds=105
--default-unreachable-toleration-seconds=106
--delete-collection-workers=107
--disable-admission-plugins=b25,a25
--enable-admission-plugins=b24,a24
--enable-aggregator-routing=false
--enable-bootstrap-token-auth=false
--encryption-provider-config=s76
--etcd-cafile=/srv/kubernetes/kube-apiserver/etcd-ca.crt
--etcd-certfile=/srv/kubernetes/kube-apiserver/etcd-client.crt
--etcd-compaction-interval=14m0s
--etcd-keyfile=/srv/kubernetes/kube-apiserver/etcd-client.key
--etcd-quorum-read=false
--etcd-servers-overrides=b30,a30
--etcd-servers=b29,a29
--event-ttl=1h39m0s
--experimental-encryption-provider-config=s77
--feature-gates=AllAlpha=false,AllBeta=true
--goaway-chance=s84
--http2-max-streams-per-connection=87
--insecure-bind-address=s20
--insecure-port=16
--kubelet-certificate-authority=s45
--kubelet-client-certificate=/srv/kubernetes/kube-apiserver/kubelet-api.crt
--kubelet-client-key=/srv/kubernetes/kube-apiserver/kubelet-api.key
--kubelet-preferred-address-types=b48,a48
--logging-format=s11
--max-mutating-requests-inflight=86
--max-requests-inflight=85
--min-request-timeout=91
--oidc-ca-file=s50
--profiling=false
--proxy-client-cert-file=/srv/kubernetes/kube-apiserver/apiserver-aggregator.crt
--proxy-client-key-file=/srv/kubernetes/kube-apiserver/apiserver-aggregator.key
--request-timeout=1h29m0s
--requestheader-allowed-names=b82,a82
--requestheader-client-ca-file=/srv/kubernetes/kube-apiserver/apiserver-aggregator-ca.crt
--requestheader-extra-headers-prefix=b80,a80
--requestheader-group-headers=b79,a79
--requestheader-username-headers=b78,a78
--runtime-config=A=false,B=true
--secure-port=15
--service-account-issuer=s96
--service-account-jwks-uri=s97
--service-account-key-file=/srv/kubernetes/kube-apiserver/service-account.pub
--service-account-key-file=a94
--service-account-key-file=b94
--service-account-signing-key-file=s95
--service-cluster-ip-range=s27
--service-node-port-range=s28
--storage-backend=s49
--storage-initialization-timeout=1h30m0s
--strict-transport-security-directives=b104,a104
--tls-cert-file=/srv/kubernetes/kube-apiserver/server.crt
--tls-cipher-suites=b38,a38
--tls-min-version=s39
--tls-private-key-file=/srv/kubernetes/kube-apiserver/server.key
--token-auth-file=s40
--v=12
--watch-cache-sizes=b93,a93
--watch-cache=false
"#;

fn settings(config: &mut NodeupConfig) -> &mut kops_agent_spec::APIServerConfig {
    config.api_server_config.as_mut().unwrap()
}

fn flags_of(config: &str, change: impl FnOnce(&mut NodeupConfig)) -> Vec<String> {
    let node = control_plane(|inputs| {
        settings(&mut inputs.config).kube_api_server = Some(serde_yaml::from_str(config).unwrap());
        inputs.secret_names.insert("encryptionconfig".into());
        change(&mut inputs.config);
    });
    flags(&node, node.api_server.as_ref().unwrap())
}

fn with_authentication(config: &str, authentication: &str) -> Vec<String> {
    flags_of(config, |config| {
        let authentication: AuthenticationSpec = serde_yaml::from_str(authentication).unwrap();
        settings(config).authentication = Some(authentication);
    })
}

fn starting<'a>(flags: &'a [String], prefix: &str) -> Vec<&'a str> {
    flags.iter().map(String::as_str).filter(|flag| flag.starts_with(prefix)).collect()
}

#[test]
fn every_setting_becomes_its_flag() {
    assert_eq!(flags_of(EVERY_FIELD, |_| {}).join("\n"), EVERY_FLAG.trim());
}

#[test]
fn without_settings_only_flags_with_file_paths_remain() {
    let flags = flags_of("{}", |_| {});
    assert_eq!(
        starting(&flags, "--service-account-"),
        [
            "--service-account-key-file=/srv/kubernetes/kube-apiserver/service-account.pub",
            "--service-account-signing-key-file=/srv/kubernetes/kube-apiserver/service-account.key",
        ]
    );
    assert_eq!(starting(&flags, "--client-ca-file"), ["--client-ca-file=/srv/kubernetes/ca.crt"]);
    // A port is a plain number, which is written even when it is 0.
    assert_eq!(starting(&flags, "--secure-port"), ["--secure-port=0"]);
    assert_eq!(flags.len(), 14, "{flags:?}");
}

#[test]
fn default_values_give_no_flag() {
    let flags = flags_of(
        "{logFormat: text, logLevel: 0, maxRequestsInflight: 0, deleteCollectionWorkers: 0}",
        |_| {},
    );
    assert_eq!(flags, flags_of("{}", |_| {}));
}

#[test]
fn the_issuer_of_new_tokens_comes_first() {
    let flags = flags_of("{serviceAccountIssuer: z, additionalServiceAccountIssuers: [y, a]}", |_| {});
    assert_eq!(
        starting(&flags, "--service-account-issuer="),
        ["--service-account-issuer=z", "--service-account-issuer=y", "--service-account-issuer=a"]
    );
}

#[test]
fn an_openid_provider_gives_its_flags() {
    let oidc = "{oidc: {clientID: c, groupsClaims: [g, h], groupsPrefix: 'gp:', issuerURL: 'https://i', \
                requiredClaims: {b: '2', a: '1'}, usernameClaim: email, usernamePrefix: '-'}}";
    assert_eq!(
        starting(&with_authentication("{oidcCAFile: /etc/ssl/certs/ca}", oidc), "--oidc-"),
        [
            "--oidc-ca-file=/etc/ssl/certs/ca",
            "--oidc-client-id=c",
            "--oidc-groups-claim=g,h",
            "--oidc-groups-prefix=gp:",
            "--oidc-issuer-url=https://i",
            "--oidc-required-claim=a=1",
            "--oidc-required-claim=b=2",
            "--oidc-username-claim=email",
            "--oidc-username-prefix=-",
        ]
    );
}

#[test]
fn the_aws_webhook_replaces_the_users_but_kopeios_does_not() {
    let config = "{authenticationTokenWebhookConfigFile: /etc/ssl/certs/mine}";
    let flag = "--authentication-token-webhook-config-file=";
    let flags = with_authentication(config, "{aws: {}}");
    assert_eq!(starting(&flags, flag), [format!("{flag}/etc/kubernetes/authn.config")]);
    let flags = with_authentication(config, "{kopeio: {}}");
    assert_eq!(starting(&flags, flag), [format!("{flag}/etc/ssl/certs/mine")]);
}

#[test]
fn encryption_is_configured_by_the_clusters_secret() {
    let encrypted = |config: &mut NodeupConfig| settings(config).encryption_config_secret_hash = "x".into();
    let flags = flags_of("{encryptionProviderConfig: /mine}", encrypted);
    assert_eq!(
        starting(&flags, "--encryption"),
        ["--encryption-provider-config=/srv/kubernetes/kube-apiserver/encryptionconfig.yaml"]
    );
}
