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

/// Maximum size of a document, in bytes.
const LARGEST: usize = 1 << 20;

impl Downloads {
    /// Downloads a document.
    ///
    /// # Errors
    /// The document cannot be downloaded, or is too large.
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
                return Err(Trouble::Lasting(format!("it is larger than {LARGEST} bytes")));
            }
        }
        Ok(document)
    }
}
