from collections.abc import Iterable

import pytest

from torchctl.runtime.cache.change import Change
from torchctl.runtime.cache.detector import MutationDetector
from torchctl.runtime.cache.store import Store
from torchctl.runtime.client.codec import Undecodable
from torchctl.runtime.kinds import LEASE, Key, Lease, LeaseSpec, ObjectMeta
from torchctl.runtime.watch.events import Applied, Init, InitDone, Removed, Skipped, StoreEvent

A = Key("ns", "a")


def lease(name: str, version: int | str, *, uid: str = "1", holder: str = "", namespace: str = "ns") -> Lease:
    meta = ObjectMeta(name=name, namespace=namespace, uid=f"{name}-{uid}", resource_version=str(version))
    return Lease(meta, LeaseSpec(holder_identity=holder))


def undecodable(name: str, *, uid: str = "1", version: str = "", deleted: bool = False) -> Skipped:
    return Skipped(Undecodable(LEASE, Key("ns", name), "expected int", f"{name}-{uid}", version, deleted))


def holders(obj: Lease) -> Iterable[str]:
    return [obj.spec.holder_identity] if obj.spec.holder_identity else []


@pytest.fixture
def store() -> Store[Lease]:
    return Store(LEASE, {"holder": holders})


def feed(store: Store[Lease], *events: StoreEvent[Lease]) -> list[tuple[str, str]]:
    """Feeds events and returns the changes that came of them, as type and version or uid of the object."""
    return [_brief(change) for event in events for change in store.feed(event)]


def _brief(change: Change[Lease]) -> tuple[str, str]:
    return change.type, f"{change.object.metadata.uid}@{change.object.metadata.resource_version}"


class TestOneObject:
    def test_appears_changes_and_goes(self, store: Store[Lease]) -> None:
        changes = feed(store, Applied(lease("a", 1)), Applied(lease("a", 2)), Removed(lease("a", 3)))
        assert changes == [("added", "a-1@1"), ("updated", "a-1@2"), ("deleted", "a-1@2")]
        assert store.get(A) is None
        assert len(store) == 0

    def test_an_older_or_equal_version_never_replaces_a_newer_one(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 9)))
        assert feed(store, Applied(lease("a", 9)), Applied(lease("a", 8))) == []

    def test_versions_are_compared_as_numbers(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 9)))
        assert feed(store, Applied(lease("a", 10))) == [("updated", "a-1@10")]

    def test_versions_that_are_no_numbers_replace_when_they_differ(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", "x")))
        assert feed(store, Applied(lease("a", "x")), Applied(lease("a", "b"))) == [("updated", "a-1@b")]

    def test_new_uid_under_a_name_is_delete_and_add(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1)))
        assert feed(store, Applied(lease("a", 5, uid="2"))) == [("deleted", "a-1@1"), ("added", "a-2@5")]

    def test_late_removal_of_an_earlier_object_changes_nothing(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 5, uid="2")))
        assert feed(store, Removed(lease("a", 3, uid="1"))) == []

    def test_removal_of_a_later_object_removes_the_known_one(self, store: Store[Lease]) -> None:
        """Both have one name, and the addition of the later one was missed."""
        feed(store, Applied(lease("a", 1)))
        assert feed(store, Removed(lease("a", 6, uid="2"))) == [("deleted", "a-1@1")]

    def test_deletion_may_carry_the_last_version(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 5)))
        assert feed(store, Removed(lease("a", 5))) == [("deleted", "a-1@5")]

    def test_replayed_deletion_does_not_remove_a_later_form(self, store: Store[Lease]) -> None:
        """The object left the selector and came back: its uid is the same."""
        feed(store, Applied(lease("a", 5)))
        assert feed(store, Removed(lease("a", 3))) == []

    def test_the_end_of_what_was_never_seen_is_no_change(self, store: Store[Lease]) -> None:
        assert feed(store, Removed(lease("a", 3))) == []


