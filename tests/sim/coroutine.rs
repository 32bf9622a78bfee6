//! Code that is written as if it had a thread of its own, and runs until it waits: a stackful coroutine.
//!
//! Exactly one runs at a time on a thread. Dropping one that waits unwinds it, so that what it holds is dropped.

use std::cell::Cell;
use std::ptr::NonNull;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

type Yield = Yielder<(), ()>;

thread_local! {
    /// How the coroutine that runs now gives way.
    static RUNNING: Cell<Option<NonNull<Yield>>> = const { Cell::new(None) };
}

/// Address space, taken when it is touched: RocksDB runs on it.
const STACK_BYTES: usize = 512 << 10;

/// A coroutine.
pub struct Strand(Coroutine<(), (), (), DefaultStack>);

impl Strand {
    /// One that will run `body`.
    pub fn new(body: impl FnOnce() + 'static) -> Self {
        let stack = DefaultStack::new(STACK_BYTES).expect("there is address space for a stack");
        Self(Coroutine::with_stack(stack, move |yielder, ()| {
            RUNNING.set(Some(NonNull::from(yielder)));
            body();
        }))
    }

    /// Runs it until it gives way or ends; `true` if it has ended.
    pub fn resume(&mut self) -> bool {
        let ended = matches!(self.0.resume(()), CoroutineResult::Return(()));
        RUNNING.set(None);
        ended
    }
}

/// Lets the coroutine that runs now wait until it is resumed.
pub fn give_way() {
    let yielder = RUNNING.get().expect("only coroutines wait");
    // SAFETY: it was set by the coroutine that runs now, on whose stack this call is, and lives as long as that.
    unsafe { yielder.as_ref() }.suspend(());
    RUNNING.set(Some(yielder));
}
