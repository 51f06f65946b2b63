use super::*;

/// The script reads slices as an address and a length, and a name through its box.
#[test]
fn slices_are_an_address_and_a_length() {
    let text = "some text";
    // SAFETY: a slice is two words.
    let words: [usize; 2] = unsafe { core::mem::transmute(text) };
    assert_eq!(words, [text.as_ptr().addr(), text.len()]);
}

#[test]
fn the_parts_of_a_place_are_found() {
    let parts = parts_of_a_place();
    assert!(parts.iter().all(|&part| part != 0), "{parts:?}");
    let different: std::collections::HashSet<_> = parts.iter().collect();
    assert_eq!(different.len(), parts.len(), "{parts:?}");
}

#[test]
fn every_entry_has_a_name() {
    assert_eq!(
        NAMES.split_whitespace().count(),
        greenthread_debugger.entries
    );
}

/// Every entry that the script asks for is in the table.
#[test]
fn the_script_asks_for_entries_that_are_there() {
    let asked = PARTS.split("table.").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    });
    let (mut count, names) = (0, NAMES.split_whitespace().collect::<Vec<_>>());
    for name in asked {
        assert!(names.contains(&name), "{name}");
        count += 1;
    }
    assert!(count > 20, "{count}");
}

/// gdb ends the script at a null; and the three parts stand in quotes.
#[test]
fn the_parts_end_where_they_shall() {
    assert_eq!(PARTS.find('\0'), Some(PARTS.len() - 1));
    assert_eq!(PARTS.matches("'''").count(), 2 * 3);
}
