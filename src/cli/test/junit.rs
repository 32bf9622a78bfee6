//! Test results as JUnit XML, which build servers read.

use quick_junit::{NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::{Ran, Suite};

/// The report: a suite for each topology, even without tests. Characters that XML cannot hold are left out.
pub fn report(suites: &[Suite<'_>]) -> Result<String, SerializeError> {
    let mut report = Report::new("ratchet");
    for suite in suites {
        let mut tests = TestSuite::new(suite.topology);
        tests.add_test_cases(suite.ran.iter().map(|ran| test_case(suite, ran)));
        report.add_test_suite(tests);
    }
    report.to_string()
}

fn test_case(suite: &Suite<'_>, ran: &Ran<'_>) -> TestCase {
    let mut test = TestCase::new(ran.case.name.as_str(), status(ran));
    test.set_classname(suite.topology).set_assertions(ran.outcome.as_ref().map_or(0, |outcome| outcome.records.len()));
    test.extra.insert("file".into(), suite.path.display().to_string().into());
    test.extra.insert("line".into(), ran.case.line.to_string().into());
    test
}

fn status(ran: &Ran<'_>) -> TestCaseStatus {
    let (kind, word) = match &ran.outcome {
        Ok(outcome) if outcome.passed() => return TestCaseStatus::success(),
        Ok(_) => (NonSuccessKind::Failure, "difference"),
        Err(_) => (NonSuccessKind::Error, "input"),
    };
    let why = ran.why_not();
    let mut status = TestCaseStatus::non_success(kind);
    status.set_message(why.lines().next().unwrap_or_default()).set_type(word);
    status.set_description(why);
    status
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::capture;
    use crate::rehearsal::{Difference, Outcome};
    use crate::topology;
    use crate::topology::cases::Given;

    #[test]
    fn report_with_odd_test_names_reads_back() {
        let case = |name: &str| topology::TestCase {
            name: name.to_owned(),
            line: 3,
            given: Given::Records(Vec::new()),
            expect: Vec::new(),
            output: None,
            entries: Vec::new(),
            rows: None,
            answers: Vec::new(),
            attempts: Vec::new(),
            results: None,
        };
        let (passed, failed, unread) = (case("<a> & \"b\""), case("bell \u{7}"), case("unread"));
        let outcome = |differences| Ok(Outcome { records: vec![None], differences });
        let error = capture::Error { text: "cannot read x".to_owned(), help: "give it" };
        let suite = Suite {
            topology: "payments",
            path: Path::new("payments.yaml"),
            ran: vec![
                Ran { case: &passed, outcome: outcome(Vec::new()) },
                Ran { case: &failed, outcome: outcome(vec![Difference::Count { given: 1, expected: 2 }]) },
                Ran { case: &unread, outcome: Err(error) },
            ],
        };
        let empty = Suite { topology: "empty", path: Path::new("empty.yaml"), ran: Vec::new() };
        let xml = report(&[suite, empty]).unwrap();
        let read = Report::deserialize_from_str(&xml).unwrap();
        assert_eq!((read.tests, read.failures, read.errors, read.test_suites.len()), (3, 1, 1, 2), "{xml}");
        assert_eq!(read.test_suites[0].test_cases[0].name.as_str(), "<a> & \"b\"");
        assert!(xml.contains("1 record is given, and 2 are expected"), "{xml}");
    }
}
