//! What is wrong with a user's configuration, all of it at once.

use std::fmt;

use crate::redaction::without_credentials;

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
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Adds one. What lets one in is no part of URLs in it: problems are told to journals.
    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        let problem = Problem { field: field.into(), problem: without_credentials(&problem.into()) };
        if !self.0.contains(&problem) {
            self.0.push(problem);
        }
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

    /// Adds all of another's.
    pub fn extend(&mut self, other: Problems) {
        for problem in other.0 {
            self.add(problem.field, problem.problem);
        }
    }

    /// Whether nothing is wrong.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is wrong, in the order in which it was found.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
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
        for (number, Problem { field, problem }) in self.0.iter().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            if field.is_empty() { write!(f, "{problem}")? } else { write!(f, "{field}: {problem}")? }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

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
}
