//! Which CPUs are near each other, as the kernel tells it in files.
//!
//! Two CPUs are the nearer, the more of these they share. Usually a node has packages, but a large
//! package can also have several nodes; this order is right for both.
//!
//! | ring | they share |
//! |---|---|
//! | 0 | a last-level cache (a core complex; hyper-threads of a core too) |
//! | 1 | a package and a NUMA node |
//! | 2 | one of the two |
//! | 3 | nothing |
//!
//! A fact that the kernel does not tell counts as shared. A machine whose CPUs are all in one ring 0 is *flat*:
//! it has no topology worth asking for.

use std::path::{Path, PathBuf};
use std::{fs, sync::OnceLock};

use crate::engine::arch;
use crate::engine::atomic::Ordering;
use crate::engine::sys::shared::AtomicStatic;

/// As many as the kernel can have on x86-64; a number beyond it is none.
const MOST_CPUS: usize = 8192;

/// How many rings there are.
pub(crate) const RINGS: usize = 4;

pub(crate) struct Topology {
    /// By CPU number.
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    cache: usize,
    package: usize,
    node: usize,
}

/// The topology of this machine; none if it is flat, or before [`discover`]. Stored with Release, and loaded with Acquire.
pub(crate) static MACHINE: AtomicStatic<Topology> = AtomicStatic::none();

/// Looks at this machine, the first time. Reads files and allocates: the spawner does it.
pub(crate) fn discover() {
    static READ: OnceLock<Option<Topology>> = OnceLock::new();
    let read = || arch::tells_cpu().then(|| Topology::read(Path::new("/sys/devices/system")))?;
    // Release: pairs with the Acquire of those who ask.
    MACHINE.store(READ.get_or_init(read).as_ref(), Ordering::Release);
}

impl Topology {
    /// Reads the folders `cpu` and `node` in `root`. `None`: the machine is flat. Of CPUs that share a cache one is
    /// looked at, since reading a file takes the kernel some 20 µs, and there may be hundreds.
    pub(crate) fn read(root: &Path) -> Option<Topology> {
        let mut places: Vec<Option<Place>> = Vec::new();
        for (cpu, folder) in numbered(&root.join("cpu"), "cpu") {
            if places.get(cpu).is_some_and(Option::is_some) {
                continue;
            }
            let package = text(&folder.join("topology/physical_package_id"));
            // Index 3 is the third level's cache where data and instructions have separate caches on the
            // first level (indices 0 and 1).
            let sharers = text(&folder.join("cache/index3/shared_cpu_list")).unwrap_or_default();
            let place = Place {
                cache: list(&sharers).next().unwrap_or_default(),
                package: package.and_then(|id| id.parse().ok()).unwrap_or_default(),
                node: 0,
            };
            let sharers = list(&sharers).take_while(|&sharer| sharer < MOST_CPUS);
            for cpu in sharers.chain([cpu]) {
                places.resize(places.len().max(cpu + 1), None);
                places[cpu] = Some(place);
            }
        }
        for (node, folder) in numbered(&root.join("node"), "node") {
            for cpu in list(&text(&folder.join("cpulist")).unwrap_or_default()) {
                if let Some(Some(place)) = places.get_mut(cpu) {
                    place.node = node;
                }
            }
        }
        let mut known = places.iter().flatten();
        let first = known.next()?;
        if known.all(|place| place == first) {
            return None;
        }
        // Places of numbers that no CPU has are never asked for, so any value serves.
        let places = places.into_iter().map(Option::unwrap_or_default);
        Some(Topology {
            places: places.collect(),
        })
    }

    /// The ring about CPU `from` that CPU `to` lies in.
    pub(crate) fn ring(&self, from: usize, to: usize) -> usize {
        let (Some(from), Some(to)) = (self.places.get(from), self.places.get(to)) else {
            return RINGS - 1;
        };
        let package = from.package == to.package;
        match (package, from.node == to.node) {
            (true, true) if from.cache == to.cache => 0,
            (true, true) => 1,
            (true, false) | (false, true) => 2,
            (false, false) => 3,
        }
    }
}

/// The entries of a folder that are named `prefix` and a number.
fn numbered(folder: &Path, prefix: &'static str) -> impl Iterator<Item = (usize, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(move |entry| {
        let name = entry.file_name();
        let number = name.to_str()?.strip_prefix(prefix)?.parse().ok()?;
        Some((number, entry.path()))
    })
}

