//! An instance of one task whose steps a test takes one by one, and owners that write as a script says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ratchet::cluster::{Cluster, Inquiry, Member as _};
use ratchet::config::Commit;
use ratchet::engine::claims::Ids;
use ratchet::engine::context::Context;
use ratchet::engine::limits::Limits;
use ratchet::engine::restore::{self, Setback, Slice};
use ratchet::engine::task::{Phase, Task, Tasks};
use ratchet::engine::transact::Transactor;
use ratchet::engine::trouble::Trouble;
use ratchet::format::{KIND_IDENTITY, NO_TIME, OffsetMetadata, POSITION_KEY, PositionRecord, Token};
use ratchet::observe::Metrics;
use ratchet::state::Store;
use ratchet::state::simulated::{Loads, SimulatedDisk};

use crate::TOPOLOGIES;
use crate::client::{Batch, Member, Sim, ours};
use crate::input::{self, CHANGELOG, GROUP, INPUT};
use crate::instance::{self, Plan};
use crate::kafka::{Committed, Identity, Isolation, MS, Partition, Record, SECOND, Settings};
use crate::stores::Stores;
use crate::world::Process;

/// What a restore has made of a task's store.
#[derive(Debug, PartialEq)]
pub(super) struct Restored {
    pub(super) entries: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The transaction of the position record.
    pub(super) position: Option<Token>,
    /// The transaction that the store says it is the result of.
    pub(super) named: Option<Token>,
    /// Up to where the changelog was read, as the store says and as the task does.
    pub(super) offsets: [i64; 2],
}

impl Restored {
    pub(super) fn of(task: &Task<Sim>) -> Self {
        Self::of_store(&task.held.as_ref().expect("it was restored").store, task.changelog_offset)
    }

    pub(super) fn of_store(store: &Store, task_offset: i64) -> Self {
        let mut entries = BTreeMap::new();
        store.scan(None, usize::MAX, |key, value| drop(entries.insert(key.to_vec(), value.to_vec()))).expect("a disk");
        let position = store.get(POSITION_KEY).expect("a disk");
        let position = position.map(|bytes| PositionRecord::decode(&bytes).expect("an owner wrote it").token);
        let meta = store.meta().expect("a disk").expect("a restore leaves one");
        Self { entries, position, named: meta.token, offsets: [meta.changelog_offset, task_offset] }
    }
}

/// An entry of a thing, as of a transaction. What is in it matters to nobody here.
pub(super) fn entry(thing: u32, transaction: u8) -> (Vec<u8>, Vec<u8>) {
    ([&[KIND_IDENTITY][..], &thing.to_be_bytes()].concat(), vec![transaction])
}

/// One that commits for its only task when the script says so.
pub(super) struct Lane<'a> {
    pub(super) site: &'a Site<'a>,
    pub(super) transactor: Transactor<Sim>,
    pub(super) member: Member,
    pub(super) tasks: Tasks<Sim>,
}

impl<'a> Lane<'a> {
    pub(super) fn with(site: &'a Site<'a>, task: Task<Sim>) -> Self {
        let mut transactor = Transactor::new("ratchet.shop.9.0".to_owned(), 9, Ids::default());
        transactor.prepare(&site.sim).expect("nothing goes wrong");
        let mut member = site.sim.member(GROUP, &[INPUT.into()]).expect("nothing goes wrong");
        let mut batch = Batch::default();
        while member.poll(&mut batch, 1, Duration::from_millis(10)).expect("nothing goes wrong").is_none() {}
        Self { site, transactor, member, tasks: BTreeMap::from([(0, task)]) }
    }

