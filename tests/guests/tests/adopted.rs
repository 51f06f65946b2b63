//! Crates that start threads of std's, unmodified: inside [`adopt`] these threads are green.
//!
//! Each test brings hundreds or thousands of a crate's threads to a point where all of them wait, counts the kernel
//! threads of the process then ([`are_green`]), and lets them go on. The threads' ends, names, stacks and
//! thread-locals are checked on the way, as are the crate's answers.

use greenthread::net::TcpStream as OurStream;
use greenthread::thread::adopt;
use r2d2::ManageConnection;
use rayon::prelude::*;
use scheduled_thread_pool::{OnPoolDropBehavior, ScheduledThreadPool};
use std::any::Any;
use std::cell::OnceCell;
use std::hint::black_box;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use support::http::Connection;
use support::{Test, descriptors, green, kernel_threads, some};

/// Kernel threads while all wait.
const BOUND: usize = 40;

/// Longer than a test may take: what waits so long waits for something else.
const LONG: Duration = Duration::from_secs(1_000);

/// Runs a test, whose threads are adopted.
fn adopted(name: &'static str, seconds: u64, body: impl FnOnce(&Test)) {
    let test = Test::new(name, seconds);
    adopt(|| body(&test)).unwrap();
    test.report();
}

/// At least `n` threads of std's are alive, and all of them wait: few kernel threads are there.
fn are_green(test: &Test, n: usize) {
    if green() {
        test.all_wait(BOUND);
    } else {
        assert!(kernel_threads() > n);
    }
}

/// Threads come here, and wait until they may go on.
#[derive(Default)]
struct Gate {
    state: Mutex<Passage>,
    comes: Condvar,
    opens: Condvar,
}

#[derive(Default)]
struct Passage {
    /// How many threads have come so far.
    come: usize,
    /// How many more may go on.
    free: usize,
}

/// Of [`Passage::free`]: the gate is open.
const OPEN: usize = usize::MAX;

impl Gate {
    fn new() -> Arc<Gate> {
        Arc::default()
    }

    fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.come += 1;
        self.comes.notify_one();
        let mut state = self.opens.wait_while(state, |now| now.free == 0).unwrap();
        if state.free != OPEN {
            state.free -= 1;
        }
    }

    /// Waits until `n` threads have come.
    fn have_come(&self, n: usize) {
        let state = self.state.lock().unwrap();
        drop(self.comes.wait_while(state, |now| now.come < n).unwrap());
    }

    /// Lets one thread go on.
    fn admit(&self) {
        self.state.lock().unwrap().free += 1;
        self.opens.notify_one();
    }

    fn open(&self) {
        self.state.lock().unwrap().free = OPEN;
        self.opens.notify_all();
    }
}

/// Opens a gate in the end, also where a check has failed before.
struct Opens<'gate>(&'gate Gate);

impl Drop for Opens<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A count of living threads. A thread that has called [`Living::me`] belongs to it until its thread-locals are
/// destroyed.
#[derive(Clone, Default)]
struct Living(Arc<AtomicUsize>);

impl Living {
    fn me(&self) {
        thread_local!(static MINE: OnceCell<Alive> = const { OnceCell::new() });
        MINE.with(|mine| {
            mine.get_or_init(|| {
                self.0.fetch_add(1, Relaxed);
                Alive(self.clone())
            });
        });
    }

    fn count(&self) -> usize {
        self.0.load(Relaxed)
    }
}

struct Alive(Living);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Relaxed);
    }
}

/// Panics without a message.
fn quiet_panic() -> ! {
    resume_unwind(Box::new("quiet"))
}

fn is_quiet(panic: &(dyn Any + Send)) -> bool {
    panic.downcast_ref() == Some(&"quiet")
}

/// 0 + 1 + … + (n - 1)
fn sum(n: usize) -> usize {
    n * (n - 1) / 2
}

