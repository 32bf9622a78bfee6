//! An instance of one task whose steps a test takes one by one, and owners that write as scripted.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::disk::{Loads, Memtables, SimulatedDisk};
use ratchet::cluster::{Cluster, Inquiry, Member as _};
use ratchet::config::Commit;
use ratchet::engine::context::Context;
use ratchet::engine::failure::Failure;
use ratchet::engine::ids::Ids;
use ratchet::engine::limits::Limits;
use ratchet::engine::restore::{self, Slice};
use ratchet::engine::setback::{Consequence, Setback};
use ratchet::engine::task::{Phase, Task, Tasks};
use ratchet::engine::transact::Transactor;
use ratchet::format::{ChangelogOffset, KIND_IDENTITY, NO_TIME, OffsetMetadata, POSITION_KEY, PositionRecord, Token};
use ratchet::observe::Metrics;
use ratchet::state::Store;

use crate::client::{Batch, Member, Sim, ours};
use crate::input::{self, CHANGELOG, GROUP, INPUT};
use crate::instance::{self, Plan};
use crate::kafka::{Committed, Identity, Isolation, MS, Partition, Record, SECOND, Settings};
use crate::stores::Stores;
use crate::topology;
use crate::world::Process;

/// What a restore has made of a task's store.
#[derive(Debug, PartialEq)]
pub(super) struct Restored {
    pub(super) entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The transaction in the position record.
    pub(super) position: Option<Token>,
    /// The transaction that the store claims to be the result of.
    pub(super) named: Option<Token>,
    /// Up to where the changelog was read, according to the store and to the task; `None` if the task does not hold it.
    pub(super) offsets: (ChangelogOffset, Option<ChangelogOffset>),
}

impl Restored {
    pub(super) fn of(task: &Task<Sim>) -> Self {
        let held = task.state.store.as_ref().expect("it was restored");
        Self::of_store(&held.store, Some(held.applied.next))
    }

    pub(super) fn of_store(store: &Store, task_offset: Option<ChangelogOffset>) -> Self {
        let mut entries = BTreeMap::new();
        store.scan(None, usize::MAX, |key, value| drop(entries.insert(key.to_vec(), value.to_vec()))).expect("a disk");
        let position = store.get(POSITION_KEY).expect("a disk");
        let position = position.map(|bytes| PositionRecord::decode(&bytes).expect("an owner wrote it").token);
        let meta = store.meta().expect("a disk").expect("a restore leaves one");
        Self { entries, position, named: meta.token, offsets: (meta.changelog_offset, task_offset) }
    }
}

/// An entry of a thing, by a transaction. Its content does not matter here.
pub(super) fn entry(thing: u32, transaction: u8) -> (Vec<u8>, Vec<u8>) {
    ([&[KIND_IDENTITY][..], &thing.to_be_bytes()].concat(), vec![transaction])
}

/// A lane that commits for its only task as scripted.
pub(super) struct Lane<'a> {
    pub(super) site: &'a Site<'a>,
    pub(super) transactor: Transactor<Sim>,
    pub(super) member: Member,
    pub(super) tasks: Tasks<Sim>,
}

impl<'a> Lane<'a> {
    pub(super) fn with(site: &'a Site<'a>, task: Task<Sim>) -> Self {
        let transactor = Self::transactor(site, "ratchet.shop.9.0");
        let mut member = site.sim.member(GROUP, &[INPUT.into()]).expect("no faults are injected");
        let mut batch = Batch::default();
        while member.poll(&mut batch, 1, Duration::from_millis(10)).expect("no faults are injected").is_none() {}
        Self { site, transactor, member, tasks: BTreeMap::from([(0, task)]) }
    }

    pub(super) fn transactor(site: &Site<'_>, id: &str) -> Transactor<Sim> {
        let mut transactor = Transactor::new(id.to_owned(), 9, Ids::default());
        transactor.prepare(&site.sim).expect("no faults are injected");
        transactor
    }

