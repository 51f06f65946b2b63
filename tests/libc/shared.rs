//! The threads' primitives of C between processes, and robust mutexes: what becomes of a lock whose owner has ended.

#![cfg(all(
    feature = "unmodified",
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

use crate::common::directory::Directory;
use crate::common::pthread::*;
use crate::common::*;
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, AtomicU32};

unsafe extern "C" {
    fn pthread_mutexattr_setrobust(a: *mut pthread_mutexattr_t, robustness: c_int) -> c_int;
    fn pthread_mutex_consistent(m: *mut pthread_mutex_t) -> c_int;
    fn pthread_barrierattr_setpshared(a: *mut pthread_barrierattr_t, shared: c_int) -> c_int;
}

const ROBUST: c_int = 1;

/// Makes a mutex in place.
///
/// # Safety
/// A valid place.
unsafe fn make(at: *mut pthread_mutex_t, kind: c_int, robustness: c_int, shared: c_int) {
    let mut attributes = MaybeUninit::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: valid places.
    unsafe {
        assert_eq!(pthread_mutexattr_init(attributes), 0);
        assert_eq!(pthread_mutexattr_settype(attributes, kind), 0);
        assert_eq!(pthread_mutexattr_setrobust(attributes, robustness), 0);
        assert_eq!(pthread_mutexattr_setpshared(attributes, shared), 0);
        assert_eq!(pthread_mutex_init(at, attributes), 0);
    }
}

fn robust() -> Arc<Mutex> {
    let lock = Arc::new(mutex());
    // SAFETY: a valid place.
    unsafe {
        make(
            lock.at(),
            PTHREAD_MUTEX_NORMAL,
            ROBUST,
            PTHREAD_PROCESS_PRIVATE,
        )
    };
    lock
}

/// What two processes share.
#[repr(C)]
struct Page {
    mutexes: [pthread_mutex_t; 6],
    rwlock: pthread_rwlock_t,
    semaphore: sem_t,
    barrier: pthread_barrier_t,
    condition: pthread_cond_t,
    /// Of `condition`, under the first mutex.
    is_set: AtomicU32,
    /// How far the two have come.
    step: AtomicU32,
    ids: [[AtomicU32; 16]; 2],
}

const KINDS: [(c_int, c_int); 6] = [
    (PTHREAD_MUTEX_NORMAL, 0),
    (PTHREAD_MUTEX_RECURSIVE, 0),
    (PTHREAD_MUTEX_ERRORCHECK, 0),
    (PTHREAD_MUTEX_NORMAL, ROBUST),
    (PTHREAD_MUTEX_RECURSIVE, ROBUST),
    (PTHREAD_MUTEX_ERRORCHECK, ROBUST),
];

impl Page {
    fn map(file: &File) -> &'static Page {
        let access = PROT_READ | PROT_WRITE;
        // SAFETY: a new mapping of a file that is long enough; zeroes are a page.
        unsafe {
            let at = mmap(
                ptr::null_mut(),
                size_of::<Page>(),
                access,
                MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(at, MAP_FAILED);
            &*at.cast()
        }
    }

    /// Makes the objects in it.
    fn fill(&self) {
        const SHARED: c_int = PTHREAD_PROCESS_SHARED;
        // SAFETY: valid places; nobody uses them yet.
        unsafe {
            for (mutex, (kind, robustness)) in self.mutexes.iter().zip(KINDS) {
                make(ptr::from_ref(mutex).cast_mut(), kind, robustness, SHARED);
            }
            let mut attributes = MaybeUninit::uninit();
            pthread_rwlockattr_init(attributes.as_mut_ptr());
            pthread_rwlockattr_setpshared(attributes.as_mut_ptr(), SHARED);
            pthread_rwlock_init(self.rwlock(), attributes.as_ptr());
            let mut attributes = MaybeUninit::uninit();
            pthread_condattr_init(attributes.as_mut_ptr());
            pthread_condattr_setpshared(attributes.as_mut_ptr(), SHARED);
            pthread_cond_init(self.condition(), attributes.as_ptr());
            let mut attributes = MaybeUninit::uninit();
            pthread_barrierattr_init(attributes.as_mut_ptr());
            pthread_barrierattr_setpshared(attributes.as_mut_ptr(), SHARED);
            pthread_barrier_init(self.barrier(), attributes.as_ptr(), 2);
            sem_init(self.semaphore(), 1, 1);
        }
    }

