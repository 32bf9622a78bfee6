//! The page docs/dev/soak.md: the results of the last soak that was long enough.

use std::time::Duration;

use crate::pages;

/// A shorter soak shows too little of growth to be kept.
pub const DURATION_MIN: Duration = Duration::from_secs(3600);

const INTRODUCTION: &str = "\
# Hours of work

<!-- Written by `make soak`; edit tests/soak/page.rs instead. -->

`make soak` runs a job under steady load on three real Apache Kafka brokers with a replication factor of 3, and a
controller in a process of its own. Instances come, go, are restarted and killed, some with the loss of their state
folder; brokers are restarted and killed; each kind of trouble comes once in a round, in random order. At the end
everything is compared with a sequential model by a checker that shares no code with ratchet, as in
[faults.md](faults.md), and nothing may have grown without bound.
Instances, brokers and load share one machine, and other programs may have been at work beside them: sessions are 2 s
here, and brokers that get no processor for as long are lost to everybody.
";

/// Writes it; returns a line that says so.
pub fn write(table: &str) -> String {
    pages::write("dev/soak.md", &format!("{INTRODUCTION}\n{table}\n{}", pages::colophon()))
}