    /// Commits a transaction that has read the input up to `next`.
    pub(super) fn commit(&mut self, next: i64, (key, value): (Vec<u8>, Vec<u8>)) -> Result<Vec<Failure>, Failure> {
        let context = &self.site.context;
        let (share, _) = self.transactor.enlist(context, 0, &self.tasks[&0].committed).expect("no faults are injected");
        share.position.next = next;
        share.overlay.put(&key, Some(&value));
        self.transactor.seal(context, &mut self.tasks, &self.member, None)?;
        while self.transactor.in_flight() > 0 {
            self.site.process.sleep(MS);
        }
        let metrics = Metrics::new().lane("shop");
        let membership = self.transactor.membership(&self.member)?;
        let committed = self.transactor.commit(context, &mut self.tasks, membership, &metrics, None);
        committed.map(|committed| committed.failures)
    }
}

/// An instance without lanes, on a cluster with an input of one partition.
pub(super) struct Site<'a> {
    pub(super) process: &'a Process,
    pub(super) sim: Sim,
    pub(super) context: Context,
    pub(super) disk: SimulatedDisk,
    pub(super) input: Partition,
    pub(super) changelog: Partition,
}

impl<'a> Site<'a> {
    pub(super) fn new(process: &'a Process) -> Self {
        let (input, changelog) = (Partition::new(INPUT, 0), Partition::new(CHANGELOG, 0));
        {
            let topics = &mut process.lock().broker.topics;
            let settings =
                Settings { compacted: false, delete_retention: 0, message_bytes_max: 1 << 20, stamps: false };
            topics.create(INPUT, 1, settings).expect("the cluster is empty");
            topics.log_mut(&input).expect("just created").append(vec![Record::default(); 8]);
        }
        let plan = Plan {
            topology: topology(input::InputKind::Versions),
            lanes: 1,
            commit: Commit { interval_ms: 100, spacing_ms: 0, records_max: 100, bytes_max: 1 << 20 },
            limits: Limits::DEFAULT,
            sink: None,
            provider: None,
        };
        let sim = Sim::new(process.clone());
        let disk = SimulatedDisk::new(Loads::default(), Memtables::UNBOUNDED);
        let stores = Stores::Simulated(disk.clone());
        let admitted = instance::admit(&sim, &plan.topology, &stores).expect("no faults are injected");
        let context = instance::context(process, &plan, &stores, admitted);
        Self { process, sim, context, disk, input, changelog }
    }

    /// Commits a transaction of a new owner, which has read one more record of the input.
    pub(super) fn commit(&self, transaction: u8, entries: &[(Vec<u8>, Vec<u8>)]) -> Token {
        let broker = &mut self.process.lock().broker;
        let id = |topic| broker.topics.get(topic).expect("it was created").id.to_be_bytes();
        let token = Token { lane: 1, transaction: transaction.into(), changelog_id: id(CHANGELOG), partition: 0 };
        let (owner, read) = (format!("ratchet.shop.{transaction}.0"), transaction.into());
        let position = PositionRecord {
            token,
            owner: owner.clone(),
            input_id: id(INPUT),
            processed: vec![(0, read)],
            stream_time: NO_TIME,
            horizon: i64::MIN,
            rules_digest: self.context.rules_digest,
            generation: 1,
            task_count: 1,
            truncates: 0,
            scopes: Vec::new(),
        };
        let last = (POSITION_KEY.to_vec(), position.encode());
        let record = |(key, value): &(Vec<u8>, Vec<u8>)| Record {
            key: Some(key.as_slice().into()),
            value: Some(value.as_slice().into()),
            ..Record::default()
        };
        let records: Vec<_> = entries.iter().chain([&last]).map(record).collect();
        let digest = OffsetMetadata::short_digest(&self.context.rules_digest);
        let metadata = OffsetMetadata { token, digest, owner: Some(owner.clone()) }.to_string();
        let offsets = [(self.input.clone(), Committed { offset: read, metadata })];

        let (id, group): (Arc<str>, Arc<str>) = (owner.into(), GROUP.into());
        let (producer, epoch) = broker.init_producer(&id, SECOND).expect("no faults are injected");
        let who = Identity { id, producer, epoch };
        broker.add_partitions(&who, std::slice::from_ref(&self.changelog)).expect("no faults are injected");
        broker.produce(&who, &self.changelog, 0, &records).expect("no faults are injected");
        broker.add_offsets(&who, &group).expect("no faults are injected");
        broker.commit_offsets_transactional(&who, &group, ("", -1), &offsets).expect("no faults are injected");
        broker.end_transaction(&who, true).expect("no faults are injected");
        broker.markers().iter().for_each(|marker| assert!(broker.write_marker(marker)));
        token
    }

