//! Goal: whatever happens to a state folder (full, damaged, old, another partition's), the store is brought up to date
//! or rebuilt, and nothing is lost or repeated.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::job::Job;
use crate::kafka::remove_folder;
use crate::load::{Random, thing};
use crate::operator::{Operator, Options};
use crate::report::Report;
use crate::stage::{PARTITIONS, RECOVERY_MAX, Stage};
use crate::until::DEADLINE;

const ROUNDS: usize = 4;

/// The stores of the first instance, by partition.
fn stores(stage: &Stage) -> Vec<PathBuf> {
    let folder = stage.operators[0].state_dir().join("slot-0").join(&stage.job.name);
    let stores: Vec<_> = (0..PARTITIONS).map(|p| folder.join(format!("{}-{p}", stage.job.input))).collect();
    for store in &stores {
        assert!(store.exists(), "the stores are not where docs/dev/architecture.md says: {}", store.display());
    }
    stores
}

/// Spoils the stores of a stopped instance, again and again; each time it has to continue. `spoil` returns how many
/// stores or files it has spoilt.
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

/// The files of a folder with names that the filter accepts.
fn files(folder: &Path, likes: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let entries = entries.flatten().filter(|entry| likes(&entry.file_name().to_string_lossy()));
    entries.map(|entry| entry.path()).collect()
}

/// Every table of every store is overwritten.
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

/// Partition 0's store under partition 1's name, and vice versa; likewise 2 and 3.
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
pub fn old_copy(report: &mut Report) {
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

/// An operator's own disk: tmpfs in its own mount namespace, with a ballast file that takes up space.
struct Disk {
    folder: PathBuf,
}

impl Disk {
    const MIB: usize = 128;

    fn new(job: &Job) -> Disk {
        let folder = job.path("disk");
        fs::create_dir_all(&folder).expect("the job's folder is writable");
        Disk { folder }
    }

    /// Starts an operator with a fresh disk that has this much space left.
    fn start(&self, job: &Job, free_mib: usize) -> Operator {
        let mount = format!(
            "mount -t tmpfs -o size={0}m none '{1}' && dd if=/dev/zero of='{1}/ballast' bs=1M count={2} status=none",
            Disk::MIB,
            self.folder.display(),
            Disk::MIB - free_mib
        );
        let options = Options { mount: Some(mount), ..Options::default() };
        Operator::start_in(job, "cramped", &self.folder.join("state"), &options)
    }

    /// The ballast as the operator sees it: from outside, its disk is an empty folder.
    fn ballast(&self, operator: &Operator) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", operator.pid()));
        root.join(self.folder.strip_prefix("/").expect("the target folder's name is whole")).join("ballast")
    }

    /// Takes up all the space that is left.
    fn fill(&self, operator: &Operator) {
        let path = self.ballast(operator);
        let mut ballast = OpenOptions::new().append(true).open(&path).expect("the ballast is there");
        let error = loop {
            if let Err(error) = ballast.write_all(&[0; 64 << 10]) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{}: {error}", path.display());
    }

    /// Frees space.
    fn lighten(&self, operator: &Operator) {
        File::create(self.ballast(operator)).expect("the ballast can be removed");
    }
}

/// Waits until the operator finds the disk full, then frees space: the work has to continue without help.
fn sit_out(report: &mut Report, stage: &mut Stage, disk: &Disk, met_max: Duration) {
    stage.operators[0].await_line(&["no space"], met_max);
    report.injected(1);
    sleep(Duration::from_secs(1));
    stage.operators[0].assert_running();
    disk.lighten(&stage.operators[0]);
    stage.recover(report, Instant::now(), RECOVERY_MAX);
    stage.kill(0, false);
}

/// There is too little space for the stores to be rebuilt. Once there is enough, the work has to continue without help.
pub fn full(report: &mut Report) {
    const THINGS: usize = 60_000;
    let job = Job::new("full-disk", PARTITIONS);
    // Identities that do not compress.
    let mut random = Random::seeded("full disk");
    let ids = (0..THINGS).map(|_| (0..6).map(|_| format!("{:016x}", random.next())).collect::<String>());
    job.send(ids.enumerate().map(|(nth, id)| thing(nth as i32 % PARTITIONS, &id, 1)));
    let mut stage = Stage::set(job, 1);
    stage.job.await_progress(&[THINGS as i64 / i64::from(PARTITIONS); PARTITIONS as usize], DEADLINE);
    stage.operators[0].stop();
    let disk = Disk::new(&stage.job);
    for round in 0..ROUNDS {
        stage.operators[0] = disk.start(&stage.job, 1 + round);
        sit_out(report, &mut stage, &disk, DEADLINE);
    }
    stage.restart(0);
    stage.finish(report);
}

/// Space runs out while stores are at work, and is freed again.
pub fn full_at_work(report: &mut Report) {
    /// Stores are flushed to their files once a minute.
    const MET_MAX: Duration = Duration::from_secs(150);
    let mut stage = Stage::set(Job::new("full-at-work", PARTITIONS), 1);
    stage.operators[0].stop();
    let disk = Disk::new(&stage.job);
    for _ in 0..ROUNDS / 2 {
        stage.operators[0] = disk.start(&stage.job, Disk::MIB - 1);
        stage.await_beyond(&stage.committed(), RECOVERY_MAX);
        disk.fill(&stage.operators[0]);
        sit_out(report, &mut stage, &disk, MET_MAX);
    }
    stage.restart(0);
    stage.finish(report);
}
