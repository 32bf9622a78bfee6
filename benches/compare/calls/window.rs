//! `window`: the same window of calls without ratchet, which is the limit. Each thread reads its share of the partitions,
//! keeps as many calls under way as a lane of ratchet's, each on a connection of its own that stays open, and writes the
//! answers to a topic. It recognises nothing, keeps nothing, takes any order, and makes a call again after a crash.
//!
//! The offset that is committed, ten times a second, is the end of what was answered and written without a gap.

use std::collections::{BTreeSet, HashMap};
use std::process::Command;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{CommitMode, Consumer as _, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseRecord, DeliveryResult, NoCustomPartitioner, ProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::sleep;

use super::orders::{KEY_HEADER, Order};
use crate::broker::client;
use crate::failure::{Context as _, Failure, Outcome, fail};
use crate::generate::PARTITIONS;

/// How often offsets are committed.
const COMMIT_EVERY: Duration = Duration::from_millis(100);
/// How often a thread checks whether to stop.
const LOOK: Duration = Duration::from_millis(20);
/// How long to wait before a full queue is tried again.
const FULL_STEP: Duration = Duration::from_millis(1);

/// What to call.
#[derive(Args, Clone, Debug)]
pub struct CallArgs {
    /// Bootstrap servers
    #[arg(long)]
    brokers: String,
    /// The consumer group
    #[arg(long)]
    group: String,
    /// The input topic
    #[arg(long)]
    input: String,
    /// The topic of the answers
    #[arg(long)]
    output: String,
    /// The provider's address
    #[arg(long)]
    url: String,
    /// Calls under way in each thread
    #[arg(long)]
    in_flight: usize,
    /// Threads
    #[arg(long)]
    threads: usize,
}

impl CallArgs {
    /// For this program, under this name.
    pub fn new(brokers: &str, name: &str, input: &str, output: &str, url: &str) -> CallArgs {
        let [brokers, group, input, output, url] = [brokers, name, input, output, url].map(str::to_owned);
        CallArgs { brokers, group, input, output, url, in_flight: super::IN_FLIGHT, threads: super::lanes() }
    }

    /// The command that makes the calls.
    pub fn command(&self) -> Outcome<Command> {
        let (in_flight, threads) = (self.in_flight.to_string(), self.threads.to_string());
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("call").args(["--brokers", &self.brokers, "--group", &self.group, "--input", &self.input]);
        command.args(["--output", &self.output, "--url", &self.url]);
        command.args(["--in-flight", &in_flight, "--threads", &threads]);
        Ok(command)
    }
}

/// Calls until `stop`.
pub fn run(args: &CallArgs, stop: &AtomicBool) -> Outcome<()> {
    std::thread::scope(|scope| {
        let thread = |number: usize| {
            scope.spawn(move || {
                let done = lane(args, number, stop);
                // The others would never finish.
                stop.store(true, Ordering::Relaxed);
                done
            })
        };
        let threads: Vec<_> = (0..args.threads).map(thread).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| Failure("a thread panicked".to_owned()))?)
    })
}

/// What a thread's calls share.
struct Lane {
    consumer: StreamConsumer,
    /// Held by the call that waits for a record: others would be woken in vain.
    turn: tokio::sync::Mutex<()>,
    producer: ThreadedProducer<Answers>,
    output: String,
    uri: Uri,
}

fn lane(args: &CallArgs, number: usize, stop: &AtomicBool) -> Outcome<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let answers = Answers::default();
        let lane = Rc::new(Lane {
            consumer: consumer(args, number)?,
            turn: tokio::sync::Mutex::default(),
            producer: producer(args, answers.clone())?,
            output: args.output.clone(),
            uri: args.url.parse().context("the provider's address")?,
        });
        let calls: Vec<JoinHandle<Outcome<()>>> =
            (0..args.in_flight).map(|_| spawn_local(call(Rc::clone(&lane)))).collect();
        let mut committed_at = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            sleep(LOOK).await;
            if calls.iter().any(JoinHandle::is_finished) {
                break;
            }
            if committed_at.elapsed() >= COMMIT_EVERY {
                committed_at = Instant::now();
                commit(&lane, &args.input, &answers)?;
            }
        }
        for call in calls.into_iter().filter(JoinHandle::is_finished) {
            call.await.context("a call")??;
        }
        Ok(())
    })
}

