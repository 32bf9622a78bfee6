//! Goal: whatever happens to a state folder, full, damaged, old or of another partition, the store is brought up to
//! date or rebuilt, and nothing is lost or repeated.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::job::Job;
use crate::kafka::remove_folder;
use crate::load::{Random, thing};
use crate::operator::Options;
use crate::report::Report;
use crate::stage::{PARTITIONS, RECOVERY_MAX, Stage};
use crate::until::DEADLINE;

const ROUNDS: usize = 4;

/// The stores of one instance, one a partition, in order.
fn stores(stage: &Stage) -> Vec<PathBuf> {
    let folder = stage.operators[0].state_dir().join("slot-0").join(&stage.job.name);
    let stores: Vec<_> = (0..PARTITIONS).map(|p| folder.join(format!("{}-{p}", stage.job.input))).collect();
    for store in &stores {
        assert!(store.exists(), "the stores are not where docs/architecture.md says: {}", store.display());
    }
    stores
}

/// Does something to the stores of an instance that has stopped, again and again; it has to go on each time.
/// `spoil` answers how many of them it has met.
fn spoiled(report: &mut Report, theme: &str, spoil: fn(&Stage, &[PathBuf]) -> u64) {
    let mut stage = Stage::set(Job::new(theme, PARTITIONS), 1);
    for _ in 0..report.rounds(ROUNDS) {
        sleep(Duration::from_secs(1));
        stage.operators[0].stop();
        report.injected(spoil(&stage, &stores(&stage)));
        let since = Instant::now();
        stage.restart(0);
        stage.recover(report, since, RECOVERY_MAX);
    }
    stage.finish(report);
}

/// The files of a folder whose names the filter likes.
fn files(folder: &Path, likes: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let entries = entries.flatten().filter(|entry| likes(&entry.file_name().to_string_lossy()));
    entries.map(|entry| entry.path()).collect()
}

/// Every table of every store is written over.
pub fn corrupted_tables(report: &mut Report) {
    spoiled(report, "corrupted", |_, stores| {
        let tables: Vec<_> = stores.iter().flat_map(|store| files(store, |name| name.ends_with(".sst"))).collect();
        for table in &tables {
            let length = fs::metadata(table).expect("it was just listed").len() as usize;
            let mut file = OpenOptions::new().write(true).open(table).expect("the run's folder is writable");
            file.write_all(&vec![0xaa_u8; length]).expect("the run's folder is writable");
        }
        tables.len() as u64
    });
}

pub fn deleted_manifests(report: &mut Report) {
    spoiled(report, "no-manifest", |_, stores| {
        let manifests: Vec<_> =
            stores.iter().flat_map(|store| files(store, |name| name.starts_with("MANIFEST-"))).collect();
        manifests.iter().for_each(|manifest| fs::remove_file(manifest).expect("the run's folder is writable"));
        manifests.len() as u64
    });
}

/// Partition 0's store under partition 1's name, and the other way round; the same with 2 and 3.
pub fn swapped_folders(report: &mut Report) {
    spoiled(report, "swapped", |_, stores| {
        for pair in stores.chunks_exact(2) {
            let aside = pair[0].with_extension("aside");
            for (from, to) in [(&pair[0], &aside), (&pair[1], &pair[0]), (&aside, &pair[1])] {
                fs::rename(from, to).expect("a folder can be renamed beside itself");
            }
        }
        stores.len() as u64
    });
}

/// The state folder as it was a round ago is put back.
pub fn an_old_copy(report: &mut Report) {
    spoiled(report, "old-copy", |stage, stores| {
        let (state, copy) = (stage.operators[0].state_dir(), stage.job.path("copy"));
        let fresh = stage.job.path("fresh-copy");
        copy_folder(state, &fresh);
        let is_there = copy.exists();
        if is_there {
            remove_folder(state);
            copy_folder(&copy, state);
            remove_folder(&copy);
        }
        fs::rename(&fresh, &copy).expect("a folder can be renamed beside itself");
        if is_there { stores.len() as u64 } else { 0 }
    });
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the run's folder is writable");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file");
        }
    }
}

/// A disk (tmpfs, in a mount namespace of the operator's own) with too little room for the stores that are to be
/// rebuilt on it. Once there is room, the work has to go on by itself.
pub fn full(report: &mut Report) {
    const THINGS: usize = 60_000;
    const DISK_MIB: usize = 128;
    let job = Job::new("full-disk", PARTITIONS);
    // Identities that no compression makes small.
    let mut random = Random::seeded("full disk");
    let ids = (0..THINGS).map(|_| (0..6).map(|_| format!("{:016x}", random.next())).collect::<String>());
    job.send(ids.enumerate().map(|(nth, id)| thing(nth as i32 % PARTITIONS, &id, 1)));
    let mut stage = Stage::set(job, 1);
    stage.job.await_progress(&[THINGS as i64 / i64::from(PARTITIONS); PARTITIONS as usize], DEADLINE);
    stage.operators[0].stop();
    let folder = stage.job.path("disk");
    fs::create_dir_all(&folder).expect("the job's folder is writable");
    for round in 0..ROUNDS {
        // What is left free.
        let free_mib = 1 + round;
        let mount = format!(
            "mount -t tmpfs -o size={DISK_MIB}m none '{0}' && dd if=/dev/zero of='{0}/ballast' bs=1M count={1} status=none",
            folder.display(),
            DISK_MIB - free_mib
        );
        let options = Options { mount: Some(mount), ..Options::default() };
        let cramped = crate::operator::Operator::start_in(&stage.job, "cramped", &folder.join("state"), &options);
        stage.operators[0] = cramped;
        stage.operators[0].await_line(&["no space"], DEADLINE);
        report.injected(1);
        sleep(Duration::from_secs(1));
        stage.operators[0].assert_running();
        // The operator's own view of its disk: from outside it is an empty folder.
        let root = PathBuf::from(format!("/proc/{}/root", stage.operators[0].pid()));
        let inside = root.join(folder.strip_prefix("/").expect("the target folder's name is whole"));
        File::create(inside.join("ballast")).expect("the ballast can be thrown off");
        stage.recover(report, Instant::now(), RECOVERY_MAX);
        stage.operators[0].kill();
    }
    stage.restart(0);
    stage.finish(report);
}
