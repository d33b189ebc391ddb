//! The problems of a user's configuration, reported together.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use kops_agent_spec::failure::{Failing, Kind};
use kops_agent_spec::invalid::Invalid;
use kops_agent_spec::redaction::{Redactor, without_credentials};
use kops_agent_spec::{NodeupConfig, free_text};

/// Maximum length of a problem's text, in characters. A specification may have values of any length, and thousands of problems may quote
/// such a value.
const LONGEST: usize = 2_000;
/// Maximum number of problems of one kind. A specification may have thousands of wrong values, and each possible machine may have a problem
/// with each value.
const MOST: usize = 1_000;
const MORE_PROBLEMS: &str =
    "there are more than 1,000 problems, so the others are not listed; correct these first";
const MORE_WARNINGS: &str =
    "there are more than 1,000 warnings, so the others are not listed; correct these first";
/// The end of a text that was cut.
const CUT: char = '…';

/// A problem that a user has to fix, or a warning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The path of the field, spelled as in its file. If the problem is not in a field, the name of the file or fact.
    pub field: String,
    /// The problem of the field, and what to do about it.
    pub problem: String,
}

/// All problems, refusals and warnings. A `Problems` that is returned as an error has at least one problem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    problems: Box<Once>,
    refusals: Box<Once>,
    warnings: Box<Once>,
}

/// Problems in the order in which they were found, without duplicates. If there are more than [`MOST`] problems, the last entry says so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Once {
    found: Vec<Problem>,
    known: BTreeSet<Problem>,
}

impl Once {
    /// Adds a problem. If the list already has [`MOST`] problems, adds a problem with the text `more` instead.
    fn add(&mut self, problem: Problem, more: &str) {
        if self.is_full() || self.known.contains(&problem) {
            return;
        }
        let problem = match self.found.len() == MOST {
            true => Problem { field: String::new(), problem: more.to_owned() },
            false => problem,
        };
        self.known.insert(problem.clone());
        self.found.push(problem);
    }

    fn is_full(&self) -> bool {
        self.found.len() > MOST
    }

    /// Whether `problem` is in the list, or may be missing only because the list is full.
    fn may_have(&self, problem: &Problem) -> bool {
        self.is_full() || self.known.contains(problem)
    }
}

impl Problem {
    /// Makes a problem without credentials in URLs, because problems are written to journals. A long text is cut.
    pub(crate) fn new(field: impl Into<String>, problem: impl Into<String>) -> Problem {
        Problem { field: field.into(), problem: cut(without_credentials(&problem.into())) }
    }
}

/// Hides the free text of a configuration in problems. The machines of a group mostly have the same problems, so each text is searched once.
pub(super) struct ProblemRedactor {
    redactor: Redactor,
    /// For each problem text that was already searched for free text: the text to show instead.
    shown: RefCell<BTreeMap<String, String>>,
}

impl ProblemRedactor {
    pub(super) fn from_config(config: &NodeupConfig) -> ProblemRedactor {
        // Serialization cannot fail, because the type of the configuration is our own.
        let config = serde_json::to_value(config).unwrap_or_default();
        let hiding = |redactor: Redactor, text: &String| redactor.hiding_free_text(text);
        ProblemRedactor::new(free_text::values(&config).iter().fold(Redactor::default(), hiding))
    }

    fn new(redactor: Redactor) -> ProblemRedactor {
        ProblemRedactor { redactor, shown: RefCell::default() }
    }

    fn hidden(&self, problem: &str) -> String {
        if let Some(shown) = self.shown.borrow().get(problem) {
            return shown.clone();
        }
        let shown = hidden(problem, &self.redactor);
        self.shown.borrow_mut().insert(problem.to_owned(), shown.clone());
        shown
    }
}

fn cut(mut text: String) -> String {
    let mut ends = text.char_indices().map(|(at, _)| at).skip(LONGEST - 1);
    if let (Some(end), Some(_)) = (ends.next(), ends.next()) {
        text.truncate(end);
        text.push(CUT);
    }
    text
}

/// Hides free text in the text of a problem. A cut text may end within a hidden value. Then the beginning of this value is hidden, too.
fn hidden(problem: &str, free_text: &Redactor) -> String {
    match problem.strip_suffix(CUT) {
        Some(begin) if begin.chars().count() == LONGEST - 1 => {
            format!("{}{CUT}", free_text.text(free_text.before_cut(begin)))
        }
        _ => free_text.text(problem),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => f.write_str(&self.problem),
            field => write!(f, "{field}: {}", self.problem),
        }
    }
}

