//! Sorts a batch by task.

use crate::cluster::{Cluster, RecordBatch};
use crate::engine::share::TaskId;
use crate::engine::task::{Task, Tasks};

/// Sorts the batch by task: fills `indices_by_task` with the indices of each task's records, for the tasks that
/// `is_accepted` selects. Vectors that are there already are reused.
pub(super) fn sort_by_task<C: Cluster>(
    batch: &C::Batch,
    indices_by_task: &mut Vec<(TaskId, Vec<usize>)>,
    tasks: &Tasks<C>,
    is_accepted: impl Fn(TaskId, &Task<C>) -> bool,
) {
    indices_by_task.iter_mut().for_each(|(_, indices)| indices.clear());
    // For each partition of the batch, the index of its task in `indices_by_task`.
    let positions: Vec<Option<usize>> = batch
        .partitions()
        .iter()
        .map(|partition| {
            // `None`: no accepted task reads the partition, and its records are ignored.
            let is_match = |id: TaskId, task: &Task<C>| task.input == *partition && is_accepted(id, task);
            let (&id, _) = tasks.iter().find(|(id, task)| is_match(**id, task))?;
            let position = indices_by_task.iter().position(|(task, _)| *task == id);
            Some(position.unwrap_or_else(|| {
                indices_by_task.push((id, Vec::new()));
                indices_by_task.len() - 1
            }))
        })
        .collect();
    for index in 0..batch.len() {
        if let Some(position) = positions[batch.partition_index(index)] {
            indices_by_task[position].1.push(index);
        }
    }
}
