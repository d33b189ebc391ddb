//! Replay protection: accepts each token once. A machine makes a new token for every try, so a repeated token was overheard.
//!
//! This process does not know the tokens that were accepted before its start or by other replicas. So it rejects tokens signed
//! before its start; an eavesdropper gains nothing by waiting for a restart.
//!
//! After a restart, a machine whose clock is behind is rejected for as long as it is behind, at most for a token's lifetime. A
//! machine with a correct clock succeeds with its next token.
//!
//! Two gaps remain. A process may accept a used token again if the machine's clock is ahead and the process started meanwhile.
//! Each of the other replicas may accept the token once while it is valid.
//!
//! A token is remembered for as long as it could be accepted again. Only tokens for which something was given are
//! remembered. So neither rejected requests nor an outage can fill this memory, and each machine has few tokens in it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use kops_agent_cloud::verify::{Answer, LONGEST_TOKEN_LIFE, Refusal};

/// How long an accepted token is remembered. All tokens expire earlier.
pub(super) const REMEMBERED_FOR: Duration = Duration::from_secs(25 * 60);
const _: () = assert!(REMEMBERED_FOR.as_secs() > LONGEST_TOKEN_LIFE.as_secs());
/// The maximum number of remembered tokens. Some thousand nodes that start together need some ten thousand tokens.
const MOST: usize = 64 * 1024;
/// The maximum number of remembered tokens of one machine. One run of upstream's nodeup needs two tokens. If the run then fails, nodeup
/// retries with two more tokens.
const MOST_OF_ONE: usize = 256;

/// The reason for rejecting a token that was made before this server started. The machine may be honest, and its next token is accepted.
pub const TOKEN_OLDER_THAN_SERVER: &str = "TokenOlderThanServer";

/// The accepted tokens.
pub struct Taken {
    since: Instant,
    state: Mutex<State>,
}

/// The parts of a token that replay protection needs.
pub struct Token {
    /// A value that is unique to the token.
    pub fingerprint: Vec<u8>,
    /// The smallest possible age of the token, by this machine's clock. `None` if the token contains no time.
    pub age: Option<Duration>,
}

#[derive(Default)]
struct State {
    under_way: BTreeSet<Vec<u8>>,
    /// Tokens that this server has answered with certificates or a configuration.
    used: BTreeSet<Vec<u8>>,
    /// The used tokens, each with its expiry and its node, oldest first.
    by_age: VecDeque<(Instant, Vec<u8>, String)>,
    of_node: BTreeMap<String, usize>,
}

/// A token whose request is in flight. If this value is dropped before `used_by`, the token may be used again.
pub struct UnderWay<'a> {
    taken: &'a Taken,
    fingerprint: Vec<u8>,
    since: Instant,
}

impl Taken {
    /// Starts without tokens. Tokens that were accepted before `since` are unknown.
    pub fn since(since: Instant) -> Taken {
        Taken { since, state: Mutex::default() }
    }

    /// Accepts a token for one request. Rejects a token that was used, that is in use, or that is older than this server.
    pub fn take(&self, token: Token, now: Instant) -> Result<UnderWay<'_>, Refusal> {
        let Token { fingerprint, age } = token;
        // Use a monotonic duration, because someone may have set the wall clock since this server started.
        let here_for = now.saturating_duration_since(self.since);
        if age.is_some_and(|age| age > here_for) {
            let problem = format!(
                "the token is older than this server, which started {} seconds ago, so the token may have \
                 been used before. The server accepts a new token if the machine's clock is right",
                here_for.as_secs()
            );
            return Err(Refusal::not_verified(TOKEN_OLDER_THAN_SERVER, problem));
        }
        let mut state = self.state.lock();
        state.forget_old(now);
        if state.used.contains(&fingerprint) || !state.under_way.insert(fingerprint.clone()) {
            let problem = "the token has been used before, so it may be stolen";
            return Err(Refusal::not_verified("TokenReplayed", problem));
        }
        Ok(UnderWay { taken: self, fingerprint, since: now })
    }
}

