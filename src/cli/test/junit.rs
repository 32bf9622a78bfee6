//! What came of tests as JUnit's XML, which build servers read.

use quick_junit::{NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::{Ran, Suite};

/// The report: a suite for each topology, also for one without tests. What XML cannot hold is left out.
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
    test.set_classname(suite.topology).set_assertions(ran.outcome.records.len());
    test.extra.insert("file".into(), suite.path.display().to_string().into());
    test.extra.insert("line".into(), ran.case.line.to_string().into());
    test
}

fn status(ran: &Ran<'_>) -> TestCaseStatus {
    if ran.outcome.passed() {
        return TestCaseStatus::success();
    }
    let differences = ran.differences();
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(differences.lines().next().unwrap_or_default()).set_type("difference");
    status.set_description(differences);
    status
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::rehearsal::{Difference, Outcome};
    use crate::topology;
    use crate::topology::cases::Given;

    #[test]
    fn a_report_reads_back_whatever_a_test_is_called() {
        let case = |name: &str| topology::TestCase {
            name: name.to_owned(),
            line: 3,
            given: Given::Records(Vec::new()),
            expect: Vec::new(),
            output: None,
            entries: Vec::new(),
        };
        let (passed, failed) = (case("<a> & \"b\""), case("bell \u{7}"));
        let outcome = |differences| Outcome { records: vec![None], differences };
        let suite = Suite {
            topology: "payments",
            path: Path::new("payments.yaml"),
            ran: vec![
                Ran { case: &passed, outcome: outcome(Vec::new()) },
                Ran { case: &failed, outcome: outcome(vec![Difference::Count { given: 1, expected: 2 }]) },
            ],
        };
        let empty = Suite { topology: "empty", path: Path::new("empty.yaml"), ran: Vec::new() };
        let xml = report(&[suite, empty]).unwrap();
        let read = Report::deserialize_from_str(&xml).unwrap();
        assert_eq!((read.tests, read.failures, read.errors, read.test_suites.len()), (2, 1, 0, 2), "{xml}");
        assert_eq!(read.test_suites[0].test_cases[0].name.as_str(), "<a> & \"b\"");
        assert!(xml.contains("1 records are given, and 2 are expected"), "{xml}");
    }
}
