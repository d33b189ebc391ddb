//! Looks up many EC2 instances in few calls, for the node controller and the bootstrap server.
//!
//! Questions within a short window become one `DescribeInstances` call. EC2 limits the calls of an account, and other programs
//! share this limit. So calls are rate-limited below EC2's limit, and pause while EC2 throttles.

mod answer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kops_agent_cluster::identity::aws::Ec2Instance;
use kops_agent_net::retry::Pauses;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::ec2::{Ec2, SERVICE};
use crate::api::{self, ApiError};
use crate::calls::CloudCalls;
use crate::rate_limiter::RateLimiter;

/// How long the first question of a batch waits, so that one call can answer several questions.
const WINDOW: Duration = Duration::from_millis(50);
/// The maximum number of instances in one call (EC2's developer guide, "Pagination in the Amazon EC2 API": no more than 1,000
/// IDs).
const LARGEST_BATCH: usize = 1000;
const CALLS_AT_ONCE: usize = 4;
/// The maximum number of waiting questions. If more questions come, they are rejected immediately, to limit memory use.
const LONGEST_QUEUE: usize = 16 * 1024;
/// The maximum number of attempts for one question while EC2 throttles.
const TRIES: u32 = 4;
/// EC2's limit for Describe calls that name their instances: a burst of 100, then 20 a second per account (EC2's developer guide, "Request
/// throttling"). This client leaves half of this limit to other programs of the account.
const BURST: f64 = 50.0;
const PER_SECOND: f64 = 10.0;
/// The timeout of one call. The timeout is short, because a hanging call delays all other questions.
const TIMEOUT: Duration = Duration::from_secs(10);
const PAUSES: Pauses = Pauses { first: Duration::from_secs(1), longest: Duration::from_secs(4) };
const ACTION: &str = "DescribeInstances";

/// The answer to a question: the instance, `None` if EC2 has no such instance, or the error.
pub type InstanceAnswer = Result<Option<Arc<Ec2Instance>>, Arc<ApiError>>;

struct Question {
    id: String,
    answer: oneshot::Sender<InstanceAnswer>,
}

/// The instances of an account and region. Clones share one queue, so one call can answer the questions of several clones.
#[derive(Clone, Debug)]
pub struct Instances {
    questions: mpsc::Sender<Question>,
}

impl Instances {
    /// Starts a task that sends the calls to EC2 until the last clone is dropped.
    pub fn new(ec2: Ec2, calls: CloudCalls) -> Instances {
        Instances::with(TIMEOUT, WINDOW, ec2, calls)
    }

    /// Like [`Instances::new`], but collects questions for the time `window` before a call, and has its own counters of calls. Tests use a
    /// short `window`.
    #[cfg(any(test, feature = "testing"))]
    pub fn within(window: Duration, ec2: Ec2) -> Instances {
        Instances::with(TIMEOUT, window, ec2, CloudCalls::default())
    }

    fn with(timeout: Duration, window: Duration, ec2: Ec2, calls: CloudCalls) -> Instances {
        let (questions, waiting) = mpsc::channel(LONGEST_QUEUE);
        let limiter = RateLimiter::new(BURST, PER_SECOND);
        let asking = Arc::new(Asking { ec2, timeout, calls, limiter });
        tokio::spawn(collect(asking, window, waiting));
        Instances { questions }
    }

    /// The instance with this id. The id must be valid for EC2 ([`kops_agent_cluster::identity::aws::is_instance_id`]). Fails without a
    /// request if too many questions wait.
    pub async fn get(&self, id: &str) -> InstanceAnswer {
        let (answer, answered) = oneshot::channel();
        let too_much = || Arc::new(ApiError::queue_full(&SERVICE.api, ACTION, "RequestLimitExceeded"));
        self.questions.try_send(Question { id: id.to_owned(), answer }).map_err(|_| too_much())?;
        answered.await.map_err(|_| too_much())?
    }
}