    /// Commits a transaction that has read the input up to `next`.
    pub(super) fn commit(&mut self, next: i64, (key, value): (Vec<u8>, Vec<u8>)) -> Result<Vec<Trouble>, Trouble> {
        let context = &self.site.context;
        let task = self.tasks.get_mut(&0).expect("it was not taken away");
        task.pending.next = next;
        task.overlay.put(&key, Some(&value));
        self.transactor.touch(context, 0).expect("nothing goes wrong");
        self.transactor.seal(context, &mut self.tasks)?;
        while self.transactor.in_flight() > 0 {
            self.site.process.sleep(MS);
        }
        self.transactor.commit(context, &mut self.tasks, &self.member, &Metrics::new().lane("shop"))
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
            topology: TOPOLOGIES[input::Kind::Versions as usize].clone(),
            lanes: 1,
            commit: Commit { interval_ms: 100, records_max: 100, bytes_max: 1 << 20 },
            limits: Limits::USUAL,
        };
        let sim = Sim::new(process.clone());
        let disk = SimulatedDisk::new(Loads::default());
        let stores = Stores::Simulated(disk.clone());
        let admitted = instance::admit(&sim, &plan.topology, &stores).expect("nothing goes wrong");
        let context = instance::context(process, &plan, &stores, admitted);
        Self { process, sim, context, disk, input, changelog }
    }

    /// Commits a transaction of an owner of its own, which has read one record more of the input.
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
        let (producer, epoch) = broker.init_producer(&id, SECOND).expect("nothing goes wrong");
        let who = Identity { id, producer, epoch };
        broker.add_partitions(&who, std::slice::from_ref(&self.changelog)).expect("nothing goes wrong");
        broker.produce(&who, &self.changelog, 0, &records).expect("nothing goes wrong");
        broker.add_offsets(&who, &group).expect("nothing goes wrong");
        broker.commit_offsets_transactional(&who, &group, ("", -1), &offsets).expect("nothing goes wrong");
        broker.end_transaction(&who, true).expect("nothing goes wrong");
        broker.markers().iter().for_each(|marker| assert!(broker.write_marker(marker)));
        token
    }

    /// Writes so many records to the changelog, and takes them back.
    pub(super) fn abort(&self, transaction: u8, count: u32) {
        let broker = &mut self.process.lock().broker;
        let id: Arc<str> = format!("ratchet.shop.{transaction}.0").into();
        let (producer, epoch) = broker.init_producer(&id, SECOND).expect("nothing goes wrong");
        let who = Identity { id, producer, epoch };
        let records: Vec<_> =
            (0..count).map(|_| Record { key: Some([0xee][..].into()), ..Record::default() }).collect();
        broker.add_partitions(&who, std::slice::from_ref(&self.changelog)).expect("nothing goes wrong");
        broker.produce(&who, &self.changelog, 0, &records).expect("nothing goes wrong");
        broker.end_transaction(&who, false).expect("nothing goes wrong");
        broker.markers().iter().for_each(|marker| assert!(broker.write_marker(marker)));
    }

    /// What the group has committed.
    pub(super) fn committed(&self) -> Committed {
        let committed = self.process.lock().broker.fetch_offset(GROUP, &self.input, true);
        committed.expect("nothing goes wrong").expect("something was committed")
    }

    /// Commits it once more, and nothing beside.
    pub(super) fn commit_again(&self, committed: Committed) {
        let offsets = [(self.input.clone(), committed)];
        self.process.lock().broker.commit_offsets(&GROUP.into(), ("", -1), &offsets).expect("the group has no members");
    }

    pub(super) fn changelog_end(&self) -> i64 {
        self.process.lock().broker.ends(&self.changelog, Isolation::Committed).expect("nothing goes wrong").1
    }

    /// All that is on the disk, by folder.
    pub(super) fn on_disk(&self) -> BTreeMap<PathBuf, BTreeMap<Vec<u8>, Vec<u8>>> {
        let of = |folder: PathBuf| {
            let copy = self.disk.copy(&folder);
            let records = copy.records().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            (folder, records)
        };
        self.disk.folders().into_iter().map(of).collect()
    }

    /// Takes a task through its restore until it is refused.
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
                Ok(slice) => assert_ne!(slice, Slice::Ready, "it is gone on with"),
            }
        }
    }

    /// A task that knows where its changelog ends, and has read nothing of it.
    pub(super) fn settled(&self) -> Task<Sim> {
        let mut task = self.begun();
        while !matches!(task.phase, Phase::Loading(_)) {
            assert_ne!(self.step(&mut task), Slice::Ready, "there is something to read");
        }
        task
    }

    /// A task that knows nothing yet.
    pub(super) fn begun(&self) -> Task<Sim> {
        let (input, changelog) = (ours(&self.input), ours(&self.changelog));
        let settling = self.sim.settle(Inquiry::of(GROUP, &input, &changelog));
        let topics = self.context.topics.get(INPUT).expect("it was admitted");
        Task::new(&self.context, input, topics, Phase::Settling(settling))
    }

    /// Restores a store, which stays on the disk as it is.
    pub(super) fn leave_a_store(&self) {
        self.restore(&mut self.settled());
    }

    pub(super) fn restore(&self, task: &mut Task<Sim>) {
        while self.step(task) != Slice::Ready {}
    }

    pub(super) fn step(&self, task: &mut Task<Sim>) -> Slice {
        self.process.sleep(MS);
        let stepped = restore::step(&self.context, &self.sim, task, &mut Batch::default(), true);
        stepped.expect("nothing stands in the way of the restore")
    }
}

/// Why a task was stopped: at once, or when it had asked again.
pub(super) fn reason_of(setback: Setback) -> String {
    match setback {
        Setback::Refused(reason) | Setback::Doubted(reason) => reason,
        other => panic!("{other:?} stops no task"),
    }
}
