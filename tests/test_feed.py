"""``Feed``: numbered items for readers of any speed."""

from __future__ import annotations

from hypothesis import given, strategies as st

from shellsession.feed import Feed


@given(st.lists(st.one_of(st.integers(1, 5), st.none()), max_size=40), st.integers(1, 9))
def test_feed_reader_of_any_speed_gets_each_item_or_its_count(steps: list[int | None], most: int) -> None:
    """A number is an item of that size, and None a read: what was read and what was dropped are all items, in order."""
    feed, made, seen = Feed[int](most), 0, 0
    for size in [*steps, None]:
        if size is None:
            dropped, items = feed.after(seen)
            assert items == list(range(seen + dropped + 1, made + 1))
            assert not dropped or items  # the newest item is always there
            seen = feed.last
        else:
            made += 1
            assert feed.append(made, size) == made == feed.last


def test_feed_full_keeps_the_newest_items() -> None:
    feed = Feed[str](2)
    for item in "abc":
        feed.append(item)
    assert feed.after(0) == (1, ["b", "c"])
    assert feed.after(2) == (0, ["c"])
    assert feed.after(3) == feed.after(9) == (0, [])
    assert feed.append("d", 7) == 4
    assert feed.after(3) == (0, ["d"])
