//! A user's function, and the handler that runs it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::error::StepError;
use super::record::{Record, Reply};
use super::settings::Settings;
use super::steps::Steps;

/// A run of a function: returns the function's result, and gives its [`Steps`] back.
type RunFuture = Pin<Box<dyn Future<Output = (Result<Reply, StepError>, Steps)>>>;

/// A user's function, which does the work for a record.
#[derive(Clone)]
pub struct Function(pub(super) Arc<dyn Fn(Record, Steps) -> RunFuture + Send + Sync>);

impl Function {
    /// Wraps `function`. It must not block: all runs of a lane (one of the worker's threads that process records) share
    /// one other thread.
    pub fn new<F, R>(function: F) -> Self
    where
        F: AsyncFn(&Record, &mut Steps) -> Result<R, StepError> + Send + Sync + 'static,
        R: Into<Reply>,
    {
        let function = Arc::new(function);
        Self(Arc::new(move |record, mut steps| {
            let function = Arc::clone(&function);
            Box::pin(async move {
                let result = function(&record, &mut steps).await.map(Into::into);
                (result, steps)
            })
        }))
    }
}

/// A topology's handler, shared by all its lanes.
#[derive(Clone)]
pub struct Handler {
    pub(super) function: Function,
    pub(super) settings: Arc<Settings>,
}

impl Handler {
    /// A handler that runs this function for each record. Connects to nothing.
    pub fn new(function: Function, settings: Settings) -> Self {
        Self { function, settings: Arc::new(settings) }
    }
}