    fn mutex(&self, i: usize) -> *mut pthread_mutex_t {
        (&raw const self.mutexes[i]).cast_mut()
    }
    fn rwlock(&self) -> *mut pthread_rwlock_t {
        (&raw const self.rwlock).cast_mut()
    }
    fn semaphore(&self) -> *mut sem_t {
        (&raw const self.semaphore).cast_mut()
    }
    fn barrier(&self) -> *mut pthread_barrier_t {
        (&raw const self.barrier).cast_mut()
    }
    fn condition(&self) -> *mut pthread_cond_t {
        (&raw const self.condition).cast_mut()
    }

    /// Both processes come to this step.
    fn meet(&self, step: &mut u32) {
        *step += 2;
        self.step.fetch_add(1, SeqCst);
        wait_until(|| self.step.load(SeqCst) >= *step);
    }

    /// One process comes to a step that the other one waits for.
    fn tell(&self) {
        self.step.fetch_add(1, SeqCst);
    }
}

/// A lock that one process holds while the other waits for it.
#[derive(Clone, Copy, Debug)]
enum Lock {
    Mutex(usize),
    Reading,
    Writing,
    Semaphore,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Try,
    Briefly,
    ForLong,
    ForEver,
}

impl Lock {
    const ALL: [Lock; 9] = [
        Lock::Mutex(0),
        Lock::Mutex(1),
        Lock::Mutex(2),
        Lock::Mutex(3),
        Lock::Mutex(4),
        Lock::Mutex(5),
        Lock::Reading,
        Lock::Writing,
        Lock::Semaphore,
    ];

    fn take(self, page: &Page, how: How) -> c_int {
        let limit = match how {
            How::Briefly => SHORT,
            _ => LONG,
        };
        let until = &after(CLOCK_REALTIME, limit);
        let answer = |failed: c_int| if failed == 0 { 0 } else { errno() };
        // SAFETY: objects of the page.
        unsafe {
            match (self, how) {
                (Lock::Mutex(i), How::Try) => pthread_mutex_trylock(page.mutex(i)),
                (Lock::Mutex(i), How::ForEver) => pthread_mutex_lock(page.mutex(i)),
                (Lock::Mutex(i), _) => pthread_mutex_timedlock(page.mutex(i), until),
                (Lock::Reading, How::Try) => pthread_rwlock_tryrdlock(page.rwlock()),
                (Lock::Reading, How::ForEver) => pthread_rwlock_rdlock(page.rwlock()),
                (Lock::Reading, _) => pthread_rwlock_timedrdlock(page.rwlock(), until),
                (Lock::Writing, How::Try) => pthread_rwlock_trywrlock(page.rwlock()),
                (Lock::Writing, How::ForEver) => pthread_rwlock_wrlock(page.rwlock()),
                (Lock::Writing, _) => pthread_rwlock_timedwrlock(page.rwlock(), until),
                (Lock::Semaphore, How::Try) => answer(sem_trywait(page.semaphore())),
                (Lock::Semaphore, How::ForEver) => answer(sem_wait(page.semaphore())),
                (Lock::Semaphore, _) => answer(sem_timedwait(page.semaphore(), until)),
            }
        }
    }

    fn give_back(self, page: &Page) {
        // SAFETY: objects of the page, which this thread holds.
        let answer = unsafe {
            match self {
                Lock::Mutex(i) => pthread_mutex_unlock(page.mutex(i)),
                Lock::Reading | Lock::Writing => pthread_rwlock_unlock(page.rwlock()),
                Lock::Semaphore => sem_post(page.semaphore()),
            }
        };
        assert_eq!(answer, 0, "{self:?}");
    }
}

