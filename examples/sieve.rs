//! Prime numbers by a chain of threads, one for each prime found: each passes on the numbers that its
//! prime does not divide. It is Hoare's and McIlroy's sieve, known from the tour of Go.
//!
//! ```sh
//! cargo run --release --example sieve -- 2000
//! ```

use greenthread::channel::{Receiver, Sender, bounded};

/// Passes on the numbers that `prime` does not divide, until the receiver is dropped.
fn filter(prime: u32, input: Receiver<u32>, output: Sender<u32>) {
    for number in input {
        if number % prime != 0 && output.send(number).is_err() {
            return;
        }
    }
}

/// The first `count` primes.
fn primes(count: usize) -> Vec<u32> {
    let (numbers, mut input) = bounded(16);
    greenthread::spawn(move || (2..).try_for_each(|number| numbers.send(number)));
    let mut found = Vec::with_capacity(count);
    for _ in 0..count {
        let prime = input.recv().expect("there is always another prime");
        found.push(prime);
        let (output, next_input) = bounded(16);
        let rest = std::mem::replace(&mut input, next_input);
        greenthread::spawn(move || filter(prime, rest, output));
    }
    // Dropping the last receiver ends the last filter, which ends the one before, and so on.
    found
}

fn main() {
    let count = match std::env::args().nth(1).map(|argument| argument.parse()) {
        None => 1000,
        Some(Ok(count)) => count,
        Some(Err(error)) => {
            eprintln!("sieve [HOW MANY PRIMES]: {error}");
            std::process::exit(2);
        }
    };
    // In a green thread, so that the whole chain hands over without a kernel thread in between.
    let found = greenthread::spawn(move || primes(count)).join().unwrap();
    for (index, prime) in found.iter().enumerate() {
        let is_prime = (2..)
            .take_while(|d| d * d <= *prime)
            .all(|d| prime % d != 0);
        assert!(is_prime, "number {index}, {prime}, is no prime");
    }
    println!("{count} primes, the last is {:?}", found.last());
}