impl State {
    fn forget_old(&mut self, now: Instant) {
        while self.by_age.front().is_some_and(|(until, ..)| *until <= now) {
            let Some((_, fingerprint, node)) = self.by_age.pop_front() else { return };
            self.used.remove(&fingerprint);
            match self.of_node.get_mut(&node) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.of_node.remove(&node)),
            }
        }
    }
}

impl UnderWay<'_> {
    /// Marks the token as used, because the server grants its request. Fails if the memory of tokens is full. After some tokens expire, a
    /// retry succeeds.
    pub fn used_by(self, node: &str) -> Result<(), Refusal> {
        let mut state = self.taken.state.lock();
        let of_node = state.of_node.get(node).copied().unwrap_or(0);
        if state.used.len() >= MOST || of_node >= MOST_OF_ONE {
            let problem = "too many tokens are remembered; new tokens are accepted once earlier ones expire";
            return Err(Refusal { answer: Answer::Busy, reason: "TooManyTokens", message: problem.into() });
        }
        state.used.insert(self.fingerprint.clone());
        state.by_age.push_back((self.since + REMEMBERED_FOR, self.fingerprint.clone(), node.to_owned()));
        state.of_node.insert(node.to_owned(), of_node + 1);
        Ok(())
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.taken.state.lock().under_way.remove(&self.fingerprint);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn token(fingerprint: Vec<u8>) -> Token {
        Token { fingerprint, age: None }
    }

    #[test]
    fn a_token_is_taken_once_until_it_is_too_old_anyway() {
        let now = Instant::now();
        let taken = Taken::since(now);
        taken.take(token(vec![1]), now).unwrap().used_by("a").unwrap();
        assert_eq!(taken.take(token(vec![1]), now).err().unwrap().reason, "TokenReplayed");
        assert!(taken.take(token(vec![1]), now + REMEMBERED_FOR - Duration::from_secs(1)).is_err());
        assert!(taken.take(token(vec![1]), now + REMEMBERED_FOR).is_ok());
        assert!(taken.state.lock().of_node.is_empty() && taken.state.lock().by_age.is_empty());
    }

    #[test]
    fn a_token_is_not_taken_twice_at_the_same_time_and_again_where_its_cloud_could_not_be_asked() {
        let taken = Taken::since(Instant::now());
        let first = taken.take(token(vec![1]), Instant::now()).unwrap();
        assert!(taken.take(token(vec![1]), Instant::now()).is_err());
        drop(first);
        assert!(taken.take(token(vec![1]), Instant::now()).is_ok());
    }

    #[test]
    fn one_machine_cannot_fill_the_memory() {
        let taken = Taken::since(Instant::now());
        for number in 0..MOST_OF_ONE {
            taken
                .take(token(number.to_be_bytes().to_vec()), Instant::now())
                .unwrap()
                .used_by("greedy")
                .unwrap();
        }
        let refusal = taken.take(token(vec![1]), Instant::now()).unwrap().used_by("greedy").unwrap_err();
        assert_eq!((refusal.answer, refusal.reason), (Answer::Busy, "TooManyTokens"));
        taken.take(token(vec![1]), Instant::now()).unwrap().used_by("modest").unwrap();
    }

    #[test]
    fn tokens_older_than_the_server_are_rejected() {
        let began = Instant::now();
        let taken = Taken::since(began);
        let of_age = |seconds| Token { fingerprint: vec![1], age: Some(Duration::from_secs(seconds)) };
        let after = |seconds| began + Duration::from_secs(seconds);
        let refusal = taken.take(of_age(61), after(60)).err().unwrap();
        assert_eq!((refusal.answer, refusal.reason), (Answer::NotVerified, "TokenOlderThanServer"));
        // If the machine's clock is a minute behind, a new token looks a minute old.
        assert!(taken.take(of_age(60), after(59)).is_err());
        assert!(taken.take(of_age(60), after(60)).is_ok());
        assert!(taken.take(of_age(0), after(0)).is_ok());
    }
}
