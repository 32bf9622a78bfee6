//! Goal: a cluster under random transactions, fencing, rebalances, trimming and reopening equals a plain
//! model of it: lists of records and a map of offsets.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const PARTITIONS: i32 = 2;

#[derive(Clone, Debug)]
enum Op {
    Send {
        partition: i32,
        key: u8,
        value: Option<u16>,
    },
    Append {
        partition: i32,
        key: u8,
        records: u8,
    },
    Commit,
    Abort,
    /// A second producer takes over the id and continues.
    Fence,
    /// The group expels its member before it commits.
    Expel,
    Compact {
        partition: i32,
    },
    Trim {
        partition: i32,
        by: i64,
    },
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let partition = 0..PARTITIONS;
    prop_oneof![
        8 => (partition.clone(), 0..5u8, any::<Option<u16>>())
            .prop_map(|(partition, key, value)| Op::Send { partition, key, value }),
        2 => (partition.clone(), 0..5u8, 0..4u8)
            .prop_map(|(partition, key, records)| Op::Append { partition, key, records }),
        4 => Just(Op::Commit),
        1 => Just(Op::Abort),
        1 => Just(Op::Fence),
        1 => Just(Op::Expel),
        1 => partition.clone().prop_map(|partition| Op::Compact { partition }),
        1 => (partition, 0..3i64).prop_map(|(partition, by)| Op::Trim { partition, by }),
        1 => Just(Op::Reopen),
    ]
}

type Pair = (String, Option<String>);

/// What the cluster must match.
#[derive(Default)]
struct Model {
    /// By topic and partition: all records ever committed, and the first retained offset.
    logs: BTreeMap<(&'static str, i32), (Vec<Pair>, i64)>,
    committed: i64,
    pending: Vec<((&'static str, i32), Pair)>,
}

struct Run {
    dir: tempfile::TempDir,
    /// Dropped before the folder is reopened.
    open: Option<(Embedded, Member, Producer)>,
    model: Model,
}

fn open(dir: &std::path::Path) -> (Embedded, Member, Producer) {
    let cluster = Embedded::open_with(dir, Clock::default().options()).unwrap();
    create(&cluster, "plain", PARTITIONS, &[]);
    create(&cluster, "log", PARTITIONS, &[("cleanup.policy", "compact".into())]);
    let member = joined(&cluster, "g", "plain");
    let mut producer = cluster.producer("p").unwrap();
    producer.begin().unwrap();
    (cluster, member, producer)
}

impl Run {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let open = Some(open(dir.path()));
        Self { dir, open, model: Model::default() }
    }

    fn step(&mut self, op: &Op) {
        let (cluster, member, producer) = self.open.as_mut().unwrap();
        match *op {
            Op::Send { partition, key, value } => {
                let (key, value) = (key.to_string(), value.map(|value| value.to_string()));
                for topic in ["plain", "log"] {
                    producer.send(ticket(0), &message(topic, partition, &key, value.as_deref())).unwrap();
                    self.model.pending.push(((topic, partition), (key.clone(), value.clone())));
                }
            }
            Op::Append { partition, key, records } => {
                let key = key.to_string();
                let one = message("plain", partition, &key, Some("appended"));
                cluster.append("plain", partition, &vec![one; usize::from(records)]).unwrap();
                let log = &mut self.model.logs.entry(("plain", partition)).or_default().0;
                log.extend(vec![(key, Some("appended".into())); usize::from(records)]);
            }
            Op::Commit => {
                let next = self.model.committed + 1;
                let offsets = [commit_at(&tp("plain", 0), next, "m")];
                producer.commit(&offsets, member.metadata().unwrap()).unwrap();
                producer.begin().unwrap();
                self.model.committed = next;
                for (at, pair) in self.model.pending.drain(..) {
                    self.model.logs.entry(at).or_default().0.push(pair);
                }
            }
            Op::Abort => {
                producer.abort().unwrap();
                producer.begin().unwrap();
                self.model.pending.clear();
            }
            Op::Fence => {
                let mut second = cluster.producer("p").unwrap();
                let offsets = [commit_at(&tp("plain", 0), -1, "zombie")];
                let kind = producer.commit(&offsets, member.metadata().unwrap()).unwrap_err().kind;
                assert_eq!(kind, ErrorKind::Fenced);
                second.begin().unwrap();
                *producer = second;
                self.model.pending.clear();
            }
            Op::Expel => {
                let stale = member.metadata().unwrap();
                cluster.expel_members("g").unwrap();
                settle_in(member);
                let kind = producer.commit(&[commit_at(&tp("plain", 0), -1, "stale")], stale).unwrap_err().kind;
                assert_eq!(kind, ErrorKind::Abort);
                producer.abort().unwrap();
                producer.begin().unwrap();
                self.model.pending.clear();
            }
            Op::Compact { partition } => cluster.compact("log", partition).unwrap(),
            Op::Trim { partition, by } => {
                let (log, start) = self.model.logs.entry(("plain", partition)).or_default();
                *start = (*start + by).min(log.len() as i64);
                cluster.delete_records("plain", partition, *start).unwrap();
            }
            Op::Reopen => {
                self.open = None;
                self.open = Some(open(self.dir.path()));
                self.model.pending.clear();
            }
        }
    }

    fn check(&self) {
        let (cluster, ..) = self.open.as_ref().unwrap();
        for partition in 0..PARTITIONS {
            let empty = (Vec::new(), 0);
            let (log, start) = self.model.logs.get(&("plain", partition)).unwrap_or(&empty);
            assert_eq!(pairs(cluster, "plain", partition), log[*start as usize..]);
            assert_eq!(cluster.start("plain", partition).unwrap(), *start);
            assert_eq!(cluster.end("plain", partition).unwrap(), log.len() as i64);
            self.check_compacted(cluster, partition);
        }
        let committed = cluster.committed("g", &[tp("plain", 0)], LONG).unwrap().remove(0);
        assert_eq!(committed.map_or(0, |committed| committed.offset), self.model.committed);
    }

    /// Each remaining record is the model's at that offset, and the fold is the model's.
    fn check_compacted(&self, cluster: &Embedded, partition: i32) {
        let empty = (Vec::new(), 0);
        let (log, _) = self.model.logs.get(&("log", partition)).unwrap_or(&empty);
        let fold = |pairs: &[Pair]| {
            let last: BTreeMap<Vec<u8>, Option<String>> =
                pairs.iter().map(|(key, value)| (key.clone().into_bytes(), value.clone())).collect();
            last.into_iter().filter(|(_, value)| value.is_some()).collect::<BTreeMap<_, _>>()
        };
        let offsets: Vec<i64> = cluster.read_all("log", partition).unwrap().iter().map(|r| r.offset).collect();
        let left = pairs(cluster, "log", partition);
        offsets.iter().zip(&left).for_each(|(offset, pair)| assert_eq!(&log[*offset as usize], pair));
        assert_eq!(fold(&left), fold(log));
        assert_eq!(cluster.end("log", partition).unwrap(), log.len() as i64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn cluster_equals_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let mut run = Run::new();
        for op in &ops {
            run.step(op);
            run.check();
        }
    }
}
