"""The cluster's DNS domain, read from the search list that the kubelet gives every pod. Pure."""

__all__ = ["DEFAULT_DOMAIN", "cluster_domain_of"]

DEFAULT_DOMAIN = "cluster.local"


def cluster_domain_of(resolv_conf: str) -> str:
    """Returns the domain of the search entry `svc.<domain>`, else cluster.local.

    A pod's search list is `<namespace>.svc.<domain> svc.<domain> <domain>`, then the node's own.
    """
    for line in resolv_conf.splitlines():
        keyword, *entries = line.split() or [""]
        if keyword != "search":
            continue
        for entry in entries:
            if entry.startswith("svc.") and entry.removeprefix("svc.") in entries:
                return entry.removeprefix("svc.").rstrip(".")
    return DEFAULT_DOMAIN
