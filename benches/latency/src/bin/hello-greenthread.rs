//! Hello world by a green thread: when `main` began, and the thread.

#[path = "../clock.rs"]
mod clock;

fn main() {
    let began = clock::now();
    let thread = greenthread::spawn(clock::now);
    println!("{began} {}", thread.join().unwrap());
}
