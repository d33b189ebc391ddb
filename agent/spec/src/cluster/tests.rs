//! Tests that both API versions give the same Cluster, and that errors spell fields as the file does.

#![allow(clippy::unwrap_used)]

use super::*;

const URL: &str = "s3://clusters/c.example.com/cluster-completed.spec";

fn parse(text: &str) -> Cluster {
    Cluster::parse(text.as_bytes(), URL).unwrap()
}

fn error(text: &str) -> String {
    Cluster::parse(text.as_bytes(), URL).unwrap_err().to_string()
}

const V1ALPHA2: &str = r#"
apiVersion: kops.k8s.io/v1alpha2
kind: Cluster
metadata: {name: c.example.com, labels: {a: b}}
spec:
  DisableSubnetTags: true
  additionalNetworkCIDRs: [172.21.0.0/16]
  additionalPolicies: {master: "[]", node: "[]"}
  additionalSans: [api.example.com]
  api: {loadBalancer: {type: Public, useForInternalApi: true, subnets: [{name: a, allocationId: e-1}]}}
  authentication: {}
  awsLoadBalancerController: {enableWAF: true}
  cloudConfig:
    awsEBSCSIDriver: {enabled: true, volumeAttachLimit: 65}
    disableSecurityGroupIngress: false
    manageStorageClasses: true
    nodeIPFamilies: [ipv6]
    useIPBasedNodeNames: true
  cloudProvider: aws
  configBase: s3://clusters/c.example.com
  configStore: s3://old
  egressProxy: {httpProxy: {host: proxy, port: 80}}
  etcdClusters: [{name: main, etcdMembers: [{name: a, volumeIops: 100, kmsKeyId: k}]}]
  externalDns: {disable: true}
  externalPolicies: {master: [arn]}
  hooks: [{name: off, disabled: true, roles: [Master]}, {name: plain}, {name: on, disabled: false}]
  isolateMasters: true
  karpenter: {enabled: true, logEncoding: json}
  keyStore: s3://clusters/c.example.com/pki
  kubeAPIServer:
    etcdCaFile: /ca
    authorizationRbacSuperUser: root
    authorizationWebhookCacheAuthorizedTtl: 5m
    oidcClientID: id
    oidcGroupsClaim: g1,g2
    oidcRequiredClaim: [a=b=c]
  kubeControllerManager: {concurrentRcSyncs: 3}
  kubeProxy: {ipvsExcludeCidrs: [10.0.0.0/8]}
  kubelet: {clientCaFile: /srv/ca.crt}
  kubernetesApiAccess: [0.0.0.0/0]
  kubernetesVersion: 1.34.0
  masterKubelet: {clientCaFile: /srv/cp.crt, authenticationTokenWebhookCacheTtl: 60s}
  masterPublicName: api.c.example.com
  networkCIDR: 172.20.0.0/16
  networkID: vpc-1
  networking:
    amazonvpc: {imageName: i, initImageName: j}
    cilium: {disableMasquerade: true, IPTablesRulesNoinstall: false, toFqdnsEnablePoller: true}
    canal: {disableFlannelForwardRules: true}
    gce: {}
    kuberouter: {}
  nodeTerminationHandler: {enabled: true}
  nonMasqueradeCIDR: 100.64.0.0/10
  podCIDR: 100.96.0.0/11
  podIdentityWebhook: {replicas: 2}
  secretStore: s3://clusters/c.example.com/secrets
  serviceClusterIPRange: 100.64.0.0/13
  subnets: [{name: a, cidr: 172.20.32.0/19, type: Private}]
  topology: {dns: {type: None}, bastion: {bastionPublicName: bastion.example.com}, masters: private}
  warmPool: {enableLifecycleHook: true}
"#;

