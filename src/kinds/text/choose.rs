//! Chooses sentences by maximal marginal relevance: important ones that do not repeat what was chosen.

use super::rank::Similarities;

/// 0.3: how much repeating something costs, against 0.7 for being important.
const REPETITION: f64 = 0.3;

/// 90 %: a summary this full is not filled up with whatever still fits.
const FULL_ENOUGH_PERCENT: usize = 90;

/// The places of the chosen sentences, ascending. `words`: the length of each sentence. Empty if none fits.
pub(super) fn choose(importance: &[f64], words: &[usize], similarities: &Similarities, max_words: usize) -> Vec<usize> {
    let most = importance.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let mut repeats = vec![0.0f64; importance.len()];
    let mut left: Vec<usize> = (0..importance.len()).collect();
    let mut chosen = Vec::new();
    let mut length = 0;
    while length * 100 < max_words * FULL_ENOUGH_PERCENT {
        left.retain(|&sentence| length + words[sentence] <= max_words);
        let value = |sentence: usize| (1.0 - REPETITION) * importance[sentence] / most - REPETITION * repeats[sentence];
        // Of equals the first: `max_by` would take the last.
        let best = left.iter().copied().enumerate().rev().max_by(|(_, a), (_, b)| value(*a).total_cmp(&value(*b)));
        let Some((at, best)) = best else {
            break;
        };
        left.remove(at);
        length += words[best];
        for &sentence in &left {
            repeats[sentence] = repeats[sentence].max(f64::from(similarities.between(best, sentence)));
        }
        chosen.push(best);
    }
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::text::terms::Bag;

    fn chosen(bags: &[Bag], importance: &[f64], words: &[usize], max_words: usize) -> Vec<usize> {
        choose(importance, words, &Similarities::of(bags, 8, false, &|| true).unwrap(), max_words)
    }

    #[test]
    fn what_repeats_a_chosen_sentence_comes_after_what_does_not() {
        let bags = [vec![(0, 1.0), (1, 1.0)], vec![(0, 1.0), (1, 1.0)], vec![(2, 1.0)], vec![(3, 1.0)]];
        assert_eq!(chosen(&bags, &[0.30, 0.29, 0.21, 0.20], &[10; 4], 20), [0, 2]);
        assert_eq!(chosen(&bags, &[0.20, 0.21, 0.29, 0.30], &[10; 4], 30), [1, 2, 3], "in the order of the text");
    }

    #[test]
    fn the_limit_is_kept_and_a_full_summary_is_not_filled_up() {
        let bags: Vec<Bag> = (0..4).map(|term| vec![(term, 1.0)]).collect();
        assert_eq!(chosen(&bags, &[0.4, 0.3, 0.2, 0.1], &[50, 60, 41, 5], 100), [0, 2]);
        assert_eq!(chosen(&bags, &[0.4, 0.3, 0.2, 0.1], &[101; 4], 100), [0usize; 0]);
        assert_eq!(chosen(&bags, &[0.25; 4], &[50; 4], 100), [0, 1], "of equals the first");
    }
}
