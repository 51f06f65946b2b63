//! Hello world by a task: when `main` began, and the task.

#[path = "../clock.rs"]
mod clock;

fn main() {
    let began = clock::now();
    // `#[tokio::main]` makes the same runtime.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let task = runtime.block_on(async { tokio::spawn(async { clock::now() }).await });
    println!("{began} {}", task.unwrap());
}
