//! Fetches one download from its mirrors. If a mirror fails, the next one resumes.

use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::attempt::{self, Body, Opened, Trouble};
use super::error::{DownloadError, MirrorFailure, in_units};
use super::intake::{Intake, Verdict, take_cached};
use super::rate::Rate;
use super::request::Request;
use super::run::{DownloadFacts, Run};
use super::staging::Ready;
use crate::error::Result;
use kops_agent_net::Location;

/// How long the result of a URL lookup is used. The signature or token in the result may expire a few minutes after the lookup.
const LOCATED_FOR: Duration = Duration::from_secs(60);

/// The state of a download in progress.
pub(super) struct Fetching<'a> {
    run: &'a Run<'a>,
    request: Request,
    /// The size that a mirror stated before the download.
    size: Option<u64>,
    sized_by: Option<String>,
    /// The last looked-up URL, the result of the lookup, and the time of the lookup.
    location: Option<(String, Location, Instant)>,
    /// Receives the bytes. They may come from several answers.
    intake: Option<Intake>,
    /// The number of bytes on the disk, including bytes from an earlier run.
    at: u64,
    /// The maximum of `at` so far.
    furthest: u64,
    /// Whether the server of the current answer stated the size.
    is_sized: bool,
    /// The URL from which all bytes so far came. `None` if they came from several URLs or from an earlier run.
    source: Option<String>,
    /// Whether a download whose bytes came from several URLs had a wrong hash. If so, all bytes must come from one URL.
    is_suspicious: bool,
    /// The URL of all bytes so far, and the `ETag` of the file at that URL. `None` if the server sent no usable `ETag`, or if the bytes
    /// came from several URLs.
    validator: Option<(String, String)>,
    /// Whether the cache has unverified bytes of an earlier run.
    has_old_part: bool,
    failures: Vec<MirrorFailure>,
    hopeless: Vec<String>,
    attempts: usize,
}

/// The consequence of a failed attempt.
struct Judged {
    reason: String,
    /// Whether the attempt brought at least `least` new bytes (`DownloadTimeouts`).
    has_gained: bool,
    /// Whether the run asks the server of the failed attempt again, after a short pause.
    is_asked_again: bool,
}

