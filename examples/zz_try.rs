use greenthread as gt;
use std::time::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    match a.get(1).map(|s| s.as_str()).unwrap_or("basic") {
        "basic" => {
            println!("{}", gt::spawn(|| 6 * 7).join().unwrap());
            println!("{:?}", gt::runtime::Runtime::global());
            let hs: Vec<_> = (0..1000)
                .map(|i| {
                    gt::spawn(move || {
                        for _ in 0..10 {
                            gt::yield_now();
                        }
                        i
                    })
                })
                .collect();
            let s: usize = hs.into_iter().map(|h| h.join().unwrap()).sum();
            println!("{s} {:?}", gt::runtime::Runtime::global().metrics());
            let t = Instant::now();
            gt::spawn(|| gt::sleep(Duration::from_millis(20)))
                .join()
                .unwrap();
            println!("sleep {:?}", t.elapsed());
            let h = gt::Builder::new()
                .name("bob".into())
                .spawn(|| panic!("boo"))
                .unwrap();
            println!("{:?}", h.join().unwrap_err().downcast_ref::<&str>());
        }
        "hog" => {
            use std::sync::atomic::*;
            static STOP: AtomicBool = AtomicBool::new(false);
            let hogs: Vec<_> = (0..4)
                .map(|_| {
                    gt::spawn(|| {
                        let mut n = 0u64;
                        while !STOP.load(Ordering::Relaxed) {
                            n += 1;
                        }
                        n
                    })
                })
                .collect();
            let mut l = vec![];
            for _ in 0..200 {
                let t = Instant::now();
                gt::spawn(|| ()).join().unwrap();
                l.push(t.elapsed().as_micros());
            }
            l.sort();
            println!("p50 {} p99 {} max {}", l[100], l[198], l[199]);
            STOP.store(true, Ordering::Relaxed);
            for h in hogs {
                h.join().unwrap();
            }
            println!("{:?}", gt::runtime::Runtime::global().metrics());
        }
        "sleep" => {
            gt::spawn(|| ()).join().unwrap();
            for _ in 0..5 {
                let t = Instant::now();
                let hs: Vec<_> = (0..64)
                    .map(|_| gt::spawn(|| std::thread::sleep(Duration::from_millis(100))))
                    .collect();
                for h in hs {
                    h.join().unwrap();
                }
                println!("{:?}", t.elapsed());
            }
            println!("{:?}", gt::runtime::Runtime::global().metrics());
        }
        "perf" => {
            let p: usize = a.get(2).map_or(2, |s| s.parse().unwrap());
            let rt = gt::runtime::Builder::new().processors(p).build().unwrap();
            for _ in 0..3 {
                rt.spawn(|| {
                    let n = 200_000u32;
                    let t = Instant::now();
                    for _ in 0..n {
                        gt::spawn(|| ()).join().unwrap();
                    }
                    println!("spawn+join {} ns", t.elapsed().as_nanos() / n as u128);
                })
                .join()
                .unwrap();
                for k in [2u64, 10, 1000] {
                    rt.spawn(move || {
                        let n = 2_000_000 / k;
                        let t = Instant::now();
                        let hs: Vec<_> = (0..k)
                            .map(|_| {
                                gt::spawn(move || {
                                    for _ in 0..n {
                                        gt::yield_now()
                                    }
                                })
                            })
                            .collect();
                        for h in hs {
                            h.join().unwrap();
                        }
                        println!(
                            "yield {k}: {:.1} ns",
                            t.elapsed().as_nanos() as f64 / (n * k) as f64
                        );
                    })
                    .join()
                    .unwrap();
                }
                rt.spawn(|| {
                    let n = 200_000;
                    let me = gt::current();
                    let h = gt::spawn(move || {
                        for _ in 0..n {
                            gt::park();
                            me.unpark();
                        }
                    });
                    let t = Instant::now();
                    for _ in 0..n {
                        h.thread().unpark();
                        gt::park();
                    }
                    println!("ping-pong {} ns", t.elapsed().as_nanos() / n);
                    h.join().unwrap();
                })
                .join()
                .unwrap();
            }
            println!("{:?}", rt.metrics());
            rt.shutdown();
        }
        "y" => {
            let k: u64 = a[2].parse().unwrap();
            let rt = gt::runtime::Builder::new().processors(1).build().unwrap();
            let mut best = f64::MAX;
            for _ in 0..20 {
                best = best.min(
                    rt.spawn(move || {
                        let n = 2_000_000 / k;
                        let t = Instant::now();
                        let hs: Vec<_> = (0..k)
                            .map(|_| {
                                gt::spawn(move || {
                                    for _ in 0..n {
                                        gt::yield_now()
                                    }
                                })
                            })
                            .collect();
                        for h in hs {
                            h.join().unwrap();
                        }
                        t.elapsed().as_nanos() as f64 / (n * k) as f64
                    })
                    .join()
                    .unwrap(),
                );
            }
            println!("yield {k}: best {best:.1} ns");
        }
        "s" => {
            let rt = gt::runtime::Builder::new().processors(1).build().unwrap();
            let mut best = u128::MAX;
            for _ in 0..20 {
                best = best.min(
                    rt.spawn(|| {
                        let n = 200_000u32;
                        let t = Instant::now();
                        for _ in 0..n {
                            gt::spawn(|| ()).join().unwrap();
                        }
                        t.elapsed().as_nanos() / n as u128
                    })
                    .join()
                    .unwrap(),
                );
            }
            println!("spawn+join best {best} ns");
        }
        "million" => {
            let n: usize = a.get(2).map_or(1_000_000, |s| s.parse().unwrap());
            let rss = || {
                std::fs::read_to_string("/proc/self/statm")
                    .unwrap()
                    .split(' ')
                    .nth(1)
                    .unwrap()
                    .parse::<usize>()
                    .unwrap()
                    * 4096
            };
            gt::spawn(|| ()).join().unwrap();
            let r0 = rss();
            let t = Instant::now();
            use std::sync::atomic::*;
            static P: AtomicUsize = AtomicUsize::new(0);
            let hs: Vec<_> = (0..n)
                .map(|i| {
                    gt::spawn(move || {
                        P.fetch_add(1, Ordering::SeqCst);
                        gt::park();
                        i
                    })
                })
                .collect();
            while P.load(Ordering::SeqCst) < n {
                std::thread::sleep(Duration::from_millis(1));
            }
            println!(
                "parked {:?} rss each {} maps {}",
                t.elapsed(),
                (rss() - r0) / n,
                std::fs::read_to_string("/proc/self/maps")
                    .unwrap()
                    .lines()
                    .count()
            );
            let t = Instant::now();
            for h in &hs {
                h.thread().unpark();
            }
            println!("woke {:?}", t.elapsed());
            let mut s = 0;
            for h in hs {
                s += h.join().unwrap();
            }
            println!("{s} {:?}", t.elapsed());
        }
        _ => {}
    }
}
