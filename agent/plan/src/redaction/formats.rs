//! Secrets that their form tells: keys of clouds and of other services, bootstrap tokens, what follows `Bearer`, and
//! `user:password` without a URL about it.

use super::mark::MARK;

/// What tokens of services begin with.
const BEGINNINGS: [&str; 17] = [
    "dop_v1_",
    "doo_v1_",
    "dor_v1_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "dckr_pat_",
    "hvs.",
    "hvb.",
    "xoxb-",
    "xoxp-",
    "xapp-",
    "AGE-SECRET-KEY-1",
];
/// The same of those that other names begin with, too: they are long, and of letters and digits behind it.
const LONG_BEGINNINGS: [&str; 2] = ["npm_", "sk-"];
const LONG: usize = 20;
/// What stands before the secret part of a web hook's URL.
const WEB_HOOK: &str = "hooks.slack.com/services/";
/// What a JSON web token begins with: `{"` in base64.
const WEB_TOKEN: &str = "eyJ";
/// Programs that are given a password by `-p`.
const LOGINS: [&str; 4] = ["login", "mysql", "mysqldump", "sshpass"];
/// How many fields a line of `.pgpass` has: host, port, database, user, password.
const PGPASS: usize = 5;
/// How long the id of an access key of AWS is, and what it begins with.
const ACCESS_KEY: (usize, [&str; 2]) = (20, ["AKIA", "ASIA"]);
/// How long the two parts of a bootstrap token of Kubernetes are.
const BOOTSTRAP_TOKEN: (usize, usize) = (6, 16);
/// A token is not shorter where only the word before it says that it is one.
const SHORTEST: usize = 8;

/// A text without them.
pub(super) fn without_tokens(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let (mut rest, mut before, mut is_login) = (text, "", false);
    while let Some(begin) = rest.find(is_of_token) {
        let token = &rest[begin..];
        let token = &token[..token.find(|c| !is_of_token(c)).unwrap_or(token.len())];
        shown.push_str(&rest[..begin]);
        is_login &= !rest[..begin].contains('\n');
        is_login |= is_login_program(token);
        rest = &rest[begin + token.len()..];
        let hidden = hidden_of(token, before, is_login);
        shown.push_str(&token[..token.len() - hidden]);
        if hidden > 0 {
            shown.push_str(MARK);
        }
        before = token;
    }
    shown.push_str(rest);
    shown
}

/// Whether a word is such a program, or its path.
pub(super) fn is_login_program(word: &str) -> bool {
    LOGINS.contains(&word.rsplit('/').next().unwrap_or(word))
}

fn is_of_token(c: char) -> bool {
    !c.is_whitespace()
        && !matches!(c, '"' | '\'' | ',' | ';' | '(' | ')' | '[' | ']' | '{' | '}' | '<' | '>' | '=' | '`')
}

/// How much of the end of a word is hidden. `before` is the word before it; `is_login` whether a login began in its line.
fn hidden_of(token: &str, before: &str, is_login: bool) -> usize {
    // The inside of a mark.
    if token.bytes().all(|c| c == b'*') {
        return 0;
    }
    let bare = token.trim_end_matches(['.', ':', '!', '?']);
    if is_after_scheme(bare, before) || is_known_form(bare) {
        return token.len();
    }
    if let Some(at) = token.find(WEB_HOOK).map(|at| at + WEB_HOOK.len()).or_else(|| web_token(token)) {
        return token.len() - at;
    }
    // `docker login -u x -p y`, `mysql -py`, and `login x password y` of .netrc.
    if is_login && matches!(before, "-p" | "password") {
        return token.len();
    }
    if is_login && token.len() > 2 && token.starts_with("-p") {
        return token.len() - 2;
    }
    if is_of_pgpass(token) {
        return token.len() - token.rfind(':').map_or(0, |at| at + 1);
    }
    // `user:password`, of curl's flag and before an `@`; a digest of an image is no host.
    let is_login = match token.rsplit_once('@') {
        Some((user, host)) => {
            user.contains(':') && !host.is_empty() && !host.starts_with("sha256:") && !token.contains("://")
        }
        None => matches!(before, "-u" | "--user") || token.starts_with("-u"),
    };
    let password = token.split_once(':').filter(|_| is_login);
    password.map_or(0, |(_, password)| password.len())
}

/// Whether a word is what stands before a credential in a header.
pub(super) fn is_scheme(word: &str) -> bool {
    ["bearer", "basic"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Whether it follows `Bearer` or `Basic`, and is no word of a sentence.
fn is_after_scheme(token: &str, before: &str) -> bool {
    if token.len() < SHORTEST || !is_scheme(before) {
        return false;
    }
    let has_capital = |text: &str| text.contains(|c: char| c.is_ascii_uppercase());
    let is_header = before.starts_with('B');
    let begin = if is_header { 0 } else { token.chars().next().map_or(0, char::len_utf8) };
    token.contains(|c: char| c.is_ascii_digit()) || has_capital(&token[begin..])
}

/// Where a JSON web token begins in a word.
fn web_token(token: &str) -> Option<usize> {
    let at = token.find(WEB_TOKEN)?;
    if token[..at].ends_with(char::is_alphanumeric) {
        return None;
    }
    (token[at..].len() > LONG && token[at..].contains('.')).then_some(at)
}

/// Whether it is a line of `.pgpass`.
fn is_of_pgpass(token: &str) -> bool {
    let mut fields = token.splitn(PGPASS + 1, ':');
    let [Some(host), Some(port), Some(database), Some(user), Some(password), None] =
        [fields.next(), fields.next(), fields.next(), fields.next(), fields.next(), fields.next()]
    else {
        return false;
    };
    let is_port = port == "*" || (port.len() > 2 && port.bytes().all(|c| c.is_ascii_digit()));
    let is_name = |name: &str| name == "*" || name.contains(|c: char| !c.is_ascii_hexdigit());
    is_port && !host.is_empty() && !password.is_empty() && is_name(user) && !database.is_empty()
}

fn is_known_form(token: &str) -> bool {
    let is_access_key = token.len() == ACCESS_KEY.0
        && ACCESS_KEY.1.iter().any(|begin| token.starts_with(begin))
        && token.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    let is_part = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let is_bootstrap_token = token.split_once('.').is_some_and(|(id, secret)| {
        is_part(id, BOOTSTRAP_TOKEN.0)
            && is_part(secret, BOOTSTRAP_TOKEN.1)
            && secret.contains(|c: char| c.is_ascii_digit())
    });
    let is_of_service = BEGINNINGS.iter().any(|begin| token.len() > begin.len() && token.starts_with(begin));
    let is_long = |rest: &str| {
        rest.len() >= LONG
            && rest.contains(|c: char| c.is_ascii_digit())
            && rest.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
    };
    let is_long_of_service =
        LONG_BEGINNINGS.iter().any(|begin| token.strip_prefix(begin).is_some_and(is_long));
    is_access_key || is_bootstrap_token || is_of_service || is_long_of_service
}
