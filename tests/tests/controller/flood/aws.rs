//! Lies of machines on AWS.

use std::sync::Arc;

use kops_agent_tests::ec2::{ACCOUNT, CLUSTER_TAG, Instance};
use kops_agent_tests::sts::{Mood, Principal, Sts};

use super::honest::Granted;
use super::lies::{FORBIDDEN, Insider, Lie, once_more, with_token};
use super::manners::Answer;
use super::{CALM, HONEST, INSIDERS, now};
use crate::bootstrap::{ROLE, WithSts};
use crate::cluster::{CLUSTER, REGION, id};

/// A cluster on AWS, with honest machines and with machines that liars control.
pub struct Aws {
    pub world: WithSts,
    /// The server to which STS redirects. This server would accept each token.
    pub elsewhere: Sts,
    machines: Vec<Principal>,
}

impl Aws {
    /// Starts a cluster whose machines have not joined yet.
    pub fn start() -> Aws {
        let world = WithSts::start();
        let machines = (0..HONEST + CALM + INSIDERS).map(|number| world.machine(number)).collect();
        Aws { world, elsewhere: Sts::start().unwrap(), machines }
    }

    /// A valid token of the machine with this number.
    pub fn token(&self, number: usize, body: &str) -> String {
        self.machines[number].token_v1(&self.world.sts.host(), REGION, body.as_bytes(), now())
    }

    /// Makes valid tokens of the machines that liars control. The length of a request's body selects the machine.
    pub fn insider(&self) -> Insider {
        let (host, insiders) = (self.world.sts.host(), self.machines[HONEST + CALM..].to_vec());
        Arc::new(move |body| {
            let insider = &insiders[body.len() % insiders.len()];
            insider.token_v1(&host, REGION, body.as_bytes(), now())
        })
    }

    /// All lies of the flood on AWS: requests with invalid tokens.
    pub fn lies(&self, granted: &Arc<Granted>) -> Vec<Lie> {
        let mut lies = self.lies_at_first_sight();
        lies.extend(self.lies_for_sts());
        lies.extend(self.lies_for_ec2());
        lies.push(once_more(granted));
        lies
    }

    /// Lies that the server rejects without a request to the cloud.
    fn lies_at_first_sight(&self) -> Vec<Lie> {
        let (host, machine) = (self.world.sts.host(), self.machines[HONEST + CALM].clone());
        let lie = |what, token: fn(&Principal, &str, &[u8], i64) -> String| {
            let (host, machine) = (host.clone(), machine.clone());
            with_token(what, FORBIDDEN, move |_, body| token(&machine, &host, body.as_bytes(), now()))
        };
        vec![
            lie("no token of AWS", |_, _, _, _| "x-aws-sts e30".into()),
            lie("8 KiB of token", |_, _, _, _| format!("x-aws-sts-v2 {}", "A".repeat(8 << 10))),
            lie("a token of yesterday", |machine, host, body, now| {
                machine.token_v1(host, REGION, body, now - 86_400)
            }),
            lie("a token that has expired", |machine, host, body, now| {
                machine.token_v2(host, REGION, body, now - 1000)
            }),
            lie("a token of tomorrow", |machine, host, body, now| {
                machine.token_v1(host, REGION, body, now + 86_400)
            }),
            lie("a token of another region", |machine, host, body, now| {
                machine.token_v1(host, "eu-west-1", body, now)
            }),
            lie("a URL of another host", |machine, _, body, now| {
                machine.token_v2("sts.example.com", REGION, body, now)
            }),
            lie("a URL of another host, of almost the same name", |machine, host, body, now| {
                machine.token_v2(&format!("{host}.example.com"), REGION, body, now)
            }),
            lie("a URL of a user of another host", |machine, host, body, now| {
                machine.token_v2(&format!("{host}@127.0.0.1"), REGION, body, now)
            }),
        ]
    }