class TestLists:
    def test_a_list_is_held_back_until_it_is_complete(self, store: Store[Lease]) -> None:
        assert feed(store, Init(), Applied(lease("a", 1))) == []
        assert store.get(A) is None
        assert feed(store, InitDone("5")) == [("added", "a-1@1")]

    def test_only_the_first_list_is_initial(self, store: Store[Lease]) -> None:
        def initial(*events: StoreEvent[Lease]) -> list[bool]:
            return [change.initial for event in events for change in store.feed(event)]

        assert initial(Init(), Applied(lease("a", 1)), InitDone("5")) == [True]
        assert initial(Init(), Applied(lease("a", 1)), Applied(lease("b", 6)), InitDone("7")) == [False]

    def test_deletes_that_nobody_saw_are_made_up_for(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1)), Applied(lease("b", 2)))
        assert feed(store, Init(), Applied(lease("b", 2)), InitDone("5")) == [("deleted", "a-1@1")]

    def test_a_list_that_broke_off_leaves_no_trace(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1)))
        changes = feed(store, Init(), Applied(lease("b", 2)), Init(), Applied(lease("a", 1)), InitDone("5"))
        assert changes == []

    def test_what_did_not_change_keeps_its_object(self, store: Store[Lease]) -> None:
        feed(store, Applied(first := lease("a", 1)))
        feed(store, Init(), Applied(lease("a", 1)), InitDone("5"))
        assert store.get(A) is first

    def test_what_goes_while_the_list_comes_is_not_in_it(self, store: Store[Lease]) -> None:
        assert feed(store, Init(), Applied(lease("a", 1)), Removed(lease("a", 2)), InitDone("5")) == []

    def test_a_forced_list_lets_versions_go_back(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 9)))
        changes = feed(store, Init(), Applied(lease("a", 3)), InitDone("5", forced=True))
        assert changes == [("updated", "a-1@3")]

    def test_changes_are_made_one_at_a_time(self, store: Store[Lease]) -> None:
        """So that a handler that is added in between sees each object once."""
        feed(store, Init(), Applied(lease("a", 1)), Applied(lease("b", 2)))
        changes = store.feed(InitDone("5"))
        next(changes)
        assert len(store) == 1


class TestUndecodable:
    def test_the_last_good_form_stays(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1)))
        assert feed(store, undecodable("a")) == []
        assert store.get(A) == lease("a", 1)
        assert [*store.undecodable] == [A]

    def test_the_last_good_form_survives_a_list(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1)))
        assert feed(store, Init(), undecodable("a"), InitDone("5")) == []
        assert store.get(A) == lease("a", 1)
        assert [*store.undecodable] == [A]

    def test_it_goes_with_the_object(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1)), undecodable("a"))
        assert feed(store, undecodable("a", deleted=True)) == [("deleted", "a-1@1")]
        assert store.undecodable == {}

    def test_it_goes_with_a_list_that_does_not_name_it(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1)), undecodable("a"))
        assert feed(store, Init(), InitDone("5")) == [("deleted", "a-1@1")]
        assert store.undecodable == {}

    def test_list_with_a_nameless_item_deletes_nothing(self, store: Store[Lease]) -> None:
        """The item may be any of the objects."""
        feed(store, Applied(lease("a", 1)))
        assert feed(store, Init(), Skipped(Undecodable(LEASE, Key("", ""), "no object")), InitDone("5")) == []

    def test_it_goes_when_the_name_has_another_uid(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1)))
        assert feed(store, undecodable("a", uid="2")) == [("deleted", "a-1@1")]

    def test_a_later_good_form_replaces_it(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1)), undecodable("a"))
        assert feed(store, Applied(lease("a", 3))) == [("updated", "a-1@3")]
        assert store.undecodable == {}

    @pytest.mark.parametrize(
        "replayed",
        [
            Removed(lease("a", 3)),
            Applied(lease("a", 3)),
            undecodable("a", version="3"),
            undecodable("a", version="3", deleted=True),
        ],
        ids=["deleted", "modified", "undecodable", "undecodable and deleted"],
    )
    def test_replay_of_an_earlier_object_does_not_hide_it(
        self, store: Store[Lease], replayed: StoreEvent[Lease]
    ) -> None:
        feed(store, known := undecodable("a", uid="2", version="4"))
        assert feed(store, replayed) == []
        assert store.undecodable == {A: known.what}

    @pytest.mark.parametrize("deleted", [False, True])
    def test_replay_of_it_leaves_the_object_that_came_later(self, store: Store[Lease], deleted: bool) -> None:
        feed(store, Applied(lease("a", 4, uid="2")))
        assert feed(store, undecodable("a", version="3", deleted=deleted)) == []
        assert store.get(A) == lease("a", 4, uid="2")
        assert store.undecodable == {}

    def test_versions_that_went_back_mark_it_all_the_same(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 9)))
        assert feed(store, Init(), restored := undecodable("a", version="4"), InitDone("5", forced=True)) == []
        assert store.undecodable == {A: restored.what}


