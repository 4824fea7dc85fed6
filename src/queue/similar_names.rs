//! Suggestions for a misspelt kind ("did you mean …?").

use std::cmp::Reverse;

use crate::job::Kind;

/// 3 suggestions help; more are a list.
const SUGGESTIONS_MAX: usize = 3;
/// 256 comparisons take a fraction of a millisecond.
const COMPARED_MAX: usize = 256;
const SIMILAR: f64 = 0.75;

/// Known kinds with similar names. Of very many, only those with the longest common prefix are compared.
pub(super) fn closest<'k>(kind: &Kind, known: impl Iterator<Item = &'k Kind>) -> Vec<Kind> {
    let mut candidates: Vec<&Kind> = known.collect();
    if candidates.len() > COMPARED_MAX {
        let alike =
            |other: &Kind| other.as_str().bytes().zip(kind.as_str().bytes()).take_while(|(a, b)| a == b).count();
        candidates.sort_by_cached_key(|other| (Reverse(alike(other)), other.as_str().len()));
        candidates.truncate(COMPARED_MAX);
    }
    let scored = candidates.into_iter().map(|other| (strsim::jaro_winkler(kind.as_str(), other.as_str()), other));
    let mut scored: Vec<_> = scored.filter(|(score, _)| *score > SIMILAR).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(SUGGESTIONS_MAX).map(|(_, kind)| kind.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(names: impl Iterator<Item = String>) -> Vec<Kind> {
        names.map(|name| Kind::new(name).unwrap()).collect()
    }

    #[test]
    fn the_closest_names_come_first_and_foreign_ones_not_at_all() {
        let known = kinds(["welcome", "welcome_back", "invoice", "goodbye"].map(str::to_owned).into_iter());
        let close = closest(&Kind::new("welcom").unwrap(), known.iter());
        assert_eq!(close.iter().map(|kind| kind.as_str()).collect::<Vec<_>>(), ["welcome", "welcome_back"]);
    }

    #[test]
    fn a_name_is_found_among_thousands_of_others_that_begin_alike() {
        let known = kinds((0..3_000).map(|n| format!("mail_{n:04}")).chain(["mail_welcome".to_owned()]));
        let close = closest(&Kind::new("mail_welcom").unwrap(), known.iter());
        assert_eq!(close[0].as_str(), "mail_welcome");
    }
}