/// What each of the two processes does; `me` is 0 in one, 1 in the other. All on one thread.
fn take_turns(page: &Page, me: usize) {
    let mut step = 0;
    for holder in [0, 1] {
        for lock in Lock::ALL {
            for how in [How::ForEver, How::ForLong] {
                page.meet(&mut step);
                step += 2; // two are told
                if me == holder {
                    let by = if let Lock::Reading = lock {
                        Lock::Writing
                    } else {
                        lock
                    };
                    assert_eq!(by.take(page, How::Try), 0, "{lock:?}");
                    page.tell();
                    wait_until(|| page.step.load(SeqCst) >= step);
                    // The other one is about to wait.
                    greenthread::sleep(Duration::from_millis(5));
                    by.give_back(page);
                } else {
                    wait_until(|| page.step.load(SeqCst) >= step - 1);
                    let busy = if let Lock::Semaphore = lock {
                        EAGAIN
                    } else {
                        EBUSY
                    };
                    assert_eq!(lock.take(page, How::Try), busy, "{lock:?}");
                    assert_eq!(lock.take(page, How::Briefly), ETIMEDOUT, "{lock:?}");
                    page.tell();
                    assert_eq!(lock.take(page, how), 0, "{lock:?} {how:?}");
                    lock.give_back(page);
                }
            }
        }
        for is_timed in [false, true] {
            page.meet(&mut step);
            wait_and_signal(page, me == holder, is_timed);
        }
        page.meet(&mut step);
        if me == holder {
            greenthread::sleep(Duration::from_millis(5));
        }
        // SAFETY: an object of the page.
        let answer = unsafe { pthread_barrier_wait(page.barrier()) };
        assert!([0, PTHREAD_BARRIER_SERIAL_THREAD].contains(&answer));
    }
}

/// One waits for the condition, the other signals it.
fn wait_and_signal(page: &Page, signals: bool, is_timed: bool) {
    let (mutex, condition) = (page.mutex(0), page.condition());
    // SAFETY: objects of the page.
    unsafe {
        if signals {
            wait_until(|| page.is_set.load(SeqCst) == 1);
            pthread_mutex_lock(mutex);
            page.is_set.store(0, SeqCst);
            pthread_cond_signal(condition);
            pthread_mutex_unlock(mutex);
        } else {
            pthread_mutex_lock(mutex);
            page.is_set.store(1, SeqCst);
            while page.is_set.load(SeqCst) == 1 {
                let answer = match is_timed {
                    true => pthread_cond_timedwait(condition, mutex, &after(CLOCK_REALTIME, LONG)),
                    false => pthread_cond_wait(condition, mutex),
                };
                assert_eq!(answer, 0);
            }
            pthread_mutex_unlock(mutex);
        }
    }
}