fn commit(lane: &Lane, input: &str, answers: &Answers) -> Outcome<()> {
    let mut offsets = TopicPartitionList::new();
    for (partition, prefix) in &*answers.settled()? {
        offsets.add_partition_offset(input, *partition, Offset::Offset(prefix.next))?;
    }
    if offsets.count() > 0 {
        lane.consumer.commit(&offsets, CommitMode::Async)?;
    }
    Ok(())
}

/// Makes one call after the other, on one connection.
async fn call(lane: Rc<Lane>) -> Outcome<()> {
    let mut connection = connect(&lane.uri).await?;
    loop {
        let record = {
            let _turn = lane.turn.lock().await;
            lane.consumer.recv().await?
        };
        let order: Order = serde_json::from_slice(record.payload().unwrap_or_default())?;
        let request = Request::post(lane.uri.path())
            .header(HOST, lane.uri.authority().map_or("", |authority| authority.as_str()))
            .header(CONTENT_TYPE, "application/json")
            .header(KEY_HEADER, format!("{:064x}", order.id))
            .body(Full::new(Bytes::from(order.body())))
            .context("a request")?;
        connection.ready().await.context("a connection")?;
        let answer = connection.send_request(request).await.context("a call")?;
        if answer.status() != 201 {
            fail!("the provider answers {}", answer.status());
        }
        let body = answer.into_body().collect().await.context("an answer")?.to_bytes();
        let place = Box::new((record.partition(), record.offset()));
        let mut answered = BaseRecord::with_opaque_to(&lane.output, place)
            .partition(record.partition())
            .key(record.key().unwrap_or_default())
            .payload(&body[..]);
        while let Err((error, back)) = lane.producer.send(answered) {
            if !matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) {
                return Err(error.into());
            }
            sleep(FULL_STEP).await;
            answered = back;
        }
    }
}

async fn connect(uri: &Uri) -> Outcome<SendRequest<Full<Bytes>>> {
    let address = uri.authority().context("the provider's address names no host")?.as_str();
    let stream = tokio::net::TcpStream::connect(address).await.context("connecting")?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await.context("HTTP")?;
    spawn_local(connection);
    Ok(sender)
}

/// What was answered and is written, by partition.
#[derive(Clone, Default)]
struct Answers(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    settled: HashMap<i32, Prefix>,
    failed: Option<KafkaError>,
}

/// Offsets without a gap, and those beyond it.
#[derive(Default)]
struct Prefix {
    next: i64,
    beyond: BTreeSet<i64>,
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settled(&self) -> Outcome<impl std::ops::Deref<Target = HashMap<i32, Prefix>> + '_> {
        let written = self.lock();
        match &written.failed {
            Some(error) => fail!("an answer could not be written: {error}"),
            None => Ok(Settled(written)),
        }
    }
}

struct Settled<'a>(MutexGuard<'a, Written>);

impl std::ops::Deref for Settled<'_> {
    type Target = HashMap<i32, Prefix>;

    fn deref(&self) -> &Self::Target {
        &self.0.settled
    }
}

impl ClientContext for Answers {}

impl ProducerContext<NoCustomPartitioner> for Answers {
    type DeliveryOpaque = Box<(i32, i64)>;

    fn delivery(&self, result: &DeliveryResult<'_>, place: Self::DeliveryOpaque) {
        let (partition, offset) = *place;
        let mut written = self.lock();
        if let Err((error, _)) = result {
            written.failed = Some(error.clone());
            return;
        }
        let prefix = written.settled.entry(partition).or_default();
        prefix.beyond.insert(offset);
        while prefix.beyond.remove(&prefix.next) {
            prefix.next += 1;
        }
    }
}

fn producer(args: &CallArgs, answers: Answers) -> Outcome<ThreadedProducer<Answers>> {
    let mut config = client(&args.brokers);
    Ok(config.set("acks", "all").set("enable.idempotence", "true").create_with_context(answers)?)
}

fn consumer(args: &CallArgs, number: usize) -> Outcome<StreamConsumer> {
    let consumer: StreamConsumer = client(&args.brokers)
        .set("group.id", &args.group)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("fetch.queue.backoff.ms", "5")
        .create()?;
    let mut assignment = TopicPartitionList::new();
    for partition in (0..PARTITIONS).filter(|partition| *partition as usize % args.threads == number) {
        assignment.add_partition_offset(&args.input, partition, Offset::Stored)?;
    }
    consumer.assign(&assignment).context("assigning partitions")?;
    Ok(consumer)
}
