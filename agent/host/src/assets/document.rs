//! Downloads a small document without a known hash, such as the key of a repository. Only the TLS connection to the
//! publisher's server proves that the document is authentic.

use reqwest::Url;
use tokio::time::sleep;

use super::attempt::{Trouble, open};
use super::error::{DownloadError, MirrorFailure};
use super::options::Downloads;
use super::progress::Progress;
use crate::error::Result;
use kops_agent_net::Location;

/// The maximum size of a document, in bytes.
const LARGEST: usize = 1 << 20;

impl Downloads {
    /// Downloads a document of at most [`LARGEST`] bytes.
    pub(crate) async fn document(&self, url: &str, progress: &dyn Progress) -> Result<Vec<u8>> {
        let mut backoff = self.timeouts.backoff();
        let mut attempts = 0;
        loop {
            attempts += 1;
            let (reason, may_pass) = match self.document_once(url).await {
                Ok(document) => return Ok(document),
                Err(Trouble::Own(error)) => return Err(error),
                Err(Trouble::Lasting(reason)) => (reason, false),
                Err(Trouble::Passing(reason) | Trouble::Slow(reason) | Trouble::Unreachable(reason)) => {
                    (reason, true)
                }
            };
            let Some(pause) = backoff.next_pause().filter(|_| may_pass) else {
                let failures = vec![MirrorFailure { url: url.to_owned(), reason }];
                let (name, waited) = (url.to_owned(), backoff.waited());
                return Err(DownloadError::Unavailable { name, failures, attempts, waited, kept: 0 }.into());
            };
            progress.download_retried(url, &reason);
            sleep(pause).await;
        }
    }

    async fn document_once(&self, url: &str) -> Result<Vec<u8>, Trouble> {
        let parsed = Url::parse(url).map_err(|error| Trouble::Lasting(format!("it is no URL: {error}")))?;
        let at = Location::new(parsed);
        let timeout = self.timeouts.stalled_after;
        let mut opened = open(&self.client, &at, 0, None, timeout).await?;
        let mut document = Vec::new();
        let stalled = |_| Trouble::Passing(format!("the server sent no data for {timeout:.0?}"));
        while let Some(piece) = tokio::time::timeout(timeout, opened.body.next()).await.map_err(stalled)?? {
            document.extend_from_slice(&piece);
            if document.len() > LARGEST {
                return Err(Trouble::Lasting(format!("the document is larger than {LARGEST} bytes")));
            }
        }
        Ok(document)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use kops_agent_net::LocationClient;
    use kops_agent_tests::test_server::{TestServer, text};

    use super::super::options::DownloadTimeouts;
    use super::super::progress::Silent;
    use super::*;

    /// A server answers two requests with `status`, and later requests with a document. Downloads the document. Returns the outcome and the
    /// number of requests.
    async fn document_after_two(status: u16, give_up_after: Duration) -> (Result<Vec<u8>>, usize) {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let server = TestServer::start(move |_| {
            let is_failure = count.fetch_add(1, Ordering::SeqCst) < 2;
            async move { Ok(if is_failure { text(status, "") } else { text(200, "key") }) }
        })
        .await;
        let pause = Duration::from_millis(1);
        let timeouts = DownloadTimeouts { give_up_after, pause, ..DownloadTimeouts::default() };
        let downloads = Downloads::new(LocationClient::new().unwrap()).timeouts(timeouts);
        let outcome = downloads.document(&format!("{}/key", server.url), &Silent).await;
        (outcome, requests.load(Ordering::SeqCst))
    }

    #[tokio::test]
    async fn a_document_is_retried_until_the_deadline_if_a_retry_may_help() {
        let long = Duration::from_secs(60);
        let (outcome, requests) = document_after_two(503, long).await;
        assert_eq!((outcome.unwrap().as_slice(), requests), (&b"key"[..], 3));
        for (status, give_up_after) in [(404, long), (503, Duration::ZERO)] {
            let (outcome, requests) = document_after_two(status, give_up_after).await;
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains(&status.to_string()), "{error}");
            assert_eq!(requests, 1, "{status}");
        }
    }
}