/// Uses so many bytes of stack, and some more.
fn use_stack(bytes: usize) {
    fn descend(top: usize, bytes: usize) {
        let frame = black_box([0u8; 4096]);
        if top - frame.as_ptr().addr() < bytes {
            descend(top, bytes);
        }
        black_box(&frame);
    }
    let top = 0u8;
    descend((&raw const top).addr(), bytes);
}

/// Whether the process may have `n` descriptors. Says so if not.
fn has_descriptors(n: usize) -> bool {
    let limit = descriptors();
    let enough = limit >= n;
    if !enough {
        eprintln!("SKIPPED: {n} descriptors are needed, and the limit is {limit}");
    }
    enough
}

/// Some threads answer requests, each connection has a thread of tiny_http's, and the clients are threads of std's as
/// well. All clients hold their connections at once. They send requests one after the other, and two at a time.
#[test]
fn tiny_http() {
    const HANDLERS: usize = 16;
    let n = some(1_000, 100);
    if !has_descriptors(3 * n + 200) {
        return;
    }
    adopted("tiny_http", 120, |test| {
        let server = Arc::new(tiny_http::Server::http("127.0.0.1:0").unwrap());
        let address = server.server_addr().to_ip().unwrap();
        let handlers: Vec<_> = (0..HANDLERS)
            .map(|_| {
                let server = server.clone();
                thread::spawn(move || answer_requests(&server))
            })
            .collect();
        let (gate, turn) = (Gate::new(), Arc::new(Mutex::new(())));
        let clients: Vec<_> = (0..n)
            .map(|i| {
                let (gate, turn) = (gate.clone(), turn.clone());
                thread::spawn(move || ask_tiny_http(address, i, &turn, &gate))
            })
            .collect();
        gate.have_come(n);
        are_green(test, 2 * n + HANDLERS);
        gate.open();
        clients.into_iter().for_each(|t| t.join().unwrap());
        handlers.iter().for_each(|_| server.unblock());
        let answered: usize = handlers.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(answered, n * (1 + 3 + 2 + 1));
    });
}

/// Returns how many requests it has answered.
fn answer_requests(server: &tiny_http::Server) -> usize {
    let mut answered = 0;
    while let Ok(mut request) = server.recv() {
        let mut body = Vec::new();
        request.as_reader().read_to_end(&mut body).unwrap();
        let answer = format!("{} got {} bytes: ", request.url(), body.len());
        let data = [answer.as_bytes(), &body].concat();
        request
            .respond(tiny_http::Response::from_data(data))
            .unwrap();
        answered += 1;
    }
    answered
}

/// The client with number `i`. Those that connect take turns: tiny_http gives two connections that come at once to
/// one idle thread, and then the second one waits until the first one is closed.
fn ask_tiny_http(address: SocketAddr, i: usize, turn: &Mutex<()>, gate: &Gate) {
    let body = |request: usize| format!("{request} of {i} ").repeat(1 + (i * request) % 700);
    let path = |request: usize| format!("/{i}/{request}");
    let right = |request: usize| {
        let (path, body) = (path(request), body(request));
        format!("{path} got {} bytes: {body}", body.len()).into_bytes()
    };
    let ours = turn.lock().unwrap();
    let mut connection = Connection::new(TcpStream::connect(address).unwrap());
    assert!(connection.request(&path(0), body(0).as_bytes()) == right(0));
    drop(ours);
    gate.pass();
    for request in 1..4 {
        assert!(connection.request(&path(request), body(request).as_bytes()) == right(request));
    }
    connection.send(&path(4), body(4).as_bytes());
    connection.send(&path(5), body(5).as_bytes());
    assert!(connection.answer() == right(4));
    assert!(connection.answer() == right(5));
    // The server answers a last request when the client says no more, and then closes.
    connection.send(&path(6), body(6).as_bytes());
    let shut = connection.stream().shutdown(std::net::Shutdown::Write);
    shut.unwrap();
    assert!(connection.answer() == right(6));
    assert_eq!(connection.stream().read(&mut [0]).unwrap(), 0);
}