/// The ids by which libc's mutexes know sixteen threads that live at the same time.
fn write_ids(ids: &'static [AtomicU32; 16]) {
    let all = Arc::new(std::sync::Barrier::new(ids.len()));
    let threads: Vec<_> = ids
        .iter()
        .map(|id| {
            let all = all.clone();
            greenthread::spawn(move || {
                all.wait();
                id.store(own_id(), SeqCst);
                all.wait();
            })
        })
        .collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// What a mutex has in its third word while this thread holds it.
fn own_id() -> u32 {
    let lock = mutex();
    // SAFETY: a valid mutex, in glibc's layout.
    unsafe {
        pthread_mutex_lock(lock.at());
        let owner = lock.at().cast::<u32>().add(2).read();
        pthread_mutex_unlock(lock.at());
        owner
    }
}

/// A green thread of each of two processes waits for one of the other, by each kind of object.
#[test]
fn two_processes_share_each_kind() {
    const NAME: &str = "shared::two_processes_share_each_kind";
    let _w = watchdog(NAME);
    let open = |path: &std::path::Path| {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        file.unwrap()
    };
    if let Some(path) = child_case(NAME) {
        let page = Page::map(&open(path.as_ref()));
        write_ids(&page.ids[1]);
        return greenthread::spawn(move || take_turns(page, 1))
            .join()
            .unwrap();
    }
    let directory = Directory::new();
    let path = directory.path("page");
    let file = open(&path);
    file.set_len(size_of::<Page>() as u64).unwrap();
    let page = Page::map(&file);
    page.fill();
    let mut other = child_command(NAME, path.to_str().unwrap()).spawn().unwrap();
    write_ids(&page.ids[0]);
    greenthread::spawn(move || take_turns(page, 0))
        .join()
        .unwrap();
    assert!(other.wait().unwrap().success());
    let [mine, others] = [0, 1].map(|i| page.ids[i].each_ref().map(|id| id.load(SeqCst)));
    assert!(
        !mine.iter().any(|id| others.contains(id)),
        "{mine:x?} {others:x?}"
    );
}

/// Whoever waits for a robust mutex, on any thread, gets it when its owner has ended, however that ended.
#[test]
fn the_owner_of_a_robust_mutex_ends() {
    const NAME: &str = "shared::the_owner_of_a_robust_mutex_ends";
    let _w = watchdog(NAME);
    for panics in [false, true] {
        let locks = [robust(), robust(), robust()];
        let (held, end) = (
            Arc::new(AtomicI32::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let owner = greenthread::spawn({
            let (locks, held, end) = (locks.clone(), held.clone(), end.clone());
            move || {
                // SAFETY: valid mutexes. One of them is given back.
                unsafe {
                    locks
                        .iter()
                        .for_each(|lock| assert_eq!(pthread_mutex_lock(lock.at()), 0));
                    assert_eq!(pthread_mutex_unlock(locks[1].at()), 0);
                }
                held.store(1, SeqCst);
                wait_until(|| end.load(SeqCst));
                if panics {
                    std::panic::resume_unwind(Box::new(()));
                }
            }
        });
        wait_until(|| held.load(SeqCst) == 1);
        let take = {
            let (lock, held) = (locks[0].clone(), held.clone());
            move || {
                held.fetch_add(1, SeqCst);
                // SAFETY: a valid mutex.
                unsafe {
                    let answer = pthread_mutex_lock(lock.at());
                    if answer == EOWNERDEAD {
                        assert_eq!(pthread_mutex_consistent(lock.at()), 0);
                    }
                    assert_eq!(pthread_mutex_unlock(lock.at()), 0);
                    answer
                }
            }
        };
        let waiters = [
            greenthread::spawn(take.clone()),
            greenthread::spawn(take.clone()),
        ];
        let kernel = std::thread::spawn(take);
        wait_until(|| held.load(SeqCst) == 4);
        greenthread::sleep(Duration::from_millis(5));
        end.store(true, SeqCst);
        assert_eq!(owner.join().is_err(), panics);
        let mut answers = waiters.map(|waiter| waiter.join().unwrap()).to_vec();
        answers.push(kernel.join().unwrap());
        answers.sort_unstable();
        assert_eq!(answers, [0, 0, EOWNERDEAD]);
        // SAFETY: valid mutexes.
        unsafe {
            assert_eq!(pthread_mutex_trylock(locks[1].at()), 0);
            assert_eq!(pthread_mutex_unlock(locks[1].at()), 0);
            assert_eq!(pthread_mutex_trylock(locks[2].at()), EOWNERDEAD);
            // Not made consistent: nobody gets it any more.
            assert_eq!(pthread_mutex_unlock(locks[2].at()), 0);
            let answers = greenthread::spawn({
                let lock = locks[2].clone();
                move || [0; 2].map(|_| pthread_mutex_lock(lock.at()))
            });
            assert_eq!(answers.join().unwrap(), [ENOTRECOVERABLE; 2]);
            assert_eq!(pthread_mutex_trylock(locks[2].at()), ENOTRECOVERABLE);
        }
    }
}

/// A thread that ends with robust mutexes leaves nothing to the next thread on its thread-local block, be their memory
/// there or not.
#[test]
fn the_next_thread_holds_no_robust_mutex() {
    const NAME: &str = "shared::the_next_thread_holds_no_robust_mutex";
    if child_case(NAME).is_none() {
        return assert_code(&child(NAME, ""), 0);
    }
    let runtime = runtime(1);
    let page = || {
        let (access, kind) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        unsafe { mmap(ptr::null_mut(), 4096, access, kind, -1, 0) as usize }
    };
    let lock = |at: usize| {
        // SAFETY: a valid mutex.
        let thread = runtime.spawn(move || unsafe { pthread_mutex_lock(at as *mut _) });
        thread.join().unwrap()
    };
    let make_at = |at: usize| {
        // SAFETY: a valid place.
        unsafe {
            make(
                at as *mut _,
                PTHREAD_MUTEX_NORMAL,
                ROBUST,
                PTHREAD_PROCESS_PRIVATE,
            )
        };
    };
    for is_gone_when_it_ends in [false, true] {
        let (first, second) = (page(), page());
        make_at(first);
        make_at(second);
        let gone = move || {
            // SAFETY: nobody uses the page but libc, if it is wrong.
            unsafe { munmap(first as *mut _, 4096) };
        };
        let owner = runtime.spawn(move || {
            // SAFETY: a valid mutex.
            assert_eq!(unsafe { pthread_mutex_lock(first as *mut _) }, 0);
            if is_gone_when_it_ends {
                gone();
            }
        });
        owner.join().unwrap();
        if !is_gone_when_it_ends {
            assert_eq!(lock(first), EOWNERDEAD);
            gone();
        }
        assert_eq!(lock(second), 0);
        for _ in 0..4 {
            assert_eq!(lock(second), EOWNERDEAD);
        }
    }
    runtime.shutdown();
}
