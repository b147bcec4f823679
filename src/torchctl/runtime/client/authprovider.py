"""Credentials of the older auth providers (oidc, gcp), from kubernetes_asyncio. The only module that imports it.

It costs a third of a second and 40 MB, and so is imported only for such a kubeconfig.
"""

import asyncio

from torchctl.runtime.client.credentials import CredentialsError, Issued

__all__ = ["issue"]

PERIOD_S = 120.0
"""Seconds between calls: the providers track the expiry of their token themselves."""
TIMEOUT_S = 30.0


async def issue(paths: str, context: str) -> Issued:
    """Asks the provider that a context's user names.

    Raises:
        CredentialsError: It gives none.
    """
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    settings = Configuration()
    try:
        loader = KubeConfigLoader(
            config_dict=KubeConfigMerger(paths).config, active_context=context, config_base_path=None
        )
        async with asyncio.timeout(TIMEOUT_S):
            await loader.load_and_set(settings)
    except Exception as error:  # the providers may raise anything
        raise CredentialsError(f"the auth provider gives no credentials: {error!r}") from error
    return Issued(settings.api_key.get("BearerToken"), None, PERIOD_S)
