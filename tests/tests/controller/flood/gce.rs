//! Lies of machines on GCE.

use std::sync::Arc;
use std::thread;

use kops_agent_tests::gce::tpm::{Claim, Tpm};
use kops_agent_tests::gce::{
    CREATED_BY, Gce as ComputeEngine, INSTANCE_GROUP_METADATA, Instance, PROJECT, ZONE,
};
use serde_json::json;

use super::honest::Granted;
use super::lies::{FORBIDDEN, Insider, Lie, once_more, with_token};
use super::{CALM, HONEST, INSIDERS, now};
use crate::bootstrap::World;
use crate::cluster::{CLUSTER, Cluster};

const REGION: &str = "us-test1";

/// A cluster on GCE, with honest machines and with machines that liars control.
pub struct Gce {
    pub world: World,
    compute: ComputeEngine,
    group: String,
    machines: Vec<Arc<Tpm>>,
}

impl Gce {
    /// Starts a cluster whose machines have not joined yet.
    pub fn start() -> Gce {
        let compute = ComputeEngine::start().unwrap();
        let group = compute.put_group(CLUSTER, "nodes");
        let cluster = Cluster::start_on_gce(&compute);
        let provider = json!({"gce": {"projectID": PROJECT, "region": REGION, "clusterName": CLUSTER, "MaxTimeSkew": 300}});
        let world = World::with(cluster, &provider);
        // The keys are generated in parallel, because each key takes some time.
        let machines = thread::scope(|scope| {
            let made: Vec<_> = (0..HONEST + CALM + INSIDERS)
                .map(|_| scope.spawn(|| Arc::new(Tpm::generate().unwrap())))
                .collect();
            made.into_iter().map(|made| made.join().unwrap()).collect::<Vec<_>>()
        });
        for (number, tpm) in machines.iter().enumerate() {
            put(&compute, &group, &name(number), tpm, |instance| instance);
        }
        Gce { world, compute, group, machines }
    }

    /// A valid token of the machine with this number.
    pub fn token(&self, number: usize, body: &str) -> String {
        self.machines[number].token(&Claim::new(&name(number), body.as_bytes(), now())).unwrap()
    }

    /// Makes valid tokens for the machines that liars control, for one machine after the other.
    pub fn insider(&self) -> Insider {
        let insiders = self.machines[HONEST + CALM..].to_vec();
        Arc::new(move |body| {
            let number = body.len() % insiders.len();
            let name = name(HONEST + CALM + number);
            insiders[number].token(&Claim::new(&name, body.as_bytes(), now())).unwrap()
        })
    }

    /// All lies of the flood on GCE: requests with invalid tokens.
    pub fn lies(&self, granted: &Arc<Granted>) -> Vec<Lie> {
        let mut lies = self.lies_at_first_sight();
        lies.extend(self.lies_for_compute_engine());
        lies.push(once_more(granted));
        lies
    }