const V1ALPHA3: &str = r#"
apiVersion: kops.k8s.io/v1alpha3
kind: Cluster
metadata: {name: c.example.com, labels: {a: b}}
spec:
  additionalPolicies: {control-plane: "[]", node: "[]"}
  api:
    access: [0.0.0.0/0]
    additionalSANs: [api.example.com]
    loadBalancer: {type: Public, useForInternalAPI: true, subnets: [{name: a, allocationID: e-1}]}
    publicName: api.c.example.com
  authentication: {oidc: {clientID: id, groupsClaims: [g1, g2], requiredClaims: {a: b=c}}}
  cloudConfig: {manageStorageClasses: true}
  cloudProvider:
    aws:
      disableSecurityGroupIngress: false
      ebsCSIDriver: {volumeAttachLimit: 65}
      loadBalancerController: {enableWAF: true}
      nodeIPFamilies: [ipv6]
      nodeTerminationHandler: {enabled: true}
      podIdentityWebhook: {replicas: 2}
      useIPBasedNodeNames: true
      warmPool: {enableLifecycleHook: true}
  configStore:
    base: s3://clusters/c.example.com
    keypairs: s3://clusters/c.example.com/pki
    secrets: s3://clusters/c.example.com/secrets
  controlPlaneKubelet: {clientCAFile: /srv/cp.crt, authenticationTokenWebhookCacheTTL: 1m0s}
  etcdClusters: [{name: main, etcdMembers: [{name: a, volumeIOPS: 100, kmsKeyID: k}]}]
  externalDNS: {provider: none}
  externalPolicies: {control-plane: [arn]}
  hooks: [{name: off, enabled: false, roles: [ControlPlane]}, {name: plain}, {name: on, enabled: true}]
  karpenter: {enabled: true, logEncoding: json}
  kubeAPIServer:
    etcdCAFile: /ca
    authorizationRBACSuperUser: root
    authorizationWebhookCacheAuthorizedTTL: 5m
  kubeControllerManager: {concurrentRCSyncs: 3}
  kubeProxy: {ipvsExcludeCIDRs: [10.0.0.0/8]}
  kubelet: {clientCAFile: /srv/ca.crt}
  kubernetesVersion: 1.34.0
  networking:
    additionalNetworkCIDRs: [172.21.0.0/16]
    amazonVPC: {image: i, initImage: j}
    cilium: {masquerade: false, installIptablesRules: true, toFQDNsEnablePoller: true}
    canal: {flanneldIptablesForwardRules: false}
    egressProxy: {httpProxy: {host: proxy, port: 80}}
    gcp: {}
    isolateControlPlane: true
    kubeRouter: {}
    networkCIDR: 172.20.0.0/16
    networkID: vpc-1
    nonMasqueradeCIDR: 100.64.0.0/10
    podCIDR: 100.96.0.0/11
    serviceClusterIPRange: 100.64.0.0/13
    subnets: [{name: a, cidr: 172.20.32.0/19, type: Private}]
    tagSubnets: false
    topology: {dns: None, bastion: {publicName: bastion.example.com}}
"#;

#[test]
fn both_versions_give_the_same_cluster() {
    let cluster = parse(V1ALPHA2);
    assert_eq!(cluster, parse(V1ALPHA3));
    assert_eq!(cluster.cloud_provider(), Some(CloudProvider::Aws));
}

#[test]
fn every_clouds_settings_are_kept() {
    let of = |cloud: &str, rest: &str| {
        parse(&format!("spec: {{cloudProvider: {cloud}, {rest}}}")).spec.cloud_provider
    };
    let azure =
        of("azure", "cloudConfig: {azure: {subscriptionId: s, tenantId: t, adminUser: a}}").azure.unwrap();
    assert_eq!(
        (azure.subscription_id.as_str(), azure.tenant_id.as_str(), azure.admin_user.as_str()),
        ("s", "t", "a")
    );
    let gce = of("gce", "project: p, cloudConfig: {multizone: true, nodeTags: t, gceServiceAccount: s}")
        .gce
        .unwrap();
    assert_eq!((gce.project.as_str(), gce.multizone, gce.service_account.as_str()), ("p", Some(true), "s"));
    let openstack =
        of("openstack", "cloudConfig: {openstack: {insecureSkipVerify: true}}").openstack.unwrap();
    assert_eq!(openstack.insecure_skip_verify, Some(true));
    for cloud in ["digitalocean", "hetzner", "scaleway", "linode"] {
        assert_eq!(of(cloud, "project: p").id().map(CloudProvider::id), Some(cloud));
    }
}

#[test]
fn a_label_makes_the_cluster_metal() {
    let text = "metadata: {labels: {alpha.kops.k8s.io/cloud: metal}}\nspec: {cloudProvider: aws}";
    assert_eq!(parse(text).cloud_provider(), Some(CloudProvider::Metal));
}

#[test]
fn reading_sets_upstreams_defaults() {
    let spec = parse("spec: {networking: {flannel: {}}}").spec;
    assert_eq!(spec.networking.topology.unwrap().dns, "Public");
    assert_eq!(spec.networking.flannel.unwrap().backend, "udp");
    assert!(spec.authorization.unwrap().rbac.is_some());
    let spec = parse("spec: {authorization: {alwaysAllow: {}}, networking: null}").spec;
    assert!(spec.authorization.unwrap().rbac.is_none());
}

#[test]
fn file_assets_keep_the_role_master_which_matches_no_group() {
    let spec = parse("spec: {fileAssets: [{name: f, roles: [Master]}]}").spec;
    assert_eq!(spec.file_assets[0].roles, ["Master"]);
}

#[test]
fn valid_fields_without_effect_give_no_warning() {
    let cluster = |cloud: &str| format!("spec: {{cloudProvider: aws, cloudConfig: {cloud}}}");
    let warnings =
        |cloud: &str| Cluster::warnings(cluster(cloud).as_bytes(), URL, KopsRelease::NEWEST).unwrap();
    assert_eq!(warnings("{awsEBSCSIDriver: {enabled: true, managed: true}}"), []);
    assert_eq!(warnings("{awsEBSCSIDriver: {enable: true}}").len(), 1);
}