class TestReading:
    def test_lists_by_namespace(self, store: Store[Lease]) -> None:
        feed(store, Applied(a := lease("a", 1)), Applied(b := lease("b", 2, namespace="other")))
        assert store.list("other") == (b,)
        assert store.list() == (a, b)
        assert store.list("empty") == ()

    def test_keys_are_those_of_one_moment(self, store: Store[Lease]) -> None:
        feed(store, *(Applied(lease(name, 1)) for name in "abc"))
        keys = store.all_keys()
        assert next(keys) == Key("ns", "a")
        feed(store, Removed(lease("b", 2)), Applied(lease("d", 3)))
        assert [key.name for key in keys] == ["b", "c"]

    def test_indexes_follow_the_objects(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1, holder="x")))
        assert [obj.metadata.name for obj in store.by_index("holder", "x")] == ["a"]
        feed(store, Applied(lease("a", 2, holder="y")))
        assert store.by_index("holder", "x") == ()
        feed(store, Removed(lease("a", 3)))
        assert store.by_index("holder", "y") == ()

    def test_an_index_added_later_covers_what_is_there(self, store: Store[Lease]) -> None:
        feed(store, Applied(lease("a", 1)))
        store.add_index("name", lambda obj: [obj.metadata.name])
        assert len(store.by_index("name", "a")) == 1

    def test_an_index_function_that_raises_hides_only_its_own_object(self, store: Store[Lease]) -> None:
        def picky(obj: Lease) -> Iterable[str]:
            if obj.metadata.name == "a":
                raise ValueError(obj.metadata.name)
            return ["ok"]

        store.add_index("picky", picky)
        feed(store, Applied(lease("a", 1)), Applied(lease("b", 2)))
        assert [obj.metadata.name for obj in store.by_index("picky", "ok")] == ["b"]
        assert len(store) == 2

    def test_an_unknown_index_is_an_error(self, store: Store[Lease]) -> None:
        with pytest.raises(KeyError):
            store.by_index("nope", "x")


def test_objects_changed_in_place_are_found_and_still_indexed_right() -> None:
    """Their labels are dicts, which nothing prevents from being changed."""
    Store.watched = detector = MutationDetector()
    store: Store[Lease] = Store(LEASE, {"app": lambda obj: [obj.metadata.labels["app"]]})
    one, two = (Lease(ObjectMeta(name=name, namespace="ns", labels={"app": "a"})) for name in ("one", "two"))
    feed(store, Applied(one), Applied(two))
    one.metadata.labels["app"] = "b"
    feed(store, Removed(one))
    assert store.by_index("app", "a") == (two,)
    assert [line.split(" was ")[0] for line in detector.finish()] == ["cached object leases.coordination.k8s.io ns/one"]
