//! Goal: the tables of the documentation have exactly the metrics that are rendered, and the documented alerts use only
//! these.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Every metric of a process, each with a series.
fn all() -> String {
    let metrics = Metrics::new();
    let (lane, task) = (metrics.lane("payments"), metrics.task("payments", &TopicPartition::new("in", 0)));
    set_all(&lane, &task);
    metrics.refused_topics("payments", 2);
    metrics.brokers(BrokersSeen::default);
    metrics.schemas().asked(Asked::Found);
    task.awaits_schema(true);
    let _calls = metrics.calls("payments", "http", (&["done"], &["settled"]));
    let _gate = metrics.gate("payments");
    let (route, _connection) = (metrics.route("/charges"), metrics.connection());
    route.answered("done");
    route.upstream_answered(Duration::from_millis(7));
    route.upstream_failed("late");
    metrics.store().call_ended("reserve", Duration::from_millis(1), false);
    metrics.store().bytes(7);
    metrics.store().bytes_max(8);
    metrics.bound("at_work_max", 8).used(3);
    metrics.render()
}

/// The names of the metrics in a rendered text, with their labels.
fn rendered(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let labels = |name: &str, kind: &str| {
        let prefix = if kind == "histogram" { format!("{name}_count") } else { name.to_owned() };
        let mut series = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        let series = series.find(|rest| rest.starts_with(['{', ' '])).unwrap_or_else(|| panic!("no series of {name}"));
        let labels = series.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |(labels, _)| labels);
        labels.split(',').filter_map(|label| Some(label.split_once('=')?.0.to_owned())).collect()
    };
    types.map(|(name, kind)| (name.to_owned(), labels(name, kind))).collect()
}

/// The rows of all tables in the documentation that have this head, as cells.
fn rows(head: &str) -> Vec<Vec<&'static str>> {
    const PAGES: [&str; 2] =
        [include_str!("../../../../docs/operations.md"), include_str!("../../../../docs/http-idempotency.md")];
    let tables = PAGES.into_iter().flat_map(|page| page.split(head).skip(1));
    let rows = tables.flat_map(|table| table.lines().skip(2).take_while(|line| line.starts_with('|')));
    rows.map(|row| row.split('|').skip(1).map(str::trim).collect()).collect()
}

/// The texts in backticks.
fn code(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

const METRICS: &str = "| metric | labels | what |";

#[test]
fn exactly_the_documented_metrics_are_rendered() {
    let rows = rows(METRICS);
    let named = |row: &Vec<&'static str>| {
        let labels: BTreeSet<String> =
            row[1].split(", ").filter(|label| !label.is_empty()).map(str::to_owned).collect();
        code(row[0]).map(move |name| (name.to_owned(), labels.clone())).collect::<Vec<_>>()
    };
    let documented: Vec<_> = rows.iter().flat_map(named).collect();
    let by_name: BTreeMap<_, _> = documented.iter().cloned().collect();
    assert_eq!(by_name.len(), documented.len(), "a metric has two rows");
    assert_eq!(by_name, rendered(&all()), "the tables of the documentation, and what is rendered");
}

/// An alert about a series that is never rendered would stay silent for ever.
#[test]
fn documented_alerts_use_metrics_labels_and_values_that_are_rendered() {
    let text = all();
    let metrics = rendered(&text);
    let row_of = |metric: &str| rows(METRICS).into_iter().find(|row| code(row[0]).any(|name| name == metric));
    let has_value = |metric: &str, label: &str, pattern: &str| {
        let fits = |value: &str| match pattern.strip_suffix(".*") {
            Some(begins) => value.starts_with(begins),
            None => value == pattern,
        };
        let reasons = if label == "reason" { Reason::ALL } else { &[] };
        let of_label = format!("{label}=\"");
        let shown = text.lines().filter(|line| line.starts_with(metric)).filter_map(|line| line.split_once(&of_label));
        let mut shown = shown.filter_map(|(_, rest)| rest.split('"').next());
        let mut words = row_of(metric).into_iter().flat_map(|row| code(row[2]));
        words.any(fits) || shown.any(fits) || reasons.iter().any(|reason| fits(reason.as_str()))
    };
    let (mut alerts, mut selectors) = (0, 0);
    for row in rows("| expression | for | what it says |") {
        let mut metric = "";
        for expression in code(row[0]) {
            for word in expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                if word.starts_with("ratchet_") {
                    let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
                    metric = family.filter(|family| metrics.contains_key(*family)).unwrap_or(word);
                    assert!(metrics.contains_key(metric), "no metric {word}: {expression}");
                    alerts += 1;
                }
            }
            let mut parts = expression.split('"');
            while let Some((before, value)) = parts.next().zip(parts.next()) {
                let label = before.trim_end_matches(['=', '~', '!']).rsplit(['{', ',', ' ']).next().unwrap_or_default();
                assert!(metrics[metric].contains(label), "{metric} has no label {label}: {expression}");
                assert!(has_value(metric, label, value), "{metric} has no {label} {value}: {expression}");
                selectors += 1;
            }
        }
    }
    assert!(alerts >= 18 && selectors >= 5, "the table was not found: {alerts} {selectors}");
}