#[test]
fn fields_that_the_release_uses_in_this_cluster_give_no_warning() {
    let warned = |version: &str, name: &str, spec: &str| -> Vec<String> {
        let cluster = format!("metadata: {{name: {name}}}\nspec: {{{spec}}}");
        let release = KopsRelease::of_version(version).unwrap();
        let warnings = Cluster::warnings(cluster.as_bytes(), URL, release).unwrap();
        warnings.into_iter().map(|warning| warning.field).collect()
    };
    const GOSSIP: &str = "gossipConfig: {protocol: mesh}, dnsControllerGossipConfig: {protocol: mesh}";
    const OF_GOSSIP: [&str; 2] = ["spec.dnsControllerGossipConfig", "spec.gossipConfig"];
    let without_dns = format!("{GOSSIP}, topology: {{dns: {{type: None}}}}");
    let balancer =
        |class: &str| format!("api: {{loadBalancer: {{class: {class}, idleTimeoutSeconds: 300}}}}");
    const OF_BALANCER: [&str; 1] = ["spec.api.loadBalancer.idleTimeoutSeconds"];
    for version in ["1.34.3", "1.35.2", "1.36.2"] {
        assert_eq!(warned(version, "c.k8s.local", GOSSIP), [""; 0], "{version}");
        assert_eq!(warned(version, "c.example.com", GOSSIP), OF_GOSSIP, "{version}");
        assert_eq!(warned(version, "c.k8s.local", &without_dns), OF_GOSSIP, "{version}");
        assert_eq!(warned(version, "c.k8s.local", &balancer("Classic")), [""; 0], "{version}");
        assert_eq!(warned(version, "c.k8s.local", &balancer("Network")), OF_BALANCER, "{version}");
    }
    assert_eq!(warned("1.37.0", "c.k8s.local", GOSSIP), OF_GOSSIP);
    assert_eq!(warned("1.37.0", "c.k8s.local", &balancer("Classic")), OF_BALANCER);
}

#[test]
fn errors_spell_fields_as_the_file_does() {
    for (text, field) in [
        ("spec: {masterKubelet: {maxPods: x}}", "spec.masterKubelet.maxPods"),
        ("spec: {subnets: [{}, {cidr: [x]}]}", "spec.subnets[1].cidr"),
        ("spec: {warmPool: {minSize: x}, cloudProvider: aws}", "spec.warmPool.minSize"),
        ("spec: {topology: {bastion: {bastionPublicName: []}}}", "spec.topology.bastion.bastionPublicName"),
        ("spec: {hooks: [{disabled: x}]}", "spec.hooks[0].disabled"),
        ("spec: {kubelet: {maxPods: x}}", "spec.kubelet.maxPods"),
        ("spec: {networking: {amazonvpc: {env: [{name: {}}]}}}", "spec.networking.amazonvpc.env[0].name"),
        ("spec: {cloudProvider: {aws: {}}}", "spec.cloudProvider"),
        ("spec: {topology: {dns: None}}", "spec.topology.dns"),
    ] {
        let error = Cluster::parse(text.as_bytes(), URL).unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert_eq!(error.source_file, URL);
    }
}

#[test]
fn a_field_of_another_cloud_is_rejected() {
    assert_eq!(
        error("spec: {cloudProvider: gce, cloudConfig: {elbSecurityGroup: sg}}"),
        format!(
            "cannot read field spec.cloudConfig.elbSecurityGroup of {URL}: it is for clusters on aws only; remove it"
        )
    );
    assert_eq!(
        error("spec: {cloudProvider: vsphere}"),
        format!(
            "cannot read field spec.cloudProvider of {URL}: there is no cloud \"vsphere\"; \
             write one of aws, azure, digitalocean, gce, hetzner, linode, openstack, scaleway"
        )
    );
}

#[test]
fn other_versions_and_kinds_are_rejected_by_name() {
    assert_eq!(
        error("apiVersion: kops.k8s.io/v1beta1"),
        format!(
            "cannot read field apiVersion of {URL}: kops.k8s.io/v1beta1 is not supported; supported are \
             kops.k8s.io/v1alpha2 and kops.k8s.io/v1alpha3. Use the kops-agent of the kOps release that \
             wrote this file"
        )
    );
    assert_eq!(
        error("kind: InstanceGroup"),
        format!(
            "cannot read field kind of {URL}: it is of kind InstanceGroup, but should be of kind Cluster"
        )
    );
    assert_eq!(parse("apiVersion: kops/v1alpha2\nspec: {masterPublicName: n}").spec.api.public_name, "n");
}
