//! How many CPUs this process may use: by affinity, and by the quotas of its cgroups.
//!
//! A quota is CPU time per period, so many CPUs on average; the smallest of the process's own
//! cgroup and all above it counts, rounded down, as in std, but at least 1. Versions 1 and 2 of
//! cgroups are read, wherever they are mounted; what cannot be read or understood limits nothing.
//!
//! | | version 1 | version 2 |
//! |---|---|---|
//! | line in `/proc/self/cgroup` | `4:cpu,cpuacct:/path` | `0::/path` |
//! | mounted as | `cgroup` with option `cpu` | `cgroup2` |
//! | quota and period | `cpu.cfs_quota_us` (-1: none), `cpu.cfs_period_us` | `cpu.max`: `max 100000` |
//!
//! Everything is read below a `root`, so that tests can make up a machine. It allocates and blocks:
//! only ordinary threads call it.

use std::fs::read_to_string;
use std::path::Path;

/// CPUs that this thread, and by quota this process, may use: at least one.
pub(crate) fn cpus(root: &Path) -> usize {
    affinity().min(quota(root).unwrap_or(usize::MAX)).max(1)
}

/// How many CPUs the calling thread may run on.
fn affinity() -> usize {
    // As many as the kernel can be built for.
    let mut mask = [0u64; 8192 / 64];
    let (size, place) = (size_of_val(&mask), mask.as_mut_ptr() as usize);
    // SAFETY: the kernel writes at most `size` bytes to the mask. 0: this thread.
    match unsafe { super::call(libc::SYS_sched_getaffinity, &[0, size, place]) } {
        Ok(_) => mask.iter().map(|word| word.count_ones() as usize).sum(),
        Err(_) => 1,
    }
}

/// The smallest quota, in whole CPUs; `None`: there is none.
pub(crate) fn quota(root: &Path) -> Option<usize> {
    let groups = read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = read_to_string(root.join("proc/self/mountinfo")).ok()?;
    groups
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter_map(|(controllers, path)| {
            let version = match controllers {
                "" => Version::Two,
                _ if controllers.split(',').any(|name| name == "cpu") => Version::One,
                _ => return None,
            };
            let mount = mounts.lines().find_map(|line| version.mount(line))?;
            smallest(root, version, &mount, path)
        })
        .min()
}

/// Where a hierarchy of cgroups is mounted, and which cgroup is the mount's root.
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
}

#[derive(Clone, Copy)]
enum Version {
    One,
    Two,
}

impl Version {
    /// The mount that `line` of `/proc/self/mountinfo` describes, if it is the right one.
    fn mount(self, line: &str) -> Option<Mount<'_>> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let mount = Mount {
            root: place.next()?,
            point: place.next()?,
        };
        let mut kind = kind.split(' ');
        let name = kind.next()?;
        let mut options = kind.nth(1)?.split(',');
        let is_right = match self {
            Version::One => name == "cgroup" && options.any(|option| option == "cpu"),
            Version::Two => name == "cgroup2",
        };
        is_right.then_some(mount)
    }

    /// The quota in microseconds, and the period.
    fn read(self, group: &Path) -> Option<(u64, u64)> {
        let read = |file| read_to_string(group.join(file)).ok();
        match self {
            Version::One => Some((
                read("cpu.cfs_quota_us")?.trim().parse().ok()?,
                read("cpu.cfs_period_us")?.trim().parse().ok()?,
            )),
            Version::Two => {
                let text = read("cpu.max")?;
                let (quota, period) = text.trim().split_once(' ')?;
                Some((quota.parse().ok()?, period.parse().ok()?))
            }
        }
    }
}

