//! A bank: mutexes, always locked in the same order, and condition variables for customers who wait
//! until an account holds enough.
//!
//! ```sh
//! cargo run --release --example bank
//! ```

use greenthread::sync::{Condvar, Mutex};
use rand::{RngExt, SeedableRng, rngs::SmallRng};

const ACCOUNTS: usize = 100;
const CUSTOMERS: u64 = 10_000;
const START: u64 = 1_000;

#[derive(Default)]
struct Account {
    balance: Mutex<u64>,
    paid_in: Condvar,
}

impl Account {
    fn deposit(&self, amount: u64) {
        *self.balance.lock().unwrap() += amount;
        self.paid_in.notify_all();
    }

    /// Waits until `amount` is there, and takes it.
    fn withdraw(&self, amount: u64) -> u64 {
        let balance = self.balance.lock().unwrap();
        *self.paid_in.wait_while(balance, |b| *b < amount).unwrap() -= amount;
        amount
    }
}

/// Moves money in one step if it is there: both accounts are locked at once.
fn transfer(bank: &[Account], from: usize, to: usize, amount: u64) -> bool {
    let mut low = bank[from.min(to)].balance.lock().unwrap();
    let mut high = bank[from.max(to)].balance.lock().unwrap();
    if from > to {
        std::mem::swap(&mut low, &mut high);
    }
    let (mut giver, mut taker) = (low, high);
    if *giver < amount {
        return false;
    }
    *giver -= amount;
    *taker += amount;
    bank[to].paid_in.notify_all();
    true
}

/// Tries twenty transfers between accounts chosen at random.
fn customer(bank: &[Account], seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    for _ in 0..20 {
        let from = random.random_range(0..ACCOUNTS);
        let to = (from + random.random_range(1..ACCOUNTS)) % ACCOUNTS;
        transfer(bank, from, to, random.random_range(1..=START / 10));
    }
}

pub(crate) fn main() {
    let bank: &[Account] = &std::array::from_fn::<_, ACCOUNTS, _>(|_| Account::default());
    let pay_everybody = |amount| bank.iter().for_each(|account| account.deposit(amount));
    let spent: u64 = greenthread::scope(|s| {
        let save = |account| s.spawn(move || Account::withdraw(account, 3 * START));
        let savers: Vec<_> = bank.iter().map(save).collect();
        pay_everybody(START);
        let come = |seed| s.spawn(move || customer(bank, seed));
        let customers: Vec<_> = (0..CUSTOMERS).map(come).collect();
        customers.into_iter().for_each(|c| c.join().unwrap());
        pay_everybody(3 * START);
        savers.into_iter().map(|saver| saver.join().unwrap()).sum()
    });
    let left: u64 = bank.iter().map(|a| *a.balance.lock().unwrap()).sum();
    assert_eq!(spent + left, 4 * START * ACCOUNTS as u64);
    println!("{CUSTOMERS} customers, {spent} saved, {left} left: no money was lost");
}
