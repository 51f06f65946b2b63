//! Parts of the library's files: a protocol that shares its file with other things. There a part begins with the
//! line `// ==== name ====`, and ends where the next one begins. (The simulator's build uses this, too.)

/// The text of the parts with these names.
pub(super) fn cut(text: &str, names: &[&str]) -> String {
    let mut found = String::new();
    let (mut inside, mut count) = (false, 0);
    for line in text.lines() {
        let name = line.strip_prefix("// ==== ");
        if let Some(name) = name.and_then(|name| name.strip_suffix(" ====")) {
            inside = names.contains(&name);
            count += usize::from(inside);
        } else if inside {
            found += line;
            found += "\n";
        }
    }
    assert_eq!(count, names.len(), "{names:?}");
    found
}