impl<'a> Fetching<'a> {
    pub(super) fn new(run: &'a Run<'a>, request: Request, known: DownloadFacts) -> Fetching<'a> {
        Fetching {
            run,
            request,
            size: known.size,
            sized_by: known.location.as_ref().map(|(url, ..)| url.clone()),
            location: known.location,
            intake: None,
            at: 0,
            furthest: 0,
            is_sized: true,
            source: None,
            is_suspicious: false,
            validator: None,
            has_old_part: false,
            failures: Vec::new(),
            hopeless: Vec::new(),
            attempts: 0,
        }
    }

    /// Fetches the download, unless it is in the cache.
    pub(super) async fn run(mut self) -> Result<Vec<Ready>> {
        let ready = match self.try_cache().await? {
            Some(ready) => return Ok(ready),
            None => self.try_mirrors().await?,
        };
        self.run.progress.download_finished(self.request.name());
        Ok(ready)
    }

    async fn try_cache(&self) -> Result<Option<Vec<Ready>>> {
        let (cache, request, busy) = (self.run.cache.clone(), self.request.clone(), self.run.busy.clone());
        let taking = spawn_blocking(move || {
            let taken = take_cached(&cache, &request);
            drop(busy);
            taken
        });
        // If the task has panicked, raise its panic here.
        taking.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }

    async fn try_mirrors(&mut self) -> Result<Vec<Ready>> {
        let timeouts = self.run.downloads.timeouts;
        let begun = Instant::now();
        let mut backoff = timeouts.backoff();
        self.read_part()?;
        loop {
            for url in self.to_try() {
                loop {
                    let trouble = match self.try_once(&url).await {
                        Ok(ready) => {
                            self.run.servers.delivered(&url);
                            return Ok(ready);
                        }
                        Err(trouble) => trouble,
                    };
                    let Judged { reason, has_gained, is_asked_again } = self.judge(&url, trouble)?;
                    if has_gained {
                        backoff = timeouts.backoff();
                    }
                    if !is_asked_again {
                        break;
                    }
                    self.run.progress.download_retried(self.request.name(), &reason);
                    sleep(timeouts.pause).await;
                }
            }
            let has_servers = !self.to_try().is_empty();
            let Some(pause) = backoff.next_pause().filter(|_| has_servers) else {
                return Err(self.gave_up(begun.elapsed()).into());
            };
            let reason =
                self.failures.iter().map(|failure| failure.reason.as_str()).collect::<Vec<_>>().join("; ");
            self.run.progress.download_retried(self.request.name(), &reason);
            sleep(pause).await;
        }
    }

    /// Reads the part of this download that an earlier run has stored.
    fn read_part(&mut self) -> Result<()> {
        let Request { sha256, .. } = &self.request;
        self.at = self.run.cache.part_size(sha256, self.request.name())?;
        if self.at > 0 {
            self.validator = self.run.cache.part(sha256, self.request.name())?.validator()?;
        }
        (self.furthest, self.has_old_part) = (self.at, self.at > 0);
        Ok(())
    }

    fn to_try(&self) -> Vec<String> {
        let urls = self.request.urls.iter().map(String::as_str);
        let urls: Vec<&str> =
            urls.filter(|url| !self.hopeless.iter().any(|hopeless| hopeless == url)).collect();
        self.run.servers.to_try(&urls).into_iter().map(str::to_owned).collect()
    }

    /// Whether a server other than the server of `url` can be tried and has not failed at this download.
    fn has_untried_besides(&self, url: &str) -> bool {
        let has_failed = |other: &String| self.failures.iter().any(|failure| failure.url == *other);
        self.to_try().iter().any(|other| other != url && !has_failed(other))
    }

    /// Whether a server other than the server of `url` can be tried.
    fn has_others(&self, url: &str) -> bool {
        self.to_try().iter().any(|other| other != url)
    }

    /// Notes the failure and decides how to continue.
    fn judge(&mut self, url: &str, trouble: Trouble) -> Result<Judged> {
        let has_gained = self.at >= self.furthest + self.run.downloads.timeouts.least;
        self.furthest = self.furthest.max(self.at);
        let servers = self.run.servers;
        let (reason, is_asked_again) = match trouble {
            Trouble::Passing(reason) if has_gained => {
                servers.delivered(url);
                (reason, true)
            }
            Trouble::Passing(reason) | Trouble::Slow(reason) => {
                servers.failed(url);
                (reason, false)
            }
            Trouble::Unreachable(reason) => {
                servers.dead(url);
                (reason, false)
            }
            Trouble::Lasting(reason) => {
                self.hopeless.push(url.to_owned());
                (reason, false)
            }
            // The error may be due to this server, whose endless answer may have filled the disk. Another server may send fewer bytes.
            Trouble::Own(error) if !self.is_sized && self.has_others(url) => {
                self.run.cache.part(&self.request.sha256, self.request.name())?.clear()?;
                (self.at, self.validator) = (0, None);
                self.hopeless.push(url.to_owned());
                (error.to_string(), false)
            }
            Trouble::Own(error) => return Err(error),
        };
        self.failures.retain(|failure| failure.url != url);
        self.failures.push(MirrorFailure { url: url.to_owned(), reason: reason.clone() });
        Ok(Judged { reason, has_gained, is_asked_again })
    }

    fn gave_up(&self, waited: Duration) -> DownloadError {
        let mut failures = self.failures.clone();
        failures.sort_by_key(|failure| self.request.urls.iter().position(|url| *url == failure.url));
        DownloadError::Unavailable {
            name: self.request.name().to_owned(),
            failures,
            attempts: self.attempts,
            waited,
            kept: self.at,
        }
    }

    /// Requests the missing bytes from the server of `url`.
    async fn try_once(&mut self, url: &str) -> Result<Vec<Ready>, Trouble> {
        self.attempts += 1;
        let location = match self.location.take() {
            Some((known, location, since)) if known == url && since.elapsed() < LOCATED_FOR => location,
            _ => self.run.locate(url).await?,
        };
        if self.is_suspicious && self.at > 0 && self.source.as_deref() != Some(url) {
            self.start_over().await?;
        }
        let asked_from = self.at;
        let downloads = self.run.downloads;
        let validator =
            self.validator.as_ref().filter(|(from, _)| from == url).map(|(_, validator)| validator.as_str());
        let opened = attempt::open(
            &downloads.client,
            &location,
            asked_from,
            validator,
            downloads.timeouts.stalled_after,
        )
        .await?;
        if opened.begins_at != asked_from {
            self.start_over().await?;
            if opened.begins_at != 0 {
                return Err(Trouble::Passing(
                    "the server sent a different part of the file than requested".into(),
                ));
            }
        }
        let is_of_one_answer = self.at == 0;
        self.begin(url, &opened)?;
        self.run.progress.download_started(self.request.name(), opened.total, self.at);
        self.receive(url, opened).await?;
        let Some(intake) = self.intake.take() else {
            return Err(Trouble::Passing("the server sent no data".into()));
        };
        let verdict = intake.end().await?;
        self.judge_content(verdict, is_of_one_answer)
    }

    fn judge_content(&mut self, verdict: Verdict, is_of_one_answer: bool) -> Result<Vec<Ready>, Trouble> {
        match verdict {
            Verdict::Right(ready) => Ok(ready),
            Verdict::Wrong { sha256, size, looks } if is_of_one_answer => {
                (self.at, self.validator) = (0, None);
                Err(Trouble::Lasting(format!(
                    "the content is wrong: expected SHA-256 {}, got {sha256} in {size} bytes{looks}; the download was \
                     discarded",
                    self.request.sha256
                )))
            }
            // The bytes so far may be wrong, or may come from different versions of the file.
            Verdict::Wrong { .. } | Verdict::Unfinished => {
                self.run.cache.part(&self.request.sha256, self.request.name())?.clear()?;
                (self.at, self.validator, self.is_suspicious) = (0, None, true);
                if std::mem::take(&mut self.has_old_part) {
                    self.furthest = 0;
                }
                Err(Trouble::Passing("the part that an earlier attempt downloaded is wrong".into()))
            }
        }
    }

    /// Discards all bytes so far.
    async fn start_over(&mut self) -> Result<()> {
        if let Some(intake) = self.intake.take() {
            intake.stop().await?;
        }
        self.run.cache.part(&self.request.sha256, self.request.name())?.clear()?;
        (self.at, self.validator) = (0, None);
        Ok(())
    }

    /// Prepares to receive an answer. Its body continues the download after the `self.at` bytes that are already on the disk.
    fn begin(&mut self, url: &str, opened: &Opened) -> Result<(), Trouble> {
        let most = self.run.downloads.largest;
        if let Some(total) = opened.total.filter(|total| *total > most) {
            return Err(Trouble::Lasting(format!(
                "the server states a size of {}, but no download may be larger than {}",
                in_units(total),
                in_units(most)
            )));
        }
        self.is_sized = self.stated(url, opened).is_some() || matches!(opened.body, Body::Nothing);
        if let Some(total) = opened.total.filter(|total| self.size.is_none_or(|size| *total > size)) {
            match self.run.check_space(&[(self.request.clone(), total)]) {
                // The server may state a wrong size, so ask the other servers, too.
                Err(error) if self.has_others(url) => return Err(Trouble::Lasting(error.to_string())),
                checked => checked?,
            }
            self.size = Some(total);
            self.sized_by = Some(url.to_owned());
        }
        let cache = self.run.cache;
        let is_continued = self.validator.as_ref().is_some_and(|(from, _)| self.at > 0 && from == url);
        if !is_continued && !matches!(opened.body, Body::Nothing) {
            let validator = opened.validator.as_deref().filter(|_| self.at == 0);
            cache.part(&self.request.sha256, self.request.name())?.note_validator(url, validator)?;
            self.validator = validator.map(|validator| (url.to_owned(), validator.to_owned()));
        }
        self.source = match self.source.take() {
            _ if self.at == 0 => Some(url.to_owned()),
            source => source.filter(|source| source == url),
        };
        if self.intake.is_none() {
            let part = cache.part(&self.request.sha256, self.request.name())?;
            self.intake = Some(Intake::begin(cache, &self.request, part, self.run.busy.clone())?);
        }
        Ok(())
    }

    /// The size that the server of `url` stated, in this answer or before the download.
    fn stated(&self, url: &str, opened: &Opened) -> Option<u64> {
        opened.total.or(self.size.filter(|_| self.sized_by.as_deref() == Some(url)))
    }

    /// The maximum size of a download without a stated size. It is limited so that an endless answer fills at most half of the free space.
    fn most_unsized(&self) -> Result<u64> {
        let (_, free) = self.run.cache.dir.free_space()?;
        let downloads = self.run.downloads;
        Ok(downloads.largest.min(downloads.largest_unsized).min(self.at.saturating_add(free / 2)))
    }

    /// Receives the body of an answer to its end.
    async fn receive(&mut self, url: &str, mut opened: Opened) -> Result<(), Trouble> {
        let total = self.stated(url, &opened);
        let downloads = self.run.downloads;
        let timeouts = downloads.timeouts;
        let mut rate = Rate::new(timeouts.stalled_after, timeouts.least);
        let mut pace =
            self.has_untried_besides(url).then(|| Rate::new(timeouts.slow_after, timeouts.least_unless_slow));
        let most = total.map_or_else(|| self.most_unsized(), Ok)?;
        while let Some(intake) = &self.intake {
            // The intake has failed. [`Intake::end`] returns its error.
            let Some(room) = intake.room().await else { return Ok(()) };
            let asked = Instant::now();
            let paced = pace.as_ref().map_or(Duration::MAX, Rate::remaining);
            let Ok(bytes) = timeout(rate.remaining().min(paced), opened.body.next()).await else {
                return Err(match pace {
                    Some(pace) if paced < rate.remaining() => Trouble::Slow(pace.complaint()),
                    _ => Trouble::Passing(rate.complaint()),
                });
            };
            let Some(bytes) = bytes? else { break };
            let (size, waited) = (bytes.len() as u64, asked.elapsed());
            rate.note(size, waited);
            if let Some(pace) = &mut pace {
                pace.note(size, waited);
            }
            if self.at + size > most {
                drop(room);
                self.start_over().await?;
                return Err(Trouble::Lasting(format!(
                    "the server sends more than {} and does not end",
                    in_units(most)
                )));
            }
            room.fill(bytes);
            self.at += size;
            self.run.progress.download_advanced(self.request.name(), size);
        }
        match total {
            Some(total) if self.at < total && !matches!(opened.body, Body::Nothing) => {
                Err(Trouble::Passing(format!("the download ended after {} of {total} bytes", self.at)))
            }
            _ => Ok(()),
        }
    }
}
