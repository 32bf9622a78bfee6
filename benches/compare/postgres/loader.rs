//! `loader`: what a program can load at most that does nothing else: it takes what there is, sends the upserts of a batch
//! one behind the other without waiting for any, commits, and then commits the offsets. It recognises nothing and keeps
//! nothing of its own; after a crash it carries out again what the group does not know of.
//!
//! Values go in the binary form of their types, and the server gets the first statements of a batch while the others are
//! still being written.

use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Wake, Waker};
use std::time::Duration;

use clap::Args;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::Deserialize;
use tokio::task::yield_now;
use tokio_postgres::{Client, NoTls, Statement};

use super::accounts;
use crate::broker::client;
use crate::failure::{Context as _, Failure, Outcome};
use crate::generate::PARTITIONS;

/// Threads, each with a connection and its share of the partitions: as many as ratchet has lanes on two cores.
pub const THREADS: usize = 2;
/// Maximum number of records in a transaction.
pub const BATCH: usize = 1_000;
/// After so many statements the server is given what was written.
const SEND_RECORDS: usize = 64;
/// How long a thread waits for a first record before it checks whether to stop.
const WAIT: Duration = Duration::from_millis(20);

/// What to load.
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// Bootstrap servers
    #[arg(long)]
    brokers: String,
    /// The consumer group
    #[arg(long)]
    group: String,
    /// The input topic
    #[arg(long)]
    input: String,
    /// The database
    #[arg(long)]
    url: String,
}

/// The command that runs a loader.
pub fn command(brokers: &str, group: &str, input: &str, url: &str) -> Outcome<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("load");
    for (name, value) in [("--brokers", brokers), ("--group", group), ("--input", input), ("--url", url)] {
        command.args([name, value]);
    }
    Ok(command)
}

/// Loads until `stop`.
pub fn run(args: &LoadArgs, stop: &AtomicBool) -> Outcome<()> {
    std::thread::scope(|scope| {
        let thread = |number: usize| {
            scope.spawn(move || {
                let done = load(args, number, stop);
                // The others would never finish.
                stop.store(true, Ordering::Relaxed);
                done
            })
        };
        let threads: Vec<_> = (0..THREADS).map(thread).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| Failure("a thread panicked".to_owned()))?)
    })
}

/// A row, as its record has it.
#[derive(Deserialize)]
struct Row<'a> {
    id: i64,
    owner: &'a str,
    status: &'a str,
    balance: i64,
    version: i64,
    due_us: i64,
    note: &'a str,
}

fn load(args: &LoadArgs, number: usize, stop: &AtomicBool) -> Outcome<()> {
    let consumer = consumer(args, number)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (client, upsert) = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&args.url, NoTls).await?;
        tokio::spawn(connection);
        let upsert = client.prepare(&accounts::upsert()).await?;
        Ok::<_, Failure>((client, upsert))
    })?;
    let mut batch = Vec::with_capacity(BATCH);
    while !stop.load(Ordering::Relaxed) {
        take(&consumer, &mut batch)?;
        if batch.is_empty() {
            continue;
        }
        runtime.block_on(commit(&client, &upsert, &batch))?;
        let mut offsets = TopicPartitionList::new();
        for message in &batch {
            let next = Offset::Offset(message.offset() + 1);
            match offsets.find_partition(&args.input, message.partition()) {
                Some(mut partition) => partition.set_offset(next)?,
                None => offsets.add_partition_offset(&args.input, message.partition(), next)?,
            }
        }
        consumer.commit(&offsets, CommitMode::Async)?;
        batch.clear();
    }
    Ok(())
}

/// What is there, up to a batch.
fn take<'a>(consumer: &'a BaseConsumer, batch: &mut Vec<BorrowedMessage<'a>>) -> Outcome<()> {
    let mut wait = WAIT;
    while batch.len() < BATCH {
        let Some(message) = consumer.poll(wait) else { break };
        batch.push(message?);
        wait = Duration::ZERO;
    }
    Ok(())
}

/// Carries out the upserts of a batch in one transaction, and waits for nothing but its end.
async fn commit(client: &Client, upsert: &Statement, batch: &[BorrowedMessage<'_>]) -> Outcome<()> {
    let mut sent: Vec<Request<'_>> = Vec::with_capacity(batch.len() + 2);
    send(&mut sent, Box::pin(client.batch_execute("begin")))?;
    for (number, message) in batch.iter().enumerate() {
        let row: Row<'_> = serde_json::from_slice(message.payload().unwrap_or_default())?;
        let carry_out = async move {
            let Row { id, owner, status, balance, version, due_us, note } = &row;
            client.execute(upsert, &[id, owner, status, balance, version, due_us, note]).await.map(drop)
        };
        send(&mut sent, Box::pin(carry_out))?;
        if number % SEND_RECORDS == SEND_RECORDS - 1 {
            yield_now().await;
        }
    }
    send(&mut sent, Box::pin(client.batch_execute("commit")))?;
    for request in sent {
        request.await?;
    }
    Ok(())
}

type Request<'a> = Pin<Box<dyn Future<Output = Result<(), tokio_postgres::Error>> + 'a>>;

/// A request is sent when it is polled first. Nobody needs to be woken: the caller polls again.
fn send<'a>(sent: &mut Vec<Request<'a>>, mut request: Request<'a>) -> Outcome<()> {
    if let std::task::Poll::Ready(ended) = request.as_mut().poll(&mut Wake::from_waker(Waker::noop())) {
        ended?;
    } else {
        sent.push(request);
    }
    Ok(())
}

fn consumer(args: &LoadArgs, number: usize) -> Outcome<BaseConsumer> {
    let consumer: BaseConsumer = client(&args.brokers)
        .set("group.id", &args.group)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("fetch.queue.backoff.ms", "5")
        .set("queued.min.messages", "1000000")
        .create()?;
    let mut assignment = TopicPartitionList::new();
    for partition in (0..PARTITIONS).filter(|partition| *partition as usize % THREADS == number) {
        assignment.add_partition_offset(&args.input, partition, Offset::Stored)?;
    }
    consumer.assign(&assignment).context("assigning partitions")?;
    Ok(consumer)
}
