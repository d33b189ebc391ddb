//! What is wrong with a user's configuration, all of it at once.

use std::fmt;

use crate::redaction::{Redactor, without_credentials};

/// One thing that a user has to change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where: a field's path as the file spells it, or the name of the file or fact.
    pub field: String,
    /// What is wrong, and what to do about it.
    pub problem: String,
}

/// Everything that is wrong. Not empty where it is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Problem {
    /// Credentials in URLs are left out: problems are told to journals.
    fn new(field: impl Into<String>, problem: impl Into<String>) -> Problem {
        Problem { field: field.into(), problem: without_credentials(&problem.into()) }
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
        add_once(&mut self.problems, Problem::new(field, problem));
    }

    /// Adds a warning: the node is decided all the same, and does less than its user asked for.
    pub fn warn(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        add_once(&mut self.warnings, Problem::new(field, problem));
    }

    pub fn add_warnings(&mut self, warnings: &[Problem]) {
        warnings.iter().for_each(|warning| add_once(&mut self.warnings, warning.clone()));
    }

    /// Keeps the value of a success; adds the problem of a failure and goes on without a value.
    pub fn keep<T>(&mut self, field: &str, result: Result<T, String>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(problem) => {
                self.add(field, problem);
                None
            }
        }
    }

    /// Adds all of another's, warnings too.
    pub fn extend(&mut self, other: Problems) {
        other.problems.into_iter().for_each(|problem| add_once(&mut self.problems, problem));
        other.warnings.into_iter().for_each(|warning| add_once(&mut self.warnings, warning));
    }

    /// The same, none of which repeats free text.
    #[must_use]
    pub(super) fn without(self, free_text: &Redactor) -> Problems {
        let hide = |Problem { field, problem }| Problem { field, problem: free_text.text(&problem) };
        Problems {
            problems: self.problems.into_iter().map(hide).collect(),
            warnings: self.warnings.into_iter().map(hide).collect(),
        }
    }

    /// Whether nothing is wrong. Warnings do not count.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// What is wrong, in the order in which it was found.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    /// The warnings, in the order in which they were found.
    pub fn warnings(&self) -> &[Problem] {
        &self.warnings
    }

    /// `value`, unless something is wrong.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn unless_any<T>(self, value: T) -> Result<T, Problems> {
        if self.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

fn add_once(problems: &mut Vec<Problem>, problem: Problem) {
    if !problems.contains(&problem) {
        problems.push(problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_problems_are_told_each_once() {
        let mut problems = Problems::default();
        problems.add("spec.a", "is empty; set it");
        problems.add("spec.a", "is empty; set it");
        assert_eq!(problems.keep("spec.b", Err::<(), _>("is no address".into())), None);
        assert_eq!(problems.keep("spec.c", Ok(1)), Some(1));
        assert_eq!(problems.to_string(), "spec.a: is empty; set it\nspec.b: is no address");
        assert!(problems.unless_any(()).is_err());
    }

    #[test]
    fn a_warning_is_no_error() {
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
