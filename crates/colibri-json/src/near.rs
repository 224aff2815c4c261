//! Suggestions for misspelt names.

/// The most characters of a name that are compared. A name that is much longer than a known one is
/// not near it in any case.
const MAX_COMPARED: usize = 128;

/// The known name nearest to `name`, if one is near enough.
#[must_use]
pub fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    let nearest = known.iter().min_by_key(|known| distance(name, known))?;
    (distance(name, nearest) <= nearest.len().max(2) / 2).then_some(nearest)
}

/// The number of edits (insert, delete, replace, swap of neighbours) that turn `a` into `b`,
/// ignoring ASCII case.
fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|name| {
        let chars = name.chars().take(MAX_COMPARED);
        chars.map(|c| c.to_ascii_lowercase()).collect::<Vec<_>>()
    });
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