/// Thousands of connections are held, each with a thread of the server's; then each has a request in flight, which is
/// one more thread. The clients are greenthread's own.
#[test]
fn rouille() {
    let n = some(5_000, 100);
    if !has_descriptors(3 * n + 200) {
        return;
    }
    adopted("rouille", 240, |test| {
        let gate = Gate::new();
        let held = gate.clone();
        let server = rouille::Server::new("127.0.0.1:0", move |request| {
            let mut body = String::new();
            let mut data = request.data().unwrap();
            data.read_to_string(&mut body).unwrap();
            match request.url().as_str() {
                "/held" => held.pass(),
                "/panics" => quiet_panic(),
                _ => (),
            }
            rouille::Response::text(format!("{} got {body}", request.url()))
        })
        .unwrap();
        let address = server.server_addr();
        let over = Arc::new(AtomicBool::new(false));
        let stop = over.clone();
        // Without a pool rouille starts a thread for each request.
        let server = thread::spawn(move || {
            while !stop.load(Relaxed) {
                server.poll_timeout(Duration::from_millis(10));
            }
            server.join();
        });
        let request = |connection: &mut Connection<OurStream>, path: &str, body: &str| {
            let answer = connection.request(path, body.as_bytes());
            assert_eq!(
                String::from_utf8(answer).unwrap(),
                format!("{path} got {body}")
            );
        };

        // As with tiny_http, on which rouille is built, clients connect one after the other.
        let connect = greenthread::spawn(move || {
            let client = |i| {
                let mut connection = Connection::new(OurStream::connect(address).unwrap());
                request(&mut connection, &format!("/first/{i}"), "");
                connection
            };
            (0..n).map(client).collect::<Vec<_>>()
        });
        let connections = connect.join().unwrap();
        are_green(test, n);

        let clients: Vec<_> = connections
            .into_iter()
            .enumerate()
            .map(|(i, mut connection)| {
                greenthread::spawn(move || {
                    request(&mut connection, "/held", &format!("body {i}"));
                    for turn in 0..3 {
                        let body = format!("{turn} of {i} ").repeat(1 + i % 50);
                        request(&mut connection, "/echo", &body);
                    }
                    connection
                })
            })
            .collect();
        gate.have_come(n);
        are_green(test, 2 * n);
        gate.open();
        let mut connections: Vec<_> = clients.into_iter().map(|t| t.join().unwrap()).collect();

        // A handler that panics is a server's error; its client, and others, are served afterwards.
        let ask = greenthread::spawn(move || {
            let connection = &mut connections[n / 2];
            connection.send("/panics", b"");
            assert_eq!(connection.any_answer().0, 500);
            connections
                .iter_mut()
                .enumerate()
                .for_each(|(i, connection)| request(connection, "/last", &i.to_string()));
        });
        ask.join().unwrap();
        over.store(true, Relaxed);
        server.join().unwrap();
    });
}

