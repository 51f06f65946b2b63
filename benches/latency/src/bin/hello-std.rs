//! Hello world by a kernel thread: when `main` began, and the thread.

#[path = "../clock.rs"]
mod clock;

fn main() {
    let began = clock::now();
    let thread = std::thread::spawn(clock::now);
    println!("{began} {}", thread.join().unwrap());
}
