"""The counting, which reads and prints nothing."""

import re
from collections import Counter
from collections.abc import Iterable


def words(text: str) -> list[str]:
    """The words of a text in lower case; an apostrophe belongs to its word."""
    return re.findall(r"[a-z]+(?:'[a-z]+)?", text.lower())


def tally(texts: Iterable[str], top: int) -> list[tuple[str, int]]:
    """The most frequent words with their counts; of equals, the first in the alphabet first."""
    counts = Counter(word for text in texts for word in words(text))
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:top]