/// Ten thousand jobs, of which some panic; and a pool that becomes smaller and larger.
#[test]
fn threadpool() {
    const JOBS: usize = 10_000;
    const STACK: usize = 4 << 20;
    let n = some(500, 100);
    let few = n / 5;
    adopted("threadpool", 120, |test| {
        let mut pool = threadpool::Builder::new()
            .num_threads(n)
            .thread_name("of the pool".into())
            .thread_stack_size(STACK)
            .build();
        let done = Arc::new(AtomicUsize::new(0));
        let panics = |i: usize| i.is_multiple_of(50);
        for i in 0..JOBS {
            let done = done.clone();
            pool.execute(move || {
                if panics(i) {
                    quiet_panic();
                }
                done.fetch_add(i, Relaxed);
            });
        }
        pool.join();
        let panicking = || (0..JOBS).filter(|i| panics(*i));
        assert_eq!(done.load(Relaxed), sum(JOBS) - panicking().sum::<usize>());
        // The pool counts a panic after it has said that no job is left.
        test.until(|| pool.panic_count() >= panicking().count());
        assert_eq!(pool.panic_count(), panicking().count());
        assert_eq!((pool.active_count(), pool.queued_count()), (0, 0));

        // As many jobs as threads wait at a gate; others took the places of those that panicked.
        let living = Living::default();
        let wait = |pool: &threadpool::ThreadPool, jobs: usize| {
            let gate = Gate::new();
            for i in 0..jobs {
                let (gate, living) = (gate.clone(), living.clone());
                pool.execute(move || {
                    assert_eq!(thread::current().name(), Some("of the pool"));
                    if i.is_multiple_of(50) {
                        use_stack(STACK * 3 / 4);
                    }
                    living.me();
                    gate.pass();
                });
            }
            gate.have_come(jobs);
            gate
        };
        let gate = wait(&pool, n);
        assert_eq!((living.count(), pool.active_count()), (n, n));
        are_green(test, n);

        // Threads that are too many end after their jobs.
        pool.set_num_threads(few);
        assert_eq!(pool.max_count(), few);
        for ended in 1..=n - few {
            gate.admit();
            test.until(|| living.count() <= n - ended);
            assert_eq!(living.count(), n - ended);
        }
        gate.open();
        pool.join();
        let gate = wait(&pool, few);
        pool.execute(|| ());
        assert_eq!((living.count(), pool.active_count()), (few, few));
        assert_eq!(pool.queued_count(), 1);
        gate.open();
        pool.join();

        pool.set_num_threads(2 * n);
        let gate = wait(&pool, 2 * n);
        assert_eq!((living.count(), pool.active_count()), (2 * n, 2 * n));
        are_green(test, 2 * n);
        gate.open();
        pool.join();
        let expected = panicking().count();
        assert_eq!(pool.panic_count(), expected, "in a job with an assertion");
        drop(pool);
        test.until(|| living.count() == 0);
    });
}

/// Jobs at their times, again and again, and cancelled ones.
#[test]
fn scheduled_thread_pool() {
    let n = some(500, 100);
    adopted("scheduled-thread-pool", 120, |test| {
        let new = |threads| {
            ScheduledThreadPool::builder()
                .num_threads(threads)
                .thread_name_pattern("scheduled {}")
                .on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled)
                .build()
        };
        let pool = new(n);
        let (gate, living) = (Gate::new(), Living::default());
        let (tell, told) = mpsc::channel();
        for i in 0..n {
            let (gate, living, tell) = (gate.clone(), living.clone(), tell.clone());
            let delay = Duration::from_millis((n - i) as u64 / 4);
            let start = Instant::now();
            pool.execute_after(delay, move || {
                assert!(start.elapsed() >= delay);
                living.me();
                gate.pass();
                let name = thread::current().name().unwrap().to_owned();
                tell.send(name).unwrap();
            });
        }
        drop(tell);
        gate.have_come(n);
        assert_eq!(living.count(), n);
        are_green(test, n);
        gate.open();
        let mut names: Vec<_> = told.iter().collect();
        let mut all: Vec<_> = (0..n).map(|i| format!("scheduled {i}")).collect();
        names.sort();
        all.sort();
        assert_eq!(names, all);

        for times in [at_fixed_rate(&pool), with_fixed_delay(&pool)] {
            assert!(times >= TIMES);
        }
        // What returns no time is over; what panics, too, but for its thread.
        let (tell, told) = mpsc::channel();
        pool.execute_at_dynamic_rate(Duration::ZERO, move || {
            tell.send(()).unwrap();
            None
        });
        assert_eq!(told.iter().count(), 1);
        let (tell, told) = mpsc::channel();
        for _ in 0..2 * n {
            let tell = tell.clone();
            pool.execute_at_fixed_rate(Duration::ZERO, Duration::from_millis(1), move || {
                tell.send(()).unwrap();
                quiet_panic();
            });
        }
        drop(tell);
        assert_eq!(told.iter().count(), 2 * n);
        cancelled_before(&pool, n);

        // Those that are discarded are dropped.
        let (tell, told) = mpsc::channel::<()>();
        pool.execute_after(LONG, move || tell.send(()).unwrap());
        drop(pool);
        assert!(told.recv().is_err());
        test.until(|| living.count() == 0);
    });
}

