//! Goal: what a handler has left in doubt is decided by hand as a call is, but for one thing: it is not begun anew.

use std::process::{Command, Output, Stdio};

use crate::handlers::work::Work;
use crate::operator::Operator;
use crate::provider::Move;
use crate::until::{DEADLINE, within};

/// What a command comes to: how it has ended, and what it has printed and said.
fn told(work: &Work, words: &[&str]) -> (Option<i32>, String, String) {
    let config = work.job.write_config("command", &work.job.path("state-command"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATCHET_")) {
        command.env_remove(name);
    }
    command.args(words).arg(work.job.write_topology()).arg("--config").arg(config).stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("the program is there");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    // Messages are wrapped.
    let said = text(&stderr).replace('│', " ");
    (status.code(), text(&stdout), said.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn settle(work: &Work, id: &str, by_hand: &str) -> (Option<i32>, String, String) {
    told(work, &["settle", &work.job.name, id, by_hand, "--timeout", "30s"])
}

fn payment(id: usize) -> (usize, String) {
    (id, format!("{{\"id\":\"o-{id}\",\"amount\":5}}"))
}

/// Payments of which two are in doubt: their second step has acted, and its answer was lost.
fn doubted() -> (Work, Operator) {
    let work = Work::of("payment", &["on_in_doubt: dead_letter"], Vec::new()).answering_duplicates();
    for id in [0, 2] {
        work.provider.script(&format!("/capture/o-{id}"), [Move::receipt().unheard()]);
    }
    work.send((0..4).map(payment));
    let operator = work.start("a", None);
    let ends = work.ends();
    assert!(["o-0", "o-2"].iter().all(|id| ends[*id].letters == ["in_doubt"]), "{ends:?}");
    (work, operator)
}

fn outcomes(operator: &Operator, outcome: &str) -> f64 {
    operator.metric("ratchet_commands_total", &[&format!("outcome=\"{outcome}\"")])
}

#[test]
fn work_in_doubt_is_settled_by_hand_and_never_begun_anew() {
    let (work, mut operator) = doubted();
    let input = &work.job.input;
    let (code, listed, said) = told(&work, &["effects", &work.job.name, "--in-doubt"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(["o-0", "o-2"].iter().all(|id| listed.contains(id)) && !listed.contains("o-1"), "{listed}");
    // Its steps that are done would be done again.
    let (code, listed, said) = settle(&work, "o-0", "retry");
    assert_eq!((code, listed.as_str()), (Some(2), ""), "{said}");
    assert!(said.contains("stays as it is") && said.contains("a handler's steps"), "{said}");
    let (code, listed, said) = settle(&work, "o-0", "done");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(listed, format!("settled: [\"o-0\"] was in doubt, and counts as done now ({input}:0)"));
    let (code, listed, said) = settle(&work, "o-2", "drop");
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(listed, format!("settled: [\"o-2\"] was in doubt, and counts as failed now ({input}:0)"));
    // Both partitions have acknowledged all three.
    let counted = ["steps_were_done", "settled", "unknown"].map(|outcome| outcomes(&operator, outcome));
    assert_eq!(counted, [1.0, 2.0, 3.0]);
    // Duplicates are duplicates: of what is done without a result, and of what has failed.
    let before = work.provider.seen().len();
    work.send([payment(0), payment(2)]);
    let ends = work.ends();
    assert_eq!(ends["o-0"].results, []);
    assert_eq!(ends["o-2"].results.iter().map(|(verdict, _)| verdict.as_str()).collect::<Vec<_>>(), ["dropped"]);
    assert_eq!(work.provider.seen().len(), before);
    operator.stop();
}

/// What is done meanwhile stays done.
#[test]
fn command_about_work_that_is_under_way_waits_for_it() {
    let (work, mut operator) = doubted();
    work.provider.script("/receipt/o-4", [Move::receipt().late(std::time::Duration::from_secs(4))]);
    work.send([payment(4)]);
    within(DEADLINE, "its last step", || work.acts().contains_key("/receipt/o-4").then_some(()));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| settle(&work, "o-4", "drop"));
        within(DEADLINE, "it to wait", || (operator.metric("ratchet_commands_waiting", &[]) == 1.0).then_some(()));
        let (code, listed, said) = first.join().expect("it does not panic");
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(listed, format!("nothing to do: [\"o-4\"] is done already ({}:0)", work.job.input));
    });
    within(DEADLINE, "nothing to wait", || (operator.metric("ratchet_commands_waiting", &[]) == 0.0).then_some(()));
    assert_eq!(work.ends()["o-4"].results.len(), 1);
    operator.stop();
}
