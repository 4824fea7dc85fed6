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