/// A job that repeats is cancelled after so many times.
const TIMES: usize = 20;

/// Returns how often the job ran.
fn at_fixed_rate(pool: &ScheduledThreadPool) -> usize {
    let (first, rate) = (Duration::from_millis(5), Duration::from_millis(2));
    let (tell, told) = mpsc::channel();
    let start = Instant::now();
    let job = pool.execute_at_fixed_rate(first, rate, move || tell.send(Instant::now()).unwrap());
    let earliest = |i: usize| start + first + rate * i as u32;
    cancel_after(&told, || job.cancel(), |i, at, _| at >= earliest(i))
}

/// Returns how often the job ran.
fn with_fixed_delay(pool: &ScheduledThreadPool) -> usize {
    let (first, delay) = (Duration::from_millis(5), Duration::from_millis(2));
    let (tell, told) = mpsc::channel();
    let job =
        pool.execute_with_fixed_delay(first, delay, move || tell.send(Instant::now()).unwrap());
    cancel_after(
        &told,
        || job.cancel(),
        |_, at, before| before.is_none_or(|before: Instant| at >= before + delay),
    )
}

/// Cancels a job that says when it runs. It runs once more at most, and is dropped then. Its times are `right`, by
/// their number and the time before.
fn cancel_after(
    told: &mpsc::Receiver<Instant>,
    cancel: impl FnOnce(),
    right: impl Fn(usize, Instant, Option<Instant>) -> bool,
) -> usize {
    let mut times: Vec<_> = told.iter().take(TIMES).collect();
    cancel();
    times.extend(told.try_iter());
    let before = times.len();
    times.extend(told.iter());
    assert!(
        times.len() <= before + 1,
        "it runs although it is cancelled"
    );
    for (i, at) in times.iter().enumerate() {
        let before = i.checked_sub(1).map(|i| times[i]);
        assert!(right(i, *at, before), "number {i} is early");
    }
    times.len()
}

/// All `n` threads are busy when a job comes, and when it is cancelled.
fn cancelled_before(pool: &ScheduledThreadPool, n: usize) {
    let gate = Gate::new();
    for _ in 0..n {
        let gate = gate.clone();
        pool.execute(move || gate.pass());
    }
    gate.have_come(n);
    let (tell, told) = mpsc::channel();
    for i in 0..100 {
        let tell = tell.clone();
        let job = pool.execute(move || tell.send(i).unwrap());
        if i % 2 == 0 {
            job.cancel();
        }
    }
    drop(tell);
    gate.open();
    let mut run: Vec<_> = told.iter().collect();
    run.sort();
    assert_eq!(run, (0..100).filter(|i| i % 2 == 1).collect::<Vec<_>>());
}

/// A pool with many threads, all of which wait at once, steal from each other, and sleep.
#[test]
fn rayon() {
    let n = 200;
    adopted("rayon", 120, |test| {
        let (living, ended) = (Living::default(), Arc::new(AtomicUsize::new(0)));
        let (start, end) = (living.clone(), ended.clone());
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(n)
            .thread_name(|i| format!("rayon {i}"))
            .start_handler(move |_| start.me())
            .exit_handler(move |_| {
                end.fetch_add(1, Relaxed);
            })
            .build()
            .unwrap();
        let gate = Gate::new();
        let held = gate.clone();
        pool.spawn_broadcast(move |thread| {
            let name = format!("rayon {}", thread.index());
            assert_eq!(thread::current().name(), Some(name.as_str()));
            held.pass();
        });
        gate.have_come(n);
        assert_eq!(living.count(), n);
        are_green(test, n);
        gate.open();

        let numbers: Vec<usize> = (0..100_000).collect();
        pool.install(|| {
            assert_eq!(numbers.par_iter().sum::<usize>(), sum(numbers.len()));
            let mut backwards: Vec<_> = numbers.par_iter().rev().copied().collect();
            backwards.par_sort_unstable();
            assert!(backwards == numbers);
            assert_eq!(fibonacci(18), 2_584);
        });
        assert_eq!(scopes(&pool), 50 * 21);
        panics(&pool);
        // They sleep, or will soon.
        are_green(test, n);
        drop(pool);
        test.until(|| living.count() == 0);
        assert_eq!(ended.load(Relaxed), n);
    });
}

