//! Machines that bootstrap as a node does: they request their configuration, and then certificates for keys that they keep.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use serde_json::{Value, json};

use crate::bootstrap::{World, request};

/// The first and the longest pause between tries, as in node mode (`bootstrap_client`).
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The time limit for a machine's retries. A real node retries much longer.
const TIMEOUT: Duration = Duration::from_secs(300);

/// A function that returns a machine's token for a request. Its arguments are the machine's number and the body of the request.
pub type Signing<'a> = dyn Fn(usize, &str) -> String + Send + Sync + 'a;

/// The requests that the server has granted, and the token of each request.
#[derive(Default)]
pub struct Granted(Mutex<Vec<(String, String)>>);

impl Granted {
    /// The token and the body of a granted request. `number` selects the request.
    pub fn any(&self, number: usize) -> (String, String) {
        let granted = self.0.lock();
        granted[number % granted.len()].clone()
    }

    fn add(&self, token: String, body: String) {
        self.0.lock().push((token, body));
    }
}

/// The result of a machine's bootstrap.
#[derive(Clone, Debug)]
pub struct Went {
    pub took: Duration,
    /// The status of each failed try. 0 if no response came.
    pub put_off: Vec<u16>,
}

/// Bootstraps a machine from its own address.
pub fn bootstrap(world: &World, number: usize, sign: &Signing<'_>, granted: &Granted) -> Went {
    let from = Ipv4Addr::new(127, 0, 1 + (number / 250) as u8, 1 + (number % 250) as u8);
    let config = json!({
        "apiVersion": "bootstrap.kops.k8s.io/v1alpha1", "certs": null, "keypairIDs": null, "includeNodeConfig": true
    });
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).unwrap();
    let begun = Instant::now();
    let mut put_off = Vec::new();
    let mut given = |body: &str| {
        let mut pause = FIRST_PAUSE;
        loop {
            let token = sign(number, body);
            let (status, answer) = world.ask(from, &token, body);
            if status == 200 {
                granted.add(token, body.to_owned());
                return serde_json::from_str::<Value>(&answer).unwrap();
            }
            // The server may tell an honest machine to retry, or may not respond. It must not reject the machine as a liar.
            assert!([0, 500, 503].contains(&status), "the machine {number} is answered {status} {answer}");
            put_off.push(status);
            assert!(begun.elapsed() < TIMEOUT, "the machine {number} is not let in: {put_off:?}");
            thread::sleep(pause + pause.mul_f64((number % 100) as f64 / 100.0));
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    };
    let answer = given(&config.to_string());
    assert!(answer["nodeConfig"]["nodeupConfig"].is_string(), "{answer}");
    let answer = given(&request(&key));
    for name in ["kubelet", "kubelet-server"] {
        assert!(answer["Certs"][name].as_str().unwrap().starts_with("-----BEGIN CERT"), "{answer}");
    }
    Went { took: begun.elapsed(), put_off }
}
