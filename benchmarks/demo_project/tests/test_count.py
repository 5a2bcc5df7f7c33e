"""What counts as a word, and in which order the counts come."""

import unittest

from tally.count import tally, words


class Words(unittest.TestCase):
    def test_case_does_not_matter(self) -> None:
        self.assertEqual(words("Bash bash BASH"), ["bash"] * 3)

    def test_an_apostrophe_belongs_to_its_word(self) -> None:
        self.assertEqual(words("don't 'quote' it"), ["don't", "quote", "it"])


class Tally(unittest.TestCase):
    def test_the_most_frequent_comes_first(self) -> None:
        self.assertEqual(tally(["b a", "b"], top=2), [("b", 2), ("a", 1)])

    def test_equals_come_in_the_order_of_the_alphabet(self) -> None:
        self.assertEqual(tally(["c b a"], top=2), [("a", 1), ("b", 1)])