fn fibonacci(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = rayon::join(|| fibonacci(n - 1), || fibonacci(n - 2));
    a + b
}

/// Tasks that spawn tasks, with borrowed data. Returns how many there were.
fn scopes(pool: &rayon::ThreadPool) -> usize {
    let tasks = AtomicUsize::new(0);
    pool.scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|scope| {
                tasks.fetch_add(1, Relaxed);
                for _ in 0..20 {
                    scope.spawn(|_| {
                        thread::yield_now();
                        tasks.fetch_add(1, Relaxed);
                    });
                }
            });
        }
    });
    tasks.into_inner()
}

/// Panics come to who waits for the tasks, and the pool goes on.
fn panics(pool: &rayon::ThreadPool) {
    let caught = |what: &(dyn Fn() + Sync)| {
        let panic = catch_unwind(AssertUnwindSafe(|| pool.install(what)));
        assert!(is_quiet(&*panic.unwrap_err()));
    };
    let tasks = AtomicUsize::new(0);
    for _ in 0..20 {
        caught(&|| {
            rayon::join(|| tasks.fetch_add(1, Relaxed), || quiet_panic());
        });
        caught(&|| {
            (0..1_000).into_par_iter().for_each(|i| {
                if i == 777 {
                    quiet_panic();
                }
            });
        });
        caught(&|| {
            rayon::scope(|scope| {
                for i in 0..100 {
                    let tasks = &tasks;
                    scope.spawn(move |_| {
                        if i % 10 == 3 {
                            quiet_panic();
                        }
                        tasks.fetch_add(1, Relaxed);
                    });
                }
            });
        });
    }
    // A scope's other tasks run all the same.
    assert_eq!(tasks.into_inner(), 20 * (1 + 90));
}

/// A thousand threads that borrow, of which some panic and some start others.
#[test]
fn crossbeam_scope() {
    let n = some(1_000, 200);
    let (panics, starts) = (|i: usize| i % 100 == 7, |i: usize| i.is_multiple_of(10));
    adopted("crossbeam::scope", 120, |test| {
        let numbers: Vec<usize> = (0..n).collect();
        let (gate, living) = (Gate::default(), Living::default());
        let total = AtomicUsize::new(0);
        let started = numbers.iter().filter(|i| starts(**i)).count();
        let ended = crossbeam::scope(|scope| {
            let (gate, living, total) = (&gate, &living, &total);
            // The scope waits for its threads.
            let opens = Opens(gate);
            let mut threads = Vec::new();
            for (i, number) in numbers.iter().enumerate() {
                let builder = scope.builder().name(format!("scoped {i}"));
                let thread = builder.spawn(move |scope| {
                    living.me();
                    if starts(i) {
                        scope.spawn(move |_| {
                            living.me();
                            gate.pass();
                            total.fetch_add(1_000_000, Relaxed);
                        });
                    }
                    gate.pass();
                    assert_eq!(thread::current().name(), Some(&*format!("scoped {i}")));
                    // With the hook's message.
                    assert!(!panics(i), "{i} panics, as it shall");
                    total.fetch_add(*number, Relaxed);
                    *number
                });
                threads.push(thread.unwrap());
            }
            gate.have_come(n + started);
            assert_eq!(living.count(), n + started);
            are_green(test, n + started);
            drop(opens);
            // The scope joins the others.
            for (i, thread) in threads.drain(..n / 2).enumerate() {
                let answer = thread.join();
                if panics(i) {
                    let message = answer.unwrap_err();
                    let message = message.downcast_ref::<String>().unwrap();
                    assert_eq!(*message, format!("{i} panics, as it shall"));
                } else {
                    assert_eq!(answer.unwrap(), i);
                }
            }
        });
        let left = numbers[n / 2..].iter().filter(|i| panics(**i)).count();
        let panicked = ended.unwrap_err();
        let panicked = panicked.downcast::<Vec<Box<dyn Any + Send>>>().unwrap();
        assert_eq!(panicked.len(), left);
        let sum: usize = numbers.iter().filter(|i| !panics(**i)).sum();
        assert_eq!(total.into_inner(), sum + started * 1_000_000);
        // A join waits for the end of thread-locals, too.
        assert_eq!(living.count(), 0);

        let answer = crossbeam::thread::scope(|scope| {
            let thread = scope.spawn(|_| numbers.len());
            thread.join().unwrap()
        });
        assert_eq!(answer.unwrap(), n);
    });
}

