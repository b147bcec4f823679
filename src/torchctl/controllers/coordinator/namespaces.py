"""What ResourceQuotas allow the gangs of their namespaces to hold together."""

from collections.abc import Iterable, Iterator

from torchctl.controllers.coordinator.matching import holds
from torchctl.controllers.coordinator.shortage import QuotaShortage, Scope
from torchctl.controllers.coordinator.values import Holding, NamespaceQuota, Waiting

__all__ = ["Namespaces"]


class Namespaces:
    """Books what gangs take of ResourceQuotas, beside what exists already.

    Attributes:
        names: The namespaces that have a ResourceQuota.
    """

    def __init__(self, quotas: Iterable[NamespaceQuota]) -> None:
        self._left: dict[str, list[tuple[NamespaceQuota, dict[str, int]]]] = {}
        for quota in quotas:
            self._left.setdefault(quota.namespace, []).append((quota, dict(quota.left)))
        self.names = frozenset(self._left)

    def book(self, gang: Waiting | Holding, demand: tuple[tuple[str, int], ...], sign: int = 1) -> None:
        """Books a demand of a gang; with sign -1 the other way round."""
        for _, left in self._governing(gang):
            for resource, amount in demand:
                if resource in left:
                    left[resource] -= sign * amount

    def never(self, gang: Waiting) -> QuotaShortage | None:
        """Returns the ResourceQuota that refuses the gang's pods whoever else ends."""
        for quota, _ in self._governing(gang):
            for resource, containers in gang.unnamed:
                if resource in quota.hard:
                    return QuotaShortage(Scope.UNNAMED, quota.name, resource, 0, 0, never=True, containers=containers)
            for resource, asked in gang.namespace_demand:
                if asked > quota.hard.get(resource, asked):
                    hard = quota.hard[resource]
                    return QuotaShortage(Scope.NAMESPACE, quota.name, resource, asked, hard, never=True)
        return None

    def shortage(self, gang: Waiting) -> QuotaShortage | None:
        """Returns the ResourceQuota that has too little left."""
        for quota, left in self._governing(gang):
            for resource, asked in gang.namespace_demand:
                if resource in left and asked > left[resource]:
                    return QuotaShortage(Scope.NAMESPACE, quota.name, resource, asked, max(0, left[resource]))
        return None

    def _governing(self, gang: Waiting | Holding) -> Iterator[tuple[NamespaceQuota, dict[str, int]]]:
        """Yields the ResourceQuotas that count the gang's pods, with what is left of each."""
        for quota, left in self._left.get(gang.namespace, ()):
            scopes = dict(gang.quota_scopes) if quota.scopes else {}
            if all(holds(needed, scopes.get(needed.key)) for needed in quota.scopes):
                yield quota, left
