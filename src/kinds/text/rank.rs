//! LexRank: a sentence is important if important sentences are similar to it. Early sentences have an advantage.
//!
//! It does not choose: that is `choose`.

use super::terms::Bag;

/// 0.05: less in common is chance.
const SIMILAR_FROM: f32 = 0.05;

/// 0.85: the usual damping of PageRank.
const DAMPING: f64 = 0.85;

/// 50 rounds: the ranks of ordinary texts stand still after 20.
pub(super) const ROUNDS_MAX: usize = 50;

/// 1e-6: a difference that changes no order.
const STANDS_STILL: f64 = 1e-6;

/// How similar each sentence is to each other one, 0 to 1. Half of a matrix: 8 MB for the most sentences there are.
pub(super) struct Similarities {
    /// The rows one after the other; row `i` has the `i` sentences in front of it.
    below: Vec<f32>,
    sentences: usize,
}

impl Similarities {
    /// Cosines of tf·idf. `terms`: how many different terms there are. `None` when `go_on` says no, asked once a row.
    pub(super) fn of(bags: &[Bag], terms: usize, drop_frequent: bool, go_on: &dyn Fn() -> bool) -> Option<Self> {
        let weighted = weigh(bags, terms, drop_frequent);
        let mut postings: Vec<Vec<(u32, f32)>> = vec![Vec::new(); terms];
        let mut below = Vec::with_capacity(bags.len() * bags.len().saturating_sub(1) / 2);
        for (sentence, bag) in weighted.iter().enumerate() {
            if !go_on() {
                return None;
            }
            let row = below.len();
            below.resize(row + sentence, 0.0);
            for (term, weight) in bag {
                let posting = &mut postings[*term as usize];
                for (other, other_weight) in posting.iter() {
                    below[row + *other as usize] += weight * other_weight;
                }
                posting.push((sentence as u32, *weight));
            }
            for similarity in &mut below[row..] {
                *similarity = if *similarity > SIMILAR_FROM { similarity.min(1.0) } else { 0.0 };
            }
        }
        Some(Self { below, sentences: bags.len() })
    }

    pub(super) fn between(&self, one: usize, other: usize) -> f32 {
        match one.max(other) {
            _ if one == other => 1.0,
            larger => self.row(larger)[one.min(other)],
        }
    }

    fn row(&self, sentence: usize) -> &[f32] {
        let start = sentence * sentence.saturating_sub(1) / 2;
        &self.below[start..start + sentence]
    }
}

/// Weights each term by tf·ln((N+1)/(df+½)) and gives every sentence the length 1.
fn weigh(bags: &[Bag], terms: usize, drop_frequent: bool) -> Vec<Bag> {
    let mut frequencies = vec![0u32; terms];
    for (term, _) in bags.iter().flatten() {
        frequencies[*term as usize] += 1;
    }
    let count = bags.len() as f32;
    // Where stop words are not known, a word of every fifth sentence is taken for one.
    let is_frequent = |frequency: u32| drop_frequent && bags.len() >= 10 && frequency as f32 > count / 5.0;
    let weight = |&(term, occurrences): &(u32, f32)| {
        let frequency = frequencies[term as usize];
        let weight = if is_frequent(frequency) { 0.0 } else { ((count + 1.0) / (frequency as f32 + 0.5)).ln() };
        (term, occurrences * weight)
    };
    let weighted = bags.iter().map(|bag| {
        let mut bag: Bag = bag.iter().map(weight).filter(|(_, weight)| *weight > 0.0).collect();
        let length = bag.iter().map(|(_, weight)| weight * weight).sum::<f32>().sqrt();
        bag.iter_mut().for_each(|(_, weight)| *weight /= length);
        bag
    });
    weighted.collect()
}

