//! Code written as if it had its own thread, which runs until it waits: a stackful coroutine.
//!
//! Only one runs at a time on a thread. Dropping a waiting one unwinds it, so that what it holds is dropped.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::judge::heard;

type Yield = Yielder<(), ()>;

thread_local! {
    /// The yielder of the running coroutine.
    static RUNNING: Cell<Option<NonNull<Yield>>> = const { Cell::new(None) };
    /// Stacks of ended coroutines: allocating and freeing one is half the cost of many tasks.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Address space, committed when it is touched: RocksDB runs on it.
const STACK_BYTES: usize = 512 << 10;

/// A coroutine.
pub struct Strand(Option<Coroutine<(), (), (), DefaultStack>>);

impl Strand {
    /// A coroutine that will run `body`.
    pub fn new(body: impl FnOnce() + 'static) -> Self {
        let used = STACKS.with_borrow_mut(Vec::pop);
        let stack = used.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("there is address space for a stack"));
        Self(Some(Coroutine::with_stack(stack, move |yielder, ()| {
            RUNNING.set(Some(NonNull::from(yielder)));
            body();
        })))
    }

    /// Runs it until it yields or ends; `true` if it has ended.
    pub fn resume(&mut self) -> bool {
        let coroutine = self.0.as_mut().expect("it exists until it is dropped");
        let ended = matches!(coroutine.resume(()), CoroutineResult::Return(()));
        RUNNING.set(None);
        ended
    }
}

impl Drop for Strand {
    fn drop(&mut self) {
        let Some(mut coroutine) = self.0.take() else { return };
        coroutine.force_unwind();
        STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()));
    }
}

/// Suspends the running coroutine until it is resumed.
pub fn give_way() {
    let yielder = RUNNING.get().expect("only coroutines wait");
    heard::waits();
    // SAFETY: it was set by the running coroutine, on whose stack this call is, and lives as long as that coroutine.
    unsafe { yielder.as_ref() }.suspend(());
    RUNNING.set(Some(yielder));
}
