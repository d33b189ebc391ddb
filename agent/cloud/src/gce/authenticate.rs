//! The proof of a machine on GCE: its TPM signs what it says of itself, with the key that Google has for the instance.
//!
//! Google puts the template of that key into the memory of the TPM that it gives each instance. Source: upstream's
//! `upup/pkg/fi/cloudup/gce/tpm/gcetpmsigner`, and `GceAttestationKeyRSA` in go-tpm-tools' `client`.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kops_agent_net::http;
use kops_agent_plan::bootstrap::gce_token::{self, Claim};
use kops_agent_spec::facts::GceFacts;
use reqwest::header::HeaderValue;
use tokio::sync::{Mutex, oneshot};

use crate::authenticate::{AuthenticationError, Authenticator};
use crate::tpm::{OpenTpm, Tpm, TpmFailure};

/// Where the template of the instance's RSA key is (go-tpm-tools: `GceAKTemplateNVIndexRSA`).
const KEY_TEMPLATE: u32 = 0x01c1_0001;
/// For so long the TPM may take to make the key and sign; Google's takes less than a second, one of silicon some ten.
const TIMEOUT: Duration = Duration::from_secs(30);
/// So much later it has at least said why not, unless it says nothing at all.
const MARGIN: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct GceAuthenticator {
    project: String,
    zone: String,
    instance: String,
    tpm: Arc<dyn OpenTpm>,
    /// For how long to wait for it.
    timeout: Duration,
    /// Held while the TPM is at work, which can be longer than the timeout.
    at_work: Arc<Mutex<()>>,
}

impl GceAuthenticator {
    /// For the machine of these facts, with this TPM.
    ///
    /// # Errors
    /// If they do not say which instance it is.
    pub(crate) fn of(
        facts: Option<&GceFacts>,
        tpm: Arc<dyn OpenTpm>,
    ) -> Result<GceAuthenticator, AuthenticationError> {
        let GceFacts { project, zone, name, .. } = facts.cloned().unwrap_or_default();
        if [&project, &zone, &name].into_iter().any(String::is_empty) {
            return Err(AuthenticationError::NoInstance { project, zone, name });
        }
        Ok(GceAuthenticator { project, zone, instance: name, tpm, timeout: TIMEOUT, at_work: Arc::default() })
    }

    /// What the TPM makes of data.
    async fn signature(&self, data: Vec<u8>) -> Result<Vec<u8>, TpmFailure> {
        let at_work = self.at_work.clone().try_lock_owned().map_err(|_| TpmFailure::StillSilent)?;
        let (sender, receiver) = oneshot::channel();
        let (tpm, timeout) = (self.tpm.clone(), self.timeout);
        let sign = move || Tpm::open(tpm.as_ref(), timeout)?.sign(KEY_TEMPLATE, &data);
        // The kernel blocks a thread that waits for a TPM, and cannot be told to give up. A run that ends does not wait for a thread,
        // as it would for a task of its runtime.
        let work = move || {
            let signed = sign();
            drop(at_work);
            // The receiver may be gone.
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

impl Authenticator for GceAuthenticator {
    fn token<'a>(&'a self, body: &'a [u8]) -> BoxFuture<'a, Result<HeaderValue, AuthenticationError>> {
        async move {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            let claim = Claim {
                project: self.project.clone(),
                zone: self.zone.clone(),
                instance: self.instance.clone(),
                timestamp: now.try_into().unwrap_or(i64::MAX),
            };
            let data = claim.data(body);
            let signature = self.signature(data.clone()).await?;
            http::secret(&gce_token::token(data, signature))
                .map_err(|error| AuthenticationError::NotSigned(format!("a token is no header: {error}")))
        }
        .boxed()
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

    /// One that takes commands, and answers once its owner is gone.
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
    fn an_instance_is_known_by_three_names() {
        let tpm: Arc<dyn OpenTpm> = Arc::new(KernelTpm::at(Vec::new()));
        assert!(GceAuthenticator::of(Some(&facts()), tpm.clone()).is_ok());
        for facts in [
            None,
            Some(GceFacts { project: String::new(), ..facts() }),
            Some(GceFacts { zone: String::new(), ..facts() }),
            Some(GceFacts { name: String::new(), ..facts() }),
        ] {
            let error = GceAuthenticator::of(facts.as_ref(), tpm.clone()).unwrap_err().to_string();
            assert!(error.contains("cloud.gce"), "{error}");
        }
    }

    #[tokio::test]
    async fn without_a_tpm_it_is_told_what_to_turn_on() {
        let tpm = Arc::new(KernelTpm::at(vec!["/dev/no-tpmrm0".into(), "/dev/no-tpm0".into()]));
        let authenticator = GceAuthenticator::of(Some(&facts()), tpm).unwrap();
        let error = authenticator.token(b"{}").await.unwrap_err().to_string();
        assert!(error.contains("neither /dev/no-tpmrm0 nor /dev/no-tpm0; turn on vTPM"), "{error}");
    }

    #[tokio::test]
    async fn a_tpm_that_says_nothing_is_not_waited_for_and_not_asked_again() {
        let (owner, owned) = mpsc::channel();
        let silent = Arc::new(Silent(Lock::new(Some(owned))));
        let authenticator = GceAuthenticator::of(Some(&facts()), silent).unwrap();
        let authenticator = GceAuthenticator { timeout: Duration::from_secs(1), ..authenticator };
        let error = authenticator.token(b"{}").await.unwrap_err().to_string();
        assert!(error.contains("says nothing for 4 seconds"), "{error}");
        let error = authenticator.token(b"{}").await.unwrap_err().to_string();
        assert!(error.contains("has said nothing since"), "{error}");
        drop(owner);
        // It is at work no more, sooner or later.
        drop(authenticator.at_work.lock().await);
        let error = authenticator.token(b"{}").await.unwrap_err().to_string();
        assert!(error.contains("does not carry out TPM_CC_NV_ReadPublic"), "{error}");
    }
}
