//! A map whose keys are numbers, and the order of items by numbers.
//!
//! std's maps and sorts are generic: each use with types of its own puts another 3 to 8 KB of code into the program. These
//! here use std's code with one type each, whatever they hold.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};

/// Where the value of a number lies among the entries.
type Places = HashMap<u64, u32, Hashing>;
type Hashing = BuildHasherDefault<DefaultHasher>;

/// A number that differs, in all likelihood, if the value does.
pub(super) fn digest(value: impl Hash) -> u64 {
    Hashing::default().hash_one(value)
}

/// Values by number, in the order in which they came.
pub(super) struct NumberMap<V> {
    places: Places,
    pub(super) entries: Vec<(u64, V)>,
}

impl<V> Default for NumberMap<V> {
    fn default() -> NumberMap<V> {
        let (places, entries) = Default::default();
        NumberMap { places, entries }
    }
}

impl<V> NumberMap<V> {
    pub(super) fn get(&self, number: u64) -> Option<&V> {
        let place = find(&self.places, number)?;
        Some(&self.entries[place].1)
    }

    /// The value of `number`, which is `new` if there is none yet.
    pub(super) fn or_insert(&mut self, number: u64, new: V) -> &mut V {
        let place = self.place(number, |_| true, || new);
        &mut self.entries[place].1
    }

    /// The place of the value that `is_it`, whose digest is `number`. Another value with the same digest has the next
    /// number. If there is no such value yet, it is `new`.
    pub(super) fn place(
        &mut self,
        mut number: u64,
        is_it: impl Fn(&V) -> bool,
        new: impl FnOnce() -> V,
    ) -> usize {
        loop {
            let place = find_or_insert(&mut self.places, number, self.entries.len());
            match self.entries.get(place) {
                Some((_, value)) if is_it(value) => return place,
                Some(_) => number = number.wrapping_add(1),
                None => {
                    self.entries.push((number, new()));
                    return place;
                }
            }
        }
    }
}

#[inline(never)]
fn find(places: &Places, number: u64) -> Option<usize> {
    places.get(&number).map(|&place| place as usize)
}

#[inline(never)]
fn find_or_insert(places: &mut Places, number: u64, new: usize) -> usize {
    *places.entry(number).or_insert(new as u32) as usize
}

/// The places of items with these keys, from the lowest key on. Items with the same key stay in their order.
pub(super) fn order(keys: &mut dyn Iterator<Item = u64>) -> Vec<usize> {
    let mut order: Vec<(u64, u32)> = keys.zip(0..).collect();
    order.sort_unstable();
    let places = order.into_iter().map(|(_, place)| place as usize);
    places.collect()
}

/// Puts an item where it belongs among the `most` items of the greatest weights, which begin with the greatest.
pub(super) fn insert<T>(items: &mut Vec<(u64, T)>, weight: u64, item: T, most: usize) {
    let place = items.partition_point(|&(other, _)| other >= weight);
    if place < most {
        items.insert(place, (weight, item));
        items.truncate(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_one_digest_are_told_apart() {
        let mut map = NumberMap::default();
        let mut place = |text: &str| map.place(7, |known| known == text, || text.to_string());
        assert_eq!(
            [place("a"), place("b"), place("a"), place("c")],
            [0, 1, 0, 2]
        );
        assert_eq!(map.or_insert(8, "a".into()), "b");
        assert_eq!(map.get(9).map(String::as_str), Some("c"));
        assert!(map.get(10).is_none());
    }

    #[test]
    fn items_have_their_order() {
        assert_eq!(order(&mut [3, 1, 3, 2, 1].into_iter()), [1, 4, 3, 0, 2]);
        let mut items = Vec::new();
        for (weight, name) in [(3, 'a'), (9, 'b'), (3, 'c'), (5, 'd'), (1, 'e')] {
            insert(&mut items, weight, name, 3);
        }
        assert_eq!(items, [(9, 'b'), (5, 'd'), (3, 'a')]);
    }
}
