//! Choices that take as long as a launch, remembered for the arguments of late.

/// The last `N` choices, the next to go in front.
pub(crate) struct Recent<K, V, const N: usize> {
    choices: Vec<(K, V)>,
    next: usize,
}

impl<K, V, const N: usize> Default for Recent<K, V, N> {
    fn default() -> Self {
        Self { choices: Vec::new(), next: 0 }
    }
}

impl<K: PartialEq, V: Copy, const N: usize> Recent<K, V, N> {
    /// What was chosen for `key`, or what `choose` does, which is remembered.
    pub fn get(&mut self, key: K, choose: impl FnOnce() -> V) -> V {
        if let Some((_, choice)) = self.choices.iter().find(|(known, _)| *known == key) {
            return *choice;
        }
        let choice = choose();
        if self.choices.len() < N {
            self.choices.push((key, choice));
        } else {
            self.choices[self.next] = (key, choice);
            self.next = (self.next + 1) % N;
        }
        choice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let mut recent = Recent::<u32, u32, 8>::default();
        for key in 1..=9 {
            assert_eq!(recent.get(key, || 10 * key), 10 * key);
        }
        assert_eq!(recent.choices.len(), 8);
        assert!(!recent.choices.iter().any(|(known, _)| *known == 1));
        assert_eq!(recent.get(2, || unreachable!("remembered")), 20);
    }
}