/// The smallest quota of the cgroup at `path` and those above it, up to the mount's root.
fn smallest(root: &Path, version: Version, mount: &Mount<'_>, path: &str) -> Option<usize> {
    // In a container the mount's root may be below the hierarchy's; then `path` begins with it.
    let path = Path::new(path);
    let inside = path
        .strip_prefix(mount.root)
        .or(path.strip_prefix("/"))
        .ok()?;
    let top = root.join(mount.point.trim_start_matches('/'));
    let own = top.join(inside);
    own.ancestors()
        .take_while(|group| group.starts_with(&top))
        .filter_map(|group| version.read(group))
        .filter_map(|(quota, period)| quota.checked_div(period))
        .map(|cpus| (cpus as usize).max(1))
        .min()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    /// A directory that looks like a machine's root.
    struct Machine(PathBuf);

    impl Machine {
        fn new(name: &str) -> Machine {
            let unique = format!("greenthread-{name}-{}", std::process::id());
            Machine(std::env::temp_dir().join(unique))
        }

        fn write(&self, file: &str, text: &str) -> &Machine {
            let path = self.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        fn quota(&self) -> Option<usize> {
            super::quota(&self.0)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const SECOND: &str = "25 20 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
    const FIRST: &str = "20 1 0:19 / / rw - ext4 /dev/vda rw\n\
        30 20 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
        31 20 0:27 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";

    #[test]
    fn the_second_version() {
        let machine = Machine::new("second");
        assert_eq!(machine.quota(), None);
        machine
            .write("proc/self/cgroup", "0::/work/job\n")
            .write("proc/self/mountinfo", SECOND);
        assert_eq!(machine.quota(), None);
        let group = "sys/fs/cgroup/work/job/cpu.max";
        machine.write(group, "max 100000\n");
        assert_eq!(machine.quota(), None);
        for (text, cpus) in [
            ("400000 100000\n", 4),
            ("399999 100000", 3),
            ("1000 100000", 1),
            ("100000 50000", 2),
        ] {
            assert_eq!(machine.write(group, text).quota(), Some(cpus), "{text}");
        }
        // Those above count too.
        machine.write(group, "700000 100000");
        machine.write("sys/fs/cgroup/work/cpu.max", "500000 100000");
        assert_eq!(machine.quota(), Some(5));
        machine.write("sys/fs/cgroup/cpu.max", "300000 100000");
        assert_eq!(machine.quota(), Some(3));
        // What is above the mount is not a cgroup.
        machine.write("sys/fs/cpu.max", "100000 100000");
        assert_eq!(machine.quota(), Some(3));
    }

    #[test]
    fn the_first_version() {
        let machine = Machine::new("first");
        let group = "sys/fs/cgroup/cpu,cpuacct/job/";
        machine
            .write(
                "proc/self/cgroup",
                "5:cpuset:/other\n4:cpu,cpuacct:/job\n0::/\n",
            )
            .write("proc/self/mountinfo", FIRST)
            .write(&format!("{group}cpu.cfs_quota_us"), "-1\n")
            .write(&format!("{group}cpu.cfs_period_us"), "100000\n");
        assert_eq!(machine.quota(), None);
        machine.write(&format!("{group}cpu.cfs_quota_us"), "250000\n");
        assert_eq!(machine.quota(), Some(2));
        machine.write(
            "proc/self/mountinfo",
            &FIRST.replace("/ /sys/fs/cgroup/cpu,", "/docker /sys/fs/cgroup/cpu,"),
        );
        machine.write("proc/self/cgroup", "4:cpu,cpuacct:/docker/job\n");
        assert_eq!(machine.quota(), Some(2));
    }

    #[test]
    fn what_makes_no_sense_limits_nothing() {
        let machine = Machine::new("nonsense");
        machine
            .write("proc/self/cgroup", "nonsense\n0::/\n:::\n")
            .write("proc/self/mountinfo", &format!("more nonsense\n{SECOND}"))
            .write("sys/fs/cgroup/cpu.max", "many few");
        assert_eq!(machine.quota(), None);
        assert_eq!(
            machine.write("sys/fs/cgroup/cpu.max", "100000 0").quota(),
            None
        );
    }

    #[test]
    fn this_machine_has_a_cpu() {
        let std = std::thread::available_parallelism().unwrap().get();
        assert_eq!(super::cpus(Path::new("/")), std);
    }
}