    /// Lies that the server rejects without a request to the cloud.
    fn lies_at_first_sight(&self) -> Vec<Lie> {
        let tpm = self.machines[HONEST + CALM].clone();
        let lie = |what, claim: for<'a> fn(Claim<'a>) -> Claim<'a>| {
            let tpm = tpm.clone();
            with_token(what, FORBIDDEN, move |_, body| {
                tpm.token(&claim(Claim::new(&name(HONEST + CALM), body.as_bytes(), now()))).unwrap()
            })
        };
        vec![
            with_token("no token of GCE", FORBIDDEN, |_, _| "x-gce-tpm e30=".into()),
            with_token("8 KiB of token", FORBIDDEN, |_, _| format!("x-gce-tpm {}", "A".repeat(8 << 10))),
            lie("a token of yesterday", |claim| Claim { at: claim.at - 86_400, ..claim }),
            lie("a token of tomorrow", |claim| Claim { at: claim.at + 86_400, ..claim }),
            lie("a token for another audience", |claim| Claim { audience: "vault", ..claim }),
            lie("another project", |claim| Claim { project: "other-project", ..claim }),
            lie("another region", |claim| Claim { zone: "eu-test1-a", ..claim }),
            lie("a path for a name", |claim| Claim { instance: "../instances/nodes-0000", ..claim }),
            lie("a path for a zone", |claim| Claim { zone: "us-test1-a/../us-test1-b", ..claim }),
        ]
    }

    /// Lies that the server rejects after a request to Compute Engine.
    fn lies_for_compute_engine(&self) -> Vec<Lie> {
        let tpm = self.machines[HONEST + CALM].clone();
        let other_tpm = Arc::new(Tpm::generate().unwrap());
        let lie = |what, name: String, tpm: &Arc<Tpm>| {
            let tpm = tpm.clone();
            with_token(what, FORBIDDEN, move |_, body| {
                tpm.token(&Claim::new(&name, body.as_bytes(), now())).unwrap()
            })
        };
        let made = |name: &str, change: &dyn Fn(Instance) -> Instance| {
            put(&self.compute, &self.group, name, &tpm, change);
            name.to_owned()
        };
        let stopped = made("nodes-stop", &|instance| Instance { status: "TERMINATED".into(), ..instance });
        let bare = made("nodes-bare", &|instance| Instance { signing_key: String::new(), ..instance });
        // The instance has changed its own metadata to claim that a group of the cluster created it.
        let made_by = format!("projects/123/zones/{ZONE}/instanceGroupManagers/{}", self.group);
        let alone = made("nodes-alone", &|instance| {
            let alone = Instance { group: None, ..instance };
            alone.saying(CREATED_BY, &made_by).saying(INSTANCE_GROUP_METADATA, "control-plane")
        });
        let other = self.compute.put_group("other.example.com", "nodes");
        put(&self.compute, &other, "nodes-other", &tpm, |instance| {
            instance.saying("cluster-name", CLUSTER).saying(CREATED_BY, &made_by)
        });
        // A second instance has replaced the first instance with this name. The liar signs with the TPM of the
        // first instance.
        put(&self.compute, &self.group, "nodes-again", &tpm, |instance| instance);
        self.compute.remove_instance("nodes-again");
        put(&self.compute, &self.group, "nodes-again", &other_tpm, |instance| instance);
        let made_up = {
            let tpm = tpm.clone();
            with_token("an instance that there is not", FORBIDDEN, move |number, body| {
                tpm.token(&Claim::new(&format!("nodes-x{number}"), body.as_bytes(), now())).unwrap()
            })
        };
        let made_up_zone = {
            let tpm = tpm.clone();
            with_token("a zone that there is not", FORBIDDEN, move |number, body| {
                let zone = format!("us-test1-{number}");
                let claim = Claim { zone: &zone, ..Claim::new("nodes-0000", body.as_bytes(), now()) };
                tpm.token(&claim).unwrap()
            })
        };
        vec![
            made_up,
            made_up_zone,
            lie("another's signature", name(0), &other_tpm),
            lie("another machine's signature", name(0), &tpm),
            lie("an instance that was stopped", stopped, &tpm),
            lie("an instance without a TPM", bare, &tpm),
            lie("an instance that says itself whose it is", alone, &tpm),
            lie("an instance of another cluster", "nodes-other".into(), &tpm),
            lie("an instance that had the name before", "nodes-again".into(), &tpm),
        ]
    }
}

fn name(number: usize) -> String {
    format!("nodes-{number:04}")
}

/// Makes a group create an instance with this name and this TPM, and applies `change` to the instance.
fn put(compute: &ComputeEngine, group: &str, name: &str, tpm: &Tpm, change: impl Fn(Instance) -> Instance) {
    let instance = compute.create_instance(group, name);
    compute.put_instance(name, change(Instance { signing_key: tpm.public_pem(), ..instance }));
}
