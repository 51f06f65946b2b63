//! Places in a document that a program writes, between two comments:
//! `<!-- compare: NAME -->` and `<!-- /compare -->`.

const END: &str = "<!-- /compare -->";

/// The document with `content` between the markers of that name. Calling it again changes nothing.
pub fn replace(document: &str, name: &str, content: &str) -> Result<String, String> {
    let begin = format!("<!-- compare: {name} -->");
    let (before, rest) = document
        .split_once(&begin)
        .ok_or_else(|| format!("no marker {begin}"))?;
    let (old, after) = rest
        .split_once(END)
        .ok_or_else(|| format!("no marker {END} after {begin}"))?;
    if old.contains("<!-- compare: ") {
        return Err(format!("no marker {END} after {begin}"));
    }
    let content = content.trim_end();
    Ok(format!("{before}{begin}\n{content}\n{END}{after}"))
}