/// Makes connections. It knows how many have been opened and closed, and by which threads.
#[derive(Clone, Debug, Default)]
struct Manager {
    openers: Arc<Mutex<Vec<String>>>,
    closers: Arc<Mutex<Vec<String>>>,
}

impl Manager {
    fn opened(&self) -> usize {
        self.openers.lock().unwrap().len()
    }

    fn closed(&self) -> usize {
        self.closers.lock().unwrap().len()
    }
}

fn note_this_thread(threads: &Mutex<Vec<String>>) {
    let name = thread::current().name().unwrap_or_default().to_owned();
    threads.lock().unwrap().push(name);
}

/// All of them belong to r2d2.
fn are_workers(threads: &Mutex<Vec<String>>) {
    for name in &*threads.lock().unwrap() {
        assert!(name.starts_with("r2d2-worker-"), "{name:?}");
    }
}

#[derive(Debug, Default)]
struct Link {
    manager: Manager,
    is_invalid: bool,
    is_broken: bool,
}

impl ManageConnection for Manager {
    type Connection = Link;
    type Error = std::io::Error;

    fn connect(&self) -> Result<Link, std::io::Error> {
        note_this_thread(&self.openers);
        Ok(Link {
            manager: self.clone(),
            ..Link::default()
        })
    }

    fn is_valid(&self, link: &mut Link) -> Result<(), std::io::Error> {
        if link.is_invalid {
            Err(std::io::Error::other("it is not valid"))
        } else {
            Ok(())
        }
    }

    fn has_broken(&self, link: &mut Link) -> bool {
        link.is_broken
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        note_this_thread(&self.manager.closers);
    }
}

