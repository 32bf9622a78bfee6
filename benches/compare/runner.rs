//! Runs parts one after the other on one broker. Failures are reported and kept with the results; the rest
//! continues.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Instant;

use crate::broker::Broker;
use crate::command::RunArgs;
use crate::contender::Contender;
use crate::failure::{Context as _, Failure, Outcome, fail};
use crate::part::{self, Bench, Part};
use crate::progress::Screen;
use crate::results::{self, Findings, Machine, Results};
use crate::{kafka, report};

/// The disk space that the largest part needs.
const DISK_GIB: f64 = 20.0;
/// The disk space that every part needs.
const DISK_LEAST_GIB: f64 = 4.0;

/// Runs the parts in `args`; fails at the end if anything has failed.
pub fn run(args: &RunArgs) -> Outcome<()> {
    let wanted: Vec<&Part> = part::ALL
        .iter()
        .filter(|part| args.parts.is_empty() || args.parts.iter().any(|name| name == part.name))
        .collect();
    let for_keeps = !args.quick && args.scale == 1.0;
    let needed = if for_keeps && wanted.iter().any(|part| ["large", "restore"].contains(&part.name)) {
        DISK_GIB
    } else {
        DISK_LEAST_GIB
    };
    let has_built = wanted.iter().any(|part| part.has_built);
    let bench = open(args, needed, has_built)?;
    let mut failed = 0;
    let versions = results::versions();
    for part in wanted {
        bench.progress.say(format!("part {}: {}", part.name, part.about));
        let began = Instant::now();
        let mut findings = catch_unwind(AssertUnwindSafe(|| (part.run)(&bench)))
            .unwrap_or_else(|panic| Err(Failure(format!("it panicked: {}", words(&*panic)))))
            .unwrap_or_else(|failure| Findings { failures: vec![failure.to_string()], ..Findings::default() });
        // A part that failed leaves topics behind that must not slow down the next one.
        if let Err(failure) = bench.broker.delete_others(|_| false) {
            findings.failures.push(format!("clearing up: {failure}"));
        }
        for failure in &findings.failures {
            bench.progress.say(format!("FAILED in part {}: {failure}", part.name));
        }
        failed += findings.failures.len();
        let results = Results {
            part: part.name.to_owned(),
            at: jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string(),
            seconds: began.elapsed().as_secs(),
            machine: Machine::this(),
            versions: versions.clone(),
            threads: Contender::ALL.into_iter().map(|contender| (contender, contender.threads())).collect(),
            quick: !for_keeps,
            settings: findings.settings,
            failures: findings.failures,
            data: findings.data,
        };
        show(part, &results);
        bench.progress.say(format!("part {} took {} s", part.name, results.seconds));
        // A part without figures must not replace earlier results.
        if for_keeps && !results.data.is_null() {
            let path = results.write()?;
            bench.progress.say(format!("results are in {}", path.display()));
        }
    }
    let _ = fs::remove_dir_all(&bench.folder);
    drop(bench);
    if for_keeps {
        report::write()?;
    }
    if failed > 0 {
        fail!("{failed} things failed; they are named above and on the page");
    }
    Ok(())
}

/// Starts the broker and prepares the contenders, those that are built only if they take part. A contender that cannot
/// be prepared is left out.
fn open(args: &RunArgs, disk_gib: f64, has_built: bool) -> Outcome<Bench> {
    let progress = Screen::new();
    let folder = kafka::run_folder().join("bench");
    fs::create_dir_all(&folder).context(folder.display())?;
    let free = free_gib(&folder);
    if free < disk_gib {
        fail!("{} has {free:.1} GiB free, this needs {disk_gib:.0} GiB", folder.display());
    }
    let all = if args.contenders.is_empty() { Contender::ALL.to_vec() } else { args.contenders.clone() };
    let mut contenders = Vec::new();
    for contender in all.into_iter().filter(|contender| has_built || !contender.is_built()) {
        match contender.prepare() {
            Ok(()) => contenders.push(contender),
            Err(failure) => progress.say(format!("LEFT OUT: {failure}")),
        }
    }
    progress.say("starting Kafka");
    let broker = Broker::start()?;
    let rounds = args.rounds as usize;
    Ok(Bench { broker, folder, rounds, quick: args.quick, contenders, scale: args.scale, progress })
}

/// A broker and an empty folder, for commands that run no parts.
pub fn open_small() -> Outcome<Bench> {
    let args = RunArgs { parts: vec![], contenders: vec![Contender::Floor], rounds: 1, quick: true, scale: 1.0 };
    open(&args, DISK_LEAST_GIB, false)
}

/// Prints a part's sections to standard output, as on the page.
fn show(part: &Part, results: &Results) {
    if results.data.is_null() {
        return;
    }
    let goals = (part.goals)(results);
    match (part.sections)(results) {
        Ok(sections) => println!("{}", report::plain_text(part, &sections, goals.as_deref().unwrap_or_default())),
        Err(failure) => eprintln!("{failure}"),
    }
}

fn free_gib(folder: &Path) -> f64 {
    let name = std::ffi::CString::new(folder.as_os_str().as_encoded_bytes()).unwrap_or_default();
    // SAFETY: the name ends in NUL; the struct has plain numbers, for which zeroes are valid, and the call fills it in.
    let stat = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        libc::statvfs(name.as_ptr(), &raw mut stat);
        stat
    };
    (stat.f_bavail as f64) * (stat.f_frsize as f64) / f64::from(1 << 30)
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_else(|| "no words".into())
}
