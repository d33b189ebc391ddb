//! The proof of a GCE machine: its TPM signs a claim about the machine, with a key that Google knows for this instance.
//!
//! Google stores the template of this key in the memory of each instance's TPM. Source: upstream's
//! `upup/pkg/fi/cloudup/gce/tpm/gcetpmsigner`, and `GceAttestationKeyRSA` in go-tpm-tools' `client`.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kops_agent_cluster::bootstrap::gce_token::{self, Claim};
use kops_agent_net::http;
use kops_agent_spec::facts::GceFacts;
use reqwest::header::HeaderValue;
use tokio::sync::{Mutex, oneshot};

use crate::authenticate::{AuthenticationError, Authenticator};
use crate::tpm::{OpenTpm, Tpm, TpmFailure};

/// The index in the TPM's memory at which the template of the instance's RSA key is stored (go-tpm-tools: `GceAKTemplateNVIndexRSA`).
const KEY_TEMPLATE: u32 = 0x01c1_0001;
/// How long the TPM may take to create the key and sign. Google's TPM takes less than a second. A hardware TPM takes about ten seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Extra time for the TPM to report an error.
const MARGIN: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct GceAuthenticator {
    project: String,
    zone: String,
    instance: String,
    tpm: Arc<dyn OpenTpm>,
    /// How long to wait for the TPM.
    timeout: Duration,
    /// Locked while the TPM works, which can take longer than the timeout.
    at_work: Arc<Mutex<()>>,
}

impl GceAuthenticator {
    pub(crate) fn new(
        facts: Option<&GceFacts>,
        tpm: Arc<dyn OpenTpm>,
    ) -> Result<GceAuthenticator, AuthenticationError> {
        let GceFacts { project, zone, name, .. } = facts.cloned().unwrap_or_default();
        if [&project, &zone, &name].into_iter().any(String::is_empty) {
            return Err(AuthenticationError::NoInstance { project, zone, name });
        }
        Ok(GceAuthenticator { project, zone, instance: name, tpm, timeout: TIMEOUT, at_work: Arc::default() })
    }

    async fn signature(&self, data: Vec<u8>) -> Result<Vec<u8>, TpmFailure> {
        let at_work = self.at_work.clone().try_lock_owned().map_err(|_| TpmFailure::StillSilent)?;
        let (sender, receiver) = oneshot::channel();
        let (tpm, timeout) = (self.tpm.clone(), self.timeout);
        let sign = move || Tpm::open(tpm.as_ref(), timeout)?.sign(KEY_TEMPLATE, &data);
        // The kernel blocks a thread that waits for a TPM, and the wait cannot be cancelled. At the end of a run, the Tokio runtime waits
        // for its blocking tasks, but not for a thread from `std::thread`.
        let work = move || {
            let signed = sign();
            drop(at_work);
            // Sending fails if the caller has stopped waiting for the TPM. This is not an error.
            let _ = sender.send(signed);
        };
        thread::Builder::new().name("tpm".into()).spawn(work).map_err(TpmFailure::NoThread)?;
        let longest = timeout + MARGIN;
        match tokio::time::timeout(longest, receiver).await {
            Ok(Ok(signed)) => Ok(signed?),
            Ok(Err(_)) | Err(_) => Err(TpmFailure::Silent { seconds: longest.as_secs() }),
        }
    }
}

#[async_trait::async_trait]
impl Authenticator for GceAuthenticator {
    async fn token(&self, body: &[u8]) -> Result<HeaderValue, AuthenticationError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let claim = Claim {
            project: self.project.clone(),
            zone: self.zone.clone(),
            instance: self.instance.clone(),
            timestamp: now.try_into().unwrap_or(i64::MAX),
        };
        let data = claim.data(body);
        let signature = self.signature(data.clone()).await?;
        http::secret(&gce_token::token(data, signature)).map_err(|error| {
            AuthenticationError::NotSigned(format!("a token is not a valid HTTP header: {error}"))
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::{self, Read, Write};
    use std::sync::mpsc;

    use parking_lot::Mutex as Lock;

    use crate::tpm::{KernelTpm, TpmDevice, TpmProblem};

    use super::*;

    fn facts() -> GceFacts {
        GceFacts {
            hostname: "nodes-x1y2.us-test1-a.c.my-project.internal".into(),
            project: "my-project".into(),
            zone: "us-test1-a".into(),
            name: "nodes-x1y2".into(),
        }
    }

    /// A TPM that accepts commands. It answers only after the test drops the sender of its channel.
    #[derive(Debug)]
    struct Silent(Lock<Option<mpsc::Receiver<()>>>);

    struct SilentDevice(Option<mpsc::Receiver<()>>);

    impl OpenTpm for Silent {
        fn open(&self) -> Result<Box<dyn TpmDevice>, TpmProblem> {
            Ok(Box::new(SilentDevice(self.0.lock().take())))
        }
    }

    impl Write for SilentDevice {
        fn write(&mut self, command: &[u8]) -> io::Result<usize> {
            Ok(command.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Read for SilentDevice {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            if let Some(owner) = &self.0 {
                let _ = owner.recv();
            }
            Ok(0)
        }
    }

    #[test]
    fn an_instance_needs_project_zone_and_name() {
        let tpm: Arc<dyn OpenTpm> = Arc::new(KernelTpm::at(Vec::new()));
        assert!(GceAuthenticator::new(Some(&facts()), tpm.clone()).is_ok());
        for facts in [
            None,
            Some(GceFacts { project: String::new(), ..facts() }),
            Some(GceFacts { zone: String::new(), ..facts() }),
            Some(GceFacts { name: String::new(), ..facts() }),
        ] {
            let error = GceAuthenticator::new(facts.as_ref(), tpm.clone()).unwrap_err().to_string();
            assert!(error.contains("cloud.gce"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_missing_tpm_is_reported_with_advice() {
        let tpm = Arc::new(KernelTpm::at(vec!["/dev/no-tpmrm0".into(), "/dev/no-tpm0".into()]));
        let authenticator = GceAuthenticator::new(Some(&facts()), tpm).unwrap();
        let error = authenticator.token(b"{}").await.unwrap_err().to_string();
        assert!(error.contains("neither /dev/no-tpmrm0 nor /dev/no-tpm0; turn on vTPM"), "{error}");
    }

    #[tokio::test]
    async fn a_silent_tpm_times_out_and_is_not_asked_again() {
        let (owner, owned) = mpsc::channel();
        let silent = Arc::new(Silent(Lock::new(Some(owned))));
        let authenticator = GceAuthenticator::new(Some(&facts()), silent).unwrap();
        let authenticator = GceAuthenticator { timeout: Duration::from_secs(1), ..authenticator };
        let error = authenticator.token(b"{}").await.unwrap_err().to_string();
        assert!(error.contains("has not answered for 4 seconds"), "{error}");
        let error = authenticator.token(b"{}").await.unwrap_err().to_string();
        assert!(error.contains("has still not answered"), "{error}");
        drop(owner);
        // The lock becomes free when the TPM has finished.
        drop(authenticator.at_work.lock().await);
        let error = authenticator.token(b"{}").await.unwrap_err().to_string();
        assert!(error.contains("cannot run TPM_CC_NV_ReadPublic"), "{error}");
    }
}