/// The importance of each sentence; all together 1. `None` when `go_on` says no, asked once a round.
pub(super) fn importance(similarities: &Similarities, prior: &[f64], go_on: &dyn Fn() -> bool) -> Option<Vec<f64>> {
    let sentences = similarities.sentences;
    let sum: f64 = prior.iter().sum();
    let prior: Vec<f64> = prior.iter().map(|share| share / sum).collect();
    let mut degrees = vec![0.0f64; sentences];
    for sentence in 0..sentences {
        for (other, similarity) in similarities.row(sentence).iter().enumerate() {
            degrees[sentence] += f64::from(*similarity);
            degrees[other] += f64::from(*similarity);
        }
    }
    let mut ranks = prior.clone();
    for _ in 0..ROUNDS_MAX {
        if !go_on() {
            return None;
        }
        let next = round(similarities, &prior, &degrees, &ranks);
        let moved: f64 = next.iter().zip(&ranks).map(|(new, old)| (new - old).abs()).sum();
        ranks = next;
        if moved < STANDS_STILL {
            break;
        }
    }
    Some(ranks)
}

fn round(similarities: &Similarities, prior: &[f64], degrees: &[f64], ranks: &[f64]) -> Vec<f64> {
    // What each gives to a neighbour per unit of similarity; one without neighbours gives to all, by the prior.
    let given: Vec<f64> =
        ranks.iter().zip(degrees).map(|(rank, degree)| if *degree > 0.0 { rank / degree } else { 0.0 }).collect();
    let lonely: f64 = ranks.iter().zip(degrees).filter(|(_, degree)| **degree == 0.0).map(|(rank, _)| rank).sum();
    let mut received = vec![0.0f64; ranks.len()];
    for sentence in 0..ranks.len() {
        for (other, similarity) in similarities.row(sentence).iter().enumerate() {
            let similarity = f64::from(*similarity);
            received[sentence] += similarity * given[other];
            received[other] += similarity * given[sentence];
        }
    }
    let mix = |(received, prior): (f64, &f64)| (1.0 - DAMPING) * prior + DAMPING * (received + lonely * prior);
    received.into_iter().zip(prior).map(mix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similarities(bags: &[Bag], terms: usize) -> Similarities {
        Similarities::of(bags, terms, false, &|| true).unwrap()
    }

    #[test]
    fn sentences_with_the_same_terms_are_similar_in_both_directions() {
        let bags = [vec![(0, 1.0), (1, 1.0)], vec![(0, 2.0), (1, 2.0)], vec![(2, 1.0)], vec![(1, 1.0), (2, 1.0)]];
        let found = similarities(&bags, 3);
        assert!((found.between(0, 1) - 1.0).abs() < 1e-6);
        assert_eq!(found.between(0, 2), 0.0);
        assert!(found.between(3, 0) > 0.1 && found.between(3, 0) < 0.9);
        assert!(found.between(3, 2) > found.between(3, 0), "a rare term says more");
        assert_eq!(found.between(0, 3).to_bits(), found.between(3, 0).to_bits());
    }

    #[test]
    fn what_others_repeat_is_important_and_of_equals_the_first() {
        let even = [1.0; 4];
        let bags = [vec![(0, 1.0)], vec![(1, 1.0)], vec![(0, 1.0), (1, 1.0), (2, 1.0)], vec![(2, 1.0)]];
        let ranks = importance(&similarities(&bags, 3), &even, &|| true).unwrap();
        assert!((0..4).all(|other| ranks[2] >= ranks[other]), "{ranks:?}");
        assert!((ranks.iter().sum::<f64>() - 1.0).abs() < 1e-6);
        let alike = vec![vec![(0, 1.0)]; 4];
        let ranks = importance(&similarities(&alike, 1), &[1.0, 0.7, 0.5, 0.4], &|| true).unwrap();
        assert!(ranks.is_sorted_by(|earlier, later| earlier > later), "{ranks:?}");
    }

    #[test]
    fn sentences_without_anything_in_common_have_ranks_too() {
        let bags = [vec![(0, 1.0)], vec![(1, 1.0)], vec![]];
        let ranks = importance(&similarities(&bags, 2), &[1.0; 3], &|| true).unwrap();
        assert!(ranks.iter().all(|rank| (rank - 1.0 / 3.0).abs() < 1e-6), "{ranks:?}");
    }
}