/// Many threads share ten connections, some of which break, on a pool whose own threads make them.
#[test]
fn r2d2() {
    const LINKS: usize = 10;
    const IDLE: u32 = 3;
    const TURNS: usize = 20;
    let n = 200;
    adopted("r2d2", 120, |test| {
        let manager = Manager::default();
        let counts = || (manager.opened(), manager.closed());
        let pool = r2d2::Pool::builder()
            .max_size(LINKS as u32)
            .min_idle(Some(IDLE))
            .idle_timeout(None)
            .max_lifetime(None)
            .connection_timeout(LONG)
            .build(manager.clone())
            .unwrap();
        let state = |pool: &r2d2::Pool<Manager>| {
            let state = pool.state();
            (state.connections, state.idle_connections)
        };
        assert_eq!(state(&pool), (IDLE, IDLE));
        let first = pool.get().unwrap();
        test.until(|| state(&pool) == (IDLE + 1, IDLE));

        let held: Vec<_> = [first]
            .into_iter()
            .chain((1..LINKS).map(|_| pool.get().unwrap()))
            .collect();
        assert_eq!(state(&pool), (LINKS as u32, 0));
        assert!(pool.try_get().is_none());
        let late = pool.get_timeout(Duration::from_millis(20)).unwrap_err();
        assert_eq!(late.to_string(), "timed out waiting for connection");
        assert_eq!(counts(), (LINKS, 0));

        let users = Arc::new([const { AtomicUsize::new(0) }; 3]);
        let threads: Vec<_> = (0..n)
            .map(|i| {
                let (pool, users) = (pool.clone(), users.clone());
                thread::spawn(move || use_links(&pool, i, TURNS, &users))
            })
            .collect();
        let [begun, using, most] = &*users;
        test.until(|| begun.load(Relaxed) == n);
        are_green(test, n);
        assert_eq!(most.load(Relaxed), 0);
        drop(held);
        let spoilt: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
        let most = most.load(Relaxed);
        eprintln!("r2d2: {most} connections used at once, {spoilt} spoilt");
        assert!((1..=LINKS).contains(&most) && using.load(Relaxed) == 0);

        // A connection that is not valid any more is found when it is wanted.
        let all: Vec<_> = (0..LINKS).map(|_| pool.get().unwrap()).collect();
        assert_eq!(counts(), (LINKS + spoilt, spoilt));
        drop(all);
        assert_eq!(state(&pool), (LINKS as u32, LINKS as u32));
        drop(pool);
        // A worker may have made the last one, and still have the pool.
        test.until(|| manager.closed() == manager.opened());
        are_workers(&manager.openers);
    });
}

/// Takes a connection and gives it back, again and again. Counts the threads that have begun, those that have a
/// connection, and how many of these there were at most. Returns how many connections it has spoilt.
fn use_links(
    pool: &r2d2::Pool<Manager>,
    i: usize,
    turns: usize,
    [begun, using, most]: &[AtomicUsize; 3],
) -> usize {
    begun.fetch_add(1, Relaxed);
    let mut spoilt = 0;
    for turn in 0..turns {
        let mut link = pool.get().unwrap();
        most.fetch_max(using.fetch_add(1, Relaxed) + 1, Relaxed);
        assert!(!link.is_invalid && !link.is_broken);
        thread::yield_now();
        match (i + turn) % 50 {
            7 => link.is_broken = true,
            9 => link.is_invalid = true,
            _ => (),
        }
        spoilt += usize::from(link.is_broken || link.is_invalid);
        using.fetch_sub(1, Relaxed);
    }
    spoilt
}

/// A pool's threads close connections that nobody has used, and make new ones.
#[test]
#[cfg_attr(
    not(feature = "servers"),
    ignore = "r2d2 looks for them every thirty seconds"
)]
fn r2d2_reaps() {
    const LINKS: usize = 10;
    const IDLE: usize = 2;
    let workers = some(200, 50);
    adopted("r2d2, with idle connections", 120, |test| {
        let threads = ScheduledThreadPool::builder()
            .num_threads(workers)
            .thread_name_pattern("r2d2-worker-{}")
            .on_drop_behavior(OnPoolDropBehavior::DiscardPendingScheduled)
            .build();
        let manager = Manager::default();
        let pool = r2d2::Pool::builder()
            .max_size(LINKS as u32)
            .min_idle(Some(IDLE as u32))
            .idle_timeout(Some(Duration::from_millis(1)))
            .connection_timeout(LONG)
            .thread_pool(Arc::new(threads))
            .build(manager.clone())
            .unwrap();
        let held: Vec<_> = (0..LINKS).map(|_| pool.get().unwrap()).collect();
        are_green(test, workers);
        assert_eq!((manager.opened(), manager.closed()), (LINKS, 0));
        drop(held);
        test.until(|| manager.closed() >= LINKS);
        test.until(|| pool.state().idle_connections as usize == IDLE);
        assert!(manager.opened() >= LINKS + IDLE);
        are_workers(&manager.openers);
        are_workers(&manager.closers);
        drop(pool);
        test.until(|| manager.closed() == manager.opened());
    });
}
