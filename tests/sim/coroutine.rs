//! Code that is written as if it had a thread of its own, and runs until it waits: a stackful coroutine.
//!
//! Exactly one runs at a time on a thread. Dropping one that waits unwinds it, so that what it holds is dropped.

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::judge::heard;

type Yield = Yielder<(), ()>;

thread_local! {
    /// How the coroutine that runs now gives way.
    static RUNNING: Cell<Option<NonNull<Yield>>> = const { Cell::new(None) };
    /// Stacks of coroutines that have ended: what making and giving back one takes is half of what many a task does.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

/// Address space, taken when it is touched: RocksDB runs on it.
const STACK_BYTES: usize = 512 << 10;

/// A coroutine.
pub struct Strand(Option<Coroutine<(), (), (), DefaultStack>>);

impl Strand {
    /// One that will run `body`.
    pub fn new(body: impl FnOnce() + 'static) -> Self {
        let used = STACKS.with_borrow_mut(Vec::pop);
        let stack = used.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("there is address space for a stack"));
        Self(Some(Coroutine::with_stack(stack, move |yielder, ()| {
            RUNNING.set(Some(NonNull::from(yielder)));
            body();
        })))
    }

    /// Runs it until it gives way or ends; `true` if it has ended.
    pub fn resume(&mut self) -> bool {
        let coroutine = self.0.as_mut().expect("it is there until it is dropped");
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

/// Lets the coroutine that runs now wait until it is resumed.
pub fn give_way() {
    let yielder = RUNNING.get().expect("only coroutines wait");
    heard::waits();
    // SAFETY: it was set by the coroutine that runs now, on whose stack this call is, and lives as long as that.
    unsafe { yielder.as_ref() }.suspend(());
    RUNNING.set(Some(yielder));
}
