//! Where the records of threads come from, and where they go to be used again.
//!
//! A record outlives its thread: a late signal, the monitor, or a policy's link may still point to
//! it. So records are never freed. They are made some at a time, kept by each processor as they
//! fall free, and handed from the processors where threads end to those where they are spawned in
//! batches, through a list with a lock.
//!
//! Invariant: a free record is in one list, linked by `next`; its owner is the list's.

use std::io;

use super::Green;
use crate::sys::lock::Lock;

/// Records that move between a processor and the list at a time, and that are made at a time.
const BATCH: usize = 32;

static FREE: Lock<List> = Lock::new(List::new());

struct List {
    head: Option<&'static Green>,
}

// SAFETY: a list owns the records in it.
unsafe impl Send for List {}

impl List {
    const fn new() -> List {
        List { head: None }
    }

    fn push(&mut self, green: &'static Green) {
        green.next.set(self.head.replace(green));
    }

    fn pop(&mut self) -> Option<&'static Green> {
        let green = self.head?;
        self.head = green.next.take();
        Some(green)
    }
}

/// A processor's free records.
pub(crate) struct Records {
    list: List,
    len: usize,
}

impl Records {
    const MOST: usize = 2 * BATCH;

    pub(crate) const fn new() -> Records {
        Records {
            list: List::new(),
            len: 0,
        }
    }

    /// A record for a new thread, if one is free.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<&'static Green> {
        if self.len == 0 {
            self.fetch();
        }
        let green = self.list.pop()?;
        self.len -= 1;
        Some(green)
    }

    /// Keeps the record of a thread that has ended.
    #[inline]
    pub(crate) fn push(&mut self, green: &'static Green) {
        if self.len == Self::MOST {
            self.give(BATCH);
        }
        self.list.push(green);
        self.len += 1;
    }

    /// Gives all to the common list.
    pub(crate) fn drain(&mut self) {
        self.give(self.len);
    }

    #[cold]
    fn fetch(&mut self) {
        let mut free = FREE.lock();
        while self.len < BATCH
            && let Some(green) = free.pop()
        {
            self.list.push(green);
            self.len += 1;
        }
    }

    #[cold]
    fn give(&mut self, count: usize) {
        let mut free = FREE.lock();
        for green in (0..count).map_while(|_| self.list.pop()) {
            free.push(green);
            self.len -= 1;
        }
    }
}

/// A record for a new thread. Allocates when none is free: call it preemptible.
pub(crate) fn create() -> io::Result<&'static Green> {
    let free = || {
        let _off = crate::current::preemption_off();
        FREE.lock().pop()
    };
    match free() {
        Some(green) => Ok(green),
        None => make(),
    }
}

/// Takes back a record that no processor keeps. The caller has preemption off.
pub(crate) fn release(green: &'static Green) {
    FREE.lock().push(green);
}

fn make() -> io::Result<&'static Green> {
    let mut made = Vec::new();
    made.try_reserve_exact(BATCH)
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    made.extend((0..BATCH).map(|_| Green::new()));
    let (mine, others) = match made.leak().split_first() {
        Some(made) => made,
        None => crate::sys::die("a batch of records is empty"),
    };
    let _off = crate::current::preemption_off();
    let mut free = FREE.lock();
    others.iter().for_each(|green| free.push(green));
    Ok(mine)
}
