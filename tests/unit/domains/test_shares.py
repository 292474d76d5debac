"""How much of a run each of its domains gets.

Invariants: the parts add up to the whole, and each is its exact share rounded up or down, but for
the least that a domain gets; the largest remainders are rounded up; every beginning of a mixed list
has the shares; a run of one domain has all, under no name.
"""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from genenv_core.domains.shares import Shares
from tests.mutations import mutation

SHARES = "genenv_core/domains/shares.py"


@mutation(
    "places left over go to the smallest remainders", SHARES,
    "key=lambda name: found[name] - exact[name])", "key=lambda name: exact[name] - found[name])",
)  # fmt: skip
def test_the_largest_remainders_are_rounded_up() -> None:
    # Of 10: 5.5, 2.8 and 1.7 exactly, so 5, 2 and 1, and two more for the remainders .8 and .7.
    assert Shares({"a": 55, "b": 28, "c": 17}).split(10) == {"a": 5, "b": 3, "c": 2}
    assert Shares({"a": 1, "b": 1}).split(3) == {"a": 2, "b": 1}  # of equal ones, the first


@mutation(
    "a domain of little weight gets nothing", SHARES,
    "while min(found.values()) < least:", "while min(found.values()) < 0:",
)  # fmt: skip
def test_each_gets_at_least_one_while_there_is_one_for_each() -> None:
    rare = Shares({"a": 1000, "b": 1, "c": 1})
    assert rare.split(5) == {"a": 3, "b": 1, "c": 1}
    assert rare.split(2) == {"a": 2, "b": 0, "c": 0}
    assert rare.split(5, least=0) == {"a": 5, "b": 0, "c": 0}


@mutation(
    "a mixed list has one domain after the other", SHARES,
    "split[name] * place / count - taken[name]", "split[name] - taken[name]",
)  # fmt: skip
def test_a_mixed_list_by_hand() -> None:
    assert Shares({"a": 2, "b": 1}).mixed(6) == ["a", "b", "a", "a", "b", "a"]


@given(
    st.dictionaries(st.text("abc", min_size=1), st.floats(0.01, 100), min_size=1, max_size=5),
    st.integers(0, 200),
    st.integers(0, 20),
)
def test_every_beginning_has_the_shares(weights: dict[str, float], count: int, least: int) -> None:
    shares = Shares(weights)
    split = shares.split(count, least)
    assert sum(split.values()) == count and set(split) == set(weights)
    assert min(split.values()) >= min(least, count // len(weights))
    total = sum(weights.values())
    if all(count * weight / total >= least for weight in weights.values()):
        assert all(abs(split[n] - count * w / total) < 1 for n, w in weights.items())
    order = shares.mixed(count, least)
    assert Counter(order) == Counter({name: n for name, n in split.items() if n})
    for end in range(count):
        seen = Counter(order[:end])
        assert all(abs(seen[n] - split[n] * end / count) < len(weights) for n in weights)


def test_one_domain_has_all_and_no_name() -> None:
    assert (Shares().names, Shares().split(7), Shares().mixed(2)) == (("",), {"": 7}, ["", ""])
    assert (
        Shares().domain_of("desk/k3") == "" and Shares({"desk": 1.0}).domain_of("desk/k3") == "desk"
    )


@mutation(
    "what a domain lacks stays empty", SHARES,
    "        while left:\n", "        for _ in range(left > 0):\n",
)  # fmt: skip
@mutation(
    "what a domain lacks goes to the first one", SHARES,
    "weights = {name: self.weights.get(name, 1.0) for name in open_}",
    "weights = {name: 1.0 for name in open_[:1]}",
)  # fmt: skip
def test_what_a_domain_lacks_the_others_get_by_their_weights() -> None:
    shares = Shares({"a": 2, "b": 1, "c": 1})
    assert shares.within(8, {"a": 9, "b": 9, "c": 9}) == {"a": 4, "b": 2, "c": 2}
    # c lacks both of its two: of those a gets 2 * 2/3, rounded to 1, and b the other.
    assert shares.within(8, {"a": 9, "b": 9}) == {"a": 5, "b": 3, "c": 0}
    assert shares.within(8, {"a": 1, "b": 2, "c": 9}) == {"a": 1, "b": 2, "c": 5}
    assert shares.within(8, {"a": 1, "c": 3}) == {"a": 1, "b": 0, "c": 3}
    assert shares.within(0, {"a": 1}) == {"a": 0, "b": 0, "c": 0}


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(0.01, 100), min_size=1),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 30)),
    st.integers(0, 60),
)
def test_none_gets_more_than_there_is_and_no_place_stays_empty(
    weights: dict[str, float], there: dict[str, int], count: int
) -> None:
    found = Shares(weights).within(count, there)
    assert all(0 <= found[name] <= there.get(name, 0) for name in weights)
    assert sum(found.values()) == min(count, sum(there.get(name, 0) for name in weights))
    if all(there.get(name, 0) >= count for name in weights):
        assert found == Shares(weights).split(count)