impl Problems {
    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        if !self.problems.is_full() {
            self.problems.add(Problem::new(field, problem), MORE_PROBLEMS);
        }
    }

    /// Adds a refusal: a problem that keeps the machine from becoming a node, although the configuration can be resolved. Commands that
    /// only describe the node show a refusal as a warning. All other commands fail.
    pub fn refuse(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        if !self.refusals.is_full() {
            self.refusals.add(Problem::new(field, problem), MORE_PROBLEMS);
        }
    }

    /// Adds a warning: the configuration is valid, but has less effect on the node than the user intended.
    pub fn warn(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        if !self.warnings.is_full() {
            self.warnings.add(Problem::new(field, problem), MORE_WARNINGS);
        }
    }

    pub fn add_all(&mut self, problems: &[Problem]) {
        problems.iter().for_each(|problem| self.problems.add(problem.clone(), MORE_PROBLEMS));
    }

    pub fn add_warnings(&mut self, warnings: &[Problem]) {
        warnings.iter().for_each(|warning| self.warnings.add(warning.clone(), MORE_WARNINGS));
    }

    /// Returns the value of an `Ok`. For an `Err`, adds a problem and returns `None`.
    pub fn keep<T>(&mut self, field: &str, result: Result<T, Invalid>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(problem) => {
                self.add(field, problem);
                None
            }
        }
    }

    pub fn extend(&mut self, other: Problems) {
        other.problems.found.into_iter().for_each(|problem| self.problems.add(problem, MORE_PROBLEMS));
        other.refusals.found.into_iter().for_each(|problem| self.refusals.add(problem, MORE_PROBLEMS));
        other.warnings.found.into_iter().for_each(|warning| self.warnings.add(warning, MORE_WARNINGS));
    }

    /// Hides free text in all problems and warnings.
    #[must_use]
    pub(super) fn without(self, free_text: &ProblemRedactor) -> Problems {
        let hide = |once: Once, more: &str| {
            let mut shown = Box::<Once>::default();
            for Problem { field, problem } in once.found {
                shown.add(Problem { field, problem: free_text.hidden(&problem) }, more);
            }
            shown
        };
        Problems {
            problems: hide(*self.problems, MORE_PROBLEMS),
            refusals: hide(*self.refusals, MORE_PROBLEMS),
            warnings: hide(*self.warnings, MORE_WARNINGS),
        }
    }

    /// The refusals, in the order in which they were found.
    pub fn refusals(&self) -> &[Problem] {
        &self.refusals.found
    }

    /// Turns the refusals into problems, for commands that do more than describe the node.
    #[must_use]
    pub fn refused(mut self) -> Problems {
        let refusals = std::mem::take(&mut self.refusals);
        self.add_all(&refusals.found);
        self
    }

    /// Whether there are no problems. There may still be refusals and warnings.
    pub fn is_empty(&self) -> bool {
        self.problems.found.is_empty()
    }

    /// Whether there are more problems than are listed.
    pub fn has_more(&self) -> bool {
        self.problems.is_full()
    }

    /// Whether there are more warnings than are listed.
    pub fn has_more_warnings(&self) -> bool {
        self.warnings.is_full()
    }

    /// Whether `problem` is in the list of problems, or may be among the problems that the list leaves out.
    pub fn may_have(&self, problem: &Problem) -> bool {
        self.problems.may_have(problem)
    }

    /// Whether `warning` is in the list of warnings, or may be among the warnings that the list leaves out.
    pub fn may_have_warning(&self, warning: &Problem) -> bool {
        self.warnings.may_have(warning)
    }

    /// The problems, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.found.iter()
    }

    /// The warnings, in the order in which they were found.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings.found
    }

    /// Returns `value` if there are no problems, and the problems otherwise.
    pub fn unless_any<T>(self, value: T) -> Result<T, Problems> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl Failing for Problems {
    fn kind(&self) -> Kind {
        Kind::SpecWrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_reported_once() {
        let mut problems = Problems::default();
        problems.add("spec.a", "is empty; set it");
        problems.add("spec.a", "is empty; set it");
        assert_eq!(problems.keep("spec.b", Err::<(), _>(Invalid::new("is no address"))), None);
        assert_eq!(problems.keep("spec.c", Ok(1)), Some(1));
        assert_eq!(problems.to_string(), "spec.a: is empty; set it\nspec.b: is no address");
        assert!(problems.unless_any(()).is_err());
    }

    #[test]
    fn few_problems_are_listed_and_the_last_one_mentions_the_rest() {
        let mut problems = Problems::default();
        for number in (0..MOST).chain(0..MOST) {
            problems.add("spec.a", format!("is wrong {number}"));
        }
        assert_eq!((problems.iter().count(), problems.has_more()), (MOST, false));
        let other = Problem::new("spec.b", "is wrong");
        assert!(!problems.may_have(&other));
        for number in 0..2 * MOST {
            problems.add("spec.b", format!("is wrong {number}"));
            problems.warn("spec.b", format!("is old {number}"));
        }
        assert!(problems.has_more() && problems.has_more_warnings() && problems.may_have(&other));
        let last = |problems: &Problems| problems.iter().last().unwrap().to_string();
        assert_eq!((problems.iter().count(), last(&problems)), (MOST + 1, MORE_PROBLEMS.to_owned()));
        assert_eq!(problems.warnings().last().unwrap().to_string(), MORE_WARNINGS);
        // A list that contains all of these problems is full, too.
        let mut all = Problems::default();
        all.add("spec.c", "is wrong");
        all.extend(problems);
        assert_eq!((all.iter().count(), last(&all)), (MOST + 1, MORE_PROBLEMS.to_owned()));
    }

    /// A machine may have a thousand problems, and machines mostly have the same problems. A search for free text in each problem of each
    /// machine would take seconds.
    #[test]
    fn free_text_is_searched_once_for_equal_problems() {
        let free_text = ProblemRedactor::new(Redactor::default().hiding_free_text("correct horse"));
        for _ in 0..2 {
            let mut problems = Problems::default();
            problems.add("spec.a", "correct horse is wrong");
            problems.warn("spec.b", "correct horse is wrong");
            assert_eq!(problems.without(&free_text).to_string(), "spec.a: [***] is wrong");
        }
        assert_eq!(free_text.shown.borrow().len(), 1);
    }

    #[test]
    fn a_long_text_is_cut() {
        let text = |count: usize| Problem::new("spec.a", "ä".repeat(count)).problem;
        assert_eq!(text(2000), "ä".repeat(2000));
        assert_eq!(text(2001), "ä".repeat(1999) + "…");
        assert_eq!(text(100_000), text(2001));
        let again = Problem::new("spec.a", text(2001) + " (on debian)").problem;
        assert_eq!(again, text(2001));
        // The password is hidden before the text is cut.
        let url = format!("{}https://u:hush@{}", " ".repeat(1985), "x".repeat(50));
        let url = Problem::new("spec.a", url).problem;
        assert!(url.ends_with('…') && !url.contains("hush"), "{url}");
    }

    #[test]
    fn a_cut_shows_no_part_of_a_hidden_value() {
        let secret: String = (0..500).map(|number| format!("s{number}")).collect();
        let free_text = ProblemRedactor::new(Redactor::default().hiding_free_text(&secret));
        let shown = |before: usize, after: &str| {
            let mut problems = Problems::default();
            problems.add("spec.a", format!("{}{secret}{after}", "x".repeat(before)));
            problems.without(&free_text).iter().next().unwrap().problem.clone()
        };
        for before in [1000, 1900, 1990, 1998] {
            assert_eq!(shown(before, " is wrong"), "x".repeat(before) + "…");
        }
        // If a secret ends before the cut, only the secret is hidden, as in an uncut text. An uncut text may also end with `…`.
        let whole = shown(0, &"y".repeat(3000));
        assert!(!whole.contains("s0") && whole.ends_with("yyy…"), "{whole}");
        let whole = shown(1, "…");
        assert!(!whole.contains("s0") && whole.starts_with('x') && whole.ends_with('…'), "{whole}");
    }

    #[test]
    fn a_refusal_becomes_a_problem_unless_a_node_is_only_described() {
        let mut problems = Problems::default();
        problems.refuse("spec.a", "never works");
        assert_eq!(problems.clone().unless_any(1), Ok(1));
        assert_eq!(problems.refusals().len(), 1);
        assert_eq!(problems.refused().to_string(), "spec.a: never works");
    }

    #[test]
    fn a_warning_is_not_a_problem() {
        let mut problems = Problems::default();
        problems.warn("spec.a", "does nothing; remove it");
        let mut more = Problems::default();
        more.warn("spec.a", "does nothing; remove it");
        more.warn("", "of no field");
        problems.extend(more);
        assert_eq!(
            problems.warnings().iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["spec.a: does nothing; remove it", "of no field"]
        );
        assert_eq!((problems.to_string().as_str(), problems.unless_any(1)), ("", Ok(1)));
    }
}