fn text(file: &Path) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.trim().to_owned())
}

/// The numbers in a list such as `0-3,8,10-11`.
fn list(text: &str) -> impl Iterator<Item = usize> {
    text.split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => first..last.saturating_add(1),
            _ => 0..0,
        }
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A folder that goes with the test.
    struct Tree(PathBuf);

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl Tree {
        fn new(name: &str) -> Tree {
            let name = format!("greenthread-topology-{name}-{}", std::process::id());
            Tree(std::env::temp_dir().join(name))
        }

        fn put(&self, file: String, text: String) {
            let file = self.0.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text + "\n").unwrap();
        }

        fn cpu(&self, cpu: usize, package: usize, caches: &[String]) {
            let folder = format!("cpu/cpu{cpu}");
            let id = format!("{folder}/topology/physical_package_id");
            self.put(id, package.to_string());
            for (level, cpus) in caches.iter().enumerate() {
                let cache = format!("{folder}/cache/index{level}");
                self.put(format!("{cache}/level"), level.to_string());
                self.put(format!("{cache}/shared_cpu_list"), cpus.clone());
            }
        }
    }

    /// 2 nodes × 2 packages × 2 caches × 2 cores × 2 hyper-threads; the second ones of the cores
    /// are numbered behind all first ones, as the kernel does.
    pub(crate) fn two_of_each() -> Topology {
        let tree = Tree::new("two-of-each");
        const CORES: usize = 16;
        for cpu in 0..2 * CORES {
            let core = cpu % CORES;
            let complex = core / 2 * 2;
            let siblings = format!("{core},{}", core + CORES);
            let shared = format!(
                "{complex}-{},{}-{}",
                complex + 1,
                complex + CORES,
                complex + 1 + CORES
            );
            let caches = [siblings.clone(), siblings.clone(), siblings, shared];
            tree.cpu(cpu, core / 4, &caches);
        }
        tree.put("cpu/online".into(), "0-31".into());
        tree.put("cpu/cpufreq/boost".into(), "1".into());
        tree.put("node/node0/cpulist".into(), "0-7,16-23".into());
        tree.put("node/node1/cpulist".into(), "8-15,24-31".into());
        Topology::read(&tree.0).unwrap()
    }

    #[test]
    fn rings_are_read() {
        let topology = two_of_each();
        let about = |cpu: usize| (0..32).map(|to| topology.ring(cpu, to)).collect::<Vec<_>>();
        let half = [0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3];
        assert_eq!(about(0), [half, half].concat());
        assert_eq!(about(17), about(0));
        let half = [3, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 0, 0];
        assert_eq!(about(31), [half, half].concat());
        // A CPU that came later.
        assert_eq!(topology.ring(0, 32), 3);
    }

    #[test]
    fn a_package_with_several_nodes() {
        let tree = Tree::new("several-nodes");
        for cpu in 0..8 {
            tree.cpu(cpu, cpu / 4, &[]);
        }
        for node in 0..4 {
            let cpus = format!("{}-{}", node * 2, node * 2 + 1);
            tree.put(format!("node/node{node}/cpulist"), cpus);
        }
        let topology = Topology::read(&tree.0).unwrap();
        let about: Vec<_> = (0..8).map(|to| topology.ring(2, to)).collect();
        assert_eq!(about, [2, 2, 0, 0, 3, 3, 3, 3]);
    }

    #[test]
    fn flat_machines_have_none() {
        let tree = Tree::new("flat");
        assert!(Topology::read(&tree.0).is_none(), "no files at all");
        for cpu in 0..4 {
            tree.cpu(cpu, 0, &["x".into(), "y".into(), "z".into(), "0-3".into()]);
        }
        tree.put("node/node0/cpulist".into(), "0-3".into());
        assert!(Topology::read(&tree.0).is_none());
        // This machine's, whatever it is.
        discover();
        if let Some(topology) = MACHINE.load(Ordering::Acquire) {
            assert_eq!(topology.ring(0, 0), 0);
        }
        assert!(arch::cpu() < 4096);
    }

    #[test]
    fn lists_are_read() {
        let all = |text| list(text).collect::<Vec<_>>();
        assert_eq!(all("0-3,8,10-11"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(all("5"), [5]);
        assert_eq!(all("").len() + all("a-b,-").len(), 0);
    }
}