    /// Writes `count` records to the changelog, and aborts them.
    pub(super) fn abort(&self, transaction: u8, count: u32) {
        let broker = &mut self.process.lock().broker;
        let id: Arc<str> = format!("ratchet.shop.{transaction}.0").into();
        let (producer, epoch) = broker.init_producer(&id, SECOND).expect("no faults are injected");
        let who = Identity { id, producer, epoch };
        let records: Vec<_> =
            (0..count).map(|_| Record { key: Some([0xee][..].into()), ..Record::default() }).collect();
        broker.add_partitions(&who, std::slice::from_ref(&self.changelog)).expect("no faults are injected");
        broker.produce(&who, &self.changelog, 0, &records).expect("no faults are injected");
        broker.end_transaction(&who, false).expect("no faults are injected");
        broker.markers().iter().for_each(|marker| assert!(broker.write_marker(marker)));
    }

    /// What the group has committed.
    pub(super) fn committed(&self) -> Committed {
        let committed = self.process.lock().broker.fetch_offset(GROUP, &self.input, true);
        committed.expect("no faults are injected").expect("something was committed")
    }

    /// Commits an offset again, and nothing else.
    pub(super) fn commit_again(&self, committed: Committed) {
        let offsets = [(self.input.clone(), committed)];
        self.process.lock().broker.commit_offsets(&GROUP.into(), ("", -1), &offsets).expect("the group has no members");
    }

    pub(super) fn changelog_end(&self) -> i64 {
        self.process.lock().broker.ends(&self.changelog, Isolation::Committed).expect("no faults are injected").1
    }

    /// Everything on the disk, by folder.
    pub(super) fn on_disk(&self) -> BTreeMap<PathBuf, BTreeMap<Vec<u8>, Vec<u8>>> {
        let of = |folder: PathBuf| {
            let copy = self.disk.copy(&folder);
            let records = copy.records().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            (folder, records)
        };
        self.disk.folders().into_iter().map(of).collect()
    }

    /// Runs a task's restore until it is refused.
    pub(super) fn refused(&self, task: &mut Task<Sim>) -> String {
        loop {
            self.process.sleep(MS);
            match restore::step(&self.context, &self.sim, task, &mut Batch::default(), true) {
                Err(setback) => {
                    restore::set_back(&self.context, task, &setback);
                    if matches!(task.phase, Phase::Failed) {
                        return reason_of(setback);
                    }
                }
                Ok(slice) => assert_ne!(slice, Slice::Ready, "the task continues"),
            }
        }
    }

    /// A task that knows where its changelog ends, and has read nothing of it.
    pub(super) fn settled_task(&self) -> Task<Sim> {
        let mut task = self.new_task();
        while !matches!(task.phase, Phase::Loading(_)) {
            assert_ne!(self.step(&mut task), Slice::Ready, "there is something to read");
        }
        task
    }

    /// A task that knows nothing yet.
    pub(super) fn new_task(&self) -> Task<Sim> {
        let (input, changelog) = (ours(&self.input), ours(&self.changelog));
        let settling = self.sim.settle(Inquiry::of(GROUP, &input, &changelog));
        let topics = self.context.topics.get(INPUT).expect("it was admitted");
        Task::new(&self.context, input, topics, Phase::Settling(settling))
    }

    /// Restores a store, which stays on the disk.
    pub(super) fn leave_a_store(&self) {
        self.restore(&mut self.settled_task());
    }

    pub(super) fn restore(&self, task: &mut Task<Sim>) {
        while self.step(task) != Slice::Ready {}
    }

    pub(super) fn step(&self, task: &mut Task<Sim>) -> Slice {
        self.process.sleep(MS);
        let stepped = restore::step(&self.context, &self.sim, task, &mut Batch::default(), true);
        stepped.expect("nothing hinders the restore")
    }
}

/// Why a task was stopped, at once or after retries.
pub(super) fn reason_of(setback: Setback) -> String {
    assert!(matches!(setback.consequence(), Consequence::Stop | Consequence::AskAgain), "{setback:?} stops no task");
    setback.to_string()
}