/// Collects questions into batches, and sends several batches concurrently.
async fn collect(asking: Arc<Asking>, window: Duration, mut waiting: mpsc::Receiver<Question>) {
    let slots = Arc::new(tokio::sync::Semaphore::new(CALLS_AT_ONCE));
    while let Some(first) = waiting.recv().await {
        let mut ids = BTreeSet::from([first.id.clone()]);
        let mut batch = vec![first];
        let end = Instant::now() + window;
        // If several questions are about one instance, the call has its id only once.
        while ids.len() < LARGEST_BATCH
            && let Ok(Some(next)) = timeout_at(end, waiting.recv()).await
        {
            ids.insert(next.id.clone());
            batch.push(next);
        }
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let asking = asking.clone();
        tokio::spawn(async move {
            asking.answer(batch).await;
            drop(slot);
        });
    }
}

struct Asking {
    ec2: Ec2,
    timeout: Duration,
    calls: CloudCalls,
    limiter: RateLimiter,
}

impl Asking {
    async fn answer(&self, batch: Vec<Question>) {
        let ids: BTreeSet<&str> = batch.iter().map(|question| question.id.as_str()).collect();
        let answer = self.describe(ids).await.map_err(Arc::new);
        for question in batch {
            let of_this = match &answer {
                Ok(instances) => Ok(instances.get(&question.id).cloned()),
                Err(error) => Err(error.clone()),
            };
            // Sending fails if the caller no longer waits for the answer. This is not an error.
            let _ = question.answer.send(of_this);
        }
    }

    /// Requests these instances. The result lacks instances that do not exist.
    async fn describe(
        &self,
        mut ids: BTreeSet<&str>,
    ) -> Result<BTreeMap<String, Arc<Ec2Instance>>, ApiError> {
        let mut tries = 0;
        while !ids.is_empty() {
            tries += 1;
            match self.ask(&ids).await {
                // EC2 rejects the whole call if one of the instances does not exist, and names this instance.
                Err(ApiError::NotFound(answer)) => {
                    let before = ids.len();
                    ids.retain(|id| !answer.message.contains(id));
                    if ids.len() == before {
                        return self.one_by_one(ids).await;
                    }
                    tries = 0;
                }
                Err(error @ ApiError::Throttled(_)) if tries < TRIES => {
                    let backoff = PAUSES.after(tries - 1);
                    let pause = error.retry_after().map_or(backoff, |asked| asked.max(backoff));
                    self.limiter.pause(pause);
                }
                Err(error) => return Err(error),
                Ok(instances) => return Ok(instances),
            }
        }
        Ok(BTreeMap::new())
    }

    /// Like [`Asking::describe`], with one call per instance, for the case that EC2 reports missing instances without their ids.
    async fn one_by_one(&self, ids: BTreeSet<&str>) -> Result<BTreeMap<String, Arc<Ec2Instance>>, ApiError> {
        let mut found = BTreeMap::new();
        for id in ids {
            match self.ask(&BTreeSet::from([id])).await {
                Err(error) if error.is_absent() => {}
                answer => found.extend(answer?),
            }
        }
        Ok(found)
    }

    async fn ask(&self, ids: &BTreeSet<&str>) -> Result<BTreeMap<String, Arc<Ec2Instance>>, ApiError> {
        let names: Vec<String> = (1..=ids.len()).map(|number| format!("InstanceId.{number}")).collect();
        let parameters: Vec<(&str, &str)> =
            names.iter().map(String::as_str).zip(ids.iter().copied()).collect();
        self.limiter.acquire().await;
        let asked = self.ec2.query_within(self.timeout, ACTION, &parameters).await;
        self.calls.count(SERVICE.name, ACTION, api::outcome(&asked));
        let instances = answer::parse(&asked?).map_err(|problem| self.ec2.garbage(ACTION, &problem))?;
        // Keep only the requested instances. If the server mixes up responses, an instance that was not requested must not identify a Node.
        let wanted = |instance: &Ec2Instance| ids.contains(instance.instance_id.as_str());
        Ok(instances
            .into_iter()
            .filter(wanted)
            .map(|instance| (instance.instance_id.clone(), Arc::new(instance)))
            .collect())
    }
}

#[cfg(test)]
mod tests;
