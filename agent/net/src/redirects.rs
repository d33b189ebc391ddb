//! The redirect policy of the agent's HTTP clients.

use kops_agent_spec::urls::shown_url;
use reqwest::redirect::{Attempt, Policy};

/// Maximum number of redirects of a request. curl's default is 50, and browsers stop at 20.
const MOST: usize = 10;

/// The redirect policy of the agent's HTTP clients: at most 10 redirects, no loop, and no redirect from https to
/// http. With plain http, every network on the way could read the request and forge the response.
pub fn redirects() -> Policy {
    Policy::custom(|attempt: Attempt<'_>| {
        let to = attempt.url();
        let shown = |url: &reqwest::Url| shown_url(url.as_str());
        let from = attempt.previous().last();
        let refusal = if from.is_some_and(|from| from.scheme() == "https") && to.scheme() != "https" {
            format!(
                "it redirects from https to {}, and kops-agent does not follow this redirect; correct the \
                 mirror",
                shown(to)
            )
        } else if attempt.previous().contains(to) {
            format!("it redirects in a circle, through {}", shown(to))
        } else if attempt.previous().len() > MOST {
            format!("it redirects more than {MOST} times; the next redirect leads to {}", shown(to))
        } else {
            return attempt.follow();
        };
        attempt.error(refusal)
    })
}
