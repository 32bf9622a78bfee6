//! Sorts a batch by task.

use crate::cluster::{Cluster, RecordBatch};
use crate::engine::share::TaskId;
use crate::engine::task::{Task, Tasks};

/// Sorts the batch by task, for the tasks that `takes` accepts.
pub(super) fn share_out<C: Cluster>(
    batch: &C::Batch,
    shares: &mut Vec<(TaskId, Vec<usize>)>,
    tasks: &Tasks<C>,
    takes: impl Fn(TaskId, &Task<C>) -> bool,
) {
    shares.iter_mut().for_each(|(_, indices)| indices.clear());
    let of_source: Vec<Option<usize>> = batch
        .partitions()
        .iter()
        .map(|partition| {
            let is_its = |id: TaskId, task: &Task<C>| task.input == *partition && takes(id, task);
            let (&id, _) = tasks.iter().find(|(id, task)| is_its(**id, task))?;
            let known = shares.iter().position(|(of, _)| *of == id);
            Some(known.unwrap_or_else(|| {
                shares.push((id, Vec::new()));
                shares.len() - 1
            }))
        })
        .collect();
    for index in 0..batch.len() {
        if let Some(share) = of_source[batch.source(index)] {
            shares[share].1.push(index);
        }
    }
}