    /// Lies that only STS can detect.
    fn lies_for_sts(&self) -> Vec<Lie> {
        let (sts, host) = (&self.world.sts, self.world.sts.host());
        let known = self.machines[HONEST + CALM].clone();
        let lie = |what, expected, principal: Principal| {
            let host = host.clone();
            with_token(what, expected, move |number, body| match number % 2 {
                0 => principal.token_v1(&host, REGION, body.as_bytes(), now()),
                _ => principal.token_v2(&host, REGION, body.as_bytes(), now()),
            })
        };
        let of_key = |key: &str, principal: Principal| {
            let principal = Principal { access_key: format!("ASIA{key}"), ..principal };
            sts.put(&principal);
            principal
        };
        let elsewhere = known.arn.replace(ACCOUNT, "210987654321");
        let of_other_account =
            of_key("ACCOUNT", Principal { account: "210987654321".into(), arn: elsewhere, ..known.clone() });
        let other_session = "AROAEXAMPLE:i-0fffffffffffffff0";
        let other_session = of_key("SESSION", Principal { user_id: other_session.into(), ..known.clone() });
        let other_role = Principal::instance("control-plane.c.example.com", &id(HONEST + CALM));
        let redirected = of_key("REDIRECTED", known.clone());
        self.elsewhere.put(&redirected);
        sts.set_mood_for(&redirected, Mood::Redirecting(self.elsewhere.url()));
        let endless = of_key("ENDLESS", known.clone());
        sts.set_mood_for(&endless, Mood::Endless);
        let unusable: &[Answer] = &[Answer::Status(500)];
        vec![
            lie("a forged signature", FORBIDDEN, Principal { secret: "guessed".into(), ..known.clone() }),
            lie(
                "a key that does not exist",
                FORBIDDEN,
                Principal { access_key: "ASIAUNKNOWN".into(), ..known.clone() },
            ),
            with_token("a signature for another host", FORBIDDEN, move |_, body| {
                known.token_v1("sts.example.com", REGION, body.as_bytes(), now())
            }),
            lie("a machine of another account", FORBIDDEN, of_other_account),
            lie("another role", FORBIDDEN, of_key("ROLE", other_role)),
            lie("a session called after another instance", FORBIDDEN, other_session),
            lie("an STS that redirects", unusable, redirected),
            lie("an STS that answers without end", unusable, endless),
        ]
    }

    /// Lies that STS accepts. The server rejects them because of EC2's data.
    fn lies_for_ec2(&self) -> Vec<Lie> {
        let (sts, ec2, host) = (&self.world.sts, &self.world.world.cluster.ec2, self.world.sts.host());
        let number = HONEST + CALM + INSIDERS;
        let lie = |what, expected, number: usize, instance: Option<Instance>| {
            let (principal, host) = (Principal::instance(ROLE, &id(number)), host.clone());
            sts.put(&principal);
            if let Some(instance) = instance {
                ec2.put(&id(number), instance);
            }
            with_token(what, expected, move |_, body| {
                principal.token_v1(&host, REGION, body.as_bytes(), now())
            })
        };
        let nodes = || Instance::of_group(CLUSTER, "nodes");
        let in_state = |state: &str| Some(Instance { state: state.into(), ..nodes() });
        let of_other = nodes().tagged(CLUSTER_TAG, "other.example.com");
        // A Node with this instance id is Ready, so a second machine that claims this id is an impostor.
        self.world.cluster.create_node(&id(number), Some(&id(number)));
        self.world.cluster.report(&id(number));
        vec![
            lie("the id of a Node that is at work", &[Answer::Status(409)], number, Some(nodes())),
            lie("an instance of another cluster", FORBIDDEN, number + 1, Some(of_other)),
            lie("an instance that was stopped", FORBIDDEN, number + 2, in_state("stopped")),
            lie("an instance that is gone", FORBIDDEN, number + 3, in_state("terminated")),
            lie("an id that EC2 does not know", FORBIDDEN, number + 4, None),
        ]
    }
}
