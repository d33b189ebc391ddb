//! Instances of EC2. Their role signs tokens.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use kops_agent_tests::ec2::Instance;
use kops_agent_tests::imds;
use kops_agent_tests::kops_controller::check_aws_token;
use kops_agent_tests::sts::{Principal, Sts};
use serde_json::{Value, json};

use super::{Ground, Lot, METADATA, Running};
use crate::boot_to_label::upstream::now;
use crate::bootstrap::{ROLE, on_aws};
use crate::cluster::{CLUSTER, Cluster, REGION, id};

/// AWS, with a stand-in for STS. The stand-in for EC2 belongs to the cluster.
pub struct Aws(Sts);

impl Aws {
    fn id(lot: Lot) -> String {
        id(lot.number as usize)
    }
}

impl Ground for Aws {
    const NAME: &'static str = "aws";

    fn start() -> Aws {
        let sts = Sts::start().unwrap();
        let of_controller = Principal {
            access_key: "AKIDEXAMPLE".into(),
            secret: "secret".into(),
            session_token: String::new(),
            ..Principal::instance("control-plane.c.example.com", "i-0ccccccccccccccc0")
        };
        sts.put(&of_controller);
        Aws(sts)
    }

    fn cluster(&self) -> Cluster {
        Cluster::start().with_environment("AWS_ENDPOINT_URL_STS", &self.0.url())
    }

    fn create(&self, cluster: &Cluster, lot: Lot) {
        self.0.put(&Principal::instance(ROLE, &Aws::id(lot)));
        let instance = Instance::of_group(CLUSTER, "nodes");
        cluster.ec2.put(&Aws::id(lot), Instance { private_ip: lot.address.to_string(), ..instance });
    }

    fn hostname(&self, lot: Lot) -> String {
        format!("ip-{}", lot.address.to_string().replace('.', "-"))
    }

    fn node(&self, lot: Lot) -> String {
        Aws::id(lot)
    }

    fn provider_id(&self, lot: Lot) -> String {
        format!("aws:///{REGION}a/{}", Aws::id(lot))
    }

    fn calls(&self, cluster: &Cluster) -> usize {
        cluster.ec2.calls().len()
    }

    /// EC2 describes at most a thousand instances in one response.
    fn fewest_calls(nodes: usize) -> usize {
        nodes.div_ceil(1000)
    }

    /// The liar has the id of the role's access key, but not the secret. So STS rejects the liar's signature.
    const REFUSED_FOR: &'static str = "RefusedBySts";

    fn upstreams_token(&self, lot: Lot, body: &[u8]) -> String {
        Principal::instance(ROLE, &Aws::id(lot)).token_v1(&self.0.host(), REGION, body, now())
    }

    fn check_as_upstream(&self, _lot: Lot, token: &str, body: &[u8]) {
        check_aws_token(token, body, REGION).unwrap();
    }

    fn server(&self) -> Value {
        json!({ "provider": on_aws(REGION) })
    }

    fn serve_metadata(&self, lot: Lot, liar: Option<Ipv4Addr>) -> Running {
        let items = [
            ("instance-id", Aws::id(lot)),
            ("instance-type", "m6i.large".to_owned()),
            ("placement/region", REGION.to_owned()),
            ("placement/availability-zone", format!("{REGION}a")),
            ("local-ipv4", lot.address.to_string()),
            ("local-hostname", format!("{}.{REGION}.compute.internal", self.hostname(lot))),
            ("mac", "02:00:0a:14:20:14".to_owned()),
        ];
        let mut told: imds::Instance = items.map(|(item, answer)| (item.to_owned(), answer)).into();
        let machine = Principal::instance(ROLE, &Aws::id(lot));
        let principal = match liar {
            None => machine,
            Some(_) => Principal { secret: "guessed".into(), ..machine },
        };
        told.extend(imds::credentials_of(&principal));
        let machines = BTreeMap::from([(IpAddr::from(liar.unwrap_or(lot.address)), told)]);
        Box::new(imds::start(TcpListener::bind((METADATA[0], 80)).unwrap(), machines).unwrap())
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("AWS_ENDPOINT_URL_STS", self.0.url())]
    }
}
